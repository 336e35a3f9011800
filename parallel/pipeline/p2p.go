package pipeline

import (
	"fmt"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// A p2p sends and receives tensors between stages of different ranks. A header precedes the tensors of each transfer: it has
// their shapes, since shapes may change from step to step, and the random state of the micro-batch.
type p2p struct {
	group  *collective.Group
	copier *copier
	works  []*collective.Work

	header     *core.Tensor // the header being received; nil if none is
	headerWork *collective.Work
}

const (
	headerSize = 128
	tensorSize = 12 // header elements of one tensor
	firstTag   = 1 << 20
)

// tag returns the message tag of the transfers to a stage in one direction.
func tag(receiver int, backward bool) int {
	t := firstTag + 4*receiver
	if backward {
		t += 2
	}
	return t
}

// run performs a send or receive of the schedule. again reports that d has passed and the other rank has not arrived.
func (r *p2p) run(s *Step, a Action, c *stageState, d time.Duration) (again bool, err error) {
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
			if err := r.startHeader(g, peer, tag(receiver, backward)); err != nil {
				return false, err
			}
		}
		if done, err := waitFor(func(d time.Duration) (bool, error) {
			if done, err := r.headerWork.ArrivedOn(d); err != nil || !done {
				return done, err
			}
			return r.headerWork.WaitFor(d)
		}, r.headerWork.Wait, d); err != nil || !done {
			return !done, err
		}
		s.next++
		transfers, err := r.recv(g, s, a, m, peer, tag(receiver, backward))
		if backward {
			c.outputGrads = transfers
		} else {
			c.received = transfers
		}
		return false, err
	}
	s.next++
	grads := make([]bool, len(c.unsent))
	for i := range grads {
		grads[i] = !backward && c.outputs[i] != nil
	}
	err = r.send(g, c.unsent, grads, m, peer, tag(receiver, backward))
	release(c.unsent)
	c.unsent = nil
	return false, err
}

// waitFor waits for at most d, or without limit if d is 0.
func waitFor(within func(time.Duration) (bool, error), wait func() error, d time.Duration) (bool, error) {
	if d > 0 {
		return within(d)
	}
	return true, wait()
}

// send sends a header and then the tensors.
func (r *p2p) send(g *collective.Group, list []*core.Tensor, grads []bool, m *microBatch, to, tag int) error {
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
	h, err := r.newHeader()
	if err != nil {
		return err
	}
	s := h.Storage()
	s.Stream().Upload(s.Memory(), 0, unsafe.Slice((*byte)(unsafe.Pointer(&header[0])), headerSize*8))
	err = r.track(g.Send(h, to, tag))
	h.Release()
	for _, t := range list {
		if t != nil && err == nil {
			err = r.track(g.Send(t, to, tag+1))
		}
	}
	return err
}

// track remembers a work until the end of the step and returns its error if it is already known.
func (r *p2p) track(w *collective.Work) error {
	r.works = append(r.works, w)
	return w.Err()
}

// startHeader begins to receive a header.
func (r *p2p) startHeader(g *collective.Group, from, tag int) error {
	h, err := r.newHeader()
	if err != nil {
		return err
	}
	r.header, r.headerWork = h, g.Recv(h, from, tag)
	return r.headerWork.Err()
}

// recv receives the tensors that the header describes.
func (r *p2p) recv(g *collective.Group, s *Step, a Action, m *microBatch, from, tag int) (transfers []*transfer, err error) {
	h := r.header
	r.header = nil
	defer h.Release()
	defer func() {
		if err != nil {
			for _, p := range transfers {
				p.release()
			}
			transfers = nil
		}
	}()
	header, err := core.Values[int64](h)
	if err != nil {
		return nil, err
	}
	if m.ownRandom {
		m.seed, m.offset = uint64(header[1]), uint64(header[2])
	}
	device := s.x.Device(a.Stage)
	stream := r.copier.receiveStream(device)
	transfers = make([]*transfer, header[0])
	for i := range transfers {
		h := header[3+i*tensorSize:]
		if h[0] < 0 {
			continue
		}
		shape := make([]int, h[1])
		for k := range shape {
			shape[k] = int(h[3+k])
		}
		t := core.NewTensor(core.CurrentMode(), stream, core.DType(h[0]), shape).Keep()
		if err := t.Err(); err != nil {
			return transfers, err
		}
		transfers[i] = &transfer{tensor: t, wantsGrad: h[2] == 1}
		if err := r.track(g.Recv(t, from, tag+1)); err != nil {
			return transfers, err
		}
	}
	return transfers, nil
}

// newHeader allocates a header in CPU memory that waits for no device's work.
func (r *p2p) newHeader() (*core.Tensor, error) {
	dev, err := core.OpenDevice("cpu:0")
	if err != nil {
		return nil, err
	}
	h := core.NewTensor(core.CurrentMode(), r.copier.receiveStream(dev), core.Int64, []int{headerSize}).Keep()
	return h, h.Err()
}

// drain waits until the other ranks have received everything this rank has sent, and returns the first known error.
func (r *p2p) drain(d time.Duration) (again bool, err error) {
	for len(r.works) > 0 {
		w := r.works[0]
		if done, err := waitFor(w.ArrivedOn, w.Arrived, d); err != nil || !done {
			return !done, err
		}
		if err := w.Err(); err != nil {
			return false, err
		}
		r.works = r.works[1:]
	}
	return false, nil
}
