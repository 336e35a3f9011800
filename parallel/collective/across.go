package collective

// Groups whose ranks live in several processes. Each process announces the calls of its ranks to the other processes of the group, and reads
// theirs. When all ranks have arrived, every process makes the same plan and carries out its part: see [wireJob].
//
// A process that gives up a round, because a rank has left or failed, the channel was revoked or the time is over, tells the others. If that
// happens just when the last ranks arrive, a small operation may succeed in one process and fail in another; larger ones, and exchanges of
// channels, have one outcome for all: see [wireJob] and [verdict].

import (
	"slices"

	"github.com/plait-ml/plait/core"
)

// usualMessage is the length in bytes that few messages without data exceed.
const usualMessage = 160

// message begins a message about the group.
func (m *rendezvous) message(kind messageKind) writer {
	w := append(make(writer, 0, usualMessage), byte(kind))
	w.id(m.id)
	return w
}

// tell sends a message to all other processes of the group.
func (m *rendezvous) tell(message writer) {
	for _, p := range m.peers {
		m.world.post(p, message)
	}
}

// tellFailed tells the other processes that this one takes no part in a round.
func (m *rendezvous) tellFailed(key roundKey, err error) {
	if len(m.peers) > 0 {
		m.tell(failedMessage(m, key, err))
	}
}

// answerFailed is tellFailed for one process: one whose rank has arrived late, or has sent.
func (m *rendezvous) answerFailed(process int, key roundKey, err error) {
	m.world.post(process, failedMessage(m, key, err))
}

func failedMessage(m *rendezvous, key roundKey, err error) writer {
	w := m.message(failed)
	w.key(key)
	w.error(err)
	return w
}

func (m *rendezvous) tellRefusal(p *rankCall, err error) {
	if len(m.peers) == 0 {
		return
	}
	w := m.message(refusal)
	w.int(p.rank)
	w.operation(p.op)
	w.error(err)
	m.tell(w)
}

func (m *rendezvous) tellRevoked(channel uint64, rank int, err error) {
	if len(m.peers) == 0 {
		return
	}
	w := m.message(revocationBy)
	w.id(channel)
	w.int(rank)
	w.error(err)
	m.tell(w)
}

func (m *rendezvous) tellLeft(rank int, err error) {
	if len(m.peers) == 0 {
		return
	}
	w := m.message(rankLeft)
	w.int(rank)
	w.error(err)
	m.tell(w)
}

// announce tells the other processes about a call of a rank of this one.
func (m *rendezvous) announce(p *rankCall) {
	if len(m.peers) == 0 {
		return
	}
	p.process = m.world.process
	p.small, p.site = p.isSmall(), m.world.sharing.site(p, m)
	w := m.message(announcement)
	w.int(p.rank)
	w.operation(p.op)
	w.site(p.site)
	w.bool(p.small)
	p.hasData = p.small && p.readable()
	w.bool(p.hasData)
	for _, to := range m.peers {
		if p.hasData {
			m.world.post(to, m.withData(w, p, to))
		} else {
			m.world.post(to, w)
		}
	}
}

