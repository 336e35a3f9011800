// Package scan computes cumulative sums, products and extremes.
package scan

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	for _, k := range []core.KernelID{contract.CumSum, contract.CumProd, contract.CumMax, contract.CumMin, contract.LogCumSumExp} {
		name := k.String()
		kernel.Register(k, func(r *shader.Recorder, c *core.Call) error { return scanCall(r, c, name) })
	}
	kernel.Register(contract.LinearScan, linearScanCall)
}

// scanWidth is how many elements a workgroup scans together.
const scanWidth = 256

// A scan is a running combination along lines: the fields of its state, of an element at position j, and joined, for a
// before b. The results are those of the state at each place.
type scan struct {
	fields, element, join, result []string
	before                        string // statements before the joined fields
}

// Of returns the scan of a kernel's name for elements of float or integer dtype.
func Of(name string, float bool) (scan, bool) {
	combine := map[string]int{"cumsum": shader.AddMode, "cumprod": shader.MulMode}
	if mode, ok := combine[name]; ok {
		if float {
			return scan{fields: []string{"f32"}, element: []string{"v"}, join: []string{shader.Combine(mode, expr.F32, "a.f0", "b.f0")}, result: []string{"a.f0"}}, true
		}
		return scan{fields: []string{"vec2<u32>"}, element: []string{"v"}, join: []string{shader.Combine(mode, expr.I64, "a.f0", "b.f0")}, result: []string{"a.f0"}}, true
	}
	if name == "logcumsumexp" {
		return scan{
			fields: []string{"f32"}, element: []string{"v"},
			before: "let m = plait_max_f32(a.f0, b.f0); let l = plait_min_f32(a.f0, b.f0);",
			join:   []string{"select(m + plait_log1p_f32(plait_exp_f32(l - m)), m, plait_isinf_f32(m))"},
			result: []string{"a.f0"},
		}, float
	}
	// The last of equal extremes; a NaN stays.
	test := map[string]string{"cummax": "b.f0 >= a.f0", "cummin": "b.f0 <= a.f0"}[name]
	typ := "f32"
	if float {
		test = "plait_isnan_f32(b.f0) || (!plait_isnan_f32(a.f0) && " + test + ")"
	} else {
		typ = "vec2<u32>"
		test = map[string]string{"cummax": "plait_ge_i64(b.f0, a.f0)", "cummin": "plait_le_i64(b.f0, a.f0)"}[name]
	}
	return scan{
		fields: []string{typ, "u32"}, element: []string{"v", "j"}, before: "let t = " + test + ";",
		join: []string{"select(a.f0, b.f0, t)", "select(a.f1, b.f1, t)"}, result: []string{"a.f0", "vec2<u32>(a.f1, 0u)"},
	}, true
}

// Lines returns the loop over what is left of the operands, of one shape, without dimension dim.
func Lines(dim int, operands ...*core.Operand) shader.Loop {
	l := shader.Loop{Count: 1, Strides: make([][]int, len(operands))}
	steps := make([]int, len(operands))
	for d, n := range operands[0].Shape {
		if d == dim {
			continue
		}
		for i, o := range operands {
			steps[i] = o.Strides[d]
		}
		l.Count *= n
		l.Push(n, steps...)
	}
	return l
}

// StepOf returns the size of a dimension and an operand's stride along it; a 0-d tensor has one element.
func StepOf(o *core.Operand, dim int) (size, stride int) {
	if len(o.Shape) == 0 {
		return 1, 0
	}
	return o.Shape[dim], o.Strides[dim]
}

// scanCall: Outs[0] = the running combination of Ins[0] along dimension Ints[0], from the end if Ints[1]; Outs[1], where it is
// given, the positions of extremes.
func scanCall(r *shader.Recorder, c *core.Call, name string) error {
	in := &c.Ins[0]
	f, ok := Of(name, in.DType.IsFloat())
	if !ok {
		return core.Errorf(core.DTypeError, c.Op, "not defined for %v", in.DType)
	}
	t := shader.ComputeType(in.DType)
	dim := int(c.Ints[0])
	operands := []*core.Operand{in}
	for i := range c.Outs {
		operands = append(operands, &c.Outs[i])
	}
	s := shader.New(r, name)
	starts := []string{s.In("x", in, t, expr.Number), s.Out("y", &c.Outs[0], t, expr.Number)}
	if s.Flag(len(c.Outs) > 1) {
		starts = append(starts, s.Out("index", &c.Outs[1], expr.I64, expr.Number))
	}
	reverse := s.Flag(len(c.Ints) > 1 && c.Ints[1] != 0)
	return f.Run(r, s, dim, operands, starts, reverse, "ld_x(at_0 + k * step_0)")
}

