// Package cpu is the CPU device: in-order streams run by goroutines, memory off the Go heap, and kernels in C whose
// work is shared by a pool of C threads. Importing it registers the devices cpu:0, cpu:1, ...
//
// The devices share the machine's cores: each has an equal part of the threads ([SetNumThreads]), at least one. The
// results of a kernel do not depend on how many.
package cpu

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
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
	*backend.Device
	pool     atomic.Pointer[pool.Pool]
	reserved atomic.Int64
	limit    atomic.Int64 // on reserved; 0 for none
	slabs    slabs
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
	d := &Device{Device: backend.NewDevice("cpu", index, ordinal)}
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

// HostAccessible implements [core.Device].
func (d *Device) HostAccessible() bool { return true }

// Supports implements [core.Device].
func (d *Device) Supports(k core.KernelID) bool { return kernel.Lookup(k) != nil }

// Reserved implements [core.Device].
func (d *Device) Reserved() int { return int(d.reserved.Load()) }

// NewStream implements [core.Device].
func (d *Device) NewStream(rank int) core.Stream { return newStream(d, rank) }

// EmptyCache implements [core.Device].
func (d *Device) EmptyCache() {
	for _, b := range d.Streams() {
		s := b.Self().(*stream)
		s.Cache.Empty(s.Done.Load())
		s.inline.Trim()
		s.queue.Trim()
	}
}

func allDevices() []*Device {
	machine.Lock()
	defer machine.Unlock()
	return slices.Clone(machine.devices)
}
