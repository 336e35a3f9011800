// Package sorting has the GPU kernels that sort, select, count and search.
package sorting

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/kernel/scan"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Sort, func(r *shader.Recorder, c *core.Call) error {
		return (&sorting{values: &c.Outs[0], indices: &c.Outs[1], largest: contract.SortOf(c).Descending}).run(r, c)
	})
	kernel.Register(contract.ArgSort, func(r *shader.Recorder, c *core.Call) error {
		return (&sorting{indices: &c.Outs[0], largest: contract.SortOf(c).Descending}).run(r, c)
	})
	kernel.Register(contract.TopK, func(r *shader.Recorder, c *core.Call) error {
		a := contract.TopKOf(c)
		return (&sorting{values: &c.Outs[0], indices: &c.Outs[1], largest: a.Largest, keep: a.K}).run(r, c)
	})
	one := func(k core.KernelID, keep func(c *core.Call) int, place string) {
		kernel.Register(k, func(r *shader.Recorder, c *core.Call) error {
			return (&sorting{values: &c.Outs[0], indices: &c.Outs[1], keep: keep(c), place: place}).run(r, c)
		})
	}
	all := func(*core.Call) int { return 0 }
	one(contract.KthValue, func(c *core.Call) int { return contract.PickOf(c).K }, "n - 1u")
	// If a line has a NaN, its median is the first NaN.
	one(contract.Median, all, "select((n - 1u) / 2u, numbers, numbers < n)")
	one(contract.NanMedian, all, "(max(numbers, 1u) - 1u) / 2u")
	kernel.Register(contract.Mode, modeCall)
	kernel.Register(contract.SearchSorted, searchSortedCall)
}

// A sorting sorts the lines of Ins[0] along dimension Ints[0]. It returns all elements, the first few, or the one at a position. place is
// the expression for that position, among n entries of which numbers are not NaN.
type sorting struct {
	values, indices *core.Operand
	largest         bool // descending order
	keep            int  // number of elements to return; 0 for all
	place           string
}

// numbers declares a function that counts the elements of a sorted line that are not NaN.
func numbers(w *shader.Text, d core.DType) {
	sign := "numbers_of(first: u32, n: u32) -> u32"
	if !d.IsFloat() {
		w.Func(sign, "return n;")
		return
	}
	w.Func(sign, `var low = 0u;
  var high = n;
  for (var k = 0u; k < 32u && low < high; k++) {
    let middle = (low + high) / 2u;
    if (sorted_key(first + middle).y == 0xffffffffu) { high = middle; } else { low = middle + 1u; }
  }
  return low;`)
}

// lineLoop returns the loop over the lines of in along dim and over the outputs, which have the dimension or lack it, and the outputs'
// stride along it.
func lineLoop(in *core.Operand, dim int, outs ...*core.Operand) (l shader.Loop, outStep int) {
	operands := []*core.Operand{in}
	for _, out := range outs {
		aligned := *out
		if len(out.Shape) == len(in.Shape) {
			_, outStep = scan.StepOf(out, dim)
		} else {
			aligned.Shape, aligned.Strides = in.Shape, append(append(append([]int{}, out.Strides[:dim]...), 0), out.Strides[dim:]...)
		}
		operands = append(operands, &aligned)
	}
	return scan.Lines(dim, operands...), outStep
}

// sortAlong sorts the lines of in along dim and keeps the first keep entries of each.
func sortAlong(r *shader.Recorder, in *core.Operand, dim, keep int, largest bool) (*primitive.Entries, error) {
	n, _ := scan.StepOf(in, dim)
	_, bits := primitive.SortKey(in.DType, "")
	return primitive.SortLines(r, "sort", in.Numel()/n, n, keep, bits, bits == 64, keysAlong(in, dim, largest))
}

// entries returns the sorted entries of lines of n elements that the results are taken from. If it finds the one at o.place, it clears that.
func (o *sorting) entries(r *shader.Recorder, in *core.Operand, dim, n int) (*primitive.Entries, error) {
	_, bits := primitive.SortKey(in.DType, "")
	p := primitive.Selection{Lines: in.Numel() / n, N: n, Keep: o.keep, Bits: bits, Place: o.place, NaN: in.DType.IsFloat()}
	if !p.Possible() {
		return sortAlong(r, in, dim, o.keep, o.largest)
	}
	o.place = ""
	return primitive.SelectLines(r, "sort", p, keysAlong(in, dim, o.largest))
}

