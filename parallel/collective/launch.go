package collective

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// launch starts a collective at which every rank has arrived, on the ranks' communication streams, or through the relay if the host cannot
// address the memory of one rank and the devices do not reach each other. It then settles the works. last is the rank that arrived last. With an error it does nothing; errMisfit
// means that the ranks' pieces do not match.
func launch(calls []*rankCall, last int, through *relay) error {
	ops := make([]*Operation, len(calls))
	stagers := make([]stagers, len(calls))
	var waits []core.Event
	staged := false
	for i, p := range calls {
		ops[i] = p.op
		stagers[i] = p.stagers
		waits = append(waits, p.waits...)
		staged = staged || p.stagers.fromHost != nil
	}
	straight := staged && reachable(calls)
	if straight {
		staged = false
		if err := useDirect(calls, func(*rankCall) int { return everyone }); err != nil {
			return err
		}
	}
	plan, fits := steps(ops, last, staged, straight)
	if !fits {
		return errMisfit
	}
	waits = pending(waits)
	all := len(waits)
	waits = foreign(waits, calls)
	if len(waits) < all || countShared(calls) > 1 { // ranks may have passed the same memory
		if err := clash(plan, calls); err != nil {
			return err
		}
	}
	if staged && len(plan) > 0 {
		launchRelayed(newJob(ops[0].name(), calls, stagers, plan), through)
		return nil
	}
	var used []core.Stream
	link, cancelled := linkTime(calls), onCancel(calls)
	list := make([]*step, len(plan))
	for i := range plan {
		list[i] = &plan[i]
	}
	parts := single(list)
	if straight {
		parts = batches(list, func(s source) core.DType { return ops[s.rank].piece(s).dtype })
	}
	for _, part := range parts {
		stream := calls[part[0].owner].stream
		first := !slices.Contains(used, stream)
		if first && link > 0 {
			simulateLink(stream, ops[0].name(), link, waits)
		}
		c := stream.Begin(contract.Combine, ops[0].name())
		if first {
			used = append(used, stream)
			c.AddWaits(waits...)
		}
		c.OnCancel = cancelled
		for _, s := range part {
			s.fill(c, calls)
		}
		part[0].attrs(len(part)).AddTo(c)
		stream.Launch(c)
	}
	var events []core.Event
	for _, s := range used {
		events = append(events, s.Record())
	}
	if len(used) == 0 {
		events = waits // nothing to move: done when the tensors are ready
	} else if straight {
		submit(events)
	}
	noteEnds(calls, used, events)
	for _, p := range calls {
		p.work.settle(events, nil)
	}
	return nil
}

// noteEnds records when the works of calls end, which is when the streams used have done their parts.
func noteEnds(calls []*rankCall, used []core.Stream, events []core.Event) {
	if allDone(events) { // small ones run at once
		endNow(calls)
		return
	}
	for _, s := range used {
		if !s.Device().HostAccessible() {
			return // a mark would split a GPU's batches
		}
	}
	left := new(atomic.Int32)
	left.Store(int32(len(used)))
	for _, s := range used {
		c := s.Begin(-1, "")
		c.Mark = func() {
			if left.Add(-1) == 0 {
				endNow(calls)
			}
		}
		s.Launch(c)
	}
}

// endNow records that the works of calls end now.
func endNow(calls []*rankCall) {
	now := clockNow()
	for _, p := range calls {
		p.work.times.end(now)
	}
}

var errMisfit = errors.New("the pieces do not fit")

// foreign returns the unfinished events, except those of the calls themselves. If two ranks pass the same memory, each waits for the
// other's use of it, which is this collective.
func foreign(events []core.Event, calls []*rankCall) []core.Event {
	return slices.DeleteFunc(pending(events), func(e core.Event) bool {
		return slices.ContainsFunc(calls, func(p *rankCall) bool { return p.work.Event() == e })
	})
}

// countShared returns how many of the calls have memory that code outside the engine also uses, such as NumPy arrays, which may overlap.
func countShared(calls []*rankCall) (n int) {
	for _, p := range calls {
		if p.work.shared() {
			n++
		}
	}
	return n
}

// launchRelayed starts a job and settles the works of its calls.
func launchRelayed(j *job, through *relay) {
	j.relay, j.number = through, through.jobs.Add(1)
	if len(j.chunks) == 0 { // no elements
		for i, p := range j.calls {
			p.work.settle(slices.Concat(j.reads[i], j.writes[i]), nil)
		}
		return
	}
	for i, p := range j.calls {
		p.noteEnd(j.ends[i])
		p.work.settle([]core.Event{j.ends[i]}, nil)
	}
	through.add(j)
}

// onCancel returns the [core.Call.OnCancel] of the calls that execute a collective. Every rank's work gets the error, also where the rank's
// own tensors are valid.
func onCancel(calls []*rankCall) func(err error) {
	return func(err error) {
		for _, p := range calls {
			p.work.cancelled.Store(&err)
		}
	}
}

// attrs returns the attributes of a call for steps of this kind.
func (s *step) attrs(steps int) contract.CombineAttrs {
	return contract.CombineAttrs{Op: s.op, Segments: int64(steps), Divisor: s.divisor}
}

// fill adds the operands of the step to a kernel call.
func (s *step) fill(c *core.Call, calls []*rankCall) {
	for _, src := range s.ins {
		p := calls[src.rank]
		piece, b := &p.op.Ins[src.piece], p.ins[src.piece]
		if s.rows > 0 {
			c.InBorrowedRows(b, piece.From, s.rows, s.n/s.rows, piece.stride(s))
		} else {
			c.InBorrowed(b, piece.at(s.from), s.n)
		}
	}
	for _, dst := range s.outs {
		p := calls[dst.rank]
		piece, b := &p.op.Outs[dst.piece], p.outs[dst.piece]
		if s.rows > 0 {
			c.OutBorrowedRows(b, piece.From, s.rows, s.n/s.rows, piece.stride(s))
		} else {
			c.OutBorrowed(b, piece.at(s.from), s.n)
		}
	}
}
