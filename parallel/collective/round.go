package collective

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plait-ml/plait/core"
)

// A round is one collective of a group, with the calls of the ranks that have arrived so far.
type round struct {
	rendezvous *rendezvous
	label      string
	calls      []*rankCall
	arrived    int
	over       bool // launched or failed
	err        error
	timer      *time.Timer
}

// A roundKey identifies a round.
type roundKey struct{ channel, seq uint64 }

// round returns the round of call p and counts p as arrived.
func (m *rendezvous) round(p *rankCall) *round {
	key := roundKey{p.op.channel, p.op.Seq}
	r := m.rounds[key]
	if r == nil {
		r = &round{rendezvous: m, label: p.op.label(), calls: make([]*rankCall, len(m.ranks))}
		m.rounds[key] = r
		log := p.local.log
		r.timer = time.AfterFunc(p.op.Timeout, func() { r.expire(p.op.Timeout, log) })
	}
	r.arrived++
	if r.arrived == len(m.ranks) {
		delete(m.rounds, key)
	}
	return r
}

// join adds a rank's call to its round. The last rank launches it.
func (m *rendezvous) join(p *rankCall) {
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
	r.calls[p.rank] = p
	if err := m.anyAbsent(r); err != nil {
		r.fail(err)
		return
	}
	for _, q := range r.calls {
		if q != nil && !q.op.agrees(p.op) {
			r.fail(r.disagreement())
			return
		}
	}
	if r.arrived == len(m.ranks) {
		r.launch(p.rank)
	}
}

// failRound fails the round because p's tensors cannot take part.
func (m *rendezvous) failRound(p *rankCall, err error) {
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

// fail ends a round that was not launched, for the ranks that have arrived and for later ones.
func (r *round) fail(err error) {
	r.over, r.err = true, err
	r.timer.Stop()
	for _, p := range r.calls {
		if p != nil {
			p.fail(err)
		}
	}
}

// disagreement returns an error that lists what each rank has called.
func (r *round) disagreement() error {
	var wants []string
	who := map[string][]int{}
	for i, p := range r.calls {
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

// launch starts a round at which every rank has arrived.
func (r *round) launch(last int) {
	for _, p := range r.calls {
		p.work.met.Store(true)
	}
	if r.calls[0].op.Kind == KindExchange {
		r.exchange()
	} else if err := launch(r.calls, last, r.rendezvous.relayOf(everyone, everyone)); err != nil {
		if err == errMisfit {
			err = r.disagreement()
		}
		r.fail(err)
		return
	}
	r.over = true
	r.timer.Stop()
	r.rendezvous.world.watch()
}

// exchange gives every rank the payloads of all.
func (r *round) exchange() {
	payloads := make([][]byte, len(r.calls))
	for i, p := range r.calls {
		payloads[i] = p.op.Payload
	}
	for _, p := range r.calls {
		p.work.payloads = payloads
		p.work.settle(nil, nil)
	}
}

// elsewhere lists the calls of rank i that wait in other groups.
func (m *rendezvous) elsewhere(i int) string {
	m.world.mu.Lock()
	others := slices.Clone(m.world.groups)
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

// expire fails the round after its timeout. The error says what the ranks called last. The next rounds wait for their own timeouts: a missing
// rank may be late only, and the ranks agree again as soon as it has seen this error.
func (r *round) expire(after time.Duration, log func(string)) {
	m := r.rendezvous
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.over {
		return
	}
	var missing, here []int
	for i, p := range r.calls {
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
	r.fail(core.Errorf(core.DistributedError, r.label, "%s %s not arrived within %v, %s %s (%s)",
		names(missing), has, after, names(here), wait, strings.Join(last, "; ")))
	log(m.history(r.err))
}
