// Package cpu is the CPU device: in-order streams run by goroutines, memory off the Go heap, and kernels in C whose
// work is shared by a pool of C threads. Importing it registers the devices cpu:0, cpu:1, ...
//
// The devices share the machine's cores: each has an equal part of the threads ([SetNumThreads]), at least one. The
// results of a kernel do not depend on how many.
package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// maxDevices bounds the number of CPU devices in a process.
const maxDevices = 256

func init() {
	core.RegisterBackend(core.Backend{Kind: "cpu", Open: open, Count: Count})
}

// Device is one CPU device.
type Device struct {
	index, ordinal int
	pool           atomic.Pointer[pool.Pool]
	reserved       atomic.Int64
	limit          atomic.Int64 // on reserved; 0 for none
	slabs          slabs

	streams core.DeviceStreams[*stream]
}

var machine struct {
	sync.Mutex
	devices []*Device
	pools   map[int][]*pool.Pool // by number of threads; pools are kept, their workers sleep
	threads int
	sync    bool
	once    sync.Once
}

func setup() {
	machine.once.Do(func() {
		machine.threads = environment().threads
		if machine.sync = environment().sync; machine.sync {
			core.Synchronous()
		}
		machine.pools = map[int][]*pool.Pool{}
	})
}

// Count returns the number of CPU devices that a program is expected to use: PLAIT_CPU_DEVICES, or 1. Others can be
// opened all the same.
func Count() int { return environment().devices }

func open(index, ordinal int) (core.Device, error) {
	setup()
	if err := environment().err; err != nil {
		return nil, err
	}
	if index >= maxDevices {
		return nil, core.Errorf(core.DeviceError, "device", "cpu:%d does not exist, at most %d CPU devices can be opened", index, maxDevices)
	}
	machine.Lock()
	defer machine.Unlock()
	d := &Device{index: index, ordinal: ordinal}
	machine.devices = append(machine.devices, d)
	share()
	return d, nil
}

// SetNumThreads sets how many threads all CPU devices use together.
func SetNumThreads(n int) error {
	if n < 1 {
		return core.Errorf(core.ValueError, "set_num_threads", "got %d, want at least 1", n)
	}
	setup()
	machine.Lock()
	defer machine.Unlock()
	machine.threads = n
	share()
	return nil
}

// NumThreads returns how many threads all CPU devices use together.
func NumThreads() int {
	setup()
	machine.Lock()
	defer machine.Unlock()
	return machine.threads
}

// share gives every device a pool with its part of the threads. The machine is locked.
func share() {
	each := max(machine.threads/max(len(machine.devices), Count()), 1)
	used := map[int]int{}
	for _, d := range machine.devices {
		list := machine.pools[each]
		if used[each] == len(list) {
			list = append(list, pool.New(each))
			machine.pools[each] = list
		}
		d.pool.Store(list[used[each]])
		used[each]++
	}
}

// Threads returns the number of threads that run this device's kernels.
func (d *Device) Threads() int { return d.pool.Load().Threads() }

// String implements [core.Device].
func (d *Device) String() string { return fmt.Sprint("cpu:", d.index) }

// Kind implements [core.Device].
func (d *Device) Kind() string { return "cpu" }

// Index implements [core.Device].
func (d *Device) Index() int { return d.index }

// Ordinal implements [core.Device].
func (d *Device) Ordinal() int { return d.ordinal }

// HostAccessible implements [core.Device].
func (d *Device) HostAccessible() bool { return true }

// Supports implements [core.Device].
func (d *Device) Supports(k core.KernelID) bool { return kernel.Lookup(k) != nil }

// Reserved implements [core.Device].
func (d *Device) Reserved() int { return int(d.reserved.Load()) }

// NewStream implements [core.Device].
func (d *Device) NewStream(rank int) core.Stream {
	s := newStream(d, rank)
	d.streams.Add(s)
	return s
}

// Synchronize implements [core.Device].
func (d *Device) Synchronize() error { return d.streams.Synchronize() }

// EmptyCache implements [core.Device].
func (d *Device) EmptyCache() {
	for _, s := range d.streams.All() {
		s.cache.empty(s.done.Load())
		s.inline.Trim()
		s.queue.Trim()
	}
}

func allDevices() []*Device {
	machine.Lock()
	defer machine.Unlock()
	return slices.Clone(machine.devices)
}

// patience is how long an allocation waits for the work of other ranks, which may itself wait for this one.
const patience = time.Second

// allocate returns memory of the class to a rank. If there is none, it empties caches, and waits for work to end before, where
// the caller may wait, and tries once more.
func (d *Device) allocate(rank, class, bytes int) (core.Memory, error) {
	if m, ok := d.reserve(class); ok {
		return m, nil
	}
	all := allDevices()
	if core.MayWait() {
		end := time.Now().Add(patience)
		for _, o := range all {
			for _, s := range o.streams.All() {
				if s.rank == rank {
					s.wait(s.tail.Load())
				} else {
					s.waitFor(s.tail.Load(), time.Until(end))
				}
			}
		}
		collect()
	}
	for _, o := range all {
		o.EmptyCache()
	}
	if m, ok := d.reserve(class); ok {
		return m, nil
	}
	return core.Memory{}, d.outOfMemory("allocate", bytes)
}

func (d *Device) outOfMemory(what string, bytes int) error {
	if own := d.limit.Load(); own > 0 {
		return core.Errorf(core.MemoryError, what,
			"out of memory: no room for %d bytes on %v; %d bytes of it are in use, it holds %d of the %d bytes it may",
			bytes, d, core.MemoryUsage(d).Current, d.reserved.Load(), own)
	}
	return core.Errorf(core.MemoryError, what,
		"out of memory: no room for %d bytes on %v; %d bytes of it are in use, CPU devices hold %d of the %d bytes they may (PLAIT_CPU_MEMORY)",
		bytes, d, core.MemoryUsage(d).Current, budget.used.Load(), MemoryLimit())
}

// collect runs the garbage collector and gives the cleanups of unreleased storages time to run.
func collect() {
	for range 2 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}
