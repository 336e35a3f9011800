package random

import (
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/kernel/scan"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Multinomial, multinomialCall)
}

// multinomialCall draws positions of weights, the last dimension of Ins[0]. Ints: seed, offset, replacement. With replacement,
// draw j of row r is inverse transform sampling with uniform number r count + j: the first place at which the running sum is
// larger. Without, weight i of row r gets the key -log(1-u) / weight from uniform number r n + i, and the draws are the smallest
// keys in order. The CPU does this in float64, so that a draw may differ where two weights meet.
func multinomialCall(r *shader.Recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	last := len(in.Shape) - 1
	n, count, rows := in.Shape[last], out.Shape[last], core.Numel(in.Shape[:last])
	if rows == 0 || count == 0 {
		return nil
	}
	replacement := c.Ints[2] != 0
	if err := checkWeights(r, c, rows, n, count, replacement); err != nil {
		return err
	}
	if replacement {
		return drawWithReplacement(r, c, rows, n, count)
	}
	e, err := primitive.SortLines(r, "multinomial", rows, n, count, false, func(s *shader.Builder) func() string {
		x, size := s.In("x", in, expr.F32, expr.Number), s.Uint(n)
		seed, offset := s.Long(c.Ints[0]), s.Long(c.Ints[1])
		return func() string {
			return uniformWord(seed, offset) + primitive.SortKeyFunc(expr.F32) + `fn key_of(line: u32, index: u32) -> vec2<u32> {
  let at = line * ` + size + ` + index;
  let w = ld_x(` + x + ` + at);
  return key(select(` + shader.Infinity + `, plait_negative_log(~uniform_word(at)) / w, w > 0.0));
}
`
		}
	})
	if err != nil {
		return err
	}
	s := shader.New(r, "drawn")
	y, sorted, total := s.Out("y", out, expr.I64, expr.Number), e.Bind(s, "sorted"), s.Uint(rows*count)
	return s.Run(r, shader.GroupsFor(rows*count), func() string {
		return sorted + shader.Each(total, "  st_y("+y+" + i, vec2<u32>(sorted_index(i), 0u));\n")
	})
}

// uniformWord is the function that returns random word number index: two draws of the generator share a block.
func uniformWord(seed, offset string) string {
	return "fn uniform_word(index: u32) -> u32 {\n  let w = plait_philox(" + seed + ", plait_add_i64(" + offset + ", vec2<u32>(index / 2u, 0u)));\n  return select(w.x, w.z, index % 2u == 1u);\n}\n"
}

// checkWeights makes rows that cannot be drawn from the call's error.
func checkWeights(r *shader.Recorder, c *core.Call, rows, n, count int, replacement bool) error {
	s := shader.New(r, "weights")
	width := primitive.RowThreads(n)
	s.Specialize(width / 64)
	x, rowsWord, size, draws := s.In("x", &c.Ins[0], expr.F32, expr.Number), s.Uint(rows), s.Uint(n), s.Uint(count)
	if replacement {
		draws = s.Uint(0)
	}
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error {
		what := [...]string{"a weight that is negative or not finite", "no positive weight", "fewer positive weights than samples to draw without replacement"}[at%4]
		return core.Errorf(core.ValueError, c.Op, "row %d has %s, got %d weights, want %d samples", at/4, what, n, count)
	})
	return s.Run(r, rows, func() string {
		return shader.WorkgroupReduce("found", "vec2<u32>", "a + b", width) + shader.EachGroup(width, rowsWord) + `
  var found = vec2<u32>(0u, 0u); // bad and positive ones
  for (var j = li; j < ` + size + `; j += ` + strconv.Itoa(width) + `u) {
    let w = ld_x(` + x + ` + group * ` + size + ` + j);
    found = found + vec2<u32>(select(1u, 0u, w >= 0.0 && !plait_isinf_f32(w)), select(0u, 1u, w > 0.0));
  }
  found = whole_found(li, found);
  if (li > 0u) { return; }
  if (found.x > 0u) { ` + fault("(group * 4u)") + ` }
  else if (found.y == 0u) { ` + fault("(group * 4u + 1u)") + ` }
  else if (found.y < ` + draws + `) { ` + fault("(group * 4u + 2u)") + ` }
}
`
	})
}

func drawWithReplacement(r *shader.Recorder, c *core.Call, rows, n, count int) error {
	m, err := r.Temp(4 * rows * n)
	if err != nil {
		return err
	}
	weights, sums := shader.F32Like(&c.Ins[0], rows, n), shader.F32Operand(m, 0, rows, n)
	f, _ := scan.Of("cumsum", true)
	s := shader.New(r, "running weights")
	starts := []string{s.In("x", weights, expr.F32, expr.Number), s.Out("y", sums, expr.F32, expr.Number)}
	if err := f.Run(r, s, 1, []*core.Operand{weights, sums}, starts, false, "ld_x(at_0 + k * step_0)"); err != nil {
		return err
	}
	s = shader.New(r, "drawn with replacement")
	from, y, x := s.FloatsOf("sums", m), s.Out("y", &c.Outs[0], expr.I64, expr.Number), s.In("x", weights, expr.F32, expr.Number)
	total, draws, size := s.Uint(rows*count), s.Uint(count), s.Uint(n)
	seed, offset := s.Long(c.Ints[0]), s.Long(c.Ints[1])
	return s.Run(r, shader.GroupsFor(rows*count), func() string {
		return uniformWord(seed, offset) + shader.Each(total, `
  let first = `+from+` + (i / `+draws+`) * `+size+`;
  let whole = sums[first + `+size+` - 1u];
  let aim = plait_uniform(uniform_word(i)) * whole;
  var low = 0u;
  var high = `+size+` - 1u;
  for (var k = 0u; k < 32u && low < high; k++) {
    let middle = (low + high) / 2u;
    let sum = sums[first + middle];
    if (sum > aim || sum >= whole) { high = middle; } else { low = middle + 1u; }
  }
  // Sums joined from tiles may grow by rounding where a weight is 0: the draw is that of a positive one beside it.
  let weight = `+x+` + (i / `+draws+`) * `+size+`;
  while (low > 0u && !(ld_x(weight + low) > 0.0)) { low = low - 1u; }
  while (low + 1u < `+size+` && !(ld_x(weight + low) > 0.0)) { low = low + 1u; }
  st_y(`+y+` + i, vec2<u32>(low, 0u));
`)
	})
}
