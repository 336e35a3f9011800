package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Precision is a policy of mixed precision: parameters, gradients and the optimiser's state keep their dtypes, and what is
// computed has others. A nil dtype changes nothing. Only floating-point tensors are cast.
type Precision struct {
	Param  *core.DType // of parameters in forward, and so of computation
	Reduce *core.DType // in which gradients are reduced; nil means Param
	Buffer *core.DType // of buffers, from the beginning on
	// KeepInputs leaves inputs as they are; otherwise they are cast to Param.
	KeepInputs bool
}

// applyPrecision casts the buffers and installs the hook that reduces in another dtype.
func (r *Reducer) applyPrecision() error {
	p := r.options.Precision
	for _, d := range []*core.DType{p.Param, p.Reduce, p.Buffer} {
		if d != nil && !d.IsFloat() {
			return core.Errorf(core.DTypeError, "ddp", "mixed precision wants floating-point dtypes, got %v", *d)
		}
	}
	if p.Reduce == nil {
		p.Reduce = p.Param
	}
	if p.Reduce != nil {
		r.hook, r.precisionHook = CompressHook(*p.Reduce, nil), true
	}
	if p.Buffer == nil {
		return nil
	}
	for _, b := range r.buffers {
		if !b.Tensor.DType().IsFloat() || b.Tensor.DType() == *p.Buffer {
			continue
		}
		var made *core.Tensor
		core.NoGrad(func() { made = op.To(b.Tensor, *p.Buffer).Keep() })
		err := b.Tensor.Exchange(made)
		made.Release()
		if err != nil {
			return core.Errorf(core.ValueError, "ddp", "buffer %s: %w", b.Name, err)
		}
	}
	return nil
}

// Lowered returns the parameters, in the order in which the reducer got them and shared ones once, in the dtype of
// [Precision.Param], for a forward pass. Gradients flow back.
func (r *Reducer) Lowered() ([]*core.Tensor, error) {
	list := make([]*core.Tensor, len(r.params))
	for i, p := range r.params {
		if list[i] = r.LoweredInput(p.Tensor, true); list[i].Err() != nil {
			return nil, list[i].Err()
		}
	}
	return list, nil
}

// LoweredInput returns an input of the module in the dtype that it is to have; own says that it is a parameter.
func (r *Reducer) LoweredInput(x *core.Tensor, own bool) *core.Tensor {
	d := r.options.Precision.Param
	if d == nil || r.options.Precision.KeepInputs && !own || x.Err() != nil || !x.DType().IsFloat() {
		return x
	}
	return op.To(x, *d)
}
