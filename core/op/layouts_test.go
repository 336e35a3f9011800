package op_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// TestEveryShapeHasItsGradient gives the tensors of every sample other shapes, of 0 to 4 dimensions and without elements:
// the operation refuses them or is as right as it is for the sample, in every layout, and never panics.
func TestEveryShapeHasItsGradient(t *testing.T) {
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		for _, v := range reshaped(s, -1) {
			for l := contiguous; l < layout(coretest.Rounds(int(numLayouts))); l++ {
				m := newMaker(r.Name+s.Name, core.Float64, l, r.NoGrad == "")
				args := m.arguments(v)
				var out []*core.Tensor
				require.NotPanics(t, func() { out = m.apply(r.Call, args, m.leaves) }, "%s, %v", v.Name, l)
				var err error
				for _, o := range out {
					err = errors.Join(err, o.Wait())
				}
				if err != nil {
					_, known := core.KindOf(err)
					require.True(t, known, "%s: %v", v.Name, err)
					require.False(t, m.joined(r, args), "%s: %v", v.Name, err)
					break // in the other layouts too
				}
				if r.NoGrad == "" && !repeated(v) {
					err := m.checkAlong(func(in []*core.Tensor) []*core.Tensor { return m.apply(r.Call, args, in) }, 1e-6*loose(s), 1e-5*loose(s))
					if kind, known := core.KindOf(err); known && kind == core.NotImplemented ||
						l == broadcast && strings.Contains(fmt.Sprint(err), "is singular") { // equal rows
						continue
					}
					require.NoError(t, err, "%s, %v", v.Name, l)
				}
			}
		}
	})
}

// TestSecondDerivativesInEveryLayout compares along random directions, which is as sure and much cheaper than element by
// element as the contiguous layout's.
func TestSecondDerivativesInEveryLayout(t *testing.T) {
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		if r.NoGrad != "" || r.NoDouble != "" {
			return
		}
		for l := transposed; l < transposed+layout(coretest.Rounds(int(numLayouts-transposed))); l++ {
			m := newMaker(r.Name+s.Name, core.Float64, l, true)
			args := m.arguments(s)
			require.NoError(t, m.checkAlong(m.gradients(r, args), 1e-5*loose(s), 1e-4*loose(s)), "%v", l)
		}
	})
}

// gradients returns the gradients of an operation as a function of its leaves, to be differentiated again.
func (m *maker) gradients(r *op.Row, args []any) func(in []*core.Tensor) []*core.Tensor {
	return m.gradientsWith(r, args, autograd.Options{CreateGraph: true, AllowUnused: true})
}

func (m *maker) gradientsWith(r *op.Row, args []any, o autograd.Options) func(in []*core.Tensor) []*core.Tensor {
	seeds := map[int]*core.Tensor{} // by output, the same for every call
	return func(in []*core.Tensor) (grads []*core.Tensor) {
		core.EnableGrad(func() {
			var outputs, weights []*core.Tensor
			for i, y := range m.apply(r.Call, args, in) {
				if y.Err() == nil && y.RequiresGrad() {
					if seeds[i] == nil {
						seeds[i] = m.weights(y.Shape())
					}
					outputs, weights = append(outputs, y), append(weights, seeds[i])
				}
			}
			var err error
			grads, err = autograd.Grad(outputs, requiring(in), weights, o)
			if err != nil {
				grads = []*core.Tensor{core.ErrorTensor(err)}
			}
			grads = slices.DeleteFunc(grads, func(g *core.Tensor) bool { return g == nil })
		})
		return grads
	}
}

// requiring returns the tensors that require a gradient.
func requiring(list []*core.Tensor) (out []*core.Tensor) {
	for _, x := range list {
		if x.RequiresGrad() {
			out = append(out, x)
		}
	}
	return out
}

