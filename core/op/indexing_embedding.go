package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// Outs[0][v] = sum of Ins[0][b..] over Ins[1][b..] == v; Ints: padding, by frequency, whether the sum is added to Outs[0]

// EmbeddingOptions are the options of [Embedding].
type EmbeddingOptions struct {
	// PaddingIdx is a row whose gradient is zero; negative counts from the end, nil means none.
	PaddingIdx *int
	// ScaleGradByFreq divides the gradient of each row by how often it was used.
	ScaleGradByFreq bool
	// Sparse makes the gradient of the weight a sparse tensor, whose entries are the rows that were used.
	Sparse bool
}

// Embedding returns the rows of the matrix weight at the indices in input, an int64 or int32 tensor of any shape, along
// a new last dimension. An index must lie in [0, rows). The bits of the gradient of weight do not depend on the number of
// threads.
func Embedding(input, weight *core.Tensor, o EmbeddingOptions) *core.Tensor {
	if parts := distributed(input, weight); parts != nil {
		return handOn(parts, "embedding", input, weight, o)
	}
	op := begin("embedding", &input, &weight)
	op.indexDType(input)
	if op.err == nil && (weight.IsNumber() || weight.Dim() != 2) {
		op.failf(core.ShapeError, "the weight must be a matrix, got shape %v", weight.Shape())
	}
	padding := -1
	if op.err == nil && o.PaddingIdx != nil {
		padding = *o.PaddingIdx
		rows := weight.Shape()[0]
		if padding < -rows || padding >= rows {
			op.failf(core.IndexError, "padding index %d out of range for %d rows", padding, rows)
		} else if padding < 0 {
			padding += rows
		}
	}
	if o.Sparse && o.ScaleGradByFreq {
		op.failf(core.NotImplemented, "scale_grad_by_freq not supported with sparse gradients")
	}
	if op.err != nil {
		return op.fail()
	}
	if weight.DType().IsComplex() {
		return op.compose(func() *core.Tensor { return complexEmbedding(input, weight, o) })
	}
	out := op.out(weight.DType(), append(slices.Clone(input.Shape()), weight.Shape()[1]))
	if op.err != nil {
		return op.fail()
	}
	c := contract.SetIndex(op.call(contract.Index).Out(out).In(weight).In(input), false, []int{0})
	c.Work = 2 * out.Numel()
	op.launch(c)
	if op.grad {
		n := op.node(embeddingDeriv, weight).Save(input)
		n.Ints = []int{padding, 0}
		if o.ScaleGradByFreq {
			n.Ints[1] = 1
		}
		if o.Sparse {
			n.Ints = append(n.Ints, 1)
		}
		op.attach(n, out)
	}
	return op.done(out)
}

// complexEmbedding is [Embedding] of a complex weight: rows of the real and imaginary parts of its rows.
func complexEmbedding(input, weight *core.Tensor, o EmbeddingOptions) *core.Tensor {
	if o.Sparse {
		return core.ErrorTensor(core.Errorf(core.NotImplemented, "embedding", "no sparse gradients of complex weights"))
	}
	y := Embedding(input, Flatten(ViewAsReal(weight), 1, 2), o)
	if y.Err() != nil {
		return y
	}
	return ViewAsComplex(paired(Unflatten(y, -1, weight.Size(1), 2)))
}

func embeddingDeriv(ctx *core.BackwardContext) {
	if len(ctx.Node.Ints) > 2 {
		ctx.Set(0, sparseRowsOf(ctx.Saved(0), ctx.Grad(), ctx.InputShape(0), ctx.Node.Ints[0]))
		return
	}
	out, alone := ctx.Arrived(0)
	if !alone {
		ctx.Set(0, embeddingBackward(nil, ctx.Grad(), ctx.Saved(0), ctx.InputShape(0), ctx.Node.Ints[0], ctx.Node.Ints[1] != 0))
		return
	}
	// A gradient that has arrived takes the rows up: others are not touched.
	ctx.SetSum(0, embeddingBackward(out, ctx.Grad(), ctx.Saved(0), ctx.InputShape(0), ctx.Node.Ints[0], ctx.Node.Ints[1] != 0))
}

