// Package crosscheck compares what a device computes with what the CPU does, for the samples of the operations' registry.
package crosscheck

import (
	"fmt"
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// Float32Tolerance is how far results in float32 may differ, relative to the largest element or 1.
const Float32Tolerance = 4e-6

// Compare runs a sample of a row on the CPU and on the device of m, a new one, and returns an error where results or gradients differ by
// more than the tolerance. Where the device lacks what the operation needs the error is a [core.NotImplemented] one. It changes the default
// device while it runs.
func Compare(m *Maker, r *op.Row, s op.Sample, tolerance float64) error {
	cpuArgs, args := m.Arguments(s)
	if s.Loose > 1 {
		tolerance *= s.Loose
	}
	core.ManualSeed(7)
	want := r.Call(cpuArgs...)
	core.ManualSeed(7)
	context := core.CurrentContext()
	context.SetDefaultDevice(m.Device)
	got := r.Call(args...)
	context.SetDefaultDevice(nil)
	if len(want) != len(got) {
		return fmt.Errorf("%d results, the CPU has %d", len(got), len(want))
	}
	turnVectors(r, want, got)
	for i := range want {
		own := tolerance
		if want[i].Err() == nil && want[i].DType() == core.Float32 { // also of an operation on float64
			own = max(tolerance, Float32Tolerance)
		}
		if err := Equal(want[i], got[i], own); err != nil {
			return fmt.Errorf("%v, result %d: %w", m.DType, i, err)
		}
	}
	if r.NoGrad != "" || m.DType != core.Float32 && m.DType != core.Float64 {
		return nil
	}
	return compareGradients(m, want, got, 4*tolerance)
}

// Equal returns an error if a result differs from that of the CPU in shape, dtype, or an element, by more than a tolerance relative to the
// CPU's largest element or 1.
func Equal(want, got *core.Tensor, tolerance float64) error {
	for _, t := range []*core.Tensor{want, got} {
		if err := t.Err(); err != nil {
			return err
		}
	}
	if want.DType() != got.DType() || !slices.Equal(want.Shape(), got.Shape()) {
		return fmt.Errorf("%v%v, the CPU has %v%v", got.DType(), got.Shape(), want.DType(), want.Shape())
	}
	g, err := core.Values[float64](parts(got))
	if err != nil {
		return err
	}
	w, err := core.Values[float64](parts(want))
	if err != nil {
		return err
	}
	scale := 1.0
	for _, x := range w {
		if a := math.Abs(x); a > scale && !math.IsInf(x, 0) {
			scale = a
		}
	}
	for i := range w {
		if w[i] == g[i] || w[i] != w[i] && g[i] != g[i] {
			continue
		}
		if !(math.Abs(w[i]-g[i]) <= tolerance*scale) {
			return fmt.Errorf("element %d of %v is %v, the CPU has %v", i, want.Shape(), g[i], w[i])
		}
	}
	return nil
}

// parts returns the parts of complex numbers, and a real tensor as it is.
func parts(x *core.Tensor) *core.Tensor {
	if x.DType().IsComplex() {
		return op.ViewAsReal(x.Detach())
	}
	return x
}

func compareGradients(m *Maker, want, got []*core.Tensor, tolerance float64) error {
	var roots, seeds, theirs, theirSeeds []*core.Tensor
	for i := range want {
		if !want[i].RequiresGrad() {
			continue
		}
		if !got[i].RequiresGrad() {
			return fmt.Errorf("result %d has no gradient, the CPU's has one", i)
		}
		v := make([]float64, want[i].Numel())
		for j := range v {
			v[j] = 0.5 + m.Rand.Float64()
		}
		seed := op.To(op.Reshape(core.FromSlice(v, len(v)), want[i].Shape()...), want[i].DType())
		roots, seeds = append(roots, want[i]), append(seeds, seed)
		theirs, theirSeeds = append(theirs, got[i]), append(theirSeeds, op.ToDevice(seed, m.Device))
	}
	var inputs, theirInputs []*core.Tensor
	for i, x := range m.CPU {
		if x.RequiresGrad() {
			inputs, theirInputs = append(inputs, x), append(theirInputs, m.There[i])
		}
	}
	if len(roots) == 0 || len(inputs) == 0 {
		return nil
	}
	o := autograd.Options{AllowUnused: true}
	w, err := autograd.Grad(roots, inputs, seeds, o)
	if err != nil {
		return err
	}
	g, err := autograd.Grad(theirs, theirInputs, theirSeeds, o)
	if err != nil {
		return err
	}
	for i := range w {
		if w[i] == nil || g[i] == nil {
			if w[i] != g[i] {
				return fmt.Errorf("gradient %d is there on one device alone", i)
			}
			continue
		}
		if err := Equal(w[i], g[i], tolerance); err != nil {
			return fmt.Errorf("%v, gradient %d: %w", m.DType, i, err)
		}
	}
	return nil
}

// turnVectors gives the eigenvectors and the pairs of singular vectors of a device, whose signs are arbitrary, those of the CPU.
func turnVectors(r *op.Row, want, got []*core.Tensor) {
	first, second := 1, -1
	if r.Name == "linalg_svd" {
		first, second = 0, 2
	} else if r.Name != "linalg_eigh" {
		return
	}
	if got[0].Err() != nil {
		return
	}
	products := op.Mul(want[first].Detach(), op.ToDevice(got[first].Detach(), want[first].Device()))
	signs := op.ToDevice(op.Sign(op.Sum(products, []int{-2}, true)), got[first].Device())
	got[first] = op.Mul(got[first], signs)
	if second >= 0 {
		got[second] = op.Mul(got[second], op.Transpose(signs, -1, -2))
	}
}
