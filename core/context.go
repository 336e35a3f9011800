package core

import (
	"sync"
	"sync/atomic"
)

// A Context is what the operations of one rank share: its default device and dtype, its random generators, the current
// streams and the memory category of new tensors. Programs without ranks use the default context.
type Context struct {
	id       uint32
	rank     int
	parent   *Context
	shared   *rankState
	random   *randomState
	home     Device // the rank's own, whatever its default is now
	device   Device
	dtype    DType
	category Category
	streams  []Stream // overrides, by device ordinal
	hooks    *SavedHooks
}

// rankState is what the contexts derived from one rank's share.
type rankState struct {
	ranked  bool // of a rank, not of a program without ranks
	mu      sync.Mutex
	streams atomic.Pointer[[]Stream] // the rank's default stream per device ordinal
	casts   castCache
}

// randomState is the random generators of a rank, or of one of its workers.
type randomState struct {
	mu         sync.Mutex
	generators atomic.Pointer[[]*Generator] // per device ordinal
	seed       uint64
	kinds      map[string]uint64 // seeds of kinds of devices that have one of their own
}

var contexts table[Context]

func init() { newContext(nil, 0) } // id 0, the zero Mode's context

func newContext(parent *Context, rank int) *Context {
	c := &Context{rank: rank, dtype: Float32, shared: &rankState{}, random: &randomState{seed: DefaultSeed}, parent: parent}
	c.id = contexts.add(c)
	return c
}

// NewRankContext returns a context for the given rank, with streams and random generators of its own and dev as the
// default device (nil: the process's). Free it with [Context.Free].
func NewRankContext(rank int, dev Device) *Context {
	c := newContext(nil, rank)
	c.shared.ranked = true
	c.home, c.device = dev, dev
	return c
}

// Free gives up a context, and closes the streams of a rank's. Nothing may run in it any more.
func (c *Context) Free() {
	contexts.remove(c.id)
	if c.parent != nil {
		return
	}
	if streams := c.shared.streams.Swap(nil); streams != nil {
		for _, s := range *streams {
			if s != nil {
				s.Close()
			}
		}
	}
}

// CurrentContext returns the context of the calling thread.
func CurrentContext() *Context { return CurrentMode().Context() }

// derive returns a copy of c with a new id, sharing the rank's streams and generators.
func (c *Context) derive() *Context {
	d := *c
	d.parent = c
	d.id = contexts.add(&d)
	return &d
}

// Worker returns a context for a helper thread of c's rank: it shares the rank's streams and has random generators of its
// own, which start from seed. Free it with [Context.Free].
func (c *Context) Worker(seed uint64) *Context {
	d := c.derive()
	d.random = &randomState{seed: seed}
	return d
}

// Rank returns the rank the context belongs to; 0 without ranks.
func (c *Context) Rank() int { return c.rank }

// Ranked reports whether the context is of a rank, and not of a program without ranks.
func (c *Context) Ranked() bool { return c.shared.ranked }

// Concerns reports whether a thread of the context that waits for a device waits for the stream: a rank waits for its own, since
// those of others may be waiting for it, and a program without ranks for all.
func (c *Context) Concerns(s Stream) bool { return !c.shared.ranked || s.Rank() == c.rank }

// DefaultDType returns the dtype of new floating-point tensors.
func (c *Context) DefaultDType() DType { return c.dtype }

// SetDefaultDType sets the dtype of new floating-point tensors.
func (c *Context) SetDefaultDType(d DType) error {
	if !d.IsFloat() {
		return Errorf(TypeError, "set_default_dtype", "got %v, want a floating-point dtype", d)
	}
	c.dtype = d
	return nil
}

// DefaultDevice returns the device of new tensors: the context's, or cpu:0.
func (c *Context) DefaultDevice() (Device, error) {
	if c.device != nil {
		return c.device, nil
	}
	return OpenDevice("cpu:0")
}

// Home returns the device that the rank was given, or cpu:0, whatever its default device is now.
func (c *Context) Home() (Device, error) {
	if c.home != nil {
		return c.home, nil
	}
	return OpenDevice("cpu:0")
}

// SetDefaultDevice sets the device of new tensors; nil means cpu:0.
func (c *Context) SetDefaultDevice(d Device) { c.device = d }

