package op

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

var (
	copyKernel = core.Kernel("copy") // Outs[0] = Ins[0], of equal shape, with conversion of the dtype
	fillKernel = core.Kernel("fill") // Outs[0] = Ins[0], a number
)

// To returns t converted to dtype d, as PyTorch converts: floats are truncated to integers, and everything but zero is
// true. If t has the dtype already, it returns t itself (a new reference to it).
func To(t *core.Tensor, d core.DType) *core.Tensor {
	c := castTo(t, d)
	if c == t {
		return t.Alias(true)
	}
	return c
}

// castTo is [To] without a new reference: if t has the dtype already, it returns t.
func castTo(t *core.Tensor, d core.DType) *core.Tensor {
	a := beginEach("to", t)
	if a.err == nil && !d.Valid() {
		a.failf(core.TypeError, "invalid dtype %d", d)
	}
	if a.err != nil {
		return a.fail()
	}
	if t.DType() == d && !t.IsNumber() {
		return t
	}
	out := a.out(d, t.Shape())
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(copyKernel).Out(out).In(t))
	if a.grad && d.IsFloat() {
		a.attach(a.node(toDeriv, t), out)
	}
	return a.done(out)
}

func toDeriv(d *core.Derivation) { d.Set(0, To(d.Grad(), d.InputDType(0))) }

// ToDevice returns a contiguous copy of t on the given device; t itself (a new reference to it) if it is there already.
func ToDevice(t *core.Tensor, dev core.Device) *core.Tensor {
	a := beginEach("to", t)
	if a.err == nil && t.IsNumber() {
		a.failf(core.TypeError, "got a number, want a tensor")
	}
	if a.err == nil && dev == nil {
		a.failf(core.TypeError, "got no device")
	}
	if a.err != nil {
		return a.fail()
	}
	from := t.Device()
	if from == dev {
		return t.Alias(true)
	}
	a.on(dev)
	out := a.out(t.DType(), t.Shape())
	if a.err != nil {
		return a.fail()
	}
	if from.HostAccessible() && dev.HostAccessible() {
		a.launch(a.call(copyKernel).Out(out).In(t))
	} else {
		a.check(upload(a.stream, out, t))
	}
	if a.grad {
		n := a.node(toDeviceDeriv, t)
		n.Any = from
		a.attach(n, out)
	}
	return a.done(out)
}

// upload copies t to out, on another device, through the host.
func upload(s core.Stream, out, t *core.Tensor) error {
	n, size := t.Numel()*t.DType().Size(), t.DType().Size()
	meta := s.Device().Kind() == core.MetaKind // which keeps what it is given
	switch {
	case meta && n > core.MetaKept:
		s.Upload(out.Storage().Memory(), 0, nil)
		return nil
	case n == 0:
		return nil
	}
	var data []byte
	if t.Device().HostAccessible() && t.Contiguous() && !meta {
		if err := t.Storage().Wait(); err != nil {
			return err
		}
		m := t.Storage().Memory()
		m.Touch(false)
		data = unsafe.Slice((*byte)(unsafe.Add(m.Ptr, t.Offset()*size)), n)
	} else {
		var err error
		if data, err = t.Bytes(); err != nil {
			return err
		}
	}
	s.Upload(out.Storage().Memory(), out.Offset()*size, data) // which is done with data when it returns
	runtime.KeepAlive(t)
	return nil
}

func toDeviceDeriv(d *core.Derivation) { d.Set(0, ToDevice(d.Grad(), d.Node.Any.(core.Device))) }

