package collective

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plait-ml/plait/core"
)

// A round is one collective of a group: the calls (posts) of the ranks that have come to it so far.
type round struct {
	meeting *meeting
	label   string
	posts   []*post
	arrived int
	over    bool // launched or failed
	err     error
	timer   *time.Timer
}

// A roundKey says which round a call belongs to.
type roundKey struct{ channel, seq uint64 }

// round returns the round in which post p takes part, and counts it in.
func (m *meeting) round(p *post) *round {
	key := roundKey{p.op.channel, p.op.Seq}
	r := m.rounds[key]
	if r == nil {
		r = &round{meeting: m, label: p.op.label(), posts: make([]*post, len(m.ranks))}
		m.rounds[key] = r
		log := p.place.log
		r.timer = time.AfterFunc(p.op.Timeout, func() { r.expire(p.op.Timeout, log) })
	}
	r.arrived++
	if r.arrived == len(m.ranks) {
		delete(m.rounds, key)
	}
	return r
}

// join adds a rank's post to its round. The last one launches it.
func (m *meeting) join(p *post) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.revoked[p.op.channel]; r != nil {
		p.fail(r.err)
		return
	}
	r := m.round(p)
	if r.over {
		p.fail(r.err)
		return
	}
	r.posts[p.rank] = p
	if err := m.anyAbsent(r); err != nil {
		r.fail(err)
		return
	}
	for _, q := range r.posts {
		if q != nil && !q.op.agrees(p.op) {
			r.fail(r.disagreement())
			return
		}
	}
	if r.arrived == len(m.ranks) {
		r.launch(p.rank)
	}
}

// refuse fails the round of a rank whose own tensors cannot take part.
func (m *meeting) refuse(p *post, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.revoked[p.op.channel] != nil {
		return
	}
	if r := m.round(p); !r.over {
		kind := core.DistributedError
		if own, _ := core.KindOf(err); own == core.MemoryError {
			kind = own
		}
		r.fail(core.Errorf(kind, r.label, "rank %d cannot take part: %w", p.rank, err))
	}
}

// fail ends the round, before it was launched, for the ranks that have come and those that will.
func (r *round) fail(err error) {
	r.over, r.err = true, err
	r.timer.Stop()
	for _, p := range r.posts {
		if p != nil {
			p.fail(err)
		}
	}
}

// disagreement says what each rank that has come wants.
func (r *round) disagreement() error {
	var wants []string
	who := map[string][]int{}
	for i, p := range r.posts {
		if p == nil {
			continue
		}
		s := p.op.String()
		if p.op.Kind == KindAllGather || p.op.Kind == KindReduceScatter || p.op.Kind == KindAllToAll || p.op.Kind == KindGather ||
			p.op.Kind == KindScatter {
			s = fmt.Sprintf("%s (%d in, %d out)", s, len(p.op.Ins), len(p.op.Outs))
		}
		if who[s] == nil {
			wants = append(wants, s)
		}
		who[s] = append(who[s], i)
	}
	for i, s := range wants {
		call := "calls"
		if len(who[s]) > 1 {
			call = "call"
		}
		wants[i] = fmt.Sprintf("%s %s %s", names(who[s]), call, s)
	}
	return core.Errorf(core.DistributedError, r.label, "the ranks disagree: %s", strings.Join(wants, "; "))
}

// launch starts the work of a round of which every rank has come.
func (r *round) launch(last int) {
	for _, p := range r.posts {
		p.work.met.Store(true)
	}
	if r.posts[0].op.Kind == KindExchange {
		r.exchange()
	} else if err := launch(r.posts, last, r.meeting.relayOf(everyone, everyone)); err != nil {
		if err == errMisfit {
			err = r.disagreement()
		}
		r.fail(err)
		return
	}
	r.over = true
	r.timer.Stop()
}

// exchange gives every rank the bytes of all.
func (r *round) exchange() {
	payloads := make([][]byte, len(r.posts))
	for i, p := range r.posts {
		payloads[i] = p.op.Payload
	}
	for _, p := range r.posts {
		p.work.payloads = payloads
		p.work.settle(nil, nil)
	}
}

// elsewhere says which calls of rank i wait for others in other groups.
func (m *meeting) elsewhere(i int) string {
	m.world.mu.Lock()
	others := slices.Clone(m.world.meetings)
	m.world.mu.Unlock()
	var s string
	for _, o := range others {
		k := slices.Index(o.ranks, m.ranks[i])
		if o == m || k < 0 {
			continue
		}
		for _, r := range o.records[k].list() {
			if r.State == waitsForRanks {
				s += fmt.Sprintf("; in the group of the ranks %v: %v", o.ranks, r)
			}
		}
	}
	return s
}

// expire fails the round because ranks have not come in time, and says what the ranks did last.
func (r *round) expire(after time.Duration, log func(string)) {
	m := r.meeting
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.over {
		return
	}
	var missing, here []int
	for i, p := range r.posts {
		if p == nil {
			missing = append(missing, i)
		} else {
			here = append(here, i)
		}
	}
	var last []string
	for _, i := range missing {
		last = append(last, fmt.Sprintf("the last call of rank %d: %s%s", i, m.records[i].last(), m.elsewhere(i)))
	}
	has, wait := "has", "waits"
	if len(missing) > 1 {
		has = "have"
	}
	if len(here) > 1 {
		wait = "wait"
	}
	r.fail(core.Errorf(core.DistributedError, r.label, "%s %s not come in %v, %s %s (%s)",
		names(missing), has, after, names(here), wait, strings.Join(last, "; ")))
	log(m.history(r.err))
}