// keysAlong returns a function that binds in, and returns one that declares key_of(line, index), for lines along dim.
func keysAlong(in *core.Operand, dim int, largest bool) func(s *shader.Builder) func(w *shader.Text) {
	_, step := scan.StepOf(in, dim)
	l := scan.Lines(dim, in)
	t := shader.ComputeType(in.DType)
	return func(s *shader.Builder) func(w *shader.Text) {
		x := s.In("x", in, t, expr.Number)
		stepWord := s.Uint(step)
		s.Flag(largest)
		rank := s.Specialize(len(l.Sizes))
		at := s.Loop(&l)
		return func(w *shader.Text) {
			key, _ := primitive.SortKey(in.DType, "ld_x(at_0 + index * "+stepWord+")")
			if largest {
				key = "~" + key
			}
			primitive.SortKeyFunc(w, t)
			w.Func("key_of(line: u32, index: u32) -> pair", "%s  return %s;", shader.WalkAs("at_", "line", rank, 1, at, []string{x}), key)
		}
	}
}

func (o *sorting) run(r *shader.Recorder, c *core.Call) error {
	in, dim := &c.Ins[0], contract.Dim(c)
	n, step := scan.StepOf(in, dim)
	if in.Numel() == 0 || o.indices.Numel() == 0 {
		return nil
	}
	if o.keep == 0 {
		o.keep = n
	}
	e, err := o.entries(r, in, dim, n)
	if err != nil {
		return err
	}
	t := shader.ComputeType(in.DType)
	s := shader.New(r, "sorted elements "+o.place)
	x, index := s.In("x", in, t, expr.Number), s.Out("index", o.indices, expr.I64, expr.Number)
	starts, outs := []string{x, index}, []*core.Operand{o.indices}
	if s.Flag(o.values != nil) {
		starts, outs = append(starts, s.Out("value", o.values, t, expr.Number)), append(outs, o.values)
	}
	sorted := e.Bind(s, "sorted")
	each1, count := e.LineLength(), o.indices.Numel()
	if o.place != "" {
		each1 = 1
	}
	total, perLine, size, stepWord := s.Uint(count), s.Uint(each1), s.Uint(e.LineLength()), s.Uint(step)
	l, outStep := lineLoop(in, dim, outs...)
	outWord := s.Uint(outStep)
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	return s.Run(r, shader.GroupsFor(count), func(w *shader.Text) {
		place, to, counted := "i % "+perLine, " + place * "+outWord, ""
		sorted(w)
		if o.place != "" {
			numbers(w, in.DType)
			place, to, counted = o.place, "", "  let numbers = numbers_of(first, n);\n"
		}
		w.Each(total)
		w.Add(`  let line = i / %s;
  let n = %s;
  let first = line * n;`, perLine, size)
		w.Add(`%s  let place = %s;
  let own = sorted_index(first + place);`, counted, place)
		w.Put(shader.WalkAs("at_", "line", rank, len(starts), at, starts))
		w.Add("  st_index(at_1%s, pair(own, 0u));", to)
		if o.values != nil {
			w.Add("  st_value(at_2%s, ld_x(at_0 + own * %s));", to, stepWord)
		}
	})
}

