package op_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// TestChangesThroughViewsReachTheBase writes a tensor that requires a gradient through every result that shares memory with an
// input that has no graph yet. The input is then a result of that operation.
func TestChangesThroughViewsReachTheBase(t *testing.T) {
	for _, r := range op.Rows() {
		if !r.Shares || r.Func == nil {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			inRank(t, func() {
				for _, s := range r.Samples {
					for _, v := range slices.Concat([]op.Sample{s}, withInts(s, 0), withInts(s, 1)) {
						reachesBase(t, r, v)
					}
				}
			})
		})
	}
}

func reachesBase(t *testing.T, r *op.Row, s op.Sample) {
	m := newMaker(r.Name+s.Name, core.Float64, contiguous, false)
	args := m.arguments(s)
	for _, o := range m.apply(r.Call, args, m.leaves) {
		if o.Wait() != nil || o.DType() != core.Float64 || o.Numel() == 0 {
			continue
		}
		i := slices.IndexFunc(m.leaves, func(x *core.Tensor) bool { return o.Storage() == x.Storage() })
		if i < 0 {
			continue
		}
		leaf := op.To(op.Ones(1), core.Float64).SetRequiresGrad(true)
		if op.AddInPlace(o, leaf).Err() != nil {
			continue // its elements share memory
		}
		name := fmt.Sprintf("%s %s: input %d", r.Name, s.Name, i)
		require.True(t, m.leaves[i].RequiresGrad(), name)
		require.NoError(t, autograd.Backward(op.Sum(sumOfParts(m.leaves[i]), nil, false)), name)
		require.Equal(t, []float64{float64(o.Numel())}, values(t, leaf.Grad()), name)
	}
}

// sumOfParts returns the sums of the real and imaginary parts of complex numbers, and real numbers as they are.
func sumOfParts(x *core.Tensor) *core.Tensor {
	if x.DType().IsComplex() {
		return op.Add(op.Real(x), op.Imag(x))
	}
	return x
}

// TestAnIndexOfAllIsAView marks a view of all elements as a leaf, which does not make the base one.
func TestAnIndexOfAllIsAView(t *testing.T) {
	inRank(t, func() {
		for _, indices := range [][]core.Index{{}, {core.Ellipsis()}, {core.All()}} {
			x := op.Ones(3)
			op.Index(x, indices...).SetRequiresGrad(true)
			require.False(t, x.RequiresGrad(), "%v", indices)
		}
	})
}

// TestIndexingSharesTheGraph is the same for what indices select.
func TestIndexingSharesTheGraph(t *testing.T) {
	for _, p := range [][]core.Index{{}, {core.Ellipsis()}, {core.At(0)}, {core.All(), core.Span(1, 3)}, {core.NewAxis()},
		{core.Pick(int64s([]int{2}, 0, 1))}, {core.Pick(bools([]int{2}, true, false))}} {
		for _, read := range []bool{true, false} {
			y, leaf := op.To(op.Zeros(2, 3), core.Float64), op.To(op.Ones(1), core.Float64).SetRequiresGrad(true)
			n := op.Index(y, p...).Numel()
			if part := op.Index(y, p...); !read {
				require.NoError(t, op.IndexSet(y, leaf, p...).Err())
			} else if part.Storage() == y.Storage() {
				require.NoError(t, op.AddInPlace(part, leaf).Err())
			} else {
				continue
			}
			require.True(t, y.RequiresGrad(), "%v, through a view: %v", p, read)
			require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
			require.Equal(t, []float64{float64(n)}, values(t, leaf.Grad()), "%v, through a view: %v", p, read)
		}
	}
}

// TestViewsTakenWithoutGradients must not be changed where the graph would miss it.
func TestViewsTakenWithoutGradients(t *testing.T) {
	leaf := op.Ones(4).SetRequiresGrad(true)
	plain, result := op.Ones(4), op.Mul(leaf, core.Num(2))
	views := func(x *core.Tensor) (list []*core.Tensor) {
		core.NoGrad(func() { list = append(list, op.Narrow(x, 0, 1, 2), op.Index(x, core.Span(1, 3))) })
		return append(list, op.Reshape(list[0], 2, 1), op.Index(list[1], core.All()))
	}
	for i, v := range slices.Concat(views(leaf), views(result)) {
		require.ErrorContains(t, op.MulInPlace(v, core.Num(3)).Err(), "inside no_grad", "view %d", i)
		core.NoGrad(func() { require.NoError(t, op.MulInPlace(v, core.Num(1)).Err()) })
		require.NoError(t, op.MulInPlace(v.Detach(), core.Num(1)).Err(), "its detached view")
	}
	for i, v := range views(plain) {
		require.ErrorContains(t, op.MulInPlace(v, op.Narrow(leaf, 0, 0, 1)).Err(), "inside no_grad", "view %d", i)
		require.NoError(t, op.MulInPlace(v, core.Num(3)).Err(), "neither requires a gradient")
	}
}
