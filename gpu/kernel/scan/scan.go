// Package scan has the GPU kernels of cumulative sums, products, maxima and minima.
package scan

import (
	"fmt"
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

// scanWidth is the number of elements that a workgroup scans at a time.
const scanWidth = 256

// A scan is a running combination along lines. It has the fields of a state, the state of the element v at position j, the combination of
// two states, where a comes before b, and the results of the combined state a.
type scan struct {
	fields, element, join, result []string
	beforeJoin                    string // statements before join
}

// Of returns the scan of a kernel by its name, for float or integer elements.
func Of(name string, float bool) (scan, bool) {
	combine := map[string]contract.ScatterMode{"cumsum": contract.ScatterAdd, "cumprod": contract.ScatterMul}
	if mode, ok := combine[name]; ok {
		if float {
			return scan{fields: []string{shader.Real}, element: []string{"v"}, join: []string{shader.Combine(mode, expr.F32, "a.f0", "b.f0")}, result: []string{"a.f0"}}, true
		}
		return scan{fields: []string{shader.Pair}, element: []string{"v"}, join: []string{shader.Combine(mode, expr.I64, "a.f0", "b.f0")}, result: []string{"a.f0"}}, true
	}
	if name == "logcumsumexp" {
		return scan{
			fields: []string{shader.Real}, element: []string{"v"},
			beforeJoin: "let m = plait_max_f32(a.f0, b.f0); let l = plait_min_f32(a.f0, b.f0);",
			join:       []string{"select(m + plait_log1p_f32(plait_exp_f32(l - m)), m, plait_isinf_f32(m))"},
			result:     []string{"a.f0"},
		}, float
	}
	// Of equal elements the last counts. NaN replaces every number and is kept.
	test := map[string]string{"cummax": "b.f0 >= a.f0", "cummin": "b.f0 <= a.f0"}[name]
	typ := shader.Real
	if float {
		test = "plait_isnan_f32(b.f0) || (!plait_isnan_f32(a.f0) && " + test + ")"
	} else {
		typ = shader.Pair
		test = map[string]string{"cummax": "plait_ge_i64(b.f0, a.f0)", "cummin": "plait_le_i64(b.f0, a.f0)"}[name]
	}
	return scan{
		fields: []string{typ, "u32"}, element: []string{"v", "j"}, beforeJoin: "let t = " + test + ";",
		join: []string{"select(a.f0, b.f0, t)", "select(a.f1, b.f1, t)"}, result: []string{"a.f0", "pair(a.f1, 0u)"},
	}, true
}

// Lines returns the loop over all dimensions of the operands but dim. They have one shape.
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

// StepOf returns the size of a dimension and an operand's stride along it. A 0-d tensor counts as one element.
func StepOf(o *core.Operand, dim int) (size, stride int) {
	if len(o.Shape) == 0 {
		return 1, 0
	}
	return o.Shape[dim], o.Strides[dim]
}

// scanCall: Outs[0] = the running combination of Ins[0] along dimension Ints[0], from the end if Ints[1] is set; Outs[1], if present, = the
// positions of maxima or minima.
func scanCall(r *shader.Recorder, c *core.Call, name string) error {
	in := &c.Ins[0]
	f, ok := Of(name, in.DType.IsFloat())
	if !ok {
		return core.Errorf(core.DTypeError, c.Op, "not defined for %v", in.DType)
	}
	t, a := shader.ComputeType(in.DType), contract.ScanOf(c)
	operands := []*core.Operand{in}
	for i := range c.Outs {
		operands = append(operands, &c.Outs[i])
	}
	s := shader.New(r, name)
	starts := []string{s.In("x", in, t, expr.Number), s.Out("y", &c.Outs[0], t, expr.Number)}
	if s.Flag(len(c.Outs) > 1) {
		starts = append(starts, s.Out("index", &c.Outs[1], expr.I64, expr.Number))
	}
	reverse := s.Flag(a.Reverse)
	return f.Run(r, s, a.Dim, operands, starts, reverse, "ld_x(at_0 + k * step_0)")
}

// Run scans lines. A workgroup scans a line, scanWidth elements at a time. read is the expression for the element.
func (f *scan) Run(r *shader.Recorder, s *shader.Builder, dim int, operands []*core.Operand, starts []string, reverse bool, read string) error {
	l := Lines(dim, operands...)
	n, _ := StepOf(operands[0], dim)
	if l.Count == 0 || n == 0 {
		return nil
	}
	rows, size := s.Uint(l.Count), s.Uint(n)
	steps := make([]string, len(operands))
	for i, o := range operands {
		_, stride := StepOf(o, dim)
		steps[i] = s.Uint(stride)
	}
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	return s.Run(r, l.Count, func(w *shader.Text) {
		var fields []string
		for i, t := range f.fields {
			fields = append(fields, fmt.Sprintf("f%d: %s", i, t))
			w.Shared(fmt.Sprintf("shared_%d", i), t, scanWidth)
		}
		w.Struct("state", fields...)
		w.Func("join(a: state, b: state) -> state", "%s return state(%s);", f.beforeJoin, strings.Join(f.join, ", "))
		var load, place []string
		for i := range f.fields {
			load = append(load, fmt.Sprintf("shared_%d[back]", i))
			place = append(place, fmt.Sprintf("shared_%d[li] = a.f%d;", i, i))
		}
		k := "j"
		if reverse {
			k = "(" + size + " - 1u - j)"
		}
		w.EachGroup(scanWidth, rows)
		w.Put(shader.WalkAs("at_", "group", rank, len(operands), at, starts))
		for i, step := range steps {
			w.Add("  let step_%d = %s;", i, step)
		}
		w.Add("  var carry: state;")
		w.Add(`  for (var tile = 0u; tile < %s; tile += %du) {
    let j = tile + li;
    let k = select(0u, %s, j < %s);`, size, scanWidth, k, size)
		w.Add(`    let v = %s;
    var a = state(%s);
    if (li == 0u && tile > 0u) { a = join(carry, a); }`, read, strings.Join(f.element, ", "))
		w.Add("    %s", strings.Join(place, " "))
		w.Barrier()
		for step := 1; step < scanWidth; step *= 2 {
			w.Add("    if (li >= %du) { let back = li - %du; a = join(state(%s), a); }", step, step, strings.Join(load, ", "))
			w.Barrier()
			w.Add("    %s", strings.Join(place, " "))
			w.Barrier()
		}
		w.Add("    { let back = %du; carry = state(%s); }", scanWidth-1, strings.Join(load, ", "))
		w.Barrier()
		w.Add("    if (j < %s) {", size)
		for i, name := range []string{"y", "index"}[:len(f.result)] {
			out := len(operands) - len(f.result) + i
			w.Add("      st_%s(at_%d + k * step_%d, %s);", name, out, out, f.result[i])
		}
		w.Add(`    }
  }`)
	})
}

// linearScanCall: y[j] = factor[j] y[j-1] + term[j] along dimension Ints[0], for factor Ins[0] and term Ins[1]; from the end if Ints[1] is
// set: y[j] = factor[j+1] y[j+1] + term[j]. The state of a range of elements is the linear map from y before the range to y at its end.
func linearScanCall(r *shader.Recorder, c *core.Call) error {
	f := scan{
		fields: []string{shader.Real, shader.Real}, element: []string{"v", "ld_t(at_1 + k * step_1)"},
		join: []string{"a.f0 * b.f0", "b.f0 * a.f1 + b.f1"}, result: []string{"a.f1"},
	}
	s := shader.New(r, "linear_scan")
	starts := []string{
		s.In("x", &c.Ins[0], expr.F32, expr.Number), s.In("t", &c.Ins[1], expr.F32, expr.Number), s.Out("y", &c.Outs[0], expr.F32, expr.Number),
	}
	a := contract.ScanOf(c)
	n, _ := StepOf(&c.Ins[0], a.Dim)
	last := s.Uint(n - 1)
	read := "ld_x(at_0 + k * step_0)"
	reverse := s.Flag(a.Reverse)
	if reverse {
		read = "ld_x(at_0 + min(k + 1u, " + last + ") * step_0)"
	}
	return f.Run(r, s, a.Dim, []*core.Operand{&c.Ins[0], &c.Ins[1], &c.Outs[0]}, starts, reverse, read)
}
