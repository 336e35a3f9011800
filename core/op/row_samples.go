package op

import "github.com/plait-ml/plait/core"

// far5 describes elements away from those of [Shaped].
func far5(shape ...int) T { return Between(1.5, 4, shape...) }

// alongSamples returns samples of an operation along a dimension, with further arguments.
func alongSamples(tensor func(shape ...int) T, more ...any) []Sample {
	args := func(dim int, shape ...int) []any { return append([]any{tensor(shape...), dim}, more...) }
	return []Sample{
		{Name: "0-d", Args: args(0)},
		{Name: "1-d", Args: args(0, 6)},
		{Name: "last", Args: args(-1, 3, 4)},
		{Name: "first", Args: args(0, 4, 3)},
		{Name: "middle", Args: args(1, 2, 3, 2)},
		{Name: "4-d", Args: args(2, 2, 1, 3, 2)},
		{Name: "size 1", Args: args(1, 3, 1)},
		{Name: "empty", Args: args(1, 2, 0)},
		{Name: "no line", Args: args(0, 3, 0)},
	}
}

func keepdimSamples() []Sample {
	var list []Sample
	for i, s := range alongSamples(DistinctOf) {
		if s.Name != "empty" {
			s.Args = append(s.Args, i%2 == 0)
			list = append(list, s)
		}
	}
	return list
}

// choiceSamples returns those of [keepdimSamples] for an operation that takes [ChoiceOptions], and one more.
func choiceSamples() []Sample {
	list := keepdimSamples()
	for _, s := range list {
		last := len(s.Args) - 1
		s.Args[last] = ChoiceOptions{KeepDim: s.Args[last].(bool)}
	}
	return append(list, Sample{Name: "even", Args: []any{DistinctOf(3, 5), 1, ChoiceOptions{Even: true}}})
}

// reductionSamples returns samples of a reduction over dims with further arguments before or after them. make describes
// the tensor.
func reductionSamples(tensor func(shape ...int) T, args func(x T, dims []int, keepdim bool) []any, empty bool) []Sample {
	list := []Sample{
		{Name: "all", Args: args(tensor(3, 4), nil, false)},
		{Name: "last", Args: args(tensor(4, 5), []int{-1}, false)},
		{Name: "first", Args: args(tensor(5, 3), []int{0}, true)},
		{Name: "middle", Args: args(tensor(2, 3, 4), []int{1}, false)},
		{Name: "outer", Args: args(tensor(2, 3, 4), []int{2, 0}, true)},
		{Name: "inner", Args: args(tensor(2, 3, 2, 3), []int{1, 3}, false)},
		{Name: "size 1", Args: args(tensor(3, 1, 2), []int{1}, false)},
		{Name: "0-d", Args: args(tensor(), nil, false)},
		{Name: "no result", Args: args(tensor(0, 3), []int{1}, false)},
	}
	if empty {
		list = append(list, Sample{Name: "empty", Args: args(tensor(2, 0, 3), []int{1}, false)})
	}
	return list
}

// steps describes a tensor of few distinct values, some of them equal to those of another, for operations that compare.
func steps(shape ...int) T {
	t := T{Shape: shape, NoGrad: true}
	for i := range core.Numel(shape) {
		t.Values = append(t.Values, float64(i*7%5-2))
	}
	return t
}

// wholes describes a tensor of integers other than 0.
func wholes(shape ...int) T {
	t := T{Shape: shape, DType: core.Int64, Fixed: true, NoGrad: true}
	for i := range core.Numel(shape) {
		t.Values = append(t.Values, float64([]int{7, -3, 12, 5, -8, 1, 2}[i%7]))
	}
	return t
}

// bits describes a tensor of truth values.
func bits(shape ...int) T {
	t := Mask(shape)
	for i := range core.Numel(shape) {
		t.Values = append(t.Values, float64(i*i*3%7%2))
	}
	return t
}

// named puts a prefix before the names of samples.
func named(prefix string, list []Sample) []Sample {
	for i := range list {
		list[i].Name = prefix + list[i].Name
	}
	return list
}
