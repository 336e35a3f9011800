package collective

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// A rendezvous is the state that the ranks of a group share: operations that wait for other ranks, and the ranks that have left. The ranks
// are threads of one process.
type rendezvous struct {
	world *world
	ranks []int // world ranks

	mu       sync.Mutex
	rounds   map[roundKey]*round        // not settled yet, or not yet seen by every rank
	revoked  map[uint64]*revocation     // by channel, until every rank has revoked it
	channels map[channelKey]*newChannel // channels that some ranks have not created yet
	numbered uint64                     // number of channels so far
	sends    []*rankCall                // waiting for their recv, in the order of the calls
	recvs    []*rankCall
	absent   map[int]error // ranks that have left the group, and why
	children map[uint64]*child
	records  []recorder        // by rank
	relays   map[[2]int]*relay // by sender and receiver, or everyone for collectives
}

type child struct {
	*rendezvous
	missing int // ranks that have not called Split yet
}

// A world is the set of ranks of one [Spawn] or [NewWorld], with the rendezvous of all their groups.
type world struct {
	rate     float64 // see Options.LinkRate
	detector *deadlockDetector
	watched  atomic.Bool // a look for deadlocks is due: see watch

	mu      sync.Mutex
	groups  []*rendezvous
	streams map[*streams]struct{} // of all ranks in all groups
	look    *time.Timer           // the next look for deadlocks, or the last one
	absent  map[int]error
}

