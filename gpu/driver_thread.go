package gpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/plait-ml/plait/gpu/driver"
)

// A driverThread is the one goroutine that calls a GPU's driver, which is not safe for several. It runs the functions it is given, and
// polls the driver while something is in flight.
type driverThread struct {
	gpu     driver.GPU
	jobs    chan func()
	pending []ending
	eager   time.Duration
	patient bool // of a GPU made of software
}

// An ending is a status to wait for, and what to do when it is done.
type ending struct {
	status driver.Status
	then   func(failed bool)
}

const (
	// eager is how long the owner of a GPU asks without a pause whether something has ended; of one made of software it is less,
	// because it takes the time from what it waits for.
	eager         = 500 * time.Microsecond
	eagerSoftware = 30 * time.Microsecond
	// pause is how long it then sleeps between two questions. Timers of an idle Go program may be a millisecond late.
	pause = 50 * time.Microsecond
	// rest is the longest time between two questions to a GPU made of software, whose driver may compile for long before anything
	// ends: it is a sixteenth of what the owner has waited already.
	rest = 2 * time.Millisecond
)

// startDriverThread opens the GPU on a new driver thread.
func startDriverThread(a adapter) (*driverThread, error) {
	o := &driverThread{jobs: make(chan func(), 64), eager: eager}
	if a.Software {
		o.eager, o.patient = eagerSoftware, true
	}
	opened := make(chan error)
	go func() {
		gpu, err := a.driver.Open(a.Index)
		o.gpu = gpu
		opened <- err
		if err == nil {
			o.serve()
		}
	}()
	if err := <-opened; err != nil {
		return nil, err
	}
	return o, nil
}

// post enqueues fn.
func (o *driverThread) post(fn func()) { o.jobs <- fn }

// do runs fn on the driver thread and waits for it. fn must not call do. A panic of fn is the caller's.
func (o *driverThread) do(fn func()) {
	done := make(chan any, 1)
	o.jobs <- func() {
		defer func() { done <- recover() }()
		fn()
	}
	if x := <-done; x != nil {
		panic(x)
	}
}

// after calls then when the status is done. Called on the driver thread.
func (o *driverThread) after(status driver.Status, then func(failed bool)) {
	o.pending = append(o.pending, ending{status, then})
}

// serve runs jobs for ever. Should its goroutine end, with the thread that it was bound to or by a panic, another takes over;
// after a panic nobody knows what the driver has been told, so the device is lost.
func (o *driverThread) serve() {
	defer func() {
		if x := recover(); x != nil {
			o.fail(x)
		}
		go o.serve()
	}()
	o.run()
}

// fail makes the device lost after a panic.
func (o *driverThread) fail(x any) {
	o.gpu.Lose(fmt.Sprintf("internal error: %v\n%s", x, debug.Stack()))
}

func (o *driverThread) run() {
	moved := time.Now()
	for {
		if len(o.pending) == 0 {
			(<-o.jobs)()
			moved = time.Now()
			continue
		}
		select {
		case fn := <-o.jobs:
			fn()
			moved = time.Now()
			continue
		default:
		}
		if o.look() {
			moved = time.Now()
			continue
		}
		waited := time.Since(moved)
		if waited < o.eager {
			runtime.Gosched()
			continue
		}
		next := pause
		if o.patient {
			next = max(next, min(waited/16, rest))
		}
		if next < time.Millisecond {
			o.gpu.Pause(next)
			continue
		}
		select {
		case fn := <-o.jobs:
			fn()
			moved = time.Now()
		case <-time.After(next):
		}
	}
}

// look polls the driver and reports whether anything has ended.
func (o *driverThread) look() bool {
	o.gpu.Poll()
	ended := false
	lost := o.gpu.Lost()
	list := o.pending
	o.pending = nil // what runs below may add to it
	var kept []ending
	next := 0
	defer func() { o.pending = slices.Concat(kept, list[next:], o.pending) }()
	for next < len(list) {
		e := list[next]
		next++
		done, failed := e.status.Done()
		if !done && !lost {
			kept = append(kept, e)
			continue
		}
		ended = true
		if done {
			e.status.Free() // of a lost device the driver may still write the word
		}
		e.then(failed || lost)
	}
	return ended
}
