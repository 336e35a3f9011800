package collective

import (
	"slices"
	"time"
)

// crossingPoll is the interval at which a waiting rank checks whether other ranks make their calls in another order.
const crossingPoll = 5 * time.Millisecond

// WaitForRanksUnlessCrossed is [Work.WaitForRanks] with the timeout d, where a negative d means no limit, that gives up if the ranks wait for
// each other in different calls. over says that all ranks have arrived, or that the work has failed. crossed says that a missing rank is in another call that needs this rank, because it makes its calls in another order. This rank
// should then go on, so that the other one can.
func (w *Work) WaitForRanksUnlessCrossed(d time.Duration) (over, crossed bool) {
	if w.arrivedWithin(0) {
		return true, false
	}
	detector, rank := w.local.detector()
	own := rank.owns()
	w.yields.Store(true)
	defer w.yields.Store(false)
	for end := time.Now().Add(d); ; {
		if w.local.crossed(w) && !w.settled.Load() { // the other rank may already have arrived here since
			return false, true
		}
		slice := crossingPoll
		if d >= 0 {
			slice = min(slice, max(time.Until(end), 0))
		}
		if own && w.waitSlice(detector, rank, slice) || !own && w.arrivedWithin(slice) {
			return true, false
		}
		if d >= 0 && !time.Now().Before(end) {
			return false, false
		}
	}
}

// crossed reports whether a rank that is missing in w waits in another operation, of any group, for this rank.
func (l *local) crossed(w *Work) bool {
	me := l.rendezvous.ranks[l.rank]
	late := l.rendezvous.missing(l.rank, w)
	if len(late) == 0 {
		return false
	}
	return slices.ContainsFunc(l.rendezvous.world.all(), func(m *rendezvous) bool { return m.awaits(me, late) })
}

// missing returns the world ranks that have not arrived at w, a work of rank i.
func (m *rendezvous) missing(i int, w *Work) (late []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rounds {
		if r.over || r.verdict.asked || r.calls[i] == nil || r.calls[i].work != w {
			continue
		}
		for k, p := range r.calls {
			if p == nil {
				late = append(late, m.ranks[k])
			}
		}
	}
	return late
}

// awaits reports whether an operation at which one of ranks has arrived waits for world rank i.
func (m *rendezvous) awaits(i int, ranks []int) bool {
	me := slices.Index(m.ranks, i)
	if me < 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	theirs := func(p *rankCall) bool { return p != nil && slices.Contains(ranks, m.ranks[p.rank]) }
	for _, r := range m.rounds {
		if !r.over && r.calls[me] == nil && slices.ContainsFunc(r.calls, theirs) {
			return true
		}
	}
	toMe := func(p *rankCall) bool { return p.op.Root == me && theirs(p) }
	return slices.ContainsFunc(m.sends, toMe) || slices.ContainsFunc(m.recvs, toMe)
}
