// Package indexing has the GPU kernels that gather, scatter and select by indices and masks.
package indexing

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.Gather, gatherCall)
	kernel.Register(contract.Scatter, scatterCall)
	kernel.Register(contract.Index, indexCall)
	kernel.Register(contract.IndexPut, indexPutCall)
	kernel.Register(contract.OneHot, oneHotCall)
	kernel.Register(contract.BagIndices, bagIndicesCall)
	kernel.Register(contract.EmbeddingBackward, embeddingBackwardCall)
}

func outOfRange(c *core.Call, at uint32, dim, size int) error {
	return core.Errorf(core.IndexError, c.Op, "the index at position %d is out of range for dimension %d of size %d", at, dim, size)
}

func gatherCall(r *shader.Recorder, c *core.Call) error {
	out, in, index := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	dim := contract.Dim(c)
	if out.Numel() == 0 {
		return nil
	}
	from := *in // the index gives the position along dim
	size, stride := 1, 0
	if len(in.Shape) > 0 {
		size, stride = in.Shape[dim], in.Strides[dim]
		from.Shape, from.Strides = out.Shape, append([]int{}, in.Strides...)
		from.Strides[dim] = 0
	}
	s := shader.New(r, "gather")
	t := shader.ComputeType(in.DType)
	x, j, y := s.In("x", in, t, expr.Number), s.In("index", index, expr.I64, expr.Number), s.Out("y", out, t, expr.Number)
	count, sizeWord, step := s.Uint(out.Numel()), s.Uint(size), s.Uint(stride)
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error { return outOfRange(c, at, dim, size) })
	l := shader.NewLoop(out.Shape, &from, index, out)
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	return s.Run(r, shader.GroupsFor(out.Numel()), func(w *shader.Text) {
		w.Each(count)
		w.Put(shader.Walk(rank, 3, at, []string{x, j, y}))
		w.Add("  var ok = true;")
		w.Put(shader.CheckIndex("k", "ld_index(at_1)", sizeWord, false))
		w.Add(`  if (!ok) { %s }
  st_y(at_2, ld_x(at_0 + k * %s));`, fault("i"), step)
	})
}

// oneHotColumns is how many elements an invocation writes: a division finds the row of the first only.
const oneHotColumns = 8

func oneHotCall(r *shader.Recorder, c *core.Call) error {
	out, index := &c.Outs[0], &c.Ins[0]
	dim, n := len(index.Shape), out.Numel()
	if n == 0 {
		return nil
	}
	size := out.Shape[dim]
	s := shader.New(r, "one_hot")
	j, y, count, classes := s.In("index", index, expr.I64, expr.Number), s.Out("y", out, expr.I64, expr.Number), s.Uint(n), s.Uint(size)
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error { return outOfRange(c, at, dim, size) })
	l := shader.NewLoop(index.Shape, index)
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	groups := shader.Ceil(n, oneHotColumns*shader.Threads)
	groupsWord := s.Uint(groups)
	return s.Run(r, groups, func(w *shader.Text) {
		w.Func("index_of(row: u32) -> pair", "%s  return ld_index(at_0);", shader.WalkAs("at_", "row", rank, 1, at, []string{j}))
		w.EachGroup(shader.Threads, groupsWord)
		w.Add(`  var i = group * %[2]du + li;
  if (i >= %[3]s) { return; }
  var row = i / %[1]s;
  var column = i - row * %[1]s;
  var index = index_of(row);
  for (var e = 0u; e < %[4]du && i < %[3]s; e++) {
    var ok = true;`, classes, oneHotColumns*shader.Threads, count, oneHotColumns)
		w.Put(shader.CheckIndex("k", "index", classes, false))
		w.Add(`    if (!ok) { %[1]s return; }
    st_y(%[2]s + i, pair(select(0u, 1u, k == column), 0u));
    i += %[4]du;
    column += %[4]du;
    if (column >= %[3]s && i < %[5]s) {
      row += column / %[3]s;
      column = column %% %[3]s;
      index = index_of(row);
    }
  }`, fault("row"), y, classes, shader.Threads, count)
	})
}

// shortLine is the length of a line up to which each of its elements compares its index with those of all others.
const shortLine = 64

