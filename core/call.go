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

// An Operand is one tensor of a [Call] as its kernel sees it: where it lies, its dtype, shape and strides. The address
// is taken when the call is made, so that a storage emptied or released later does not matter to it.
type Operand struct {
	Memory  Memory
	Offset  int // of the first element, in elements
	DType   DType
	Number  Number // the value, if IsNumber
	Shape   []int
	Strides []int // in elements

	IsNumber bool
	present  bool
	partial  bool // other calls write to other parts of the memory at the same time
	abroad   bool // other streams use the memory too
	borrowed bool // of a [Borrowed], whose waits the caller adds
	storage  *Storage
	epoch    uint32
}

// Present reports whether the operand was given; optional ones may not be.
func (o *Operand) Present() bool { return o.present }

// Ptr returns the address of the operand's first element; only for devices whose memory the host can address.
func (o *Operand) Ptr() unsafe.Pointer {
	return unsafe.Add(o.Memory.Ptr, o.Offset*o.DType.Size())
}

// Numel returns the number of elements.
func (o *Operand) Numel() int { return Numel(o.Shape) }

// Contiguous reports whether the operand is laid out row-major without gaps.
func (o *Operand) Contiguous() bool { return IsContiguous(o.Shape, o.Strides) }

// Storage returns the storage behind the operand; nil for a number.
func (o *Operand) Storage() *Storage { return o.storage }

// A Call is one launch of a kernel: its operands and attributes. Streams hand calls out and keep them; callers fill them
// in between Begin and Launch. Nothing is locked meanwhile, and a call that is never launched is of no consequence.
//
// An operand that is a tensor without memory, because making it failed or it was released, is the call's error
// ([Call.Err]): the call is not run, and fails its outputs.
type Call struct {
	Kernel KernelID
	Op     string // the operation's name, for messages
	Outs   []Operand
	Ins    []Operand
	Ints   []int64
	Floats []float64
	// Work estimates the cost, in elements read and written; streams run small idle work on the caller's thread.
	Work int
	// InPlace marks a call whose outputs hold values that it changes: it runs only if all of them, and all inputs, are
	// sound. Overwrites is set besides where the values that they hold do not matter, so that a failed output is sound again if
	// all of its storage is written.
	InPlace, Overwrites bool
	// Fn replaces the kernel for work done by a Go function. If HostOnly is set it uses no memory of the device: a GPU need not be
	// done with what came before.
	Fn       func() error
	HostOnly bool
	// Mark replaces the kernel for a call of a Go function when the device is done with what came before and the inputs are
	// there. What comes after does not wait for it: a GPU goes on meanwhile. It must not block.
	Mark func()
	// Own replaces the kernel for a call of the stream's own, which knows what to do.
	Own any
	// Placed is called when the call has its place in the stream, before it runs, with the event that is done when the call is.
	// The stream is locked: it must not be used.
	Placed func(done Event)

	stream Stream
	calls  *Calls // of the stream
	waits  []Event
	err    error // of an operand
	shared bool  // uses memory that others read and write without a stream
	abroad bool  // uses memory that other streams use too
	outs   [2]Operand
	ins    [4]Operand
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
	c.Work, c.InPlace, c.Overwrites, c.Fn, c.HostOnly, c.Mark, c.Own, c.Placed = 0, false, false, nil, false, nil, nil, nil
	c.err, c.shared, c.abroad = nil, false, false
}

// Clear lets go of what the call refers to.
func (c *Call) Clear() {
	clear(c.Outs)
	clear(c.Ins)
	clear(c.waits)
	c.Fn, c.Mark, c.Own, c.Placed, c.err = nil, nil, nil, nil, nil
	// Of lists that grew, the first operands stand in the call as well. A storage that its own stream refers to is never collected.
	if o := &c.outs; o[0].present || o[1].present {
		clear(o[:])
	}
	if i := &c.ins; i[0].present || i[1].present || i[2].present || i[3].present {
		clear(i[:])
	}
	// Calls over long lists, such as the parameters of a model, do not leave their room in every slot of the queue.
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

// longList is the number of operands above which a call's room is given up after use.
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

// addOperand makes the list longer by an operand, which is zero: Clear has seen to that where the list was longer before.
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
	o.present, o.DType, o.Shape, o.Strides = true, t.dtype, t.shape, t.strides
	if t.isNumber {
		o.IsNumber, o.Number = true, t.other.number
		return
	}
	s := t.storage
	if s == nil {
		if c.err == nil {
			c.err = t.Usable(c.Op)
		}
		return
	}
	o.Memory, o.Offset, o.storage, o.epoch = s.held.memory, t.offset, s, s.epoch
	c.Work = max(c.Work, Numel(t.shape))
	if s.shared.Load() > 0 {
		c.shared = true
	}
	if s.held.home != c.stream || s.foreign.load() {
		o.abroad, c.abroad = true, true
	}
}

