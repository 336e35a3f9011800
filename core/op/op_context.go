package op

import (
	"errors"

	"github.com/plait-ml/plait/core"
	_ "github.com/plait-ml/plait/core/cpu" // the device that is always there
)

// An application is one use of an operation, from the check of its arguments to the record of its derivative:
//
//	a := begin("softmax", x)
//	dim = a.dim(dim, x)
//	y := a.out(x.DType(), x.Shape())
//	if a.err != nil {
//		return a.fail()
//	}
//	a.launch(a.call(softmaxKernel).Out(y).In(x).Int(int64(dim)))
//	if a.grad {
//		a.attach(a.node(softmaxDeriv, x).SaveOutput(y, 0), y)
//	}
//	return a.done(y)
//
// Its methods do nothing once it has failed, so that checks can follow one another.
//
// It owns what it allocates. Temporaries, which are those of temp, dense, apart and own, are released when it ends, by done or
// fail; fail releases the results as well. Where neither is called, as in derivatives, the scope they run in does so.
type application struct {
	name     string
	mode     core.Mode
	stream   core.Stream
	err      error
	grad     bool           // an input requires a gradient, and gradients are recorded
	result   *core.Tensor   // the first
	more     *owned         // what else it owns, which is seldom anything
	division *core.Division // of an input that is a rank's part of a larger tensor
}

// begin starts an application. The inputs, of which optional ones may be nil, must be usable and on one device; its
// current stream is where the kernels will run.
func begin(name string, inputs ...*core.Tensor) application {
	a := start(name, true, inputs)
	a.wholes()
	return a
}

// beginGiven is begin for inputs none of which is optional.
func beginGiven(name string, inputs ...*core.Tensor) application {
	a := start(name, false, inputs)
	a.wholes()
	return a
}

func start(name string, optional bool, inputs []*core.Tensor) application {
	a := application{name: name, mode: core.CurrentMode()}
	record := a.mode.GradEnabled()
	var dev core.Device
	for _, t := range inputs {
		if t == nil && optional {
			continue
		}
		if err := t.Usable(name); err != nil {
			a.err = err
			return a
		}
		if t.IsNumber() {
			continue
		}
		switch d := t.Device(); dev {
		case nil:
			dev = d
		case d:
		default:
			a.err = core.Errorf(core.DeviceError, name, "tensors on different devices, got %v and %v", dev, d)
			return a
		}
		if h := t.History(); h != nil {
			if d := h.Division(); d != nil {
				a.division = d
			}
			if record {
				if err := h.Refused(); err != nil {
					a.err = err
					return a
				}
				a.grad = a.grad || h.Wanted()
			}
		}
	}
	a.on(dev)
	return a
}

// beginAll is begin for a list and further inputs.
func beginAll(name string, list []*core.Tensor, more ...*core.Tensor) application {
	for i, t := range list {
		if t == nil {
			return application{name: name, err: core.Errorf(core.TypeError, name, "tensor %d of the list is nil", i)}
		}
	}
	return begin(name, append(append(make([]*core.Tensor, 0, len(list)+len(more)), list...), more...)...)
}

// on makes the application run on the current stream of dev; nil means the default device.
func (a *application) on(dev core.Device) {
	if a.err != nil {
		return
	}
	ctx := a.mode.Context()
	if dev == nil {
		var err error
		if dev, err = ctx.DefaultDevice(); err != nil {
			a.err = err
			return
		}
	}
	a.stream = ctx.Stream(dev)
}

// fail ends the application and returns the tensor that carries its error.
func (a *application) fail() *core.Tensor {
	a.end()
	a.result.Release()
	if a.more != nil {
		for _, t := range a.more.results {
			t.Release()
		}
	}
	return core.ErrorTensor(a.err)
}

// call starts a launch.
func (a *application) call(k core.KernelID) *core.Call { return a.stream.Begin(k, a.name) }

// A refuser is a stream that says before a call is launched that its device cannot run it.
type refuser interface{ Refuse(c *core.Call) error }