// Run scans lines, each by a workgroup, a piece after the other.
func (f *scan) Run(r *shader.Recorder, s *shader.Builder, dim int, operands []*core.Operand, starts []string, reverse bool, read string) error {
	l := Lines(dim, operands...)
	n, _ := StepOf(operands[0], dim)
	if l.Count == 0 || n == 0 {
		return nil
	}
	rows, size := s.Uint(l.Count), s.Uint(n)
	steps := ""
	for i, o := range operands {
		_, stride := StepOf(o, dim)
		steps += "  let step_" + strconv.Itoa(i) + " = " + s.Uint(stride) + ";\n"
	}
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	return s.Run(r, l.Count, func() string {
		var b strings.Builder
		b.WriteString("struct state {\n")
		for i, t := range f.fields {
			fmt.Fprintf(&b, "  f%d: %s,\n", i, t)
		}
		fmt.Fprintf(&b, "}\nfn join(a: state, b: state) -> state { %s return state(%s); }\n", f.before, strings.Join(f.join, ", "))
		for i, t := range f.fields {
			fmt.Fprintf(&b, "var<workgroup> shared_%d: array<%s, %d>;\n", i, t, scanWidth)
		}
		var load, place []string
		for i := range f.fields {
			load = append(load, fmt.Sprintf("shared_%d[back]", i))
			place = append(place, fmt.Sprintf("shared_%d[li] = a.f%d;", i, i))
		}
		k := "j"
		if reverse {
			k = "(" + size + " - 1u - j)"
		}
		fmt.Fprintf(&b, shader.Entry, scanWidth)
		fmt.Fprintf(&b, "  if (group >= %s) { return; }\n%s%s  var carry: state;\n", rows, shader.WalkAs("at_", "group", rank, len(operands), at, starts), steps)
		fmt.Fprintf(&b, "  for (var tile = 0u; tile < %s; tile += %du) {\n    let j = tile + li;\n    let k = select(0u, %s, j < %s);\n", size, scanWidth, k, size)
		fmt.Fprintf(&b, "    let v = %s;\n    var a = state(%s);\n    if (li == 0u && tile > 0u) { a = join(carry, a); }\n", read, strings.Join(f.element, ", "))
		fmt.Fprintf(&b, "    %s\n    workgroupBarrier();\n", strings.Join(place, " "))
		for step := 1; step < scanWidth; step *= 2 {
			fmt.Fprintf(&b, "    if (li >= %du) { let back = li - %du; a = join(state(%s), a); }\n    workgroupBarrier();\n    %s\n    workgroupBarrier();\n",
				step, step, strings.Join(load, ", "), strings.Join(place, " "))
		}
		fmt.Fprintf(&b, "    { let back = %du; carry = state(%s); }\n    workgroupBarrier();\n", scanWidth-1, strings.Join(load, ", "))
		fmt.Fprintf(&b, "    if (j < %s) {\n", size)
		for i, name := range []string{"y", "index"}[:len(f.result)] {
			out := len(operands) - len(f.result) + i
			fmt.Fprintf(&b, "      st_%s(at_%d + k * step_%d, %s);\n", name, out, out, f.result[i])
		}
		b.WriteString("    }\n  }\n}\n")
		return b.String()
	})
}

// linearScanCall: y[j] = factor[j] y[j-1] + term[j] along dimension Ints[0], of Ins[0] and Ins[1]; or, from the end if Ints[1],
// y[j] = factor[j+1] y[j+1] + term[j].
// The state is the map from what is before a piece to its last value.
func linearScanCall(r *shader.Recorder, c *core.Call) error {
	f := scan{
		fields: []string{"f32", "f32"}, element: []string{"v", "ld_t(at_1 + k * step_1)"},
		join: []string{"a.f0 * b.f0", "b.f0 * a.f1 + b.f1"}, result: []string{"a.f1"},
	}
	s := shader.New(r, "linear_scan")
	starts := []string{
		s.In("x", &c.Ins[0], expr.F32, expr.Number), s.In("t", &c.Ins[1], expr.F32, expr.Number), s.Out("y", &c.Outs[0], expr.F32, expr.Number),
	}
	n, _ := StepOf(&c.Ins[0], int(c.Ints[0]))
	last := s.Uint(n - 1)
	read := "ld_x(at_0 + k * step_0)"
	reverse := s.Flag(c.Ints[1] != 0)
	if reverse {
		read = "ld_x(at_0 + min(k + 1u, " + last + ") * step_0)"
	}
	return f.Run(r, s, int(c.Ints[0]), []*core.Operand{&c.Ins[0], &c.Ins[1], &c.Outs[0]}, starts, reverse, read)
}
