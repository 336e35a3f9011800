package sorting

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Unique, uniqueCall)
	kernel.Register(contract.UniqueRows, uniqueRowsCall)
}

// An ordering adds elements to a program and returns a function that declares their order: ordered(j) is the index of the j-th element, and
// differs(j), for j > 0, says whether it differs from its predecessor.
type ordering func(s *shader.Builder) func(w *shader.Text)

// uniqueCall finds the unique elements of the contiguous Ins[0]. Outs: the values, the index of each element's value among them, and the
// counts, each with room for as many results as there are elements; and the number of results. NaNs all differ from one another.
func uniqueCall(r *shader.Recorder, c *core.Call) error {
	in := &c.Ins[0]
	n, t := in.Numel(), shader.ComputeType(in.DType)
	key, bits := primitive.SortKey(in.DType, "ld_x(first + index)")
	least, known := contract.Range(c)
	narrow := known > 0
	if narrow {
		bits = known
	}
	wide := bits == 64
	source := func(s *shader.Builder) func(w *shader.Text) {
		x, least := s.In("x", in, t, expr.Number), s.Long(least)
		key := key
		if s.Flag(narrow) {
			key = "pair(0u, plait_sub_i64(ld_x(first + index), " + least + ").x)"
		}
		return func(w *shader.Text) {
			primitive.SortKeyFunc(w, t)
			w.Func("key_of(line: u32, index: u32) -> pair", "let first = %s; return %s;", x, key)
		}
	}
	nan := "false"
	if in.DType.IsFloat() {
		nan = "a.y == 0xffffffffu"
	}
	write := func(w *shader.Text, ordered, key string) {
		w.Func("ordered(j: u32) -> u32", "return %s;", ordered)
		w.Func("at_place(j: u32) -> pair", "return %s;", key)
		w.Func("differs(j: u32) -> bool", "let a = at_place(j); let b = at_place(j - 1u); return %s || any(a != b);", nan)
	}
	order := func(s *shader.Builder) func(w *shader.Text) {
		s.Flag(true)
		keys := source(s)
		return func(w *shader.Text) {
			keys(w)
			write(w, "j", "key_of(0u, j)")
		}
	}
	if !contract.Consecutive(c) && n > 0 {
		e, err := primitive.SortLines(r, "unique", 1, n, n, bits, wide, source)
		if err != nil {
			return err
		}
		order = func(s *shader.Builder) func(w *shader.Text) {
			s.Flag(false)
			sorted := e.Bind(s, "sorted")
			return func(w *shader.Text) {
				sorted(w)
				write(w, "sorted_index(j)", "sorted_key(j)")
			}
		}
	}
	s := func(s *shader.Builder) string {
		x, y := s.In("taken", in, t, expr.Number), s.Out("value", &c.Outs[0], t, expr.Number)
		return "st_value(" + y + " + id, ld_taken(" + x + " + index));"
	}
	return distinct(r, c, n, order, s)
}

