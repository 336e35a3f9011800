package pipeline

import (
	"errors"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/combine"
	"github.com/plait-ml/plait/core/op"
)

var combineKernel = core.Kernel("combine")

// lines carry tensors from device to device, each pair's on a stream of its own: what waits for one device holds up neither the
// others nor the devices' own work.
type lines struct {
	rank    int
	streams map[[2]int]core.Stream // by the ordinals of the devices
	// Memory for what arrives comes from a stream on which nothing runs, so that it may arrive while the device is busy.
	inboxes map[int]core.Stream
}

func newLines(rank int) *lines {
	return &lines{rank: rank, streams: map[[2]int]core.Stream{}, inboxes: map[int]core.Stream{}}
}

func (l *lines) close() error {
	var errs []error
	for _, s := range l.streams {
		errs = append(errs, s.Close())
	}
	for _, s := range l.inboxes {
		errs = append(errs, s.Close())
	}
	l.streams, l.inboxes = map[[2]int]core.Stream{}, map[int]core.Stream{}
	return errors.Join(errs...)
}

// A parcel is a tensor on its way to another device.
type parcel struct {
	tensor *core.Tensor // kept
	to     core.Device
	grad   bool // a gradient of it is wanted
}

// send sets t out for a device as soon as it is made. It takes nothing over.
func (l *lines) send(t *core.Tensor, to core.Device, grad bool) (*parcel, error) {
	p := &parcel{to: to, grad: grad}
	from := t.Device()
	if from == to || !from.HostAccessible() || !to.HostAccessible() {
		p.tensor = t.Detach().Keep() // goes when it is taken
		return p, p.tensor.Err()
	}
	if !t.Contiguous() {
		core.NoGrad(func() { t = op.Contiguous(t).Keep() })
		if err := t.Err(); err != nil {
			return nil, err
		}
		defer t.Release()
	}
	arrived, err := l.copy(t, to)
	if err != nil {
		return nil, err
	}
	p.tensor = arrived.Keep()
	return p, nil
}

// copy launches the copy of a contiguous tensor. Whoever uses the result waits for this copy alone.
func (l *lines) copy(t *core.Tensor, to core.Device) (*core.Tensor, error) {
	key := [2]int{t.Device().Ordinal(), to.Ordinal()}
	if l.streams[key] == nil {
		l.streams[key] = to.NewStream(l.rank)
	}
	out := core.NewTensor(core.CurrentMode(), l.inbox(to), t.DType(), t.Shape())
	if err := out.Err(); err != nil {
		return nil, err
	}
	s := l.streams[key]
	c := s.Begin(combineKernel, "pipeline")
	done := s.Next()
	from, err := core.Lend("pipeline", t, done, false)
	if err == nil {
		var into core.Loan
		if into, err = core.Lend("pipeline", out, done, true); err == nil {
			for _, e := range append(from.Waits(), into.Waits()...) {
				if e != done {
					c.AddWaits(e)
				}
			}
			c.InLent(&from, 0, t.Numel()).OutLent(&into, 0, t.Numel()).Int(combine.Copy).Float(0)
			s.Launch(c)
			return out, nil
		}
	}
	s.Abandon(c)
	out.Release()
	return nil, err
}

// inbox returns the stream that memory for what arrives on a device comes from.
func (l *lines) inbox(dev core.Device) core.Stream {
	s := l.inboxes[dev.Ordinal()]
	if s == nil {
		s = dev.NewStream(l.rank)
		l.inboxes[dev.Ordinal()] = s
	}
	return s
}

// take returns the tensor on its device; it belongs to the caller.
func (p *parcel) take() (*core.Tensor, error) {
	t := p.tensor
	p.tensor = nil
	if t.Device() == p.to {
		return t, nil
	}
	var moved *core.Tensor
	core.NoGrad(func() { moved = op.ToDevice(t, p.to).Keep() })
	t.Release()
	return moved, moved.Err()
}

func (p *parcel) drop() {
	if p != nil && p.tensor != nil {
		p.tensor.Release()
	}
}
