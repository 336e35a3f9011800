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

// owned are results behind the first, and temporaries.
type owned struct{ results, temps []*core.Tensor }

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

// end releases the temporaries. What was launched may still use their memory.
func (a *application) end() {
	if a.more == nil {
		return
	}
	for _, t := range a.more.temps {
		t.Release()
	}
	a.more.temps = a.more.temps[:0]
}

// owns returns what the application owns but for its first result.
func (a *application) owns() *owned {
	if a.more == nil {
		a.more = new(owned)
	}
	return a.more
}

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

// out allocates a result. After a failure it returns a tensor that carries the error, as temp does.
func (a *application) out(d core.DType, shape []int) *core.Tensor {
	return a.returns(a.alloc(d, shape))
}

// returns makes t a result.
func (a *application) returns(t *core.Tensor) *core.Tensor {
	if a.result == nil {
		a.result = t
	} else {
		o := a.owns()
		o.results = append(o.results, t)
	}
	return t
}

// alloc is out for a tensor that the application does not own.
func (a *application) alloc(d core.DType, shape []int) *core.Tensor {
	if a.err == nil {
		_, a.err = core.CheckShape(a.name, shape, d)
	}
	if a.err != nil {
		return core.ErrorTensor(a.err)
	}
	t := core.NewTensor(a.mode, a.stream, d, shape)
	if err := t.Err(); err != nil {
		a.err = core.Errorf(core.MemoryError, a.name, "%w", err)
		return core.ErrorTensor(a.err)
	}
	return t
}

// temp allocates memory that only this application needs.
func (a *application) temp(d core.DType, shape ...int) *core.Tensor { return a.own(a.alloc(d, shape)) }

// own makes t, which somebody else made, a temporary. Its error becomes the application's.
func (a *application) own(t *core.Tensor) *core.Tensor {
	if err := t.Err(); err != nil && a.err == nil {
		a.err = err
		if kind, _ := core.KindOf(err); kind == core.MemoryError { // whose operation is none that the program called
			a.err = core.Errorf(kind, a.name, "%w", err)
		}
	}
	o := a.owns()
	o.temps = append(o.temps, t)
	return t
}

// dense returns t if it is contiguous, otherwise a temporary copy that is, without a history. It returns nil for nil.
func (a *application) dense(t *core.Tensor) *core.Tensor {
	if a.err != nil || t == nil || t.Contiguous() {
		return t
	}
	c := a.temp(t.DType(), t.Shape()...)
	if a.err == nil {
		a.launch(a.call(copyKernel).Out(c).In(t))
	}
	return c
}

// apart returns t, or a temporary copy, with t's history, if it shares memory with x, which is about to be changed.
func (a *application) apart(x, t *core.Tensor) *core.Tensor {
	if a.err != nil || t == nil || t.IsNumber() || t.Storage() != x.Storage() {
		return t
	}
	return a.own(Clone(t))
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
