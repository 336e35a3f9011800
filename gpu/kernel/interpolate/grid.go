package interpolate

import (
	"fmt"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() { kernel.Register(contract.GridSample, gridCall) }

// gridCall: an invocation computes an element, from the neighbours of its place.
func gridCall(r *shader.Recorder, c *core.Call) error {
	x, grid, y, a := &c.Ins[0], &c.Ins[1], &c.Outs[0], contract.GridOf(c)
	dims, n := len(x.Shape)-2, y.Numel()
	s := shader.New(r, "grid_sample")
	from, places, out := s.In("x", x, expr.F32, expr.Number), s.In("grid", grid, expr.F32, expr.Number), s.Out("y", y, expr.F32, expr.Number)
	taps := map[contract.InterpolateMode]int{contract.InterpolateNearest: 1, contract.InterpolateLinear: 2, contract.InterpolateCubic: 4}[a.Mode]
	s.Specialize(dims)
	s.Specialize(taps)
	s.Specialize(int(a.Padding))
	align := s.Flag(a.AlignCorners)
	count, channels, points := s.Uint(n), s.Uint(x.Shape[1]), s.Uint(core.Numel(y.Shape[2:]))
	var sizes []string // the last dimension first
	for d := range dims {
		sizes = append(sizes, s.Uint(x.Shape[len(x.Shape)-1-d]))
	}
	if n == 0 {
		return nil
	}
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Func("padded(p: real, size: real) -> real", paddedText(a.Padding, align, dims))
		w.Func("near(t: real) -> real", "  return (real(1.25) * t - real(2.25)) * t * t + real(1.0);")
		w.Func("far(t: real) -> real", "  return ((real(-0.75) * t + real(3.75)) * t - real(6.0)) * t + real(3.0);")
		w.Each(count)
		w.Add(`  let point = i %% %[1]s;
  let sample = i / (%[1]s * %[2]s);
  let plane = %[3]s + i / %[1]s * %[4]s;
  let place = %[5]s + (sample * %[1]s + point) * %[6]du;`, points, channels, from, strings.Join(sizes, " * "), places, dims)
		for d, size := range sizes {
			w.Add("  let size%[1]d = real(%[2]s);", d, size)
			position := fmt.Sprintf("(ld_grid(place + %du) + real(1.0)) * (size%d * real(0.5)) - real(0.5)", d, d)
			if align {
				position = fmt.Sprintf("(ld_grid(place + %du) + real(1.0)) * ((size%d - real(1.0)) * real(0.5))", d, d)
			}
			if taps != 4 {
				position = fmt.Sprintf("padded(%s, size%d)", position, d)
			}
			w.Add("  let at%[1]d = %[2]s;\n  let low%[1]d = floor(at%[1]d);\n  let t%[1]d = at%[1]d - low%[1]d;", d, position)
			for k := range taps {
				p, share := fmt.Sprintf("round(at%d)", d), "real(1.0)"
				switch taps {
				case 2:
					p = fmt.Sprintf("low%d + real(%d.0)", d, k)
					share = fmt.Sprintf([]string{"real(1.0) - t%d", "t%d"}[k], d)
				case 4:
					p = fmt.Sprintf("padded(low%[1]d + real(%[2]d.0) - real(1.0), size%[1]d)", d, k)
					share = fmt.Sprintf([]string{"far(t%d + real(1.0))", "near(t%d)", "near(real(1.0) - t%d)", "far(real(2.0) - t%d)"}[k], d)
				}
				w.Add(`  let p%[1]d_%[2]d = %[3]s;
  let share%[1]d_%[2]d = %[4]s;
  let in%[1]d_%[2]d = p%[1]d_%[2]d >= real(0.0) && p%[1]d_%[2]d <= size%[1]d - real(1.0);`, d, k, p, share)
			}
		}
		w.Add("  var sum = real(0.0);")
		for choice := range power(taps, dims) {
			var index, weight, inside string
			for d, rest := 0, choice; d < dims; d, rest = d+1, rest/taps {
				k := rest % taps
				index += fmt.Sprintf("u32(p%d_%d)", d, k)
				for _, size := range sizes[:d] {
					index += " * " + size
				}
				weight += fmt.Sprintf("share%d_%d", d, k)
				inside += fmt.Sprintf("in%d_%d", d, k)
				if d < dims-1 {
					index, weight, inside = index+" + ", weight+" * ", inside+" && "
				}
			}
			outside := ""
			if dims == 2 { // what is not a number stays so
				outside = fmt.Sprintf(" else { sum += (%s) * real(0.0); }", weight)
			}
			w.Add("  if (%s) { sum += (%s) * ld_x(plane + %s); }%s", inside, weight, index, outside)
		}
		w.Add("  st_y(%s + i, sum);", out)
	})
}

func power(base, n int) int {
	p := 1
	for range n {
		p *= base
	}
	return p
}

// paddedText is the body of a function that moves a position along a dimension to where the padding has its element from.
func paddedText(padding contract.GridPadding, align bool, dims int) string {
	if padding == contract.GridZeros {
		return "  return p;"
	}
	reflected, first, last := "", "!(q > real(0.0))", "q > size - real(1.0)" // NaN goes to the first place, as in PyTorch,
	if dims == 3 {                                                           // and in volumes to the last
		first, last = "q < real(0.0)", "!(q < size - real(1.0))"
	}
	if padding == contract.GridReflection {
		low, span := "real(-0.5)", "size"
		if align {
			low, span = "real(0.0)", "size - real(1.0)"
		}
		reflected = fmt.Sprintf(`  let low = %s;
  let span = %s;
  if (span == real(0.0)) {
    q = p * real(0.0);
  } else {
    let around = p - low - floor((p - low) / (real(2.0) * span)) * (real(2.0) * span);
    q = span - abs(around - span) + low;
  }
`, low, span)
	}
	return fmt.Sprintf(`  var q = p;
%s  if (%s) { q = real(0.0); }
  if (%s) { q = size - real(1.0); }
  return q;`, reflected, first, last)
}
