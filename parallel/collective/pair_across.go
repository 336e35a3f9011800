package collective

// Sends and receives between processes. The sender announces its call, and the receiver's process matches it.

import (
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// sendAcross announces a send to a rank of another process. Small data goes along.
func (m *rendezvous) sendAcross(p *rankCall) {
	m.numbered++
	p.number, p.process, p.site = m.numbered, m.world.process, m.world.sharing.site(p, m)
	m.outgoing[p.number] = p
	p.timer = time.AfterFunc(p.op.Timeout, func() { m.withdraw(p) })
	to := m.home(p.op.Root)
	w := m.message(sendCall)
	w.int(p.rank)
	w.uint(p.number)
	w.operation(p.op)
	w.site(p.site)
	small := p.isSmall() && p.readable()
	if w.bool(small); small {
		w = m.withData(w, p, to)
	}
	m.world.post(to, w)
}

// receiveSend reads the send of a rank of another process.
func (m *rendezvous) receiveSend(from int, r *reader) {
	n := len(m.ranks)
	p := &rankCall{rank: r.rank(n), number: r.uint(), op: r.operation(n), site: r.site(from), elsewhere: true, process: from}
	if r.bool() {
		p.readData(r)
	}
	if r.err != nil || p.op.Kind != KindSend || len(p.op.Ins) != 1 || p.op.Root < 0 || p.op.Root >= n ||
		!m.here(p.op.Root) || m.home(p.rank) != from {
		r.bad()
		return
	}
	m.record(p)
	p.refuse = func(err error) { m.answerFailed(from, p.key(), err) }
	if v := m.revoked[p.op.channel]; v != nil {
		p.fail(v.err)
	} else if m.absent[p.op.Root] == nil && m.absent[p.rank] == nil { // a rank that has left has said so
		m.match(p)
	}
}

// receiveAcross launches the receipt of a send from another process that has met its recv.
func (m *rendezvous) receiveAcross(send, recv *rankCall) {
	send.refuse = nil
	small := send.hasData && recv.stagers.fromHost == nil // a device gets the data by a transfer, through a stage
	w := m.message(matched)
	w.uint(send.number)
	w.int(recv.rank)
	recv.site = m.world.sharing.site(recv, m)
	w.site(recv.site)
	w.bool(small)
	m.world.post(send.process, w)
	m.transferAcross(send, recv, small)
}

// sendMatched reads that a send has met its recv.
func (m *rendezvous) sendMatched(from int, r *reader) {
	number, rank, where, done := r.uint(), r.rank(len(m.ranks)), r.site(from), r.bool()
	p := m.outgoing[number]
	if r.err != nil {
		return
	}
	if p == nil { // withdrawn meanwhile
		if !done {
			err := core.Errorf(core.DistributedError, "send", "the sender no longer waits")
			m.answerFailed(from, roundKey{seq: number, sender: 1 + m.world.process}, err)
		}
		return
	}
	delete(m.outgoing, number)
	p.stop()
	p.work.met.Store(true)
	p.work.times.started.Store(clockNow())
	if done {
		p.work.settle(nil, nil)
		return
	}
	recv := &rankCall{rank: rank, elsewhere: true, process: from, site: where, op: &Operation{Kind: KindRecv, Root: p.rank, Outs: p.op.Ins}}
	recv.work = newWork("recv")
	m.transferAcross(p, recv, false)
}

// transferAcross starts this process's part of a transfer.
func (m *rendezvous) transferAcross(send, recv *rankCall, small bool) {
	calls := []*rankCall{send, recv}
	plan := []step{{op: contract.CombineCopy, ins: []source{{0, 0, false}}, outs: []source{{1, 0, true}}, n: send.op.Ins[0].N}}
	if plan[0].n == 0 {
		plan, small = nil, true
	}
	key := send.key()
	key.channel = 0 // the number is enough
	newWireJob(m, key, send.op.label(), "recv", calls, plan, small).launch(nil)
	m.world.watch()
}

// withdraw fails a send without a recv after its timeout.
func (m *rendezvous) withdraw(p *rankCall) {
	core.Lock(&m.mu)
	defer m.mu.Unlock()
	if m.outgoing[p.number] != p {
		return
	}
	delete(m.outgoing, p.number)
	w := m.message(withdrawal)
	w.uint(p.number)
	m.world.post(m.home(p.op.Root), w)
	p.fail(m.world.fault(p.unmatched()))
}
