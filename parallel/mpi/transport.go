//go:build cgo && linux

package mpi

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A Transport moves bytes between processes. Its methods return at once, except Close, and may be called from any goroutine.
type Transport struct {
	library            *Library
	process, processes int
	tags               uint32 // number of tags for data
	farewell           time.Duration
	thread             int  // of the transport's goroutine
	spare              bool // there are cores for it to poll on

	given struct {
		sync.Mutex
		list, spare []*operation // given, and not yet taken
		buffers     []unsafe.Pointer
	}
	queued atomic.Int64  // length of given.list
	count  atomic.Uint64 // number of operations ever given

	mpi       lock // guards what follows, and calls into MPI
	m         *C.plaitk_mpi
	slots     []slot // by the number that MPI's results name
	free      []int  // numbers of slots that are not used
	results   []C.plaitk_mpi_result
	listening unsafe.Pointer // the memory for the first pieces of messages, of all processes
	lost      []error        // by process
	ending    []ending
	gone      error // why MPI must not be called any more
	closed    bool  // no operation is taken any more

	due   due
	sleep sleep
	bye   sync.Once
	met   *operation    // the meeting of all processes, in Close
	left  chan struct{} // closed when MPI is not used any more
	byeOf error         // what Close returns
}

// A slot holds a message under way.
type slot struct {
	o     *operation
	bytes int
}

// A kind is what an operation does.
type kind int

const (
	sending    kind = iota
	receiving       // data
	posting         // a message for a listener
	listening       // for the first piece of one
	continuing      // with the rest of it
	meeting         // all processes, in Close
	losing          // a process
)

// An operation is one or several messages, or what else is given to the goroutine that holds the lock.
type operation struct {
	kind   kind
	peer   int
	tag    int
	data   []byte
	memory unsafe.Pointer // of C, which ends with the operation
	done   func(error)    // of Send and Recv
	pin    runtime.Pinner
	pieces int // under way
	err    error
	ending bool // an [ending] has it
}

// pieceBytes is the length of the messages that longer data is cut into. MPI counts with an int.
var pieceBytes = 1 << 30

var errClosed = errors.New("mpi: the transport is closed")

// newTransport returns a transport for a communicator, which listens.
func newTransport(m *C.plaitk_mpi, library *Library) *Transport {
	t := &Transport{
		thread: int(C.plaitk_mpi_thread()), left: make(chan struct{}), met: &operation{kind: meeting, peer: int(m.process)},
		library: library, process: int(m.process), processes: int(m.processes), farewell: farewell, m: m,
		tags: uint32(min(int64(m.tags), 1<<24)), lost: make([]error, m.processes),
		spare: runtime.NumCPU() >= sparing*int(m.processes),
	}
	t.sleep.begin = time.Now()
	t.mpi.Lock()
	defer t.mpi.Unlock()
	t.listenToAll()
	return t
}

// Name returns "mpi".
func (t *Transport) Name() string { return "mpi" }

// Library returns the library in use.
func (t *Transport) Library() *Library { return t.library }

// Process returns the number of this process.
func (t *Transport) Process() int { return t.process }

// Processes returns the number of processes.
func (t *Transport) Processes() int { return t.processes }

// Send sends data to a process, which must call Recv with the same tag, below 1<<24, and length. Messages of one tag between two processes
// arrive in order. Done is called once, when data may be used again, or with the error; see [HeldError]. It must not block.
func (t *Transport) Send(to int, tag uint32, data []byte, done func(error)) {
	t.data("Send", &operation{kind: sending, peer: to, data: data, done: done}, tag)
}

// Recv receives a message of exactly len(data) bytes from a process. Done is called once, when data is there, or with the error; see
// [HeldError]. It must not block.
func (t *Transport) Recv(from int, tag uint32, data []byte, done func(error)) {
	t.data("Recv", &operation{kind: receiving, peer: from, data: data, done: done}, tag)
}

func (t *Transport) data(name string, o *operation, tag uint32) {
	if err := t.valid(name, o.peer); err != nil {
		t.due.add(event{done: o.done, err: err})
		t.rouse()
		return
	}
	// A library with few tags has them used again early. Those of operations that are pending together are near each other.
	o.tag = postTag + 1 + int(tag%t.tags)
	if len(o.data) > 0 {
		o.pin.Pin(unsafe.SliceData(o.data))
	}
	t.give(o)
}

// valid returns an error if there is no such process.
func (t *Transport) valid(name string, process int) error {
	if process >= 0 && process < t.processes {
		return nil
	}
	return fmt.Errorf("mpi: %s: there is no process %d, want 0 to %d", name, process, t.processes-1)
}

