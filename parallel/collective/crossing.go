package collective

import (
	"slices"
	"time"
)

// crossingPoll is how often a rank that waits looks whether the others make their calls in another order.
const crossingPoll = 5 * time.Millisecond

// MetFor waits for the other ranks for at most d, or without a limit if d is negative, unless they make their calls in another order.
// over says that all have come, or that the work has failed. crossed says that one that has not come has made a call for which it needs
// this rank: it may be waiting for that, so this rank should go on.
func (w *Work) MetFor(d time.Duration) (over, crossed bool) {
	if w.arrivedWithin(0) {
		return true, false
	}
	for end := time.Now().Add(d); ; {
		if w.place.crossed(w) && !w.settled.Load() { // the other's call may follow from the end of the wait
			return false, true
		}
		slice := crossingPoll
		if d >= 0 {
			slice = min(slice, max(time.Until(end), 0))
		}
		if w.arrivedWithin(slice) {
			return true, false
		}
		if d >= 0 && !time.Now().Before(end) {
			return false, false
		}
	}
}

// crossed reports whether a rank that has not come to w has come to an operation, in any group, that this rank has not come to.
func (l *local) crossed(w *Work) bool {
	me := l.meeting.ranks[l.rank]
	late := l.meeting.missing(l.rank, w)
	if len(late) == 0 {
		return false
	}
	world := l.meeting.world
	world.mu.Lock()
	meetings := slices.Clone(world.meetings)
	world.mu.Unlock()
	return slices.ContainsFunc(meetings, func(m *meeting) bool { return m.awaits(me, late) })
}

// missing returns the numbers in the world of the ranks that have not come to a work of rank i.
func (m *meeting) missing(i int, w *Work) (late []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rounds {
		if r.over || r.posts[i] == nil || r.posts[i].work != w {
			continue
		}
		for k, p := range r.posts {
			if p == nil {
				late = append(late, m.ranks[k])
			}
		}
	}
	return late
}

// awaits reports whether an operation that one of some ranks has come to waits for rank i of the world.
func (m *meeting) awaits(i int, ranks []int) bool {
	me := slices.Index(m.ranks, i)
	if me < 0 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	theirs := func(p *post) bool { return p != nil && slices.Contains(ranks, m.ranks[p.rank]) }
	for _, r := range m.rounds {
		if !r.over && r.posts[me] == nil && slices.ContainsFunc(r.posts, theirs) {
			return true
		}
	}
	toMe := func(p *post) bool { return p.op.Root == me && theirs(p) }
	return slices.ContainsFunc(m.sends, toMe) || slices.ContainsFunc(m.recvs, toMe)
}
