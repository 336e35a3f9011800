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
	counts, err := r.temp(4 * bins)
	if err != nil {
		return err
	}
	r.clear(floatOperand(counts, 0, bins))
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

// weightedBins sorts the elements, and adds up the weights of each bin in an order that the elements fix.
func weightedBins(r *recorder, c *core.Call) error {
	in, weights, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	n, bins := in.Numel(), out.Numel()
	if bins == 0 {
		return nil
	}
	if n == 0 {
		r.clear(out)
		return nil
	}
	e, err := sortAlong(r, in, 0, n, false)
	if err != nil {
		return err
	}
	s := newShader(r, "weighted bins")
	w, y, sorted, rows, size := s.in("w", weights, expr.F32, expr.Number), s.out("y", out, expr.F32, expr.Number), e.bind(s, "sorted"), s.uint(bins), s.uint(n)
	return s.run(r, bins, func() string {
		return sorted + keyText(expr.I64) + before + wholeSum(64) + `fn place(bin: u32) -> u32 {
  let aim = key(vec2<u32>(bin, 0u));
  var low = 0u;
  var high = ` + size + `;
  for (var k = 0u; k < 32u && low < high; k++) {
    let middle = (low + high) / 2u;
    if (before(sorted_key(middle), aim)) { low = middle + 1u; } else { high = middle; }
  }
  return low;
}
` + eachGroup(64, rows) + `
  let end = place(group + 1u);
  var sum = 0.0;
  for (var j = place(group) + li; j < end; j += 64u) { sum = sum + ld_w(` + w + ` + sorted_index(j)); }
  sum = whole_sum(li, sum);
  if (li == 0u) { st_y(` + y + ` + group, sum); }
}
`
	})
}
