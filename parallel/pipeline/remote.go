package pipeline

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// A remote carries tensors between the stages of several ranks. Before each lot goes a header with its shapes, since these may
// change from step to step, and with the random numbers' position.
type remote struct {
	group *collective.Group
	lines *lines
	works []*collective.Work

	header     *core.Tensor // on its way
	headerWork *collective.Work
}

const (
	headerSize = 128
	tensorSize = 12 // of a tensor in the header
	firstTag   = 1 << 20
)

// tag tells the lots of stages apart.
func tag(receiver int, backward bool) int {
	t := firstTag + 4*receiver
	if backward {
		t += 2
	}
	return t
}

// transfer does one transfer of the schedule; again says that d is up and the other rank has not come.
func (r *remote) transfer(s *Step, a Action, c *cell, d time.Duration) (again bool, err error) {
	m := s.micros[a.Micro]
	backward := a.Kind == SendBackward || a.Kind == RecvBackward
	other := a.peer().Stage
	peer := s.x.place[other]
	receiver := a.Stage
	if a.Kind == SendForward || a.Kind == SendBackward {
		receiver = other
	}
	what := "input"
	if backward {
		what = "gradient of the output"
	}
	g := r.group.For(fmt.Sprintf("the %s of stage %d, micro-batch %d of %d", what, receiver, a.Micro, len(s.micros)))
	if a.Kind == RecvForward || a.Kind == RecvBackward {
		if r.header == nil {
			if err := r.expect(g, peer, tag(receiver, backward)); err != nil {
				return false, err
			}
		}
		if done, err := wait(func(d time.Duration) (bool, error) {
			if done, err := r.headerWork.ArrivedOn(d); err != nil || !done {
				return done, err
			}
			return r.headerWork.WaitFor(d)
		}, r.headerWork.Wait, d); err != nil || !done {
			return !done, err
		}
		s.at++
		parcels, err := r.recv(g, s, a, m, peer, tag(receiver, backward))
		if backward {
			c.returned = parcels
		} else {
			c.arriving = parcels
		}
		return false, err
	}
	s.at++
	grads := make([]bool, len(c.ready))
	for i := range grads {
		grads[i] = !backward && c.outs[i] != nil
	}
	err = r.send(g, c.ready, grads, m, peer, tag(receiver, backward))
	release(c.ready)
	c.ready = nil
	return false, err
}

// wait waits, for at most d if it is not 0.
func wait(within func(time.Duration) (bool, error), wait func() error, d time.Duration) (bool, error) {
	if d > 0 {
		return within(d)
	}
	return true, wait()
}

func (r *remote) send(g *collective.Group, list []*core.Tensor, grads []bool, m *micro, to, tag int) error {
	if len(list) > (headerSize-3)/tensorSize {
		return core.Errorf(core.NotImplemented, "pipeline", "a stage of ranks hands over at most %d tensors, got %d", (headerSize-3)/tensorSize, len(list))
	}
	header := make([]int64, headerSize)
	header[0], header[1], header[2] = int64(len(list)), int64(m.seed), int64(m.offset)
	for i, t := range list {
		h := header[3+i*tensorSize:]
		if t == nil {
			h[0] = -1
			continue
		}
		if t.Dim() > tensorSize-3 {
			return core.Errorf(core.NotImplemented, "pipeline", "ranks hand over tensors of at most %d dimensions, got %v", tensorSize-3, t.Shape())
		}
		h[0], h[1] = int64(t.DType()), int64(t.Dim())
		if grads[i] {
			h[2] = 1
		}
		for k, n := range t.Shape() {
			h[3+k] = int64(n)
		}
	}
	h, err := r.headerMemory()
	if err != nil {
		return err
	}
	s := h.Storage()
	s.Stream().Upload(s.Memory(), 0, unsafe.Slice((*byte)(unsafe.Pointer(&header[0])), headerSize*8))
	err = r.keep(g.Send(h, to, tag))
	h.Release()
	for _, t := range list {
		if t != nil && err == nil {
			err = r.keep(g.Send(t, to, tag+1))
		}
	}
	return err
}

// keep takes note of a work, and returns its error if that is known.
func (r *remote) keep(w *collective.Work) error {
	r.works = append(r.works, w)
	return w.Err()
}

// expect begins to receive a header.
func (r *remote) expect(g *collective.Group, from, tag int) error {
	h, err := r.headerMemory()
	if err != nil {
		return err
	}
	r.header, r.headerWork = h, g.Recv(h, from, tag)
	return r.headerWork.Err()
}

// recv receives the tensors of which the header says.
func (r *remote) recv(g *collective.Group, s *Step, a Action, m *micro, from, tag int) (parcels []*parcel, err error) {
	h := r.header
	r.header = nil
	defer h.Release()
	defer func() {
		if err != nil {
			for _, p := range parcels {
				p.drop()
			}
			parcels = nil
		}
	}()
	header, err := core.Values[int64](h)
	if err != nil {
		return nil, err
	}
	if m.forked {
		m.seed, m.offset = uint64(header[1]), uint64(header[2])
	}
	mine := s.x.Device(a.Stage)
	inbox := r.lines.inbox(mine)
	parcels = make([]*parcel, header[0])
	for i := range parcels {
		h := header[3+i*tensorSize:]
		if h[0] < 0 {
			continue
		}
		shape := make([]int, h[1])
		for k := range shape {
			shape[k] = int(h[3+k])
		}
		t := core.NewTensor(core.CurrentMode(), inbox, core.DType(h[0]), shape).Keep()
		if err := t.Err(); err != nil {
			return parcels, err
		}
		parcels[i] = &parcel{tensor: t, grad: h[2] == 1}
		if err := r.keep(g.Recv(t, from, tag+1)); err != nil {
			return parcels, err
		}
	}
	return parcels, nil
}

// headerMemory returns the memory of a header, which waits for no device's work.
func (r *remote) headerMemory() (*core.Tensor, error) {
	dev, err := core.OpenDevice("cpu:0")
	if err != nil {
		return nil, err
	}
	h := core.NewTensor(core.CurrentMode(), r.lines.inbox(dev), core.Int64, []int{headerSize}).Keep()
	return h, h.Err()
}

// leave waits until the other ranks have taken what was sent, so that this one may go, and returns the first error that is known.
func (r *remote) leave(d time.Duration) (again bool, err error) {
	for len(r.works) > 0 {
		w := r.works[0]
		if done, err := wait(w.ArrivedOn, w.Arrived, d); err != nil || !done {
			return !done, err
		}
		if err := w.Err(); err != nil {
			return false, err
		}
		r.works = r.works[1:]
	}
	return false, nil
}