// TestNoShapeMakesAnOperationPanic gives one tensor of every sample another shape, and leaves the others.
func TestNoShapeMakesAnOperationPanic(t *testing.T) {
	eachSample(t, func(t *testing.T, r *op.Row, s op.Sample) {
		for i := range s.Args {
			for _, v := range reshaped(s, i) {
				m := newMaker(r.Name+s.Name, core.Float64, contiguous, r.NoGrad == "")
				args := m.arguments(v)
				require.NotPanics(t, func() {
					var outputs, seeds []*core.Tensor
					for _, o := range m.apply(r.Call, args, m.leaves) {
						err := o.Wait()
						if _, known := core.KindOf(err); err != nil {
							require.True(t, known, "argument %d, %s: %v", i, v.Name, err)
						} else if o.RequiresGrad() {
							outputs, seeds = append(outputs, o), append(seeds, m.weights(o.Shape()))
						}
					}
					if outputs != nil {
						_, err := autograd.Grad(outputs, requiring(m.leaves), seeds, autograd.Options{AllowUnused: true})
						if kind, known := core.KindOf(err); err != nil && (!known || kind != core.NotImplemented) {
							require.Contains(t, err.Error(), "is singular", "argument %d, %s", i, v.Name)
						}
					}
				}, "argument %d, %s", i, v.Name)
			}
		}
	})
}

// repeated reports whether a sample has a tensor of indices of which one appears twice. Which of
// several elements that go to one place stays there is not said.
func repeated(s op.Sample) bool {
	twice := func(x op.T) bool {
		return x.Fixed && x.DType == core.Int64 && len(slices.Compact(slices.Sorted(slices.Values(x.Values)))) < len(x.Values)
	}
	return slices.ContainsFunc(s.Args, func(a any) bool {
		x, one := a.(op.T)
		list, _ := a.([]op.T)
		return one && twice(x) || slices.ContainsFunc(list, twice)
	})
}

// reshaped returns samples like s whose tensors, or only that which is argument number one, have other shapes: of each
// number of dimensions, and with every dimension of one size made empty.
func reshaped(s op.Sample, one int) (list []op.Sample) {
	add := func(name string, shape func(shape []int) []int) {
		if v, changed := reshape(s, one, shape); changed {
			v.Name = name
			list = append(list, v)
		}
	}
	for rank := range 5 {
		add(fmt.Sprintf("%d-d", rank), func(shape []int) []int {
			for len(shape) < rank {
				shape = append([]int{2}, shape...)
			}
			return shape[len(shape)-rank:]
		})
	}
	for size := 1; size <= 5; size++ {
		add(fmt.Sprintf("0 for %d", size), func(shape []int) []int {
			shape = slices.Clone(shape)
			for i, n := range shape {
				if n == size {
					shape[i] = 0
				}
			}
			return shape
		})
	}
	return list
}

// reshape returns a sample like s whose tensors have the shapes that fn returns for theirs, all of them or, unless it is
// negative, the one that is argument number one; and whether any differs. Given elements are repeated.
func reshape(s op.Sample, one int, fn func(shape []int) []int) (v op.Sample, changed bool) {
	v = s
	v.Args = slices.Clone(s.Args)
	change := func(x op.T) op.T {
		shape := fn(x.Shape)
		changed = changed || !slices.Equal(shape, x.Shape)
		x.Shape = shape
		if x.Values != nil {
			values := make([]float64, core.Numel(shape))
			for i := range values {
				values[i] = x.Values[i%max(len(x.Values), 1)]
			}
			x.Values = values
		}
		return x
	}
	for i, a := range v.Args {
		if one >= 0 && i != one {
			continue
		}
		switch x := a.(type) {
		case op.T:
			v.Args[i] = change(x)
		case []op.T:
			l := slices.Clone(x)
			for j := range l {
				l[j] = change(l[j])
			}
			v.Args[i] = l
		}
	}
	return v, changed
}

