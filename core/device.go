package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// MetaKind is the kind of the device whose tensors have no values: see package core/meta.
const MetaKind = "meta"

// MetaKept is how many bytes of values from other devices the meta device remembers of a tensor: numbers and small tables, not
// weights. Of larger ones nothing is read.
const MetaKept = 1 << 20

// A Device runs kernels on streams and owns memory. Package core/cpu implements it for CPU cores.
type Device interface {
	// String returns the device's name, such as "cpu:0".
	String() string
	// Kind returns the part of the name before the colon.
	Kind() string
	// Index returns the number after the colon.
	Index() int
	// Ordinal returns a small number, unique among the devices opened in this process.
	Ordinal() int
	// NewStream makes an in-order stream for the given rank.
	NewStream(rank int) Stream
	// Supports reports whether the device has the kernel.
	Supports(k KernelID) bool
	// Synchronize waits for every stream, in a rank for those of the rank, and returns their unread errors.
	Synchronize() error
	// EmptyCache gives unused cached memory back to the system.
	EmptyCache()
	// Reserved returns the bytes held from the system, caches included.
	Reserved() int
	// HostAccessible reports whether Memory.Ptr addresses the memory from the host.
	HostAccessible() bool
}

// A Stream runs calls in the order they were launched, asynchronously. It may be used from several goroutines.
type Stream interface {
	Device() Device
	// Rank returns the rank the stream belongs to.
	Rank() int
	// Counters returns where the stream's memory is counted.
	Counters() Counters
	// Alloc returns memory of at least the given size, aligned to 64 bytes, for calls launched from now on.
	Alloc(bytes int) (Memory, error)
	// Free gives memory back in program order: calls launched before may still use it, later ones may get it again.
	// Those that do wait for the events of other streams in after.
	Free(m Memory, after ...Event)
	// Begin returns a call to fill in.
	Begin(k KernelID, op string) *Call
	// Refuse returns why the device cannot run a call at all, such as a missing kernel, or nil. The function [Launch] asks.
	Refuse(c *Call) error
	// Launch enqueues the call, waiting while the queue is full, or runs it at once where that is faster. One with an error
	// ([Call.Err]) fails.
	Launch(c *Call)
	// Abandon gives back a call returned by Begin that is not launched.
	Abandon(c *Call)
	// Record returns an event that is done when everything launched so far is. It takes no lock.
	Record() Event
	// Next returns the event that is done when the call being launched is: see [Call.Place].
	Next() Event
	// Locked runs fn while no call takes its place in the stream. fn must not use the stream but for Record.
	Locked(fn func())
	// Wait makes later calls wait for the event.
	Wait(e Event)
	// Upload copies src to m at the given byte offset, in order; src may be changed when it returns.
	Upload(m Memory, offset int, src []byte)
	// Download waits for everything launched so far and copies len(dst) bytes from m at the given byte offset.
	Download(dst []byte, m Memory, offset int)
	// Synchronize waits until the stream is idle and what later calls would wait for is done, and returns its first unread
	// error.
	Synchronize() error
	// TakeError returns the first unread execution error, without waiting.
	TakeError() error
	// Crowded reports whether the queue is so full that an operation of many calls might have to wait in Launch.
	Crowded() bool
	// MakeRoom waits until the queue is at most half full.
	MakeRoom()
	// Close waits for the stream and ends it. Memory that came from it can still be freed.
	Close() error
}

// An Event is a point in a stream.
type Event interface {
	// Done reports whether the stream has passed the point.
	Done() bool
	// Wait blocks the caller until it has.
	Wait()
	// WaitFor blocks until it has, at most for d, and reports whether it has.
	WaitFor(d time.Duration) bool
	// Stream returns the stream the event was recorded on.
	Stream() Stream
}

// A Joint is an event that is done when others are, which may not be known when it is waited for.
type Joint interface {
	Event
	// Parts waits until the others are known, and returns them. Those may have to be waited for yet.
	Parts() []Event
}

// Memory is a piece of device memory, off the Go heap.
type Memory struct {
	shadow
	Ptr    unsafe.Pointer // the first byte, where the host can address it
	Handle uint64         // the device's own name for the piece
	Size   int            // usable bytes

	storage *Storage // to be used again, of free memory
}

// A Backend opens the devices of one kind.
type Backend struct {
	Kind  string
	Open  func(index, ordinal int) (Device, error)
	Count func() int // devices that can be opened
}

var devices struct {
	sync.Mutex
	backends map[string]Backend
	open     map[string]Device
	order    []Device
}

// RegisterBackend makes a kind of device available to [OpenDevice]. Device packages call it when they are imported.
func RegisterBackend(b Backend) {
	devices.Lock()
	defer devices.Unlock()
	if devices.backends == nil {
		devices.backends, devices.open = map[string]Backend{}, map[string]Device{}
	}
	devices.backends[b.Kind] = b
}

// OpenDevice returns the device with the given name, such as "cpu:1"; "cpu" means "cpu:0".
func OpenDevice(name string) (Device, error) {
	kind, number, found := strings.Cut(name, ":")
	index := 0
	if found {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 {
			return nil, Errorf(ValueError, "device", "got %q, want a kind and an index such as \"cpu:0\"", name)
		}
		index = n
	}
	name = fmt.Sprint(kind, ":", index)
	devices.Lock()
	defer devices.Unlock()
	if d := devices.open[name]; d != nil {
		return d, nil
	}
	b, ok := devices.backends[kind]
	if !ok {
		kinds := make([]string, 0, len(devices.backends))
		for k := range devices.backends {
			kinds = append(kinds, k)
		}
		slices.Sort(kinds)
		return nil, Errorf(DeviceError, "device", "no devices of kind %q, want one of %v", kind, kinds)
	}
	d, err := b.Open(index, len(devices.order))
	if err != nil {
		return nil, err
	}
	devices.open[name] = d
	devices.order = append(devices.order, d)
	return d, nil
}

// OpenDevices returns the devices opened so far, in the order of their ordinals.
func OpenDevices() []Device {
	devices.Lock()
	defer devices.Unlock()
	return slices.Clone(devices.order)
}

// DeviceCount returns how many devices of a kind can be opened.
func DeviceCount(kind string) int {
	devices.Lock()
	b, ok := devices.backends[kind]
	devices.Unlock()
	if !ok {
		return 0
	}
	return b.Count()
}

// Synchronize waits for every stream of every device, in a rank for those of the rank, and returns the first unread error.
func Synchronize() error {
	var first error
	for _, d := range OpenDevices() {
		if err := d.Synchronize(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
