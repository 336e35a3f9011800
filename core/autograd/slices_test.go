package autograd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

func TestAPassInSlicesEndsWithTheSameGradients(t *testing.T) {
	x := core.FromSlice([]float32{2, 3})
	require.NoError(t, x.SetRequiresGrad(true).Err())
	y := x
	for range 100 {
		y = op.Add(y, x)
	}
	r, err := NewRun([]*core.Tensor{op.Sum(y, nil, false)}, nil, Options{})
	require.NoError(t, err)
	defer r.Close()
	slices := 0
	for more := true; more; slices++ {
		var q *Request
		q, more, err = r.StepFor(time.Nanosecond)
		require.NoError(t, err)
		require.Nil(t, q)
	}
	require.Greater(t, slices, 10, "a slice of a nanosecond runs one node")
	g, err := core.Values[float32](x.Grad())
	require.NoError(t, err)
	require.Equal(t, []float32{101, 101}, g)
}

func TestAPassWithoutSlicesDoesNotPause(t *testing.T) {
	x := core.FromSlice([]float32{2, 3})
	require.NoError(t, x.SetRequiresGrad(true).Err())
	r, err := NewRun([]*core.Tensor{op.Sum(op.Mul(x, x), nil, false)}, nil, Options{})
	require.NoError(t, err)
	defer r.Close()
	_, more, err := r.StepFor(time.Hour)
	require.NoError(t, err)
	require.False(t, more)
}
