package collective

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// deadlockDelay is how long ranks wait for each other before a deadlock is reported.
const deadlockDelay = 400 * time.Millisecond

// A deadlockDetector tracks which threads of a world's ranks wait for other ranks. If all threads of all ranks wait, for calls that have
// not come, nobody can make those calls any more: the ranks are deadlocked.
type deadlockDetector struct {
	mu             sync.Mutex
	ranks          []*rankWaits
	unknownCallers bool // threads that it does not know make calls
}

type rankWaits struct {
	context atomic.Pointer[core.Context] // of the rank's own threads; nil if unknown
	main    atomic.Uintptr               // the thread that runs the rank's function
	threads int
	left    bool
	waits   map[*Work]time.Time       // since when
	values  map[core.Event]*valueWait // waits for values that collectives bring
}

func newDeadlockDetector(size int) *deadlockDetector {
	r := &deadlockDetector{ranks: make([]*rankWaits, size)}
	for i := range r.ranks {
		r.ranks[i] = &rankWaits{threads: 1, waits: map[*Work]time.Time{}, values: map[core.Event]*valueWait{}}
	}
	return r
}

// DetectDeadlocks enables the detection of deadlocks for the rank: if all ranks wait for each other, they get an error at once instead of at
// their timeout. The calling thread becomes the rank's main thread. ctx is the context in which the rank's threads run.
func (g *Group) DetectDeadlocks(ctx *core.Context) {
	_, rank := g.local.detector()
	rank.context.Store(ctx)
	rank.main.Store(core.CurrentThread())
	ctx.SetWaiter(valueWaiter{g.local})
}

// AddThreads adds n to the number of threads that make calls for the rank. A rank is stuck only if all of them wait.
func (g *Group) AddThreads(n int) {
	d, rank := g.local.detector()
	d.mu.Lock()
	defer d.mu.Unlock()
	rank.threads += n
}

// detector returns the deadlock detector, and the rank's state in it.
func (l *local) detector() (*deadlockDetector, *rankWaits) {
	r := l.rendezvous.world.detector
	return r, r.ranks[l.rendezvous.ranks[l.rank]]
}

// noteCaller records calls from a goroutine outside every rank's context, which was not counted.
func (l *local) noteCaller() {
	d, rank := l.detector()
	if rank.context.Load() != nil && !core.CurrentContext().Ranked() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.unknownCallers = true
	}
}

// onMain reports whether the calling thread is the rank's main one.
func (r *rankWaits) onMain() bool { return r.main.Load() == core.CurrentThread() }

// owns reports whether the calling thread is one of the rank's own.
func (r *rankWaits) owns() bool { return r.onMain() || r.context.Load() == core.CurrentContext() }

// leave marks a rank as finished.
func (r *deadlockDetector) leave(rank int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ranks[rank].left = true
}

// arriveOn waits for the other ranks, at most for d unless d is negative. The calling thread must do nothing afterwards but wait again.
func (w *Work) arriveOn(d time.Duration) bool {
	if w.arrivedWithin(0) {
		return true
	}
	detector, rank := w.local.detector()
	if !rank.owns() {
		return w.arrivedWithin(d)
	}
	end := time.Now().Add(d)
	for {
		slice := deadlockDelay
		if d >= 0 {
			slice = min(slice, max(time.Until(end), 0))
		}
		if w.waitSlice(detector, rank, slice) {
			return true
		}
		if d >= 0 && !time.Now().Before(end) {
			return false
		}
	}
}

// waitSlice waits for the other ranks for at most d, and then checks for a deadlock.
func (w *Work) waitSlice(detector *deadlockDetector, rank *rankWaits, d time.Duration) bool {
	detector.mu.Lock()
	if w.waited.IsZero() {
		w.waited = time.Now()
	}
	rank.waits[w] = w.waited
	detector.mu.Unlock()
	done := w.arrivedWithin(d)
	var stuck []blockedCall
	detector.mu.Lock()
	if !done {
		stuck = detector.deadlocked()
	}
	delete(rank.waits, w)
	detector.mu.Unlock()
	w.local.rendezvous.world.report(stuck)
	return done || w.settled.Load()
}

// A blockedCall is a call of a collective that a rank waits for.
type blockedCall struct {
	rank int // in the world
	*outcome
}

// deadlocked returns the calls that the ranks wait for if no rank can go on. The detector is locked.
func (r *deadlockDetector) deadlocked() (all []blockedCall) {
	for i, rank := range r.ranks {
		if rank.left {
			continue
		}
		threads := len(rank.waits)
		for w, since := range rank.waits {
			if w.met.Load() || time.Since(since) < deadlockDelay {
				return nil
			}
			all = append(all, blockedCall{i, w.outcome})
		}
		for e, w := range rank.values {
			if w.threads == 0 {
				continue
			}
			threads += w.threads
			calls := unmet(e)
			if len(calls) == 0 || time.Since(w.since) < deadlockDelay {
				return nil
			}
			for _, o := range calls {
				all = append(all, blockedCall{i, o})
			}
		}
		if r.unknownCallers || threads < rank.threads {
			return nil
		}
	}
	return all
}

// report fails calls that all ranks wait for, unless a rank can go on after all.
func (w *world) report(stuck []blockedCall) {
	if len(stuck) == 0 {
		return
	}
	groups := w.all()
	works := make([]*Work, len(stuck))
	calls := make([]string, len(stuck))
	for i, x := range stuck {
		for _, m := range groups {
			if works[i] = m.waiting(x.outcome); works[i] != nil {
				break
			}
		}
		call := works[i]
		if call == nil || call.yields.Load() && call.local.crossed(call) {
			return
		}
		if call.local.rendezvous.awaitsOthers(call) {
			return
		}
		calls[i] = call.describe(x.rank)
	}
	err := core.Errorf(core.DistributedError, "", "deadlock, the ranks wait for each other: %s", strings.Join(calls, "; "))
	for _, call := range works {
		call.local.rendezvous.giveUpOn(call, err)
	}
}

// waiting returns the work that has the outcome and waits for other ranks, or nil.
func (m *rendezvous) waiting(o *outcome) *Work {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rounds {
		for _, p := range r.calls {
			if p != nil && !r.over && p.work.outcome == o {
				return p.work
			}
		}
	}
	for _, p := range slices.Concat(m.sends, m.recvs) {
		if p.work.outcome == o {
			return p.work
		}
	}
	return nil
}

// giveUpOn fails a call at which other ranks will never arrive.
func (m *rendezvous) giveUpOn(w *Work, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rounds {
		for _, p := range r.calls {
			if p != nil && p.work == w && !r.over {
				r.fail(err)
				return
			}
		}
	}
	for _, list := range []*[]*rankCall{&m.sends, &m.recvs} {
		for i, p := range *list {
			if p.work == w {
				*list = append((*list)[:i:i], (*list)[i+1:]...)
				p.fail(m.world.fault(err))
				return
			}
		}
	}
}