func newRendezvous(w *world, ranks []int) *rendezvous {
	m := &rendezvous{world: w, ranks: ranks, rounds: map[roundKey]*round{}, revoked: map[uint64]*revocation{}, channels: map[channelKey]*newChannel{}, absent: map[int]error{}, children: map[uint64]*child{},
		records: make([]recorder, len(ranks)), relays: map[[2]int]*relay{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range ranks {
		if err := w.absent[r]; err != nil {
			m.absent[i] = err
		}
	}
	w.groups = append(w.groups, m)
	return m
}

// relayOf returns the relay from one rank to another, or the collectives' if both are everyone. The rendezvous is locked.
func (m *rendezvous) relayOf(from, to int) *relay {
	key := [2]int{from, to}
	r := m.relays[key]
	if r == nil {
		r = &relay{}
		m.relays[key] = r
	}
	return r
}

// waitRelays waits until no relay has a job of rank i.
func (m *rendezvous) waitRelays(i int) {
	m.mu.Lock()
	var mine []*relay
	for key, r := range m.relays {
		if key[0] == everyone || key[0] == i || key[1] == i {
			mine = append(mine, r)
		}
	}
	m.mu.Unlock()
	for _, r := range mine {
		r.wait()
	}
}

// leave removes a rank from the world: pending and later operations that need it fail.
func (w *world) leave(rank int, err error) {
	w.mu.Lock()
	if w.absent[rank] != nil {
		w.mu.Unlock()
		return
	}
	w.absent[rank] = err
	groups := slices.Clone(w.groups)
	w.mu.Unlock()
	for _, m := range groups {
		if i := slices.Index(m.ranks, rank); i >= 0 {
			m.removeRank(i, err)
		}
	}
	w.detector.leave(rank) // must come last: until then the other ranks count as waiting for it
}

// removeRank fails everything that waits for rank i. Rounds at which it has arrived continue.
func (m *rendezvous) removeRank(i int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.absent[i] != nil {
		return
	}
	m.absent[i] = err
	for _, r := range m.rounds {
		if !r.over && r.calls[i] == nil {
			r.fail(m.goneError(r.label, i))
		}
	}
	for _, list := range []*[]*rankCall{&m.sends, &m.recvs} {
		*list = slices.DeleteFunc(*list, func(p *rankCall) bool {
			if p.rank != i && p.op.Root != i {
				return false
			}
			p.fail(m.goneError(p.op.label(), i))
			return true
		})
	}
}

// goneError returns the error of an operation that needs rank i, which has left.
func (m *rendezvous) goneError(op string, i int) error {
	return core.Errorf(core.DistributedError, op, "rank %d is gone: %w", i, m.absent[i])
}

// anyAbsent returns an error if a rank has left before it arrived at round r.
func (m *rendezvous) anyAbsent(r *round) error {
	for i := range m.ranks {
		if m.absent[i] != nil && r.calls[i] == nil {
			return m.goneError(r.label, i)
		}
	}
	return nil
}

// local is the [Backend] of one rank in a rendezvous.
type local struct {
	rendezvous *rendezvous
	rank       int
	streams    *streams
	log        func(string)

	mu       sync.Mutex
	parent   *local   // backend of the parent group; nil for the world
	children []*local // backends of the subgroups
}

// Name implements [Backend].
func (l *local) Name() string { return "local" }

// Start implements [Backend].
func (l *local) Start(o *Operation) *Work {
	if l.streams.isClosed() {
		return failedWork(o.label(), closed(o.name()))
	}
	p := &rankCall{local: l, rank: l.rank, op: o, work: newWork(o.label())}
	p.work.spin, p.work.local, p.work.group, p.work.purpose = spinOf(len(l.rendezvous.ranks)), l, o.group, o.Purpose
	l.noteCaller()
	l.rendezvous.records[l.rank].add(o, p.work)
	if err := p.borrow(l.streams); err != nil {
		p.work.settle(nil, err)
		// The others must not wait for what will not come.
		if o.Seq != 0 {
			l.rendezvous.failRound(p, err)
		}
		return p.work
	}
	if o.Kind == KindSend || o.Kind == KindRecv {
		l.rendezvous.pair(p)
	} else {
		l.rendezvous.join(p)
	}
	return p.work
}

// Split implements [Backend].
func (l *local) Split(ranks []int, key uint64) Backend {
	m := l.rendezvous
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.children[key]
	if c == nil {
		global := make([]int, len(ranks))
		for i, r := range ranks {
			global[i] = m.ranks[r]
		}
		c = &child{newRendezvous(m.world, global), len(ranks)}
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
		made.Close() // the rank has left the parent group, so it leaves this one too
	}
	return made
}

// Abort implements [Backend].
func (l *local) Abort(err error) { l.rendezvous.world.leave(l.rendezvous.ranks[l.rank], err) }

// Close implements [Backend]. It also closes the subgroups.
func (l *local) Close() error {
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
		errs = append(errs, c.Close())
	}
	m := l.rendezvous
	m.removeRank(l.rank, core.Errorf(core.DistributedError, "", "it has left the group"))
	m.waitRelays(l.rank)
	m.mu.Lock()
	last := len(m.absent) == len(m.ranks)
	m.mu.Unlock()
	if last {
		m.world.mu.Lock()
		m.world.groups = slices.DeleteFunc(m.world.groups, func(o *rendezvous) bool { return o == m })
		m.world.mu.Unlock()
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

func newLocal(m *rendezvous, rank int, log func(string)) *local {
	l := &local{rendezvous: m, rank: rank, streams: &streams{rank: m.ranks[rank]}, log: log}
	m.world.mu.Lock()
	defer m.world.mu.Unlock()
	m.world.streams[l.streams] = struct{}{}
	return l
}

// names lists ranks for messages: "rank 2", "ranks 0 and 3", "ranks 1, 2 and 4".
func names(ranks []int) string {
	switch n := len(ranks); n {
	case 0:
		return "no rank"
	case 1:
		return fmt.Sprint("rank ", ranks[0])
	default:
		parts := make([]string, n-1)
		for i, r := range ranks[:n-1] {
			parts[i] = fmt.Sprint(r)
		}
		return fmt.Sprintf("ranks %s and %d", strings.Join(parts, ", "), ranks[n-1])
	}
}