// sparseRowsOf returns the gradient of an embedding's weight of the given shape as a sparse tensor.
func sparseRowsOf(input, g *core.Tensor, shape []int, padding int) *core.Tensor {
	if input.Err() != nil {
		return input
	}
	index, values := castTo(Ravel(input), core.Int64), Reshape(g, input.Numel(), shape[1])
	if padding >= 0 {
		used := Ravel(NonZero(Ne(index, core.IntNum(int64(padding)))))
		index, values = IndexSelect(index, 0, used), IndexSelect(values, 0, used)
	}
	if err := firstBroken(index, values); err != nil {
		return err
	}
	return newPattern(Clone(Unsqueeze(index, 0)), shape, false).with(values)
}

// embeddingBackward returns the gradient of an embedding's weight from that of its result, added to out if that is not nil.
func embeddingBackward(out, g, input *core.Tensor, shape []int, padding int, byFrequency bool) *core.Tensor {
	op := begin("embedding_backward").with(g, input, out)
	add := out != nil
	if !add {
		out = op.out(dtypeOf(g), shape)
	}
	if op.err != nil {
		return op.fail()
	}
	c := op.call(contract.EmbeddingBackward).Out(out).In(g).In(input)
	contract.EmbeddingBackwardAttrs{Padding: padding, ByFrequency: byFrequency, Add: add}.AddTo(c)
	c.InPlace = add
	if add {
		c.Work = g.Numel()
	}
	op.launch(c)
	if add {
		op.changed(out)
	}
	if op.grad {
		n := op.node(embeddingBackwardDeriv, g).Save(input)
		n.Ints = []int{padding, 0}
		if byFrequency {
			n.Ints[1] = 1
		}
		op.attach(n, out)
	}
	return op.done(out)
}

func embeddingBackwardDeriv(ctx *core.BackwardContext) {
	input, g, padding := ctx.Saved(0), ctx.Grad(), ctx.Node.Ints[0]
	r := Embedding(input, g, EmbeddingOptions{})
	if ctx.Node.Ints[1] != 0 {
		// Each row was divided by the number of its uses.
		flat := Ravel(input)
		dt := g.DType().Compute()
		ones := OnesLike(flat, TensorOptions{DType: &dt})
		counts := IndexAddInPlace(zerosFor(g, dt, []int{g.Shape()[0]}), 0, flat, ones)
		each := Reshape(IndexSelect(counts, 0, flat), append(slices.Clone(input.Shape()), 1)...)
		r = To(Div(r, each), g.DType())
	}
	if padding >= 0 {
		kept := Unsqueeze(Ne(input, core.IntNum(int64(padding))), -1)
		r = Where(kept, r, core.Num(0))
	}
	ctx.Set(0, r)
}

// OneHot returns, for each index, a vector with a one at the index and zeros elsewhere, along a new last dimension.
// Without a number of classes (-1), it is one more than the largest index, for which the function waits.
func OneHot(index *core.Tensor, classes int) *core.Tensor {
	if parts := distributed(index); parts != nil {
		return handOn(parts, "one_hot", index, classes)
	}
	op := begin("one_hot", &index)
	op.indexDType(index)
	if op.err == nil && (classes == 0 || classes < -1) {
		op.failf(core.ValueError, "the number of classes must be positive, or -1, got %d", classes)
	}
	if op.err == nil && classes < 0 {
		values, err := core.Values[int](index)
		op.check(err)
		if err == nil && len(values) == 0 {
			op.failf(core.ValueError, "got no indices to find the number of classes from")
		} else if err == nil {
			classes = slices.Max(values) + 1
			if low := slices.Min(values); low < 0 {
				op.failf(core.IndexError, "index %d is negative", low)
			}
		}
	}
	if op.err != nil {
		return op.fail()
	}
	out := op.out(core.Int64, append(slices.Clone(index.Shape()), classes))
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.OneHot).Out(out).In(index))
	return op.done(out)
}
