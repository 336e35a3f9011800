package op

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// owned are results behind the first, and temporaries.
type owned struct{ results, temps []*core.Tensor }

// owns returns what the op owns but for its first result.
func (op *opContext) owns() *owned {
	if op.more == nil {
		op.more = new(owned)
	}
	return op.more
}

// out allocates a result. After a failure it returns a tensor that carries the error, as temp does.
func (op *opContext) out(d core.DType, shape []int) *core.Tensor {
	return op.returns(op.alloc(d, shape))
}

// outLike allocates a result of the dtype and shape of t.
func (op *opContext) outLike(t *core.Tensor) *core.Tensor {
	if op.err != nil {
		return nil
	}
	return op.out(t.DType(), t.Shape())
}

// resultLike is outLike in the dtype in which the kernel sees t, the first input.
func (op *opContext) resultLike(t *core.Tensor) *core.Tensor {
	if op.err != nil {
		return nil
	}
	return op.out(op.inputType(t), t.Shape())
}

// returns makes t a result.
func (op *opContext) returns(t *core.Tensor) *core.Tensor {
	if op.result == nil {
		op.result = t
	} else {
		o := op.owns()
		o.results = append(o.results, t)
	}
	return t
}

// alloc is out for a tensor that the op does not own.
func (op *opContext) alloc(d core.DType, shape []int) *core.Tensor {
	if op.err == nil {
		_, op.err = core.CheckShape(op.name, shape, d)
	}
	if op.err != nil {
		return core.ErrorTensor(op.err)
	}
	t := core.NewTensor(op.mode, op.stream, d, shape)
	if err := t.Err(); err != nil {
		op.err = core.Errorf(core.MemoryError, op.name, "%w", err)
		return core.ErrorTensor(op.err)
	}
	return t
}

// temp allocates memory that only this op needs.
func (op *opContext) temp(d core.DType, shape ...int) *core.Tensor { return op.own(op.alloc(d, shape)) }

// own makes t, which somebody else made, a temporary. Its error becomes the op's.
func (op *opContext) own(t *core.Tensor) *core.Tensor {
	if err := t.Err(); err != nil && op.err == nil {
		op.err = err
		if kind, _ := core.KindOf(err); kind == core.MemoryError { // whose operation is none that the program called
			op.err = core.Errorf(kind, op.name, "%w", err)
		}
	}
	o := op.owns()
	o.temps = append(o.temps, t)
	return t
}

// dense returns t if it is contiguous, otherwise a temporary copy that is, without autograd metadata. It returns nil for nil.
func (op *opContext) dense(t *core.Tensor) *core.Tensor {
	if op.err != nil || t == nil || t.Contiguous() {
		return t
	}
	c := op.temp(t.DType(), t.Shape()...)
	if op.err == nil {
		op.launch(op.call(contract.Copy).Out(c).In(t))
	}
	return c
}

// apart returns t, or a temporary copy, with t's autograd metadata, if it shares memory with x, which is about to be changed.
func (op *opContext) apart(x, t *core.Tensor) *core.Tensor {
	if op.err != nil || t == nil || t.IsNumber() || t.Storage() != x.Storage() {
		return t
	}
	return op.own(Clone(t))
}

// end releases the temporaries. What was launched may still use their memory.
func (op *opContext) end() {
	if op.more == nil {
		return
	}
	for _, t := range op.more.temps {
		t.Release()
	}
	op.more.temps = op.more.temps[:0]
}
