package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// A Hook is a communication hook: it replaces the all-reduce of a bucket. It returns the average of [Bucket.Buffer] over the ranks as a
// tensor with the same number of elements; it may overwrite the buffer. Every rank must register the same hook. A hook runs on a
// communication stream beside backward. It need not wait for the collectives that it launches, since the stream orders operations after
// them. Tensors that it keeps between calls need [core.Tensor.Keep].
type Hook func(b *Bucket) (*core.Tensor, error)

// RegisterHook registers a communication hook. A reducer can have one hook, registered before the first step.
func (r *Reducer) RegisterHook(h Hook) error {
	if h == nil {
		return core.Errorf(core.TypeError, "register_comm_hook", "got no function")
	}
	return r.setHook(h, 0, nil)
}

// RegisterForeignHook registers a communication hook of another language. For each bucket, backward returns a request with the given ID to
// its caller (see [autograd.Ask]): the payload is the [Bucket], the gradient is its buffer, and the answer is the tensor that a [Hook] would
// return. drop is called when the hook is no longer used; it may be nil.
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
	if err := r.checkNoHook(); err != nil {
		return err
	}
	r.hook, r.precisionHook = h, false
	r.foreignHook, r.releaseForeignHook = foreign, drop
	return r.assignBuckets()
}

// checkNoHook returns an error if it is too late to register a hook.
func (r *Reducer) checkNoHook() error {
	switch {
	case r.hook != nil && !r.precisionHook || r.foreignHook != 0:
		return core.Errorf(core.StateError, "register_comm_hook", "a hook was registered before, and there can be only one")
	case r.reduced || r.pass != nil:
		return core.Errorf(core.StateError, "register_comm_hook", "hooks must be registered before the first step")
	}
	return nil
}

// AllReduceHook averages the buffer, as DDP does without a hook.
func AllReduceHook(b *Bucket) (*core.Tensor, error) {
	t := b.Buffer()
	return t, b.Average(t)
}

// NoopHook does not communicate, so each rank keeps its own gradients. Use it to measure the cost of communication.
func NoopHook(b *Bucket) (*core.Tensor, error) { return b.Buffer(), nil }

// Average averages tensors of one dtype and device over the ranks, in place. In a join the divisor may be smaller, see [Bucket.Divisor].
func (b *Bucket) Average(list ...*core.Tensor) error {
	divisor := b.Divisor()
	if divisor == b.group.Size() {
		return b.reducer.track(b.group.AllReduceMany(list, collective.Avg))
	}
	if err := b.Sum(list...); err != nil {
		return err
	}
	for _, t := range list {
		if err := op.DivInPlace(t, core.Num(float64(divisor))).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Sum sums tensors of one dtype and device over the ranks, in place.
func (b *Bucket) Sum(list ...*core.Tensor) error {
	return b.reducer.track(b.group.AllReduceMany(list, collective.Sum))
}

// Divisor returns the number by which sums are divided: the number of ranks, or with [JoinOptions].DivideByActive of those with a batch.
func (b *Bucket) Divisor() int { return b.reducer.divisor() }

// CompressHook returns a hook that casts the buffer to d, runs next, and casts back. A nil next means [AllReduceHook]. With [core.Float16] or
// [core.BFloat16] it halves the bytes; sums are computed in float32 and rounded once. Buckets of a dtype that is no larger than d are not cast.
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
