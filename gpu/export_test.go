package gpu

import (
	"math"
	"runtime"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// Tune changes figures by which kernels choose, and returns a function that brings the old ones back. Programs that were compiled for
// others are dropped.
func Tune(d *Device, change func(t *shader.Tuning)) func() {
	old := d.target.Tuning
	change(&d.target.Tuning)
	d.dropPrograms()
	return func() {
		d.target.Tuning = old
		d.dropPrograms()
	}
}

// Target returns what kernels know of the device.
func Target(d *Device) *shader.Device { return &d.target }

// dropPrograms forgets compiled programs. Nothing may be in flight.
func (d *Device) dropPrograms() {
	d.programs.mu.Lock()
	defer d.programs.mu.Unlock()
	d.programs.byKey = map[shader.Key]*program{}
}

// Lose has the driver say that the device is lost.
func Lose(d *Device, reason string) { d.thread.do(func() { d.thread.gpu.Lose(reason) }) }

// KillThread ends the thread that calls the driver.
func KillThread(d *Device) {
	d.thread.post(func() {
		runtime.LockOSThread() // a goroutine that ends bound to a thread takes it along
		runtime.Goexit()
	})
}

// Panic has the goroutine that calls the driver panic.
func Panic(d *Device, reason string) { d.thread.post(func() { panic(reason) }) }

// LimitMemory sets how many bytes the device may hold.
func LimitMemory(d *Device, bytes int) { d.memory.limit = bytes }

// FreeBytes returns how much of the device's slabs nobody has taken.
func FreeBytes(d *Device) int {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	n := 0
	for _, s := range d.memory.slabs {
		if s != nil {
			for _, f := range s.free {
				n += f.size
			}
		}
	}
	return n
}

// ReadNowhere gives the device a batch with two reads to buffers that are not there, at which the goroutine that calls the driver
// panics after the driver got the batch. It returns what says that each read, and the batch, has ended.
func ReadNowhere(c core.Stream) (ended []<-chan struct{}) {
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

// SetFusion has elementwise calls fused, each fusion with a program from the first time on, or run one by one, and returns a
// function that brings the device's own way back.
func SetFusion(d *Device, on bool) func() {
	_ = d.Synchronize() // who tests errors has read them
	restore := d.fusions.Force(on)
	return func() {
		_ = d.Synchronize()
		restore()
	}
}

// DropFusions forgets the programs of fusions, and which came up.
func DropFusions(d *Device) { d.fusions.Drop() }

// Compiled returns how many programs the device compiled for fusions.
func Compiled(d *Device) int { return d.fusions.Count() }

// LimitBindings sets how many buffers fusions may bind, and returns a function that brings the device's own limit back.
func LimitBindings(d *Device, n int) func() {
	set := func(n int) {
		_ = d.Synchronize() // who tests errors has read them
		d.limits.Bindings = n
	}
	old := d.limits.Bindings
	set(n)
	return func() { set(old) }
}

// Slow has a GPU made of software count as one on which each call takes very long.
func Slow(d *Device) { d.softwarePacing.cost.Store(math.Float64bits(1e6)) }
