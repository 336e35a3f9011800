package optim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.OptimStep, stepCall) }

// rules has the update rule of each optimiser. w is the parameter after decoupled weight decay, g the gradient after sign and coupled
// decay. a, b and c are the states, x3 and up the numbers from the third on: see core/cpu/kernel/optim/c/rules.h. A rule sets v, the new
// parameter.
var rules = [...]string{
	contract.OptimSGD:                     "v = w - x3 * g;",
	contract.OptimMomentum:                "a = x4 * a + x5 * g; v = w - x3 * (x6 * g + x7 * a);",
	contract.OptimAdam:                    "a = a + x4 * (g - a); b = x5 * b + x6 * g * g; v = w - x3 * a / (sqrt(b) / x7 + x8);",
	contract.OptimAMSGrad:                 "a = a + x4 * (g - a); b = x5 * b + x6 * g * g; c = larger(c, b); v = w - x3 * a / (sqrt(c) / x7 + x8);",
	contract.OptimAdamax:                  "a = a + x4 * (g - a); b = larger(x5 * b, abs(g) + x6); v = w - x3 * a / b;",
	contract.OptimNAdam:                   "a = a + x4 * (g - a); b = x5 * b + x6 * g * g; v = w - (x3 * g + x9 * a) / (sqrt(b / x7) + x8);",
	contract.OptimRAdam:                   "a = a + x4 * (g - a); b = x5 * b + x6 * g * g; v = w - x3 * a * (select(0.0, 1.0, x7 == 0.0) + x7 / (sqrt(b) + x8));",
	contract.OptimAdagrad:                 "a = a + g * g; v = w - x3 * g / (sqrt(a) + x4);",
	contract.OptimAdadelta:                "a = x4 * a + x5 * g * g; let step = sqrt(b + x6) / sqrt(a + x6) * g; b = x4 * b + x5 * step * step; v = w - x3 * step;",
	contract.OptimRMSprop:                 "a = x4 * a + x5 * g * g; v = w - x3 * g / (sqrt(a) + x6);",
	contract.OptimRMSpropMomentum:         "a = x4 * a + x5 * g * g; b = x7 * b + g / (sqrt(a) + x6); v = w - x3 * b;",
	contract.OptimRMSpropCentered:         "a = x4 * a + x5 * g * g; b = b + x5 * (g - b); v = w - x3 * g / (sqrt(larger(a - b * b, 0.0)) + x6);",
	contract.OptimRMSpropCenteredMomentum: "a = x4 * a + x5 * g * g; b = b + x5 * (g - b); c = x7 * c + g / (sqrt(larger(a - b * b, 0.0)) + x6); v = w - x3 * c;",
	contract.OptimRprop: "let turn = g * a; let factor = select(select(1.0, x3, turn < 0.0), x4, turn > 0.0); b = b * factor; " +
		"b = select(select(b, x6, b > x6), x5, b < x5); a = select(g, 0.0, turn < 0.0); v = w - select(select(a, -b, a < 0.0), b, a > 0.0);",
	contract.OptimLion: "let u = a + x4 * (g - a); a = a + x5 * (g - a); v = w - select(select(u, -x3, u < 0.0), x3, u > 0.0);",
	contract.OptimASGD: "v = w - x3 * g; a = select(a + x4 * (v - a), v, x4 == 1.0);",
}

func stepCall(r *shader.Recorder, c *core.Call) error {
	var open []*stepGroup // groups that still have room for parameters
	at := 0
	for i := range c.Ins {
		a := contract.OptimStepOf(c, i)
		u := parameterStep{grad: &c.Ins[i], rule: int(a.Rule), states: a.States, numbers: a.Numbers}
		n := 1 + u.states
		if a.Master {
			n++
		}
		u.outs = c.Outs[at : at+n]
		at += n
		if u.grad.Numel() == 0 {
			continue
		}
		if !u.vec4s() {
			if err := u.updateScalar(r); err != nil {
				return err
			}
			continue
		}
		key := u.key()
		g := slices.IndexFunc(open, func(g *stepGroup) bool { return g.key == key })
		if g < 0 {
			g = len(open)
			open = append(open, &stepGroup{key: key})
		}
		open[g].steps = append(open[g].steps, u)
		if len(open[g].steps) < u.maxGroup(r) {
			continue
		}
		if err := open[g].run(r); err != nil {
			return err
		}
		open = slices.Delete(open, g, g+1)
	}
	for _, g := range open {
		if err := g.run(r); err != nil {
			return err
		}
	}
	return nil
}

// A parameterStep is the update of one parameter.
type parameterStep struct {
	grad         *core.Operand
	outs         []core.Operand // the parameter, its states and its float32 master copy
	rule, states int
	numbers      [contract.OptimNumbers]float64
}

// A stepKey is what all parameters that one dispatch updates have in common.
type stepKey struct {
	rule, states, outs int
	slabs              [6]uint16 // slabs of the gradient and of outs
	dtypes             [6]core.DType
	numbers            [contract.OptimNumbers]float64
}

// A stepGroup is a group of parameters that one dispatch updates.
type stepGroup struct {
	key   stepKey
	steps []parameterStep
}

func (u *parameterStep) key() stepKey {
	k := stepKey{rule: u.rule, states: u.states, outs: len(u.outs), numbers: u.numbers}
	k.slabs[0], k.dtypes[0] = uint16(shader.Slab(u.grad.Memory)), u.grad.DType
	for i := range u.outs {
		k.slabs[1+i], k.dtypes[1+i] = uint16(shader.Slab(u.outs[i].Memory)), u.outs[i].DType
	}
	return k
}

