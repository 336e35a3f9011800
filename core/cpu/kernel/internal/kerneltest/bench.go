package kerneltest

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// Bench times the call and, in turns, a copy of 64 MiB by as many goroutines as threads. It reports the call's bytes
// per second as a fraction of the copy's, which reads and writes. `bytes` is what the call moves. It takes the best
// time of each, since other programs may be running. On one thread it takes the thread's processor time.
func (c Call) Bench(b *testing.B, bytes int) {
	const copied = 64 << 20
	p := pool.New(c.Threads)
	defer p.Close()
	ctx := kernel.Context{Pool: p.Ptr()}
	defer ctx.FreeScratch()
	from, to := Filled(b, core.Uint8, copied).Memory(), Filled(b, core.Uint8, copied).Memory()
	run := func() {
		if err := c.run(&ctx); err != nil {
			b.Fatal(err)
		}
	}
	clock := func() time.Duration { return time.Duration(time.Now().UnixNano()) }
	if c.Threads == 1 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		clock = threadTime
	}
	bestCopy, best := time.Hour, time.Hour
	for range b.N {
		start := clock()
		if c.Threads == 1 {
			copy(to, from)
		} else {
			copyAll(to, from, c.Threads)
		}
		bestCopy = min(bestCopy, clock()-start)
		run() // warm the caches
		start = clock()
		run()
		best = min(best, clock()-start)
	}
	rate := float64(bytes) / best.Seconds()
	b.ReportMetric(rate/(2*copied/bestCopy.Seconds()), "of-copy")
	b.ReportMetric(rate/1e9, "GB/s")
	b.ReportMetric(float64(best.Nanoseconds())/1e3, "best-us")
	b.ReportMetric(0, "ns/op")
}

func copyAll(to, from []byte, threads int) {
	done := make(chan struct{})
	n := len(to) / threads
	for i := range threads {
		go func() {
			copy(to[i*n:(i+1)*n], from[i*n:(i+1)*n])
			done <- struct{}{}
		}()
	}
	for range threads {
		<-done
	}
	runtime.KeepAlive(to)
}

// Filled returns a row-major tensor of small numbers of both signs, in huge pages like the device's memory.
func Filled(b *testing.B, d core.DType, shape ...int) *rawtensor.Tensor {
	x := New(b, d, shape)
	page := os.Getpagesize()
	if skip := -int(uintptr(x.Ptr)) & (page - 1); len(x.Memory()) > skip+page {
		hugePages(x.Memory()[skip:])
	}
	period := From(b, d, []int{251}, func() []float64 {
		v := make([]float64, 251)
		for i := range v {
			v[i] = float64((i*97)%251-125) / 64
			if !d.IsFloat() {
				v[i] = float64(i % 2)
			}
		}
		return v
	}())
	for memory := x.Memory(); len(memory) > 0; {
		memory = memory[copy(memory, period.Memory()):]
	}
	return x
}
