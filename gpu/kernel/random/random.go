// Package random has the GPU kernels that draw random numbers. They use the CPU's counter-based generator: equal seeds give equal numbers.
package random

import (
	"fmt"
	"math"
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Random, randomCall)
	kernel.Register(contract.RandomIntegers, randomIntegersCall)
	kernel.Register(contract.Bernoulli, bernoulliCall)
}

func randomCall(r *shader.Recorder, c *core.Call) error {
	if r.Float64 {
		return randomDoubles(r, c)
	}
	out := &c.Outs[0]
	n := out.Numel()
	draw := contract.RandomOf(c)
	var f [4]float64
	copy(f[:], draw.Parameters)
	s := shader.New(r, "random")
	y, count, total := s.Out("y", out, expr.F32, expr.Number), s.Uint(shader.Ceil(n, 4)), s.Uint(n)
	vec4 := primitive.OutVec4(s, 0, out)
	seed, offset := s.Long(draw.Seed), s.Long(draw.Offset)
	mask, most := uint32(0xffffff00), math.Nextafter32(float32(f[1]), float32(math.Inf(-1)))
	switch out.DType {
	case core.Float16:
		mask, most = 0xffe00000, float32(f[1])-float32(math.Abs(f[1]))/2048
	case core.BFloat16:
		mask, most = 0xff000000, float32(f[1])-float32(math.Abs(f[1]))/256
	}
	s.Specialize(int(draw.Distribution))
	scale := map[contract.Distribution]float64{contract.Uniform: f[1] - f[0], contract.Exponential: 1 / f[0],
		contract.Geometric: -1 / math.Log1p(-f[0]), contract.TruncNormal: f[1] * math.Sqrt2}
	low, high := 0.0, 0.0
	if draw.Distribution == contract.TruncNormal {
		low, high = math.Erf((f[2]-f[0])/(f[1]*math.Sqrt2)), math.Erf((f[3]-f[0])/(f[1]*math.Sqrt2))
	}
	a, b, third, fourth := s.Float(f[0]), s.Float(f[1]), s.Float(f[2]), s.Float(f[3])
	by, lowWord, spanWord := s.Float(scale[draw.Distribution]), s.Float(low), s.Float(high-low)
	maskWord, mostWord := s.Uint(int(mask)), s.Float(float64(most))
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(shader.Ceil(n, 4)), func(w *shader.Text) {
		primitive.PhiloxBlocks(w, count, seed, offset)
		each := func(format string, args ...any) {
			w.Add("  var v: real4;")
			for k := range 4 {
				w.Add("  { let u = w.%s; v.%s = %s; }", shader.Component(k), shader.Component(k), fmt.Sprintf(format, args...))
			}
		}
		normal := func() {
			w.Add(`  let first = plait_normal_pair(w.x, w.y);
  let second = plait_normal_pair(w.z, w.w);
  var v = %s + %s * real4(first, second);`, a, b)
		}
		switch draw.Distribution {
		case contract.Uniform:
			each("min(%s + %s * plait_uniform(u & %s), %s)", a, by, maskWord, mostWord)
		case contract.Normal:
			normal()
		case contract.Exponential:
			each("plait_negative_log(u) * %s", by)
		case contract.LogNormal:
			normal()
			for k := range 4 {
				w.Add("  v.%s = plait_exp_f32(v.%s);", shader.Component(k), shader.Component(k))
			}
		case contract.Cauchy:
			each("%s + %s * plait_tan_f32(((real(u >> 8u) - 8388608.0) + 0.5) * 1.87253515e-7)", a, b)
		case contract.Geometric:
			each("max(ceil(plait_negative_log(u) * %s), 1.0)", by)
		default:
			each("clamp(%s + %s * plait_erfinv_f32(%s + %s * (real(u >> 8u) * 5.9604644775390625e-8 + 2.98023223876953125e-8)), %s, %s)",
				a, by, lowWord, spanWord, third, fourth)
		}
		primitive.StoreWords(w, vec4, y, total)
	})
}

