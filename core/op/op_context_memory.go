package op

import "github.com/plait-ml/plait/core"

// owned are results behind the first, and temporaries.
type owned struct{ results, temps []*core.Tensor }

// owns returns what the application owns but for its first result.
func (a *application) owns() *owned {
	if a.more == nil {
		a.more = new(owned)
	}
	return a.more
}

// out allocates a result. After a failure it returns a tensor that carries the error, as temp does.
func (a *application) out(d core.DType, shape []int) *core.Tensor {
	return a.returns(a.alloc(d, shape))
}

// outLike allocates a result of the dtype and shape of t.
func (a *application) outLike(t *core.Tensor) *core.Tensor {
	if a.err != nil {
		return nil
	}
	return a.out(t.DType(), t.Shape())
}

// returns makes t a result.
func (a *application) returns(t *core.Tensor) *core.Tensor {
	if a.result == nil {
		a.result = t
	} else {
		o := a.owns()
		o.results = append(o.results, t)
	}
	return t
}

// alloc is out for a tensor that the application does not own.
func (a *application) alloc(d core.DType, shape []int) *core.Tensor {
	if a.err == nil {
		_, a.err = core.CheckShape(a.name, shape, d)
	}
	if a.err != nil {
		return core.ErrorTensor(a.err)
	}
	t := core.NewTensor(a.mode, a.stream, d, shape)
	if err := t.Err(); err != nil {
		a.err = core.Errorf(core.MemoryError, a.name, "%w", err)
		return core.ErrorTensor(a.err)
	}
	return t
}

// temp allocates memory that only this application needs.
func (a *application) temp(d core.DType, shape ...int) *core.Tensor { return a.own(a.alloc(d, shape)) }

// own makes t, which somebody else made, a temporary. Its error becomes the application's.
func (a *application) own(t *core.Tensor) *core.Tensor {
	if err := t.Err(); err != nil && a.err == nil {
		a.err = err
		if kind, _ := core.KindOf(err); kind == core.MemoryError { // whose operation is none that the program called
			a.err = core.Errorf(kind, a.name, "%w", err)
		}
	}
	o := a.owns()
	o.temps = append(o.temps, t)
	return t
}

// dense returns t if it is contiguous, otherwise a temporary copy that is, without a history. It returns nil for nil.
func (a *application) dense(t *core.Tensor) *core.Tensor {
	if a.err != nil || t == nil || t.Contiguous() {
		return t
	}
	c := a.temp(t.DType(), t.Shape()...)
	if a.err == nil {
		a.launch(a.call(copyKernel).Out(c).In(t))
	}
	return c
}

// apart returns t, or a temporary copy, with t's history, if it shares memory with x, which is about to be changed.
func (a *application) apart(x, t *core.Tensor) *core.Tensor {
	if a.err != nil || t == nil || t.IsNumber() || t.Storage() != x.Storage() {
		return t
	}
	return a.own(Clone(t))
}

// end releases the temporaries. What was launched may still use their memory.
func (a *application) end() {
	if a.more == nil {
		return
	}
	for _, t := range a.more.temps {
		t.Release()
	}
	a.more.temps = a.more.temps[:0]
}
