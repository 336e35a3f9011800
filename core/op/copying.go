package op

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// To returns t converted to dtype d, as PyTorch converts: floats are truncated to integers, and everything but zero is
// true. Complex numbers are not converted to real ones: [Real] takes their real parts. If t has the dtype already, it returns t itself (a new reference to it).
func To(t *core.Tensor, d core.DType) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "to", t, d)
	}
	if t.Err() == nil && t.DType().IsComplex() && d.Valid() && !d.IsComplex() && d != core.Bool {
		return core.ErrorTensor(core.Errorf(core.DTypeError, "to", "%v cannot hold complex numbers; take their real parts", d))
	}
	c := castTo(t, d)
	if c == t {
		return t.Alias(true)
	}
	return c
}

// castTo is [To] without a new reference: if t has the dtype already, it returns t. Of complex numbers it keeps the real parts, as gradients
// of real numbers are.
func castTo(t *core.Tensor, d core.DType) *core.Tensor {
	if p := t.Parts(); p != nil && p.Depth() > 0 && t.DType() != d {
		return p.With(castTo(p.Local(), d))
	} else if p != nil && p.Depth() > 0 {
		return t
	}
	op := begin("to").each(t)
	if op.err == nil && !d.Valid() {
		op.failf(core.DTypeError, "got %v, want a dtype", d)
	}
	if op.err != nil {
		return op.fail()
	}
	if t.DType() == d && !t.IsNumber() {
		return t
	}
	if t.DType().IsComplex() && d == core.Bool {
		return op.compose(func() *core.Tensor { return Any(ViewAsReal(t), []int{-1}, false) })
	}
	out := op.out(d, t.Shape())
	if op.err != nil {
		return op.fail()
	}
	op.convert(out, t)
	if op.grad && d.Differentiable() {
		n := op.node(toDeriv, t)
		n.Any = converted{}
		op.attach(n, out)
	}
	return op.done(out)
}

// convert launches the copy of t, which may be a number, to out, of any dtype. Of complex numbers, a real dtype gets the real parts.
func (op *opContext) convert(out, t *core.Tensor) {
	switch to, from := out.DType().IsComplex(), t.DType().IsComplex(); {
	case to && t.IsNumber():
		re, im := numberParts(t)
		op.setParts(out, re, im)
	case to && !from:
		op.setParts(out, t, core.IntNum(0))
	case from && !to:
		op.launch(op.call(contract.Copy).Out(out).In(op.own(half(op.mode, t, 0))))
	default:
		op.launch(op.call(contract.Copy).Out(out).In(t))
	}
}

func toDeriv(ctx *core.BackwardContext) {
	if widens(ctx.Grad(), ctx.InputDType(0)) && meetsAnyDType(ctx, 0) {
		ctx.SetMixed(0, ctx.Grad().Alias(true))
		return
	}
	ctx.Set(0, castTo(ctx.Grad(), ctx.InputDType(0)))
}

