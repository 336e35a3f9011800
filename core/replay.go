package core

import "slices"

// A Grouper is a stream that can run a list of calls as one call.
type Grouper interface {
	// Group returns calls that will be launched together again and again, or nil if the stream runs them one by one. The stream keeps the
	// list.
	Group(calls []GroupedCall) Group
}

// A GroupedCall is a call of a [Group].
type GroupedCall struct {
	Call     *Call
	Released []Memory // memory whose contents nobody needs after the call
}

// A Group is calls that run together.
type Group interface {
	// Launch enqueues the calls. Before they run, [Call.ForReplay] is to be called for each.
	Launch(replay uint32)
	// Close ends the use of the group, after what was launched.
	Close()
}

// A releaseNoter is a stream that uses that the contents of memory are not needed after the call launched last.
type releaseNoter interface{ NoteRelease(m Memory) }

// ForReplay makes the call's operands those of a replay, so that failures of earlier replays do not concern it.
func (c *Call) ForReplay(replay uint32) {
	for _, list := range [2][]Operand{c.Outs, c.Ins} {
		for i := range list {
			if o := &list[i]; o.recorded {
				o.epoch = o.first + replay
			}
		}
	}
}

// Fits returns nil if a replay now does what the function would do, as far as that can be known, and otherwise the reason why not.
func (r *Recording) Fits() error {
	if r.reason != nil {
		return r.reason
	}
	misfit := func(format string, args ...any) error { return Errorf(StateError, "replay", format, args...) }
	if r.stream == nil {
		return nil
	}
	if CurrentContext().Stream(r.stream.Device()) != r.stream {
		return misfit("the current stream of %v is another one than when the step was recorded", r.stream.Device())
	}
	for i := range r.externals {
		x := &r.externals[i]
		if x.storage.IsEmpty() || x.storage.epoch != x.epoch {
			return misfit("a tensor that the step uses has new memory")
		}
	}
	for i := range r.pieces {
		if p := &r.pieces[i]; p.held && (p.storage.IsEmpty() || p.storage.epoch != p.epoch+r.replays) {
			return misfit("a tensor that the step has made has new memory")
		}
	}
	for _, l := range r.leaves {
		if err := l.fits(); err != nil {
			return err
		}
	}
	for _, check := range r.checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Replay launches the recorded calls again, on the same memory, with the numbers that the generators would draw now and what
// [Call.OnReplay] sets. Gradients that the step leaves are then those of their tensors. Call it only if [Recording.Fits] returns nil. After
// an error some of the calls may not have been launched.
func (r *Recording) Replay() error {
	if r.stream == nil {
		return nil
	}
	r.replays++
	for i := range r.pieces {
		if p := &r.pieces[i]; p.held {
			p.storage.epoch = p.epoch + r.replays
			p.storage.BumpVersion()
		}
	}
	for i := range r.externals {
		if x := &r.externals[i]; x.changed {
			x.storage.BumpVersion()
		}
	}
	r.waitForUsers()
	seeds, starts := make([]uint64, len(r.generators)), make([]uint64, len(r.generators))
	for i, g := range r.generators {
		seeds[i], starts[i] = g.generator.Next(g.end - g.start)
	}
	if err := r.launch(seeds, starts); err != nil {
		return err
	}
	for _, l := range r.leaves {
		l.restore()
	}
	for _, act := range r.actions {
		act()
	}
	return nil
}

// waitForUsers makes the stream wait for what other streams do with tensors of the recording. Calls that use the memory of such a tensor
// before it is made do not know it.
func (r *Recording) waitForUsers() {
	wait := func(s *Storage) {
		if !s.foreign.load() {
			return
		}
		s.alloc.mu.Lock()
		uses := slices.Clone(s.alloc.uses)
		s.alloc.mu.Unlock()
		for _, u := range uses {
			if !u.event.Done() {
				r.stream.Wait(u.event)
			}
		}
	}
	for i := range r.pieces {
		if p := &r.pieces[i]; p.held {
			wait(p.storage)
		}
	}
}

// launch launches the events, in groups where that changes nothing.
func (r *Recording) launch(seeds, starts []uint64) error {
	whole := !synchronous.Load() && ActiveProfile() == nil && !r.lent()
	if whole && !r.grouped {
		r.group()
	}
	noter, _ := r.stream.(releaseNoter)
	for i := 0; i < len(r.events); {
		e := &r.events[i]
		if g := r.groups[i]; whole && g.group != nil {
			g.group.Launch(r.replays)
			i = g.end
			continue
		}
		i++
		if e.call == nil {
			if noter != nil {
				noter.NoteRelease(r.pieces[e.piece].memory)
			}
			continue
		}
		c, err := r.fill(e.call, seeds, starts)
		if err == nil {
			err = Launch(r.stream, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lent reports whether other streams, or code outside the engine, use a tensor of the recording.
func (r *Recording) lent() bool {
	lent := func(s *Storage) bool { return s.foreign.load() || s.shared.Load() > 0 }
	return slices.ContainsFunc(r.externals, func(x recordedExternal) bool { return lent(x.storage) }) ||
		slices.ContainsFunc(r.pieces, func(p recordedPiece) bool { return p.held && lent(p.storage) })
}

// fill returns a call of the stream like the recorded one.
func (r *Recording) fill(x *recordedCall, seeds, starts []uint64) (*Call, error) {
	k := &x.call
	c := r.stream.Begin(k.Kernel, k.Op)
	c.Outs, c.Ins = append(c.Outs, k.Outs...), append(c.Ins, k.Ins...)
	c.Ints, c.Floats = append(c.Ints, k.Ints...), append(c.Floats, k.Floats...)
	c.Work, c.InPlace, c.Overwrites = k.Work, k.InPlace, k.Overwrites
	c.ForReplay(r.replays)
	for _, list := range [2][]Operand{c.Outs, c.Ins} {
		for i := range list {
			if o := &list[i]; o.storage != nil {
				c.shared = c.shared || o.storage.shared.Load() > 0
				o.crossStream = o.storage.foreign.load()
				c.crossStream = c.crossStream || o.crossStream
			}
		}
	}
	if x.random >= 0 {
		at := seeded[k.Kernel]
		c.Ints[at], c.Ints[at+1] = int64(seeds[x.random]), int64(starts[x.random]+x.behind)
	}
	if x.replay != nil {
		if err := x.replay(c); err != nil {
			r.stream.Abandon(c)
			return nil, err
		}
	}
	return c, nil
}

// A recordedGroup is a group in place of the events up to end.
type recordedGroup struct {
	group Group
	end   int
}

// leastGroup is how many calls are grouped at least.
const leastGroup = 2

// group makes groups of consecutive calls that are the same in each replay.
func (r *Recording) group() {
	r.grouped = true
	grouper, ok := r.stream.(Grouper)
	if !ok {
		return
	}
	for from := 0; from < len(r.events); {
		to, calls := from, []GroupedCall(nil)
		for ; to < len(r.events); to++ {
			e := &r.events[to]
			if e.call == nil {
				if n := len(calls); n > 0 {
					calls[n-1].Released = append(calls[n-1].Released, r.pieces[e.piece].memory)
				}
				continue
			}
			if e.call.random >= 0 || e.call.replay != nil {
				break
			}
			calls = append(calls, GroupedCall{Call: e.call.copy()})
		}
		if len(calls) >= leastGroup {
			if g := grouper.Group(calls); g != nil {
				r.groups[from] = recordedGroup{g, to}
			}
		}
		from = to + 1
	}
}

// copy returns the call, for a stream to keep.
func (x *recordedCall) copy() *Call {
	k := &x.call
	c := &Call{Kernel: k.Kernel, Op: k.Op, Work: k.Work, InPlace: k.InPlace, Overwrites: k.Overwrites, Ints: k.Ints, Floats: k.Floats}
	c.Outs, c.Ins = slices.Clone(k.Outs), slices.Clone(k.Ins)
	return c
}

// Output returns a tensor over what the last replay wrote of output i of [Recording.End], or nil if the step did not make it.
func (r *Recording) Output(i int) *Tensor { return r.outputs[i] }

// Trim gives memory back to the stream that earlier recordings used and replays do not need.
func (r *Recording) Trim() {
	if r.pool != nil && r.stream != nil {
		r.pool.trim(r.stream, r.pieces)
	}
}

// Close releases what the recording holds. It will not be replayed any more. Its memory stays with the recording that took it over, or
// returns to the stream.
func (r *Recording) Close() {
	for _, g := range r.groups {
		if g.group != nil {
			g.group.Close()
		}
	}
	r.groups = nil
	r.Refuse("the recording was closed")
	for _, l := range r.leaves {
		l.close()
	}
	for _, t := range r.outputs {
		t.Release()
	}
	for i := range r.externals {
		if r.externals[i].storage != nil {
			r.externals[i].storage.Release()
		}
	}
	for i := range r.pieces {
		if r.pieces[i].held {
			r.pieces[i].storage.Release()
		}
	}
	r.leaves, r.outputs, r.externals, r.pieces, r.events, r.checks, r.actions = nil, nil, nil, nil, nil, nil, nil
	if r.pool != nil && r.stream != nil {
		r.pool.close(r.stream)
		r.pool = nil
	}
}