// Err returns the error of the first operand that has no memory, or nil. Such a call cannot run.
func (c *Call) Err() error { return c.err }

// Place makes the call wait for what other streams do with its operands. Streams call it in Launch, when they are locked and
// [Stream.Next] is the event of the call.
func (c *Call) Place() {
	if c.abroad = c.abroad || anyForeign(c.Outs) || anyForeign(c.Ins); c.abroad {
		crossing.Lock()
		c.waits = useAll(c.Outs, c.stream, true, c.waits)
		c.waits = useAll(c.Ins, c.stream, false, c.waits)
		crossing.Unlock()
	}
	if c.Placed != nil {
		c.Placed(c.stream.Next())
	}
}

// crossing is held while a call or a list of loans takes its place among the uses of memory by several streams, that of all its
// operands at once. So each waits only for what has taken its place before, and no two can wait for each other. It is taken after the
// lock of a stream, and nothing that waits is done meanwhile.
var crossing sync.Mutex

// anyForeign reports whether other streams use the memory of an operand: another thread may have lent it since the operand was given.
func anyForeign(list []Operand) bool {
	for i := range list {
		if s := list[i].storage; s != nil && s.foreign.load() && !list[i].borrowed {
			return true
		}
	}
	return false
}

// useAll is [Storage.use] of the operands that other streams use too.
func useAll(list []Operand, by Stream, write bool, waits []Event) []Event {
	for i := range list {
		if o := &list[i]; o.storage != nil && !o.borrowed && (o.abroad || o.storage.foreign.load()) {
			waits = o.storage.use(by, write, waits)
		}
	}
	return waits
}

// Calls are those of a stream that nobody uses. The zero value has none.
type Calls struct {
	spare atomic.Pointer[Call]
	turn  sync.Mutex // of who launches a call and takes its error: see [Launch]
}

// Get returns a call of stream s to fill in. It is the one that came back last: it is in the cache.
func (p *Calls) Get(s Stream, k KernelID, op string) *Call {
	c := p.spare.Swap(nil)
	if c == nil {
		c = new(Call)
	}
	c.Reset(s, k, op)
	c.calls = p
	return c
}

// Put takes back a call that was cleared; nil is none.
func (p *Calls) Put(c *Call) {
	if c != nil {
		p.spare.Store(c)
	}
}

// Shared reports whether the call uses memory that is shared with somebody outside ([Storage.Share]), so that its launch
// must wait for it.
func (c *Call) Shared() bool { return c.shared }

// CheckInputs returns the error of the first failed input, or of the first failed output if the call is in place.
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

// Fail marks the outputs of a call that has failed, unless it is in place and has left them as they were.
func (c *Call) Fail(err error) {
	if !c.InPlace {
		c.fail(err, false)
	}
}

// Skip marks the outputs of a call that does not run because [Call.CheckInputs] says err. So it does where the call is in
// place: the program takes them for changed, and whoever reads them is to be told.
func (c *Call) Skip(err error) { c.fail(err, c.InPlace) }

func (c *Call) fail(err error, skipped bool) {
	for i := range c.Outs {
		if o := &c.Outs[i]; o.storage != nil {
			o.storage.fail(o.epoch, err, skipped)
		}
	}
}

// fills reports whether the operand is all of its storage.
func (o *Operand) fills() bool {
	return o.Contiguous() && o.Numel()*o.DType.Size() == o.storage.Size()
}

func (o *Operand) failed() error {
	if o.storage == nil {
		return nil
	}
	return o.storage.failedAt(o.epoch)
}
