package indexing

import (
	"slices"
	"strconv"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/copying"
	"github.com/plait-ml/plait/gpu/shader"
)

// Destinations returns, for each tuple of indices into the leading dimensions of out, the index of the first selected element in out's
// slab, or NoIndex if the first index is skip. Indices out of range are errors, which name dimensions by names.
func Destinations(r *shader.Recorder, c *core.Call, out *core.Operand, index []core.Operand, wrap bool, skip int64, names []int64) (core.Memory, error) {
	n, k := index[0].Numel(), len(index)
	m, err := r.Temp(4 * max(n, 1))
	if err != nil {
		return m, err
	}
	if k > maxIndices {
		return m, core.Errorf(core.NotImplemented, c.Op, "%d index tensors are more than a program binds, %d", k, maxIndices)
	}
	s := shader.New(r, "destinations")
	to, count, first := s.WordsOf("dest", m), s.Uint(n), s.Uint(int(shader.Base(out)))
	var operands []*core.Operand
	var starts, sizes, steps []string
	for i := range index {
		operands = append(operands, &index[i])
		starts = append(starts, s.In("index"+strconv.Itoa(i), &index[i], expr.I64, expr.Number))
		sizes, steps = append(sizes, s.Uint(out.Shape[i])), append(steps, s.Uint(out.Strides[i]))
	}
	names = slices.Clone(names)
	fault := s.Faults(r, c, func(c *core.Call, at uint32) error {
		return outOfRange(c, at/8, int(names[at%8]), c.Outs[0].Shape[at%8])
	})
	s.Flag(wrap)
	s.Specialize(k)
	skipWord := s.Long(skip)
	skips := s.Flag(skip >= 0)
	l := shader.NewLoop(index[0].Shape, operands...)
	rank := s.Specialize(len(l.Sizes))
	at := s.Loop(&l)
	return m, s.Run(r, shader.GroupsFor(n), func(w *shader.Text) {
		w.Each(count)
		w.Add("  var dest_at = %s;", first)
		w.Put(shader.Walk(rank, k, at, starts))
		w.Add("  var ok = true;")
		for i := range k {
			n := strconv.Itoa(i)
			w.Put(shader.CheckIndex("k"+n, "ld_index"+n+"(at_"+n+")", sizes[i], wrap))
			w.Add(`  if (!ok) { %s dest[%s + i] = %s; return; }
  dest_at = dest_at + k%s * %s;`, fault("(i * 8u + "+n+"u)"), to, shader.NoIndex, n, steps[i])
		}
		if skips {
			w.Add("  if (all(raw_k0 == %s)) { dest_at = %s; }", skipWord, shader.NoIndex)
		}
		w.Add("  dest[%s + i] = dest_at;", to)
	})
}

func indexPutCall(r *shader.Recorder, c *core.Call) error {
	out, index, a := &c.Outs[0], c.Ins[1:], contract.IndexPutOf(c)
	n := index[0].Numel()
	if n == 0 {
		return nil
	}
	dest, err := Destinations(r, c, out, index, a.Wrap, -1, a.Dims)
	if err != nil {
		return err
	}
	p := Scatter{Dest: dest, Lines: 1, N: n, Mode: a.Mode}
	return p.Rows(out, len(index), &c.Ins[0], len(index[0].Shape)).Run(r)
}

func embeddingBackwardCall(r *shader.Recorder, c *core.Call) error {
	out, a := &c.Outs[0], contract.EmbeddingBackwardOf(c)
	if !a.Add {
		zero := core.Call{Op: c.Op, Outs: []core.Operand{*out}, Ins: []core.Operand{{IsNumber: true}}}
		if err := copying.Copy(r, &zero); err != nil {
			return err
		}
	}
	n := c.Ins[1].Numel()
	if n == 0 {
		return nil
	}
	dest, err := Destinations(r, c, out, c.Ins[1:2], false, int64(a.Padding), []int64{0})
	if err != nil {
		return err
	}
	p := Scatter{Dest: dest, Lines: 1, N: n, Mode: contract.ScatterAdd, SumFirst: true, average: a.ByFrequency}
	return p.Rows(out, 1, &c.Ins[0], len(c.Ins[1].Shape)).Run(r)
}
