package op

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// MultiLabelMarginLoss returns the sum over a sample's target classes j and its other classes i of max(0, 1 - x[j] + x[i]),
// over the number of classes, for scores [N, C] or [C]. The target, int64 of the same shape, lists the target classes
// before its first -1. The reduction is that of [MSELoss].
func MultiLabelMarginLoss(x, target *core.Tensor, reduction string) *core.Tensor {
	if parts := distributed(x, target); parts != nil {
		return handOn(parts, "multilabel_margin_loss", x, target, reduction)
	}
	op := begin("multilabel_margin_loss", &x, &target)
	op.floatTensor(x)
	switch {
	case op.err != nil:
	case target.DType() != core.Int64 || target.IsNumber():
		op.failf(core.DTypeError, "the target must be an int64 tensor")
	case x.Dim() < 1 || x.Dim() > 2 || !slices.Equal(x.Shape(), target.Shape()):
		op.failf(core.ShapeError, "want scores and targets [N, C] or [C], got %s", shapes(x, target))
	}
	return lossReduction(&op, func() *core.Tensor { return multilabelMargin(x, target) }, reduction)
}

// multilabelMargin is the loss of each sample.
func multilabelMargin(x, target *core.Tensor) *core.Tensor {
	op := begin("multilabel_margin_loss").with(x, target)
	loss := op.out(x.DType(), x.Shape()[:x.Dim()-1])
	if op.err != nil {
		return op.fail()
	}
	op.multilabelCall(x, target, loss, nil)
	if op.grad {
		op.attach(op.node(multilabelMarginDeriv, x).Save(x, target), loss)
	}
	return op.done(loss)
}

func (op *opContext) multilabelCall(x, target, loss, slope *core.Tensor) {
	in, t := op.dense(x), op.dense(target)
	if op.err != nil {
		return
	}
	classes := x.Size(-1)
	batch := 1
	if x.Dim() == 2 {
		batch = x.Size(0)
	}
	c := op.call(contract.MultilabelMarginLoss).Out(loss).Out(slope).In(in).In(t).In(nil)
	op.launch(contract.ClassLossAttrs{Batch: batch, Classes: classes, Inner: 1, Reduction: contract.LossNone, IgnoreIndex: -1}.AddTo(c))
}

// The loss is piecewise linear: its slope is constant where it exists.
func multilabelMarginDeriv(ctx *core.BackwardContext) {
	x, target := ctx.Saved(0), ctx.Saved(1)
	op := begin("multilabel_margin_loss_backward").with(x, target, ctx.Grad())
	slope := op.outLike(x)
	if op.err == nil {
		op.multilabelCall(x, target, nil, slope)
	}
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	ctx.Set(0, Mul(slope, Unsqueeze(ctx.Grad(), -1)))
}

func init() {
	register("loss", Row{Name: "multilabel_margin_loss", Func: MultiLabelMarginLoss,
		Args: []Arg{{Name: "input", Doc: "scores [N, C] or [C]"}, {Name: "target", Doc: "the target classes, up to the first -1"},
			{Name: "reduction", Default: "mean", Doc: "mean, sum or none"}},
		Doc: "What the target classes' scores lack of a distance of 1 above the others'.",
		Samples: []Sample{
			{Name: "one", Args: []any{Shaped(4), Indices([]int{4}, 3, 0, -1, 1), "mean"}, Loose: 2},
			{Name: "mean", Args: []any{Shaped(3, 4), Indices([]int{3, 4}, 3, 0, -1, 1, -1, 0, 0, 0, 0, 1, 2, 3), "mean"}, Loose: 2},
			{Name: "none", Args: []any{Shaped(3, 4), Indices([]int{3, 4}, 3, 0, -1, 1, -1, 0, 0, 0, 0, 1, -1, 3), "none"}, Loose: 2},
		}})
}
