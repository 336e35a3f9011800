// Package cpu implements the CPU devices cpu:0, cpu:1, ... Streams run on goroutines, memory lies off the Go heap, and kernels are C code
// that a pool of C threads executes. Importing the package registers the devices.
//
// The devices share the machine's cores: each gets an equal part of the threads ([SetNumThreads]), but at least one. Results of kernels do
// not depend on the number of threads.
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

// maxDevices is the maximum number of CPU devices in a process.
const maxDevices = 256

func init() {
	core.RegisterBackend(core.Backend{Kind: "cpu", Open: open, Count: Count})
}

// Device is one CPU device.
type Device struct {
	*backend.Device
	pool     atomic.Pointer[pool.Pool]
	reserved atomic.Int64
	limit    atomic.Int64 // of reserved; 0 for none
	slabs    slabs
}

var machine struct {
	sync.Mutex
	devices []*Device
	pools   map[int][]*pool.Pool // by number of threads; never freed, idle workers sleep
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

// Count returns the number of CPU devices that a program should use: PLAIT_CPU_DEVICES, or 1. More devices can be opened.
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
	sharePools()
	return d, nil
}

// SetNumThreads sets the number of threads of all CPU devices together.
func SetNumThreads(n int) error {
	if n < 1 {
		return core.Errorf(core.ValueError, "set_num_threads", "got %d, want at least 1", n)
	}
	setup()
	machine.Lock()
	defer machine.Unlock()
	machine.threads = n
	sharePools()
	return nil
}

// NumThreads returns the number of threads of all CPU devices together.
func NumThreads() int {
	setup()
	machine.Lock()
	defer machine.Unlock()
	return machine.threads
}

// sharePools gives every device a pool with its part of the threads. The machine is locked.
func sharePools() {
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

// RoundsFactors reports whether matrix products in a dtype take operands of float32 too, and round them, and convolutions weights.
func (d *Device) RoundsFactors(t core.DType) bool { return t == core.BFloat16 }

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
		s.inlineContext.Trim()
		s.queuedContext.Trim()
	}
}

func allDevices() []*Device {
	machine.Lock()
	defer machine.Unlock()
	return slices.Clone(machine.devices)
}
