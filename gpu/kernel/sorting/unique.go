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

// An ordering is elements in order, as WGSL over what it adds to a shader: ordered(j), the index of the j-th, and differs(j),
// whether it differs from the one before it, for j > 0.
type ordering func(s *shader.Builder) func() string

// uniqueCall: the different elements of the contiguous Ins[0]. Outs: values, the place of each element's equal among them, how
// often each comes, with room for as many as there are elements, and the number of results. Ints: 1 to compare only neighbours. A
// NaN equals nothing.
func uniqueCall(r *shader.Recorder, c *core.Call) error {
	in := &c.Ins[0]
	n, t := in.Numel(), shader.ComputeType(in.DType)
	key, wide := primitive.SortKey(in.DType, "ld_x(first + index)")
	source := func(s *shader.Builder) func() string {
		x := s.In("x", in, t, expr.Number)
		return func() string {
			return primitive.SortKeyFunc(t) + "fn key_of(line: u32, index: u32) -> vec2<u32> { let first = " + x + "; return " + key + "; }\n"
		}
	}
	nan := "false"
	if in.DType.IsFloat() {
		nan = "a.y == 0xffffffffu"
	}
	differs := "fn differs(j: u32) -> bool { let a = at_place(j); let b = at_place(j - 1u); return " + nan + " || any(a != b); }\n"
	order := func(s *shader.Builder) func() string {
		s.Flag(true)
		keys := source(s)
		return func() string {
			return keys() + "fn ordered(j: u32) -> u32 { return j; }\nfn at_place(j: u32) -> vec2<u32> { return key_of(0u, j); }\n" + differs
		}
	}
	if c.Ints[0] == 0 && n > 0 {
		e, err := primitive.SortLines(r, "unique", 1, n, n, wide, source)
		if err != nil {
			return err
		}
		order = func(s *shader.Builder) func() string {
			s.Flag(false)
			sorted := e.Bind(s, "sorted")
			return func() string {
				return sorted + "fn ordered(j: u32) -> u32 { return sorted_index(j); }\nfn at_place(j: u32) -> vec2<u32> { return sorted_key(j); }\n" + differs
			}
		}
	}
	s := func(s *shader.Builder) string {
		x, y := s.In("taken", in, t, expr.Number), s.Out("value", &c.Outs[0], t, expr.Number)
		return "st_value(" + y + " + id, ld_taken(" + x + " + index));"
	}
	return distinct(r, c, n, order, s)
}

