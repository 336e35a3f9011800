package collective

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/flight"
)

// DefaultTimeout is how long a rank waits for others if no timeout is set.
const DefaultTimeout = 30 * time.Minute

// Options configure a group.
type Options struct {
	Name    string        // for messages; default "world"
	Timeout time.Duration // how long a rank waits for the others; 0 means DefaultTimeout
	// JoinTimeout is how long [JoinWorld] waits for the other processes; 0 means Timeout.
	JoinTimeout time.Duration
	// Log receives the last calls of all ranks when a timeout expires. Nil writes to standard error.
	Log func(string)
	// FlightRecords, of a world, is a folder in which each process writes what the ranks did last when a rank is lost, does not come in time or
	// disagrees; see package flight. Empty means that of the environment variable PLAIT_FLIGHT_RECORDER, if it is set.
	FlightRecords string
	// Stragglers says of which ranks of a world Warn is told that they hold up the others.
	Stragglers Stragglers
	// Warn receives warnings. Nil means Log.
	Warn func(string)
	// LinkRate, of a world, limits the bytes per second that a rank moves, to simulate links slower than one machine's memory. 0 means no
	// limit. Subgroups inherit it.
	LinkRate float64
}

// A Group is one rank's handle on a set of ranks that communicate. Every rank must call the same methods in the same order, and a rank's
// calls on one group must not overlap. Methods that move tensors return at once.
type Group struct {
	*member
	timeout time.Duration
	purpose string
	channel *channel
}

// A member is the state shared by all handles of one rank on one group.
type member struct {
	local     *local
	name      string
	rank      int
	ranks     []int         // world ranks
	own       channel       // the default channel; see Channel
	groups    atomic.Uint64 // number of subgroups created with New
	again     atomic.Uint64 // number of groups created with Renew
	numbers   atomic.Uint64 // see Number
	log       func(string)
	exitWaits *exitWaits // shared by all groups of the rank

	mu          sync.Mutex
	stats       Stats
	forBackward *member // see ForBackward; nil until the first call
}

// Stats count the data that a rank has moved through a group.
type Stats struct {
	Calls map[string]int // by name of the collective
	// Bytes are the bytes that the rank read from and wrote to the memory of its peers. For n ranks an all-reduce of s bytes counts
	// 2s(n-1)/n; an all-gather or reduce-scatter of s bytes in total counts s(n-1)/n.
	Bytes map[string]int
	// Staged are the bytes copied between the host and the rank's device, if the host cannot address its memory and the ranks' devices do not
	// reach each other. An all-reduce of s bytes counts 2s.
	Staged int
}

// Total returns the bytes of all collectives.
func (s Stats) Total() int {
	n := 0
	for _, b := range s.Bytes {
		n += b
	}
	return n
}

func newGroup(l *local, name string, rank int, ranks []int, o Options, e *exitWaits) *Group {
	m := &member{local: l, name: name, rank: rank, ranks: ranks, log: o.Log, exitWaits: e,
		stats: Stats{Calls: map[string]int{}, Bytes: map[string]int{}}}
	return &Group{m, o.Timeout, "", &m.own}
}

// Rank returns the rank in the group.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks in the group.
func (g *Group) Size() int { return len(g.ranks) }

// Ranks returns the world ranks of the group's members.
func (g *Group) Ranks() []int { return slices.Clone(g.ranks) }

// Name returns the group's name.
func (g *Group) Name() string { return g.name }

// Backend returns "local" for ranks of one process, and otherwise the name of the transport, such as "mpi".
func (g *Group) Backend() string { return g.local.rendezvous.name() }

// Timeout returns how long the rank waits for others.
func (g *Group) Timeout() time.Duration { return g.timeout }

// SetTimeout sets the timeout of later operations through this handle.
func (g *Group) SetTimeout(d time.Duration) { g.timeout = d }

// WithTimeout returns a handle on the same group with another timeout.
func (g *Group) WithTimeout(d time.Duration) *Group { return &Group{g.member, d, g.purpose, g.channel} }

// For returns a handle on the same group whose operations have a purpose, such as "unit 3 (layers.2)". Ranks that match one operation with
// different purposes get an error that names both. Without purposes, tensors of equal shapes would hide the mistake.
func (g *Group) For(purpose string) *Group { return &Group{g.member, g.timeout, purpose, g.channel} }

// Purpose returns the purpose of operations through this handle; see [Group.For].
func (g *Group) Purpose() string { return g.purpose }

