package shader

import "github.com/plait-ml/plait/core"

// A call with a float64 operand runs programs that compute in float64: in these, the types [Real], [Real2], [Real4] and [Real2x4] are of
// float64 numbers, and functions of the library named after float32 are those of float64. Kernels write one text for both.

// Doubles reports whether a call has a float64 operand that is no number, so that its programs compute in float64.
func Doubles(c *core.Call) bool {
	for _, list := range [2][]core.Operand{c.Outs, c.Ins} {
		for i := range list {
			if o := &list[i]; o.DType == core.Float64 && o.Present() && !o.IsNumber {
				return true
			}
		}
	}
	return false
}

// Doubles reports whether programs of the GPU can compute in float64.
func (d *Device) Doubles() bool { return d.Language != nil && d.Language.Float64() != nil }

// RealType returns the dtype that the programs of the call compute in: float32 or float64.
func (r *Recorder) RealType() core.DType {
	if r.Float64 {
		return core.Float64
	}
	return core.Float32
}

// Reals returns scratch memory for n numbers of [Recorder.RealType], which is released at the end of the call.
func (r *Recorder) Reals(n int) (core.Memory, error) { return r.Temp(r.RealType().Size() * n) }

// RealOperand returns a contiguous operand of a shape in scratch memory of the dtype [Recorder.RealType].
func (r *Recorder) RealOperand(m core.Memory, offset int, shape ...int) *core.Operand {
	o := F32Operand(m, offset, shape...)
	o.DType = r.RealType()
	return o
}

// Aligned is [Recorder.Aligned].
func (s *Builder) Aligned(o *core.Operand, steps ...int) bool { return s.recorder.Aligned(o, steps...) }