// uniqueRowsCall is uniqueCall for the rows of a matrix; values are the int64 indices of the results' first rows.
func uniqueRowsCall(r *shader.Recorder, c *core.Call) error {
	in := &c.Ins[0]
	n, width, t := in.Shape[0], in.Shape[1], shader.ComputeType(in.DType)
	// compare orders rows: x is 0, 1 or 2 for before, alike and after; y is 1 if they are the same. Two NaNs are alike and
	// not the same.
	compare := func(s *shader.Builder) func() string {
		x, widthWord := s.In("x", in, t, expr.Number), s.Uint(width)
		key, _ := primitive.SortKey(in.DType, "ld_x("+x+" + row * "+widthWord+" + column)")
		nan := "false"
		if in.DType.IsFloat() {
			nan = "x.y == 0xffffffffu"
		}
		return func() string {
			return primitive.SortKeyFunc(t) + primitive.BeforeFunc + "fn row_key(row: u32, column: u32) -> vec2<u32> { return " + key + "; }\n" + `
fn compare(a: u32, b: u32) -> vec2<u32> {
  for (var j = 0u; j < ` + widthWord + `; j++) {
    let x = row_key(a, j);
    let y = row_key(b, j);
    if (any(x != y)) { return vec2<u32>(select(2u, 0u, before(x, y)), 0u); }
    if (` + nan + `) { return vec2<u32>(1u, 0u); }
  }
  return vec2<u32>(1u, 1u);
}
`
		}
	}
	// Runs of rows are merged, from runs of one on.
	var order core.Memory
	for run := 1; c.Ints[0] == 0 && run < n; run *= 2 {
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
		err = s.Run(r, shader.GroupsFor(n), func() string {
			return rows() + "fn row_at(i: u32) -> u32 { return " + from + "; }\n" + shader.Each(count, `
  let run = i / `+runWord+`;
  let first = (run ^ 1u) * `+runWord+`;
  let mine = row_at(i);
  var low = min(first, `+count+`);
  var high = min(first + `+runWord+`, `+count+`);
  for (var k = 0u; k < 32u && low < high; k++) {
    let middle = (low + high) / 2u;
    let order = compare(row_at(middle), mine).x;
    if (order == 0u || (order == 1u && (run & 1u) == 1u)) { low = middle + 1u; } else { high = middle; }
  }
  to[`+toWord+` + (run & ~1u) * `+runWord+` + i % `+runWord+` + low - min(first, `+count+`)] = mine;
`)
		})
		if err != nil {
			return err
		}
		order = to
	}
	place := func(s *shader.Builder) func() string {
		rows, from := compare(s), "j"
		if s.Flag(order.Handle != 0) {
			from = "order[" + s.WordsOf("order", order) + " + j]"
		}
		return func() string {
			return rows() + "fn ordered(j: u32) -> u32 { return " + from + "; }\n" +
				"fn differs(j: u32) -> bool { return compare(ordered(j - 1u), ordered(j)).y == 0u; }\n"
		}
	}
	return distinct(r, c, n, place, func(s *shader.Builder) string {
		return "st_value(" + s.Out("value", &c.Outs[0], expr.I64, expr.Number) + " + id, vec2<u32>(index, 0u));"
	})
}

// distinct writes the results of unique for n elements in order; take binds what is needed to write the value of element index to
// place id.
func distinct(r *shader.Recorder, c *core.Call, n int, order ordering, take func(s *shader.Builder) string) error {
	if n == 0 {
		r.Clear(&c.Outs[3])
		return nil
	}
	name := c.Kernel.String()
	ids, err := primitive.PrefixSum(r, name, n, func(s *shader.Builder) func() string {
		head := order(s)
		return func() string {
			return head() + "fn counted(j: u32) -> u32 {\n  if (j == 0u) { return 1u; }\n  return select(0u, 1u, differs(j));\n}\n"
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
	inverse, id, start, count := s.Out("inverse", &c.Outs[1], expr.I64, expr.Number), s.WordsOf("ids", ids), s.WordsOf("starts", starts), s.Uint(n)
	s.Flag(c.Outs[0].DType == core.Int64)
	err = s.Run(r, shader.GroupsFor(n), func() string {
		return head() + shader.Each(count, `
  let index = ordered(i);
  let id = ids[`+id+` + i + 1u] - 1u;
  st_inverse(`+inverse+` + index, vec2<u32>(id, 0u));
  if (i > 0u && ids[`+id+` + i] == id + 1u) { return; }
  starts[`+start+` + id] = i;
  `+taken+`
`)
	})
	if err != nil {
		return err
	}
	s = shader.New(r, "unique (counts)")
	counts, total := s.Out("counts", &c.Outs[2], expr.I64, expr.Number), s.Out("total", &c.Outs[3], expr.I64, expr.Number)
	id, start, count = s.WordsOf("ids", ids), s.WordsOf("starts", starts), s.Uint(n)
	return s.Run(r, shader.GroupsFor(n), func() string {
		return shader.Each(count, `
  let results = ids[`+id+` + `+count+`];
  if (i == 0u) { st_total(`+total+`, vec2<u32>(results, 0u)); }
  if (i >= results) { return; }
  var end = `+count+`;
  if (i + 1u < results) { end = starts[`+start+` + i + 1u]; }
  st_counts(`+counts+` + i, vec2<u32>(end - starts[`+start+` + i], 0u));
`)
	})
}
