package pipeline

import (
	"errors"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A copier copies tensors between devices on streams of its own. A copy that waits for one device then delays neither the copies
// to other devices nor any computation.
type copier struct {
	rank    int
	carrier *collective.Carrier
	receive map[int]*receiveStreams // by device
}

// receiveStreams allocate memory for received tensors on one device. No kernels run on these streams, so a tensor can be received
// while the device is busy. Freed memory is reused after the device's earlier work on it. The streams take turns so that this
// work is usually done, and a sender rarely waits for a receiver that is a little behind.
type receiveStreams struct {
	streams [receiveStreamCount]core.Stream
	next    int
}

const receiveStreamCount = 8

func newCopier(rank int) *copier {
	return &copier{rank: rank, carrier: collective.NewCarrier(), receive: map[int]*receiveStreams{}}
}

func (l *copier) close() error {
	errs := []error{l.carrier.Close()}
	for _, b := range l.receive {
		for _, s := range b.streams {
			if s != nil {
				errs = append(errs, s.Close())
			}
		}
	}
	l.receive = map[int]*receiveStreams{}
	return errors.Join(errs...)
}

// A transfer is a tensor on its way to another stage.
type transfer struct {
	tensor    *core.Tensor // holds a reference
	wantsGrad bool         // the previous stage wants its gradient
}

// send starts a copy of t to a device. The copy begins when t is computed. The caller keeps its reference to t. Users of the copy
// wait for this copy alone.
func (l *copier) send(t *core.Tensor, to core.Device, grad bool) (*transfer, error) {
	p := &transfer{wantsGrad: grad}
	if t.Device() == to {
		p.tensor = t.Detach().Keep()
		return p, p.tensor.Err()
	}
	if !t.Contiguous() {
		core.NoGrad(func() { t = op.Contiguous(t).Keep() })
		if err := t.Err(); err != nil {
			return nil, err
		}
		defer t.Release()
	}
	p.tensor = core.NewTensor(core.CurrentMode(), l.receiveStream(to), t.DType(), t.Shape()).Keep()
	if err := p.tensor.Err(); err != nil {
		return nil, err
	}
	if err := l.carrier.Copy(p.tensor, t); err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

// receiveStream returns the stream that allocates the next received tensor on a device.
func (l *copier) receiveStream(dev core.Device) core.Stream {
	b := l.receive[dev.Ordinal()]
	if b == nil {
		b = &receiveStreams{}
		l.receive[dev.Ordinal()] = b
	}
	s := &b.streams[b.next]
	b.next = (b.next + 1) % receiveStreamCount
	if *s == nil {
		*s = dev.NewStream(l.rank)
	}
	return *s
}

// take returns the tensor and passes its reference to the caller.
func (p *transfer) take() *core.Tensor {
	t := p.tensor
	p.tensor = nil
	return t
}

func (p *transfer) release() {
	if p != nil && p.tensor != nil {
		p.tensor.Release()
	}
}
