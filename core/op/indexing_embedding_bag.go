package op

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// EmbeddingBagOptions are the options of [EmbeddingBag].
type EmbeddingBagOptions struct {
	// Offsets says at which index of a vector of indices each bag begins: the first is 0, and none is less than the one before.
	Offsets *core.Tensor
	// Mode is how the rows of a bag are combined: "mean" (the default), "sum" or "max".
	Mode string
	// PerSampleWeights, of the indices' shape, scale the rows of a sum.
	PerSampleWeights *core.Tensor
	// IncludeLastOffset says that the last offset is the end of the last bag and begins none.
	IncludeLastOffset bool
	// PaddingIdx is a row that counts for nothing; negative counts from the end, nil means none.
	PaddingIdx *int
	// ScaleGradByFreq divides the gradient of each row by how often it was used.
	ScaleGradByFreq bool
	// Sparse makes the gradient of the weight a sparse tensor, whose entries are the rows that were used.
	Sparse bool
}

// EmbeddingBag combines rows of the matrix weight by bags of indices: the rows of the matrix input, or the parts of the vector
// input that begin at the offsets. It returns a row for each bag, of zeros for an empty one.
func EmbeddingBag(input, weight *core.Tensor, o EmbeddingBagOptions) *core.Tensor {
	if parts := distributed(input, weight, o.Offsets, o.PerSampleWeights); parts != nil {
		return handOn(parts, "embedding_bag", input, weight, o)
	}
	op := begin("embedding_bag", &input, &weight, optional(&o.Offsets), optional(&o.PerSampleWeights))
	op.indexDType(input)
	if o.Offsets != nil {
		op.indexDType(o.Offsets)
	}
	op.floating("the weight", weight)
	if o.Mode == "" {
		o.Mode = "mean"
	}
	switch {
	case op.err != nil:
	case weight.IsNumber() || weight.Dim() != 2:
		op.failf(core.ShapeError, "the weight must be a matrix, got shape %v", weight.Shape())
	case o.Mode != "sum" && o.Mode != "mean" && o.Mode != "max":
		op.failf(core.ValueError, "unknown mode %q, want sum, mean or max", o.Mode)
	case o.Sparse && o.Mode == "max":
		op.failf(core.ValueError, "max mode does not support sparse weights")
	case o.ScaleGradByFreq && o.Mode == "max":
		op.failf(core.ValueError, "max mode does not support scaling the gradient by the frequency")
	case input.Dim() == 2 && o.Offsets != nil:
		op.failf(core.ValueError, "a matrix of indices has no offsets")
	case input.Dim() != 2 && (input.Dim() != 1 || o.Offsets == nil || o.Offsets.Dim() != 1):
		op.failf(core.ShapeError, "got indices of shape %v, want a matrix, or a vector and a vector of offsets", input.Shape())
	case o.PerSampleWeights != nil && o.Mode != "sum":
		op.failf(core.ValueError, "weights of samples are for sums, got mode %q", o.Mode)
	case o.PerSampleWeights != nil && o.PerSampleWeights.Numel() != input.Numel():
		op.failf(core.ShapeError, "got weights of shape %v for indices of shape %v", o.PerSampleWeights.Shape(), input.Shape())
	case o.IncludeLastOffset && o.Offsets != nil && o.Offsets.Numel() == 0:
		op.failf(core.ShapeError, "got no offsets, want at least the last")
	}
	if op.err == nil && o.Offsets != nil && o.Offsets.Numel() == 0 {
		return op.compose(func() *core.Tensor { return Narrow(weight, 0, 0, 0) })
	}
	if op.err == nil && o.Offsets != nil && o.IncludeLastOffset { // what lies behind the end is a bag that nobody wants
		return op.compose(func() *core.Tensor {
			bags := o.Offsets.Numel() - 1
			o.IncludeLastOffset = false
			all := EmbeddingBag(input, weight, o)
			if all.Err() != nil {
				return all
			}
			return Narrow(all, 0, 0, bags)
		})
	}
	return op.compose(func() *core.Tensor {
		n := input.Numel()
		equal := o.Offsets == nil && o.PaddingIdx == nil && o.Mode != "max" && n > 0 // bags of one size
		d, scales := weight.DType(), o.PerSampleWeights
		if equal && !o.ScaleGradByFreq && !o.Sparse && d.IsFloat() && d.Size() >= 4 && (scales == nil || scales.DType() == d) {
			return o.product(input, weight)
		}
		if o.Mode == "max" && weight.Device().HostAccessible() {
			return o.largest(input, weight)
		}
		rows := Embedding(Ravel(input), weight, EmbeddingOptions{PaddingIdx: o.PaddingIdx, ScaleGradByFreq: o.ScaleGradByFreq, Sparse: o.Sparse})
		if rows.Err() != nil {
			return rows
		}
		if equal {
			if o.PerSampleWeights != nil {
				rows = Mul(rows, Reshape(o.PerSampleWeights, n, 1))
			}
			rows = Reshape(rows, append(slices.Clone(input.Shape()), weight.Size(1))...)
			if o.Mode == "sum" {
				return Sum(rows, []int{1}, false)
			}
			return Mean(rows, []int{1}, false)
		}
		bags, bag := o.bags(input)
		var counted *core.Tensor // [n, 1]: 0 for padding; nil if there is none
		if o.PaddingIdx != nil {
			padding := *o.PaddingIdx
			if padding < 0 {
				padding += weight.Size(0)
			}
			counted = castTo(Ne(Reshape(input, n, 1), core.IntNum(int64(padding))), rows.DType())
		}
		if o.Mode == "max" {
			n := bags
			if counted != nil { // a last bag has the padding
				bag = Where(Ravel(castTo(counted, core.Bool)), bag, core.IntNum(int64(bags)))
				n++
			}
			return Narrow(bagMaxima(rows, bag, n), 0, 0, bags)
		}
		if counted != nil { // not a product: padding may be infinite
			rows = Where(Eq(counted, core.Num(0)), core.Num(0), rows)
		}
		if o.PerSampleWeights != nil {
			rows = Mul(rows, Reshape(o.PerSampleWeights, n, 1))
		}
		sum := IndexAdd(zerosFor(rows, rows.DType(), []int{bags, weight.Size(1)}), 0, bag, rows)
		if o.Mode == "sum" {
			return sum
		}
		if counted == nil {
			counted = Reshape(OnesLike(bag, TensorOptions{}), n, 1)
		}
		counts := IndexAdd(zerosFor(counted, counted.DType(), []int{bags, 1}), 0, bag, counted)
		return Div(sum, castTo(Maximum(counts, core.IntNum(1)), sum.DType()))
	})
}