// scatterCall scatters along a dimension. Of the elements of a line with the same destination, the first combines all of them in order;
// without a combination, the last is written.
func scatterCall(r *shader.Recorder, c *core.Call) error {
	out, index, src := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	dim, mode := contract.ScatterOf(c).Dim, contract.ScatterOf(c).Mode
	n := index.Numel()
	if n == 0 {
		return nil
	}
	size, stride, length, indexStep, srcStep := 1, 0, 1, 0, 0
	to := *out
	if len(index.Shape) > 0 && index.Shape[dim] > shortLine {
		if sortsLines(r.GPU, index.Shape[dim], out.Shape[dim]) {
			return scatterLines(r, c)
		}
		return scatterSorted(r, c)
	}
	if len(index.Shape) > 0 {
		size, stride, length, indexStep = out.Shape[dim], out.Strides[dim], index.Shape[dim], index.Strides[dim]
		to.Shape, to.Strides = index.Shape, append([]int{}, out.Strides...)
		to.Strides[dim] = 0
	}
	from := *src
	if !src.IsNumber {
		if len(index.Shape) > 0 {
			srcStep = src.Strides[dim]
		}
		from.Shape = index.Shape
	}
	s := shader.New(r, "scatter")
	t := shader.ComputeType(out.DType)
	j, y := s.In("index", index, expr.I64, expr.Number), s.InOut("y", out, t)
	value, first := "", "0u"
	if s.Flag(src.IsNumber) {
		if t == expr.F32 {
			value = s.Float(src.Number.Float)
		} else {
			value = s.Long(src.Number.Int)
		}
	} else {
		first = s.In("v", src, t, expr.Number)
	}
	count, sizeWord, step, lengthWord := s.Uint(n), s.Uint(size), s.Uint(stride), s.Uint(length)
	indexStepWord, srcStepWord := s.Uint(indexStep), s.Uint(srcStep)
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error { return outOfRange(c, at, dim, size) })
	s.Specialize(int(mode))
	l := shader.NewLoop(index.Shape, index, &to, &from)
	inner := s.Uint(core.Numel(index.Shape[min(dim+1, len(index.Shape)):]))
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		read := value
		if read == "" {
			read = "ld_v(v0 + o * " + srcStepWord + ")"
		}
		w.Each(count)
		w.Put(shader.Walk(rank, 3, at, []string{j, y, first}))
		w.Add("  var ok = true;")
		w.Put(shader.CheckIndex("k", "ld_index(at_0)", sizeWord, false))
		w.Add(`  if (!ok) { %s return; }
  let own = (i / %s) %% %s;
  let j0 = at_0 - own * %s;
  let v0 = at_2 - own * %s;`, fault("i"), inner, lengthWord, indexStepWord, srcStepWord)
		w.Add("  let at = at_1 + k * %s;", step)
		if mode == contract.ScatterAssign {
			w.Add(`  for (var o = own + 1u; o < %s; o++) { if (ld_index(j0 + o * %s).x == k) { return; } }
  let o = own;
  st_y(at, %s);`, lengthWord, indexStepWord, read)
			return
		}
		w.Add(`  for (var o = 0u; o < own; o++) { if (ld_index(j0 + o * %s).x == k) { return; } }
  var sum = ld_y(at);
  for (var o = own; o < %s; o++) {
    if (ld_index(j0 + o * %s).x == k) { let v = %s; sum = %s; }
  }
  st_y(at, sum);`, indexStepWord, lengthWord, indexStepWord, read, shader.Combine(mode, t, "sum", "v"))
	})
}

// scatterSorted is scatterCall for long lines.
func scatterSorted(r *shader.Recorder, c *core.Call) error {
	out, index, src := &c.Outs[0], &c.Ins[0], &c.Ins[1]
	dim := contract.ScatterOf(c).Dim
	n, length, size := index.Numel(), index.Shape[dim], out.Shape[dim]
	dest, err := r.Temp(4 * n)
	if err != nil {
		return err
	}
	to := *out // the index gives the position along dim
	to.Shape, to.Strides = index.Shape, slices.Clone(out.Strides)
	to.Strides[dim] = 0
	lined, toLined := shader.Innermost(index, dim), shader.Innermost(&to, dim)
	s := shader.New(r, "scatter destinations")
	j, words, count, first := s.In("index", index, expr.I64, expr.Number), s.WordsOf("dest", dest), s.Uint(n), s.Uint(int(shader.Base(out)))
	sizeWord, step, lengthWord, inner := s.Uint(size), s.Uint(out.Strides[dim]), s.Uint(length), s.Uint(core.Numel(index.Shape[dim+1:]))
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error { return outOfRange(c, at, dim, size) })
	l := shader.NewLoop(lined.Shape, &lined, &toLined)
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	err = s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Put(shader.Walk(rank, 2, at, []string{j, first}))
		w.Add("  var ok = true;")
		w.Put(shader.CheckIndex("k", "ld_index(at_0)", sizeWord, false))
		w.Add(`  if (!ok) {
    let line = i / %[1]s;
    let position = ((line / %[2]s) * %[1]s + i %% %[1]s) * %[2]s + line %% %[2]s;
    %[3]s
    dest[%[4]s + i] = %[5]s;
    return;
  }
  dest[%[4]s + i] = at_1 + k * %[6]s;`, lengthWord, inner, fault("position"), words, shader.NoIndex, step)
	})
	if err != nil {
		return err
	}
	values := *src
	if !src.IsNumber {
		values.Shape = index.Shape
		values = shader.Innermost(&values, dim)
	}
	p := Scatter{Dest: dest, Lines: n / length, N: length, Mode: contract.ScatterOf(c).Mode}
	return p.Rows(out, len(out.Shape), &values, len(index.Shape)).Run(r)
}

