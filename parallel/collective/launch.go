package collective

import (
	"errors"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// launch starts a collective of which every rank has given its post, on the streams of the posts, or through the relay if the
// host cannot address the memory of one, and settles their works. last is the rank that came last. It does nothing if it returns
// an error: errMisfit if the pieces do not fit.
func launch(posts []*post, last int, through *relay) error {
	ops := make([]*Operation, len(posts))
	lanes := make([]lane, len(posts))
	var waits []core.Event
	staged := false
	for i, p := range posts {
		ops[i] = p.op
		lanes[i] = p.lane
		waits = append(waits, p.waits...)
		staged = staged || p.lane.entering != nil
	}
	plan, fits := steps(ops, last, staged)
	if !fits {
		return errMisfit
	}
	waits = pending(waits)
	all := len(waits)
	waits = foreign(waits, posts)
	if len(waits) < all || outside(posts) > 1 { // ranks may have given the same memory
		if err := clash(plan, posts); err != nil {
			return err
		}
	}
	if staged && len(plan) > 0 {
		relayed(newJob(ops[0].name(), posts, lanes, plan), through)
		return nil
	}
	var used []core.Stream
	link := linkTime(posts)
	for i := range plan {
		s := &plan[i]
		stream := posts[s.owner].stream
		first := !slices.Contains(used, stream)
		if first && link > 0 {
			hold(stream, ops[0].name(), link, waits)
		}
		c := stream.Begin(contract.Combine, ops[0].name())
		if first {
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
	return nil
}

var errMisfit = errors.New("the pieces do not fit")

// foreign returns the events that are not done, but for those of the posts: two ranks may give the same memory, and then each
// waits for the other's use, which is this very work.
func foreign(events []core.Event, posts []*post) []core.Event {
	return slices.DeleteFunc(pending(events), func(e core.Event) bool {
		return slices.ContainsFunc(posts, func(p *post) bool { return p.work.Event() == e })
	})
}

// outside returns how many of the posts have memory that somebody else has too, such as a NumPy array: two of them may be one.
func outside(posts []*post) (n int) {
	for _, p := range posts {
		if p.work.shared() {
			n++
		}
	}
	return n
}

// relayed starts a job and settles the works of its posts.
func relayed(j *job, through *relay) {
	if len(j.chunks) == 0 { // of no elements
		for i, p := range j.posts {
			p.work.settle(slices.Concat(j.reads[i], j.writes[i]), nil)
		}
		return
	}
	for i, p := range j.posts {
		p.work.settle([]core.Event{j.ends[i]}, nil)
	}
	through.add(j)
}

// fill describes the step to the kernel.
func (s *step) fill(c *core.Call, posts []*post) {
	for _, src := range s.ins {
		p := posts[src.rank]
		c.InBorrowed(p.ins[src.piece], p.op.Ins[src.piece].From+s.from, s.n)
	}
	for _, dst := range s.outs {
		p := posts[dst.rank]
		c.OutBorrowed(p.outs[dst.piece], p.op.Outs[dst.piece].From+s.from, s.n)
	}
	contract.CombineAttrs{Op: s.op, Divisor: s.divisor}.AddTo(c)
}
