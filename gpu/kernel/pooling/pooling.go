// Package pooling has the GPU kernels of maximum and average pooling.
package pooling

import (
	"fmt"
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.MaxPool, maxPoolCall)
	kernel.Register(contract.AvgPool, averageCall)
	kernel.Register(contract.AvgPoolGrad, averageGradCall)
	kernel.Register(contract.PlaneGather, planeGatherCall)
	kernel.Register(contract.PlaneScatter, planeScatterCall)
}

// A pool is the geometry of a pooling operation.
type pool struct {
	primitive.Window
	planes, divisor      int
	adaptive, includePad bool
}

func newPool(a contract.PoolAttrs, large, small []int) *pool {
	nd := a.Spatial
	p := &pool{planes: core.Numel(large[:len(large)-nd]), adaptive: a.Adaptive, includePad: a.IncludePad, divisor: a.Divisor}
	if p.adaptive {
		ones, none := make([]int64, nd), make([]int64, nd)
		for i := range ones {
			ones[i] = 1
		}
		p.Window = primitive.NewWindow(large, small, ones, ones, none, ones)
		return p
	}
	p.Window = primitive.NewWindow(large, small, a.Kernel, a.Stride, a.Padding, a.Dilation)
	return p
}

// windowRange returns statements that define first_D and last_D, the range of the window of output o along each dimension, without last_D
// itself, and size, the divisor of an average.
func (p *pool) windowRange(t primitive.WindowText, divisor string) string {
	text := "  var size = 1u;\n"
	for d := range 3 {
		n := strconv.Itoa(d)
		if p.adaptive {
			text += fmt.Sprintf(`  let first_%[1]s = i32(o_%[1]s * %[2]s / %[3]s);
  let last_%[1]s = i32(((o_%[1]s + 1u) * %[2]s + %[3]s - 1u) / %[3]s);
  size = size * u32(last_%[1]s - first_%[1]s);
`, n, t.In[d], t.Out[d])
			continue
		}
		// first_D is the position of the first tap inside the input.
		text += fmt.Sprintf(`  let start_%[1]s = i32(o_%[1]s * %[2]s) - i32(%[3]s);
  let last_%[1]s = min(start_%[1]s + i32((%[4]s - 1u) * %[5]s) + 1, i32(%[6]s));
  let skip_%[1]s = max((-start_%[1]s + i32(%[5]s) - 1) / i32(%[5]s), 0);
  let first_%[1]s = start_%[1]s + skip_%[1]s * i32(%[5]s);
`, n, t.Stride[d], t.Padding[d], t.Kernel[d], t.Dilation[d], t.In[d])
		if p.includePad {
			text += fmt.Sprintf("  size = size * u32(max(min(start_%[1]s + i32(%[2]s), i32(%[3]s + %[4]s)) - start_%[1]s, 0));\n", n, t.Kernel[d], t.In[d], t.Padding[d])
		} else {
			text += fmt.Sprintf("  size = size * u32(max(last_%s - first_%s, 0));\n", n, n)
		}
	}
	if p.divisor != 0 {
		text += fmt.Sprintf("  size = %s;\n", divisor)
	}
	return text
}

// windowLoop returns a loop over the window's positions. at is the index in the plane.
func windowLoop(t primitive.WindowText, body string) string {
	text := ""
	for d := range 3 {
		n := strconv.Itoa(d)
		text += fmt.Sprintf("  for (var x_%[1]s = first_%[1]s; x_%[1]s < last_%[1]s; x_%[1]s += i32(%[2]s)) {\n", n, t.Dilation[d])
	}
	return fmt.Sprintf(`%s    let at = (u32(x_0) * %s + u32(x_1)) * %s + u32(x_2);
%s  }}}
`, text, t.In[1], t.In[2], body)
}

// wideLoop is windowLoop for the invocations of a workgroup together.
func wideLoop(t primitive.WindowText, width int, body string) string {
	text := ""
	for d := range 3 {
		text += fmt.Sprintf("  let n_%[1]d = u32(max(last_%[1]d - first_%[1]d + i32(%[2]s) - 1, 0)) / %[2]s;\n", d, t.Dilation[d])
	}
	return fmt.Sprintf(`%s  for (var e = li; e < n_0 * n_1 * n_2; e += %du) {
    let line = e / n_2;
    let sheet = line / n_1;
    let x_0 = u32(first_0) + sheet * %s;
    let x_1 = u32(first_1) + (line - sheet * n_1) * %s;
    let at = (x_0 * %s + x_1) * %s + u32(first_2) + (e - line * n_2) * %s;
%s  }
`, text, width, t.Dilation[0], t.Dilation[1], t.In[1], t.In[2], t.Dilation[2], body)
}

// mostElements returns how many elements a window has at most.
func (p *pool) mostElements() int {
	if !p.adaptive {
		return p.Taps()
	}
	n := 1
	for d := range 3 {
		n *= shader.Ceil(p.In[d], max(p.Out[d], 1))
	}
	return n
}

// wideWindow is the number of elements of a window from which a workgroup computes its result.
const wideWindow = 64

