package autograd

import (
	"math"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Check compares the gradients of fn with central differences. Inputs must be float64 or complex128, of which it changes the real and
// imaginary parts. fn must depend only on the inputs' values. Inputs
// that do not require a gradient stay fixed. The error names the first element that differs by more than atol + rtol*|numeric|.
func Check(fn func(inputs []*core.Tensor) []*core.Tensor, inputs []*core.Tensor, eps, atol, rtol float64) error {
	if err := checkable(fn, inputs); err != nil {
		return err
	}
	fn = ofParts(fn)
	outputs := fn(inputs)
	var differentiable []int
	for i, o := range outputs {
		if err := o.Wait(); err != nil {
			return err
		}
		if o.DType().IsFloat() && o.RequiresGrad() {
			differentiable = append(differentiable, i)
		}
	}
	var wanted []*core.Tensor
	for _, t := range inputs {
		if t.DType().Differentiable() && t.RequiresGrad() {
			wanted = append(wanted, t)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	if len(differentiable) == 0 {
		return core.Errorf(core.StateError, "gradcheck", "no output requires a gradient, although an input does")
	}
	// Compute all gradients first, since the differences change the inputs in place.
	analytic := map[int][]*core.Tensor{}
	for _, o := range differentiable {
		seed := core.FromSlice(projection(outputs[o].Numel()), outputs[o].Shape()...)
		grads, err := Grad(outputs[o:o+1], wanted, []*core.Tensor{seed}, Options{RetainGraph: true, AllowUnused: true})
		if err != nil {
			return err
		}
		analytic[o] = grads
	}
	for _, o := range differentiable {
		weights := projection(outputs[o].Numel())
		for w, t := range wanted {
			if err := compare(fn, inputs, t, o, weights, analytic[o][w], eps, atol, rtol); err != nil {
				return err
			}
		}
	}
	return nil
}

// ofParts returns fn with the parts of complex outputs in their place.
func ofParts(fn func(inputs []*core.Tensor) []*core.Tensor) func(inputs []*core.Tensor) []*core.Tensor {
	return func(inputs []*core.Tensor) []*core.Tensor {
		outputs := fn(inputs)
		for i, o := range outputs {
			outputs[i] = parts(o)
		}
		return outputs
	}
}

// parts returns a complex tensor as the real one of its parts, and others as they are.
func parts(t *core.Tensor) *core.Tensor {
	if t.Err() == nil && t.DType().IsComplex() {
		return op.ViewAsReal(t)
	}
	return t
}

// checkable returns an error if fn or an input cannot be used.
func checkable(fn func(inputs []*core.Tensor) []*core.Tensor, inputs []*core.Tensor) error {
	if fn == nil {
		return core.Errorf(core.TypeError, "gradcheck", "the function is nil")
	}
	for _, t := range inputs {
		if err := t.Usable("gradcheck"); err != nil {
			return err
		}
	}
	return nil
}

// CheckDouble is [Check] for the gradients of fn, as functions of the inputs.
func CheckDouble(fn func(inputs []*core.Tensor) []*core.Tensor, inputs []*core.Tensor, eps, atol, rtol float64) error {
	if err := checkable(fn, inputs); err != nil {
		return err
	}
	fn = ofParts(fn)
	var wanted []int
	for i, t := range inputs {
		if t.DType().Differentiable() && t.RequiresGrad() {
			wanted = append(wanted, i)
		}
	}
	gradients := func(inputs []*core.Tensor) []*core.Tensor {
		var out []*core.Tensor
		core.EnableGrad(func() {
			outputs, seeds, with := []*core.Tensor{}, []*core.Tensor{}, []*core.Tensor{}
			for _, o := range fn(inputs) {
				if o.Err() != nil {
					out = []*core.Tensor{o}
					return
				}
				if o.DType().IsFloat() && o.RequiresGrad() {
					outputs = append(outputs, o)
					seeds = append(seeds, core.FromSlice(projection(o.Numel()), o.Shape()...))
				}
			}
			for _, i := range wanted {
				with = append(with, inputs[i])
			}
			grads, err := Grad(outputs, with, seeds, Options{CreateGraph: true, AllowUnused: true})
			if err != nil {
				out = []*core.Tensor{core.ErrorTensor(err)}
				return
			}
			for _, g := range grads {
				if g != nil {
					out = append(out, g)
				}
			}
		})
		return out
	}
	first := gradients(inputs)
	for _, g := range first {
		if err := g.Wait(); err != nil {
			return err
		}
	}
	linear := true
	for _, g := range first {
		linear = linear && !g.RequiresGrad()
	}
	if linear { // constant gradients have a zero derivative
		return nil
	}
	return Check(gradients, inputs, eps, atol, rtol)
}

// compare compares the gradient of t with differences.
func compare(fn func([]*core.Tensor) []*core.Tensor, inputs []*core.Tensor, t *core.Tensor, o int, weights []float64,
	gradient *core.Tensor, eps, atol, rtol float64) error {
	analytic := make([]float64, parts(t.Detach()).Numel())
	if gradient != nil {
		v, err := core.Values[float64](parts(gradient.Detach()))
		if err != nil {
			return err
		}
		analytic = v
	}
	numeric, err := differences(fn, inputs, t, o, weights, eps)
	if err != nil {
		return err
	}
	for i := range numeric {
		if d := math.Abs(numeric[i] - analytic[i]); !(d <= atol+rtol*math.Abs(numeric[i])) {
			return core.Errorf(core.ValueError, "gradcheck", "output %d, input of shape %v, element %d: backward gives %g, differences give %g",
				o, t.Shape(), i, analytic[i], numeric[i])
		}
	}
	return nil
}

// projection returns weights that reduce n outputs to one number without cancellation.
func projection(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 0.5 + math.Mod(float64(i)*0.6180339887498949, 1)
	}
	return w
}

// differences returns the derivative of the weighted sum of output o with respect to each element of t.
func differences(fn func([]*core.Tensor) []*core.Tensor, inputs []*core.Tensor, t *core.Tensor, o int, weights []float64, eps float64) ([]float64, error) {
	place := parts(t.Detach())
	value, err := core.Values[float64](place)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(value))
	at := func(i int, x float64) (sum float64, err error) {
		old := value[i]
		value[i] = x
		defer func() { value[i] = old }()
		core.NoGrad(func() {
			core.Tidy(func() {
				op.CopyInPlace(place, core.FromSlice(value, place.Shape()...))
				var y []float64
				if y, err = core.Values[float64](fn(inputs)[o]); err != nil {
					return
				}
				for j, v := range y {
					if w := weights[j] * v; w != 0 {
						sum += w
					}
				}
			})
		})
		return sum, err
	}
	for i, x := range value {
		high, err := at(i, x+eps)
		if err != nil {
			return nil, err
		}
		low, err := at(i, x-eps)
		if err != nil {
			return nil, err
		}
		out[i] = (high - low) / (2 * eps)
	}
	core.NoGrad(func() { op.CopyInPlace(place, core.FromSlice(value, place.Shape()...)) })
	return out, t.Wait()
}
