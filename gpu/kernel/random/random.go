// Package random draws numbers with the counter-based generator that CPUs use: the same seed gives the same numbers.
package random

import (
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

// randomCall draws from a continuous distribution. Ints: distribution, seed, offset; Floats: up to four parameters.
func randomCall(r *shader.Recorder, c *core.Call) error {
	out := &c.Outs[0]
	n := out.Numel()
	var f [4]float64
	copy(f[:], c.Floats)
	s := shader.New(r, "random")
	y, count, total := s.Out("y", out, expr.F32, expr.Number), s.Uint(shader.Ceil(n, 4)), s.Uint(n)
	seed, offset := s.Long(c.Ints[1]), s.Long(c.Ints[2])
	mask, most := uint32(0xffffff00), math.Nextafter32(float32(f[1]), float32(math.Inf(-1)))
	switch out.DType {
	case core.Float16:
		mask, most = 0xffe00000, float32(f[1])-float32(math.Abs(f[1]))/2048
	case core.BFloat16:
		mask, most = 0xff000000, float32(f[1])-float32(math.Abs(f[1]))/256
	}
	kind := s.Specialize(int(c.Ints[0]))
	scale := map[int]float64{0: f[1] - f[0], 2: 1 / f[0], 5: -1 / math.Log1p(-f[0]), 6: f[1] * math.Sqrt2}
	low, high := 0.0, 0.0
	if kind == 6 {
		low, high = math.Erf((f[2]-f[0])/(f[1]*math.Sqrt2)), math.Erf((f[3]-f[0])/(f[1]*math.Sqrt2))
	}
	a, b, third, fourth := s.Float(f[0]), s.Float(f[1]), s.Float(f[2]), s.Float(f[3])
	by, lowWord, spanWord := s.Float(scale[kind]), s.Float(low), s.Float(high-low)
	maskWord, mostWord := s.Uint(int(mask)), s.Float(float64(most))
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(shader.Ceil(n, 4)), func() string {
		each4 := func(f string) string {
			t := "  var v: vec4<f32>;\n"
			for k := range 4 {
				t += "  { let u = w." + string("xyzw"[k]) + "; v." + string("xyzw"[k]) + " = " + f + "; }\n"
			}
			return t
		}
		normal := "  let first = plait_normal_pair(w.x, w.y);\n  let second = plait_normal_pair(w.z, w.w);\n" +
			"  var v = " + a + " + " + b + " * vec4<f32>(first, second);\n"
		text := ""
		switch kind {
		case 0:
			text = each4("min(" + a + " + " + by + " * plait_uniform(u & " + maskWord + "), " + mostWord + ")")
		case 1:
			text = normal
		case 2:
			text = each4("plait_negative_log(u) * " + by)
		case 3:
			text = normal
			for k := range 4 {
				c := string("xyzw"[k])
				text += "  v." + c + " = plait_exp_f32(v." + c + ");\n"
			}
		case 4:
			text = each4(a + " + " + b + " * plait_tan_f32(((f32(u >> 8u) - 8388608.0) + 0.5) * 1.87253515e-7)")
		case 5:
			text = each4("max(ceil(plait_negative_log(u) * " + by + "), 1.0)")
		default:
			text = each4("clamp(" + a + " + " + by + " * plait_erfinv_f32(" + lowWord + " + " + spanWord + " * (f32(u >> 8u) * 5.9604644775390625e-8 + 2.98023223876953125e-8)), " + third + ", " + fourth + ")")
		}
		return primitive.PhiloxBlocks(count, seed, offset, text+primitive.StoreWords(y, total))
	})
}

