package indexing

import (
	"fmt"
	"math/bits"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// Rows of values are scattered to destinations, several of which may be equal. If there are few rows, one workgroup for each row compares
// its destination with all others, which is faster than sorting. Otherwise rows are sorted by destination, in stable order, so that the
// rows of a destination form a run.
//
// A run is divided into pieces, and one invocation combines a column of a piece. The partial results of a long run are combined in the same
// way until one is left. So no invocation runs for long, whatever the destinations are, and the order of additions depends on the
// destinations alone.

const (
	// runPiece is how many rows, or partial results, an invocation combines.
	runPiece = 256
	// columnsPerInvocation is how many columns an invocation processes. lavapipe ends nested loops after 65535 iterations in total.
	columnsPerInvocation = 16
)

// A Scatter writes rows of values to destinations, or combines them with the old values there. If rows have the same destination, the last
// one is written, and combinations happen in row order. With SumFirst, the rows of a destination are summed first, average divides the sum
// by their number, and the result is added to the old value.
type Scatter struct {
	Dest              core.Memory // the destination of each row: the index of its first element in out's slab, or NoIndex
	Lines, N          int         // number of lines, and of rows in each; rows with one destination are in the same line
	Mode              contract.ScatterMode
	SumFirst, average bool

	out           *core.Operand
	row           core.Operand // dimensions of a row of out
	values        *core.Operand
	front, inside core.Operand // dimensions of values before those of a row, and those of a row
	width         int
	step, bits    int // destinations are multiples of step from out's first element on, and bits is the size of these numbers
}

// Rows sets out and values. front is the number of out's dimensions before those of a row, lead that of values'.
func (p *Scatter) Rows(out *core.Operand, front int, values *core.Operand, lead int) *Scatter {
	p.out, p.row, p.values = out, shader.Trailing(out, front), values
	p.width = core.Numel(p.row.Shape)
	last := 0
	for d, n := range out.Shape[:front] {
		if n > 1 {
			p.step = gcd(p.step, out.Strides[d])
			last += (n - 1) * out.Strides[d]
		}
	}
	p.step = max(p.step, 1)
	p.bits = bits.Len(uint(last/p.step + 1))
	p.front, p.inside = core.Operand{IsNumber: true, Shape: []int{p.Lines * p.N}}, core.Operand{IsNumber: true}
	if !values.IsNumber {
		p.front, p.inside = shader.Leading(values, lead), shader.Trailing(values, lead)
	}
	return p
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// none returns the number that stands for NoIndex among the numbers of destinations. It is larger than all of them.
func (p *Scatter) none() int { return 1<<p.bits - 1 }

// Run scatters the rows that Rows has set.
func (p *Scatter) Run(r *shader.Recorder) error {
	if p.Lines*p.N == 0 || p.width == 0 {
		return nil
	}
	if p.Lines == 1 && p.N <= r.GPU.SearchedRows {
		return p.search(r)
	}
	e, err := primitive.SortLines(r, "places", p.Lines, p.N, p.N, p.bits, false, func(s *shader.Builder) func(w *shader.Text) {
		from, size, first, step, none := s.WordsOf("dest", p.Dest), s.Uint(p.N), s.Uint(int(shader.Base(p.out))), s.Uint(p.step), s.Uint(p.none())
		return func(w *shader.Text) {
			w.Func("key_of(line: u32, index: u32) -> pair", `let place = dest[%s + line * %s + index];
  return pair(0u, select((place - %s) / %s, %s, place == %s));`, from, size, first, step, none, shader.NoIndex)
		}
	})
	if err != nil {
		return err
	}
	if p.Mode == contract.ScatterAssign {
		return p.assign(r, e)
	}
	return p.combine(r, e)
}

// A scatterText has the text for an element of a row. at defines in_0, its index in out, from the row's destination place and the column q.
// read is the expression for the value of row o there.
type scatterText struct {
	t        expr.Type
	at, read string
}

// bind binds out and values. It returns a function that declares the index of a row of values.
func (p *Scatter) bind(s *shader.Builder) func(w *shader.Text) scatterText {
	t := shader.ComputeType(p.out.DType)
	s.InOut("y", p.out, t)
	value, first := "", "0u"
	if s.Flag(p.values.IsNumber) {
		if t == expr.F32 {
			value = s.Float(p.values.Number.Float)
		} else {
			value = s.Long(p.values.Number.Int)
		}
	} else {
		first = s.In("v", p.values, t, expr.Number)
	}
	s.Specialize(int(p.Mode))
	s.Flag(p.SumFirst)
	s.Flag(p.average)
	outer, inner := shader.NewLoop(p.front.Shape, &p.front), shader.NewLoop(p.row.Shape, &p.row, &p.inside)
	outerRank, innerRank := s.Specialize(len(outer.Sizes)), s.Specialize(len(inner.Sizes))
	outerAt, innerAt := s.Loop(&outer), s.Loop(&inner)
	return func(w *shader.Text) scatterText {
		read := value
		if read == "" {
			read = "ld_v(value_row(o) + in_1)"
		}
		w.Func("value_row(o: u32) -> u32", "%s  return at_0;", shader.WalkAs("at_", "o", outerRank, 1, outerAt, []string{first}))
		return scatterText{t: t, at: shader.WalkAs("in_", "q", innerRank, 2, innerAt, []string{"place", "0u"}), read: read}
	}
}

// finish returns statements that store sum, of a number of terms.
func (p *Scatter) finish(terms string) string {
	text := ""
	if p.average {
		text += fmt.Sprintf("    sum = sum / real(%s);\n", terms)
	}
	if p.SumFirst {
		text += "    sum = ld_y(in_0) + sum;\n"
	}
	return fmt.Sprintf("%s    st_y(in_0, sum);\n", text)
}

// start returns the expression that the first value is combined with.
func (p *Scatter) start() string {
	if p.SumFirst {
		return "0.0"
	}
	return "ld_y(in_0)"
}

// search scatters few rows.
func (p *Scatter) search(r *shader.Recorder) error {
	s := shader.New(r, "put few rows")
	from, count, width := s.WordsOf("dest", p.Dest), s.Uint(p.N), s.Uint(p.width)
	bound := p.bind(s)
	chunks := s.Uint(shader.Ceil(p.width, 64*columnsPerInvocation))
	room := s.Specialize(max(1<<bits.Len(uint(p.N-1)), 64))
	return s.Run(r, p.N*shader.Ceil(p.width, 64*columnsPerInvocation), func(w *shader.Text) {
		text := bound(w)
		begin, end := "0u", "row"
		if p.Mode == contract.ScatterAssign {
			begin, end = "row + 1u", count
		}
		w.Shared("found", shader.AtomicWord)
		if p.Mode != contract.ScatterAssign {
			w.Shared("counts", "u32", 64)
			w.Shared("list", "u32", room)
		}
		w.Main(64)
		w.Add(`  let row = group / %s;
  if (row >= %s) { return; }
  let place = dest[%s + row];
  if (place == %s) { return; }`, chunks, count, from, shader.NoIndex)
		w.Add("  if (li == 0u) { %s; }", w.AtomicStore("found", "0u"))
		w.Barrier()
		w.Add("  for (var o = %s + li; o < %s; o += 64u) { if (dest[%s + o] == place) { %s; } }", begin, end, from, w.AtomicStore("found", "1u"))
		w.Barrier()
		w.Add("  if (%s == 1u) { return; }", w.AtomicLoad("found"))
		columns := fmt.Sprintf("  let first = (group %% %[1]s) * %[2]du;\n  for (var q = first + li; q < min(first + %[2]du, %[3]s); q += 64u) {\n", chunks, 64*columnsPerInvocation, width) + text.at
		if p.Mode == contract.ScatterAssign {
			w.Put(columns)
			w.Add("    let o = row;\n    st_y(in_0, %s);\n  }", text.read)
			return
		}
		// Each invocation counts the rows with this destination in its range of rows, and lists them behind those of earlier ranges, so
		// that the list is in row order.
		w.Add(`  let stretch = (%[1]s - row + 63u) / 64u;
  let begin = row + li * stretch;
  let end = min(begin + stretch, %[1]s);
  var mine = 0u;
  for (var o = begin; o < end; o++) { if (dest[%[2]s + o] == place) { mine++; } }
  counts[li] = mine;`, count, from)
		w.Barrier()
		w.Add(`  var at = 0u;
  var terms = 0u;
  for (var k = 0u; k < 64u; k++) { if (k == li) { at = terms; } terms += counts[k]; }
  for (var o = begin; o < end; o++) { if (dest[%s + o] == place) { list[at] = o; at++; } }`, from)
		w.Barrier()
		w.Put(columns)
		w.Add(`    var sum = %s;
    for (var e = 0u; e < terms; e++) { let o = list[e]; let v = %s; sum = %s; }`, p.start(), text.read, shader.Combine(p.Mode, text.t, "sum", "v"))
		w.Put(p.finish("terms"))
		w.Add("  }")
	})
}

// distribute divides rows and columns between workgroups. It returns the number of workgroups, and a function that writes the main
// function: head runs once for entry j with its destination place, body for every column q of the invocation.
func (p *Scatter) distribute(s *shader.Builder, e *primitive.Entries) (groups int, main func(w *shader.Text, head, body string)) {
	side := s.Specialize(min(1<<bits.Len(uint(p.width-1)), 64))
	blocks := shader.Ceil(p.width, side*columnsPerInvocation)
	count, blocksWord, width := s.Uint(e.Capacity), s.Uint(blocks), s.Uint(p.width)
	start, step, none := s.Uint(int(shader.Base(p.out))), s.Uint(p.step), s.Uint(p.none())
	return shader.Ceil(e.Capacity, 64/side) * blocks, func(w *shader.Text, head, body string) {
		w.Main(64)
		w.Add(`  let j = (group / %s) * %du + li / %du;
  if (j >= %s) { return; }`, blocksWord, 64/side, side, count)
		w.Add(`  let column = (group %% %s) * %du;
  let last = min(column + %du, %s);`, blocksWord, side*columnsPerInvocation, side*columnsPerInvocation, width)
		w.Add(`  let number = sorted_key(j).y;
  if (number == %s) { return; }
  let place = %s + number * %s;`, none, start, step)
		w.Put(head)
		w.Add("  for (var q = column + li %% %du; q < last; q += %du) {", side, side)
		w.Put(body)
		w.Add("  }")
	}
}

// rowOf returns a function that declares row_of(j), the row of a sorted entry.
func (p *Scatter) rowOf(s *shader.Builder) func(w *shader.Text) {
	size := s.Uint(p.N)
	return func(w *shader.Text) {
		w.Func("row_of(j: u32) -> u32", "return (j / %s) * %s + sorted_index(j);", size, size)
	}
}

// assign writes the last row of each run.
func (p *Scatter) assign(r *shader.Recorder, e *primitive.Entries) error {
	s := shader.New(r, "put last rows")
	sorted, rowOf := e.Bind(s, "sorted"), p.rowOf(s)
	bound := p.bind(s)
	groups, main := p.distribute(s, e)
	size, room := s.Uint(p.N), s.Uint(e.Capacity)
	return s.Run(r, groups, func(w *shader.Text) {
		sorted(w)
		rowOf(w)
		text := bound(w)
		main(w, fmt.Sprintf(`  if (j + 1u < %s && (j + 1u) %% %s != 0u && sorted_key(j + 1u).y == number) { return; }
  let o = row_of(j);
`, room, size), fmt.Sprintf("%s    st_y(in_0, %s);\n", text.at, text.read))
	})
}

// extents returns two words for each entry: its position in its run, and the length of the run.
func (p *Scatter) extents(r *shader.Recorder, e *primitive.Entries) (core.Memory, error) {
	m, err := r.Temp(8 * e.Capacity)
	if err != nil {
		return m, err
	}
	s := shader.New(r, "extents of runs")
	sorted, to, count, size := e.Bind(s, "sorted"), s.WordsOf("extents", m), s.Uint(e.Capacity), s.Uint(p.N)
	return m, s.Run(r, shader.GroupsFor(e.Capacity), func(w *shader.Text) {
		// The first entry of the line, from index from on, whose key satisfies test.
		search := func(name, from, to, test string) string {
			return fmt.Sprintf(`
  var %[1]s = %[2]s;
  {
    var high = %[3]s;
    for (var k = 0u; k < 32u && %[1]s < high; k++) {
      let middle = (%[1]s + high) / 2u;
      if (sorted_key(middle).y %[4]s mine) { high = middle; } else { %[1]s = middle + 1u; }
    }
  }
`, name, from, to, test)
		}
		sorted(w)
		w.Each(count)
		w.Add(`  let mine = sorted_key(i).y;
  let line = i - i %% %s;`, size)
		w.Put(search("first", "line", "i", ">="))
		w.Put(search("end", "i + 1u", "line + "+size, ">"))
		w.Add(`  extents[%s + 2u * i] = i - first;
  extents[%s + 2u * i + 1u] = end - first;`, to, to)
	})
}

// combine combines each run, level by level. The partial result of a piece is kept in a slot. There are two slots for each runPiece
// entries: at most one later piece of a run begins there, and at most one run that is longer than a piece.
func (p *Scatter) combine(r *shader.Recorder, e *primitive.Entries) error {
	extents, err := p.extents(r, e)
	if err != nil {
		return err
	}
	words := 1
	if shader.ComputeType(p.out.DType) == expr.I64 || r.Float64 {
		words = 2
	}
	var parts core.Memory
	if p.N > runPiece {
		if parts, err = r.Temp(4 * words * 2 * shader.Ceil(e.Capacity, runPiece) * p.width); err != nil {
			return err
		}
	}
	for span := 1; span == 1 || span < p.N; span *= runPiece {
		if err := p.level(r, e, extents, parts, span); err != nil {
			return err
		}
	}
	return nil
}

// level combines the pieces of runs whose elements stand for span entries each.
func (p *Scatter) level(r *shader.Recorder, e *primitive.Entries, extents, parts core.Memory, span int) error {
	s := shader.New(r, "put runs of rows")
	sorted, rowOf, extent := e.Bind(s, "sorted"), p.rowOf(s), s.WordsOf("extents", extents)
	bound := p.bind(s)
	groups, main := p.distribute(s, e)
	spanWord, width := s.Uint(span), s.Uint(p.width)
	part, first, long := "", s.Flag(span == 1), s.Flag(parts.Handle != 0)
	if long {
		part = s.WordsOf("parts", parts)
	}
	return s.Run(r, groups, func(w *shader.Text) {
		sorted(w)
		rowOf(w)
		text := bound(w)
		if long {
			w.Func("slot(j: u32, later: bool, q: u32) -> u32", "return (2u * (j / %du) + select(1u, 0u, later)) * %s + q;", runPiece, width)
			switch {
			case text.t == expr.F32 && r.Float64:
				w.Func("ld_part(i: u32) -> real", "return bitcast<real>(pair(parts[%[1]s + 2u * i], parts[%[1]s + 2u * i + 1u]));", part)
				w.Func("st_part(i: u32, v: real)", "let b = bitcast<pair>(v);\n  parts[%[1]s + 2u * i] = b.x; parts[%[1]s + 2u * i + 1u] = b.y;", part)
			case text.t == expr.F32:
				w.Func("ld_part(i: u32) -> real", "return bitcast<real>(parts[%s + i]);", part)
				w.Func("st_part(i: u32, v: real)", "parts[%s + i] = bitcast<u32>(v);", part)
			default:
				w.Func("ld_part(i: u32) -> pair", "return pair(parts[%[1]s + 2u * i], parts[%[1]s + 2u * i + 1u]);", part)
				w.Func("st_part(i: u32, v: pair)", "parts[%[1]s + 2u * i] = v.x; parts[%[1]s + 2u * i + 1u] = v.y;", part)
			}
		}
		take := "let v = ld_part(slot(j + m * " + spanWord + ", true, q));"
		begin := "    var sum = ld_part(slot(j, rank > 0u, q));\n    let m0 = 1u;\n"
		skip := fmt.Sprintf("  if (size <= %s) { return; }\n", spanWord)
		if first {
			take = "let o = row_of(j + m); let v = " + text.read + ";"
			begin = fmt.Sprintf(`    var sum = %s;
    var m0 = 0u;
`, p.start())
			if long {
				begin += fmt.Sprintf("    if (rank > 0u) { let o = row_of(j); sum = %s; m0 = 1u; }\n", text.read)
			}
			skip = ""
		}
		end := p.finish("size")
		if long {
			end = fmt.Sprintf(`    if (rank > 0u || size > %du * %s) { st_part(slot(j, rank > 0u, q), sum); continue; }
%s`, runPiece, spanWord, end)
		}
		main(w, fmt.Sprintf(`  let rank = extents[%[1]s + 2u * j];
  let size = extents[%[1]s + 2u * j + 1u];
  if (rank %% (%[2]du * %[3]s) != 0u) { return; }
%[4]s  let terms = min(%[2]du, (size - rank + %[3]s - 1u) / %[3]s);
`, extent, runPiece, spanWord, skip), fmt.Sprintf(`%s%s    for (var m = m0; m < terms; m++) { %s sum = %s; }
%s`, text.at, begin, take, shader.Combine(p.Mode, text.t, "sum", "v"), end))
	})
}