// largest returns the largest elements of the rows of each bag, 0 in empty ones, on devices that have a kernel for them.
func (o EmbeddingBagOptions) largest(input, weight *core.Tensor) *core.Tensor {
	op := begin("embedding_bag", &weight)
	if op.err != nil {
		return op.fail()
	}
	index, offsets := castTo(Ravel(input), core.Int64), o.Offsets
	bags, a := input.Size(0), contract.BagMaxAttrs{Padding: -1}
	if offsets != nil {
		bags, offsets = offsets.Numel(), op.dense(castTo(offsets, core.Int64))
	} else {
		a.Size = input.Size(1)
	}
	if o.PaddingIdx != nil {
		a.Padding = *o.PaddingIdx
		if a.Padding < 0 {
			a.Padding += weight.Size(0)
		}
	}
	shape := []int{bags, weight.Size(1)}
	out := op.out(weight.DType(), shape)
	var rows *core.Tensor
	if op.err == nil && op.grad {
		rows = op.temp(core.Int64, shape...)
	}
	if op.err != nil {
		return op.fail()
	}
	c := op.call(contract.BagMax).Out(out).Out(rows).In(op.dense(weight)).In(op.dense(index)).In(offsets)
	c.Work = index.Numel() * weight.Size(1)
	op.launch(a.AddTo(c))
	if op.grad {
		n := op.node(largestDeriv, weight).Save(rows)
		n.Ints, n.Any = weight.Shape(), o.Offsets != nil || o.PaddingIdx != nil || a.Size == 0
		op.attach(n, out)
	}
	return op.done(out)
}

