package collective

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/plait-ml/plait/core"
)

// A rendezvous is the state that the ranks of a group share: operations that wait for other ranks, and the ranks that have left. If the ranks
// live in several processes, each of these has a rendezvous for the group, and they tell each other what their ranks do: see [across.go].
type rendezvous struct {
	world *world
	id    uint64 // the same in every process
	ranks []int  // world ranks
	peers []int  // the other processes that have ranks of the group

	// Who holds mu may launch, which may wait for space in a queue, and for the foreign lock after that: lock it with [core.Lock].
	mu         sync.Mutex
	rounds     map[roundKey]*round    // not settled yet, or not yet seen by every rank
	revoked    map[uint64]*revocation // by channel, until every rank has revoked it
	sends      []*rankCall            // waiting for their recv here, in the order of the calls
	recvs      []*rankCall
	outgoing   map[uint64]*rankCall // sends to ranks of other processes, which match them
	numbered   uint64               // number of outgoing sends so far
	absent     map[int]error        // ranks that have left the group, and why
	children   map[uint64]*child
	records    []recorder // by rank
	stragglers punctuality
	relays     map[[2]int]*relay // by sender and receiver, or everyone for collectives
	jobs       map[roundKey]*wireJob
	newest     map[uint64][]*wireJob // by channel, the last jobs of its rounds
	later      []func()              // what jobs do once mu is unlocked
}

// unlock unlocks the rendezvous after something that jobs may have waited for, and carries them on.
func (m *rendezvous) unlock() {
	later := m.later
	m.later = nil
	m.mu.Unlock()
	for _, f := range later {
		f()
	}
}

type child struct {
	*rendezvous
	missing int // ranks of this process that have not called Split yet
}

// newRendezvous makes the rendezvous of a group and reads the messages of other processes that came before it.
func newRendezvous(w *world, id uint64, ranks []int) *rendezvous {
	m := &rendezvous{world: w, id: id, ranks: ranks, rounds: map[roundKey]*round{}, revoked: map[uint64]*revocation{},
		outgoing: map[uint64]*rankCall{}, absent: map[int]error{}, children: map[uint64]*child{}, records: make([]recorder, len(ranks)),
		relays: map[[2]int]*relay{}, jobs: map[roundKey]*wireJob{}, newest: map[uint64][]*wireJob{}}
	for i := range ranks {
		if p := m.home(i); p != w.process && !slices.Contains(m.peers, p) {
			m.peers = append(m.peers, p)
		}
		m.records[i].size = w.flight.size
	}
	m.mu.Lock() // later messages wait for the early ones
	defer m.unlock()
	w.mu.Lock()
	for i, r := range ranks {
		if err := w.absent[r]; err != nil {
			m.absent[i] = err
		}
	}
	w.groups[id] = m
	early := w.early[id]
	delete(w.early, id)
	w.mu.Unlock()
	for _, e := range early {
		r := &reader{rest: e.message}
		kind := messageKind(r.byte())
		r.id()
		m.receive(e.from, kind, r)
		w.damaged(e.from, r)
	}
	return m
}

// name returns the name of what connects the ranks.
func (m *rendezvous) name() string {
	if len(m.peers) == 0 {
		return "local"
	}
	return m.world.transport.Name()
}

// home returns the process of rank i.
func (m *rendezvous) home(i int) int { return m.world.home(m.ranks[i]) }

// here reports whether rank i lives in this process.
func (m *rendezvous) here(i int) bool { return m.home(i) == m.world.process }

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
	core.Lock(&m.mu)
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

// removeRank fails everything that waits for rank i. Rounds at which it has arrived continue. It reports whether the rank was there.
func (m *rendezvous) removeRank(i int, err error) bool {
	core.Lock(&m.mu)
	defer m.unlock()
	return m.remove(i, err)
}

// remove is removeRank with the rendezvous locked.
func (m *rendezvous) remove(i int, err error) bool {
	if m.absent[i] != nil {
		return false
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
			p.fail(m.world.fault(m.goneError(p.op.label(), i)))
			return true
		})
	}
	for id, p := range m.outgoing {
		if p.rank == i || p.op.Root == i {
			delete(m.outgoing, id)
			p.fail(m.world.fault(m.goneError(p.op.label(), i)))
		}
	}
	m.retire()
	return true
}

// retire has the world forget the group once all its ranks have left and its transfers are over.
func (m *rendezvous) retire() {
	if len(m.absent) == len(m.ranks) && len(m.jobs) == 0 {
		m.world.forget(m)
	}
}

// goneError returns the error of an operation that needs rank i, which has left.
func (m *rendezvous) goneError(op string, i int) error {
	return core.Errorf(core.DistributedError, op, "%s is gone: %w", m.rankName(i), m.absent[i])
}

// rankName returns what messages call rank i, whose number in the world may be another one.
func (m *rendezvous) rankName(i int) string {
	if m.ranks[i] == i {
		return fmt.Sprint("rank ", i)
	}
	return fmt.Sprintf("rank %d (%d in the world)", i, m.ranks[i])
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
