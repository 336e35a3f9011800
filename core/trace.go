package core

import "sync"

// A Trace records the operands of calls in launch order. A device needs it if it learns of a failed call after later calls that use its
// results were launched. The zero value records nothing: see [Trace.Watch].
type Trace struct {
	mu      sync.Mutex
	uses    []use
	dropped int   // number of dropped uses before uses[0]
	watched []int // positions from which on uses must be kept, ascending
}

// A use is one operand of a call.
type use struct {
	storage  *Storage
	epoch    uint32
	last     bool // last operand of its call
	writes   bool
	inPlace  bool // changes the old contents
	replaces bool // overwrites all of the storage, whatever it held
}

// A Suspect is a call that may turn out to have failed.
type Suspect struct {
	Call  *Call // a copy of its own
	place int   // position in the trace
}

// Watch returns the current position. Uses from there on are kept until [Trace.Unwatch].
func (t *Trace) Watch() (place int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	place = t.dropped + len(t.uses)
	t.watched = append(t.watched, place)
	return place
}

// Unwatch ends a [Trace.Watch]: no call up to the position will be reported as failed.
func (t *Trace) Unwatch(place int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, p := range t.watched {
		if p == place {
			t.watched = append(t.watched[:i], t.watched[i+1:]...)
			break
		}
	}
	n := len(t.uses)
	if len(t.watched) > 0 {
		n = t.watched[0] - t.dropped
	}
	kept := copy(t.uses, t.uses[n:])
	clear(t.uses[kept:])
	t.uses = t.uses[:kept]
	t.dropped += n
}

// Suspect returns a suspect for c, the call that was added last.
func (t *Trace) Suspect(c *Call) Suspect {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Suspect{c, t.dropped + len(t.uses)}
}

// Add records the operands of a call if something is watched. It must come before the check whether the call's inputs have failed.
func (t *Trace) Add(c *Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.watched) == 0 {
		return
	}
	first := len(t.uses)
	for i := range c.Ins {
		if o := &c.Ins[i]; o.storage != nil {
			t.uses = append(t.uses, use{storage: o.storage, epoch: o.epoch})
		}
	}
	for i := range c.Outs {
		if o := &c.Outs[i]; o.storage != nil {
			t.uses = append(t.uses, use{storage: o.storage, epoch: o.epoch, writes: true, inPlace: c.InPlace, replaces: c.Overwrites && o.fills()})
		}
	}
	if n := len(t.uses); n > first {
		t.uses[n-1].last = true
	}
}

// Fail marks a suspect's outputs as failed with err, and everything that later calls computed from them.
func (t *Trace) Fail(x Suspect, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	type life struct {
		storage *Storage
		epoch   uint32
	}
	failed := map[life]bool{} // value: a change of it was skipped
	for i := range x.Call.Outs {
		if o := &x.Call.Outs[i]; o.storage != nil {
			failed[life{o.storage, o.epoch}] = x.Call.InPlace
		}
	}
	for rest := t.uses[max(x.place-t.dropped, 0):]; len(rest) > 0; {
		n, bad := 0, false
		for more := true; more; n++ {
			u := &rest[n]
			_, found := failed[life{u.storage, u.epoch}]
			bad = bad || found && (!u.writes || u.inPlace && !u.replaces)
			more = !u.last
		}
		for _, u := range rest[:n] {
			switch l := (life{u.storage, u.epoch}); {
			case !u.writes:
			case bad:
				failed[l] = failed[l] || u.inPlace
			case u.replaces:
				delete(failed, l)
			}
		}
		rest = rest[n:]
	}
	for l, skipped := range failed {
		l.storage.fail(l.epoch, err, skipped)
	}
}
