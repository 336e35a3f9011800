package collective

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// DefaultTimeout is how long a rank waits for the others where nothing else is said.
const DefaultTimeout = 30 * time.Minute

// Options say what a group is like.
type Options struct {
	Name    string        // in messages; "world" if empty
	Timeout time.Duration // how long a rank waits for the others; 0 means DefaultTimeout
	// Log is told what the ranks did last when a timeout passes; nil writes to standard error.
	Log func(string)
	// LinkRate, of a world, is how many bytes a second a rank moves at most, to rehearse slower links than the memory of one
	// machine; 0 sets no limit. Its groups have the same.
	LinkRate float64
}

// A Group is one rank's handle on a set of ranks that act together. Every rank calls the same methods in the same order;
// the calls of one rank on one group must not overlap. The methods that move tensors return at once.
type Group struct {
	*member
	timeout time.Duration
	purpose string
	channel *channel
}

// A member is what the handles of one rank on one group share.
type member struct {
	backend Backend
	name    string
	rank    int
	ranks   []int         // numbers in the world
	own     channel       // of operations without another; see Channel
	groups  atomic.Uint64 // made from this one by some of its ranks
	again   atomic.Uint64 // and by all of them; see Renew
	numbers atomic.Uint64 // given; see Number
	log     func(string)
	leaving *leaving // the rank's, in all its groups

	mu    sync.Mutex
	stats Stats
	apart *member // see Apart; nil until it is asked for
}

// Stats count what a rank has moved through a group.
type Stats struct {
	Calls map[string]int // by name of the collective
	// Bytes are what the rank read from and wrote to the memory of its peers: of an all-reduce of s bytes over n ranks
	// 2s(n-1)/n, of an all-gather or a reduce-scatter of s bytes in all s(n-1)/n.
	Bytes map[string]int
	// Staged are the bytes that went between the host and the rank's device, if the host cannot address its memory: of an
	// all-reduce of s bytes 2s.
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

// NewWorld returns the handles of size ranks that are threads of this process, on a group of all of them.
func NewWorld(size int, o Options) ([]*Group, error) {
	if size < 1 {
		return nil, core.Errorf(core.ValueError, "world", "got %d ranks, want at least one", size)
	}
	if o.Timeout < 0 {
		return nil, core.Errorf(core.ValueError, "world", "got a timeout of %v, want a positive one", o.Timeout)
	}
	if !(o.LinkRate >= 0) {
		return nil, core.Errorf(core.ValueError, "world", "got a link rate of %v, want bytes a second", o.LinkRate)
	}
	if o.Log == nil {
		o.Log = func(s string) { fmt.Fprint(os.Stderr, s) }
	}
	if o.Name == "" {
		o.Name = "world"
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	ranks := make([]int, size)
	for i := range ranks {
		ranks[i] = i
	}
	m := newMeeting(&world{absent: map[int]error{}, rate: o.LinkRate, waiting: newWaitingRoom(size)}, ranks)
	groups := make([]*Group, size)
	for i := range groups {
		groups[i] = newGroup(newLocal(m, i, o.Log), o.Name, i, ranks, o, &leaving{waits: map[*func() error]struct{}{}})
	}
	return groups, nil
}

func newGroup(b Backend, name string, rank int, ranks []int, o Options, e *leaving) *Group {
	m := &member{backend: b, name: name, rank: rank, ranks: ranks, log: o.Log, leaving: e,
		stats: Stats{Calls: map[string]int{}, Bytes: map[string]int{}}}
	return &Group{m, o.Timeout, "", &m.own}
}

// Rank returns the rank's number in the group.
func (g *Group) Rank() int { return g.rank }

// Size returns the number of ranks in the group.
func (g *Group) Size() int { return len(g.ranks) }

// Ranks returns the numbers in the world of the group's ranks.
func (g *Group) Ranks() []int { return slices.Clone(g.ranks) }

// Name returns the group's name.
func (g *Group) Name() string { return g.name }

// Backend returns the name of what carries out the group's operations, such as "local".
func (g *Group) Backend() string { return g.backend.Name() }

// Timeout returns how long the rank waits for the others.
func (g *Group) Timeout() time.Duration { return g.timeout }

// SetTimeout changes how long operations started through this handle from now on wait for the others.
func (g *Group) SetTimeout(d time.Duration) { g.timeout = d }

// WithTimeout returns a handle on the same group whose operations wait so long for the others.
func (g *Group) WithTimeout(d time.Duration) *Group { return &Group{g.member, d, g.purpose, g.channel} }

// For returns a handle on the same group whose operations are for a purpose, such as "unit 3 (layers.2)". Ranks that meet in
// one operation for different purposes get an error that names them: their tensors may well have the same shapes.
func (g *Group) For(purpose string) *Group { return &Group{g.member, g.timeout, purpose, g.channel} }

// Purpose returns what operations through this handle are for; see [Group.For].
func (g *Group) Purpose() string { return g.purpose }

// Apart returns a handle, for the same purpose, on a second group of the same ranks, always the same one. Operations in the order of
// a graph, such as those of gradients, belong there: between them a reducer starts others as gradients become ready, not at
// the same places on each rank, and ranks meet by the order of their calls.
func (g *Group) Apart() *Group {
	m := g.member
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.apart == nil {
		a := newGroup(m.backend.Split(m.all(), apart), m.name+"/apart", m.rank, m.ranks, Options{Log: m.log}, m.leaving).member
		a.apart = a
		m.apart = a
	}
	return &Group{m.apart, g.timeout, g.purpose, &m.apart.own}
}

// all returns the numbers of the ranks in the group.
func (m *member) all() []int {
	all := make([]int, len(m.ranks))
	for i := range all {
		all[i] = i
	}
	return all
}

// Number returns 1, 2, 3 and so on, as names for what all ranks make in the same order.
func (g *Group) Number() int { return int(g.numbers.Add(1)) }

// Stats returns what the rank has moved so far, in the group and apart.
func (g *Group) Stats() Stats {
	s := Stats{Calls: map[string]int{}, Bytes: map[string]int{}}
	g.mu.Lock()
	a := g.apart
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

// Recorder returns the rank's last operations in the group, the oldest first.
func (g *Group) Recorder() []Record {
	if l, ok := g.backend.(*local); ok {
		return l.meeting.records[l.rank].list()
	}
	return nil
}

// New makes a group of the given ranks of g. Every rank of g calls it, with the same ranks in the same order, and those that
// are not among them get nil. The numbers in the new group follow the order of ranks.
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
	return newGroup(g.backend.Split(ranks, key), o.Name, slices.Index(ranks, g.rank), global, o, g.leaving), nil
}

// Renew returns a group of the same ranks as g, which begins anew: nothing that happened in an earlier one concerns it. The n-th
// call of every rank makes the same group. It asks nobody, so the others need not have come.
func (g *Group) Renew(o Options) *Group {
	if o.Name == "" {
		o.Name = g.name
	}
	if o.Timeout == 0 {
		o.Timeout = g.timeout
	}
	o.Log = g.log
	return newGroup(g.backend.Split(g.all(), renewed|g.again.Add(1)), o.Name, g.rank, g.ranks, o, g.leaving)
}

const (
	renewed = 1 << 63 // marks the keys of groups that begin anew
	apart   = 1 << 62 // is the key of the one apart
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

// Abort ends the rank's part in its world because of err: operations that need it fail, on every rank, with an error that
// names it.
func (g *Group) Abort(err error) { g.backend.Abort(err) }

// Close ends the rank's part in the group, after its own operations are done. Operations of others that need it fail.
func (g *Group) Close() error { return g.backend.Close() }