// launch enqueues the call, or fails where an operand failed or the device has no kernel for it. After a failure it does
// nothing.
func (a *application) launch(c *core.Call) {
	a.check(c.Err())
	if r, ok := a.stream.(refuser); ok && a.err == nil {
		a.check(r.Refuse(c))
	}
	if a.err != nil {
		c.Fail(a.err)
		a.stream.Abandon(c)
		return
	}
	a.check(core.Launch(a.stream, c))
}

// node returns the node that records the application on the given inputs, which may be nil, in the order in which its
// derivative sets their gradients. Save what the derivative needs, then attach the results.
func (a *application) node(deriv core.Deriv, inputs ...*core.Tensor) *core.Node {
	return core.NewNode(a.mode, a.name, deriv, inputs...)
}

// attach makes the tensors the node's outputs.
func (a *application) attach(n *core.Node, outs ...*core.Tensor) {
	a.check(n.Problem())
	last := -1
	for i, t := range outs {
		if t.DType().IsFloat() {
			last = i
		}
	}
	for i, t := range outs {
		switch {
		case i == last:
			n.AttachLast(t, i)
		case t.DType().IsFloat():
			n.Attach(t, i)
		default:
			n.DeclareOutput(i, t.DType(), t.Shape())
		}
	}
	if last < 0 {
		n.Release()
	}
}

// done ends the application and returns its only result, or the tensor that was changed in place; or the error.
func (a *application) done(t *core.Tensor) *core.Tensor {
	if a.err != nil {
		return a.fail()
	}
	a.end()
	if a.division != nil {
		t.Divide(a.division)
	}
	if a.mode.Anomaly() {
		if err := firstNaN(a.name, t); err != nil {
			return core.ErrorTensor(err)
		}
	}
	return t
}

// done2 is done for two results.
func (a *application) done2(t, u *core.Tensor) (*core.Tensor, *core.Tensor) {
	if t = a.done(t); t.Err() != nil {
		return t, t
	}
	return t, u
}

// done3 is done for three results.
func (a *application) done3(t, u, v *core.Tensor) (*core.Tensor, *core.Tensor, *core.Tensor) {
	t, u = a.done2(t, u)
	if t.Err() != nil {
		v = t
	}
	return t, u, v
}

// changedTo is done for t that was changed in place, and is not looked at.
func (a *application) changedTo(t *core.Tensor) *core.Tensor {
	if a.err != nil {
		return a.fail()
	}
	a.end()
	if a.division != nil {
		t.Divide(a.division)
	}
	return t
}

// view returns a tensor on x's storage with another layout, which takes part in operations in place on x and in those on
// it. deriv, with x as the only input, may be nil if no gradient passes.
func (a *application) view(x *core.Tensor, shape, strides []int, offset int, deriv core.Deriv, keep func(n *core.Node)) *core.Tensor {
	if a.err != nil {
		return a.fail()
	}
	v := core.WrapTensor(a.mode, x.Storage(), x.DType(), shape, strides, offset)
	if a.mode.GradEnabled() && x.DType().IsFloat() {
		v.MarkView(x)
	}
	if a.grad && deriv != nil {
		n := a.node(deriv, x)
		if keep != nil {
			keep(n)
		}
		a.attach(n, v)
	}
	return v
}

// compose runs fn, an operation made of others, and releases the tensors it leaves behind. A failure is reported under
// name, with that of the operation that failed behind it; where they are nested, the innermost one's stands.
func compose(name string, fn func() *core.Tensor) *core.Tensor {
	out := core.RunScope(func() []*core.Tensor { return []*core.Tensor{fn()} })[0]
	var e, inner *core.Error
	if out.Err() == nil || !errors.As(out.Err(), &e) || e.Op == name || errors.As(e.Err, &inner) {
		return out
	}
	return core.ErrorTensor(core.Errorf(e.Kind, name, "%w", e))
}