// largestDeriv adds the gradients to the rows that the elements are from. Empty bags have none.
func largestDeriv(ctx *core.BackwardContext) {
	rows, g := ctx.Saved(0), ctx.Grad()
	if ctx.Node.Any.(bool) {
		g = Where(Lt(rows, core.IntNum(0)), core.Num(0), g)
		rows = Maximum(rows, core.IntNum(0))
	}
	ctx.Set(0, ScatterAdd(zerosFor(g, g.DType(), ctx.Node.Ints), 0, rows, g))
}

// bagMaxima returns the largest elements of the rows of n bags, 0 in empty ones. NaN counts only in a bag's first row.
func bagMaxima(rows, bag *core.Tensor, n int) *core.Tensor {
	op := begin("embedding_bag", &rows, &bag)
	if op.err != nil {
		return op.fail()
	}
	var out, clean *core.Tensor
	core.Underived(func() {
		made := op.scope(func() []*core.Tensor {
			samples := Reshape(Arange(nil, core.IntNum(int64(rows.Size(0))), nil, TensorOptions{Device: rows.Device()}), -1, 1)
			none := Full([]int{n, 1}, core.IntNum(int64(rows.Size(0))), TensorOptions{DType: new(core.Int64), Device: rows.Device()})
			first := IndexReduce(none, 0, bag, samples, "amin", true)
			later := Lt(IndexSelect(first, 0, bag), samples)
			clean := Where(LogicalAnd(later, IsNaN(rows)), core.Num(math.Inf(-1)), rows)
			zeros := zerosFor(rows, rows.DType(), []int{n, rows.Size(1)})
			return []*core.Tensor{reported(op.name, IndexReduce(zeros, 0, bag, clean, "amax", false)), clean}
		})
		out, clean = made[0], made[1]
	})
	if out.Err() == nil && op.grad {
		op.attach(op.node(bagMaximaDeriv, rows).Save(clean, bag).SaveOutput(out, 0), out)
	}
	return op.done(out)
}

// bagMaximaDeriv gives the gradient to the first of equal elements.
func bagMaximaDeriv(ctx *core.BackwardContext) {
	rows, bag, out, g := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2), ctx.Grad()
	if err := firstBroken(rows, bag, out, g); err != nil {
		ctx.Set(0, err)
		return
	}
	n := rows.Size(0)
	place := Reshape(Arange(nil, core.IntNum(int64(n)), nil, TensorOptions{Device: rows.Device()}), n, 1)
	largest := IsClose(rows, IndexSelect(out, 0, bag), 0, 0, true)
	none := Full(out.Shape(), core.IntNum(int64(n)), TensorOptions{DType: new(core.Int64), Device: rows.Device()})
	first := IndexReduce(none, 0, bag, Where(largest, place, core.IntNum(int64(n))), "amin", true)
	ctx.Set(0, Where(Eq(IndexSelect(first, 0, bag), place), IndexSelect(g, 0, bag), core.Num(0)))
}

// product returns the sums or means of bags of one size as a sparse matrix, which has a row for each bag, times the weight.
func (o EmbeddingBagOptions) product(input, weight *core.Tensor) *core.Tensor {
	n, size, scales := input.Numel(), input.Size(1), o.PerSampleWeights
	starts := Arange(nil, core.IntNum(int64(n+1)), core.IntNum(int64(size)), TensorOptions{Device: input.Device()})
	if scales == nil {
		d := weight.DType()
		scales = Full([]int{n}, core.Num(1), TensorOptions{DType: &d, Device: weight.Device()})
	}
	sum := csrMatmul("embedding_bag", starts, Ravel(castTo(input, core.Int64)), Ravel(scales), weight, CSROptions{})
	if o.Mode == "sum" {
		return sum
	}
	return Div(sum, core.Num(float64(size)))
}

