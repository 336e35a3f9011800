// Package padding has the GPU kernels of padding and its gradient.
package padding

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Pad, padCall)
	kernel.Register(contract.PadGrad, padGradCall)
}

// A padding is the padding of the last nd dimensions in one of the modes.
type padding struct {
	sizes [2][]int // sizes without and with the padding
	left  []int
	mode  contract.PadMode
}

func newPadding(c *core.Call, inside, outside []int) padding {
	a := contract.PadOf(c)
	nd := len(a.Left)
	p := padding{mode: a.Mode, left: make([]int, len(inside))}
	p.sizes[0], p.sizes[1] = inside, outside
	for i := range nd {
		p.left[len(inside)-nd+i] = int(a.Left[i])
	}
	return p
}

// merged returns the padding with its leading dimensions that are not padded as one.
func (p padding) merged() padding {
	n := 0
	for n < len(p.left) && p.left[n] == 0 && p.sizes[0][n] == p.sizes[1][n] {
		n++
	}
	if n < 2 {
		return p
	}
	count := core.Numel(p.sizes[0][:n])
	p.left = p.left[n-1:]
	for i, size := range p.sizes {
		p.sizes[i] = append([]int{count}, size[n:]...)
	}
	return p
}

// origin returns statements that set o to the input coordinate of output coordinate q along a dimension. They set ok to false if there is
// none.
func (p padding) origin(left, size string) string {
	text := fmt.Sprintf("  var o = i32(q) - i32(%s);\n", left)
	switch p.mode {
	case contract.PadConstant:
		return fmt.Sprintf("%s  if (o < 0 || o >= i32(%s)) { ok = false; o = 0; }\n", text, size)
	case contract.PadReflect:
		return fmt.Sprintf(`%s  o = abs(o);
  if (o >= i32(%s)) { o = 2 * (i32(%s) - 1) - o; }
`, text, size, size)
	case contract.PadReplicate:
		return fmt.Sprintf("%s  o = clamp(o, 0, i32(%s) - 1);\n", text, size)
	}
	// The padding is at most the size. Remainders of negative numbers are wrong on some drivers of Vulkan.
	return fmt.Sprintf("%s  o = i32((q + %s - %s) %% %s);\n", text, size, left, size)
}

func padCall(r *shader.Recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	p := newPadding(c, in.Shape, out.Shape).merged()
	from, to := p.sizes[0], p.sizes[1]
	s := shader.New(r, "pad")
	t := shader.ComputeType(in.DType)
	x, y, count := s.In("x", in, t, expr.Number), s.Out("y", out, t, expr.Number), s.Uint(out.Numel())
	fill := ""
	if t == expr.F32 {
		fill = s.Float(c.Ins[1].Number.Float)
	} else {
		fill = s.Long(c.Ins[1].Number.Int)
	}
	s.Specialize(int(p.mode))
	s.Specialize(len(from))
	var left, inside, outside []string
	for d := range from {
		left, inside, outside = append(left, s.Uint(int(uint32(int32(p.left[d]))))), append(inside, s.Uint(from[d])), append(outside, s.Uint(to[d]))
	}
	plain := s.Flag(len(from) > 1 && p.left[0] == 0 && from[0] == to[0]) // the first dimension is copied as it is
	if out.Numel() == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(out.Numel()), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  var ok = true;
  var rest = i;
  var at = 0u;
  var scale = 1u;`)
		for d := len(left) - 1; d >= 0; d-- {
			if d == 0 && plain {
				w.Add("  at = at + rest * scale;")
				continue
			}
			w.Add(`  {
  let up = rest / %[1]s;
  let q = rest - up * %[1]s;
  rest = up;`, outside[d])
			w.Put(p.origin(left[d], inside[d]))
			w.Add(`  at = at + u32(o) * scale;
  scale = scale * %s;
  }`, inside[d])
		}
		w.Add(`  var v = %s;
  if (ok) { v = ld_x(%s + at); }
  st_y(%s + i, v);`, fill, x, y)
	})
}

// padGradCall computes the gradient of padding one dimension after the other: an element's gradient along a dimension is the sum over all
// padded elements that are copies of it.
func padGradCall(r *shader.Recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	p := newPadding(c, out.Shape, in.Shape)
	nd := len(contract.PadOf(c).Left)
	from := *in
	for d := len(out.Shape) - nd; d < len(out.Shape); d++ {
		shape := append([]int{}, from.Shape...)
		shape[d] = out.Shape[d]
		to := out
		if d < len(out.Shape)-1 {
			m, err := r.Reals(max(core.Numel(shape), 1))
			if err != nil {
				return err
			}
			to = r.RealOperand(m, 0, shape...)
		}
		if err := p.fold(r, &from, to, d); err != nil {
			return err
		}
		from = *shader.F32Like(to, shape...)
	}
	return nil
}

// fold computes the gradient of padding dimension d.
func (p padding) fold(r *shader.Recorder, in, out *core.Operand, d int) error {
	s := shader.New(r, "pad_grad")
	x, y, count := s.In("x", in, expr.F32, expr.Number), s.Out("y", out, expr.F32, expr.Number), s.Uint(core.Numel(out.Shape))
	inside, outside, inner, left := s.Uint(out.Shape[d]), s.Uint(in.Shape[d]), s.Uint(core.Numel(out.Shape[d+1:])), s.Uint(int(uint32(int32(p.left[d]))))
	s.Specialize(int(p.mode))
	n := core.Numel(out.Shape)
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add(`  let column = i %% %s;
  let own = (i / %s) %% %s;
  let row = i / (%s * %s);
  var sum = 0.0;`, inner, inner, inside, inner, inside)
		w.Add(`  for (var q = 0u; q < %s; q++) {
  var ok = true;`, outside)
		w.Put(p.origin(left, inside))
		w.Add(`  if (ok && u32(o) == own) { sum = sum + ld_x(%s + (row * %s + q) * %s + column); }
  }
  st_y(%s + i, sum);`, x, outside, inner, y)
	})
}
