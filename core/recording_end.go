package core

// End ends the recording, whose outputs the function returned; the thread is the one that called [Record]. It returns why the recording
// cannot be replayed, or nil. The caller closes it when it is not needed any more.
func (r *Recording) End(outputs []*Tensor) error {
	recordings.mu.Lock()
	if !r.ended {
		delete(recordings.byThread, r.thread)
		recordings.active.Add(-1)
	}
	recordings.mu.Unlock()
	r.ended = true
	r.findRandom()
	for _, t := range outputs {
		if r.reason == nil && t.awaitsBackward() {
			r.Refuse("the function returns a tensor whose gradient may still be asked for: call backward in the function, or run it without gradients")
		}
	}
	for i := range r.externals {
		x := &r.externals[i]
		if x.storage.epoch != x.epoch || x.storage.IsEmpty() {
			r.Refuse("the step uses a tensor that it, or another thread, releases")
			x.storage = nil
			continue
		}
		x.storage.Retain()
	}
	for i := range r.pieces {
		r.pieces[i].end(r.stream)
	}
	for _, l := range r.leaves {
		l.end(r)
	}
	for _, t := range outputs {
		var kept *Tensor
		if s := t.Storage(); s != nil && s.alloc.memory.pool == r.pool && r.pool != nil {
			kept = t.Detach().Keep()
		}
		r.outputs = append(r.outputs, kept)
	}
	for _, e := range r.events {
		if e.call != nil {
			r.settle(e.call)
		}
	}
	r.groups = make([]recordedGroup, len(r.events)+1)
	return r.reason
}

// end finds out whether a piece outlives the step. If it does not, a storage of its own carries the failures of replays.
func (p *recordedPiece) end(home Stream) {
	if s := p.storage; s != nil && s.epoch == p.epoch && !s.IsEmpty() {
		s.Retain()
		p.held = true
		return
	}
	p.storage = &Storage{alloc: &allocation{home: home, memory: p.memory, size: p.size}}
	p.epoch = 0
}

// settle makes the operands of a call refer to the storages that replays use.
func (r *Recording) settle(x *recordedCall) {
	for i, p := range x.places {
		o := operandOf(&x.call, i)
		if p.piece >= 0 {
			o.storage, o.recorded, o.first = r.pieces[p.piece].storage, true, r.pieces[p.piece].epoch
		}
	}
}

// awaitsBackward reports whether a node of the tensor's graph still has what its derivative needs.
func (t *Tensor) awaitsBackward() bool {
	if t == nil || t.storage == nil {
		return false
	}
	meta := t.current()
	if meta == nil {
		return false
	}
	meta.mu.Lock()
	n := meta.node
	meta.mu.Unlock()
	if n == nil {
		return false
	}
	seen := map[*Node]bool{n: true}
	for work := []*Node{n}; len(work) > 0; {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		n.mu.Lock()
		waits := len(n.saved) > 0
		n.mu.Unlock()
		if waits {
			return true
		}
		for _, e := range n.edges {
			if e.Node != nil && !seen[e.Node] {
				seen[e.Node] = true
				work = append(work, e.Node)
			}
		}
	}
	return false
}

// A recordedLeaf is a tensor whose gradient was used in a recording.
type recordedLeaf struct {
	meta    *AutogradMeta
	none    bool     // it had no gradient, and the step used that
	initial *Storage // the gradient's that it had; nil for none
	matters bool     // the step used the values of initial
	set     bool
	final   *Tensor // the gradient that the step left
}

// noteGrad records that the step uses the gradient of a leaf, which is old, or sets it to g.
func (r *Recording) noteGrad(meta *AutogradMeta, old, g *Tensor, sets bool) {
	l := r.leafOf[meta]
	if l == nil {
		l = &recordedLeaf{meta: meta, none: old == nil && !(sets && g == nil)}
		if old != nil {
			l.initial = old.storage
		}
		meta.retain()
		r.leafOf[meta] = l
		r.leaves = append(r.leaves, l)
	}
	l.set = l.set || sets
}

func (l *recordedLeaf) end(r *Recording) {
	if l.initial != nil {
		_, l.matters = r.externalOf[l.initial]
	}
	if g := l.meta.Grad(); l.set && g != nil {
		l.final = g.Detach().Keep()
	}
}

// fits returns nil if the leaf has a gradient with which the step does the same as in the recording.
func (l *recordedLeaf) fits() error {
	g := l.meta.Grad()
	switch {
	case l.none && g != nil:
		return Errorf(StateError, "replay", "a tensor of shape %v has a gradient now, and had none when the step was recorded", g.Shape())
	case l.matters && (g == nil || g.storage != l.initial):
		return Errorf(StateError, "replay", "a tensor has another gradient than the one that the recorded step adds to")
	}
	return nil
}

// restore gives the leaf the gradient that the step leaves.
func (l *recordedLeaf) restore() {
	if !l.set {
		return
	}
	switch g := l.meta.Grad(); {
	case l.final == nil:
		l.meta.SetGrad(nil)
	case g == nil || g.storage != l.final.storage:
		l.meta.SetGrad(l.final.Detach())
	}
}

func (l *recordedLeaf) close() {
	l.final.Release()
	l.meta.release()
}
