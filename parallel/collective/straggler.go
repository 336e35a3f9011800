package collective

import (
	"fmt"
	"sync"
	"time"

	"github.com/plait-ml/plait/core"
)

// Stragglers say when a rank holds up the others of a group: over a window of collectives it came last in more than Share of them, and the time
// that it was behind the median of the ranks, beyond what any other rank was, is more than Lost of the window. So ranks that take turns at being
// late are none. The zero value means the defaults.
type Stragglers struct {
	Off         bool
	Share       float64       // 0 means 0.5
	Lost        float64       // 0 means 0.1
	Collectives int           // of a window, at least; 0 means 100
	Period      time.Duration // of a window, at least; 0 means 10 seconds
}

// complete checks the numbers and sets the defaults.
func (s *Stragglers) complete() error {
	for _, x := range []struct {
		name  string
		value *float64
		usual float64
	}{{"share of collectives", &s.Share, 0.5}, {"share of lost time", &s.Lost, 0.1}} {
		if *x.value == 0 {
			*x.value = x.usual
		}
		if !(*x.value > 0 && *x.value < 1) {
			return core.Errorf(core.ValueError, "world", "got a %s of %v for stragglers, want one between 0 and 1", x.name, *x.value)
		}
	}
	if s.Collectives == 0 {
		s.Collectives = 100
	}
	if s.Period == 0 {
		s.Period = 10 * time.Second
	}
	if s.Collectives < 0 || s.Period < 0 {
		return core.Errorf(core.ValueError, "world", "got a window of %d collectives and %v for stragglers, want positive ones", s.Collectives, s.Period)
	}
	return nil
}

// WarnOfStragglers changes of which stragglers [Options.Warn] is told, for all groups of the world. All ranks should make the same call: in a
// world of several processes, that of a group's first rank gives the warnings of the group.
func (g *Group) WarnOfStragglers(s Stragglers) error {
	if err := s.complete(); err != nil {
		return err
	}
	g.local.rendezvous.world.stragglers.Store(&s)
	return nil
}

// punctuality counts in a window of a group's collectives which ranks came last. Ranks of other processes count as arrived when their messages
// come.
type punctuality struct {
	mu     sync.Mutex
	begin  int64 // of the window; 0 before the first collective
	count  int
	last   []int   // by rank
	late   []int64 // time behind the median of the ranks, in nanoseconds
	until  []int64 // by rank, up to when late has counted: collectives overlap
	warned int     // 1 and the rank that was warned of, until a window without a straggler
}

// note counts a round at which all ranks have arrived. The rendezvous is locked.
func (p *punctuality) note(r *round, now int64) {
	m := r.rendezvous
	s := m.world.stragglers.Load()
	n := len(r.calls)
	if s == nil || s.Off || n < 2 || !m.here(0) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begin == 0 {
		p.begin, p.last, p.late, p.until = now, make([]int, n), make([]int64, n), make([]int64, n)
		return
	}
	last := 0
	for i, call := range r.calls {
		called := call.work.times.called
		if from := max(r.median, p.until[i], p.begin); called > from {
			p.late[i] += called - from
			p.until[i] = called
		}
		if called > r.calls[last].work.times.called {
			last = i
		}
	}
	p.count++
	p.last[last]++
	if p.count >= s.Collectives && now-p.begin >= int64(s.Period) {
		p.judge(m, s, now)
		p.begin, p.count = now, 0
		clear(p.last)
		clear(p.late)
	}
}

// judge ends a window.
func (p *punctuality) judge(m *rendezvous, s *Stragglers, now int64) {
	slowest := 0
	for i := range p.last {
		if p.last[i] > p.last[slowest] {
			slowest = i
		}
	}
	late, next := p.late[slowest], int64(0)
	for i, t := range p.late {
		if i != slowest {
			next = max(next, t)
		}
	}
	took := now - p.begin
	share, lost := float64(p.last[slowest])/float64(p.count), float64(late-next)/float64(took)
	if share <= s.Share || lost <= s.Lost {
		p.warned = 0
		return
	}
	if p.warned == 1+slowest {
		return
	}
	p.warned = 1 + slowest
	rank := fmt.Sprint("rank ", m.ranks[slowest])
	if len(m.world.homes) > 0 {
		rank += fmt.Sprint(" of process ", m.home(slowest))
	}
	warning := fmt.Sprintf("%s holds up the group of the ranks %v: it was the last to arrive in %d of %d collectives, and behind the median of "+
		"the ranks for %.0f%% of the last %v\n", rank, m.ranks, p.last[slowest], p.count, 100*lost, time.Duration(took).Round(time.Millisecond))
	m.world.warnOf(warning)
}

// warnOf gives a warning. It does not wait for the caller's function.
func (w *world) warnOf(text string) {
	go func() {
		defer func() { _ = recover() }()
		w.warn(text)
	}()
}
