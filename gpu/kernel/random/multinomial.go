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

// multinomialCall draws indices with probabilities proportional to weights, the last dimension of Ins[0].
//
// With replacement, draw j of row r is inverse transform sampling with uniform number r count + j: the first index whose running sum is
// larger. Without replacement, weight i of row r gets the key -log(1-u) / weight from uniform number r n + i, and the draws are the indices
// of the smallest keys in order. The CPU computes in float64, so a draw near the border of two weights may differ.
func multinomialCall(r *shader.Recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	last := len(in.Shape) - 1
	n, count, rows := in.Shape[last], out.Shape[last], core.Numel(in.Shape[:last])
	if rows == 0 || count == 0 {
		return nil
	}
	replacement := contract.DrawOf(c).Replacement
	if err := checkWeights(r, c, rows, n, count, replacement); err != nil {
		return err
	}
	if replacement {
		return drawWithReplacement(r, c, rows, n, count)
	}
	e, err := primitive.SortLines(r, "multinomial", rows, n, count, 32, r.Float64, func(s *shader.Builder) func(w *shader.Text) {
		x, size := s.In("x", in, expr.F32, expr.Number), s.Uint(n)
		a := contract.DrawOf(c)
		seed, offset := s.Long(a.Seed), s.Long(a.Offset)
		return func(w *shader.Text) {
			uniform(r, w, seed, offset)
			primitive.SortKeyFunc(w, expr.F32)
			w.Func("key_of(line: u32, index: u32) -> pair", `let at = line * %s + index;
  let w = ld_x(%s + at);
  return key(select(%s, negative_log(at) / w, w > 0.0));`, size, x, shader.Infinity)
		}
	})
	if err != nil {
		return err
	}
	s := shader.New(r, "drawn")
	y, sorted, total := s.Out("y", out, expr.I64, expr.Number), e.Bind(s, "sorted"), s.Uint(rows*count)
	return s.Run(r, shader.GroupsFor(rows*count), func(w *shader.Text) {
		sorted(w)
		w.Each(total)
		w.Add("  st_y(%s + i, pair(sorted_index(i), 0u));", y)
	})
}

// uniform declares uniform(index), a random number u, and negative_log(index), -log(1-u). Two numbers share a block of the generator.
func uniform(r *shader.Recorder, w *shader.Text, seed, offset string) {
	w.Func("random_words(index: u32) -> pair", `let w = plait_philox(%s, plait_add_i64(%s, pair(index / 2u, 0u)));
  return select(w.xy, w.zw, index %% 2u == 1u);`, seed, offset)
	number, log := "plait_uniform(random_words(index).x)", "plait_negative_log(~random_words(index).x)"
	if r.Float64 {
		number, log = "plait_uniform_wide(random_words(index).x, random_words(index).y)", "-plait_log_f32(1.0 - uniform(index))"
	}
	w.Func("uniform(index: u32) -> real", "return %s;", number)
	w.Func("negative_log(index: u32) -> real", "return %s;", log)
}

// checkWeights makes a row of invalid weights the call's error.
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
	return s.Run(r, rows, func(w *shader.Text) {
		w.Reduce("found", shader.Pair, "a + b", width)
		w.EachGroup(width, rowsWord)
		w.Add(`  var found = pair(0u, 0u); // bad and positive ones
  for (var j = li; j < %s; j += %su) {
    let w = ld_x(%s + group * %s + j);
    found = found + pair(select(1u, 0u, w >= 0.0 && !plait_isinf_f32(w)), select(0u, 1u, w > 0.0));
  }
  found = whole_found(li, found);
  if (li > 0u) { return; }
  if (found.x > 0u) { %s }`, size, strconv.Itoa(width), x, size, fault("(group * 4u)"))
		w.Add(`  else if (found.y == 0u) { %s }
  else if (found.y < %s) { %s }`, fault("(group * 4u + 1u)"), draws, fault("(group * 4u + 2u)"))
	})
}

func drawWithReplacement(r *shader.Recorder, c *core.Call, rows, n, count int) error {
	m, err := r.Reals(rows * n)
	if err != nil {
		return err
	}
	weights, sums := shader.F32Like(&c.Ins[0], rows, n), r.RealOperand(m, 0, rows, n)
	f, _ := scan.Of("cumsum", true)
	s := shader.New(r, "running weights")
	starts := []string{s.In("x", weights, expr.F32, expr.Number), s.Out("y", sums, expr.F32, expr.Number)}
	if err := f.Run(r, s, 1, []*core.Operand{weights, sums}, starts, false, "ld_x(at_0 + k * step_0)"); err != nil {
		return err
	}
	s = shader.New(r, "drawn with replacement")
	from, y, x := s.RealsOf("sums", m), s.Out("y", &c.Outs[0], expr.I64, expr.Number), s.In("x", weights, expr.F32, expr.Number)
	total, draws, size := s.Uint(rows*count), s.Uint(count), s.Uint(n)
	a := contract.DrawOf(c)
	seed, offset := s.Long(a.Seed), s.Long(a.Offset)
	return s.Run(r, shader.GroupsFor(rows*count), func(w *shader.Text) {
		uniform(r, w, seed, offset)
		w.Each(total)
		w.Add(`  let first = %s + (i / %s) * %s;
  let whole = sums[first + %s - 1u];
  let aim = uniform(i) * whole;
  var low = 0u;
  var high = %s - 1u;
  for (var k = 0u; k < 32u && low < high; k++) {
    let middle = (low + high) / 2u;
    let sum = sums[first + middle];
    if (sum > aim || sum >= whole) { high = middle; } else { low = middle + 1u; }
  }
  // Sums joined from tiles may grow by rounding where a weight is 0: the draw is that of a positive one beside it.`, from, draws, size, size, size)
		w.Add(`  let weight = %s + (i / %s) * %s;
  while (low > 0u && !(ld_x(weight + low) > 0.0)) { low = low - 1u; }
  while (low + 1u < %s && !(ld_x(weight + low) > 0.0)) { low = low + 1u; }
  st_y(%s + i, pair(low, 0u));`, x, draws, size, size, y)
	})
}