// CopyInPlace writes src, broadcast to t's shape and converted to its dtype, to t and returns t. The two may be on
// different devices.
func CopyInPlace(t, src *core.Tensor) *core.Tensor {
	if t.Err() == nil && src.Err() == nil && t.Device() != nil && src.Device() != nil && t.Device() != src.Device() {
		src = ToDevice(src, t.Device())
		defer src.Release()
	}
	if src.Err() == nil && src.IsNumber() && t.Usable("copy_") == nil && !t.IsNumber() && repeats(t) {
		v := unexpanded(t) // which has every element once
		defer v.Release()
		if r := CopyInPlace(v, src); r.Err() != nil {
			return r
		}
		return t
	}
	a := beginEach("copy_", t, src)
	if a.err == nil {
		a.check(holds("copy_", t.DType(), src))
	}
	a.inPlace(t)
	if a.err == nil {
		if shape, err := core.Broadcast("copy_", t.Shape(), src.Shape()); err != nil || !slices.Equal(shape, t.Shape()) {
			a.failf(core.ShapeError, "shape %v cannot be broadcast to %v", src.Shape(), t.Shape())
		}
		a.lie(t.Shape(), src)
	}
	if a.err != nil {
		return a.fail()
	}
	from := src
	if !src.IsNumber() {
		if from = a.apart(t, src); a.err != nil { // the two may overlap
			return a.fail()
		}
		from = a.repeated(from, t.Shape())
		defer from.Release()
	}
	c := a.call(copyKernel).Out(t).In(from)
	c.InPlace, c.Overwrites = true, true
	a.launch(c)
	a.changed(t)
	if a.grad && t.DType().IsFloat() {
		a.rebase(a.node(copyInPlaceDeriv, t, src), t)
	}
	return a.changedTo(t)
}

// copyInPlaceDeriv sets a gradient of zeros for the old value, so that a leaf that was overwritten gets one.
func copyInPlaceDeriv(d *core.Derivation) {
	if d.Needs(0) {
		d.Set(0, zerosFor(d.Grad(), d.InputDType(0), d.InputShape(0)))
	}
	if d.Needs(1) {
		d.Set(1, To(sumTo(d.Grad(), d.InputShape(1)), d.InputDType(1)))
	}
}

// FillInPlace sets every element of t to value, a number or a 0-d tensor, and returns t.
func FillInPlace(t, value *core.Tensor) *core.Tensor {
	if value.Err() == nil && value.Dim() > 0 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "fill_", "the value has shape %v, want a number or a 0-d tensor", value.Shape()))
	}
	return CopyInPlace(t, value)
}

// ZeroInPlace sets every element of t to zero and returns t.
func ZeroInPlace(t *core.Tensor) *core.Tensor { return CopyInPlace(t, core.IntNum(0)) }

// Clone returns a contiguous copy of t.
func Clone(t *core.Tensor) *core.Tensor {
	a := beginEach("clone", t)
	if a.err != nil {
		return a.fail()
	}
	out := a.out(t.DType(), t.Shape())
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(copyKernel).Out(out).In(t))
	if a.grad {
		a.attach(a.node(cloneDeriv, t), out)
	}
	return a.done(out)
}

func cloneDeriv(d *core.Derivation) { d.Set(0, d.Grad()) }

func init() {
	shaped := func(args ...any) Sample { return Sample{Args: args} }
	src := Arg{Name: "src", Doc: "the values"}
	register("copying",
		Row{Name: "clone", Func: Clone, Args: inputAnd(), Memory: true, Doc: "A contiguous copy.",
			Samples: []Sample{shaped(Shaped(3, 4)), shaped(Shaped()), shaped(Shaped(2, 0, 3)), shaped(Shaped(2, 3, 2, 2))}},
		Row{Name: "to", Func: To, Shares: true, Args: inputAnd(Arg{Name: "dtype"}), Memory: true, Doc: "The tensor converted to a dtype.",
			Samples: []Sample{{Args: []any{Shaped(3, 2), core.Float64}}}},
		Row{Name: "copy_", InPlace: CopyInPlace, Args: inputAnd(src), Memory: true, Doc: "The tensor with its elements set to those of another, broadcast and converted."},
		Row{Name: "fill_", InPlace: FillInPlace, Args: inputAnd(Arg{Name: "value", Number: true, Doc: "a number or a 0-d tensor"}), Memory: true,
			Doc: "The tensor with every element set to a value."},
		Row{Name: "zero_", InPlace: ZeroInPlace, Args: inputAnd(), Memory: true, Doc: "The tensor with every element set to zero."},
	)
}
