package op

func init() {
	weight := Arg{Name: "weight", Field: "Weight", Optional: true, Doc: "a factor for each class"}
	ignore := Arg{Name: "ignore_index", Field: "IgnoreIndex", Default: defaultIgnoreIndex, Doc: "the target that counts for nothing"}
	reduction := Arg{Name: "reduction", Field: "Reduction", Default: "mean", Doc: "mean, sum or none"}
	minus, one := -1, 1
	fixed := func(shape []int, v ...float64) T { return T{Shape: shape, Values: v, NoGrad: true} }
	type options = CrossEntropyOptions
	samples := []Sample{
		{Name: "mean", Args: []any{Shaped(3, 5), Indices([]int{3}, 4, 0, 2), options{}}, Loose: 2},
		{Name: "sum", Args: []any{Shaped(3, 5), Indices([]int{3}, 4, 0, 2), options{Reduction: "sum"}}, Loose: 2},
		{Name: "none", Args: []any{Shaped(3, 5), Indices([]int{3}, 4, 0, 2), options{Reduction: "none"}}, Loose: 2},
		{Name: "one sample", Args: []any{Shaped(4), Indices([]int{}, 2), options{}}, Loose: 2},
		{Name: "inner", Args: []any{Shaped(2, 3, 4), Indices([]int{2, 4}, 0, 1, 2, 0, 1, 1, 2, 0), options{}}, Loose: 2},
		{Name: "inner none", Args: []any{Shaped(2, 3, 2, 2), Indices([]int{2, 2, 2}, 0, 1, 2, 0, 1, 1, 2, 0), options{Reduction: "none"}}, Loose: 2},
		{Name: "ignored", Args: []any{Shaped(3, 4), Indices([]int{3}, -1, 0, -1), options{IgnoreIndex: &minus}}, Loose: 2},
		{Name: "ignored class", Args: []any{Shaped(3, 4), Indices([]int{3}, 1, 0, 3), options{IgnoreIndex: &one, Reduction: "sum"}}, Loose: 2},
	}
	smooth := []Sample{
		{Name: "smoothing", Args: []any{Shaped(3, 4), Indices([]int{3}, 1, 0, 3), options{LabelSmoothing: 0.3}}, Loose: 2},
		{Name: "smoothing, ignored", Args: []any{Shaped(3, 4), Indices([]int{3}, 1, 0, 3), options{IgnoreIndex: &one, LabelSmoothing: 0.3}}, Loose: 2},
		{Name: "smoothing, inner", Args: []any{Shaped(2, 3, 4), Indices([]int{2, 4}, 0, 1, 2, 0, 1, 1, 2, 0), options{LabelSmoothing: 0.2, Reduction: "none"}}, Loose: 2},
		{Name: "probabilities", Args: []any{Shaped(3, 4), Between(0.1, 0.9, 3, 4), options{}}, Loose: 2},
		{Name: "probabilities, none", Args: []any{Shaped(2, 3, 4), Between(0.1, 0.9, 2, 3, 4), options{Reduction: "none", LabelSmoothing: 0.1}}, Loose: 2},
		{Name: "probabilities fixed", Args: []any{Shaped(2, 2), fixed([]int{2, 2}, 0.25, 0.75, 1, 0), options{Reduction: "sum"}}, Loose: 2},
	}
	register("loss",
		Row{Name: "cross_entropy", Func: CrossEntropy,
			Doc: "The cross entropy of softmax(input) along dimension 1 relative to class indices or probabilities.",
			Args: []Arg{{Name: "input", Doc: "scores [N, C, ...] or [C]"}, {Name: "target", Doc: "class indices [N, ...] or probabilities like the input"},
				weight, ignore, reduction,
				{Name: "label_smoothing", Field: "LabelSmoothing", Default: 0.0, Doc: "how much of the target is spread over all classes"}},
			Samples: append(append([]Sample(nil), samples...), smooth...)},
		Row{Name: "nll_loss", Func: NLLLoss, Memory: true,
			Doc: "The negative log likelihood of class indices under log-probabilities along dimension 1.",
			Args: []Arg{{Name: "input", Doc: "log-probabilities [N, C, ...] or [C]"}, {Name: "target", Doc: "class indices [N, ...]"},
				weight, ignore, reduction},
			Samples: samples},
		Row{Name: "ctc_loss", Func: CTCLoss,
			Doc: "The negative log likelihood of sequences of labels where repeats are merged and blanks dropped: connectionist temporal classification.",
			Args: []Arg{{Name: "log_probs", Doc: "[T, N, C] or [T, C]"}, {Name: "targets", Doc: "integers, [N, S], or all in one dimension"},
				{Name: "input_lengths", Doc: "the steps of each sample"}, {Name: "target_lengths", Doc: "the labels of each sample"},
				{Name: "blank", Field: "Blank", Default: 0, Doc: "the class that is no label"}, reduction,
				{Name: "zero_infinity", Field: "ZeroInfinity", Default: false, Doc: "losses of targets that do not fit are 0, not infinite"}},
			Samples: []Sample{
				{Name: "mean", Args: []any{Shaped(5, 2, 4), Indices([]int{2, 3}, 1, 1, 0, 2, 3, 1), []int{5, 4}, []int{2, 3}, CTCOptions{}}, Loose: 4},
				{Name: "none", Args: []any{Shaped(4, 3, 3), Indices([]int{3}, 0, 1, 0), []int{4, 2, 3}, []int{2, 0, 1}, CTCOptions{Blank: 2, Reduction: "none"}}, Loose: 4},
				{Name: "one sample", Args: []any{Shaped(4, 3), Indices([]int{2}, 1, 2), []int{3}, []int{2}, CTCOptions{Reduction: "sum"}}, Loose: 4},
				{Name: "too long", Args: []any{Shaped(2, 2, 3), Indices([]int{2, 2}, 1, 1, 1, 2), []int{2, 2}, []int{2, 2}, CTCOptions{Reduction: "none", ZeroInfinity: true}}, Loose: 4},
			}},
	)
}
