package random

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// randomDoubles is randomCall in float64. A block of the generator has the words of two elements: each is made of the 53 upper bits of two
// words.
func randomDoubles(r *shader.Recorder, c *core.Call) error {
	out, draw := &c.Outs[0], contract.RandomOf(c)
	n := out.Numel()
	var f [4]float64
	copy(f[:], draw.Parameters)
	s := shader.New(r, "random (float64)")
	y, count, total := s.Out("y", out, expr.F32, expr.Number), s.Uint(shader.Ceil(n, 2)), s.Uint(n)
	seed, offset := s.Long(draw.Seed), s.Long(draw.Offset)
	s.Specialize(int(draw.Distribution))
	scale, low, high := f[1], 0.0, 0.0
	switch draw.Distribution {
	case contract.Uniform:
		scale = f[1] - f[0]
		high = f[1]
		if f[1] > f[0] {
			high = math.Nextafter(f[1], f[0])
		}
	case contract.Geometric:
		scale = math.Log1p(-f[0])
	case contract.TruncNormal:
		scale = f[1] * math.Sqrt2
		low, high = math.Erf((f[2]-f[0])/scale), math.Erf((f[3]-f[0])/scale)
	}
	a, by, least, most := s.Float(f[0]), s.Float(scale), s.Float(f[2]), s.Float(f[3])
	lowWord, highWord := s.Float(low), s.Float(high)
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(shader.Ceil(n, 2)), func(w *shader.Text) {
		primitive.PhiloxBlocks(w, count, seed, offset)
		w.Add("  let u = real2(plait_uniform_wide(w.x, w.y), plait_uniform_wide(w.z, w.w));\n  var v = u;")
		each := func(format string, args ...any) {
			for _, k := range []string{"x", "y"} {
				w.Add("  { let u = u."+k+"; let middle = u + 0x1p-54; v."+k+" = "+format+"; }", args...)
			}
		}
		switch draw.Distribution {
		case contract.Uniform:
			each("min(%s + %s * u, %s)", a, by, highWord)
		case contract.Normal, contract.LogNormal:
			w.Add(`  let radius = sqrt(-2.0 * plait_log_f32(1.0 - u.x));
  let angle = 6.283185307179586 * u.y;
  v = real2(%[1]s + %[2]s * (radius * plait_cos_f32(angle)), %[1]s + %[2]s * (radius * plait_sin_f32(angle)));`, a, by)
			if draw.Distribution == contract.LogNormal {
				w.Add("  v = real2(plait_exp_f32(v.x), plait_exp_f32(v.y));")
			}
		case contract.Exponential:
			each("-plait_log_f32(middle) / %s", a)
		case contract.Cauchy:
			each("%s + %s * plait_tan_f32(3.141592653589793 * ((u - 0.5) + 0x1p-54))", a, by)
		case contract.Geometric:
			each("max(ceil(plait_log_f32(middle) / %s), 1.0)", by)
		default:
			each("min(max(%s + %s * plait_erfinv_f32(%s + (%s - %s) * middle), %s), %s)", a, by, lowWord, highWord, lowWord, least, most)
		}
		w.Add("  if (i * 2u < %s) { st_y(%s + i * 2u, v.x); }\n  if (i * 2u + 1u < %s) { st_y(%s + i * 2u + 1u, v.y); }", total, y, total, y)
	})
}