// randomIntegersCall draws low, ..., low+range-1. Ints: seed, offset, low, range; two words an element.
func randomIntegersCall(r *shader.Recorder, c *core.Call) error {
	out := &c.Outs[0]
	n := out.Numel()
	s := shader.New(r, "random_integers")
	y, count, total := s.Out("y", out, expr.I64, expr.Number), s.Uint(shader.Ceil(n, 2)), s.Uint(n)
	seed, offset, low, span := s.Long(c.Ints[0]), s.Long(c.Ints[1]), s.Long(c.Ints[2]), s.Long(c.Ints[3])
	all := s.Flag(c.Ints[3] == 0)
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(shader.Ceil(n, 2)), func() string {
		// The upper half of the product of two 64-bit numbers.
		high := `fn high_product(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let low = plait_wide(a.x, b.x);
  let first = plait_add_i64(plait_wide(a.y, b.x), vec2<u32>(low.y, 0u));
  let second = plait_add_i64(plait_wide(a.x, b.y), vec2<u32>(first.x, 0u));
  return plait_add_i64(plait_wide(a.y, b.y), plait_add_i64(vec2<u32>(first.y, 0u), vec2<u32>(second.y, 0u)));
}
`
		text := ""
		for k, words := range []string{"w.y, w.x", "w.w, w.z"} {
			v := "vec2<u32>(" + words + ")"
			if !all {
				v = "high_product(" + v + ", " + span + ")"
			}
			e := "i * 2u + " + strconv.Itoa(k) + "u"
			text += "  if (" + e + " < " + total + ") { st_y(" + y + " + " + e + ", plait_add_i64(" + low + ", " + v + ")); }\n"
		}
		return high + primitive.PhiloxBlocks(count, seed, offset, text)
	})
}

// bernoulliCall draws 0 or 1. Ints: seed, offset; the probability is a number or a contiguous tensor of the output's shape.
func bernoulliCall(r *shader.Recorder, c *core.Call) error {
	out, p := &c.Outs[0], &c.Ins[0]
	n := out.Numel()
	s := shader.New(r, "bernoulli")
	y, count, total := s.Out("y", out, expr.F32, expr.Number), s.Uint(shader.Ceil(n, 4)), s.Uint(n)
	seed, offset := s.Long(c.Ints[0]), s.Long(c.Ints[1])
	limit, probability, fault := "", "", ""
	if s.Flag(p.IsNumber) {
		if v := p.Number.Float; !(v >= 0 && v <= 1) {
			return core.Errorf(core.ValueError, c.Op, "the probability at element 0 is outside [0, 1]")
		}
		limit = s.Long(primitive.KeepLimit(p.Number.Float))
	} else {
		probability = s.In("x", p, expr.F32, expr.Number)
		m, word, err := r.Check(c, func(c *core.Call, at uint32) error {
			return core.Errorf(core.ValueError, c.Op, "the probability at element %d is outside [0, 1]", at-1)
		})
		if err != nil {
			return err
		}
		fault = "faults[" + s.Uint(int(word)) + "]"
		s.Bindings = append(s.Bindings, shader.Binding{Access: shader.Access{Name: "faults", DType: core.Bool}})
		s.Mems = append(s.Mems, m)
	}
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(shader.Ceil(n, 4)), func() string {
		text := "  var v: vec4<f32>;\n"
		for k := range 4 {
			word, e := "w."+string("xyzw"[k]), "(i * 4u + "+strconv.Itoa(k)+"u)"
			if limit != "" {
				text += "  { let limit = " + limit + "; v." + string("xyzw"[k]) + " = select(0.0, 1.0, limit.y > 0u || " + word + " < limit.x); }\n"
				continue
			}
			text += "  if (" + e + " < " + total + ") {\n    let q = ld_x(" + probability + " + " + e + ");\n" +
				"    if (!(q >= 0.0 && q <= 1.0)) { " + fault + " = " + e + " + 1u; }\n" +
				"    let limit = plait_i64_of_f32(q * 4294967296.0);\n" +
				"    v." + string("xyzw"[k]) + " = select(0.0, 1.0, limit.y > 0u || " + word + " < limit.x);\n  }\n"
		}
		return primitive.PhiloxBlocks(count, seed, offset, text+primitive.StoreWords(y, total))
	})
}
