package op

import (
	"errors"
	"slices"

	"github.com/plait-ml/plait/core"
	_ "github.com/plait-ml/plait/core/cpu" // the device that is always there
)

// An opContext is one use of an operation. Every op has the same three steps: it begins and checks its arguments, it launches kernels
// or calls other ops, and it ends with what it returns.
//
//	op := begin("softmax", &x)
//	dim = op.dim(dim, x)
//	y := op.out(x.DType(), x.Shape())
//	if op.err != nil {
//		return op.fail()
//	}
//	op.launch(op.call(contract.Softmax).Out(y).In(x).Int(int64(dim)))
//	if op.grad {
//		op.attach(op.node(softmaxDeriv, x).SaveOutput(y, 0), y)
//	}
//	return op.done(y)
//
// One that is made of other ops ends with them:
//
//	return op.compose(func() *core.Tensor { return Softmax(Neg(x), dim) })
//
// Its methods do nothing once it has failed, so that checks can follow one another.
//
// It owns what it allocates. Temporaries, which are those of temp, dense, apart and own, and autocast's casts, are released when it
// ends, by done, compose, passOn or fail; fail releases the results as well. Where none is called, as in derivatives, the scope they
// run in does so.
type opContext struct {
	name    string
	mode    core.Mode
	stream  core.Stream
	err     error
	grad    bool          // an input requires a gradient, and gradients are recorded; or an input has a tangent
	casts   bool          // autocast has decided about the inputs: it is off for the ops that this one is made of
	wide    bool          // autocast has left a 16-bit first input to the kernel, which converts it to float32 as it loads it
	rounds  bool          // autocast has left some inputs in float32 to the kernel, which rounds them to autocast's dtype as it loads them
	result  *core.Tensor  // the first
	more    *owned        // what else it owns, which is seldom anything
	forward *forward      // nil unless an input has a tangent
	target  *core.Storage // of a result in memory that was offered
}

// fail ends the op and returns the tensor that carries its error.
func (op *opContext) fail() *core.Tensor {
	op.end()
	op.result.Release()
	if op.more != nil {
		for _, t := range op.more.results {
			t.Release()
		}
	}
	return core.ErrorTensor(op.err)
}

// call starts a launch.
func (op *opContext) call(k core.KernelID) *core.Call { return op.stream.Begin(k, op.name) }

// launch is [core.Launch] of the call. After a failure of the op, the call fails too.
func (op *opContext) launch(c *core.Call) {
	if op.err != nil {
		c.Fail(op.err)
		op.stream.Abandon(c)
		return
	}
	if op.target != nil && !c.InPlace {
		writes := func(o core.Operand) bool { return o.Storage() == op.target }
		c.InPlace = slices.ContainsFunc(c.Outs, writes)
		c.Overwrites = c.InPlace
	}
	op.check(core.Launch(op.stream, c))
}

// node returns the node that records the op on the given inputs, which may be nil, in the order in which its
// derivative sets their gradients. Save what the derivative needs, then attach the results.
func (op *opContext) node(deriv core.Deriv, inputs ...*core.Tensor) *core.Node {
	if op.forward != nil {
		op.forward.inputs = slices.Clone(inputs)
	}
	return core.NewNode(op.mode, op.name, deriv, inputs...)
}

// attach makes the tensors the node's outputs.
func (op *opContext) attach(n *core.Node, outs ...*core.Tensor) {
	op.check(n.Problem())
	last := -1
	for i, t := range outs {
		if t.DType().Differentiable() {
			last = i
		}
	}
	for i, t := range outs {
		switch {
		case i == last && op.forward == nil:
			n.AttachLast(t, i)
		case op.forward != nil && !op.forward.recorded:
			n.DeclareOutput(i, t.DType(), t.Shape())
		case t.DType().Differentiable():
			n.Attach(t, i)
		default:
			n.DeclareOutput(i, t.DType(), t.Shape())
		}
	}
	if op.forward != nil {
		op.check(op.forward.push(n, slices.Clone(outs)))
	}
	if last < 0 || op.forward != nil {
		n.Release()
	}
}

