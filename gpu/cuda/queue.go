//go:build cgo && linux && amd64

package cuda

// #include "shim.h"
import "C"

import (
	"errors"

	"github.com/plait-ml/plait/gpu/driver"
)

// A queue is a stream beside the device's first one.
type queue struct {
	g *device
	q *C.plaitk_cu_queue
}

// NewQueue implements [driver.Linked].
func (g *device) NewQueue() (driver.Queue, error) {
	q := C.plaitk_cu_new_queue(g.g)
	if q == nil {
		if err := g.TakeError(); err != nil {
			return nil, err
		}
		return nil, errors.New("the driver made no stream")
	}
	return &queue{g, q}, nil
}

// Reach implements [driver.Linked].
func (g *device) Reach(other driver.GPU) bool {
	o, ok := other.(*device)
	return ok && C.plaitk_cu_reach(g.g, o.g) != 0
}

// Signals implements [driver.Signaling].
func (g *device) Signals() bool { return g.g.signals != 0 }

// Signal implements [driver.SignalList].
func (l *commands) Signal(b driver.Buffer, offset int, number uint32) {
	l.list = append(l.list, C.plaitk_cu_command{kind: C.PLAITK_CU_SIGNAL, to: address(b, offset), x: C.uint32_t(number)})
}

// Await implements [driver.SignalList].
func (l *commands) Await(b driver.Buffer, offset int, number uint32) {
	l.list = append(l.list, C.plaitk_cu_command{kind: C.PLAITK_CU_AWAIT, to: address(b, offset), x: C.uint32_t(number)})
}

// Yield implements [driver.Linked].
func (g *device) Yield(to func()) { g.yield = to }

// After implements [driver.Linked].
func (g *device) After(s driver.Status) { C.plaitk_cu_after(g.g, nil, s.(*status).e) }

// Submit implements [driver.Queue].
func (q *queue) Submit(l driver.CommandList, _ driver.Buffer, data []byte, s driver.Status) {
	q.g.submit(q.q, l, data, s)
}

// After implements [driver.Queue].
func (q *queue) After(s driver.Status) { C.plaitk_cu_after(q.g.g, q.q, s.(*status).e) }

// Release implements [driver.Queue].
func (q *queue) Release() { C.plaitk_cu_free_queue(q.g.g, q.q) }
