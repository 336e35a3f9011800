package fusion

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/gpu/shader"
)

// Under autocast, what a layer norm and its derivative write in float32 is often cast next, for a product. Such a call leads a fusion that
// only the cast can join: the kernel then writes the cast too, from registers.

// Leads reports whether the call can lead a fusion with a cast of its first output.
func Leads(c *core.Call) bool {
	if c.Kernel != contract.LayerNorm && c.Kernel != contract.LayerNormBackward {
		return false
	}
	o := &c.Outs[0]
	return o.Present() && o.DType == core.Float32 && o.Numel() > 0 && contract.LayerNormOf(c).N%4 == 0 && o.Contiguous() && shader.Vec4(o)
}

// castOf reports whether c casts the first output of the fusion's leading call to 16 bits, in the same layout.
func (f *Fusion) castOf(c *core.Call) bool {
	lead := &f.Members[0].Call.Outs[0]
	if c.Kernel != contract.Copy || c.Ins[0].IsNumber || !c.Outs[0].DType.IsHalf() {
		return false
	}
	in, out := &c.Ins[0], &c.Outs[0]
	return in.Memory.Handle == lead.Memory.Handle && in.Offset == lead.Offset && in.DType == core.Float32 && in.Numel() == lead.Numel() &&
		slices.Equal(in.Shape, out.Shape) && in.Contiguous() && out.Contiguous() && shader.Vec4(out)
}

// join adds the leading call, or its cast.
func (f *Fusion) join(c *core.Call, number uint64) bool {
	if f.N > 1 || f.N == 1 && !f.castOf(c) {
		return false
	}
	if f.Members == nil {
		f.Members = make([]member, maxMembers)
	}
	m := &f.Members[f.N]
	m.kernel, m.Number = nil, number
	copyCallTo(&m.Call, c)
	f.N++
	return true
}

// Led returns the call that does the work of a fusion's leading call and of its cast, or nil if the fusion has none. The cast is its last
// output.
func (f *Fusion) Led() *core.Call {
	if !f.led || f.N < 2 {
		return nil
	}
	c := &f.Members[0].Call
	c.Outs = append(c.Outs, f.Members[1].Call.Outs[0])
	return c
}
