package op

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/plait-ml/plait/core"
)

// outAlignment is that of new memory, which kernels may count on.
const outAlignment = 64

// An offer is memory for the result of the operation that a thread is about to call: what Python's functions get as `out`.
type offer struct {
	id     int64
	thread uintptr
	name   string // of the operation
	inputs []*core.Storage
	to     *core.Tensor
	taken  bool
}

// offers are those of all threads, the innermost of each last, and one that has ended, to use again.
var offers struct {
	open atomic.Int32
	sync.Mutex
	list  []*offer
	spare *offer
	last  int64 // id
}

// OfferOut offers t to the operation of a name that the calling thread is about to call with the given inputs, for its result: that saves
// the operation new memory, and the caller a copy. The offer stands until [OfferTaken] says that a result is there, or until [EndOffer] is
// called with its number. OfferOut returns 0 where no operation would take it, or must not: where gradients would be recorded, or t cannot be
// changed.
func OfferOut(name string, t *core.Tensor, inputs ...*core.Tensor) int64 {
	mode := core.CurrentMode()
	if mode.Autocasting() || core.ForwardActive() || t.Parts() != nil || t.Usable(name) != nil || t.IsNumber() || t.RequiresGrad() || !t.Contiguous() {
		return 0
	}
	for _, x := range inputs {
		if x != nil && (x.Parts() != nil || mode.GradEnabled() && x.RequiresGrad()) {
			return 0
		}
	}
	op := opContext{name: name, mode: mode}
	if op.inPlace(t); op.err != nil {
		return 0
	}
	thread := core.CurrentThread()
	offers.Lock()
	defer offers.Unlock()
	o := offers.spare
	if o == nil {
		o = new(offer)
	}
	offers.spare = nil
	offers.last++
	o.id, o.thread, o.name, o.to = offers.last, thread, name, t
	for _, x := range inputs {
		if x != nil && !x.IsNumber() {
			o.inputs = append(o.inputs, x.Storage())
		}
	}
	offers.list = append(offers.list, o)
	offers.open.Add(1)
	return o.id
}

// OfferTaken reports whether r, the result of an operation, is in memory that the calling thread has offered. Then the offer has ended.
func OfferTaken(r *core.Tensor) bool {
	if offers.open.Load() == 0 {
		return false
	}
	thread := core.CurrentThread()
	offers.Lock()
	defer offers.Unlock()
	i := lastOffer(thread)
	if i < 0 {
		return false
	}
	o := offers.list[i]
	if !o.taken || r == o.to || r.Err() != nil || r.IsNumber() || !inPlaceOf(r, o.to) {
		return false
	}
	endOffer(i)
	return true
}

// EndOffer ends the offer of a number, if it still stands.
func EndOffer(id int64) {
	offers.Lock()
	defer offers.Unlock()
	if i := slices.IndexFunc(offers.list, func(o *offer) bool { return o.id == id }); i >= 0 {
		endOffer(i)
	}
}

// endOffer takes an offer out of the list. The caller holds its mutex.
func endOffer(i int) {
	o := offers.list[i]
	offers.list = slices.Delete(offers.list, i, i+1)
	offers.open.Add(-1)
	clear(o.inputs)
	*o = offer{inputs: o.inputs[:0]}
	offers.spare = o
}

// lastOffer returns where in the list a thread's last offer is, or -1. The caller holds its mutex.
func lastOffer(thread uintptr) int {
	for i := len(offers.list) - 1; i >= 0; i-- {
		if offers.list[i].thread == thread {
			return i
		}
	}
	return -1
}

// ownOffer returns the calling thread's last offer, or nil. No other thread ends it.
func ownOffer() *offer {
	thread := core.CurrentThread()
	offers.Lock()
	defer offers.Unlock()
	if i := lastOffer(thread); i >= 0 {
		return offers.list[i]
	}
	return nil
}

// isFor reports whether the offer is to an operation with these inputs: others of its name may run before, as in a finalizer of Python's.
func (o *offer) isFor(in []*core.Tensor) bool {
	return len(o.inputs) == 0 || slices.ContainsFunc(in, func(x *core.Tensor) bool { return slices.Contains(o.inputs, x.Storage()) })
}

// inPlaceOf reports whether the elements of x lie where those of t lie.
func inPlaceOf(x, t *core.Tensor) bool {
	return x.Storage() == t.Storage() && x.Offset() == t.Offset() && x.DType() == t.DType() && x.SameLayout(t)
}

// outOfEach is out for an operation on the elements of its inputs, which writes each after it has read those in its place: it takes an offer.
func (op *opContext) outOfEach(name string, d core.DType, shape []int, in []*core.Tensor) *core.Tensor {
	return op.outOf(name, d, shape, in, func(t *core.Tensor) bool {
		return !slices.ContainsFunc(in, func(x *core.Tensor) bool {
			return !x.IsNumber() && x.Storage() == t.Storage() && !inPlaceOf(x, t)
		})
	})
}

// outApart is out for an operation whose kernel may read its inputs after it has begun to write: it takes an offer of other memory than
// theirs, which is all of its storage as new memory is.
func (op *opContext) outApart(d core.DType, shape []int, in ...*core.Tensor) *core.Tensor {
	return op.outOf(op.name, d, shape, in, func(t *core.Tensor) bool {
		s := t.Storage()
		shares := func(x *core.Tensor) bool { return !x.IsNumber() && x.Storage() == s }
		return t.Offset() == 0 && s.Size() == t.Numel()*d.Size() && uintptr(s.Memory().Ptr)%outAlignment == 0 && !slices.ContainsFunc(in, shares)
	})
}

// outOf is out, or the memory offered to the operation if it is of the dtype and shape and fits.
func (op *opContext) outOf(name string, d core.DType, shape []int, in []*core.Tensor, fits func(t *core.Tensor) bool) *core.Tensor {
	if offers.open.Load() == 0 || op.err != nil || op.grad || op.forward != nil {
		return op.out(d, shape)
	}
	o := ownOffer()
	if o == nil || o.taken || o.name != name || !o.isFor(in) || o.to.DType() != d || o.to.Device() != op.stream.Device() || !slices.Equal(o.to.Shape(), shape) || !fits(o.to) {
		return op.out(d, shape)
	}
	o.taken, op.target = true, o.to.Storage()
	op.changed(o.to)
	return op.returns(core.WrapTensor(op.mode, o.to.Storage(), d, shape, o.to.Strides(), o.to.Offset()))
}
