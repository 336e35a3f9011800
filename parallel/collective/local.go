package collective

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/plait-ml/plait/core"
)

// A meeting is the state that the ranks of a group, which are threads of this process, share: the calls that wait for other ranks, and
// the ranks that are gone.
type meeting struct {
	world *world
	ranks []int // their numbers in the world

	mu       sync.Mutex
	rounds   map[roundKey]*round        // not yet settled, or not yet seen by every rank
	revoked  map[uint64]*revocation     // channels, until every rank has left them
	channels map[channelKey]*newChannel // that not all ranks have made yet
	numbered uint64                     // channels so far
	sends    []*post                    // that wait for their recv, in the order of their calls
	recvs    []*post
	absent   map[int]error // ranks of the group that are gone, and why
	children map[uint64]*child
	records  []recorder        // of each rank
	relays   map[[2]int]*relay // of the collectives, and of those who send and receive
}

type child struct {
	*meeting
	takers int // ranks that have yet to take it
}

// A world is all ranks of a process that were started together, and the meetings of their groups.
type world struct {
	rate    float64 // see Options.LinkRate
	waiting *waitingRoom

	mu       sync.Mutex
	meetings []*meeting
	absent   map[int]error
}

func newMeeting(w *world, ranks []int) *meeting {
	m := &meeting{world: w, ranks: ranks, rounds: map[roundKey]*round{}, revoked: map[uint64]*revocation{}, channels: map[channelKey]*newChannel{}, absent: map[int]error{}, children: map[uint64]*child{},
		records: make([]recorder, len(ranks)), relays: map[[2]int]*relay{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range ranks {
		if err := w.absent[r]; err != nil {
			m.absent[i] = err
		}
	}
	w.meetings = append(w.meetings, m)
	return m
}

// relayOf returns the relay for what goes from one rank to another, or from everyone to everyone. The meeting is locked.
func (m *meeting) relayOf(from, to int) *relay {
	key := [2]int{from, to}
	r := m.relays[key]
	if r == nil {
		r = &relay{}
		m.relays[key] = r
	}
	return r
}

// settled waits until the relays have no job that rank i takes part in.
func (m *meeting) settled(i int) {
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

// leave ends the part of a rank of the world: operations that need it fail, now and later.
func (w *world) leave(rank int, err error) {
	w.mu.Lock()
	if w.absent[rank] != nil {
		w.mu.Unlock()
		return
	}
	w.absent[rank] = err
	meetings := slices.Clone(w.meetings)
	w.mu.Unlock()
	for _, m := range meetings {
		if i := slices.Index(m.ranks, rank); i >= 0 {
			m.lose(i, err)
		}
	}
	w.waiting.leave(rank) // only now: until then the others wait for it
}

// lose fails everything that waits for rank i. A round that it has come to goes on without it.
func (m *meeting) lose(i int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.absent[i] != nil {
		return
	}
	m.absent[i] = err
	for _, r := range m.rounds {
		if !r.over && r.posts[i] == nil {
			r.fail(m.gone(r.label, i))
		}
	}
	for _, list := range []*[]*post{&m.sends, &m.recvs} {
		*list = slices.DeleteFunc(*list, func(p *post) bool {
			if p.rank != i && p.op.Root != i {
				return false
			}
			p.fail(m.gone(p.op.label(), i))
			return true
		})
	}
}

// gone says that rank i cannot take part.
func (m *meeting) gone(op string, i int) error {
	return core.Errorf(core.DistributedError, op, "rank %d is gone: %w", i, m.absent[i])
}

// anyAbsent returns the error of round r if a rank is gone that has not come to it.
func (m *meeting) anyAbsent(r *round) error {
	for i := range m.ranks {
		if m.absent[i] != nil && r.posts[i] == nil {
			return m.gone(r.label, i)
		}
	}
	return nil
}

// local is one rank's place in a meeting.
type local struct {
	meeting *meeting
	rank    int
	streams *streams
	log     func(string)

	mu       sync.Mutex
	parent   *local   // of the group that this one was made from; nil for the world
	children []*local // of the groups made from this one
}

// Name implements [Backend].
func (l *local) Name() string { return "local" }

// Start implements [Backend].
func (l *local) Start(o *Operation) *Work {
	if l.streams.isClosed() {
		return failedWork(o.label(), closed(o.name()))
	}
	p := &post{place: l, rank: l.rank, op: o, work: newWork(o.label())}
	p.work.spin, p.work.place, p.work.group, p.work.use = spinOf(len(l.meeting.ranks)), l, o.group, o.Purpose
	l.notice()
	l.meeting.records[l.rank].add(o, p.work)
	if err := p.borrow(l.streams); err != nil {
		p.work.settle(nil, err)
		// The others must not wait for what will not come.
		if o.Seq != 0 {
			l.meeting.refuse(p, err)
		}
		return p.work
	}
	if o.Kind == KindSend || o.Kind == KindRecv {
		l.meeting.pair(p)
	} else {
		l.meeting.join(p)
	}
	return p.work
}

// Split implements [Backend].
func (l *local) Split(ranks []int, key uint64) Backend {
	m := l.meeting
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.children[key]
	if c == nil {
		global := make([]int, len(ranks))
		for i, r := range ranks {
			global[i] = m.ranks[r]
		}
		c = &child{newMeeting(m.world, global), len(ranks)}
		m.children[key] = c
	}
	if c.takers--; c.takers == 0 {
		delete(m.children, key)
	}
	made := newLocal(c.meeting, slices.Index(ranks, l.rank), l.log)
	made.parent = l
	l.mu.Lock()
	l.children = append(l.children, made)
	l.mu.Unlock()
	if l.streams.isClosed() {
		made.Close() // it has left this one as well
	}
	return made
}

// Abort implements [Backend].
func (l *local) Abort(err error) { l.meeting.world.leave(l.meeting.ranks[l.rank], err) }

// Close implements [Backend]. The groups made from this one end with it.
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
	m := l.meeting
	m.lose(l.rank, core.Errorf(core.DistributedError, "", "it has left the group"))
	m.settled(l.rank)
	m.mu.Lock()
	last := len(m.absent) == len(m.ranks)
	m.mu.Unlock()
	if last {
		m.world.mu.Lock()
		m.world.meetings = slices.DeleteFunc(m.world.meetings, func(o *meeting) bool { return o == m })
		m.world.mu.Unlock()
	}
	return errors.Join(append(errs, l.streams.close())...)
}

func newLocal(m *meeting, rank int, log func(string)) *local {
	return &local{meeting: m, rank: rank, streams: &streams{rank: m.ranks[rank]}, log: log}
}

// names lists ranks as messages do: "rank 2", "ranks 0 and 3", "ranks 1, 2 and 4".
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
