package collective

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/plait-ml/plait/core"
)

// local is one rank of this process in a rendezvous.
type local struct {
	rendezvous *rendezvous
	rank       int
	streams    *streams
	log        func(string)

	mu       sync.Mutex
	parent   *local   // in the parent group; nil for the world
	children []*local // in the subgroups
}

func newLocal(m *rendezvous, rank int, log func(string)) *local {
	l := &local{rendezvous: m, rank: rank, streams: &streams{rank: m.ranks[rank]}, log: log}
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	m.world.streams[l.streams] = struct{}{}
	return l
}

// start begins an operation and returns at once. A rank's calls in one channel come in the order of their sequence numbers. The group has
// already made the checks that need one rank only.
func (l *local) start(o *Operation) *Work {
	if l.streams.isClosed() {
		return failedWork(o.label(), closed(o.name()))
	}
	m := l.rendezvous
	p := &rankCall{local: l, rank: l.rank, op: o, work: newWork(o.label())}
	p.work.spin, p.work.local, p.work.group, p.work.purpose = spinOf(len(m.ranks)), l, o.group, o.Purpose
	if len(m.peers) > 0 {
		p.work.world = m.world
	}
	l.noteCaller()
	m.records[l.rank].add(o, p.work)
	if err := p.borrow(l.streams); err != nil {
		p.work.settle(nil, err)
		// The others must not wait for what will not come.
		if o.Seq != 0 {
			m.failRound(p, err)
		}
		return p.work
	}
	if o.Kind == KindSend || o.Kind == KindRecv {
		m.pair(p)
	} else {
		m.join(p)
	}
	return p.work
}

// split makes the rank's part in a subgroup. Each of its ranks calls it with the same ranks and the same key, which must be new.
func (l *local) split(ranks []int, key uint64) *local {
	m := l.rendezvous
	core.Lock(&m.mu)
	defer m.mu.Unlock()
	c := m.children[key]
	if c == nil {
		global := make([]int, len(ranks))
		here := 0
		for i, r := range ranks {
			if global[i] = m.ranks[r]; m.here(r) {
				here++
			}
		}
		c = &child{newRendezvous(m.world, derived(m.id, key), global), here}
		m.children[key] = c
	}
	if c.missing--; c.missing == 0 {
		delete(m.children, key)
	}
	made := newLocal(c.rendezvous, slices.Index(ranks, l.rank), l.log)
	made.parent = l
	l.mu.Lock()
	l.children = append(l.children, made)
	l.mu.Unlock()
	if l.streams.isClosed() {
		made.close() // the rank has left the parent group, so it leaves this one too
	}
	return made
}

// ErrReturned is the reason of a rank that ends in order, for [Group.Abort].
var ErrReturned = core.Errorf(core.DistributedError, "", "it has returned")

// errClosed is the reason of the ranks of a process that ends in order.
var errClosed = core.Errorf(core.DistributedError, "", "its process has left the world")

// abort fails all pending and future operations of other ranks that need this one, in all groups.
func (l *local) abort(err error) {
	w, rank := l.rendezvous.world, l.rendezvous.ranks[l.rank]
	if !errors.Is(err, ErrReturned) && !errors.Is(err, errClosed) && !strings.Contains(fmt.Sprint(err), recordedIn) {
		w.record(fmt.Sprintf("rank %d fails: %v", rank, err), true)
	}
	if w.leave(rank, err) {
		w.tellLeft(rank, err)
	}
}

// close removes the rank from the group and its subgroups. Operations of other ranks that need it fail.
func (l *local) close() error {
	l.mu.Lock()
	children := l.children
	l.children = nil
	l.mu.Unlock()
	if up := l.parent; up != nil {
		up.mu.Lock()
		up.children = slices.DeleteFunc(up.children, func(c *local) bool { return c == l })
		up.mu.Unlock()
	}
	var errs []error
	for _, c := range children {
		errs = append(errs, c.close())
	}
	m := l.rendezvous
	if why := core.Errorf(core.DistributedError, "", "it has left the group"); m.removeRank(l.rank, why) {
		m.tellLeft(l.rank, why)
	}
	m.waitRelays(l.rank)
	m.waitJobs(l.rank)
	if l.parent == nil {
		m.world.awaitRecords()
	}
	errs = append(errs, l.streams.close())
	m.world.mu.Lock()
	delete(m.world.streams, l.streams)
	if len(m.world.streams) == 0 && m.world.look != nil {
		m.world.look.Stop() // it would keep the world from being collected until then
	}
	m.world.mu.Unlock()
	return errors.Join(errs...)
}