// indexVectors is how many vec4 an invocation copies.
const indexVectors = 4

// maxIndices is how many index tensors a program may bind.
const maxIndices = 5

func indexCall(r *shader.Recorder, c *core.Call) error {
	out, in := &c.Outs[0], &c.Ins[0]
	k := len(c.Ins) - 1
	if out.Numel() == 0 {
		return nil
	}
	if k > maxIndices {
		return core.Errorf(core.NotImplemented, c.Op, "%d index tensors are more than a program binds, %d", k, maxIndices)
	}
	front, wrap := len(c.Ins[1].Shape), contract.IndexOf(c).Wrap
	s := shader.New(r, "index")
	t := shader.ComputeType(in.DType)
	x, y := s.In("x", in, t, expr.Number), s.Out("y", out, t, expr.Number)
	outFront, outRest, inRest := shader.Leading(out, front), shader.Trailing(out, front), shader.Trailing(in, k)
	operands := []*core.Operand{&outFront}
	starts := []string{y}
	for i := range k {
		operands = append(operands, &c.Ins[1+i])
		starts = append(starts, s.In("index"+strconv.Itoa(i), &c.Ins[1+i], expr.I64, expr.Number))
	}
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error {
		return outOfRange(c, at/8, int(contract.IndexOf(c).Dims[at%8]), c.Ins[0].Shape[at%8])
	})
	s.Flag(wrap)
	s.Specialize(k)
	var sizes, steps []string
	for i := range k {
		sizes, steps = append(sizes, s.Uint(in.Shape[i])), append(steps, s.Uint(in.Strides[i]))
	}
	outer, inner := shader.NewLoop(outFront.Shape, operands...), shader.NewLoop(inRest.Shape, &inRest, &outRest)
	n := out.Numel()
	vec4 := s.Flag(copiesVec4(&outer, &inner, in, out, k))
	if vec4 {
		s.Bindings[0].Vec4, s.Bindings[1].Vec4 = true, true
		inner = inner.ByVec4()
		n /= 4
	}
	// Each invocation copies several vec4 of the same indices, if there are many: their loads are under way at the same time.
	each := 1
	if vec4 && inner.Count%indexVectors == 0 && n >= indexVectors*shader.SaturatingInvocations {
		each = indexVectors
		n /= each
	}
	s.Specialize(each)
	count, rest := s.Uint(n), s.Uint(inner.Count/each)
	single := s.Flag(inner.Count == 1)
	outerRank, innerRank := s.Specialize(len(outer.Sizes)), s.Specialize(len(inner.Sizes))
	outerAt, innerAt := s.Loop(&outer), s.Loop(&inner)
	return s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		if single {
			w.Add("  let b = i;\n  let q = 0u;")
		} else {
			w.Add("  let b = i / %[1]s;\n  let q = i - b * %[1]s;", rest)
		}
		w.Put(shader.WalkAs("at_", "b", outerRank, 1+k, outerAt, starts))
		w.Add("  var from_ = %s;", x)
		for i := range k {
			n := strconv.Itoa(i)
			w.Add(`  {
  var ok = true;`)
			w.Put(shader.CheckIndex("k"+n, "ld_index"+n+"(at_"+strconv.Itoa(1+i)+")", sizes[i], wrap))
			w.Add(`  if (!ok) { %s }
  from_ = from_ + k%s * %s;
  }`, fault("(b * 8u + "+n+"u)"), n, steps[i])
		}
		if !vec4 {
			w.Put(shader.WalkAs("in_", "q", innerRank, 2, innerAt, []string{"from_", "at_0"}))
			w.Add("  st_y(in_1, ld_x(in_0));")
			return
		}
		for e := range each {
			w.Add("  var v%[1]d: real4;\n  var to%[1]d: u32;\n  {", e)
			w.Put(shader.WalkAs("in_", fmt.Sprintf("q + %du * %s", e, rest), innerRank, 2, innerAt, []string{"from_", "at_0"}))
			w.Add("  v%[1]d = ld4_x(in_0 >> 2u);\n  to%[1]d = in_1 >> 2u;\n  }", e)
		}
		for e := range each {
			w.Add("  st4_y(to%[1]d, v%[1]d);", e)
		}
	})
}

// copiesVec4 reports whether the elements of in that k indices select are copied to out as vec4. outer is the loop over the indices, inner
// the loop over the elements of each.
func copiesVec4(outer, inner *shader.Loop, in, out *core.Operand, k int) bool {
	divides := func(n int) bool { return n%4 == 0 }
	last := len(inner.Sizes) - 1
	if last < 0 || !divides(inner.Sizes[last]) || !shader.Vec4(in) || !shader.Vec4(out) {
		return false
	}
	for _, s := range inner.Strides {
		if s[last] != 1 || !shader.All(s[:last], divides) {
			return false
		}
	}
	return shader.All(in.Strides[:k], divides) && shader.All(outer.Strides[0], divides)
}
