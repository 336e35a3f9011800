//go:build cgo && linux

package mpi

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// An event is a call to the program that is due: a done function, a message for the listener, or a lost process.
type event struct {
	done    func(error)
	err     error
	process int
	message []byte
	lost    bool
}

// due holds the events in their order. One goroutine at a time makes the calls, without other locks, so that events of one process stay
// in order.
type due struct {
	calling sync.Mutex
	waiting atomic.Int64 // length of list

	mutex       sync.Mutex // guards what follows
	list, spare []event
	early       []event // messages and losses that nobody is there for yet
	listener    func(from int, message []byte)
	loser       func(process int, err error)
}

func (d *due) add(e event) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.list = append(d.list, e)
	d.waiting.Add(1)
}

func (d *due) setListener(f func(from int, message []byte)) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.listener = f
	d.again()
}

func (d *due) setLoser(f func(process int, err error)) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.loser = f
	d.again()
}

// again puts early events back before the others.
func (d *due) again() {
	d.list = append(d.early, d.list...)
	d.early = nil
	d.waiting.Store(int64(len(d.list)))
}

// take returns the events that somebody is there for.
func (d *due) take() (list []event, listener func(int, []byte), loser func(int, error)) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	list, d.list = d.list, d.spare[:0]
	d.spare = nil
	d.waiting.Store(0)
	kept := list[:0]
	for _, e := range list {
		if e.done == nil && (e.lost && d.loser == nil || !e.lost && d.listener == nil) {
			d.early = append(d.early, e)
		} else {
			kept = append(kept, e)
		}
	}
	clear(list[len(kept):])
	return kept, d.listener, d.loser
}

// call makes the calls of a list, up to one that panics, and returns how many those were.
func call(list []event, listener func(int, []byte), loser func(int, error)) (made int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("mpi: a function that messages were given to panicked: %v", r)
		}
	}()
	for _, e := range list {
		made++
		switch {
		case e.done != nil:
			e.done(e.err)
		case e.lost:
			loser(e.process, e.err)
		default:
			listener(e.process, e.message)
		}
	}
	return made, nil
}

// deliver makes the calls that are due, unless another goroutine does. It reports whether it made any, and the error of one that panicked.
func (d *due) deliver() (any bool, failure error) {
	for d.waiting.Load() > 0 && d.calling.TryLock() {
		list, listener, loser := d.take()
		for rest := list; len(rest) > 0; {
			made, err := call(rest, listener, loser)
			rest = rest[made:]
			if err != nil {
				failure = err
			}
		}
		any = any || len(list) > 0
		clear(list)
		d.mutex.Lock()
		d.spare = list
		d.mutex.Unlock()
		d.calling.Unlock()
	}
	return any, failure
}