// maxGroup returns how many parameters a dispatch can update: their sizes and offsets are parameters of the program.
func (u *parameterStep) maxGroup(r *shader.Recorder) int {
	operands := 1 + len(u.outs)
	return ((shader.MaxParamBytes-contract.OptimNumbers*r.RealType().Size())/4 - operands - 1) / (2 + operands)
}

// vec4s reports whether all operands can be accessed as vec4.
func (u *parameterStep) vec4s() bool {
	vec4 := u.grad.Numel()%4 == 0 && shader.Vec4(u.grad)
	for i := range u.outs {
		vec4 = vec4 && shader.Vec4(&u.outs[i])
	}
	return vec4
}

// names returns the names of outs in programs.
func (u *parameterStep) names() []string {
	names := []string{"p", "a", "b", "c"}[:1+u.states]
	if len(u.outs) > len(names) {
		names = append(slices.Clone(names), "m")
	}
	return names
}

// shader begins a program and binds its operands. It returns expressions for the indices of their first elements, the gradient's first, and
// for the numbers.
func (u *parameterStep) shader(r *shader.Recorder, vec4 bool) (s *shader.Builder, first, numbers []string) {
	s = shader.New(r, "optim_step")
	s.Specialize(u.rule)
	s.Specialize(u.states)
	s.Flag(len(u.outs) > 1+u.states)
	s.Flag(vec4)
	first = append(first, s.In("mem_g", u.grad, expr.F32, expr.Number))
	for i, name := range u.names() {
		first = append(first, s.InOut("mem_"+name, &u.outs[i], expr.F32))
	}
	for i := range s.Bindings {
		s.Bindings[i].Vec4 = vec4
	}
	for _, v := range u.numbers {
		numbers = append(numbers, s.Float(v))
	}
	return s, first, numbers
}

// larger declares larger(a, b), which rules call. It returns a if that is NaN.
func larger(w *shader.Text) {
	w.Func("larger(a: real, b: real) -> real", "return select(b, a, a > b || plait_isnan_f32(a));")
}

// update writes the update of one element. value returns the expression for the element of the operand with a given name.
func (u *parameterStep) update(w *shader.Text, x []string, value func(name string) string) {
	names := u.names()
	weight := names[0]
	master := names[len(names)-1] == "m"
	if master {
		weight = "m"
	}
	w.Add(`    {
      var w = %s;`, value(weight))
	w.Add(`      let g = %s * %s + %s * w;
      w = w * %s;`, x[0], value("g"), x[1], x[2])
	for _, n := range names[1 : 1+u.states] {
		w.Add("      var %s = %s;", n, value(n))
	}
	for k := 3; k < contract.OptimNumbers; k++ {
		if strings.Contains(rules[u.rule], "x"+strconv.Itoa(k)) {
			w.Add("      let x%d = %s;", k, x[k])
		}
	}
	w.Add(`      var v = 0.0;
      %s`, rules[u.rule])
	for _, n := range names[1 : 1+u.states] {
		w.Add("      %s = %s;", value(n), n)
	}
	w.Add("      %s = v;", value("p"))
	if master {
		w.Add("      %s = v;", value("m"))
	}
	w.Add("    }")
}

// updateScalar updates a parameter element by element.
func (u *parameterStep) updateScalar(r *shader.Recorder) error {
	s, first, numbers := u.shader(r, false)
	n := u.grad.Numel()
	count := s.Uint(n)
	err := s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		operands := append([]string{"g"}, u.names()...)
		larger(w)
		w.Each(count)
		for k, n := range operands {
			w.Add("    var one_%s = ld_mem_%s(%s + i);", n, n, first[k])
		}
		u.update(w, numbers, func(name string) string { return "one_" + name })
		for k, n := range operands[1:] {
			w.Add("    st_mem_%s(%s + i, one_%s);", n, first[1+k], n)
		}
	})
	r.Feed() // an idle GPU starts before all steps are recorded
	return err
}

// run updates the parameters of a group as vec4. The program's parameters hold a table with an entry for each: the number of the workgroup
// after its last, its number of vec4, and the offsets of its operands.
func (g *stepGroup) run(r *shader.Recorder) error {
	u := &g.steps[0]
	s, _, numbers := u.shader(r, true)
	count := s.Uint(len(g.steps))
	table, groups := len(s.Words), 0
	for i := range g.steps {
		t := &g.steps[i]
		vec4s := t.grad.Numel() / 4
		groups += shader.GroupsFor(vec4s)
		s.Uint(groups)
		s.Uint(vec4s)
		s.Uint(int(shader.Base(t.grad)) / 4)
		for k := range t.outs {
			s.Uint(int(shader.Base(&t.outs[k])) / 4)
		}
	}
	err := s.Run(r, groups, func(w *shader.Text) {
		operands := append([]string{"g"}, u.names()...)
		larger(w)
		w.Func("word(i: u32) -> u32", "return p[i >> 2u][i & 3u];")
		w.Main(shader.Threads)
		w.Add(`  var row = %du;
  var before = 0u;
  for (var t = 1u; t < %s && group >= word(row); t++) {
    before = word(row);
    row += %du;
  }`, table, count, 2+len(operands))
		w.Add(`  let i = (group - before) * %du + li;
  if (group >= word(row) || i >= word(row + 1u)) { return; }`, shader.Threads)
		for k, n := range operands {
			w.Add(`    let at_%s = word(row + %du) + i;
    var four_%s = ld4_mem_%s(at_%s);`, n, 2+k, n, n, n)
		}
		for k := range 4 {
			u.update(w, numbers, func(name string) string { return fmt.Sprintf("four_%s.%s", name, shader.Component(k)) })
		}
		for _, n := range operands[1:] {
			w.Add("    st4_mem_%s(at_%s, four_%s);", n, n, n)
		}
	})
	r.Feed()
	return err
}