// randomIntegersCall uses two random words for each element.
func randomIntegersCall(r *shader.Recorder, c *core.Call) error {
	out := &c.Outs[0]
	n := out.Numel()
	s := shader.New(r, "random_integers")
	y, count, total := s.Out("y", out, expr.I64, expr.Number), s.Uint(shader.Ceil(n, 2)), s.Uint(n)
	a := contract.RandomIntegersOf(c)
	seed, offset, low, span := s.Long(a.Seed), s.Long(a.Offset), s.Long(a.Low), s.Long(a.Range)
	all := s.Flag(a.Range == 0)
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(shader.Ceil(n, 2)), func(w *shader.Text) {
		// high_product returns the upper 64 bits of the product of two 64-bit numbers.
		w.Func("high_product(a: pair, b: pair) -> pair", `let low = plait_wide(a.x, b.x);
  let first = plait_add_i64(plait_wide(a.y, b.x), pair(low.y, 0u));
  let second = plait_add_i64(plait_wide(a.x, b.y), pair(first.x, 0u));
  return plait_add_i64(plait_wide(a.y, b.y), plait_add_i64(pair(first.y, 0u), pair(second.y, 0u)));`)
		primitive.PhiloxBlocks(w, count, seed, offset)
		for k, words := range []string{"w.y, w.x", "w.w, w.z"} {
			v := "pair(" + words + ")"
			if !all {
				v = "high_product(" + v + ", " + span + ")"
			}
			e := "i * 2u + " + strconv.Itoa(k) + "u"
			w.Add("  if (%s < %s) { st_y(%s + %s, plait_add_i64(%s, %s)); }", e, total, y, e, low, v)
		}
	})
}

func bernoulliCall(r *shader.Recorder, c *core.Call) error {
	out, p := &c.Outs[0], &c.Ins[0]
	n := out.Numel()
	s := shader.New(r, "bernoulli")
	y, count, total := s.Out("y", out, expr.F32, expr.Number), s.Uint(shader.Ceil(n, 4)), s.Uint(n)
	vec4 := primitive.OutVec4(s, 0, out)
	a := contract.DrawOf(c)
	seed, offset := s.Long(a.Seed), s.Long(a.Offset)
	limit, probability := "", ""
	var fault func(position string) string
	if s.Flag(p.IsNumber) {
		if v := p.Number.Float; !(v >= 0 && v <= 1) {
			return core.Errorf(core.ValueError, c.Op, "the probability at element 0 is outside [0, 1]")
		}
		limit = s.Long(primitive.KeepLimit(p.Number.Float))
	} else {
		probability = s.In("x", p, expr.F32, expr.Number)
		fault = s.Faults(r, c, func(c *core.Call, at uint32) error {
			return core.Errorf(core.ValueError, c.Op, "the probability at element %d is outside [0, 1]", at)
		})
	}
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(shader.Ceil(n, 4)), func(w *shader.Text) {
		primitive.PhiloxBlocks(w, count, seed, offset)
		w.Add("  var v: real4;")
		for k := range 4 {
			c := shader.Component(k)
			if limit != "" {
				w.Add("  { let limit = %s; v.%s = select(0.0, 1.0, limit.y > 0u || w.%s < limit.x); }", limit, c, c)
				continue
			}
			e := fmt.Sprintf("(i * 4u + %du)", k)
			w.Add(`  if (%s < %s) {
    let q = ld_x(%s + %s);
    if (!(q >= 0.0 && q <= 1.0)) { %s }`, e, total, probability, e, fault(e))
			if r.Float64 {
				w.Add("    v.%s = select(0.0, 1.0, real(w.%s) < q * 4294967296.0);\n  }", c, c)
				continue
			}
			w.Add(`    let limit = plait_i64_of_f32(q * 4294967296.0);
    v.%s = select(0.0, 1.0, limit.y > 0u || w.%s < limit.x);
  }`, c, c)
		}
		primitive.StoreWords(w, vec4, y, total)
	})
}
