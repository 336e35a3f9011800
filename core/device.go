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

// MetaKept is the largest size in bytes of values from other devices that the meta device keeps: numbers and small tables, not weights. It
// does not read larger tensors.
const MetaKept = 1 << 20

// A Device runs kernels on streams and owns memory. Package core/cpu implements it for CPU cores.
type Device interface {
	// String returns the device's name, such as "cpu:0" or "cuda:0". [OpenDevice] takes it.
	String() string
	// Kind returns the kind of the device's [Backend]. The part of the name before the colon is the kind or an alias of it.
	Kind() string
	// Index returns the number after the colon.
	Index() int
	// Ordinal returns a small number, unique among the devices opened in this process.
	Ordinal() int
	// NewStream makes an in-order stream for the given rank.
	NewStream(rank int) Stream
	// Supports reports whether the device has the kernel.
	Supports(k KernelID) bool
	// Synchronize waits for every stream, inside a rank for the rank's streams, and returns their unread errors.
	Synchronize() error
	// EmptyCache returns unused cached memory to the system.
	EmptyCache()
	// Reserved returns the bytes obtained from the system, caches included.
	Reserved() int
	// HostAccessible reports whether the host can address memory through Memory.Ptr.
	HostAccessible() bool
}

// A Stream runs calls asynchronously, in the order of their launch. Several goroutines may use it.
type Stream interface {
	Device() Device
	// Rank returns the rank the stream belongs to.
	Rank() int
	// Counters returns the counters of the stream's memory.
	Counters() Counters
	// Alloc returns memory of at least the given size, aligned to 64 bytes, for calls launched from now on.
	Alloc(bytes int) (Memory, error)
	// Free returns memory in program order: earlier calls may still use it, and later calls may get it again. Those later calls wait for
	// the events in after, which belong to other streams.
	Free(m Memory, after ...Event)
	// Begin returns a call to fill in.
	Begin(k KernelID, op string) *Call
	// Refuse returns the reason why the device cannot run a call at all, such as a missing kernel, or nil. Only [Launch] calls it.
	Refuse(c *Call) error
	// Launch enqueues the call. It blocks while the queue is full. It runs the call at once where that is faster. A call with an error
	// ([Call.Err]) fails.
	Launch(c *Call)
	// Abandon returns a call of Begin without launching it.
	Abandon(c *Call)
	// Record returns an event that is done when everything launched so far is done. It takes no lock.
	Record() Event
	// Next returns the event of the call that is being launched: see [Call.Place].
	Next() Event
	// Locked runs fn while no call can be enqueued. fn may only use Record of the stream.
	Locked(fn func())
	// Wait makes later calls wait for the event.
	Wait(e Event)
	// Upload copies src to m at the given byte offset, in stream order. The caller may change src afterwards.
	Upload(m Memory, offset int, src []byte)
	// Download waits for everything launched so far and copies len(dst) bytes from m at the given byte offset.
	Download(dst []byte, m Memory, offset int)
	// Synchronize waits until the stream is idle, and for the events that later calls would wait for. It returns its first unread error.
	Synchronize() error
	// TakeError returns the first unread execution error, without waiting.
	TakeError() error
	// NearlyFull reports whether the queue is nearly full, so that an operation of many calls might block in Launch.
	NearlyFull() bool
	// Close waits for the stream and ends it. Memory that came from it can still be freed.
	Close() error
}

// An Event is a position in a stream.
type Event interface {
	// Done reports whether the stream has passed the position.
	Done() bool
	// Wait blocks until the stream has passed the position.
	Wait()
	// WaitFor is Wait with the timeout d. It reports whether the stream has passed the position.
	WaitFor(d time.Duration) bool
	// Stream returns the stream the event was recorded on.
	Stream() Stream
}

// A Joint is an event that is done when its parts are done. The parts may become known later.
type Joint interface {
	Event
	// Parts waits until the parts are known, and returns them. They need not be done.
	Parts() []Event
	// Known waits until the parts are known, at most for d, and reports whether they are.
	Known(d time.Duration) bool
}

// Memory is a piece of device memory, off the Go heap.
type Memory struct {
	shadow
	Ptr    unsafe.Pointer // the first byte, if the host can address it
	Handle uint64         // the device's own identifier
	Size   int            // usable bytes

	recycled *Storage      // header to reuse with free memory
	pool     *recordedPool // of recordings, to which it returns
}

// A Backend opens the devices of one kind.
type Backend struct {
	Kind    string
	Aliases []string // other names of the kind
	Open    func(index, ordinal int) (Device, error)
	Count   func() int // devices that can be opened
}

var devices struct {
	sync.Mutex
	backends map[string]Backend
	aliases  map[string]string // kinds by alias
	open     map[string]Device
	order    []Device
}

// RegisterBackend makes a kind of device available to [OpenDevice]. Device packages call it when they are imported.
func RegisterBackend(b Backend) {
	devices.Lock()
	defer devices.Unlock()
	if devices.backends == nil {
		devices.backends, devices.open, devices.aliases = map[string]Backend{}, map[string]Device{}, map[string]string{}
	}
	devices.backends[b.Kind] = b
	for _, alias := range b.Aliases {
		devices.aliases[alias] = b.Kind
	}
}

// kindOf returns the kind that a name of a kind means. The caller holds the mutex of devices.
func kindOf(name string) string {
	if kind, ok := devices.aliases[name]; ok {
		return kind
	}
	return name
}

// DeviceKind returns the kind of devices that a name means, such as "gpu" for "cuda". Other names are returned as they are.
func DeviceKind(name string) string {
	devices.Lock()
	defer devices.Unlock()
	return kindOf(name)
}

// OpenDevice returns the device with the given name, such as "cpu:1"; "cpu" means "cpu:0", and "cuda:0" is "gpu:0".
func OpenDevice(name string) (Device, error) {
	devices.Lock()
	d := devices.open[name]
	devices.Unlock()
	if d != nil {
		return d, nil
	}
	kind, number, found := strings.Cut(name, ":")
	index := 0
	if found {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 {
			return nil, Errorf(ValueError, "device", "got %q, want a kind and an index such as \"cpu:0\"", name)
		}
		index = n
	}
	devices.Lock()
	defer devices.Unlock()
	kind = kindOf(kind)
	name = fmt.Sprint(kind, ":", index)
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
		hint := ""
		if kind == "gpu" || kind == "cuda" {
			hint = "; a program that imports github.com/plait-ml/plait/gpu has GPUs"
		}
		return nil, Errorf(DeviceError, "device", "no devices of kind %q, want one of %v%s", kind, kinds, hint)
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
	return slices.Clip(devices.order) // a device that is opened later goes to another array, or behind these
}

// DeviceCount returns how many devices of a kind can be opened. An alias means its kind.
func DeviceCount(kind string) int {
	devices.Lock()
	b, ok := devices.backends[kindOf(kind)]
	devices.Unlock()
	if !ok {
		return 0
	}
	return b.Count()
}

// Synchronize waits for every stream of every device, inside a rank for the rank's streams, and returns the first unread error.
func Synchronize() error {
	var first error
	for _, d := range OpenDevices() {
		if err := d.Synchronize(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
