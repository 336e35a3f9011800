package op

import "github.com/plait-ml/plait/core"

func init() {
	input, dim := Arg{Name: "input"}, Arg{Name: "dim", Default: -1}
	keepdim := Arg{Name: "keepdim", Default: false, Doc: "keep the dimension with size 1"}
	sorting := []Arg{input, dim, {Name: "descending", Field: "Descending", Default: false},
		{Name: "stable", Field: "Stable", Default: false, Doc: "keep the order of equal elements, which is done in any case"}}
	along := []Arg{input, dim, keepdim}
	choice := []Arg{input, dim, {Name: "keepdim", Field: "KeepDim", Default: false, Doc: "keep the dimension with size 1"}, evenArg}
	optional := []Arg{input, {Name: "dim", Optional: true, Doc: "compare slices along this dimension"},
		{Name: "inverse", Field: "Inverse", Default: false, Doc: "compute the index of each element; without, there are none"},
		{Name: "counts", Field: "Counts", Default: false, Doc: "compute how often each comes; without, there are none"}}
	index, count := "the result is an index", "the result is a count"
	values := func(shape []int, v ...float64) T { return T{Shape: shape, Values: v, NoGrad: true} }
	repeated := values([]int{3, 4}, 2, -1, 2, 0.5, -1, 3, 3, 2, 2, 2, 0.5, -1)
	rows := values([]int{4, 2}, 1, 2, 0, 5, 1, 2, 1, 0)
	zero, one := 0, 1
	args := inputAnd(Arg{Name: "q", Doc: "numbers from 0 to 1"}, Arg{Name: "dim", Field: "Dim", Optional: true, Doc: "the dimension; None means all"},
		Arg{Name: "keepdim", Field: "KeepDim", Default: false, Doc: "keep the reduced dimensions with size 1"},
		Arg{Name: "interpolation", Field: "Interpolation", Default: "linear", Doc: "linear, lower, higher, midpoint or nearest"})
	first, last := 0, -1
	q := T{Shape: []int{3}, Values: []float64{0, 0.375, 1}, NoGrad: true}
	var samples []Sample
	for i, how := range []string{"linear", "lower", "higher", "midpoint", "nearest"} {
		o := QuantileOptions{Interpolation: how, KeepDim: i%2 == 0}
		if i%3 > 0 {
			o.Dim = []*int{&first, &last}[i%2]
		}
		samples = append(samples, Sample{Name: how, Args: []any{DistinctOf(5, 4), q, o}})
	}
	samples = append(samples, Sample{Name: "number", Args: []any{DistinctOf(3, 5), T{Shape: []int{}, Values: []float64{0.25}, NoGrad: true}, QuantileOptions{Dim: &last}}})
	register("sorting",
		Row{Name: "sort", Func: Sort, Args: sorting,
			Samples: append(alongSamples(DistinctOf, SortOptions{}), Sample{Name: "descending", Args: []any{DistinctOf(3, 5), 1, SortOptions{Descending: true}}}),
			Doc:     "The elements in order along a dimension, and their indices."},
		Row{Name: "argsort", Func: ArgSort, Args: sorting, NoGrad: index, Samples: alongSamples(DistinctOf, SortOptions{Descending: true}),
			Doc: "The indices of the elements in order along a dimension."},
		Row{Name: "topk", Func: TopK, Doc: "The k largest or smallest elements along a dimension, in order, and their indices.",
			Args: []Arg{input, {Name: "k"}, dim, {Name: "largest", Default: true}, {Name: "sorted", Default: true}},
			Samples: []Sample{
				{Name: "largest", Args: []any{DistinctOf(3, 6), 2, -1, true, true}},
				{Name: "smallest", Args: []any{DistinctOf(6, 3), 4, 0, false, true}},
				{Name: "all", Args: []any{DistinctOf(2, 3, 2), 3, 1, true, false}},
				{Name: "0-d", Args: []any{DistinctOf(), 1, 0, true, true}},
				{Name: "none", Args: []any{DistinctOf(3, 2), 0, 0, true, true}},
			}},
		Row{Name: "kthvalue", Func: KthValue, Doc: "The k-th smallest element along a dimension, counted from 1, and its index.",
			Args: []Arg{input, {Name: "k"}, dim, keepdim},
			Samples: []Sample{
				{Name: "last", Args: []any{DistinctOf(3, 6), 2, -1, false}},
				{Name: "first", Args: []any{DistinctOf(5, 2), 5, 0, true}},
				{Name: "0-d", Args: []any{DistinctOf(), 1, 0, false}},
			}},
		Row{Name: "median", Func: MedianWith, Args: choice, Samples: choiceSamples(),
			Doc: "The median along a dimension, the lower of two, and its index."},
		Row{Name: "nanmedian", Func: NanMedianWith, Args: choice, Samples: choiceSamples(),
			Doc: "The median along a dimension of the elements that are not NaN, and its index."},
		Row{Name: "mode", Func: Mode, Args: along, Samples: keepdimSamples(),
			Doc: "The element that comes most often along a dimension, the smallest of those, and the index of its last occurrence."},
		Row{Name: "unique", Waits: true, Func: Unique, Args: optional, NoGrad: "the size of the result depends on the values",
			Doc:     "The different elements in order, the index of each element among them, and how often each comes.",
			Samples: []Sample{{Name: "elements", Args: []any{repeated, nil, UniqueOptions{Inverse: true, Counts: true}}}, {Name: "rows", Args: []any{rows, &zero, UniqueOptions{}}}, {Name: "columns", Args: []any{repeated, &one, UniqueOptions{Inverse: true}}}}},
		Row{Name: "unique_consecutive", Waits: true, Func: UniqueConsecutive, Args: optional, NoGrad: "the size of the result depends on the values",
			Doc:     "The elements without those that equal their predecessor, the index of each element among them, and how often each comes.",
			Samples: []Sample{{Name: "elements", Args: []any{repeated, nil, UniqueOptions{Inverse: true, Counts: true}}}, {Name: "rows", Args: []any{rows, &zero, UniqueOptions{Counts: true}}}}},
		Row{Name: "searchsorted", Func: SearchSorted, NoGrad: index, Doc: "Where values belong in sorted sequences.",
			Args: []Arg{{Name: "sorted_sequence"}, input, {Name: "out_int32", Field: "Int32", Default: false}, {Name: "right", Field: "Right", Default: false},
				{Name: "sorter", Field: "Sorter", Optional: true}},
			Samples: []Sample{
				{Name: "vector", Args: []any{values([]int{4}, -1, 0, 0, 2), Between(-2, 3, 2, 3), SearchOptions{}}},
				{Name: "rows", Args: []any{values([]int{2, 3}, -1, 0, 1, 2, 2, 4), Between(-2, 3, 2, 4), SearchOptions{Right: true, Int32: true}}},
			}},
		Row{Name: "bucketize", Func: Bucketize, NoGrad: index, Doc: "The number of boundaries that are smaller than each element.",
			Args:    []Arg{input, {Name: "boundaries"}, {Name: "out_int32", Field: "Int32", Default: false}, {Name: "right", Field: "Right", Default: false}},
			Samples: []Sample{{Name: "matrix", Args: []any{Between(-2, 3, 2, 3), values([]int{4}, -1, 0, 0, 2), SearchOptions{}}}}},
		Row{Name: "bincount", Waits: true, Func: BinCount, NoGrad: count, Doc: "How often each integer comes in a vector, or the sum of its weights, which are real.",
			Args: []Arg{input, {Name: "weights", Optional: true}, {Name: "minlength", Default: 0}},
			Samples: []Sample{
				{Name: "counts", Args: []any{Indices([]int{5}, 1, 0, 3, 1, 1), nil, 0}},
				{Name: "weights", Args: []any{Indices([]int{4}, 1, 0, 3, 1), Shaped(4), 6}, DTypes: []core.DType{core.Float32}},
			}},
		Row{Name: "histc", Waits: true, Func: HistC, NoGrad: count, Doc: "How many elements lie in each of equal parts of a range.",
			Args: []Arg{input, {Name: "bins", Default: 100}, {Name: "min", Default: 0.0}, {Name: "max", Default: 0.0}},
			Samples: []Sample{
				{Name: "range", Args: []any{values([]int{2, 3}, 0.25, 1, -0.5, 3, 2, 2), 4, -1.0, 3.0}},
				{Name: "of the elements", Args: []any{values([]int{5}, 0.25, 1, -0.5, 3, 2), 3, 0.0, 0.0}},
			}},
		Row{Name: "quantile", Func: Quantile, Args: args, Samples: samples, Doc: "Quantiles along a dimension."},
		Row{Name: "nanquantile", Func: NanQuantile, Args: args, Samples: samples, Doc: "Quantiles along a dimension of what is not NaN."},
		Row{Name: "msort", Func: MSort, Args: inputAnd(), Doc: "The elements sorted along the first dimension.",
			Samples: []Sample{{Args: []any{DistinctOf(4, 3)}}, {Name: "vector", Args: []any{DistinctOf(5)}}}},
	)
}