// joined reports whether an operation works element by element on arguments whose shapes broadcast.
func (m *maker) joined(r *op.Row, args []any) bool {
	shape, ok := []int(nil), len(r.Elementwise) > 0 && len(args) == len(m.leaves) && (len(args) < 2 || r.Args[1].Name == "other")
	for _, a := range args {
		x, tensor := a.(*core.Tensor)
		if ok = ok && tensor; ok {
			shape, ok = broadcastShape(shape, x.Shape())
		}
	}
	return ok
}

// checkAlong compares the gradients of the sum of fn's weighted outputs with differences in random directions, in which
// all of the leaves that require a gradient move at once.
func (m *maker) checkAlong(fn func(in []*core.Tensor) []*core.Tensor, atol, rtol float64) error {
	wanted := requiring(m.leaves)
	var outputs, seeds []*core.Tensor
	var which []int
	for i, o := range fn(m.leaves) {
		if err := o.Err(); err != nil {
			return err
		}
		if o.DType().Differentiable() && o.RequiresGrad() {
			which, outputs, seeds = append(which, i), append(outputs, o), append(seeds, m.weights(o.Shape()))
		}
	}
	if len(outputs) == 0 {
		return nil
	}
	grads, err := autograd.Grad(outputs, wanted, seeds, autograd.Options{AllowUnused: true})
	if err != nil {
		return err
	}
	at := make([][]float64, len(wanted))
	for i, x := range wanted {
		if at[i], err = realValues(x); err != nil {
			return err
		}
		if g := grads[i]; g != nil && !slices.Equal(g.Shape(), x.Shape()) {
			return fmt.Errorf("a gradient of shape %v for an input of shape %v", g.Shape(), x.Shape())
		}
	}
	for range coretest.Rounds(2) {
		var analytic, scale float64
		direction := make([][]float64, len(wanted))
		for i, g := range grads {
			direction[i] = make([]float64, len(at[i]))
			for j := range direction[i] {
				direction[i][j] = (0.5 + m.rng.Float64()) * float64(2*m.rng.IntN(2)-1)
			}
			if g == nil {
				continue
			}
			v, err := realValues(g)
			if err != nil {
				return err
			}
			for j, x := range v {
				analytic += x * direction[i][j]
				scale += math.Abs(x)
			}
		}
		const eps = 1e-6
		var sums [2]float64
		for k, sign := range []float64{eps, -eps} {
			for i, x := range wanted {
				set(x, at[i], direction[i], sign)
			}
			core.NoGrad(func() {
				core.Tidy(func() {
					out := fn(m.leaves)
					for i, w := range seeds {
						var s []float64
						if s, err = realValues(op.Sum(op.Mul(out[which[i]], w), nil, false)); err != nil {
							return
						}
						sums[k] += s[0]
					}
				})
			})
			if err != nil {
				return err
			}
		}
		numeric := (sums[0] - sums[1]) / (2 * eps)
		if numeric != numeric {
			continue // a result that is not a number has no derivative
		}
		if d := math.Abs(numeric - analytic); !(d <= atol+rtol*scale) {
			return fmt.Errorf("along a random direction backward gives %g, differences give %g", analytic, numeric)
		}
	}
	for i, x := range wanted {
		set(x, at[i], at[i], 0)
	}
	return nil
}

// set makes a leaf at + by*direction.
func set(leaf *core.Tensor, at, direction []float64, by float64) {
	v := slices.Clone(at)
	for i := range v {
		v[i] += by * direction[i]
	}
	core.NoGrad(func() {
		place := leaf.Detach()
		if leaf.DType().IsComplex() {
			place = op.ViewAsReal(place)
		}
		op.CopyInPlace(place, core.FromSlice(v, place.Shape()...))
	})
}

// weights returns a tensor of random numbers from 0.5 to 1.5.
func (m *maker) weights(shape []int) *core.Tensor {
	v := make([]float64, core.Numel(shape))
	for i := range v {
		v[i] = 0.5 + m.rng.Float64()
	}
	return core.FromSlice(v, append([]int{}, shape...)...)
}
