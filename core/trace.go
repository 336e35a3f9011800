package core

import "sync"

// A Trace remembers, in their order, what calls read and write. A device needs it that learns that a call has failed when others,
// which use its results, are on their way. The zero value remembers nothing: see [Trace.Watch].
type Trace struct {
	mu      sync.Mutex
	uses    []use
	dropped int   // of the uses, from the first on
	watched []int // places from which on uses are kept, in order
}

// A use is an operand of a call.
type use struct {
	storage  *Storage
	epoch    uint32
	last     bool // of its call
	writes   bool
	inPlace  bool // writes to what it finds
	replaces bool // writes to all of it, whatever it finds
}

// A Suspect is a call that may turn out to have failed.
type Suspect struct {
	Call  *Call // a copy of its own
	place int   // in the trace
}

// Watch returns the place of what is added next, to be kept until [Trace.Unwatch].
func (t *Trace) Watch() (place int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	place = t.dropped + len(t.uses)
	t.watched = append(t.watched, place)
	return place
}

// Unwatch says that nothing that was added before or at a place will turn out to have failed.
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

// Suspect returns a suspect that was added last.
func (t *Trace) Suspect(c *Call) Suspect {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Suspect{c, t.dropped + len(t.uses)}
}

// Add adds a call, before anybody asks whether its inputs have failed, while something is watched.
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

// Fail makes err the failure of a suspect's outputs, and of what calls have made of them since.
func (t *Trace) Fail(x Suspect, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	type life struct {
		storage *Storage
		epoch   uint32
	}
	failed := map[life]bool{} // and whether a change of it is left out
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
