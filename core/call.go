package core

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// A KernelID is the process-wide number of a kernel's name.
type KernelID int32

var kernels struct {
	sync.RWMutex
	ids   map[string]KernelID
	names []string
}

// Kernel returns the id of the kernel with the given name, the same for every device.
func Kernel(name string) KernelID {
	kernels.Lock()
	defer kernels.Unlock()
	if id, ok := kernels.ids[name]; ok {
		return id
	}
	if kernels.ids == nil {
		kernels.ids = map[string]KernelID{}
	}
	id := KernelID(len(kernels.names))
	kernels.ids[name] = id
	kernels.names = append(kernels.names, name)
	return id
}

// String returns the kernel's name.
func (k KernelID) String() string {
	kernels.RLock()
	defer kernels.RUnlock()
	return kernels.names[k]
}

// KernelNames returns the names of all kernels, indexed by id.
func KernelNames() []string {
	kernels.RLock()
	defer kernels.RUnlock()
	return append([]string(nil), kernels.names...)
}

// An Operand is one tensor of a [Call] as its kernel sees it: memory, dtype, shape and strides. The address is taken when the operand is
// added, so emptying or releasing the storage later does not affect the call.
type Operand struct {
	Memory  Memory
	Offset  int // of the first element, in elements
	DType   DType
	Number  Number // the value, if IsNumber
	Shape   []int
	Strides []int // in elements

	IsNumber    bool
	present     bool
	partial     bool // other calls write to other parts of the memory at the same time
	crossStream bool // other streams use the memory too
	borrowed    bool // from a [Borrowed], whose waits the caller adds
	pair        bool // of a complex tensor, as its parts
	recorded    bool // of a replay: its epoch is first plus the number of the replay
	storage     *Storage
	epoch       uint32
	first       uint32
}

// Present reports whether the operand was given. Optional operands may be absent.
func (o *Operand) Present() bool { return o.present }

// Ptr returns the address of the first element. The device's memory must be addressable by the host.
func (o *Operand) Ptr() unsafe.Pointer {
	return unsafe.Add(o.Memory.Ptr, o.Offset*o.DType.Size())
}

// Numel returns the number of elements.
func (o *Operand) Numel() int { return Numel(o.Shape) }

// Contiguous reports whether the operand is laid out row-major without gaps.
func (o *Operand) Contiguous() bool { return IsContiguous(o.Shape, o.Strides) }

// Storage returns the storage behind the operand; nil for a number.
func (o *Operand) Storage() *Storage { return o.storage }

// A Call is one launch of a kernel: its operands and attributes. Callers fill it in between Begin and Launch. Streams own and reuse calls.
// No lock is held in between, and a call may be abandoned.
//
// A tensor operand without memory, because its operation failed or it was released, sets the call's error ([Call.Err]). Such a call does
// not run, and its outputs fail.
type Call struct {
	Kernel KernelID
	Op     string // the operation's name, for messages
	Outs   []Operand
	Ins    []Operand
	Ints   []int64
	Floats []float64
	// Work estimates the cost in elements read and written. An idle stream runs small calls on the caller's thread.
	Work int
	// InPlace marks a call that changes the values of its outputs. It runs only if its outputs and inputs have not failed. With Overwrites
	// the old values do not matter: writing all of a failed storage makes it valid again.
	InPlace, Overwrites bool
	// Fn is a Go function that runs in place of a kernel. With HostOnly it uses no device memory, so a GPU need not finish earlier work
	// first.
	Fn       func() error
	HostOnly bool
	// Mark is a Go function that runs in place of a kernel, once the device has finished earlier work and the inputs are ready. Later calls
	// do not wait for it: a GPU goes on meanwhile. It must not block.
	Mark func()
	// Own marks a call of the stream's own in place of a kernel. Only the stream interprets it.
	Own any
	// OnLaunch is called in [Stream.Launch] once the call has its position in the stream, before it runs, with the event of its end. The
	// stream is locked, so OnLaunch must not use it.
	OnLaunch func(done Event)
	// OnSkip is called if a call with InPlace does not change its outputs, because an input has failed or the kernel fails, before the
	// call's end. It must not block.
	OnSkip func(err error)
	// OnCancel is called if the call is cancelled, before its end: see [Blocker]. It must not block.
	OnCancel func(err error)
	// OnReplay is called for a copy of the call before a [Recording] launches it again. It sets the numbers that differ from step to step, and
	// the functions above. Other calls with such functions are not recorded.
	OnReplay func(c *Call) error

	stream      Stream
	calls       *Calls // of the stream
	waits       []Event
	err         error // of an operand without memory
	shared      bool  // uses memory that code outside the engine reads and writes
	crossStream bool  // uses memory that other streams use too
	pairs       bool  // has complex operands
	outs        [2]Operand
	ins         [4]Operand
}