// modeCall: Outs[0], Outs[1] = the most frequent element of each line of Ins[0] along dimension Ints[0], the smallest of several, and the
// index of its last occurrence. It is the end of the longest run of equal keys.
func modeCall(r *shader.Recorder, c *core.Call) error {
	in, dim := &c.Ins[0], contract.Dim(c)
	n, step := scan.StepOf(in, dim)
	if in.Numel() == 0 {
		return nil
	}
	e, err := sortAlong(r, in, dim, n, false)
	if err != nil {
		return err
	}
	lengths, err := r.Temp(4 * e.Capacity)
	if err != nil {
		return err
	}
	s := shader.New(r, "lengths of runs")
	sorted, to := e.Bind(s, "sorted"), s.WordsOf("lengths", lengths)
	count, size := s.Uint(e.Capacity), s.Uint(n)
	err = s.Run(r, shader.GroupsFor(e.Capacity), func(w *shader.Text) {
		sorted(w)
		primitive.BeforeFunc(w)
		w.Each(count)
		w.Add(`  let own = i %% %s;
  let mine = sorted_key(i);
  if (own + 1u < %s && all(sorted_key(i + 1u) == mine)) { lengths[%s + i] = 0u; return; }
  let first = i - own;
  var low = 0u;
  var high = own;
  for (var k = 0u; k < 32u && low < high; k++) {
    let middle = (low + high) / 2u;
    if (before(sorted_key(first + middle), mine)) { low = middle + 1u; } else { high = middle; }
  }
  lengths[%s + i] = own + 1u - low;`, size, size, to, to)
	})
	if err != nil {
		return err
	}
	t := shader.ComputeType(in.DType)
	s = shader.New(r, "mode")
	starts := []string{s.In("x", in, t, expr.Number), s.Out("index", &c.Outs[1], expr.I64, expr.Number), s.Out("value", &c.Outs[0], t, expr.Number)}
	sorted, from := e.Bind(s, "sorted"), s.WordsOf("lengths", lengths)
	rows, size, stepWord := s.Uint(e.Lines), s.Uint(n), s.Uint(step)
	l, _ := lineLoop(in, dim, &c.Outs[1], &c.Outs[0])
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	width := primitive.RowThreads(n)
	s.Specialize(width / 64)
	return s.Run(r, e.Lines, func(w *shader.Text) {
		better := "select(b, a, a.x > b.x || (a.x == b.x && a.y < b.y))"
		sorted(w)
		w.Reduce("most", shader.Pair, better, width)
		w.EachGroup(width, rows)
		w.Add(`  var best = pair(0u, 0xffffffffu);
  for (var j = li; j < %s; j += %du) {
    let a = best;
    let b = pair(lengths[%s + group * %s + j], j);
    best = %s;
  }
  best = whole_most(li, best);
  if (li > 0u) { return; }`, size, width, from, size, better)
		w.Add("  let own = sorted_index(group * %s + best.y);", size)
		w.Put(shader.WalkAs("at_", "group", rank, 3, at, starts))
		w.Add(`  st_index(at_1, pair(own, 0u));
  st_value(at_2, ld_x(at_0 + own * %s));`, stepWord)
	})
}

// searchSortedCall: Outs[0] = the positions at which Ins[1] would be inserted into the lines of Ins[0], which are sorted, or whose order is
// Ins[2]; behind equal elements if Ints[0] is set.
func searchSortedCall(r *shader.Recorder, c *core.Call) error {
	in, values, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	n := 1
	if len(in.Shape) > 0 {
		n = in.Shape[len(in.Shape)-1]
	}
	each1 := 1 // values to search in each line
	if len(in.Shape) > 1 {
		each1 = values.Shape[len(values.Shape)-1]
	} else {
		each1 = max(values.Numel(), 1)
	}
	s := shader.New(r, "searchsorted")
	t := shader.ComputeType(in.DType)
	if values.DType.IsFloat() {
		t = expr.F32
	}
	x, v, y := s.In("x", in, t, expr.Number), s.In("v", values, t, expr.Number), s.Out("y", out, expr.I64, expr.Number)
	sorter := ""
	if s.Flag(len(c.Ins) > 2 && c.Ins[2].Present()) {
		sorter = s.In("order", &c.Ins[2], expr.I64, expr.Number)
	}
	right := s.Flag(contract.Right(c))
	if !in.Contiguous() || !values.Contiguous() || !out.Contiguous() {
		return core.Errorf(core.NotImplemented, c.Op, "%v searches contiguous tensors alone", r.GPU)
	}
	count, size, per := s.Uint(out.Numel()), s.Uint(n), s.Uint(each1)
	return s.Run(r, shader.GroupsFor(out.Numel()), func(w *shader.Text) {
		element := "ld_x(" + x + " + line + middle)"
		if sorter != "" {
			element = "ld_x(" + x + " + line + ld_order(" + sorter + " + line + middle).x)"
		}
		test := "before(key(e), mine)"
		if right {
			test = "!before(mine, key(e))"
		}
		primitive.SortKeyFunc(w, t)
		primitive.BeforeFunc(w)
		w.Each(count)
		w.Add(`  let line = (i / %s) * %s;
  let mine = key(ld_v(%s + i));
  var low = 0u;
  var high = %s;
  for (var k = 0u; k < 32u && low < high; k++) {
    let middle = (low + high) / 2u;
    let e = %s;`, per, size, v, size, element)
		w.Add(`    if (%s) { low = middle + 1u; } else { high = middle; }
  }
  st_y(%s + i, pair(low, 0u));`, test, y)
	})
}
