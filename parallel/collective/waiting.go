package collective

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// patience is how long ranks wait for each other before they are told that none can go on.
const patience = 400 * time.Millisecond

// A waitingRoom knows which threads of the ranks of a world wait for other ranks to make a call. A rank all of whose threads wait
// makes no call. So if those of all ranks do, for calls that have not come, none ever will.
type waitingRoom struct {
	mu    sync.Mutex
	ranks []*waitingRank
	blind bool // somebody makes calls of whom it does not know
}

type waitingRank struct {
	context atomic.Pointer[core.Context] // of the rank's own threads; nil: not known
	threads int
	over    bool
	waits   map[*Work]time.Time // and since when
}

func newWaitingRoom(size int) *waitingRoom {
	r := &waitingRoom{ranks: make([]*waitingRank, size)}
	for i := range r.ranks {
		r.ranks[i] = &waitingRank{threads: 1, waits: map[*Work]time.Time{}}
	}
	return r
}

// Attend says in which context the rank's own threads run. Ranks that all wait for each other, so that none of them can go on,
// then get an error at once instead of at their deadline.
func (g *Group) Attend(ctx *core.Context) {
	if l, ok := g.backend.(*local); ok {
		_, rank := l.room()
		rank.context.Store(ctx)
	}
}

// Beside counts n more threads that make calls for the rank, or with a negative n fewer, besides the one that it began with. A
// rank that waits in one of them may still go on in another.
func (g *Group) Beside(n int) {
	if l, ok := g.backend.(*local); ok {
		room, rank := l.room()
		room.mu.Lock()
		defer room.mu.Unlock()
		rank.threads += n
	}
}

// room returns the waiting room, and the rank's place in it.
func (l *local) room() (*waitingRoom, *waitingRank) {
	r := l.meeting.world.waiting
	return r, r.ranks[l.meeting.ranks[l.rank]]
}

// notice sees who makes a call: a goroutine in no rank's context is one that nobody has counted.
func (l *local) notice() {
	room, rank := l.room()
	if rank.context.Load() != nil && !core.CurrentContext().Ranked() {
		room.mu.Lock()
		defer room.mu.Unlock()
		room.blind = true
	}
}

// leave ends a rank's part.
func (r *waitingRoom) leave(rank int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ranks[rank].over = true
}

// arriveOn waits for the other ranks, for at most d if d is not negative: after which the calling thread does nothing but wait on.
func (w *Work) arriveOn(d time.Duration) bool {
	if w.arrivedWithin(0) {
		return true
	}
	room, rank := w.place.room()
	if rank.context.Load() != core.CurrentContext() {
		return w.arrivedWithin(d)
	}
	end := time.Now().Add(d)
	for {
		slice := patience
		if d >= 0 {
			slice = min(slice, max(time.Until(end), 0))
		}
		if w.sliceOfWait(room, rank, slice) {
			return true
		}
		if d >= 0 && !time.Now().Before(end) {
			return false
		}
	}
}

// sliceOfWait waits for the other ranks for so long, and then looks whether they wait, too.
func (w *Work) sliceOfWait(room *waitingRoom, rank *waitingRank, d time.Duration) bool {
	room.mu.Lock()
	if w.waited.IsZero() {
		w.waited = time.Now()
	}
	rank.waits[w] = w.waited
	room.mu.Unlock()
	done := w.arrivedWithin(d)
	var stuck []*Work
	var err error
	room.mu.Lock()
	if !done {
		stuck, err = room.stuck()
	}
	delete(rank.waits, w)
	room.mu.Unlock()
	for _, s := range stuck {
		s.place.meeting.giveUpOn(s, err)
	}
	return done || w.settled.Load()
}

// stuck returns what all ranks wait for, if none can go on. The room is locked.
func (r *waitingRoom) stuck() ([]*Work, error) {
	var all []*Work
	var calls []string
	for i, rank := range r.ranks {
		if rank.over {
			continue
		}
		if r.blind || len(rank.waits) < rank.threads {
			return nil, nil
		}
		for w, since := range rank.waits {
			if w.met.Load() || time.Since(since) < patience {
				return nil, nil
			}
			all = append(all, w)
			use := ""
			if w.use != "" {
				use = " for " + w.use
			}
			calls = append(calls, fmt.Sprintf("rank %d in %v%s of the group %q", i, w, use, w.group))
		}
	}
	return all, core.Errorf(core.DistributedError, "", "the ranks wait for each other, and none can go on: %s", strings.Join(calls, "; "))
}

// giveUpOn fails a call that some ranks will never come to.
func (m *meeting) giveUpOn(w *Work, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.rounds {
		for _, p := range r.posts {
			if p != nil && p.work == w && !r.over {
				r.fail(err)
				return
			}
		}
	}
	for _, list := range []*[]*post{&m.sends, &m.recvs} {
		for i, p := range *list {
			if p.work == w {
				*list = append((*list)[:i:i], (*list)[i+1:]...)
				p.fail(err)
				return
			}
		}
	}
}
