package autograd_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

func one(fn func(x *core.Tensor) *core.Tensor) func(in []*core.Tensor) []*core.Tensor {
	return func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{fn(in[0])} }
}

// jvp returns the product of fn's Jacobian at x with ones.
func jvp(t *testing.T, fn func(x *core.Tensor) *core.Tensor, x *core.Tensor) *core.Tensor {
	t.Helper()
	_, out, err := autograd.JVP(one(fn), []*core.Tensor{x}, []*core.Tensor{op.OnesLike(x, op.TensorOptions{})})
	require.NoError(t, err)
	require.NotNil(t, out[0])
	return out[0]
}

func cube(x *core.Tensor) *core.Tensor { return op.Mul(op.Mul(x, x), x) }

func TestJVPNests(t *testing.T) {
	x := core.FromSlice([]float64{2, 3}, 2)
	first := func(x *core.Tensor) *core.Tensor { return jvp(t, cube, x) }
	second := func(x *core.Tensor) *core.Tensor { return jvp(t, first, x) }
	assert.Equal(t, []float64{12, 27}, values(t, first(x)))
	assert.Equal(t, []float64{12, 18}, values(t, second(x)))
	assert.Equal(t, []float64{6, 6}, values(t, jvp(t, second, x)))
	assert.False(t, core.ForwardActive())
}

func TestJVPAndGradNestEitherWay(t *testing.T) {
	x := core.FromSlice([]float64{2, 3}, 2)
	exp := func(x *core.Tensor) *core.Tensor { return op.Mul(op.Exp(x), op.Softmax(x, 0)) }
	grad := func(fn func(x *core.Tensor) *core.Tensor, create bool) func(x *core.Tensor) *core.Tensor {
		return func(x *core.Tensor) *core.Tensor {
			if !x.RequiresGrad() {
				x = op.ViewAs(x, x).SetRequiresGrad(true)
			}
			out, err := autograd.Grad([]*core.Tensor{op.Sum(fn(x), nil, false)}, []*core.Tensor{x}, nil, autograd.Options{CreateGraph: create})
			require.NoError(t, err)
			return out[0]
		}
	}
	want := values(t, grad(grad(exp, true), false)(x))
	for _, create := range []bool{false, true} {
		assert.InDeltaSlice(t, want, values(t, jvp(t, grad(exp, create), x)), 1e-9)
	}
	inner := func(x *core.Tensor) *core.Tensor { return jvp(t, exp, x) }
	leaf := x.Detach().SetRequiresGrad(true)
	assert.InDeltaSlice(t, want, values(t, grad(inner, false)(leaf)), 1e-9)
}

func TestJVPThroughChangesInPlace(t *testing.T) {
	x := core.FromSlice([]float64{2, 3}, 2)
	assert.Equal(t, []float64{0, 4, 0}, values(t, jvp(t, func(x *core.Tensor) *core.Tensor {
		y := op.ZerosLike(core.FromSlice([]float64{0, 0, 0}, 3), op.TensorOptions{})
		row := op.Select(y, 0, 1)
		op.CopyInPlace(row, op.Square(op.Select(x, 0, 0)))
		return y
	}, x)))
	assert.Equal(t, []float64{0, 1}, values(t, jvp(t, func(x *core.Tensor) *core.Tensor {
		y := op.Clone(x)
		op.ZeroInPlace(op.Select(y, 0, 0))
		return y
	}, x)))
	assert.Equal(t, []float64{8, 12}, values(t, jvp(t, func(x *core.Tensor) *core.Tensor {
		y := op.Add(x, core.Num(0)) // whose tangent is x's
		v := op.View(y, 2)
		op.MulInPlace(y, y)
		return op.Add(op.Mul(v, core.Num(1)), op.Mul(y, core.Num(1)))
	}, x)))
}

func TestJVPRefusesTangentsThatDoNotFit(t *testing.T) {
	x := core.FromSlice([]float64{2, 3}, 2)
	_, _, err := autograd.JVP(one(cube), []*core.Tensor{x}, []*core.Tensor{core.FromSlice([]float64{1}, 1)})
	assert.ErrorContains(t, err, "make_dual: expected a tangent of the primal's shape [2], got [1]")
	_, _, err = autograd.JVP(one(cube), []*core.Tensor{x}, nil)
	assert.ErrorContains(t, err, "got 1 inputs and 0 tangents")
	assert.False(t, core.ForwardActive())
}
