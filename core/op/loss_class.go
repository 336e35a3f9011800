package op

import (
	"fmt"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// defaultIgnoreIndex is the class index that targets may have to be left out.
const defaultIgnoreIndex = -100

// CrossEntropyOptions are the optional arguments of [CrossEntropy] and [NLLLoss].
type CrossEntropyOptions struct {
	// Weight [C] scales the loss of each class.
	Weight *core.Tensor
	// IgnoreIndex is the target that counts for nothing; nil stands for -100. It applies to class indices only.
	IgnoreIndex *int
	// Reduction is "mean" (the default), "sum" or "none". A mean is weighted by the classes' weights.
	Reduction string
	// LabelSmoothing is how much of the target is spread over all classes, from 0 to 1; [NLLLoss] has none.
	LabelSmoothing float64
}

// CrossEntropy returns the cross entropy of softmax(x) along dimension 1 (0 if x has one dimension) relative to the
// target: int64 class indices of x's shape without that dimension, or probabilities of x's shape. An index that is no
// class and not ignored is an error when the loss is computed.
func CrossEntropy(x, target *core.Tensor, o CrossEntropyOptions) *core.Tensor {
	if parts := distributed(x, target, o.Weight); parts != nil {
		return handOn(parts, "cross_entropy", x, target, o)
	}
	op := begin("cross_entropy", &x, &target, optional(&o.Weight))
	info := op.classLoss(x, target, o)
	in := info.scores(&op, x)
	var t *core.Tensor
	if info.probs {
		t = info.scores(&op, target)
	} else {
		t = op.dense(target)
	}
	w := op.dense(o.Weight)
	loss, lse, total := info.loss(&op, x), op.temp(info.stat, info.batch, info.inner), op.temp(info.stat)
	if op.err != nil {
		return op.fail()
	}
	op.launch(contract.SetSmoothing(info.attrs(op.call(contract.CrossEntropy).Out(loss).Out(lse).Out(total).In(in).In(t).In(w)), o.LabelSmoothing))
	if op.grad {
		// The scores are saved as given: the derivative puts them in the kernel's order again.
		n := op.node(crossEntropyDeriv, x, target).Save(x, target, w, lse, total)
		n.Any = info
		op.attach(n, loss)
	}
	return op.done(loss)
}

// NLLLoss returns the negative log likelihood of target, int64 class indices, under the log-probabilities x along
// dimension 1 (0 if x has one dimension). An index that is no class and not ignored is an error when the loss is computed.
func NLLLoss(x, target *core.Tensor, o CrossEntropyOptions) *core.Tensor {
	if parts := distributed(x, target, o.Weight); parts != nil {
		return handOn(parts, "nll_loss", x, target, o)
	}
	op := begin("nll_loss", &x, &target, optional(&o.Weight))
	info := op.classLoss(x, target, o)
	w := op.dense(o.Weight)
	if op.err != nil {
		return op.fail()
	}
	return op.done(info.nll(&op, x, op.dense(target), w))
}

// A classLoss says how a loss sees its scores: as [batch, classes, inner].
type classLoss struct {
	batch, classes, inner int
	probs                 bool // the target is probabilities
	last                  bool // the classes are contiguous in memory although other dimensions follow
	reduction             contract.LossReduction
	ignore                int
	smoothing             float64
	stat                  core.DType
	shape                 []int // of the loss without reduction
}

var lossReductions = map[string]contract.LossReduction{"none": contract.LossNone, "mean": contract.LossMean, "": contract.LossMean, "sum": contract.LossSum}

// classLoss checks the arguments of a loss on classes, which may be distributed.
func (op *opContext) classLoss(x, target *core.Tensor, o CrossEntropyOptions) *classLoss {
	probabilities := op.name == "cross_entropy"
	switch s := o.LabelSmoothing; {
	case probabilities && !(s >= 0 && s <= 1):
		op.failf(core.ValueError, "label smoothing must lie between 0 and 1, got %v", s)
	case !probabilities && s != 0:
		op.failf(core.ValueError, "label smoothing goes with cross_entropy, got %v", s)
	}
	op.floatTensor(x)
	code := op.reductionCode(o.Reduction)
	l := &classLoss{reduction: code, ignore: defaultIgnoreIndex, smoothing: o.LabelSmoothing, inner: 1, batch: 1}
	if op.err == nil && target.IsNumber() {
		op.failf(core.TypeError, "the target must be a tensor")
	}
	if op.err != nil {
		return l
	}
	if o.IgnoreIndex != nil {
		l.ignore = *o.IgnoreIndex
	}
	s := x.Shape()
	l.stat = statType(x.DType())
	switch len(s) {
	case 0:
		op.failf(core.ShapeError, "got scores of shape %v, want [C] or [N, C, ...]", s)
		return l
	case 1:
		l.classes = s[0]
	default:
		l.batch, l.classes, l.inner = s[0], s[1], core.Numel(s[2:])
		l.shape = append([]int{s[0]}, s[2:]...)
	}
	switch {
	case target.DType().IsFloat() && probabilities:
		l.probs = true
		if !slices.Equal(target.Shape(), s) {
			text := fmt.Sprintf("probabilities of shape %v for scores of shape %v", target.Shape(), s)
			if slices.Equal(target.Shape(), l.shape) {
				text += fmt.Sprintf("; class indices must be int64, got %v", target.DType())
			}
			op.failf(core.ShapeError, "%s", text)
		}
		if target.DType() != x.DType() {
			op.failf(core.DTypeError, "probabilities of %v for scores of %v", target.DType(), x.DType())
		}
	case target.DType() != core.Int64:
		op.failf(core.DTypeError, "class indices must be int64, got %v", target.DType())
	case !slices.Equal(target.Shape(), l.shape):
		op.failf(core.ShapeError, "targets of shape %v for scores of shape %v, want %v", target.Shape(), s, l.shape)
	}
	if op.err == nil && l.probs && o.IgnoreIndex != nil {
		op.failf(core.ValueError, "ignore_index goes with class indices, got probabilities")
	}
	op.normParams(x, o.Weight)
	op.normShape("weight", o.Weight, []int{l.classes})
	// A transposed [N, L, C] is taken as it lies in memory.
	if op.err == nil && x.Parts() == nil && l.inner > 1 && !x.Contiguous() && l.lastStrides(x) {
		l.last = true
	}
	return l
}

func (op *opContext) reductionCode(reduction string) contract.LossReduction {
	code, ok := lossReductions[reduction]
	if !ok {
		op.failf(core.ValueError, "unknown reduction %q, want mean, sum or none", reduction)
	}
	return code
}

// lastStrides reports whether x's memory is a contiguous [N, ..., C].
func (l *classLoss) lastStrides(x *core.Tensor) bool {
	shape, strides := classesLast(x.Shape()), classesLast(x.Strides())
	return core.IsContiguous(shape, strides)
}

// classesLast moves entry 1 to the end.
func classesLast(v []int) []int {
	return append(append([]int{v[0]}, v[2:]...), v[1])
}

// scores returns t, like the scores, in the kernel's order, perhaps as a temporary copy.
func (l *classLoss) scores(op *opContext, t *core.Tensor) *core.Tensor {
	switch {
	case op.err != nil || !l.last:
		return op.dense(t)
	case l.lastStrides(t):
		return t
	}
	c := l.like(op, t.DType(), t.Shape())
	if op.err == nil {
		op.launch(op.call(contract.Copy).Out(op.own(c)).In(t))
	}
	return c
}

// like allocates a tensor of the scores' shape in the kernel's order, which the op does not own.
func (l *classLoss) like(op *opContext, d core.DType, shape []int) *core.Tensor {
	if !l.last || op.err != nil {
		return op.alloc(d, shape)
	}
	memory := op.alloc(d, classesLast(shape))
	if op.err != nil {
		return memory
	}
	s := memory.Strides()
	strides := append([]int{s[0], s[len(s)-1]}, s[1:len(s)-1]...)
	t := core.WrapTensor(op.mode, memory.Storage(), d, shape, strides, 0)
	memory.Release()
	return t
}

// A spacer is a device that says how far apart rows of n elements best lie in a matrix that only products read: at least n.
type spacer interface{ RowStride(d core.DType, n int) int }

// gradient allocates the gradient of input i, which is like x.
func (l *classLoss) gradient(op *opContext, ctx *core.BackwardContext, i int, x *core.Tensor) *core.Tensor {
	if op.err != nil {
		return nil
	}
	s, ok := op.stream.Device().(spacer)
	if !ok || x.Dim() != 2 || !feedsProduct(ctx, i) {
		return op.returns(l.like(op, x.DType(), x.Shape()))
	}
	stride := s.RowStride(x.DType(), l.classes)
	memory := op.alloc(x.DType(), []int{l.batch, stride})
	if op.err != nil {
		return nil
	}
	t := core.WrapTensor(op.mode, memory.Storage(), x.DType(), x.Shape(), []int{stride, 1}, 0)
	memory.Release()
	return op.returns(t)
}

// loss allocates the result.
func (l *classLoss) loss(op *opContext, x *core.Tensor) *core.Tensor {
	if op.err != nil {
		return nil
	}
	if l.reduction == contract.LossNone {
		return op.out(op.inputType(x), l.shape)
	}
	return op.out(op.inputType(x), nil)
}

// attrs adds the integers that every kernel of this family takes.
func (l *classLoss) attrs(c *core.Call) *core.Call {
	batch, inner := l.batch, l.inner
	if l.last {
		batch, inner = batch*inner, 1
	}
	return contract.ClassLossAttrs{Batch: batch, Classes: l.classes, Inner: inner, Reduction: l.reduction, IgnoreIndex: int64(l.ignore)}.AddTo(c)
}

func crossEntropyDeriv(ctx *core.BackwardContext) {
	l := ctx.Node.Any.(*classLoss)
	x, target, weight, lse, total := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2), ctx.Saved(3), ctx.Saved(4)
	if ctx.CreateGraph() {
		l.composite(ctx, x, target, weight, total)
		return
	}
	op := begin("cross_entropy_backward").with(x, target, weight, lse, total, ctx.Grad())
	in, t, g := l.scores(&op, x), target, op.dense(ctx.Grad())
	if l.probs {
		t = l.scores(&op, target)
	} else {
		t = op.dense(target)
	}
	var grads [2]*core.Tensor
	for i := range grads {
		if ctx.Needs(i) {
			grads[i] = l.gradient(&op, ctx, i, x)
		}
	}
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	c := op.call(contract.CrossEntropyBackward).Out(grads[0]).Out(grads[1]).In(in).In(t).In(weight).In(g).In(lse).In(total)
	op.launch(contract.SetSmoothing(l.attrs(c), l.smoothing))
	setGrads(ctx, grads[:]...)
}

