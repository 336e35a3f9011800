package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Hook reduces a bucket in place of the all-reduce: it returns the average over the ranks of [Bucket.Buffer], which it may
// change, in a tensor of as many elements. It runs on a stream of its own beside backward and need not wait for what it
// launches: collectives and operations on their results are ordered by themselves. Every rank must register the same one.
// What it makes and keeps from call to call, it keeps with [core.Tensor.Keep].
type Hook func(b *Bucket) (*core.Tensor, error)

// RegisterHook makes h reduce the buckets. There can be one, and only before the first step.
func (r *Reducer) RegisterHook(h Hook) error {
	if h == nil {
		return core.Errorf(core.TypeError, "register_comm_hook", "got no function")
	}
	return r.setHook(h, 0, nil)
}

// RegisterForeignHook makes a hook of another language reduce the buckets. Backward asks its caller for it with a request
// of the given ID (see [autograd.Ask]): the payload is the [Bucket], the gradient its buffer, and the answer the tensor
// that a [Hook] would return. drop is called when the hook is no longer used; it may be nil.
func (r *Reducer) RegisterForeignHook(id uint64, drop func()) error {
	if id == 0 {
		return core.Errorf(core.TypeError, "register_comm_hook", "got no function")
	}
	return r.setHook(nil, id, drop)
}

func (r *Reducer) setHook(h Hook, foreign uint64, drop func()) error {
	if err := r.guard.Enter("ddp"); err != nil {
		return err
	}
	defer r.guard.Leave()
	if err := r.hookable(); err != nil {
		return err
	}
	r.hook, r.precisionHook = h, false
	r.foreignHook, r.dropForeign = foreign, drop
	return r.assignBuckets()
}

func (r *Reducer) hookable() error {
	switch {
	case r.hook != nil && !r.precisionHook || r.foreignHook != 0:
		return core.Errorf(core.StateError, "register_comm_hook", "a hook was registered before, and there can be only one")
	case r.reduced || r.pass != nil:
		return core.Errorf(core.StateError, "register_comm_hook", "hooks must be registered before the first step")
	}
	return nil
}

// AllReduceHook averages the buffer as it is.
func AllReduceHook(b *Bucket) (*core.Tensor, error) {
	t := b.Buffer()
	return t, b.Average(t)
}

// NoopHook leaves every rank its own gradients, to measure what communication costs.
func NoopHook(b *Bucket) (*core.Tensor, error) { return b.Buffer(), nil }

// Average replaces the tensors, of one dtype and device, by their averages over the ranks.
func (b *Bucket) Average(list ...*core.Tensor) error {
	active := b.Divisor()
	if active == b.group.Size() {
		return b.reducer.track(b.group.AllReduceMany(list, collective.Avg))
	}
	if err := b.Sum(list...); err != nil {
		return err
	}
	for _, t := range list {
		if err := op.DivInPlace(t, core.Num(float64(active))).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Sum replaces the tensors, of one dtype and device, by their sums over the ranks.
func (b *Bucket) Sum(list ...*core.Tensor) error {
	return b.reducer.track(b.group.AllReduceMany(list, collective.Sum))
}

// Divisor returns the number of ranks by which sums are divided.
func (b *Bucket) Divisor() int { return b.reducer.divisor() }

// CompressHook returns a hook that runs next, or [AllReduceHook] if it is nil, on the buffer rounded to a smaller dtype:
// half the bytes with [core.Float16] or [core.BFloat16]. Sums of those are made in float32, and rounded once.
func CompressHook(d core.DType, next Hook) Hook {
	if next == nil {
		next = AllReduceHook
	}
	return func(b *Bucket) (*core.Tensor, error) {
		if b.dtype.Size() <= d.Size() {
			return next(b)
		}
		small := *b
		small.flat, small.dtype = op.To(b.flat, d), d
		if err := small.flat.Err(); err != nil {
			return nil, err
		}
		small.views = nil
		for i, v := range b.views {
			small.views = append(small.views, core.WrapTensor(core.CurrentMode(), small.flat.Storage(), d, v.Shape(), v.Strides(), b.offsets[i]))
		}
		t, err := next(&small)
		if err != nil {
			return nil, err
		}
		if err := op.CopyInPlace(b.flat, op.Reshape(t, b.numel)).Err(); err != nil {
			return nil, err
		}
		return b.flat, nil
	}
}
