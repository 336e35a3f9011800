package collective

import (
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// carriers holds one Carrier per rank, for copies between devices.
var carriers struct {
	sync.Mutex
	byRank map[int]*Carrier
}

func carrier() *Carrier {
	rank := core.CurrentContext().Rank()
	carriers.Lock()
	defer carriers.Unlock()
	c := carriers.byRank[rank]
	if c == nil {
		if carriers.byRank == nil {
			carriers.byRank = map[int]*Carrier{}
		}
		c = NewCarrier()
		carriers.byRank[rank] = c
	}
	return c
}

// ToDevice returns x on dev; gradients flow back. Unlike [op.ToDevice] it does not block on a value that a GPU has yet to compute. The
// thread can launch work on other devices meanwhile, and readers of the result wait.
func ToDevice(x *core.Tensor, dev core.Device) *core.Tensor {
	if x.IsSparse() {
		return op.ToDevice(x, dev)
	}
	if p := x.Parts(); p != nil && p.Depth() == 0 && !p.Recorded() {
		return p.With(ToDevice(p.Local(), dev))
	}
	if err := x.Usable("to"); err != nil {
		return core.ErrorTensor(err)
	}
	from := x.Device()
	meta := dev == nil || dev.Kind() == core.MetaKind || !x.IsNumber() && from.Kind() == core.MetaKind
	if meta || x.IsNumber() || from == dev || x.Numel() == 0 || from.HostAccessible() && (dev.HostAccessible() || x.WaitFor(0)) {
		return op.ToDevice(x, dev)
	}
	var out *core.Tensor
	core.NoGrad(func() {
		dense := op.Contiguous(x)
		defer dense.Release()
		if out = dense; dense.Err() != nil {
			return
		}
		dt := x.DType()
		if out = op.EmptyWith(x.Shape(), op.TensorOptions{DType: &dt, Device: dev}); out.Err() != nil {
			return
		}
		if err := carrier().Copy(out, dense); err != nil {
			out.Release()
			out = core.ErrorTensor(err)
		}
	})
	m := core.CurrentMode()
	if out.Err() == nil && m.GradEnabled() && x.RequiresGrad() {
		n := core.NewNode(m, "to", func(ctx *core.BackwardContext) { ctx.Set(0, ToDevice(ctx.Grad(), from)) }, x)
		n.AttachLast(out, 0)
	}
	if out.Err() == nil && core.ForwardActive() {
		for _, l := range x.TangentLevels(m) {
			var v *core.Tensor
			core.WithMode(func(m core.Mode) core.Mode { return m.Below(l) }, func() { v = ToDevice(op.Tangent(x, l), dev) })
			if v.Err() != nil {
				return v
			}
			if err := op.SetTangent(out, l, v); err != nil {
				return core.ErrorTensor(err)
			}
		}
	}
	return out
}