// composite sets the gradients of cross entropy by operations that can be differentiated again.
func (l *classLoss) composite(ctx *core.BackwardContext, x, target, weight, total *core.Tensor) {
	for _, t := range []*core.Tensor{x, target, weight, total} {
		if t != nil && t.Err() != nil {
			return // d has failed
		}
	}
	class := min(1, x.Dim()-1)
	logp := LogSoftmax(castTo(x, l.stat), class)
	grad := castTo(ctx.Grad(), l.stat)
	var w *core.Tensor
	if weight != nil {
		shape := make([]int, x.Dim())
		for i := range shape {
			shape[i] = 1
		}
		shape[class] = l.classes
		w = Reshape(castTo(weight, l.stat), shape...)
	}
	g := grad // of each sample
	switch l.reduction {
	case contract.LossNone:
		g = Unsqueeze(grad, class)
	case contract.LossMean:
		g = Div(grad, total)
	}
	if l.probs {
		t := castTo(target, l.stat)
		t = Add(Mul(t, core.Num(1-l.smoothing)), core.Num(l.smoothing/float64(max(l.classes, 1))))
		if w != nil {
			t = Mul(t, w)
		}
		if ctx.Needs(0) {
			dx := Mul(g, Sub(Mul(Exp(logp), Sum(t, []int{class}, true)), t))
			ctx.Set(0, castTo(dx, x.DType()))
		}
		if ctx.Needs(1) {
			dt := Mul(Mul(g, logp), core.Num(l.smoothing-1))
			if w != nil {
				dt = Mul(dt, w)
			}
			ctx.Set(1, castTo(dt, target.DType()))
		}
		return
	}
	// The gradient of the log-probabilities, then that of log_softmax.
	op := begin("cross_entropy_backward").with(x, target, weight, total)
	t, wd := op.dense(target), op.dense(weight)
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	plain := *l
	plain.last, plain.smoothing = false, 0
	dlogp := Mul(plain.nllGrad(grad, l.stat, x.Shape(), t, wd, total), core.Num(1-l.smoothing))
	if l.smoothing > 0 {
		even := Mul(g, core.Num(-l.smoothing/float64(l.classes)))
		even = Mul(even, castTo(Unsqueeze(Ne(target, core.IntNum(int64(l.ignore))), class), l.stat))
		if w == nil {
			w = core.Num(1)
		}
		dlogp = Add(dlogp, Mul(even, w))
	}
	dx := Sub(dlogp, Mul(Exp(logp), Sum(dlogp, []int{class}, true)))
	ctx.Set(0, castTo(dx, x.DType()))
}