// ToDevice returns a contiguous copy of t on the given device; t itself (a new reference to it) if it is there already.
func ToDevice(t *core.Tensor, dev core.Device) *core.Tensor {
	if parts := t.Parts(); parts != nil {
		return parts.With(ToDevice(parts.Local(), dev))
	}
	op := begin("to").each(t)
	if op.err == nil && t.IsNumber() {
		op.failf(core.TypeError, "got a number, want a tensor")
	}
	if op.err == nil && dev == nil {
		op.failf(core.TypeError, "got no device")
	}
	if op.err != nil {
		return op.fail()
	}
	from := t.Device()
	if from == dev {
		return t.Alias(true)
	}
	op.place(dev)
	out := op.out(t.DType(), t.Shape())
	if op.err != nil {
		return op.fail()
	}
	if from.HostAccessible() && dev.HostAccessible() || core.Reaches(dev, from) {
		op.launch(op.call(contract.Copy).Out(out).In(t))
	} else {
		op.check(upload(op.stream, out, t))
	}
	if op.grad {
		n := op.node(toDeviceDeriv, t)
		n.Any = from
		op.attach(n, out)
	}
	return op.done(out)
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

func toDeviceDeriv(ctx *core.BackwardContext) {
	ctx.Set(0, ToDevice(ctx.Grad(), ctx.Node.Any.(core.Device)))
}

// CopyInPlace writes src, broadcast to t's shape and converted to its dtype, to t and returns t. The two may be on
// different devices.
func CopyInPlace(t, src *core.Tensor) *core.Tensor {
	if parts := distributed(t, src); parts != nil {
		return handOn(parts, "copy_", t, src)
	}
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
	op := begin("copy_").each(t, src)
	if op.err == nil {
		op.check(holds("copy_", t.DType(), src))
	}
	op.inPlace(t)
	if op.err == nil {
		if shape, err := core.Broadcast("copy_", t.Shape(), src.Shape()); err != nil || !slices.Equal(shape, t.Shape()) {
			op.failf(core.ShapeError, "shape %v cannot be broadcast to %v", src.Shape(), t.Shape())
		}
	}
	if op.err != nil {
		return op.fail()
	}
	from := src
	if !src.IsNumber() {
		if from = op.apart(t, src); op.err != nil { // the two may overlap
			return op.fail()
		}
		from = op.repeated(from, t.Shape())
		defer from.Release()
	}
	if t.DType().IsComplex() || from.DType().IsComplex() {
		op.overwriteComplex(t, from)
	} else {
		c := op.call(contract.Copy).Out(t).In(from)
		c.InPlace, c.Overwrites = true, true
		op.launch(c)
	}
	op.changed(t)
	if op.grad && t.DType().Differentiable() {
		op.rebase(op.node(copyInPlaceDeriv, t, src), t)
	}
	return op.changedTo(t)
}

// overwriteComplex writes from, of t's shape or a number, to t, if one of them is complex.
func (op *opContext) overwriteComplex(t, from *core.Tensor) {
	write := func(to, from *core.Tensor) {
		c := op.call(contract.Copy).Out(to).In(from)
		c.InPlace, c.Overwrites = true, true
		op.launch(c)
	}
	switch to, is := t.DType().IsComplex(), from.DType().IsComplex(); {
	case to && from.IsNumber():
		re, im := numberParts(from)
		write(op.own(half(op.mode, t, 0)), re)
		write(op.own(half(op.mode, t, 1)), im)
	case from.IsNumber():
		op.failf(core.DTypeError, "a tensor of %v cannot hold the complex number %v", t.DType(), complex(from.Number().Float, from.Number().Imag))
	case to && is:
		write(t, from)
	case to:
		write(op.own(half(op.mode, t, 0)), from)
		write(op.own(half(op.mode, t, 1)), core.IntNum(0))
	default:
		op.failf(core.DTypeError, "a tensor of %v cannot hold complex numbers; take their real parts", t.DType())
	}
}

// copyInPlaceDeriv sets a gradient of zeros for the old value, so that a leaf that was overwritten gets one.
func copyInPlaceDeriv(ctx *core.BackwardContext) {
	if ctx.Needs(0) {
		ctx.Set(0, zerosFor(ctx.Grad(), ctx.InputDType(0), ctx.InputShape(0)))
	}
	if ctx.Needs(1) {
		ctx.Set(1, castTo(sumTo(ctx.Grad(), ctx.InputShape(1)), ctx.InputDType(1)))
	}
}

// FillInPlace sets every element of t to value, a number or a 0-d tensor, and returns t.
func FillInPlace(t, value *core.Tensor) *core.Tensor {
	if parts := distributed(t, value); parts != nil {
		return handOn(parts, "fill_", t, value)
	}
	if value.Err() == nil && value.Dim() > 0 {
		return core.ErrorTensor(core.Errorf(core.ShapeError, "fill_", "the value has shape %v, want a number or a 0-d tensor", value.Shape()))
	}
	return CopyInPlace(t, value)
}

// ZeroInPlace sets every element of t to zero and returns t.
func ZeroInPlace(t *core.Tensor) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "zero_", t)
	}
	return CopyInPlace(t, zero)
}

// Clone returns a contiguous copy of t.
func Clone(t *core.Tensor) *core.Tensor {
	if parts := distributed(t); parts != nil {
		return handOn(parts, "clone", t)
	}
	op := begin("clone").each(t)
	if op.err != nil {
		return op.fail()
	}
	out := op.out(t.DType(), t.Shape())
	if op.err != nil {
		return op.fail()
	}
	op.launch(op.call(contract.Copy).Out(out).In(t))
	if op.grad {
		op.attach(op.node(cloneDeriv, t), out)
	}
	return op.done(out)
}

func cloneDeriv(ctx *core.BackwardContext) { ctx.Set(0, ctx.Grad()) }

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
