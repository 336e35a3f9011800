package autograd

import (
	"runtime"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func init() {
	op.SetDifferentiate(func(outputs, inputs, grads []*core.Tensor, record bool, since uint64) ([]*core.Tensor, error) {
		return Grad(outputs, inputs, grads, Options{CreateGraph: record, AllowUnused: true, since: since})
	})
}

// JVP returns what fn returns for the inputs, and the product of its Jacobian with the tangents: how the outputs change as the inputs move
// along the tangents. It is taken in forward mode, together with the outputs. A nil tangent stands for zeros; the product is nil where an
// output does not depend on an input that has a tangent.
//
// Inputs with a tangent must be floating point or complex, and each tangent of its input's shape, dtype and device. fn runs on the calling
// goroutine. It may take derivatives itself, by JVP or [Grad]; and the results may be differentiated backwards.
func JVP(fn func(inputs []*core.Tensor) []*core.Tensor, inputs, tangents []*core.Tensor) (outputs, products []*core.Tensor, err error) {
	if fn == nil {
		return nil, nil, core.Errorf(core.TypeError, "jvp", "the function is nil")
	}
	if len(inputs) != len(tangents) {
		return nil, nil, core.Errorf(core.ValueError, "jvp", "got %d inputs and %d tangents", len(inputs), len(tangents))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l, err := core.EnterForward()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if e := l.Exit(); err == nil {
			err = e
		}
	}()
	duals := make([]*core.Tensor, len(inputs))
	for i, t := range inputs {
		if duals[i] = t; tangents[i] != nil {
			duals[i] = op.Dual(t, tangents[i], l)
		}
		if err := duals[i].Err(); err != nil {
			return nil, nil, err
		}
	}
	for _, y := range fn(duals) {
		if err := y.Err(); err != nil {
			return nil, nil, err
		}
		primal, v := Unpack(y, l)
		outputs, products = append(outputs, primal), append(products, v)
	}
	return outputs, products, nil
}

// Unpack returns a tensor without its tangent at a level, and that tangent or nil.
func Unpack(t *core.Tensor, l *core.ForwardLevel) (primal, tangent *core.Tensor) {
	if p := t.Parts(); p != nil && !p.Sparse() && !p.Recorded() {
		primal, tangent = Unpack(p.Local(), l)
		if tangent != nil {
			tangent = p.With(tangent)
		}
		return p.With(primal), tangent
	}
	if err := t.Usable("unpack_dual"); err != nil {
		return core.ErrorTensor(err), nil
	}
	if l == nil || t.IsNumber() {
		return t, nil
	}
	v := op.Tangent(t, l)
	if v == nil {
		return op.Dual(t, nil, l), nil
	}
	return op.Dual(t, nil, l), v.Alias(true)
}