// ForBackward returns a handle, with the same purpose, on a second group of the same ranks; every call returns the same group. It is for
// operations in graph order. A reducer interleaves other collectives as gradients become ready, which happens at different places on each
// rank, and ranks match calls by their order.
func (g *Group) ForBackward() *Group {
	m := g.member
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.forBackward == nil {
		a := newGroup(m.local.split(m.all(), forBackward), m.name+"/backward", m.rank, m.ranks, Options{Log: m.log}, m.exitWaits).member
		a.forBackward = a
		m.forBackward = a
	}
	return &Group{m.forBackward, g.timeout, g.purpose, &m.forBackward.own}
}

// all returns all ranks of the group.
func (m *member) all() []int {
	all := make([]int, len(m.ranks))
	for i := range all {
		all[i] = i
	}
	return all
}

// Number returns 1, 2, 3 and so on: names for objects that all ranks create in the same order.
func (g *Group) Number() int { return int(g.numbers.Add(1)) }

// Stats returns the rank's statistics of the group and of [Group.ForBackward].
func (g *Group) Stats() Stats {
	s := Stats{Calls: map[string]int{}, Bytes: map[string]int{}}
	g.mu.Lock()
	a := g.forBackward
	g.mu.Unlock()
	g.addTo(&s)
	if a != nil && a != g.member {
		a.addTo(&s)
	}
	return s
}

func (m *member) addTo(s *Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k, v := range m.stats.Calls {
		s.Calls[k] += v
		s.Bytes[k] += m.stats.Bytes[k]
	}
	s.Staged += m.stats.Staged
}

func (m *member) countStaged(bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.Staged += bytes
}

// Recorder returns the rank's last operations in the group, oldest first. [Group.FlightRecord] has those of all ranks and groups.
func (g *Group) Recorder() []flight.Operation { return g.local.rendezvous.operations(g.local.rank) }

// New creates a subgroup of the given ranks of g. Every rank of g must call it with the same ranks in the same order. It returns nil on
// ranks outside the subgroup. Ranks in the subgroup are numbered in the order of ranks.
func (g *Group) New(ranks []int, o Options) (*Group, error) {
	const op = "new_group"
	seen := map[int]bool{}
	for _, r := range ranks {
		if r < 0 || r >= g.Size() || seen[r] {
			return nil, core.Errorf(core.ValueError, op, "got the ranks %v, want different ones from 0 to %d", ranks, g.Size()-1)
		}
		seen[r] = true
	}
	if len(ranks) == 0 {
		return nil, core.Errorf(core.ValueError, op, "got no ranks, want at least one")
	}
	key := g.groups.Add(1)
	var want []byte
	for _, r := range ranks {
		want = binary.AppendUvarint(want, uint64(r))
	}
	got, err := g.exchange(op, want)
	if err != nil {
		return nil, err
	}
	for r, other := range got {
		if !slices.Equal(want, other) {
			return nil, core.Errorf(core.DistributedError, op, "the ranks disagree: rank %d wants a group of %v, rank %d one of %v",
				g.rank, ranks, r, decodeRanks(other))
		}
	}
	if !seen[g.rank] {
		return nil, nil
	}
	if o.Timeout == 0 {
		o.Timeout = g.timeout
	}
	if o.Name == "" {
		o.Name = fmt.Sprintf("%s/%d", g.name, key)
	}
	o.Log = g.log
	global := make([]int, len(ranks))
	for i, r := range ranks {
		global[i] = g.ranks[r]
	}
	return newGroup(g.local.split(ranks, key), o.Name, slices.Index(ranks, g.rank), global, o, g.exitWaits), nil
}

// Renew creates a fresh group with the same ranks as g. Calls in earlier groups do not affect it. The n-th call of every rank creates the
// same group. It does not communicate, so other ranks may call it later.
func (g *Group) Renew(o Options) *Group {
	if o.Name == "" {
		o.Name = g.name
	}
	if o.Timeout == 0 {
		o.Timeout = g.timeout
	}
	o.Log = g.log
	return newGroup(g.local.split(g.all(), renewed|g.again.Add(1)), o.Name, g.rank, g.ranks, o, g.exitWaits)
}

const (
	renewed     = 1 << 63 // flag in the keys of groups made by Renew
	forBackward = 1 << 62 // key of the group of ForBackward
)

func decodeRanks(b []byte) []int {
	var ranks []int
	for len(b) > 0 {
		r, n := binary.Uvarint(b)
		if n <= 0 {
			break
		}
		ranks, b = append(ranks, int(r)), b[n:]
	}
	return ranks
}

// Abort ends the rank in its world because of err, or in order for [ErrReturned]. Operations of any rank that need it fail with an error that names it.
func (g *Group) Abort(err error) { g.local.abort(err) }

// Close ends the rank in the group after its own operations are done. Operations of other ranks that need it fail.
func (g *Group) Close() error { return g.local.close() }