// uniqueRowsCall is uniqueCall for the rows of a matrix. The values are the int64 indices of the first row of each result.
func uniqueRowsCall(r *shader.Recorder, c *core.Call) error {
	in := &c.Ins[0]
	n, width, t := in.Shape[0], in.Shape[1], shader.ComputeType(in.DType)
	// compare orders rows. x of its result is 0 for before, 1 for equal order and 2 for after; y is 1 if the rows are equal. Rows with NaN
	// in the same column have equal order, but are not equal.
	compare := func(s *shader.Builder) func(w *shader.Text) {
		x, widthWord := s.In("x", in, t, expr.Number), s.Uint(width)
		key, _ := primitive.SortKey(in.DType, "ld_x("+x+" + row * "+widthWord+" + column)")
		nan := "false"
		if in.DType.IsFloat() {
			nan = "x.y == 0xffffffffu"
		}
		return func(w *shader.Text) {
			primitive.SortKeyFunc(w, t)
			primitive.BeforeFunc(w)
			w.Func("row_key(row: u32, column: u32) -> pair", "return %s;", key)
			w.Func("compare(a: u32, b: u32) -> pair", `for (var j = 0u; j < %s; j++) {
    let x = row_key(a, j);
    let y = row_key(b, j);
    if (any(x != y)) { return pair(select(2u, 0u, before(x, y)), 0u); }
    if (%s) { return pair(1u, 0u); }
  }
  return pair(1u, 1u);`, widthWord, nan)
		}
	}
	// Rows are sorted by merging runs, from runs of one row on.
	var order core.Memory
	for run := 1; !contract.Consecutive(c) && run < n; run *= 2 {
		to, err := r.Temp(4 * n)
		if err != nil {
			return err
		}
		s := shader.New(r, "merge rows")
		rows := compare(s)
		toWord, count, runWord, from := s.WordsOf("to", to), s.Uint(n), s.Uint(run), "i"
		if s.Flag(run > 1) {
			from = "from_[" + s.WordsOf("from_", order) + " + i]"
		}
		err = s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
			rows(w)
			w.Func("row_at(i: u32) -> u32", "return %s;", from)
			w.Each(count)
			w.Add(`  let run = i / %s;
  let first = (run ^ 1u) * %s;
  let mine = row_at(i);
  var low = min(first, %s);
  var high = min(first + %s, %s);
  for (var k = 0u; k < 32u && low < high; k++) {
    let middle = (low + high) / 2u;
    let order = compare(row_at(middle), mine).x;
    if (order == 0u || (order == 1u && (run & 1u) == 1u)) { low = middle + 1u; } else { high = middle; }
  }`, runWord, runWord, count, runWord, count)
			w.Add("  to[%s + (run & ~1u) * %s + i %% %s + low - min(first, %s)] = mine;", toWord, runWord, runWord, count)
		})
		if err != nil {
			return err
		}
		order = to
	}
	place := func(s *shader.Builder) func(w *shader.Text) {
		rows, from := compare(s), "j"
		if s.Flag(order.Handle != 0) {
			from = "order[" + s.WordsOf("order", order) + " + j]"
		}
		return func(w *shader.Text) {
			rows(w)
			w.Func("ordered(j: u32) -> u32", "return %s;", from)
			w.Func("differs(j: u32) -> bool", "return compare(ordered(j - 1u), ordered(j)).y == 0u;")
		}
	}
	return distinct(r, c, n, place, func(s *shader.Builder) string {
		return "st_value(" + s.Out("value", &c.Outs[0], expr.I64, expr.Number) + " + id, pair(index, 0u));"
	})
}

// distinct writes the results of unique for n ordered elements. take binds the values and returns the statement that writes the value of
// element index as result id.
func distinct(r *shader.Recorder, c *core.Call, n int, order ordering, take func(s *shader.Builder) string) error {
	if n == 0 {
		r.Clear(&c.Outs[3])
		return nil
	}
	name := c.Kernel.String()
	ids, err := primitive.PrefixBlocks(r, name, n, func(s *shader.Builder) func(w *shader.Text) {
		head := order(s)
		return func(w *shader.Text) {
			head(w)
			w.Func("counted(j: u32) -> u32", "if (j == 0u) { return 1u; }\n  return select(0u, 1u, differs(j));")
		}
	})
	if err != nil {
		return err
	}
	starts, err := r.Temp(4 * max(n, 1))
	if err != nil {
		return err
	}
	s := shader.New(r, name+" (results)")
	head, taken := order(s), take(s)
	before, start, count, inverse := ids.Bind(s), s.WordsOf("starts", starts), s.Uint(n), ""
	if s.Flag(c.Outs[1].Present()) {
		inverse = s.Out("inverse", &c.Outs[1], expr.I64, expr.Number)
	}
	s.Flag(c.Outs[0].DType == core.Int64)
	err = s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		head(w)
		before(w)
		w.Each(count)
		w.Add(`  let index = ordered(i);
  let id = prefix_at(i + 1u) - 1u;`)
		if inverse != "" {
			w.Add("  st_inverse(%s + index, pair(id, 0u));", inverse)
		}
		w.Add(`  if (i > 0u && prefix_at(i) == id + 1u) { return; }
  starts[%s + id] = i;
  %s`, start, taken)
	})
	if err != nil {
		return err
	}
	s = shader.New(r, "unique (counts)")
	total, counts := s.Out("total", &c.Outs[3], expr.I64, expr.Number), ""
	if s.Flag(c.Outs[2].Present()) {
		counts = s.Out("counts", &c.Outs[2], expr.I64, expr.Number)
	}
	before, start, count = ids.Bind(s), s.WordsOf("starts", starts), s.Uint(n)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		before(w)
		w.Each(count)
		w.Add(`  let results = prefix_at(%s);
  if (i == 0u) { st_total(%s, pair(results, 0u)); }
  if (i >= results) { return; }`, count, total)
		if counts == "" {
			return
		}
		w.Add(`  var end = %s;
  if (i + 1u < results) { end = starts[%s + i + 1u]; }`, count, start)
		w.Add("  st_counts(%s + i, pair(end - starts[%s + i], 0u));", counts, start)
	})
}
