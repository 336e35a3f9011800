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
	gpu      driver.GPU
	jobs     chan func()
	urgent   chan func() // run before jobs, and between the commands of a batch; they submit to other queues
	pending  []pendingStatus
	spinTime time.Duration // while operations are in flight
	idleTime time.Duration // while none are
	yielded  time.Time     // when yield has last polled
	software bool          // the adapter computes on the CPU
}

// A pendingStatus is a status to wait for, and the function to call when it is done.
type pendingStatus struct {
	status driver.Status
	then   func(failed bool)
}

const (
	// spinTime is how long the thread polls without a pause. It is shorter for a software adapter, which needs the CPU time itself.
	spinTime         = 2 * time.Millisecond
	spinTimeSoftware = 30 * time.Microsecond
	// hostSpin is how long workers and waiters of a hardware GPU spin before they sleep, and the driver thread when it has nothing to do.
	// To wake a thread can take 50 microseconds in a virtual machine; a small call takes 5.
	hostSpin = 500 * time.Microsecond
	// fewCPUs is the number of processors up to which such threads do not spin: they would delay those that work.
	fewCPUs = 4
	// pollPause is the pause between two polls after that. Timers of an idle Go program may be a millisecond late.
	pollPause = 50 * time.Microsecond
	// maxPause is the longest pause between two polls of a software adapter, whose driver may compile for long. The pause is a sixteenth of
	// the time since the last event.
	maxPause = 2 * time.Millisecond
)

// startDriverThread opens the GPU on a new driver thread.
func startDriverThread(a adapter) (*driverThread, error) {
	t := &driverThread{jobs: make(chan func(), 64), urgent: make(chan func(), 64), spinTime: spinTime, idleTime: spinOf(a)}
	if a.Software {
		t.spinTime, t.software = spinTimeSoftware, true
	}
	opened := make(chan error)
	go func() {
		gpu, err := a.driver.Open(a.Index)
		t.gpu = gpu
		opened <- err
		if err == nil {
			t.serve()
		}
	}()
	if err := <-opened; err != nil {
		return nil, err
	}
	return t, nil
}

// spinOf returns how long threads that wait for a GPU spin; 0 if not longer than for the CPU.
func spinOf(a adapter) time.Duration {
	if a.Software || runtime.NumCPU() <= fewCPUs {
		return 0
	}
	return hostSpin
}

// post enqueues fn and returns at once.
func (t *driverThread) post(fn func()) { t.jobs <- fn }

// postUrgent is post for a function that only submits to a queue of a peer stream.
func (t *driverThread) postUrgent(fn func()) { t.urgent <- fn }

// yield runs what is urgent, and polls every pollPause. It is called while a long batch is submitted.
func (t *driverThread) yield() {
	for {
		select {
		case fn := <-t.urgent:
			fn()
			continue
		default:
		}
		if now := time.Now(); now.Sub(t.yielded) >= pollPause {
			t.yielded = now
			t.poll()
		}
		return
	}
}

// do runs fn on the driver thread and waits for it. fn must not call do. A panic in fn is raised in the caller.
func (t *driverThread) do(fn func()) {
	done := make(chan any, 1)
	t.jobs <- func() {
		defer func() { done <- recover() }()
		fn()
	}
	if x := <-done; x != nil {
		panic(x)
	}
}

// after calls then when the status is done. It is called on the driver thread.
func (t *driverThread) after(status driver.Status, then func(failed bool)) {
	t.pending = append(t.pending, pendingStatus{status, then})
}

// serve runs jobs forever. If its goroutine ends, by a panic or by runtime.Goexit, another one replaces it. After a panic the state of the
// driver is unknown, so the device is lost.
func (t *driverThread) serve() {
	defer func() {
		if x := recover(); x != nil {
			t.fail(x)
		}
		go t.serve()
	}()
	t.run()
}

// fail makes the device lost after a panic.
func (t *driverThread) fail(x any) {
	t.gpu.Lose(fmt.Sprintf("internal error: %v\n%s", x, debug.Stack()))
}

func (t *driverThread) run() {
	lastProgress := time.Now()
	for {
		if len(t.pending) == 0 && time.Since(lastProgress) >= t.idleTime {
			t.take(nil)
			lastProgress = time.Now()
			continue
		}
		if t.takeNow() {
			lastProgress = time.Now()
			continue
		}
		if t.poll() {
			lastProgress = time.Now()
			continue
		}
		if len(t.pending) == 0 {
			runtime.Gosched()
			continue
		}
		waited := time.Since(lastProgress)
		if waited < t.spinTime {
			runtime.Gosched()
			continue
		}
		next := pollPause
		if t.software {
			next = max(next, min(waited/16, maxPause))
		}
		if next < time.Millisecond {
			t.gpu.Pause(next)
			continue
		}
		if t.take(time.After(next)) {
			lastProgress = time.Now()
		}
	}
}

// takeNow runs a function that was posted, an urgent one first, and reports whether there was one.
func (t *driverThread) takeNow() bool {
	select {
	case fn := <-t.urgent:
		fn()
		return true
	default:
	}
	select {
	case fn := <-t.jobs:
		fn()
		return true
	default:
		return false
	}
}

// take is takeNow that waits for a function until the end, which may be nil.
func (t *driverThread) take(end <-chan time.Time) bool {
	select {
	case fn := <-t.urgent:
		fn()
	case fn := <-t.jobs:
		fn()
	case <-end:
		return false
	}
	return true
}

// poll polls the driver and reports whether any operation has ended.
func (t *driverThread) poll() bool {
	t.gpu.Poll()
	ended := false
	lost := t.gpu.Lost()
	list := t.pending
	t.pending = nil // the functions called below may append to it
	var kept []pendingStatus
	next := 0
	defer func() { t.pending = slices.Concat(kept, list[next:], t.pending) }()
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