// Stream returns the current stream of device d in this context: the one set by [WithStream], or the rank's default
// stream of d, made at its first use.
func (c *Context) Stream(d Device) Stream {
	i := d.Ordinal()
	if i < len(c.streams) && c.streams[i] != nil {
		return c.streams[i]
	}
	if s := c.shared.streams.Load(); s != nil && i < len(*s) && (*s)[i] != nil {
		return (*s)[i]
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	var old []Stream
	if s := c.shared.streams.Load(); s != nil {
		old = *s
	}
	if i < len(old) && old[i] != nil {
		return old[i]
	}
	grown := make([]Stream, max(len(old), i+1))
	copy(grown, old)
	grown[i] = d.NewStream(c.rank)
	c.shared.streams.Store(&grown)
	return grown[i]
}

// made returns the current stream of the device with the given ordinal, or nil if it has not been made.
func (c *Context) made(ordinal int) Stream {
	if ordinal < len(c.streams) && c.streams[ordinal] != nil {
		return c.streams[ordinal]
	}
	if s := c.shared.streams.Load(); s != nil && ordinal < len(*s) {
		return (*s)[ordinal]
	}
	return nil
}

// devices returns a bound on the ordinals of the devices for which c has streams.
func (c *Context) devices() int {
	n := len(c.streams)
	if s := c.shared.streams.Load(); s != nil {
		n = max(n, len(*s))
	}
	return n
}

// SameStreams reports whether c and o have the same current streams.
func (c *Context) SameStreams(o *Context) bool {
	if c == o || c.shared == o.shared && len(c.streams) == 0 && len(o.streams) == 0 {
		return true
	}
	if c.shared != o.shared {
		return false
	}
	for i := range max(c.devices(), o.devices()) {
		if c.made(i) != o.made(i) {
			return false
		}
	}
	return true
}

// OnStreamsOf returns a context like c, of the rank of o and with its current streams. Free it with [Context.Free].
func (c *Context) OnStreamsOf(o *Context) *Context {
	d := c.derive()
	d.rank, d.shared, d.streams = o.rank, o.shared, o.streams
	return d
}

// WaitFor makes what runs on c's current streams from now on wait for what was launched on those of o.
func (c *Context) WaitFor(o *Context) {
	for i := range o.devices() {
		if s := o.made(i); s != nil {
			if here := c.Stream(s.Device()); here != s {
				here.Wait(s.Record())
			}
		}
	}
}

// WithStream runs fn with s as the current stream of its device.
func WithStream(s Stream, fn func()) {
	withDerived(func(c *Context) {
		i := s.Device().Ordinal()
		streams := make([]Stream, max(len(c.streams), i+1))
		copy(streams, c.streams)
		streams[i] = s
		c.streams = streams
	}, fn)
}

// WithDevice runs fn with d as the device of new tensors.
func WithDevice(d Device, fn func()) {
	withDerived(func(c *Context) { c.device = d }, fn)
}

// WithCategory runs fn with new storages counted under the given memory category.
func WithCategory(cat Category, fn func()) {
	withDerived(func(c *Context) { c.category = cat }, fn)
}

// WithContext runs fn in the context c.
func WithContext(c *Context, fn func()) {
	WithMode(func(m Mode) Mode { return m.WithContext(c) }, fn)
}

func withDerived(change func(*Context), fn func()) {
	c := CurrentContext().derive()
	defer c.Free()
	change(c)
	WithContext(c, fn)
}

// SavedHooks transform what nodes save for their derivatives, for example to keep it on another device. Pack runs when
// a value is saved, on a tensor that is released afterwards unless it is what Pack returns; Unpack runs, with what Pack
// returned, when the derivative asks for the value. It returns a tensor, or a new reference to one, that is released
// after use.
type SavedHooks struct {
	Pack     func(*Tensor) any
	Unpack   func(any) *Tensor
	External *ExternalSaver // whose hooks they are, if they belong to another language
}

// WithSavedHooks runs fn with h applied to everything that nodes recorded in it save.
func WithSavedHooks(h *SavedHooks, fn func()) {
	withDerived(func(c *Context) { c.hooks = h }, fn)
}

// SavedHooks returns the hooks in force, or nil.
func (c *Context) SavedHooks() *SavedHooks { return c.hooks }
