package core

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Context is the state shared by the operations of one rank: default device and dtype, random generators, current streams, and the memory
// category of new tensors. A program without ranks uses the default context.
type Context struct {
	id       uint32
	rank     int
	parent   *Context
	shared   *rankState
	random   *randomState
	home     Device // the rank's device; the default device may differ
	device   Device
	dtype    DType
	category Category
	streams  []Stream // overrides, by device ordinal
	hooks    *SavedHooks
}

// rankState is shared by all contexts derived from one rank's.
type rankState struct {
	ranked  bool // belongs to a rank, not to a program without ranks
	mu      sync.Mutex
	streams atomic.Pointer[[]Stream] // the rank's default stream per device ordinal
	waiter  atomic.Pointer[Waiter]
	casts   castCache
}

// randomState holds the random generators of a rank or of one of its workers.
type randomState struct {
	mu         sync.Mutex
	generators atomic.Pointer[[]*Generator] // per device ordinal
	seed       uint64
	kinds      map[string]uint64 // seeds set for one kind of device
}

var contexts table[Context]

func init() { newContext(nil, 0) } // id 0, the zero Mode's context

func newContext(parent *Context, rank int) *Context {
	c := &Context{rank: rank, dtype: Float32, shared: &rankState{}, random: &randomState{seed: DefaultSeed}, parent: parent}
	c.id = contexts.add(c)
	return c
}

// NewRankContext returns a context for the rank, with its own streams and random generators. dev becomes the default device; nil means the
// process's. Free it with [Context.Free].
func NewRankContext(rank int, dev Device) *Context {
	c := newContext(nil, rank)
	c.shared.ranked = true
	c.home, c.device = dev, dev
	return c
}

// Free ends a context. A rank's context closes its streams. Nothing may run in it any more.
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

// derive returns a copy of c with a new id. It shares the rank's streams and generators.
func (c *Context) derive() *Context {
	d := *c
	d.parent = c
	d.id = contexts.add(&d)
	return &d
}

// Worker returns a context for a helper thread of c's rank. It shares the rank's streams; its random generators are its own and start from
// seed. Free it with [Context.Free].
func (c *Context) Worker(seed uint64) *Context {
	d := c.derive()
	d.random = &randomState{seed: seed}
	return d
}

// Rank returns the rank the context belongs to; 0 without ranks.
func (c *Context) Rank() int { return c.rank }

// Ranked reports whether the context belongs to a rank, not to a program without ranks.
func (c *Context) Ranked() bool { return c.shared.ranked }

// Concerns reports whether synchronizing a device in this context waits for the stream. A rank waits only for its own streams, because
// other ranks' streams may be waiting for it. A program without ranks waits for all.
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

// Home returns the device that the rank was created with, or cpu:0. It ignores the current default device.
func (c *Context) Home() (Device, error) {
	if c.home != nil {
		return c.home, nil
	}
	return OpenDevice("cpu:0")
}

// SetDefaultDevice sets the device of new tensors; nil means cpu:0.
func (c *Context) SetDefaultDevice(d Device) { c.device = d }

// Stream returns the current stream of device d: the one set by [WithStream], or the rank's default stream, created at its first use.
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

// existing returns the current stream of the device with the given ordinal, or nil if it was not created yet.
func (c *Context) existing(ordinal int) Stream {
	if ordinal < len(c.streams) && c.streams[ordinal] != nil {
		return c.streams[ordinal]
	}
	if s := c.shared.streams.Load(); s != nil && ordinal < len(*s) {
		return (*s)[ordinal]
	}
	return nil
}

// ordinals returns an upper bound of the ordinals of devices for which c has streams.
func (c *Context) ordinals() int {
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
	for i := range max(c.ordinals(), o.ordinals()) {
		if c.existing(i) != o.existing(i) {
			return false
		}
	}
	return true
}

// OnStreamsOf returns a context like c, but with the rank and current streams of o. Free it with [Context.Free].
func (c *Context) OnStreamsOf(o *Context) *Context {
	d := c.derive()
	d.rank, d.shared, d.streams = o.rank, o.shared, o.streams
	return d
}

// WaitFor makes later calls on c's current streams wait for everything launched so far on those of o.
func (c *Context) WaitFor(o *Context) {
	for i := range o.ordinals() {
		if s := o.existing(i); s != nil {
			if here := c.Stream(s.Device()); here != s {
				here.Wait(s.Record())
			}
		}
	}
}

// A Waiter waits on behalf of a rank's threads. It knows the other ranks, and so whether an event can still come.
type Waiter interface {
	// Wait waits for e, for at most d if d is not negative, and reports whether e is done. The caller does nothing but wait until then.
	Wait(e Event, d time.Duration) bool
}

// SetWaiter makes w wait on behalf of the threads of c's rank.
func (c *Context) SetWaiter(w Waiter) { c.shared.waiter.Store(&w) }

// WaitOn waits for e, for at most d if d is not negative, and reports whether e is done. The caller must do nothing but wait until e is
// done; it may do so in several calls. So ranks that wait for each other are found, and e fails.
func WaitOn(e Event, d time.Duration) bool {
	if w := CurrentContext().shared.waiter.Load(); w != nil {
		return e.Done() || (*w).Wait(e, d)
	}
	if d < 0 {
		e.Wait()
		return true
	}
	return e.WaitFor(d)
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

// SavedHooks transform the tensors that nodes save, for example to offload them to another device. Pack runs when a tensor is saved. Its
// argument is released afterwards unless Pack returns it. Unpack runs on the packed value when the derivative asks for the tensor. It
// returns a tensor, or a new reference to one, that is released after use.
type SavedHooks struct {
	Pack     func(*Tensor) any
	Unpack   func(any) *Tensor
	External *ExternalSaver // set if the hooks belong to another language
}

// WithSavedHooks runs fn with h applied to every tensor that nodes recorded inside it save.
func WithSavedHooks(h *SavedHooks, fn func()) {
	withDerived(func(c *Context) { c.hooks = h }, fn)
}

// SavedHooks returns the current hooks, or nil.
func (c *Context) SavedHooks() *SavedHooks { return c.hooks }