// bags returns the number of bags, and which one each index is in.
func (o EmbeddingBagOptions) bags(input *core.Tensor) (n int, bag *core.Tensor) {
	if o.Offsets == nil {
		samples := Arange(nil, core.IntNum(int64(input.Numel())), nil, TensorOptions{Device: input.Device()})
		return input.Size(0), FloorDivide(samples, core.IntNum(int64(max(input.Size(1), 1))))
	}
	return o.Offsets.Numel(), bagIndices(castTo(o.Offsets, core.Int64), input.Numel())
}

// bagIndices returns which of the bags that begin at the offsets each of n samples is in.
func bagIndices(offsets *core.Tensor, n int) *core.Tensor {
	op := begin("embedding_bag", &offsets)
	op.grad = false
	out := op.out(core.Int64, []int{n})
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.BagIndices).Out(out).In(op.dense(offsets)))
	return op.done(out)
}

// EmbeddingRenormInPlace scales the rows of the matrix weight that the indices in input name, where their norm of the given
// order is larger than maxNorm, down to it, and returns weight. It waits for the indices.
func EmbeddingRenormInPlace(weight, input *core.Tensor, maxNorm, order float64) *core.Tensor {
	if parts := distributed(weight, input); parts != nil {
		return handOn(parts, "embedding_renorm_", weight, input, maxNorm, order)
	}
	op := begin("embedding_renorm_", &weight, &input)
	op.indexDType(input)
	op.inPlace(weight)
	if op.err == nil && weight.Dim() != 2 {
		op.failf(core.ShapeError, "the weight must be a matrix, got shape %v", weight.Shape())
	}
	if op.err != nil {
		return op.fail()
	}
	if input.Numel() == 0 {
		return weight
	}
	core.Tidy(func() {
		used, _, _ := Unique(Ravel(input), nil, UniqueOptions{})
		rows := Renorm(IndexSelect(weight, 0, used), order, 0, maxNorm)
		op.check(IndexCopyInPlace(weight, 0, used, rows).Err())
	})
	return op.done(weight)
}

func init() {
	matrix := Indices([]int{2, 3}, 1, 0, 2, 2, 2, 3)

	one := 1
	register("indexing", Row{Name: "embedding_renorm_", Waits: true, InPlace: EmbeddingRenormInPlace, Doc: "A matrix whose rows at indices are scaled down to a norm.",
		Args: []Arg{{Name: "input", Doc: "the matrix"}, {Name: "indices"}, {Name: "max_norm"}, {Name: "norm_type", Default: 2.0}}})
	register("indexing", Row{Name: "embedding_bag", Func: EmbeddingBag, Memory: true, Doc: "Rows of a matrix combined by bags of indices.",
		Args: []Arg{{Name: "input", Doc: "the indices"}, {Name: "weight", Doc: "the matrix"},
			{Name: "offsets", Field: "Offsets", Optional: true, Doc: "where the bags of a vector of indices begin"},
			{Name: "scale_grad_by_freq", Field: "ScaleGradByFreq", Default: false, Doc: "whether gradients are divided by how often a row was used"},
			{Name: "mode", Field: "Mode", Default: "mean", Doc: "sum, mean or max"},
			{Name: "sparse", Field: "Sparse", Default: false, Doc: "whether the gradient of the weight is a sparse tensor"},
			{Name: "per_sample_weights", Field: "PerSampleWeights", Optional: true, Doc: "scale the rows of a sum"},
			{Name: "include_last_offset", Field: "IncludeLastOffset", Default: false, Doc: "whether the last offset is an end"},
			{Name: "padding_idx", Field: "PaddingIdx", Optional: true, Doc: "a row that counts for nothing"}},
		Samples: []Sample{
			{Name: "mean", Args: []any{matrix, Shaped(4, 2), EmbeddingBagOptions{}}},
			{Name: "sum", Args: []any{matrix, Shaped(4, 2), EmbeddingBagOptions{Mode: "sum", PaddingIdx: &one}}},
			{Name: "max", Args: []any{matrix, DistinctOf(4, 2), EmbeddingBagOptions{Mode: "max"}}},
		}})
}