// outputLoop returns a loop over the outputs o whose windows may contain element e. They are a range along each dimension.
func (p *pool) outputLoop(t primitive.WindowText, body string) string {
	text := ""
	for d := range 3 {
		n := strconv.Itoa(d)
		if p.adaptive {
			text += fmt.Sprintf(`  let low_%[1]s = e_%[1]s * %[2]s / %[3]s;
  let high_%[1]s = min(((e_%[1]s + 1u) * %[2]s + %[3]s - 1u) / %[3]s, %[2]s);
`, n, t.Out[d], t.In[d])
			continue
		}
		reach := "i32((" + t.Kernel[d] + " - 1u) * " + t.Dilation[d] + ") + 1"
		text += fmt.Sprintf(`  let high_%[1]s = min((e_%[1]s + %[2]s) / %[3]s + 1u, %[4]s);
  let low_%[1]s = u32(max(i32(e_%[1]s + %[2]s) - (%[5]s) + i32(%[3]s), 0)) / %[3]s;
`, n, t.Padding[d], t.Stride[d], t.Out[d], reach)
	}
	for d := range 3 {
		n := strconv.Itoa(d)
		text += fmt.Sprintf("  for (var o_%[1]s = low_%[1]s; o_%[1]s < high_%[1]s; o_%[1]s++) {\n", n)
	}
	return fmt.Sprintf("%s%s  }}}\n", text, body)
}

func planeIndex(size int) func(c *core.Call, at uint32) error {
	return func(c *core.Call, at uint32) error {
		return core.Errorf(core.IndexError, c.Op, "the index at position %d is out of range for planes of %d elements", at, size)
	}
}

func planeGatherCall(r *shader.Recorder, c *core.Call) error {
	in, index, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	nd := contract.PlaneSpatial(c)
	size, here := core.Numel(in.Shape[len(in.Shape)-nd:]), core.Numel(index.Shape[len(index.Shape)-nd:])
	s := shader.New(r, "plane_gather")
	t := shader.ComputeType(in.DType)
	x, k, y := s.In("x", in, t, expr.Number), s.In("index", index, expr.I64, expr.Number), s.Out("y", out, t, expr.Number)
	n, sizeWord, hereWord := s.Uint(out.Numel()), s.Uint(size), s.Uint(here)
	fault := s.Faults(r, c, planeIndex(size))
	if out.Numel() == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(out.Numel()), func(w *shader.Text) {
		w.Each(n)
		w.Add("  var ok = true;")
		w.Put(shader.CheckIndex("k", "ld_index("+k+" + i)", sizeWord, false))
		w.Add(`  if (!ok) { %s }
  st_y(%s + i, ld_x(%s + (i / %s) * %s + k));`, fault("i"), y, x, hereWord, sizeWord)
	})
}

// planeScatterCall scatters elements within planes. Of the elements with the same destination, the first adds all of them in order; without
// addition, the last is written.
func planeScatterCall(r *shader.Recorder, c *core.Call) error {
	if a, ok := contract.PlaneScatterPool(c); ok {
		return maxPoolGradient(r, c, a)
	}
	in, index, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	zero := core.Call{Op: c.Op, Outs: []core.Operand{*out}, Ins: []core.Operand{{IsNumber: true}}}
	if err := copying.Copy(r, &zero); err != nil {
		return err
	}
	nd, add := contract.PlaneScatterOf(c).Spatial, contract.PlaneScatterOf(c).Add
	size, here := core.Numel(out.Shape[len(out.Shape)-nd:]), core.Numel(index.Shape[len(index.Shape)-nd:])
	s := shader.New(r, "plane_scatter")
	t := shader.ComputeType(in.DType)
	x, k, y := s.In("x", in, t, expr.Number), s.In("index", index, expr.I64, expr.Number), s.Out("y", out, t, expr.Number)
	n, sizeWord, hereWord := s.Uint(in.Numel()), s.Uint(size), s.Uint(here)
	fault := s.Faults(r, c, planeIndex(size))
	s.Flag(add)
	if in.Numel() == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(in.Numel()), func(w *shader.Text) {
		w.Each(n)
		w.Add("  var ok = true;")
		w.Put(shader.CheckIndex("k", "ld_index("+k+" + i)", sizeWord, false))
		w.Add(`  if (!ok) { %s return; }
  let plane = i / %s;
  let begin = plane * %s;
  let end = begin + %s;`, fault("i"), hereWord, hereWord, hereWord)
		same := "ld_index(" + k + " + j).x == k"
		to := "  st_y(" + y + " + plane * " + sizeWord + " + k, "
		if !add {
			w.Add(`  for (var j = i + 1u; j < end; j++) { if (%s) { return; } }
%sld_x(%s + i));`, same, to, x)
			return
		}
		sum := "0.0"
		if t == expr.I64 {
			sum = "pair(0u, 0u)"
		}
		w.Add(`  for (var j = begin; j < i; j++) { if (%s) { return; } }
  var sum = %s;
  for (var j = i; j < end; j++) { if (%s) { sum = %s; } }
%ssum);`, same, sum, same, shader.Combine(contract.ScatterAdd, t, "sum", "ld_x("+x+" + j)"), to)
	})
}
