package ddp

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Precision configures mixed precision. Parameters, gradients and optimiser state keep their dtypes; computation and communication use
// others. Nil means no change. Only floating-point tensors are cast.
type Precision struct {
	Param      *core.DType // parameters in forward and backward
	Reduce     *core.DType // gradients while they are reduced; nil means Param
	Buffer     *core.DType // buffers, which are cast once, at construction
	KeepInputs bool        // do not cast the module's inputs to Param
}

// applyPrecision casts the buffers, and sets a [CompressHook] to reduce in another dtype.
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
		var cast *core.Tensor
		core.NoGrad(func() { cast = op.To(b.Tensor, *p.Buffer).Keep() })
		err := b.Tensor.Exchange(cast)
		cast.Release()
		if err != nil {
			return core.Errorf(core.ValueError, "ddp", "buffer %s: %w", b.Name, err)
		}
	}
	return nil
}

// Lowered returns the parameters cast to [Precision.Param], for a forward pass, in the order of [NewReducer]'s list without repetitions.
// Gradients flow back to the parameters.
func (r *Reducer) Lowered() ([]*core.Tensor, error) {
	list := make([]*core.Tensor, len(r.params))
	for i, p := range r.params {
		if list[i] = r.LoweredInput(p.Tensor, true); list[i].Err() != nil {
			return nil, list[i].Err()
		}
	}
	return list, nil
}

// LoweredInput returns an input of the module, or with parameter set a parameter, cast to [Precision.Param].
func (r *Reducer) LoweredInput(x *core.Tensor, parameter bool) *core.Tensor {
	d := r.options.Precision.Param
	if d == nil || r.options.Precision.KeepInputs && !parameter || x.Err() != nil || !x.DType().IsFloat() {
		return x
	}
	return op.To(x, *d)
}
