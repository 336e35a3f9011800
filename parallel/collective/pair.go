package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// anyone is the peer of a recv from any sender.
const anyone = -1

// pair matches a send with a recv, in the order of the calls, or queues it. Sends to other processes are matched there.
func (m *rendezvous) pair(p *rankCall) {
	core.Lock(&m.mu)
	defer m.unlock()
	if r := m.revoked[p.op.channel]; r != nil {
		p.fail(r.err)
		return
	}
	if peer := p.op.Root; peer != anyone && m.absent[peer] != nil {
		p.fail(m.world.fault(m.goneError(p.op.label(), peer)))
		return
	}
	if peer := p.op.Root; p.op.Kind == KindSend && !m.here(peer) {
		m.sendAcross(p)
		return
	}
	m.match(p)
}

// match matches a recv of this process's rank, or a send to one, with its counterpart, or queues it.
func (m *rendezvous) match(p *rankCall) {
	mine, theirs := &m.sends, &m.recvs
	if p.op.Kind == KindRecv {
		mine, theirs = theirs, mine
	}
	i := slices.IndexFunc(*theirs, p.matches)
	if i < 0 {
		if *mine = append(*mine, p); !p.here() {
			return // its own process limits its time
		}
		p.timer = time.AfterFunc(p.op.Timeout, func() { m.giveUp(mine, p) })
		return
	}
	q := (*theirs)[i]
	*theirs = slices.Delete(*theirs, i, i+1)
	q.stop()
	if p.op.Kind == KindSend {
		m.transfer(p, q)
	} else {
		m.transfer(q, p)
	}
}

// matches reports whether q is the counterpart of p.
func (p *rankCall) matches(q *rankCall) bool {
	meets := func(a, b *rankCall) bool { return a.op.Root == b.rank || a.op.Root == anyone }
	return meets(p, q) && meets(q, p) && p.op.Tag == q.op.Tag && p.op.channel == q.op.channel
}

// transfer launches the copy on a stream of the receiver for this sender. On a GPU the sender has such a stream too.
func (m *rendezvous) transfer(send, recv *rankCall) {
	now := clockNow()
	for _, p := range []*rankCall{send, recv} {
		p.work.met.Store(true)
		p.work.times.started.Store(now)
	}
	from, to := send.op.Ins[0], recv.op.Outs[0]
	fail := func(err error) {
		err = m.world.fault(err)
		send.fail(err)
		recv.fail(err)
	}
	if !fits(from, to) || send.op.Purpose != recv.op.Purpose {
		fail(core.Errorf(core.DistributedError, "recv", "rank %d sends %s, rank %d wants %s",
			send.rank, send.op.detail(), recv.rank, recv.op.detail()))
		return
	}
	recv.work.source = send.rank
	if !send.here() {
		m.receiveAcross(send, recv)
		return
	}
	if a, b := spanOf(&from, send.ins[0].Region(0, 0).Memory, 0, from.N), spanOf(&to, recv.outs[0].Region(0, 0).Memory, 0, to.N); a != b &&
		a.storage == b.storage && a.lo < b.hi && b.lo < a.hi {
		fail(core.Errorf(core.DistributedError, "recv", "%s and %s share memory, so that one would overwrite the other",
			send.op.describe(source{send.rank, 0, false}), recv.op.describe(source{recv.rank, 0, true})))
		return
	}
	calls := []*rankCall{send, recv}
	staged, use := send.stagers.fromHost != nil || recv.stagers.fromHost != nil, ordinary
	if staged && reachable(calls) {
		staged, use = false, direct
	}
	stream, err := recv.local.streams.find("recv", recv.stream.Device(), send.rank, use)
	if err != nil {
		fail(err)
		return
	}
	if staged {
		stagers := make([]stagers, 2)
		for i, p := range calls {
			if p.stagers.fromHost == nil {
				continue
			}
			if stagers[i], err = p.local.streams.stagers(p.op.name(), p.stream.Device(), calls[1-i].rank); err != nil {
				fail(err)
				return
			}
		}
		plan := []step{{op: contract.CombineCopy, ins: []source{{0, 0, false}}, outs: []source{{1, 0, true}}, n: from.N}}
		launchRelayed(newJob("recv", calls, stagers, plan), m.relayOf(send.rank, recv.rank))
		m.world.watch()
		return
	}
	waits := foreign(slices.Concat(send.waits, recv.waits), calls)
	if link := linkTime(calls); link > 0 {
		simulateLink(stream, "recv", link, waits)
	}
	c := stream.Begin(contract.Combine, "recv")
	c.AddWaits(waits...)
	c.OnCancel = onCancel(calls)
	contract.CombineAttrs{Op: contract.CombineCopy}.AddTo(c.InBorrowed(send.ins[0], from.From, from.N).OutBorrowed(recv.outs[0], to.From, to.N))
	stream.Launch(c)
	m.world.watch()
	end := []core.Event{stream.Record()}
	if use == direct {
		submit(end)
	}
	send.work.settle(end, nil)
	recv.work.settle(end, nil)
}

// giveUp fails a send or a recv without a counterpart after its timeout.
func (m *rendezvous) giveUp(list *[]*rankCall, p *rankCall) {
	core.Lock(&m.mu)
	defer m.mu.Unlock()
	i := slices.Index(*list, p)
	if i < 0 {
		return
	}
	*list = slices.Delete(*list, i, i+1)
	p.fail(m.world.fault(p.unmatched()))
}

// unmatched returns the error of a send or a recv without a counterpart.
func (p *rankCall) unmatched() error {
	peer, other := fmt.Sprintf("rank %d has not", p.op.Root), "recv"
	if p.op.Root == anyone {
		peer = "no rank has"
	}
	if p.op.Kind == KindRecv {
		other = "send"
	}
	return core.Errorf(core.DistributedError, p.op.label(), "%s called the matching %s within %v (rank %d waits, tag %d)",
		peer, other, p.op.Timeout, p.rank, p.op.Tag)
}