// receive reads a message about the group from another process.
func (m *rendezvous) receive(from int, kind messageKind, r *reader) {
	switch n := len(m.ranks); kind {
	case announcement, refusal:
		p := &rankCall{rank: r.rank(n), op: r.operation(n), elsewhere: true, process: from}
		var why error
		if kind == refusal {
			why = r.error()
		} else {
			p.site, p.small, p.hasData = r.site(from), r.bool(), r.bool()
			if p.hasData {
				p.readData(r)
			}
		}
		if r.err != nil || m.home(p.rank) != from {
			r.bad()
			return
		}
		m.record(p)
		if revoked := m.revoked[p.op.channel]; revoked != nil && m.rounds[p.key()] == nil { // rounds that are left wait for a verdict
			p.fail(revoked.err)
			m.answerFailed(from, p.key(), revoked.err)
		} else if kind == refusal {
			p.fail(why)
			m.refuse(p, why)
		} else {
			m.arrive(p)
		}
	case failed:
		key, err := r.key(), r.error()
		if r.err != nil {
			return
		}
		if key.sender != 0 {
			key.channel = 0
		}
		if j := m.jobs[key]; j != nil {
			j.refused(from, err)
		} else if round := m.rounds[key]; round != nil && !round.over {
			round.failedBy(err)
		} else if p := m.outgoing[key.seq]; p != nil && key.sender == 1+m.world.process {
			delete(m.outgoing, key.seq)
			p.fail(err)
		}
	case smallData:
		key, rank := r.key(), r.rank(n)
		if j := m.jobs[key]; j != nil && r.err == nil {
			j.receiveSmall(rank, r)
		} else if round := m.rounds[key]; round != nil && r.err == nil {
			if p := round.calls[rank]; p != nil && !p.here() {
				p.readData(r)
			}
		}
	case launched:
		if round := m.rounds[r.key()]; round != nil && round.judge() == from {
			round.hear()
		}
	case ready:
		key, state := r.key(), r.readiness()
		if r.err != nil {
			return
		}
		if j := m.jobs[key]; j != nil {
			j.peerReady(from, state)
		} else if round := m.rounds[key]; round != nil {
			if round.ready == nil {
				round.ready = map[int]readiness{}
			}
			round.ready[from] = state
		}
	case ended:
		key, err := r.key(), r.error()
		if j := m.jobs[key]; j != nil {
			j.peerEnded(from, err)
		}
	case sendCall:
		m.receiveSend(from, r)
	case matched:
		m.sendMatched(from, r)
	case withdrawal:
		number := r.uint()
		m.sends = slices.DeleteFunc(m.sends, func(p *rankCall) bool { return !p.here() && p.process == from && p.number == number })
	case revocationBy:
		channel, rank, err := r.id(), r.rank(n), r.error()
		if r.err != nil {
			return
		}
		v := m.revoked[channel]
		if v == nil {
			v = &revocation{err: err}
			m.revoked[channel] = v
		}
		m.revokeBy(channel, rank, v)
	case rankLeft:
		if rank, err := r.rank(n), r.error(); r.err == nil {
			m.remove(rank, err)
		}
	default:
		r.bad()
	}
}

// record keeps the call of another process's rank for messages about what ranks did last.
func (m *rendezvous) record(p *rankCall) {
	p.work = newWork(p.op.label())
	m.records[p.rank].add(p.op, p.work)
}

// lose fails the transfers with a process. Its ranks are removed already.
func (m *rendezvous) lose(process int, err error) {
	core.Lock(&m.mu)
	defer m.unlock()
	for _, j := range m.jobs {
		j.lose(process, err)
	}
	for _, r := range m.rounds {
		if !r.over && r.judge() == process && !r.verdict.final {
			r.failedBy(m.gone(r.label, process, err))
		}
	}
}

// launchAcross starts a collective at which all ranks have arrived. It returns errMisfit if their pieces do not match.
func (m *rendezvous) launchAcross(r *round) error {
	ops, small := make([]*Operation, len(r.calls)), true
	for i, p := range r.calls {
		ops[i] = p.op
		small = small && p.small
	}
	plan, fits := stepsAcross(ops, m.home)
	if !fits {
		return errMisfit
	}
	j := newWireJob(m, r.key, r.label, ops[0].name(), r.calls, plan, small)
	if err := j.clash(); err != nil {
		return err
	}
	if !small {
		j.follow()
	}
	j.launch(r.ready)
	return nil
}

// awaitsOthers reports whether a work that waits for ranks may wait for one of another process. Only this process's ranks are known to wait.
func (m *rendezvous) awaitsOthers(w *Work) bool {
	if len(m.peers) == 0 {
		return false
	}
	core.Lock(&m.mu)
	defer m.mu.Unlock()
	for _, r := range m.rounds {
		if !slices.ContainsFunc(r.calls, func(p *rankCall) bool { return p != nil && p.work == w }) {
			continue
		}
		for i, p := range r.calls {
			if p == nil && !m.here(i) {
				return true
			}
		}
		return false
	}
	for _, p := range slices.Concat(m.sends, m.recvs) {
		if p.work == w {
			return p.op.Root == anyone || !m.here(p.op.Root)
		}
	}
	return true // a send to another process, or a work that has just ended
}

// gone returns the error of an operation that needs a lost process.
func (m *rendezvous) gone(label string, process int, err error) error {
	for i := range m.ranks {
		if m.home(i) == process {
			return core.Errorf(core.DistributedError, label, "%s is gone: %w", m.rankName(i), err)
		}
	}
	return err
}