// done ends the op and returns its only result, or the tensor that was changed in place; or the error.
func (op *opContext) done(t *core.Tensor) *core.Tensor {
	if op.forward != nil {
		op.check(op.forward.overwritten())
	}
	if op.err != nil {
		return op.fail()
	}
	op.end()
	if op.mode.Anomaly() {
		at, err := core.FirstNaN(t)
		if err == nil && at >= 0 {
			err = core.Errorf(core.ValueError, op.name, "made a NaN at element %d of its result of shape %v", at, t.Shape())
		}
		if err != nil {
			return core.ErrorTensor(err)
		}
	}
	return t
}

// done2 is done for two results.
func (op *opContext) done2(t, u *core.Tensor) (*core.Tensor, *core.Tensor) {
	if t = op.done(t); t.Err() != nil {
		return t, t
	}
	return t, u
}

// done3 is done for three results.
func (op *opContext) done3(t, u, v *core.Tensor) (*core.Tensor, *core.Tensor, *core.Tensor) {
	t, u = op.done2(t, u)
	if t.Err() != nil {
		v = t
	}
	return t, u, v
}

// changedTo is done for t that was changed in place, and is not looked at.
func (op *opContext) changedTo(t *core.Tensor) *core.Tensor {
	if op.forward != nil {
		op.check(op.forward.overwritten())
	}
	if op.err != nil {
		return op.fail()
	}
	op.end()
	return t
}

// view returns a tensor on x's storage with another layout, which takes part in operations in place on x and in those on
// it. deriv, with x as the only input, may be nil if no gradient passes.
func (op *opContext) view(x *core.Tensor, shape, strides []int, offset int, deriv core.Deriv, keep func(n *core.Node)) *core.Tensor {
	if op.err != nil {
		return op.fail()
	}
	return op.viewAs(x.DType(), x, shape, strides, offset, deriv, keep)
}

// viewAs is view with a result of dtype d: that of x, or, with strides and offset in its elements, one of the same parts.
func (op *opContext) viewAs(d core.DType, x *core.Tensor, shape, strides []int, offset int, deriv core.Deriv, keep func(n *core.Node)) *core.Tensor {
	if op.err != nil {
		return op.fail()
	}
	v := core.WrapTensor(op.mode, x.Storage(), d, shape, strides, offset)
	v.SeeAs(x)
	if !x.DType().Differentiable() {
		return v
	}
	if op.mode.GradEnabled() || core.ForwardActive() {
		v.MarkView(x) // tangents are found through it too
	}
	if op.recorded() && deriv != nil {
		n := op.node(deriv, x)
		if keep != nil {
			keep(n)
		}
		tangents := op.forward // a view's are its base's
		op.forward = nil
		op.attach(n, v)
		op.forward = tangents
	}
	if !op.mode.GradEnabled() || x.Unrecorded(true) {
		v.MarkUnrecorded(x)
	}
	return v
}

// passOn ends the op and returns t, which another op made for it.
func (op *opContext) passOn(t *core.Tensor) *core.Tensor {
	op.end()
	return t
}

// compose ends an op that is made of others, which fn calls, with autocast off if it has decided about this one. It is the function
// compose otherwise.
func (op *opContext) compose(fn func() *core.Tensor) *core.Tensor {
	if op.err != nil {
		return op.fail()
	}
	return reported(op.name, op.scope(func() []*core.Tensor { return []*core.Tensor{fn()} })[0])
}

// scope is compose for several results, whose errors it leaves as they are.
func (op *opContext) scope(fn func() []*core.Tensor) []*core.Tensor {
	defer op.end()
	return core.RunScope(func() []*core.Tensor {
		if op.casts {
			core.SwapMode(core.CurrentMode().WithoutAutocast()) // until the scope ends
		}
		return fn()
	})
}

// compose runs fn, an operation made of others, and releases the tensors it leaves behind. A failure is reported under
// name, with that of the operation that failed behind it; where they are nested, the innermost one's stands.
func compose(name string, fn func() *core.Tensor) *core.Tensor {
	return reported(name, core.RunScope(func() []*core.Tensor { return []*core.Tensor{fn()} })[0])
}

func reported(name string, out *core.Tensor) *core.Tensor {
	var e, inner *core.Error
	if out.Err() == nil || !errors.As(out.Err(), &e) || e.Op == name || errors.As(e.Err, &inner) {
		return out
	}
	return core.ErrorTensor(core.Errorf(e.Kind, name, "%w", e))
}
