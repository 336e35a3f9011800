package gpu

import (
	"fmt"
	"math"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() {
	register("optim_step", stepCall)
	register("optim_norm", normCall)
	register("optim_scale", func(r *recorder, c *core.Call) error { return scaleCall(r, c, false) })
	register("optim_clip", func(r *recorder, c *core.Call) error { return scaleCall(r, c, true) })
	register("optim_clamp", clampCall)
	register("optim_unscale", unscaleCall)
}

// The optimisers' update rules. w is the parameter after decoupled weight decay, g the gradient after sign and coupled decay,
// a, b and c the states and x the numbers from the third on: core/cpu/kernel/optim/c/rules.h says what they are. A rule sets
// v, the new parameter.
var rules = [...]string{
	"v = w - x3 * g;",
	"a = x4 * a + x5 * g; v = w - x3 * (x6 * g + x7 * a);",
	"a = a + x4 * (g - a); b = x5 * b + x6 * g * g; v = w - x3 * a / (sqrt(b) / x7 + x8);",
	"a = a + x4 * (g - a); b = x5 * b + x6 * g * g; c = larger(c, b); v = w - x3 * a / (sqrt(c) / x7 + x8);",
	"a = a + x4 * (g - a); b = larger(x5 * b, abs(g) + x6); v = w - x3 * a / b;",
	"a = a + x4 * (g - a); b = x5 * b + x6 * g * g; v = w - (x3 * g + x9 * a) / (sqrt(b / x7) + x8);",
	"a = a + x4 * (g - a); b = x5 * b + x6 * g * g; v = w - x3 * a * (select(0.0, 1.0, x7 == 0.0) + x7 / (sqrt(b) + x8));",
	"a = a + g * g; v = w - x3 * g / (sqrt(a) + x4);",
	"a = x4 * a + x5 * g * g; let step = sqrt(b + x6) / sqrt(a + x6) * g; b = x4 * b + x5 * step * step; v = w - x3 * step;",
	"a = x4 * a + x5 * g * g; v = w - x3 * g / (sqrt(a) + x6);",
	"a = x4 * a + x5 * g * g; b = x7 * b + g / (sqrt(a) + x6); v = w - x3 * b;",
	"a = x4 * a + x5 * g * g; b = b + x5 * (g - b); v = w - x3 * g / (sqrt(larger(a - b * b, 0.0)) + x6);",
	"a = x4 * a + x5 * g * g; b = b + x5 * (g - b); c = x7 * c + g / (sqrt(larger(a - b * b, 0.0)) + x6); v = w - x3 * c;",
	"let turn = g * a; let factor = select(select(1.0, x3, turn < 0.0), x4, turn > 0.0); b = b * factor; " +
		"b = select(select(b, x6, b > x6), x5, b < x5); a = select(g, 0.0, turn < 0.0); v = w - select(select(a, -b, a < 0.0), b, a > 0.0);",
	"let u = a + x4 * (g - a); a = a + x5 * (g - a); v = w - select(select(u, -x3, u < 0.0), x3, u > 0.0);",
	"v = w - x3 * g; a = select(a + x4 * (v - a), v, x4 == 1.0);",
}

// ruleNumbers is how many numbers a rule takes for each parameter.
const ruleNumbers = 10

// stepCall updates parameters. Ins are their gradients. Outs are, for each parameter, the parameter, its states and, if it
// has one, its float32 master copy. Ints: for each parameter the rule, the number of states, and 1 if it has a master copy;
// Floats: the numbers of each.
func stepCall(r *recorder, c *core.Call) error {
	at := 0
	for i := range c.Ins {
		states := int(c.Ints[3*i+1])
		outs := c.Outs[at : at+1+states+int(c.Ints[3*i+2])]
		at += len(outs)
		if err := stepOne(r, &c.Ins[i], outs, int(c.Ints[3*i]), states, c.Floats[ruleNumbers*i:]); err != nil {
			return err
		}
		r.stream.feed(r) // a GPU that has waited for the last gradient begins before all is written down
	}
	return nil
}

func stepOne(r *recorder, grad *core.Operand, outs []core.Operand, rule, states int, numbers []float64) error {
	n := grad.Numel()
	if n == 0 {
		return nil
	}
	s := newShader(r, "optim_step")
	s.choose(rule)
	s.choose(states)
	master := s.flag(len(outs) > 1+states)
	var all []*core.Operand
	for i := range outs {
		all = append(all, &outs[i])
	}
	names := []string{"p", "a", "b", "c"}[:1+states]
	if master {
		names = append(names, "m")
	}
	four := n%4 == 0 && base(grad)%4 == 0
	for _, o := range all {
		four = four && base(o)%4 == 0 && packed(o.DType) == 1
	}
	four = four && packed(grad.DType) == 1
	s.flag(four)
	g := s.in("mem_g", grad, expr.F32, expr.Number)
	var from []string
	for i, o := range all {
		from = append(from, s.both("mem_"+names[i], o, expr.F32))
	}
	for i := range s.binds {
		s.binds[i].four = four
	}
	count := s.uint(n)
	var x [ruleNumbers]string
	for i := range x {
		x[i] = s.float(numbers[i])
	}
	groups := groupsFor(n)
	if four {
		groups = groupsFor(n / 4)
	}
	return s.run(r, groups, func() string {
		var b strings.Builder
		b.WriteString("fn larger(a: f32, b: f32) -> f32 { return select(b, a, a > b || plait_isnan_f32(a)); }\n")
		// update writes the update of one element, given what each operand's is called.
		update := func(value func(name string) string) {
			weight := len(from) - 1 // the master copy, where there is one
			if !master {
				weight = 0
			}
			fmt.Fprintf(&b, "    {\n      var w = %s;\n", value(names[weight]))
			fmt.Fprintf(&b, "      let g = %s * %s + %s * w;\n      w = w * %s;\n", x[0], value("g"), x[1], x[2])
			for k := range states {
				fmt.Fprintf(&b, "      var %s = %s;\n", names[1+k], value(names[1+k]))
			}
			for k := 3; k < ruleNumbers; k++ {
				if strings.Contains(rules[rule], "x"+itoa(k)) {
					fmt.Fprintf(&b, "      let x%d = %s;\n", k, x[k])
				}
			}
			fmt.Fprintf(&b, "      var v = 0.0;\n      %s\n", rules[rule])
			for k := range states {
				fmt.Fprintf(&b, "      %s = %s;\n", value(names[1+k]), names[1+k])
			}
			fmt.Fprintf(&b, "      %s = v;\n", value("p"))
			if master {
				fmt.Fprintf(&b, "      %s = v;\n", value("m"))
			}
			b.WriteString("    }\n")
		}
		fmt.Fprintf(&b, entry, threads)
		fmt.Fprintf(&b, "  let i = group * %du + li;\n", threads)
		operands := append([]string{"g"}, names...)
		firsts := append([]string{g}, from...)
		if four {
			fmt.Fprintf(&b, "  if (i * 4u >= %s) { return; }\n", count)
			for k, n := range operands {
				fmt.Fprintf(&b, "    var four_%s = mem_%s[(%s >> 2u) + i];\n", n, n, firsts[k])
			}
			for k := range 4 {
				update(func(name string) string { return fmt.Sprintf("four_%s.%c", name, "xyzw"[k]) })
			}
			for k, n := range operands[1:] {
				fmt.Fprintf(&b, "    mem_%s[(%s >> 2u) + i] = four_%s;\n", n, firsts[1+k], n)
			}
		} else {
			fmt.Fprintf(&b, "  if (i >= %s) { return; }\n", count)
			for k, n := range operands {
				fmt.Fprintf(&b, "    var one_%s = ld_mem_%s(%s + i);\n", n, n, firsts[k])
			}
			update(func(name string) string { return "one_" + name })
			for k, n := range operands[1:] {
				fmt.Fprintf(&b, "    st_mem_%s(%s + i, one_%s);\n", n, firsts[1+k], n)
			}
		}
		b.WriteString("}\n")
		return b.String()
	})
}

// flatten returns an operand as one dimension.
func flatten(o *core.Operand) core.Operand {
	f := *o
	f.Shape, f.Strides = []int{o.Numel()}, []int{1}
	return f
}

// normCall writes the p-norm of everything in Ins, or its p-th power, to the 0-d Outs[0]. Floats: p; Ints: 1 for the root.
func normCall(r *recorder, c *core.Call) error {
	p := c.Floats[0]
	name := "norm"
	switch {
	case p == 2:
		name = "sum_of_squares"
	case p == 1:
		name = "norm1"
	case p == 0:
		name = "norm0"
	case math.IsInf(p, 1):
		name = "normmax"
	case math.IsInf(p, -1):
		name = "normmin"
	}
	f, _ := foldOf(name, true, p)
	if name == "norm" {
		f.result = []string{"a.f0"}
	}
	parts, err := r.temp(4 * max(len(c.Ins), 1))
	if err != nil {
		return err
	}
	for i := range c.Ins {
		in := flatten(&c.Ins[i])
		part := core.Operand{Memory: parts, Offset: i, DType: core.Float32}
		if err := f.run(r, "optim_"+name, &in, []*core.Operand{&part}, []int64{0}, p); err != nil {
			return err
		}
	}
	join, finish := "a + v", "a"
	start := "0.0"
	switch {
	case math.IsInf(p, 1):
		join = "select(a, v, v > a || plait_isnan_f32(v))"
	case math.IsInf(p, -1):
		join, start = "select(a, v, v < a || plait_isnan_f32(v))", infinity
	case c.Ints[0] != 0 && p == 2:
		finish = "sqrt(a)"
	case c.Ints[0] != 0 && p != 0:
		finish = "plait_pow_f32(a, 1.0 / power)"
	}
	s := newShader(r, "optim_norm "+join+finish)
	from, to, n, power := s.floatsOf("parts", parts), s.out("y", &c.Outs[0], expr.F32, expr.Number), s.uint(len(c.Ins)), s.float(p)
	return s.run(r, 1, func() string {
		return `@compute @workgroup_size(1) fn main() {
  let power = ` + power + `;
  var a = ` + start + `;
  for (var j = 0u; j < ` + n + `; j++) { let v = parts[` + from + ` + j]; a = ` + join + `; }
  st_y(` + to + `, ` + finish + `);
}
`
	})
}

// scaleCall multiplies everything in Outs by the number Ins[0], or by what makes a norm of Ins[0] at most Floats[0].
func scaleCall(r *recorder, c *core.Call, clip bool) error {
	limit := 0.0
	if clip {
		limit = c.Floats[0]
	}
	for i := range c.Outs {
		o := &c.Outs[i]
		s := newShader(r, "optim_scale")
		y, n, most := s.both("y", o, expr.F32), s.uint(o.Numel()), s.float(limit)
		factor := ""
		if s.flag(c.Ins[0].IsNumber) {
			factor = s.float(c.Ins[0].Number.Float)
		} else {
			factor = "ld_factor(" + s.in("factor", &c.Ins[0], expr.F32, expr.Number) + ")"
		}
		s.flag(clip)
		if o.Numel() == 0 {
			continue
		}
		err := s.run(r, groupsFor(o.Numel()), func() string {
			if clip {
				return each(n, "  let factor = "+most+" / ("+factor+" + 1e-6);\n  if (factor < 1.0 || plait_isnan_f32(factor)) { st_y("+y+" + i, ld_y("+y+" + i) * factor); }\n")
			}
			return each(n, "  st_y("+y+" + i, ld_y("+y+" + i) * "+factor+");\n")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unscaleCall multiplies everything in Outs but the last by Floats[0], and writes to the last, a 0-d float32, 1 if an element
// was not finite, else 0.
func unscaleCall(r *recorder, c *core.Call) error {
	last := len(c.Outs) - 1
	parts, err := r.temp(4 * max(last, 1))
	if err != nil {
		return err
	}
	f, _ := foldOf("normmax", true, math.Inf(1)) // infinity and NaN are what remains of a tensor that has one
	n := 0
	for i := range c.Outs[:last] {
		if c.Outs[i].Numel() == 0 {
			continue
		}
		in := flatten(&c.Outs[i])
		part := core.Operand{Memory: parts, Offset: n, DType: core.Float32}
		if err := f.run(r, "optim_normmax", &in, []*core.Operand{&part}, []int64{0}, math.Inf(1)); err != nil {
			return err
		}
		n++
	}
	s := newShader(r, "optim_unscale")
	from, to, count := s.floatsOf("parts", parts), s.out("y", &c.Outs[last], expr.F32, expr.Number), s.uint(n)
	err = s.run(r, 1, func() string {
		return `@compute @workgroup_size(1) fn main() {
  var found = 0.0;
  for (var j = 0u; j < ` + count + `; j++) {
    let v = parts[` + from + ` + j];
    if (plait_isinf_f32(v) || plait_isnan_f32(v)) { found = 1.0; }
  }
  st_y(` + to + `, found);
}
`
	})
	if err != nil {
		return err
	}
	scaled := *c
	scaled.Outs, scaled.Ins = c.Outs[:last], []core.Operand{{IsNumber: true, Number: core.FloatNumber(c.Floats[0])}}
	return scaleCall(r, &scaled, false)
}

// clampCall clamps everything in Outs to plus and minus Floats[0].
func clampCall(r *recorder, c *core.Call) error {
	for i := range c.Outs {
		o := &c.Outs[i]
		s := newShader(r, "optim_clamp")
		y, n, most := s.both("y", o, expr.F32), s.uint(o.Numel()), s.float(c.Floats[0])
		if o.Numel() == 0 {
			continue
		}
		err := s.run(r, groupsFor(o.Numel()), func() string {
			return each(n, "  let v = ld_y("+y+" + i);\n  let m = "+most+";\n  st_y("+y+" + i, select(select(v, m, v > m), -m, v < -m));\n")
		})
		if err != nil {
			return err
		}
	}
	return nil
}