// nll computes the loss of log-probabilities x; target and weight are contiguous.
func (l *classLoss) nll(b *opContext, x, target, weight *core.Tensor) *core.Tensor {
	op := begin(b.name).with(x, target, weight)
	in := l.scores(&op, x)
	loss, total := l.loss(&op, x), op.temp(l.stat)
	if op.err != nil {
		return op.fail()
	}
	c := l.attrs(op.call(contract.NLLLoss).Out(loss).Out(total).In(in).In(target).In(weight))
	c.Work = 8 * target.Numel() // of whose classes alone the elements are read
	op.launch(c)
	if op.grad {
		n := op.node(nllDeriv, x).Save(target, weight, total)
		n.Any = l
		op.attach(n, loss)
	}
	return op.done(loss)
}

func nllDeriv(ctx *core.BackwardContext) {
	l := ctx.Node.Any.(*classLoss)
	target, weight, total := ctx.Saved(0), ctx.Saved(1), ctx.Saved(2)
	ctx.Set(0, l.nllGrad(ctx.Grad(), ctx.InputDType(0), ctx.InputShape(0), target, weight, total))
}

// nllGrad returns the gradient of log-probabilities from that of the loss. It is linear in grad, and recorded.
func (l *classLoss) nllGrad(grad *core.Tensor, dtype core.DType, shape []int, target, weight, total *core.Tensor) *core.Tensor {
	op := begin("nll_loss_backward").with(grad, target, weight, total)
	g := op.dense(grad)
	dx := op.returns(l.like(&op, dtype, shape))
	if op.err != nil {
		return op.fail()
	}
	// The kernel reads the dtype from its first input, of which it reads no element.
	op.launch(l.attrs(op.call(contract.NLLLossBackward).Out(dx).In(dx).In(target).In(weight).In(g).In(total)))
	if op.grad {
		n := op.node(nllGradDeriv, grad).Save(target, weight)
		n.Any = l
		op.attach(n, dx)
	}
	return op.done(dx)
}

// The adjoint of nllGrad is the loss itself: it is linear in the log-probabilities.
func nllGradDeriv(ctx *core.BackwardContext) {
	l := ctx.Node.Any.(*classLoss)
	target, weight := ctx.Saved(0), ctx.Saved(1)
	op := begin("nll_loss").with(ctx.Grad(), target, weight)
	if op.err != nil {
		ctx.Fail(op.err)
		return
	}
	ctx.Set(0, l.nll(&op, ctx.Grad(), target, weight))
}
