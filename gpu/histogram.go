package gpu

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
)

func init() {
	register("bincount", binCountCall)
	register("histc", histCCall)
}

// histogram writes to out, int64, how many of n elements fall into each bin. bind adds the elements to a shader and returns WGSL
// with bin_of(i), the bin or nowhere. Counts are integers, and so do not depend on the order in which they are added.
func histogram(r *recorder, name string, n int, out *core.Operand, bind func(s *shader) func() string) error {
	bins := out.Numel()
	if bins == 0 {
		return nil
	}
	counts, err := r.Temp(4 * bins)
	if err != nil {
		return err
	}
	r.Clear(floatOperand(counts, 0, bins))
	s := newShader(r, name)
	bin := bind(s)
	s.binds = append(s.binds, binding{access: access{name: "counts", dtype: core.Bool, shared: true}})
	s.mems = append(s.mems, counts)
	to, count := s.uint(int(word(counts))), s.uint(n)
	err = s.run(r, groupsFor(n), func() string {
		return bin() + each(count, "  let bin = bin_of(i);\n  if (bin != "+nowhere+") { atomicAdd(&counts["+to+" + bin], 1u); }\n")
	})
	if err != nil {
		return err
	}
	s = newShader(r, "histogram")
	y, from, total := s.out("y", out, expr.I64, expr.Number), s.wordsOf("counts", counts), s.uint(bins)
	return s.run(r, groupsFor(bins), func() string {
		return each(total, "  st_y("+y+" + i, vec2<u32>(counts["+from+" + i], 0u));\n")
	})
}

// histCCall: Outs[0], int64, = how many elements of Ins[0] lie in each of equal parts of [Floats[0], Floats[1]].
func histCCall(r *recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	return histogram(r, "histc", in.Numel(), out, func(s *shader) func() string {
		x, low, high, span, bins := s.in("x", in, expr.F32, expr.Number), s.float(c.Floats[0]), s.float(c.Floats[1]), s.float(c.Floats[1]-c.Floats[0]), s.uint(out.Numel())
		return func() string {
			return `fn bin_of(i: u32) -> u32 {
  let v = ld_x(` + x + ` + i);
  if (!(v >= ` + low + ` && v <= ` + high + `)) { return ` + nowhere + `; }
  return min(u32((v - ` + low + `) / ` + span + ` * f32(` + bins + `)), ` + bins + ` - 1u);
}
`
		}
	})
}

// binCountCall: Outs[0] = how often each number below its size comes in the int64 vector Ins[0], or the sums of the weights Ins[1].
func binCountCall(r *recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	if len(c.Ins) > 1 && c.Ins[1].Present() {
		return weightedBins(r, c)
	}
	return histogram(r, "bincount", in.Numel(), out, func(s *shader) func() string {
		x, bins := s.in("x", in, expr.I64, expr.Number), s.uint(out.Numel())
		return func() string {
			return "fn bin_of(i: u32) -> u32 {\n  let v = ld_x(" + x + " + i);\n  return select(" + nowhere + ", v.x, v.y == 0u && v.x < " + bins + ");\n}\n"
		}
	})
}

// weightedBins adds up the weights of each bin in an order that the elements fix.
func weightedBins(r *recorder, c *core.Call) error {
	in, weights, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	if out.Numel() == 0 {
		return nil
	}
	r.Clear(out)
	if in.Numel() == 0 {
		return nil
	}
	dest, err := destinations(r, c, out, c.Ins[:1], false, -1, []int64{0})
	if err != nil {
		return err
	}
	p := placing{dest: dest, lines: 1, n: in.Numel(), mode: addMode, apart: true}
	return p.rows(out, 1, weights, 1).run(r)
}