// Reset prepares a call for reuse by stream s.
func (c *Call) Reset(s Stream, k KernelID, op string) {
	c.Kernel, c.Op, c.stream = k, op, s
	if c.Outs == nil {
		c.Outs = c.outs[:0]
	}
	if c.Ins == nil {
		c.Ins = c.ins[:0]
	}
	c.Outs, c.Ins = c.Outs[:0], c.Ins[:0]
	c.Ints, c.Floats, c.waits = c.Ints[:0], c.Floats[:0], c.waits[:0]
	c.Work, c.InPlace, c.Overwrites, c.Fn, c.HostOnly, c.Mark, c.Own, c.OnLaunch, c.OnSkip, c.OnCancel = 0, false, false, nil, false, nil, nil, nil, nil, nil
	c.OnReplay = nil
	c.err, c.shared, c.crossStream, c.pairs = nil, false, false, false
}

// Clear drops the call's references.
func (c *Call) Clear() {
	clear(c.Outs)
	clear(c.Ins)
	clear(c.waits)
	c.Fn, c.Mark, c.Own, c.OnLaunch, c.OnSkip, c.OnCancel, c.OnReplay, c.err = nil, nil, nil, nil, nil, nil, nil, nil
	// If a list outgrew its array, the array still holds the first operands. A storage that its own stream refers to would never be
	// collected.
	if o := &c.outs; o[0].present || o[1].present {
		clear(o[:])
	}
	if i := &c.ins; i[0].present || i[1].present || i[2].present || i[3].present {
		clear(i[:])
	}
	// Long lists, such as the parameters of a model, would stay allocated in every slot of the queue.
	if cap(c.Outs) > longList {
		c.Outs = nil
	}
	if cap(c.Ins) > longList {
		c.Ins = nil
	}
	if cap(c.Ints) > 16*longList {
		c.Ints = nil
	}
	if cap(c.Floats) > 16*longList {
		c.Floats = nil
	}
}

// longList is the number of operands above which a call's lists are freed after use.
const longList = 16

// Touch tells the race detector what the call reads and writes.
func (c *Call) Touch() {
	if !shadowed {
		return
	}
	for i := range c.Ins {
		c.Ins[i].Memory.Touch(false)
	}
	for i := range c.Outs {
		c.Outs[i].Memory.Touch(!c.Outs[i].partial)
	}
}

// AddWaits makes the call wait for events of other streams.
func (c *Call) AddWaits(events ...Event) { c.waits = append(c.waits, events...) }

// Waits returns the events of other streams that the call must wait for.
func (c *Call) Waits() []Event { return c.waits }

// Out adds an output that the call writes entirely; nil adds an absent one.
func (c *Call) Out(t *Tensor) *Call {
	o := addOperand(&c.Outs)
	if t != nil {
		c.operand(o, t)
	}
	return c
}

// In adds an input; nil adds an absent one.
func (c *Call) In(t *Tensor) *Call {
	o := addOperand(&c.Ins)
	if t != nil {
		c.operand(o, t)
	}
	return c
}

// addOperand appends an operand. Within the list's capacity it is already zero, because Clear has cleared it.
func addOperand(list *[]Operand) *Operand {
	n := len(*list)
	if n == cap(*list) {
		*list = append(*list, Operand{})
	} else {
		*list = (*list)[:n+1]
	}
	return &(*list)[n]
}

// Int adds integer attributes.
func (c *Call) Int(v ...int64) *Call {
	c.Ints = append(c.Ints, v...)
	return c
}

// Dims adds a list of sizes or dimensions as attributes.
func (c *Call) Dims(v []int) *Call {
	for _, x := range v {
		c.Ints = append(c.Ints, int64(x))
	}
	return c
}

// Bool adds a flag as an integer attribute.
func (c *Call) Bool(v bool) *Call {
	var i int64
	if v {
		i = 1
	}
	c.Ints = append(c.Ints, i)
	return c
}

// Float adds floating-point attributes.
func (c *Call) Float(v ...float64) *Call {
	c.Floats = append(c.Floats, v...)
	return c
}

func (c *Call) operand(o *Operand, t *Tensor) {
	c.fill(o, t)
	if t.dtype.IsComplex() && o.storage != nil {
		o.split()
		c.pairs = true
	}
}

// fill is operand for a tensor whose elements the kernel takes as they are.
func (c *Call) fill(o *Operand, t *Tensor) {
	o.present, o.DType, o.Shape, o.Strides = true, t.dtype, t.shape, t.strides
	if t.isNumber {
		o.IsNumber, o.Number = true, t.other.number
		if t.dtype.IsComplex() {
			o.pair, c.pairs = true, true
		}
		return
	}
	s := t.storage
	if s == nil {
		if c.err == nil {
			c.err = t.Usable(c.Op)
		}
		return
	}
	o.Memory, o.Offset, o.storage, o.epoch = s.alloc.memory, t.offset, s, s.epoch
	c.Work = max(c.Work, Numel(t.shape))
	if s.shared.Load() > 0 {
		c.shared = true
	}
	if s.alloc.home != c.stream || s.foreign.load() {
		o.crossStream, c.crossStream = true, true
	}
}

