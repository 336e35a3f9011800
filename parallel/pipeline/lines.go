package pipeline

import (
	"errors"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// lines copy tensors from device to device, on streams of their own: a copy that waits for one device holds up neither the copies
// to others nor the devices' computation.
type lines struct {
	rank    int
	carrier *collective.Carrier
	inboxes map[int]*inbox // by device
}

// An inbox is where memory for what arrives on a device comes from: streams on which nothing runs, so that it may arrive while
// the device is busy. Memory that comes back is used again after what the device then did with it; streams take turns so that
// this was long ago, and no sender waits for a receiver that is a little behind.
type inbox struct {
	streams [turns]core.Stream
	next    int
}

const turns = 8

func newLines(rank int) *lines {
	return &lines{rank: rank, carrier: collective.NewCarrier(), inboxes: map[int]*inbox{}}
}

func (l *lines) close() error {
	errs := []error{l.carrier.Close()}
	for _, b := range l.inboxes {
		for _, s := range b.streams {
			if s != nil {
				errs = append(errs, s.Close())
			}
		}
	}
	l.inboxes = map[int]*inbox{}
	return errors.Join(errs...)
}

// A parcel is a tensor on its way to another stage.
type parcel struct {
	tensor *core.Tensor // kept
	grad   bool         // a gradient of it is wanted
}

// send sets t out for a device as soon as it is made. It takes nothing over. Whoever uses what arrives waits for this tensor alone.
func (l *lines) send(t *core.Tensor, to core.Device, grad bool) (*parcel, error) {
	p := &parcel{grad: grad}
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
	p.tensor = core.NewTensor(core.CurrentMode(), l.inbox(to), t.DType(), t.Shape()).Keep()
	if err := p.tensor.Err(); err != nil {
		return nil, err
	}
	if err := l.carrier.Copy(p.tensor, t); err != nil {
		p.drop()
		return nil, err
	}
	return p, nil
}

// inbox returns the stream that memory for what arrives next on a device comes from.
func (l *lines) inbox(dev core.Device) core.Stream {
	b := l.inboxes[dev.Ordinal()]
	if b == nil {
		b = &inbox{}
		l.inboxes[dev.Ordinal()] = b
	}
	s := &b.streams[b.next]
	b.next = (b.next + 1) % turns
	if *s == nil {
		*s = dev.NewStream(l.rank)
	}
	return *s
}

// take returns the tensor, which belongs to the caller from now on.
func (p *parcel) take() *core.Tensor {
	t := p.tensor
	p.tensor = nil
	return t
}

func (p *parcel) drop() {
	if p != nil && p.tensor != nil {
		p.tensor.Release()
	}
}
