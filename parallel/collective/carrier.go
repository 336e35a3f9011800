package collective

import (
	"errors"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op"
)

// A Carrier copies tensors between devices for one thread that drives them all. Each pair of devices has its own streams, so a copy waits
// only for its tensors, not for other devices or for the receiver's other work.
type Carrier struct {
	rank  int
	mu    sync.Mutex
	pairs map[[2]int]*carrierPair
}

// A carrierPair holds the streams for copies from one device to another.
type carrierPair struct {
	from, to *streams
	relay    *relay
}

// NewCarrier returns a carrier for the calling thread's rank.
func NewCarrier() *Carrier {
	return &Carrier{rank: core.CurrentContext().Rank(), pairs: map[[2]int]*carrierPair{}}
}

func (c *Carrier) pair(from, to core.Device) *carrierPair {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := [2]int{from.Ordinal(), to.Ordinal()}
	p := c.pairs[key]
	if p == nil {
		p = &carrierPair{from: &streams{rank: c.rank}, to: &streams{rank: c.rank}, relay: &relay{}}
		c.pairs[key] = p
	}
	return p
}

// Copy copies from to to. They must be contiguous, on different devices, and of one dtype and size. Copy returns once the work is launched;
// later calls on the tensors wait for this copy only.
func (c *Carrier) Copy(to, from *core.Tensor) error {
	const name = "copy"
	for _, t := range []*core.Tensor{from, to} {
		if err := t.Usable(name); err != nil {
			return err
		}
	}
	if to.DType() != from.DType() || to.Numel() != from.Numel() || to.Device() == from.Device() {
		return core.Errorf(core.ShapeError, name, "cannot copy %v to %v: dtypes and sizes must be equal, and the devices different", from, to)
	}
	if from.DType().IsComplex() {
		to, from = op.ViewAsReal(to.Detach()), op.ViewAsReal(from.Detach())
		defer to.Release()
		defer from.Release()
	}
	n := from.Numel()
	send := &rankCall{rank: 0, op: &Operation{Kind: KindSend, Ins: []Piece{{Tensor: from, N: n}}, Note: name}, work: newWork(name)}
	recv := &rankCall{rank: 1, op: &Operation{Kind: KindRecv, Outs: []Piece{{Tensor: to, N: n}}, Note: name}, work: newWork(name)}
	send.op.Ins[0].locate()
	recv.op.Outs[0].locate()
	calls := []*rankCall{send, recv}
	pair := c.pair(from.Device(), to.Device())
	for i, s := range []*streams{pair.from, pair.to} {
		if err := calls[i].borrow(s); err != nil {
			for _, p := range calls[:i+1] {
				p.work.settle(nil, err)
				p.work.restoreOutputs()
			}
			return err
		}
	}
	straight := reachable(calls)
	if straight {
		if err := useDirect(calls, func(*rankCall) int { return everyone }); err != nil {
			for _, p := range calls {
				p.work.settle(nil, err)
				p.work.restoreOutputs()
			}
			return err
		}
	}
	if !straight && (send.stagers.fromHost != nil || recv.stagers.fromHost != nil) {
		plan := []step{{op: contract.CombineCopy, ins: []source{{0, 0, false}}, outs: []source{{1, 0, true}}, n: n}}
		launchRelayed(newJob(name, calls, []stagers{send.stagers, recv.stagers}, plan), pair.relay)
		return nil
	}
	call := recv.stream.Begin(contract.Combine, name)
	call.AddWaits(foreign(append(send.waits, recv.waits...), calls)...)
	contract.CombineAttrs{Op: contract.CombineCopy}.AddTo(call.InBorrowed(send.ins[0], 0, n).OutBorrowed(recv.outs[0], 0, n))
	recv.stream.Launch(call)
	end := []core.Event{recv.stream.Record()}
	if straight {
		submit(end)
	}
	send.work.settle(end, nil)
	recv.work.settle(end, nil)
	return nil
}

// Close waits for the copies and closes the streams.
func (c *Carrier) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, p := range c.pairs {
		p.relay.wait()
		errs = append(errs, p.from.close(), p.to.close())
	}
	c.pairs = map[[2]int]*carrierPair{}
	return errors.Join(errs...)
}