// Err returns the error of the first operand that has no memory, or nil. Such a call cannot run.
func (c *Call) Err() error { return c.err }

// Place makes the call wait for other streams' uses of its operands. Streams call it in Launch while they are locked and [Stream.Next] is
// the event of the call.
func (c *Call) Place() {
	if c.crossStream = c.crossStream || anyForeign(c.Outs) || anyForeign(c.Ins); c.crossStream {
		crossStreamMu.Lock()
		c.waits = useAll(c.Outs, c.stream, true, c.waits)
		c.waits = useAll(c.Ins, c.stream, false, c.waits)
		crossStreamMu.Unlock()
	}
	if c.OnLaunch != nil {
		c.OnLaunch(c.stream.Next())
	}
}

// crossStreamMu is held while a call, or a list of borrowed tensors, takes its place among the uses of memory by several streams, for all
// operands at once. So each waits only for earlier ones, and two cannot wait for each other. It is taken after a stream's lock, and nothing
// blocks while it is held.
var crossStreamMu sync.Mutex

// anyForeign reports whether other streams use the memory of an operand. Another thread may have lent it after the operand was added.
func anyForeign(list []Operand) bool {
	for i := range list {
		if s := list[i].storage; s != nil && s.foreign.load() && !list[i].borrowed {
			return true
		}
	}
	return false
}

// useAll calls [Storage.use] for the operands that other streams use too.
func useAll(list []Operand, by Stream, write bool, waits []Event) []Event {
	for i := range list {
		if o := &list[i]; o.storage != nil && !o.borrowed && (o.crossStream || o.storage.foreign.load()) {
			waits = o.storage.use(by, write, waits)
		}
	}
	return waits
}

// Calls caches one unused call of a stream. The zero value is empty.
type Calls struct {
	spare atomic.Pointer[Call]
	turn  sync.Mutex // serialises launch and error of synchronous calls: see [Launch]
}

// Get returns a call of stream s to fill in. It prefers the last one returned, which is still in the processor's cache.
func (p *Calls) Get(s Stream, k KernelID, op string) *Call {
	c := p.spare.Swap(nil)
	if c == nil {
		c = new(Call)
	}
	c.Reset(s, k, op)
	c.calls = p
	return c
}

// Put takes back a cleared call; nil does nothing.
func (p *Calls) Put(c *Call) {
	if c != nil {
		p.spare.Store(c)
	}
}

// Shared reports whether the call uses memory shared with code outside the engine ([Storage.Share]). Launch then waits for the call.
func (c *Call) Shared() bool { return c.shared }

// CheckInputs returns the error of the first failed input. For an in-place call it checks the outputs too.
func (c *Call) CheckInputs() error {
	for i := range c.Ins {
		if err := c.Ins[i].failed(); err != nil {
			return err
		}
	}
	if !c.InPlace {
		return nil
	}
	for i := range c.Outs {
		o := &c.Outs[i]
		err := o.failed()
		if err == nil {
			continue
		}
		if !c.Overwrites || !o.fills() {
			return err
		}
		o.storage.failure.Store(nil)
	}
	return nil
}

// Fail marks the outputs of a failed call as failed. A failed in-place call has left its outputs unchanged, so they stay valid.
func (c *Call) Fail(err error) {
	if c.InPlace {
		c.unchanged(err)
		return
	}
	for i := range c.Outs {
		if o := &c.Outs[i]; o.storage != nil {
			o.storage.fail(o.epoch, err, false)
		}
	}
}

// Skip marks the outputs of a call that does not run because of the error of [Call.CheckInputs]. In-place outputs fail too: the program
// expects the change, so readers must get the error until [Tensor.Recover].
func (c *Call) Skip(err error) {
	if !c.InPlace {
		c.Fail(err)
		return
	}
	for i := range c.Outs {
		if o := &c.Outs[i]; o.storage != nil {
			o.storage.failUnchanged(o.epoch, err, true)
		}
	}
	c.unchanged(err)
}

// Cancel is [Call.Skip] for a call that was cancelled.
func (c *Call) Cancel(err error) {
	c.Skip(err)
	if c.OnCancel != nil {
		c.OnCancel(err)
	}
}

// unchanged tells the caller that an in-place call did not change its outputs.
func (c *Call) unchanged(err error) {
	if c.OnSkip != nil {
		c.OnSkip(err)
	}
}

// fills reports whether the operand covers its whole storage.
func (o *Operand) fills() bool {
	return o.Contiguous() && o.Numel()*o.DType.Size() == o.storage.Size()
}

func (o *Operand) failed() error {
	if o.storage == nil {
		return nil
	}
	return o.storage.failedAt(o.epoch)
}
