package op_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// together runs the functions n times each, at the same time.
func together(n int, fns ...func()) {
	var wg sync.WaitGroup
	for _, fn := range fns {
		wg.Go(func() {
			for range n {
				fn()
			}
		})
	}
	wg.Wait()
}

func TestATensorGetsOtherMemoryWhileItIsRead(t *testing.T) {
	x := vector64(1, 1)
	others := []*core.Tensor{vector64(1, 1), vector64(2, 2, 2)}
	n := 0
	read := func() {
		v, err := core.Values[float64](x)
		require.NoError(t, err)
		require.Contains(t, [][]float64{{1, 1}, {2, 2, 2}}, v)
		require.NoError(t, x.Wait())
		a := x.Alias(true)
		require.NoError(t, a.Err())
		require.Equal(t, float64(len(a.Shape())), 1.0)
		a.Release()
	}
	together(200, func() { n++; require.NoError(t, x.Adopt(others[n%2])) }, read, read)
	require.Equal(t, 2, x.Storage().Refs())
}

func TestAdoptWaitsForWhoUsesTheTensor(t *testing.T) {
	x := vector64(1)
	require.True(t, x.Use())
	before := x.Storage()
	adopted := make(chan error)
	go func() { adopted <- x.Adopt(vector64(2)) }()
	select {
	case <-adopted:
		t.Error("Adopt has not waited")
	default:
	}
	require.Same(t, before, x.Storage())
	x.Unuse()
	require.NoError(t, <-adopted)
	require.NotSame(t, before, x.Storage())
	require.False(t, core.Num(1).Use())
}

func TestThreadsAddToAGradientThatOthersDrop(t *testing.T) {
	p := vector64(1, 2).SetRequiresGrad(true)
	backward := func() {
		loss := op.Sum(op.Mul(p, p), nil, false)
		require.NoError(t, autograd.Backward(loss))
		loss.Release()
	}
	higher := func() {
		loss := op.Sum(op.Mul(p, p), nil, false)
		require.NoError(t, autograd.BackwardWith([]*core.Tensor{loss}, nil, autograd.Options{CreateGraph: true}))
		loss.Release()
	}
	together(50, backward, backward, higher, func() { p.SetGrad(nil) }, func() {
		g, lender := p.BorrowGrad()
		defer lender.ReturnGrad()
		if g != nil {
			c := op.Clone(g) // in the stream's order: reading g itself would race with what adds to it
			v, err := core.Values[float64](c)
			c.Release()
			require.NoError(t, err)
			require.Equal(t, v[1], 2*v[0])
		}
	})
	p.SetGrad(nil)
	backward()
	require.Equal(t, []float64{2, 4}, values64(t, p.Grad()))
}

func TestAViewOfWhatWasChangedIsLookedAtByThreads(t *testing.T) {
	for range 20 {
		x := vector64(1, 2, 3).SetRequiresGrad(true)
		base := op.Mul(x, core.Num(1))
		view := op.Narrow(base, 0, 0, 2)
		require.NoError(t, op.MulInPlace(base, core.Num(3)).Err())
		together(1, func() { require.True(t, view.RequiresGrad()) }, func() { require.True(t, view.RequiresGrad()) },
			func() { require.False(t, view.IsLeaf()) })
		require.NoError(t, autograd.Backward(op.Sum(view, nil, false)))
		require.Equal(t, []float64{3, 3, 0}, values64(t, x.Grad()))
	}
}

func TestALeafGetsAnotherShapeDuringBackward(t *testing.T) {
	p := vector64(1, 2).SetRequiresGrad(true)
	losses := make([]*core.Tensor, 100)
	for i := range losses {
		losses[i] = op.Sum(p, nil, false)
	}
	shapes := []*core.Tensor{vector64(1, 2), vector64(1, 2, 3)}
	passes, adopted := 0, 0
	together(100, func() {
		require.NoError(t, autograd.Backward(losses[passes]))
		p.SetGrad(nil)
		passes++
	}, func() {
		adopted++
		require.NoError(t, p.Adopt(shapes[adopted%2]))
	})
}

func values64(t *testing.T, x *core.Tensor) []float64 {
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}
