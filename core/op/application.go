package op

import (
	"errors"
	"fmt"

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
type application struct {
	name   string
	mode   core.Mode
	stream core.Stream
	err    error
	grad   bool // an input requires a gradient, and gradients are recorded
}

// begin starts an application. The inputs, of which optional ones may be nil, must be usable and on one device; its
// current stream is where the kernels will run.
func begin(name string, inputs ...*core.Tensor) application { return start(name, true, inputs) }

// beginGiven is begin for inputs none of which is optional.
func beginGiven(name string, inputs ...*core.Tensor) application { return start(name, false, inputs) }

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
		if record {
			if h := t.History(); h != nil {
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

// failf makes the application fail, unless it has already.
func (a *application) failf(kind core.Kind, format string, args ...any) {
	if a.err == nil {
		a.err = core.Errorf(kind, a.name, format, args...)
	}
}

// check makes the application fail with err, if it is not nil.
func (a *application) check(err error) {
	if a.err == nil {
		a.err = err
	}
}

// fail returns the tensor that carries the application's error.
func (a *application) fail() *core.Tensor { return core.ErrorTensor(a.err) }

// dim returns the dimension dim of t counted from the front.
func (a *application) dim(dim int, t *core.Tensor) int {
	if a.err != nil {
		return 0
	}
	d, err := core.WrapDim(a.name, dim, t.Dim())
	a.check(err)
	return d
}

// dims returns dims of t counted from the front and sorted; none means all.
func (a *application) dims(dims []int, t *core.Tensor) []int {
	if a.err != nil {
		return nil
	}
	d, err := core.WrapDims(a.name, dims, t.Dim())
	a.check(err)
	return d
}

// floating fails unless t is of a floating-point dtype.
func (a *application) floating(what string, t *core.Tensor) {
	if a.err == nil && t != nil && !t.DType().IsFloat() {
		a.failf(core.DTypeError, "%s must be floating point, got %v", what, t.DType())
	}
}

// broadcast returns the shape to which the tensors broadcast.
func (a *application) broadcast(tensors ...*core.Tensor) []int {
	if a.err != nil {
		return nil
	}
	shapes := make([][]int, 0, 4)
	for _, t := range tensors {
		if t != nil {
			shapes = append(shapes, t.Shape())
		}
	}
	s, err := core.Broadcast(a.name, shapes...)
	a.check(err)
	return s
}

// out allocates a result. After a failure it returns nil.
func (a *application) out(d core.DType, shape []int) *core.Tensor {
	if a.err != nil {
		return nil
	}
	if _, err := core.CheckShape(a.name, shape, d); err != nil {
		a.err = err
		return nil
	}
	t := core.NewTensor(a.mode, a.stream, d, shape)
	if err := t.Err(); err != nil {
		a.err = core.Errorf(core.MemoryError, a.name, "%w", err)
		return nil
	}
	return t
}

// temp is out for memory that only this application needs; release it after the last launch that uses it.
func (a *application) temp(d core.DType, shape ...int) *core.Tensor { return a.out(d, shape) }

// call starts a launch; the stream is locked until launch, so allocate before.
func (a *application) call(k core.KernelID) *core.Call { return a.stream.Begin(k, a.name) }

// A refuser is a stream that says before a call is launched that its device cannot run it.
type refuser interface{ Refuse(c *core.Call) error }

// launch enqueues the call, or fails where the device has no kernel for it.
func (a *application) launch(c *core.Call) {
	if r, ok := a.stream.(refuser); ok {
		if err := r.Refuse(c); err != nil {
			a.check(err)
			c.Fail(err)
			a.stream.Abandon(c)
			return
		}
	}
	a.stream.Launch(c)
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

// done returns the application's only result, or the error.
func (a *application) done(t *core.Tensor) *core.Tensor {
	if a.err != nil {
		return a.fail()
	}
	if a.mode.Anomaly() {
		if err := firstNaN(a.name, t); err != nil {
			return core.ErrorTensor(err)
		}
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

// firstNaN waits for t and returns an error that names the operation if it holds a NaN.
func firstNaN(name string, t *core.Tensor) error {
	if !t.DType().IsFloat() {
		return nil
	}
	v, err := core.Values[float64](t)
	if err != nil {
		return err
	}
	for i, x := range v {
		if x != x {
			return core.Errorf(core.ValueError, name, "made a NaN at element %d of its result of shape %v", i, t.Shape())
		}
	}
	return nil
}

// shapes formats the shapes of tensors for a message.
func shapes(tensors ...*core.Tensor) string {
	s := ""
	for i, t := range tensors {
		if i > 0 {
			s += " x "
		}
		if t == nil {
			s += "nil"
			continue
		}
		s += fmt.Sprint(t.Shape())
	}
	return s
}
