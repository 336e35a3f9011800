package collective

import (
	"fmt"
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// anyone is the peer of a recv that takes what comes first.
const anyone = -1

// pair finds the other side of a send or a recv, in the order of the calls, or lets it wait.
func (m *meeting) pair(p *post) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.revoked[p.op.channel]; r != nil {
		p.fail(r.err)
		return
	}
	if peer := p.op.Root; peer != anyone && m.absent[peer] != nil {
		p.fail(m.gone(p.op.label(), peer))
		return
	}
	mine, theirs := &m.sends, &m.recvs
	if p.op.Kind == KindRecv {
		mine, theirs = theirs, mine
	}
	i := slices.IndexFunc(*theirs, p.matches)
	if i < 0 {
		*mine = append(*mine, p)
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

// matches reports whether q is the other side of p.
func (p *post) matches(q *post) bool {
	meets := func(a, b *post) bool { return a.op.Root == b.rank || a.op.Root == anyone }
	return meets(p, q) && meets(q, p) && p.op.Tag == q.op.Tag && p.op.channel == q.op.channel
}

// transfer launches the copy, on a stream of the receiver that only this sender uses, and if need be one of the sender.
func (m *meeting) transfer(send, recv *post) {
	send.work.met.Store(true)
	recv.work.met.Store(true)
	from, to := send.op.Ins[0], recv.op.Outs[0]
	fail := func(err error) {
		send.fail(err)
		recv.fail(err)
	}
	if !fits(from, to) || send.op.Purpose != recv.op.Purpose {
		fail(core.Errorf(core.DistributedError, "recv", "rank %d sends %s, rank %d wants %s",
			send.rank, send.op.what(), recv.rank, recv.op.what()))
		return
	}
	if a, b := spanOf(&from, send.ins[0].Region(0, 0).Memory, 0, from.N), spanOf(&to, recv.outs[0].Region(0, 0).Memory, 0, to.N); a != b &&
		a.storage == b.storage && a.lo < b.hi && b.lo < a.hi {
		fail(core.Errorf(core.DistributedError, "recv", "%s and %s share memory, so that one would overwrite the other",
			send.op.describe(source{send.rank, 0, false}), recv.op.describe(source{recv.rank, 0, true})))
		return
	}
	stream, err := recv.place.streams.of("recv", recv.stream.Device(), send.rank)
	if err != nil {
		fail(err)
		return
	}
	recv.work.source = send.rank
	if send.lane.entering != nil || recv.lane.entering != nil {
		posts := []*post{send, recv}
		lanes := make([]lane, 2)
		for i, p := range posts {
			if p.lane.entering == nil {
				continue
			}
			if lanes[i], err = p.place.streams.lane(p.op.name(), p.stream.Device(), posts[1-i].rank); err != nil {
				fail(err)
				return
			}
		}
		plan := []step{{op: contract.CombineCopy, ins: []source{{0, 0, false}}, outs: []source{{1, 0, true}}, n: from.N}}
		relayed(newJob("recv", posts, lanes, plan), m.relayOf(send.rank, recv.rank))
		return
	}
	waits := foreign(slices.Concat(send.waits, recv.waits), []*post{send, recv})
	if link := linkTime([]*post{send, recv}); link > 0 {
		hold(stream, "recv", link, waits)
	}
	c := stream.Begin(contract.Combine, "recv")
	c.AddWaits(waits...)
	contract.CombineAttrs{Op: contract.CombineCopy}.AddTo(c.InBorrowed(send.ins[0], from.From, from.N).OutBorrowed(recv.outs[0], to.From, to.N))
	stream.Launch(c)
	end := []core.Event{stream.Record()}
	send.work.settle(end, nil)
	recv.work.settle(end, nil)
}

// giveUp fails a send or a recv whose other side has not come in time.
func (m *meeting) giveUp(list *[]*post, p *post) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(*list, p)
	if i < 0 {
		return
	}
	*list = slices.Delete(*list, i, i+1)
	peer, other := fmt.Sprintf("rank %d has", p.op.Root), "recv"
	if p.op.Root == anyone {
		peer = "nobody has"
	}
	if p.op.Kind == KindRecv {
		other = "send"
	}
	p.fail(core.Errorf(core.DistributedError, p.op.label(), "%s not called the matching %s in %v (rank %d waits, tag %d)",
		peer, other, p.op.Timeout, p.rank, p.op.Tag))
}
