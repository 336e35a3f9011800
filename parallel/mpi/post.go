//go:build cgo && linux

package mpi

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

const (
	// firstBytes is the length of the receives that wait for messages of listeners. What is longer follows in a message of its own.
	firstBytes = 4096
	// headBytes is the length of the number before a message, its length.
	headBytes = 8
	// gone stands in place of the length in the last message of a process that has not waited for the others.
	gone = 1<<64 - 1
	// spareBuffers is how many buffers are kept for messages to be posted.
	spareBuffers = 64
)

// firstPiece returns the length of the first message of an operation, at most.
func (o *operation) firstPiece() int {
	if o.kind == posting {
		return firstBytes
	}
	return pieceBytes
}

// Listen sets the function that gets the messages of Post, those of one process in their order. It may keep them, and must not block.
// Messages that arrive earlier are kept for it.
func (t *Transport) Listen(f func(from int, message []byte)) {
	t.due.setListener(f)
	t.rouse()
}

// Post sends a message of any length, which is copied, to the listener of a process. An error of it goes to the function given to Lost.
func (t *Transport) Post(to int, message []byte) {
	if err := t.valid("Post", to); err != nil {
		t.due.add(event{process: to, err: err, lost: true})
		t.rouse()
		return
	}
	o := t.message(to, uint64(len(message)), message)
	if o == nil {
		t.due.add(event{process: to, err: fmt.Errorf("mpi: Post: no memory for %d bytes", len(message)), lost: true})
		t.rouse()
		return
	}
	t.give(o)
}

// message returns the operation that sends a message behind a number, or nil if there is no memory.
func (t *Transport) message(to int, head uint64, message []byte) *operation {
	n := headBytes + len(message)
	memory := t.buffer(n)
	if memory == nil {
		return nil
	}
	data := unsafe.Slice((*byte)(memory), n)
	binary.LittleEndian.PutUint64(data, head)
	copy(data[headBytes:], message)
	return &operation{kind: posting, peer: to, tag: postTag, data: data, memory: memory}
}

// buffer returns memory of C for a message, or nil.
func (t *Transport) buffer(n int) unsafe.Pointer {
	if n > firstBytes {
		return C.plaitk_mpi_memory(C.uint64_t(n))
	}
	t.given.Lock()
	defer t.given.Unlock()
	if k := len(t.given.buffers); k > 0 {
		b := t.given.buffers[k-1]
		t.given.buffers = t.given.buffers[:k-1]
		return b
	}
	return C.plaitk_mpi_memory(firstBytes)
}

// giveBuffer gives memory for n bytes back.
func (t *Transport) giveBuffer(b unsafe.Pointer, n int) {
	if n <= firstBytes {
		t.given.Lock()
		defer t.given.Unlock()
		if len(t.given.buffers) < spareBuffers {
			t.given.buffers = append(t.given.buffers, b)
			return
		}
	}
	C.free(b)
}

// listenToAll starts to receive messages for the listener from each process. Of one process one receive is pending at a time, which keeps
// the order.
func (t *Transport) listenToAll() {
	t.listening = C.plaitk_mpi_memory(C.uint64_t(t.processes * firstBytes))
	if t.listening == nil {
		t.stop(fmt.Errorf("mpi: no memory for messages of %d processes", t.processes))
		return
	}
	all := unsafe.Slice((*byte)(t.listening), t.processes*firstBytes)
	for p := range t.processes {
		t.start(&operation{kind: listening, peer: p, tag: postTag, data: all[p*firstBytes:][:firstBytes]})
	}
}

// received handles the first piece of a message, of n bytes.
func (t *Transport) received(o *operation, n int) {
	var length uint64
	if n >= headBytes {
		length = binary.LittleEndian.Uint64(o.data)
	}
	if n == headBytes && length == gone {
		t.lose(o.peer, fmt.Errorf("mpi: process %d has closed its transport and waits for no others", o.peer), true)
		return
	}
	if n < headBytes || uint64(n) != min(length+headBytes, firstBytes) {
		t.lose(o.peer, fmt.Errorf("mpi: process %d sent what is no message of this program: do all processes run the same version?", o.peer), true)
		return
	}
	if length+headBytes <= firstBytes {
		t.hear(o, o.data[headBytes:n])
		return
	}
	memory := C.plaitk_mpi_memory(C.uint64_t(length))
	if memory == nil {
		t.lose(o.peer, fmt.Errorf("mpi: no memory for a message of %d bytes from process %d", length, o.peer), true)
		return
	}
	message := unsafe.Slice((*byte)(memory), length)
	had := copy(message, o.data[headBytes:])
	t.start(&operation{kind: continuing, peer: o.peer, tag: postTag, data: message[had:], memory: memory})
}

// continued handles a message that came in two pieces.
func (t *Transport) continued(o *operation) {
	had := firstBytes - headBytes
	message := unsafe.Slice((*byte)(o.memory), had+len(o.data))
	memory := o.memory
	o.memory = nil // its length is not that of the data
	all := unsafe.Slice((*byte)(t.listening), t.processes*firstBytes)
	t.hear(&operation{kind: listening, peer: o.peer, tag: postTag, data: all[o.peer*firstBytes:][:firstBytes]}, message)
	C.free(memory)
}

// hear passes a message on, and listens with o for the next one.
func (t *Transport) hear(o *operation, message []byte) {
	t.due.add(event{process: o.peer, message: append([]byte{}, message...)})
	if err := t.lost[o.peer]; err == nil && t.gone == nil {
		t.start(o)
	}
}