// give hands an operation over, and starts it if nobody is polling.
func (t *Transport) give(o *operation) {
	t.given.Lock()
	t.given.list = append(t.given.list, o)
	t.queued.Add(1)
	t.given.Unlock()
	t.count.Add(1)
	t.issue()
	t.rouse()
}

// issue starts what was given, unless another goroutine has the lock, which then does.
func (t *Transport) issue() {
	for t.queued.Load() > 0 {
		switch {
		case t.mpi.TryLock():
			t.take()
			t.mpi.Unlock()
		case !t.mpi.watched():
			return
		default:
			C.plaitk_mpi_yield() // the watcher does not look
		}
	}
}

// take starts what was given. The lock is held.
func (t *Transport) take() {
	if t.queued.Load() == 0 {
		return
	}
	t.given.Lock()
	list := t.given.list
	t.given.list, t.given.spare = t.given.spare[:0], nil
	t.queued.Store(0)
	t.given.Unlock()
	for _, o := range list {
		switch {
		case o.kind == losing:
			t.lose(o.peer, o.err, false)
		case t.gone != nil:
			t.end(o, t.gone)
		case t.closed:
			t.end(o, errClosed)
		case t.lost[o.peer] != nil:
			t.end(o, t.lost[o.peer])
		default:
			t.start(o)
		}
	}
	clear(list)
	t.given.Lock()
	t.given.spare = list
	t.given.Unlock()
}

// start starts the messages of an operation.
func (t *Transport) start(o *operation) {
	base, send := uintptr(unsafe.Pointer(unsafe.SliceData(o.data))), C.int(0)
	if o.kind == sending || o.kind == posting {
		send = 1
	}
	for at, most := 0, o.firstPiece(); ; most = pieceBytes {
		n := min(len(o.data)-at, most)
		id := t.slot(o, n)
		code := C.plaitk_mpi_start(t.m, C.uint64_t(id), send, C.uintptr_t(base+uintptr(at)), C.int(n), C.int(o.peer), C.int(o.tag))
		if code != 0 {
			t.freeSlot(id)
			t.failed(o, code)
			break
		}
		o.pieces++
		if at += n; at == len(o.data) {
			break
		}
	}
	if o.pieces == 0 {
		t.end(o, o.err)
	}
}

// slot returns the number of a free slot, which it fills.
func (t *Transport) slot(o *operation, bytes int) int {
	if n := len(t.free); n > 0 {
		id := t.free[n-1]
		t.free = t.free[:n-1]
		t.slots[id] = slot{o, bytes}
		return id
	}
	t.slots = append(t.slots, slot{o, bytes})
	return len(t.slots) - 1
}

func (t *Transport) freeSlot(id int) {
	t.slots[id] = slot{}
	t.free = append(t.free, id)
}

// handle takes note of a message that has ended.
func (t *Transport) handle(r *C.plaitk_mpi_result) {
	s := t.slots[r.id]
	t.freeSlot(int(r.id))
	o := s.o
	o.pieces--
	switch {
	case r.cancelled != 0:
		o.fail(errClosed) // unless the process is lost
	case r.truncated != 0 && o.kind == receiving:
		o.fail(fmt.Errorf("mpi: Recv from process %d: got more than the %d bytes that are wanted", o.peer, len(o.data)))
	case r.code != 0:
		t.failed(o, C.int(r.code))
	case o.kind == receiving && int(r.bytes) != s.bytes:
		o.fail(fmt.Errorf("mpi: Recv from process %d: got %d bytes, want %d", o.peer, r.bytes, s.bytes))
	}
	if o.pieces > 0 {
		return
	}
	if o.err == nil && o.kind == listening {
		t.received(o, int(r.bytes))
	} else if o.err == nil && o.kind == continuing {
		t.continued(o)
	} else {
		t.end(o, o.err)
	}
}

// fail sets an operation's error, if it has none.
func (o *operation) fail(err error) {
	if o.err == nil {
		o.err = err
	}
}

// end calls done, if it was not called, and gives memory back that MPI does not use any more.
func (t *Transport) end(o *operation, err error) {
	if o.done != nil {
		t.due.add(event{done: o.done, err: err})
		o.done = nil
	}
	if o.pieces > 0 {
		return
	}
	o.pin.Unpin()
	if o.memory != nil {
		t.giveBuffer(o.memory, len(o.data))
		o.memory = nil
	}
}
