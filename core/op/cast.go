package op

import "github.com/plait-ml/plait/core"

// castTo returns t in dtype d: t itself if it has it.
func castTo(t *core.Tensor, d core.DType) *core.Tensor {
	if t.Err() != nil || t.DType() == d {
		return t
	}
	a := begin("to", t)
	out := a.out(d, t.Shape())
	if a.err != nil {
		return a.fail()
	}
	a.launch(a.call(copyKernel).Out(out).In(t))
	if a.grad && d.IsFloat() {
		a.attach(a.node(castDeriv, t), out)
	}
	return a.done(out)
}

func castDeriv(d *core.Derivation) { d.Set(0, castTo(d.Grad(), d.InputDType(0))) }
