package op

func init() {
	reduction := Arg{Name: "reduction", Default: "mean", Doc: "mean, sum or none"}
	pair := []Arg{{Name: "input"}, {Name: "target"}}
	with := func(args []Arg, more ...Arg) []Arg { return append(append([]Arg(nil), args...), more...) }
	// pairs are samples of an input and a target of random elements.
	pairs := func(x, t T, more ...any) []Sample {
		of := func(t T, shape ...int) T { t.Shape = shape; return t }
		var out []Sample
		for _, r := range []string{"mean", "sum", "none"} {
			args := []any{of(x, 3, 4), of(t, 3, 4)}
			for _, m := range more {
				if m == "reduction" {
					m = r
				}
				args = append(args, m)
			}
			out = append(out, Sample{Name: r, Args: args, Loose: 2})
		}
		return out
	}
	broadcast := Sample{Name: "broadcast", Args: []any{Shaped(2, 1, 3), Between(2, 3, 4, 1), "sum"}, Loose: 2}
	signs := func(shape ...int) T {
		t := T{Shape: shape, NoGrad: true}
		for i := range shape[0] {
			t.Values = append(t.Values, float64(1-2*(i%2)))
		}
		for len(shape) == 2 && len(t.Values) < shape[0]*shape[1] {
			t.Values = append(t.Values, float64(1-2*(len(t.Values)%3%2)))
		}
		return t
	}
	far := Between(1.5, 4, 1) // targets away from the inputs, where the losses have no kinks
	register("loss",
		Row{Name: "mse_loss", Func: MSELoss, Elementwise: []*Elementwise{mseOp}, Memory: true, Args: with(pair, reduction),
			Doc: "The squared differences of input and target.", Samples: append(pairs(Shaped(), Shaped(), "reduction"), broadcast)},
		Row{Name: "l1_loss", Func: L1Loss, Elementwise: []*Elementwise{l1Op}, Memory: true, Args: with(pair, reduction),
			Doc: "The absolute differences of input and target.", Samples: append(pairs(Shaped(), far, "reduction"), broadcast)},
		Row{Name: "smooth_l1_loss", Func: SmoothL1Loss, Elementwise: []*Elementwise{smoothL1Op}, Memory: true,
			Args:    with(pair, reduction, Arg{Name: "beta", Default: 1.0, Doc: "the distance from which on the loss is linear"}),
			Doc:     "Squared differences of input and target up to beta, absolute ones beyond.",
			Samples: append(pairs(Shaped(), far, "reduction", 3.0), pairs(Shaped(), far, "reduction", 0.25)...)},
		Row{Name: "huber_loss", Func: HuberLoss, Elementwise: []*Elementwise{huberOp}, Memory: true,
			Args:    with(pair, reduction, Arg{Name: "delta", Default: 1.0, Doc: "the distance from which on the loss is linear"}),
			Doc:     "Squared differences of input and target up to delta, absolute ones, times delta, beyond.",
			Samples: append(pairs(Shaped(), far, "reduction", 6.0), pairs(Shaped(), far, "reduction", 0.25)...)},
		Row{Name: "poisson_nll_loss", Func: PoissonNLLLoss, Elementwise: []*Elementwise{poissonNLLOp, poissonLogNLLOp, stirlingOp}, Memory: true,
			Args: with(pair, Arg{Name: "rate", Field: "Rate", Default: false, Doc: "the input is the rate, not its logarithm"},
				Arg{Name: "full", Field: "Full", Default: false, Doc: "add Stirling's approximation of log(target!)"},
				Arg{Name: "eps", Field: "Eps", Default: 1e-8, Doc: "added to a rate before its logarithm is taken"},
				Arg{Name: "reduction", Field: "Reduction", Default: "mean", Doc: "mean, sum or none"}),
			Doc: "The negative log likelihood of the target under a Poisson distribution.",
			Samples: []Sample{
				{Name: "log", Args: []any{Shaped(3, 4), Between(2, 5, 3, 4), PoissonNLLOptions{}}, Loose: 2},
				{Name: "rate", Args: []any{Between(0.5, 3, 3, 4), Between(2, 5, 3, 4), PoissonNLLOptions{Rate: true, Reduction: "none"}}, Loose: 2},
				{Name: "full", Args: []any{Shaped(3, 4), Between(2, 5, 3, 4), PoissonNLLOptions{Full: true, Reduction: "sum"}}, Loose: 4},
			}},
		Row{Name: "gaussian_nll_loss", Func: GaussianNLLLoss, Elementwise: []*Elementwise{gaussianNLLOp}, Memory: true,
			Args: with(pair, Arg{Name: "var"}, Arg{Name: "full", Default: false, Doc: "add log(2 pi)/2"},
				Arg{Name: "eps", Default: 1e-6, Doc: "the least variance"}, reduction),
			Doc: "The negative log likelihood of the target under normal distributions.",
			Samples: []Sample{
				{Name: "each", Args: []any{Shaped(3, 4), Shaped(3, 4), Between(0.5, 2, 3, 4), false, 1e-6, "mean"}, Loose: 4},
				{Name: "row", Args: []any{Shaped(3, 4), Shaped(3, 4), Between(0.5, 2, 3), true, 1e-6, "none"}, Loose: 4},
				{Name: "column", Args: []any{Shaped(3, 4), Shaped(3, 4), Between(0.5, 2, 3, 1), true, 1e-6, "sum"}, Loose: 4},
			}},
		Row{Name: "binary_cross_entropy", Func: BinaryCrossEntropy, Elementwise: []*Elementwise{bceOp}, Memory: true,
			Args: with(pair, Arg{Name: "weight", Field: "Weight", Optional: true, Doc: "a factor of each element"},
				Arg{Name: "reduction", Field: "Reduction", Default: "mean", Doc: "mean, sum or none"}),
			Doc: "-(t log x + (1-t) log(1-x)) for probabilities x.",
			Samples: []Sample{
				{Name: "mean", Args: []any{Between(0.1, 0.9, 3, 4), Between(0.1, 0.9, 3, 4), BCEOptions{}}, Loose: 4},
				{Name: "none", Args: []any{Between(0.1, 0.9, 3, 4), Between(0.1, 0.9, 3, 4), BCEOptions{Reduction: "none"}}, Loose: 4},
			}},
		Row{Name: "binary_cross_entropy_with_logits", Func: BinaryCrossEntropyWithLogits,
			Elementwise: []*Elementwise{bceLogitsOp, bceWeightedOp}, Memory: true,
			Args: with(pair, Arg{Name: "weight", Field: "Weight", Optional: true, Doc: "a factor of each element"},
				Arg{Name: "pos_weight", Field: "PosWeight", Optional: true, Doc: "a factor of the positive targets' share"},
				Arg{Name: "reduction", Field: "Reduction", Default: "mean", Doc: "mean, sum or none"}),
			Doc: "Binary cross entropy of sigmoid(input), without overflow.",
			Samples: []Sample{
				{Name: "mean", Args: []any{Shaped(3, 4), Between(0.1, 0.9, 3, 4), BCEOptions{}}, Loose: 2},
				{Name: "sum", Args: []any{Between(-4, 4, 2, 3), Between(0.1, 0.9, 2, 3), BCEOptions{Reduction: "sum"}}, Loose: 4},
			}},
		Row{Name: "kl_div", Func: KLDiv, Elementwise: []*Elementwise{klDivOp, klDivLogOp}, Memory: true,
			Args: with(pair, Arg{Name: "reduction", Default: "mean", Doc: "mean, batchmean, sum or none"},
				Arg{Name: "log_target", Default: false, Doc: "the target is given by its logarithm"}),
			Doc:     "The Kullback-Leibler divergence of the target from the input, given by its logarithm.",
			Samples: append(append(pairs(Shaped(), Between(0.2, 0.9), "reduction", false), pairs(Shaped(), Shaped(), "reduction", true)...), pairs(Shaped(), Between(0.2, 0.9), "batchmean", false)[0])},
		Row{Name: "soft_margin_loss", Func: SoftMarginLoss, Elementwise: []*Elementwise{softMarginOp}, Memory: true, Args: with(pair, reduction),
			Doc: "log(1 + exp(-target*input)).", Samples: pairs(Shaped(), Shaped(), "reduction")},
		Row{Name: "multilabel_soft_margin_loss", Func: MultiLabelSoftMarginLoss, Memory: true,
			Args:    with(pair, Arg{Name: "weight", Optional: true, Doc: "a factor of each class"}, reduction),
			Doc:     "Binary cross entropy with logits, averaged over the classes.",
			Samples: pairs(Shaped(), Between(0.1, 0.9), nil, "reduction")},
		Row{Name: "hinge_embedding_loss", Func: HingeEmbeddingLoss, Elementwise: []*Elementwise{hingeEmbeddingOp}, Memory: true,
			Args: with(pair, Arg{Name: "margin", Default: 1.0, Doc: "the distance wanted of pairs with target -1"}, reduction),
			Doc:  "The input where the target is 1, and what it lacks of the margin where it is -1.",
			Samples: []Sample{
				{Name: "mean", Args: []any{Shaped(4, 3), signs(4, 3), 1.5, "mean"}},
				{Name: "none", Args: []any{Shaped(4, 3), signs(4, 3), 0.0, "none"}},
			}},
		Row{Name: "margin_ranking_loss", Func: MarginRankingLoss, Elementwise: []*Elementwise{marginRankingOp}, Memory: true,
			Args: []Arg{{Name: "input1"}, {Name: "input2"}, {Name: "target"},
				{Name: "margin", Default: 0.0, Doc: "the distance wanted"}, reduction},
			Doc: "max(0, -target*(input1 - input2) + margin).",
			Samples: []Sample{
				{Name: "mean", Args: []any{Shaped(4), far5(4), signs(4), 0.5, "mean"}},
				{Name: "none", Args: []any{Shaped(4), far5(4), signs(4), 10.0, "none"}},
			}},
		Row{Name: "cosine_embedding_loss", Func: CosineEmbeddingLoss, Elementwise: []*Elementwise{cosineEmbeddingOp},
			Args: []Arg{{Name: "input1"}, {Name: "input2"}, {Name: "target"}, {Name: "margin", Default: 0.0, Doc: "the similarity allowed for targets -1"}, reduction},
			Doc:  "1 - cos where the target is 1, and what cos exceeds the margin by where it is -1.",
			Samples: []Sample{
				{Name: "mean", Args: []any{Shaped(4, 3), Shaped(4, 3), signs(4), -1.5, "mean"}, Loose: 4},
				{Name: "one", Args: []any{Shaped(3), Shaped(3), T{Shape: []int{}, Values: []float64{1}, NoGrad: true}, 0.0, "none"}, Loose: 4},
			}},
		Row{Name: "triplet_margin_loss", Func: TripletMarginLoss, Elementwise: []*Elementwise{hingeOp},
			Args: []Arg{{Name: "anchor"}, {Name: "positive"}, {Name: "negative"}, {Name: "margin", Field: "Margin", Default: 1.0, Doc: "how much closer the positive should be"},
				{Name: "p", Field: "P", Default: 2.0, Doc: "the order of the norm"}, {Name: "eps", Field: "Eps", Default: 1e-6, Doc: "added to the differences"},
				{Name: "swap", Field: "Swap", Default: false, Doc: "take the negative's distance from the positive where smaller"},
				{Name: "reduction", Field: "Reduction", Default: "mean", Doc: "mean, sum or none"}},
			Doc: "max(0, margin + d(anchor, positive) - d(anchor, negative)).",
			Samples: []Sample{
				{Name: "mean", Args: []any{Shaped(3, 4), far5(3, 4), Between(-1, 0.9, 3, 4), TripletMarginOptions{}}, Loose: 4},
				{Name: "swap", Args: []any{Shaped(3, 4), far5(3, 4), Between(-1, 0.9, 3, 4), TripletMarginOptions{Swap: true, Reduction: "none"}}, Loose: 4},
			}},
		Row{Name: "multi_margin_loss", Func: MultiMarginLoss,
			Args: []Arg{{Name: "input", Doc: "scores [N, C] or [C]"}, {Name: "target", Doc: "class indices [N]"},
				{Name: "p", Field: "P", Default: 1, Doc: "the power, 1 or 2"}, {Name: "margin", Field: "Margin", Default: 1.0, Doc: "the distance wanted"},
				{Name: "weight", Field: "Weight", Optional: true, Doc: "a factor for each class"},
				{Name: "reduction", Field: "Reduction", Default: "mean", Doc: "mean, sum or none"}},
			Doc: "What the other classes' scores lack of a margin below the target's, averaged over the classes.",
			Samples: []Sample{
				{Name: "mean", Args: []any{Shaped(3, 4), Indices([]int{3}, 0, 3, 1), MultiMarginOptions{}}, Loose: 2},
				{Name: "squares", Args: []any{Shaped(3, 4), Indices([]int{3}, 0, 3, 1), MultiMarginOptions{P: 2, Reduction: "none"}}, Loose: 2},
				{Name: "one", Args: []any{Shaped(4), Indices([]int{}, 2), MultiMarginOptions{Reduction: "sum"}}, Loose: 2},
			}},
	)
}
