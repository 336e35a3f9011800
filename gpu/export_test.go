package gpu

import (
	"math"
	"runtime"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// Tune changes the tuning parameters, and returns a function that restores them. It drops compiled programs.
func Tune(d *Device, change func(t *shader.Tuning)) func() {
	old := d.target.Tuning
	change(&d.target.Tuning)
	d.dropPrograms()
	return func() {
		d.target.Tuning = old
		d.dropPrograms()
	}
}

// Target returns the device's description for kernels.
func Target(d *Device) *shader.Device { return &d.target }

// dropPrograms drops compiled programs. No work may be in flight.
func (d *Device) dropPrograms() {
	d.programs.mu.Lock()
	defer d.programs.mu.Unlock()
	d.programs.byKey = map[shader.Key]*program{}
}

// Lose makes the driver report that the device is lost.
func Lose(d *Device, reason string) { d.thread.do(func() { d.thread.gpu.Lose(reason) }) }

// HoldThread keeps the thread that calls the driver busy until release is called.
func HoldThread(d *Device) (release func()) {
	held := make(chan struct{})
	d.thread.post(func() { <-held })
	return func() { close(held) }
}

// Submit has the calls of a stream submitted, as a batch.
func Submit(st core.Stream) {
	s := st.(*stream)
	n := s.Tail.Load()
	s.Demand(n)
	s.Until(&s.submitted, n)
}

// Ended waits until all batches of a stream have ended, and returns the numbers of its last call that has ended and of its last call.
func Ended(st core.Stream) (done, tail uint64) {
	s := st.(*stream)
	for s.inFlight.Load() > 0 {
		runtime.Gosched()
	}
	return s.Done.Load(), s.Tail.Load()
}

// KillThread ends the thread that calls the driver.
func KillThread(d *Device) {
	d.thread.post(func() {
		runtime.LockOSThread() // a goroutine that ends locked to a thread ends the thread
		runtime.Goexit()
	})
}

// Panic makes the goroutine that calls the driver panic.
func Panic(d *Device, reason string) { d.thread.post(func() { panic(reason) }) }

// LimitMemory limits the memory of the device.
func LimitMemory(d *Device, bytes int) { d.memory.limit = bytes }

// FreeBytes returns how many bytes of the device's slabs are free.
func FreeBytes(d *Device) int {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	n := 0
	for _, s := range d.memory.slabs {
		for _, f := range s.free {
			n += f.size
		}
	}
	return n
}

// PanicInSubmit submits a batch that reads two buffers that do not exist, so that the goroutine that calls the driver panics. It
// returns channels that are closed when each read, and the batch, has ended.
func PanicInSubmit(c core.Stream) (ended []<-chan struct{}) {
	s := c.(*stream)
	b := &batch{list: s.device.thread.gpu.NewCommandList(), last: 1}
	s.Tail.Store(1)
	s.recorded.Store(1)
	s.submitted.Store(1)
	s.inFlight.Add(1)
	for range 2 {
		r := &readback{stage: &stagingBuffer{}, ready: make(chan struct{})}
		b.reads = append(b.reads, r)
		ended = append(ended, r.ready)
	}
	s.device.thread.post(func() { s.device.submit(s, b) })
	done := make(chan struct{})
	go func() {
		s.Finish(1)
		close(done)
	}()
	return append(ended, done)
}

// SetFusion turns fusion of elementwise calls on or off, and returns a function that restores the default. With fusion on, each
// fusion is compiled the first time.
func SetFusion(d *Device, on bool) func() {
	_ = d.Synchronize() // an earlier error is reported elsewhere
	restore := d.fusions.Force(on)
	return func() {
		_ = d.Synchronize()
		restore()
	}
}

// DropFusions drops the programs and the counts of fusions.
func DropFusions(d *Device) { d.fusions.Drop() }

// Compiled returns how many programs the device compiled for fusions.
func Compiled(d *Device) int { return d.fusions.Count() }

// LimitBindings limits how many buffers fusions may bind, and returns a function that restores the limit.
func LimitBindings(d *Device, n int) func() {
	set := func(n int) {
		_ = d.Synchronize() // an earlier error is reported elsewhere
		d.limits.Bindings = n
	}
	old := d.limits.Bindings
	set(n)
	return func() { set(old) }
}

// PretendSlow makes a software adapter count as one on which each call takes very long.
func PretendSlow(d *Device) { d.softwarePacing.cost.Store(math.Float64bits(1e6)) }

// PretendLibrary makes kernels prepare operands for a library of matrix products, and returns a function that ends it.
func PretendLibrary(d *Device) func() {
	_ = d.Synchronize() // an earlier error is reported elsewhere
	old := d.target.Library
	d.target.Library = true
	return func() {
		_ = d.Synchronize()
		d.target.Library = old
	}
}
