package collective

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

var combineKernel = core.Kernel("combine")

// launch starts a collective of which every rank has given its post, on the streams of the posts, and settles their works.
// last is the rank that came last. It returns false, and does nothing, if the pieces do not fit.
func launch(posts []*post, last int) bool {
	ops := make([]*Operation, len(posts))
	var waits []core.Event
	for i, p := range posts {
		ops[i] = p.op
		waits = append(waits, p.waits...)
	}
	plan, fits := steps(ops, last)
	if !fits {
		return false
	}
	// Two ranks may give the same memory: then each waits for the other's use, which is this very work.
	own := func(e core.Event) bool {
		return slices.ContainsFunc(posts, func(p *post) bool { return p.work.Event() == e })
	}
	waits = slices.DeleteFunc(waits, func(e core.Event) bool { return e.Done() || own(e) })
	var used []core.Stream
	for i := range plan {
		s := &plan[i]
		stream := posts[s.owner].stream
		c := stream.Begin(combineKernel, ops[0].name())
		if !slices.Contains(used, stream) {
			used = append(used, stream)
			c.AddWaits(waits...)
		}
		s.fill(c, posts)
		stream.Launch(c)
	}
	var events []core.Event
	for _, s := range used {
		events = append(events, s.Record())
	}
	if len(used) == 0 {
		events = waits // nothing to move: done when the tensors are
	}
	for _, p := range posts {
		p.work.settle(events, nil)
	}
	return true
}

// fill describes the step to the kernel.
func (s *step) fill(c *core.Call, posts []*post) {
	for _, src := range s.ins {
		p := posts[src.rank]
		c.InLent(p.ins[src.piece], p.op.Ins[src.piece].From+s.from, s.n)
	}
	for _, dst := range s.outs {
		p := posts[dst.rank]
		c.OutLent(p.outs[dst.piece], p.op.Outs[dst.piece].From+s.from, s.n)
	}
	c.Int(s.op).Float(s.divisor)
}
