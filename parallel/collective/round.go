package collective

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/flight"
)

// A round is one collective of a group, with the calls of the ranks that have arrived so far.
type round struct {
	rendezvous *rendezvous
	key        roundKey
	label      string
	calls      []*rankCall
	arrived    int
	median     int64 // when half of the ranks had arrived: see punctuality
	over       bool  // launched or failed
	revoked    bool  // its channel is, so that further ranks do not arrive
	verdict    verdict
	err        error
	timer      *time.Timer       // since the first rank of this process has arrived
	ready      map[int]readiness // of the processes that have launched it already
}

// A roundKey identifies a round, or the transfer of a send with its number in place of seq.
type roundKey struct {
	channel, seq uint64
	sender       int // 0 for a round; 1 and the process of a sender
}

// key returns the key of the call's round, or of the transfer of a send.
func (p *rankCall) key() roundKey {
	if p.op.Kind == KindSend {
		return roundKey{p.op.channel, p.number, 1 + p.process}
	}
	return roundKey{p.op.channel, p.op.Seq, 0}
}

// round returns the round of call p and counts p as arrived.
func (m *rendezvous) round(p *rankCall) *round {
	key := p.key()
	r := m.rounds[key]
	if r == nil {
		r = &round{rendezvous: m, key: key, label: p.work.label, calls: make([]*rankCall, len(m.ranks))}
		m.rounds[key] = r
	}
	r.arrived++
	return r
}

// limit starts the timeout with the first call of a rank of this process, unless the round has not waited for others.
func (r *round) limit(p *rankCall) {
	if r.timer != nil || r.over || !p.here() {
		return
	}
	log := p.local.log
	r.timer = time.AfterFunc(p.op.Timeout, func() { r.expire(p.op.Timeout, log) })
}

// forget removes the round from the rendezvous if no more ranks will arrive.
func (r *round) forget() {
	if r.over && (r.revoked || r.arrived == len(r.calls)) {
		delete(r.rendezvous.rounds, r.key)
	}
}

// join adds a call of this process's rank to its round.
func (m *rendezvous) join(p *rankCall) {
	core.Lock(&m.mu)
	defer m.unlock()
	if r := m.revoked[p.op.channel]; r != nil {
		p.fail(r.err)
		m.tellFailed(p.key(), r.err)
		return
	}
	m.announce(p)
	m.arrive(p)
}

// arrive adds a rank's call to its round. The last rank launches it.
func (m *rendezvous) arrive(p *rankCall) {
	r := m.round(p)
	if r.over {
		p.fail(r.err)
		if !p.here() {
			m.answerFailed(p.process, p.key(), r.err)
		}
		r.forget()
		return
	}
	defer r.limit(p)
	r.calls[p.rank] = p
	if r.arrived == (len(m.ranks)+1)/2 {
		r.median = p.work.times.called
	}
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
	if r.arrived == len(m.ranks) && r.decided() {
		r.launch(p.rank)
	}
}

// failRound fails the round because p's tensors cannot take part.
func (m *rendezvous) failRound(p *rankCall, err error) {
	core.Lock(&m.mu)
	defer m.unlock()
	if m.revoked[p.op.channel] != nil {
		return
	}
	m.tellRefusal(p, err)
	m.refuse(p, err)
}

// refuse counts p as arrived and fails its round.
func (m *rendezvous) refuse(p *rankCall, err error) {
	r := m.round(p)
	defer r.forget()
	defer r.limit(p)
	if !r.over {
		kind := core.DistributedError
		if own, _ := core.KindOf(err); own == core.MemoryError {
			kind = own
		}
		r.fail(core.Errorf(kind, r.label, "rank %d cannot take part: %w", p.rank, err))
	}
}

// lacksOwn reports whether a rank of this process has not arrived.
func (r *round) lacksOwn() bool {
	for i, p := range r.calls {
		if p == nil && r.rendezvous.here(i) {
			return true
		}
	}
	return false
}

// stop stops the timeout.
func (r *round) stop() {
	if r.timer != nil {
		r.timer.Stop()
	}
}

// fail ends a round that was not launched, for the ranks that have arrived and for later ones.
func (r *round) fail(err error) {
	if r.ask(err) {
		return
	}
	err = r.rendezvous.world.fault(err)
	r.over, r.err = true, err
	r.stop()
	for _, p := range r.calls {
		if p != nil {
			p.fail(err)
		}
	}
	r.rendezvous.tellFailed(r.key, err)
	r.forget()
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
		if p.op.Kind.byPiece() {
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
	now := clockNow()
	for _, p := range r.calls {
		p.work.met.Store(true)
		p.work.times.started.Store(now)
	}
	m := r.rendezvous
	m.stragglers.note(r, now)
	var err error
	switch {
	case r.calls[0].op.Kind == KindExchange:
		r.exchange()
	case len(m.peers) > 0:
		err = m.launchAcross(r)
	default:
		err = launch(r.calls, last, m.relayOf(everyone, everyone))
	}
	if err != nil {
		if err == errMisfit {
			err = r.disagreement()
		}
		r.fail(err)
		return
	}
	r.over = true
	r.stop()
	r.forget()
	if r.judge() == m.world.process {
		m.tellLaunched(r.key)
	}
	m.world.watch()
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
	var s string
	for _, o := range m.world.all() {
		k := slices.Index(o.ranks, m.ranks[i])
		if o == m || k < 0 {
			continue
		}
		for _, r := range o.records[k].list() {
			if r.State == flight.Waiting {
				s += fmt.Sprintf("; in the group of the ranks %v: %s", o.ranks, describe(&r))
			}
		}
	}
	return s
}

// expire fails the round after its timeout. The error says what the ranks called last. The next rounds wait for their own timeouts: a missing
// rank may be late only, and the ranks agree again as soon as it has seen this error.
func (r *round) expire(after time.Duration, log func(string)) {
	m := r.rendezvous
	core.Lock(&m.mu)
	defer m.unlock()
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
		call, _ := m.records[i].last()
		last = append(last, fmt.Sprintf("the last call of rank %d: %s%s", i, describe(&call), m.elsewhere(i)))
	}
	has, wait := "has", "waits"
	if len(missing) > 1 {
		has = "have"
	}
	if len(here) > 1 {
		wait = "wait"
	}
	err := core.Errorf(core.DistributedError, r.label, "%s %s not arrived within %v, %s %s (%s)",
		names(missing), has, after, names(here), wait, strings.Join(last, "; "))
	r.fail(err)
	if r.err != nil {
		err = r.err // it names the flight record
	}
	log(m.history(err))
}
