package op

import (
	"strings"

	"github.com/plait-ml/plait/core"
)

// begin starts an op and is its first line. Of each input it takes the address, because under autocast the input is replaced by the
// cast that the op's row asks for ([Row.Autocast]); the op owns the cast. Inputs must be usable and on one device, whose current stream
// the kernels will run on. None may be nil, but those given as [optional]; the first must be a tensor, and the op checks where the
// others must not be numbers.
//
//	op := begin("linear", &x, &weight, optional(&bias))
//
// Inputs that are not so plain follow begin(name):
//
//	begin("cat").list(&tensors)              // a list
//	begin("zeros").like(t, o)                // none: what t and the options say of a new tensor
//	begin("add").each(x, y)                  // tensors or numbers, which are not cast
//	begin("softmax_backward").with(y, grad)  // a part of an op, such as its derivative: nothing is cast, and nil is absent
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
	op.place(dev)
	return op
}

// each adds inputs that may be numbers, and that autocast leaves as they are.
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
	if t.DType().IsComplex() && !takesComplex[strings.TrimSuffix(op.name, "_")] {
		op.failf(core.DTypeError, "not defined for %v", t.DType())
		return dev
	}
	if t.IsNumber() {
		return dev
	}
	if core.ForwardActive() {
		op.seeTangents(t)
	}
	d := t.Device()
	if dev != nil && d != dev {
		op.err = core.Errorf(core.DeviceError, op.name, "tensors on different devices, got %v and %v", dev, d)
		return dev
	}
	if meta := t.AutogradMeta(); meta != nil {
		if op.mode.GradEnabled() {
			if meta.Wanted() {
				op.grad = true
				if op.forward != nil {
					op.forward.recorded = true
				}
			}
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
