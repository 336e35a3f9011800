package sorting

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel"
	"github.com/plait-ml/plait/gpu/kernel/indexing"
	"github.com/plait-ml/plait/gpu/shader"
)

func init() {
	kernel.Register(contract.BinCount, binCountCall)
	kernel.Register(contract.HistC, histCCall)
}

const (
	// ownBins is the number of bins up to which workgroups count in their own memory.
	ownBins = 4096
	// countingGroups is how many workgroups do so at most, if none gets too many elements.
	countingGroups = 1024
)

// histogram counts in out, int64, how many of n elements fall into each bin. bind adds the elements to a program and returns a function
// that declares bin_of(i), which is a bin or NoIndex. Counts are integers, so the order of additions does not affect them.
func histogram(r *shader.Recorder, name string, n int, out *core.Operand, bind func(s *shader.Builder) func(w *shader.Text)) error {
	bins := out.Numel()
	if bins == 0 {
		return nil
	}
	counts, err := r.Temp(4 * bins)
	if err != nil {
		return err
	}
	r.Clear(shader.F32Operand(counts, 0, bins))
	s := shader.New(r, name)
	bin := bind(s)
	to, count := s.AtomicsOf("counts", counts), s.Uint(n)
	// With few bins, a workgroup counts many elements in its own memory first, where additions to one bin collide less.
	groups, share := shader.GroupsFor(n), shader.Threads
	own := s.Flag(bins <= ownBins && n >= 16*bins)
	if own {
		groups = min(max(n/(8*max(bins, shader.Threads)), 1), countingGroups)
		groups = max(groups, shader.Ceil(n, shader.MaxLoop*shader.Threads))
		share = shader.Ceil(n, groups)
	}
	shareWord, binsWord, groupsWord := s.Uint(share), s.Uint(bins), s.Uint(groups)
	err = s.Run(r, groups, func(w *shader.Text) {
		bin(w)
		if !own {
			w.Each(count)
			w.Add(`  let bin = bin_of(i);
  if (bin != %s) { %s; }`, shader.NoIndex, w.AtomicAdd("counts["+to+" + bin]", "1u"))
			return
		}
		w.Shared("own", shader.AtomicWord, ownBins)
		w.EachGroup(shader.Threads, groupsWord)
		w.Add("  for (var bin = li; bin < %s; bin += %du) { %s; }", binsWord, shader.Threads, w.AtomicStore("own[bin]", "0u"))
		w.Barrier()
		w.Add(`  let last = min((group + 1u) * %[1]s, %[2]s);
  for (var i = group * %[1]s + li; i < last; i += %[3]du) {
    let bin = bin_of(i);
    if (bin != %[4]s) { %[5]s; }
  }`, shareWord, count, shader.Threads, shader.NoIndex, w.AtomicAdd("own[bin]", "1u"))
		w.Barrier()
		w.Add(`  for (var bin = li; bin < %s; bin += %du) {
    let times = %s;
    if (times > 0u) { %s; }
  }`, binsWord, shader.Threads, w.AtomicLoad("own[bin]"), w.AtomicAdd("counts["+to+" + bin]", "times"))
	})
	if err != nil {
		return err
	}
	s = shader.New(r, "histogram")
	y, from, total := s.Out("y", out, expr.I64, expr.Number), s.WordsOf("counts", counts), s.Uint(bins)
	return s.Run(r, shader.GroupsFor(bins), func(w *shader.Text) {
		w.Each(total)
		w.Add("  st_y(%s + i, pair(counts[%s + i], 0u));", y, from)
	})
}

func histCCall(r *shader.Recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	return histogram(r, "histc", in.Numel(), out, func(s *shader.Builder) func(w *shader.Text) {
		a := contract.HistCOf(c)
		x, low, high, span, bins := s.In("x", in, expr.F32, expr.Number), s.Float(a.Low), s.Float(a.High), s.Float(a.High-a.Low), s.Uint(out.Numel())
		return func(w *shader.Text) {
			w.Func("bin_of(i: u32) -> u32", `let v = ld_x(%[1]s + i);
  if (!(v >= %[2]s && v <= %[3]s)) { return %[4]s; }
  return min(u32((v - %[2]s) * real(%[6]s) / %[5]s), %[6]s - 1u);`, x, low, high, shader.NoIndex, span, bins)
		}
	})
}

// binCountCall: Outs[0] = how often each number below its size occurs in the int64 vector Ins[0], or the sums of the weights Ins[1] for
// each number.
func binCountCall(r *shader.Recorder, c *core.Call) error {
	in, out := &c.Ins[0], &c.Outs[0]
	if len(c.Ins) > 1 && c.Ins[1].Present() {
		return weightedBins(r, c)
	}
	return histogram(r, "bincount", in.Numel(), out, func(s *shader.Builder) func(w *shader.Text) {
		x, bins := s.In("x", in, expr.I64, expr.Number), s.Uint(out.Numel())
		return func(w *shader.Text) {
			w.Func("bin_of(i: u32) -> u32", "let v = ld_x(%s + i);\n  return select(%s, v.x, v.y == 0u && v.x < %s);", x, shader.NoIndex, bins)
		}
	})
}

// weightedBins adds the weights of each bin in the order of the elements.
func weightedBins(r *shader.Recorder, c *core.Call) error {
	in, weights, out := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	if out.Numel() == 0 {
		return nil
	}
	r.Clear(out)
	if in.Numel() == 0 {
		return nil
	}
	dest, err := indexing.Destinations(r, c, out, c.Ins[:1], false, -1, []int64{0})
	if err != nil {
		return err
	}
	p := indexing.Scatter{Dest: dest, Lines: 1, N: in.Numel(), Mode: contract.ScatterAdd, SumFirst: true}
	return p.Rows(out, 1, weights, 1).Run(r)
}
