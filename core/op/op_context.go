package op

import (
	"errors"

	"github.com/plait-ml/plait/core"
	_ "github.com/plait-ml/plait/core/cpu" // the device that is always there
)

// An opContext is one use of an operation, from the check of its arguments to the record of its derivative:
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
// Its methods do nothing once it has failed, so that checks can follow one another.
//
// It owns what it allocates. Temporaries, which are those of temp, dense, apart and own, are released when it ends, by done or
// fail; fail releases the results as well. Where neither is called, as in derivatives, the scope they run in does so.
type opContext struct {
	name     string
	mode     core.Mode
	stream   core.Stream
	err      error
	grad     bool           // an input requires a gradient, and gradients are recorded
	casts    bool           // autocast has decided about the inputs: it is off for the ops that this one is made of
	result   *core.Tensor   // the first
	more     *owned         // what else it owns, which is seldom anything
	division *core.Division // of an input that is a rank's part of a larger tensor
}

// begin starts an op, as its first line. The inputs, of which the first must be a tensor and the others may be numbers, must be usable and on one device, and are replaced by what
// autocast makes of them, as the op's row says: the address of each is given. [optional] is for those that may be absent. Kernels will
// run on the device's current stream.
//
// What an op cannot give in this way follows, with begin(name) alone: [opContext.list] for a list of tensors, [opContext.like] and
// [opContext.on] for a new tensor, [opContext.each] for an op on elements, and [opContext.with] for the inputs of a part of an op,
// such as its derivative.
func begin(name string, inputs ...**core.Tensor) opContext {
	op := opContext{name: name, mode: core.CurrentMode()}
	if len(inputs) == 0 {
		return op
	}
	if op.mode.Autocasting() {
		op.autocast(inputs)
	}
	var dev core.Device
	for _, p := range inputs {
		if p != nil {
			dev = op.input(*p, dev)
		}
	}
	if op.err == nil && (*inputs[0]).IsNumber() {
		op.failf(core.TypeError, "got a number, want a tensor")
	}
	op.wholes()
	op.place(dev)
	return op
}

// optional is an input for [begin] that may be nil.
func optional(t **core.Tensor) **core.Tensor {
	if *t == nil {
		return nil
	}
	return t
}

// list adds a list of tensors, or numbers, to the inputs. It is replaced by another if autocast casts some.
func (op opContext) list(tensors *[]*core.Tensor) opContext {
	for i, t := range *tensors {
		if t == nil {
			op.failf(core.TypeError, "tensor %d of the list is nil", i)
			return op
		}
	}
	*tensors = op.castList(*tensors)
	return op.with(*tensors...)
}

// with adds inputs that nil may be among, that may be numbers, and that autocast leaves as they are.
func (op opContext) with(inputs ...*core.Tensor) opContext {
	var dev core.Device
	if op.stream != nil {
		dev = op.stream.Device()
	}
	for _, t := range inputs {
		if t != nil {
			dev = op.input(t, dev)
		}
	}
	op.wholes()
	op.place(dev)
	return op
}

// each adds the inputs, or numbers, of an op that works element by element: of parts of larger tensors it makes parts. Its shape must
// be given to [opContext.lie], and its result to [opContext.done].
func (op opContext) each(inputs ...*core.Tensor) opContext {
	var dev core.Device
	for _, t := range inputs {
		dev = op.input(t, dev)
	}
	op.place(dev)
	return op
}

// on is for an op without inputs. nil means the default device.
func (op opContext) on(dev core.Device) opContext {
	op.place(dev)
	return op
}

// input checks an input, where those before it are on device dev, and returns their device.
func (op *opContext) input(t *core.Tensor, dev core.Device) core.Device {
	if op.err != nil {
		return dev
	}
	if err := t.Usable(op.name); err != nil {
		op.err = err
		return dev
	}
	if t.IsNumber() {
		return dev
	}
	d := t.Device()
	if dev != nil && d != dev {
		op.err = core.Errorf(core.DeviceError, op.name, "tensors on different devices, got %v and %v", dev, d)
		return dev
	}
	if meta := t.AutogradMeta(); meta != nil {
		if d := meta.Division(); d != nil {
			op.division = d
		}
		if op.mode.GradEnabled() {
			op.check(meta.Refused())
			op.grad = op.grad || meta.Wanted()
		}
	}
	return d
}

// place makes the op run on the current stream of dev; nil means the default device.
func (op *opContext) place(dev core.Device) {
	if op.err != nil {
		return
	}
	ctx := op.mode.Context()
	if dev == nil {
		var err error
		if dev, err = ctx.DefaultDevice(); err != nil {
			op.err = err
			return
		}
	}
	op.stream = ctx.Stream(dev)
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
	op.check(core.Launch(op.stream, c))
}

// node returns the node that records the op on the given inputs, which may be nil, in the order in which its
// derivative sets their gradients. Save what the derivative needs, then attach the results.
func (op *opContext) node(deriv core.Deriv, inputs ...*core.Tensor) *core.Node {
	return core.NewNode(op.mode, op.name, deriv, inputs...)
}

// attach makes the tensors the node's outputs.
func (op *opContext) attach(n *core.Node, outs ...*core.Tensor) {
	op.check(n.Problem())
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

// done ends the op and returns its only result, or the tensor that was changed in place; or the error.
func (op *opContext) done(t *core.Tensor) *core.Tensor {
	if op.err != nil {
		return op.fail()
	}
	op.end()
	if op.division != nil {
		t.Divide(op.division)
	}
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
	if op.err != nil {
		return op.fail()
	}
	op.end()
	if op.division != nil {
		t.Divide(op.division)
	}
	return t
}

// view returns a tensor on x's storage with another layout, which takes part in operations in place on x and in those on
// it. deriv, with x as the only input, may be nil if no gradient passes.
func (op *opContext) view(x *core.Tensor, shape, strides []int, offset int, deriv core.Deriv, keep func(n *core.Node)) *core.Tensor {
	if op.err != nil {
		return op.fail()
	}
	v := core.WrapTensor(op.mode, x.Storage(), x.DType(), shape, strides, offset)
	if op.mode.GradEnabled() && x.DType().IsFloat() {
		v.MarkView(x)
	}
	if op.grad && deriv != nil {
		n := op.node(deriv, x)
		if keep != nil {
			keep(n)
		}
		op.attach(n, v)
	}
	return v
}

// passOn ends the op and returns t, which another op made for it.
func (op *opContext) passOn(t *core.Tensor) *core.Tensor {
	op.end()
	return t
}

// compose ends an op that is made of others, which fn calls; see the function compose.
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
