package indexing

import (
	"math/bits"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

const (
	// placeBits is the number of bits for the place of an element in its line, in an item that also has its index.
	placeBits = 12
	// lineItems is how many elements of a line an invocation has at most.
	lineItems = 1 << placeBits / shader.Threads
)

// sortsLines reports whether a workgroup can scatter a line of a length to a line of a size: items must fit a word.
func sortsLines(gpu *shader.Device, length, size int) bool {
	return length <= 1<<placeBits && size <= 1<<(32-placeBits) && primitive.OrderBytes(lineItems)+12*shader.Threads <= gpu.WorkgroupStorage
}

// without returns an operand without a dimension.
func without(o *core.Operand, dim int) core.Operand {
	v := *o
	v.Shape, v.Strides = slices.Delete(slices.Clone(o.Shape), dim, dim+1), slices.Delete(slices.Clone(o.Strides), dim, dim+1)
	return v
}

// scatterLines is scatterCall for lines that a workgroup sorts by index in its own memory. Each invocation then combines the values of a
// stretch of the sorted line. If a run of one index goes over several stretches, the invocation at its beginning adds the results of the
// others, in order.
func scatterLines(r *shader.Recorder, c *core.Call) error {
	out, index, src := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	dim, mode := contract.ScatterOf(c).Dim, contract.ScatterOf(c).Mode
	length, size := index.Shape[dim], out.Shape[dim]
	to := *out
	to.Shape = index.Shape
	lineIndex, lineOut, lineSrc, srcStep := without(index, dim), without(&to, dim), core.Operand{IsNumber: true}, 0
	if !src.IsNumber {
		from := *src
		from.Shape = index.Shape
		lineSrc, srcStep = without(&from, dim), src.Strides[dim]
	}
	each := 1
	for each*shader.Threads < length {
		each *= 2
	}
	s := shader.New(r, "scatter lines")
	t := shader.ComputeType(out.DType)
	j, y := s.In("index", index, expr.I64, expr.Number), s.InOut("y", out, t)
	value, first := "", "0u"
	if s.Flag(src.IsNumber) {
		if value = s.Float(src.Number.Float); t == expr.I64 {
			value = s.Long(src.Number.Int)
		}
	} else {
		first = s.In("v", src, t, expr.Number)
	}
	l := shader.NewLoop(lineIndex.Shape, &lineIndex, &lineOut, &lineSrc)
	inner := s.Uint(core.Numel(index.Shape[dim+1:]))
	count, lengthWord, sizeWord := s.Uint(l.Count), s.Uint(length), s.Uint(size)
	indexStep, outStep, srcStepWord := s.Uint(index.Strides[dim]), s.Uint(out.Strides[dim]), s.Uint(srcStep)
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error { return outOfRange(c, at, dim, size) })
	s.Specialize(int(mode))
	s.Specialize(each)
	significant := s.Specialize((bits.Len(uint(size-1)) + 3) / 4 * 4)
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	return s.Run(r, l.Count, func(w *shader.Text) {
		read := value
		if read == "" {
			read = "ld_v(at_2 + (item & 0xfffu) * " + srcStepWord + ")"
		}
		typ := shader.TypeName(t, expr.Number)
		primitive.OrderFunc(w, each, "v >> shift")
		if mode != contract.ScatterAssign {
			w.Shared("heads", typ, shader.Threads)
			w.Shared("goes_on", "u32", shader.Threads)
			w.Func("combined(sum: "+typ+", v: "+typ+") -> "+typ, "return %s;", shader.Combine(mode, t, "sum", "v"))
		}
		w.EachGroup(shader.Threads, count)
		w.Put(shader.WalkAs("at_", "group", rank, 3, at, []string{j, y, first}))
		w.Add(`  for (var o = li; o < %[1]du; o += %[2]du) {
    var item = 0xfffff000u | o; // surplus items come last
    if (o < %[3]s) {
      var ok = true;`, each*shader.Threads, shader.Threads, lengthWord)
		w.Put(shader.CheckIndex("k", "ld_index(at_0 + o * "+indexStep+")", sizeWord, false))
		w.Add(`      if (!ok) { %[1]s }
      item = (k << %[2]du) | o;
    }
    list[slot(o)] = item;
  }`, fault("(((group / "+inner+") * "+lengthWord+" + o) * "+inner+" + group % "+inner+")"), placeBits)
		w.Barrier()
		w.Put(primitive.OrderAll(placeBits, placeBits+significant))
		if mode == contract.ScatterAssign {
			w.Add(`  for (var i = li; i < %[1]s; i += %[2]du) {
    let item = list[slot(i)];
    if (i + 1u >= %[1]s || (list[slot(i + 1u)] >> %[3]du) != (item >> %[3]du)) { st_y(at_1 + (item >> %[3]du) * %[4]s, %[5]s); }
  }`, lengthWord, shader.Threads, placeBits, outStep, read)
			return
		}
		w.Add(`  let begin = li * %[1]du;
  let end = min(begin + %[1]du, %[2]s);
  var sum: %[3]s;
  var own = true; // the run begins in this stretch
  var open = false; // it goes on behind it
  var place = at_1;
  goes_on[li] = 0u;
  for (var i = begin; i < end; i++) {
    let item = list[slot(i)];
    let k = item >> %[4]du;
    let v = %[5]s;
    let starts = i == 0u || (list[slot(max(i, 1u) - 1u)] >> %[4]du) != k;
    place = at_1 + k * %[6]s;
    if (starts) { own = true; sum = combined(ld_y(place), v); }
    else if (i == begin) { own = false; sum = v; }
    else { sum = combined(sum, v); }
    let more = i + 1u < %[2]s && (list[slot(min(i + 1u, %[2]s - 1u))] >> %[4]du) == k;
    if (!more && own) { st_y(place, sum); }
    if (!own && (!more || i + 1u == end)) { heads[li] = sum; goes_on[li] = select(0u, 1u, more); }
    open = more && i + 1u == end;
  }`, each, lengthWord, typ, placeBits, read, outStep)
		w.Barrier()
		w.Add(`  if (!open || !own) { return; }
  var t = li + 1u;
  for (; t < %[1]du; t++) {
    sum = combined(sum, heads[t]);
    if (goes_on[t] == 0u) { break; }
  }
  st_y(place, sum);`, shader.Threads)
	})
}
