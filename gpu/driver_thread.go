package gpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/plait-ml/plait/gpu/driver"
)

// A driverThread is the one goroutine that calls a GPU's driver, because the driver is not safe for concurrent use. It runs the functions
// that are posted to it, and polls the driver while operations are in flight.
type driverThread struct {
	gpu     driver.GPU
	jobs    chan func()
	pending []ending
	eager   time.Duration
	patient bool // the adapter computes on the CPU
}

// A pendingStatus is a status to wait for, and the function to call when it is done.
type ending struct {
	status driver.Status
	then   func(failed bool)
}

const (
	// spinTime is how long the thread polls without a pause. It is shorter for a software adapter, which needs the CPU time itself.
	eager         = 500 * time.Microsecond
	eagerSoftware = 30 * time.Microsecond
	// pollPause is the pause between two polls after that. Timers of an idle Go program may be a millisecond late.
	pause = 50 * time.Microsecond
	// maxPause is the longest pause between two polls of a software adapter, whose driver may compile for long. The pause is a sixteenth of
	// the time since the last event.
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

// post enqueues fn and returns at once.
func (o *driverThread) post(fn func()) { o.jobs <- fn }

// do runs fn on the driver thread and waits for it. fn must not call do. A panic in fn is raised in the caller.
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

// after calls then when the status is done. It is called on the driver thread.
func (o *driverThread) after(status driver.Status, then func(failed bool)) {
	o.pending = append(o.pending, ending{status, then})
}

// serve runs jobs forever. If its goroutine ends, by a panic or by runtime.Goexit, another one replaces it. After a panic the state of the
// driver is unknown, so the device is lost.
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

// poll polls the driver and reports whether any operation has ended.
func (o *driverThread) look() bool {
	o.gpu.Poll()
	ended := false
	lost := o.gpu.Lost()
	list := o.pending
	o.pending = nil // the functions called below may append to it
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
			e.status.Free() // on a lost device, the driver may still write to the status
		}
		e.then(failed || lost)
	}
	return ended
}
