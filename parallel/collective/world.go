package collective

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// A world is the set of ranks of one [Spawn], [NewWorld] or [JoinWorld], with the rendezvous of all their groups.
type world struct {
	rate       float64 // see Options.LinkRate
	flight     *flightLog
	warn       func(string) // see Options.Warn
	detector   *deadlockDetector
	stragglers atomic.Pointer[Stragglers]
	watched    atomic.Bool // a look for deadlocks is due: see watch

	transport Transport // nil in a world of one process
	process   int       // number of this process
	homes     []int     // process of each rank; nil in a world of one process
	tags      atomic.Uint32
	sent      atomic.Int64 // bytes of messages and data
	moving    atomic.Bool  // a waiter moves messages along
	sharing   *sharing     // nil in a world of one process

	mu      sync.Mutex
	groups  map[uint64]*rendezvous
	ended   []*rendezvous             // groups that all ranks have left, the last ones
	early   map[uint64][]earlyMessage // messages for groups that no rank of this process has made yet
	streams map[*streams]struct{}     // of all ranks of this process in all groups
	jobs    map[*wireJob]struct{}     // under way
	look    *time.Timer               // the next look for deadlocks, or the last one
	absent  map[int]error
	lost    map[int]error // processes that are lost, and why
}

// worldID is the number of the group of all ranks.
const worldID = 1

// newWorld makes a world with complete options.
func newWorld(ranks int, o Options) *world {
	w := &world{absent: map[int]error{}, lost: map[int]error{}, streams: map[*streams]struct{}{}, groups: map[uint64]*rendezvous{},
		early: map[uint64][]earlyMessage{}, jobs: map[*wireJob]struct{}{}, rate: o.LinkRate, detector: newDeadlockDetector(ranks),
		flight: newFlightLog(o), warn: o.Warn}
	w.stragglers.Store(&o.Stragglers)
	return w
}

// NewWorld creates a group of size ranks, which are threads of this process, and returns a handle per rank.
func NewWorld(size int, o Options) ([]*Group, error) {
	if size < 1 {
		return nil, core.Errorf(core.ValueError, "world", "got %d ranks, want at least one", size)
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	return newWorld(size, o).open(size, o), nil
}

// complete checks the options of a world and sets the defaults.
func (o *Options) complete() error {
	if o.Timeout < 0 {
		return core.Errorf(core.ValueError, "world", "got a timeout of %v, want a positive one", o.Timeout)
	}
	if !(o.LinkRate >= 0) {
		return core.Errorf(core.ValueError, "world", "got a link rate of %v, want bytes a second", o.LinkRate)
	}
	if err := o.Stragglers.complete(); err != nil {
		return err
	}
	if _, err := recorded(); err != nil {
		return err
	}
	if o.Log == nil {
		o.Log = func(s string) { fmt.Fprint(os.Stderr, s) }
	}
	if o.Warn == nil {
		o.Warn = func(s string) { o.Log("plait: " + s) }
	}
	if o.Name == "" {
		o.Name = "world"
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	return nil
}

// open makes the group of all ranks and returns the handles of those of this process.
func (w *world) open(size int, o Options) (groups []*Group) {
	ranks := make([]int, size)
	for i := range ranks {
		ranks[i] = i
	}
	m := newRendezvous(w, worldID, ranks)
	for i := range ranks {
		if m.here(i) {
			groups = append(groups, newGroup(newLocal(m, i, o.Log), o.Name, i, ranks, o, &exitWaits{waits: map[*func() error]struct{}{}}))
		}
	}
	return groups
}

// home returns the process of a rank.
func (w *world) home(rank int) int {
	if w.homes == nil {
		return 0
	}
	return w.homes[rank]
}

// all returns the rendezvous of all groups.
func (w *world) all() (groups []*rendezvous) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.groups {
		groups = append(groups, m)
	}
	slices.SortFunc(groups, func(a, b *rendezvous) int { // for messages
		if (a.id == worldID) != (b.id == worldID) {
			return map[bool]int{true: -1, false: 1}[a.id == worldID]
		}
		return slices.Compare(a.ranks, b.ranks)
	})
	return groups
}

// forget removes a group.
func (w *world) forget(m *rendezvous) {
	for i := range m.records {
		m.records[i].seal()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.groups[m.id] == m {
		delete(w.groups, m.id)
		w.ended = append(w.ended[max(len(w.ended)+1-keptGroups, 0):], m)
	}
}

// keptGroups is the number of groups whose ranks have left that flight records still have.
const keptGroups = 4

// recorded returns the groups that flight records have.
func (w *world) recorded() []*rendezvous {
	live := w.all()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Concat(w.ended, live)
}

// leave removes a rank from the world: pending and later operations that need it fail. It reports whether the rank was there.
func (w *world) leave(rank int, err error) bool {
	w.mu.Lock()
	if w.absent[rank] != nil {
		w.mu.Unlock()
		return false
	}
	w.absent[rank] = err
	w.mu.Unlock()
	for _, m := range w.all() {
		if i := slices.Index(m.ranks, rank); i >= 0 {
			m.removeRank(i, err)
		}
	}
	w.detector.leave(rank) // must come last: until then the other ranks count as waiting for it
	return true
}

// derived returns a number for the n-th thing made from another one, the same in every process. Numbers of 64 bits are taken to be unique: among
// a million groups or channels of one world, two have the same number with a probability of 3 in 100 million.
func derived(from, n uint64) uint64 {
	mix := func(x uint64) uint64 { // the finalizer of SplitMix64
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return x ^ x>>31
	}
	return max(mix(mix(from+0x9e3779b97f4a7c15)+n*0x9e3779b97f4a7c15), 2) // 0 and 1 are the first channel and group
}

// move moves messages along until known is set, or none has come for as long as spin says. Unless d is negative, it ends after d and that
// while. One waiter at a time does so; it reports whether this one did.
func (w *world) move(known *atomic.Bool, spin func() time.Duration, d time.Duration) bool {
	if !w.moving.CompareAndSwap(false, true) {
		return false
	}
	defer w.moving.Store(false)
	begin := time.Now()
	for last := begin; !known.Load(); {
		active, now := w.transport.Progress(), time.Now()
		if active {
			last = now
		}
		if most := spin(); now.Sub(last) > most || d >= 0 && now.Sub(begin) > d+most {
			break
		}
	}
	return true
}
