package op

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/stretchr/testify/require"
)

func elements(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

func ramp(shape ...int) *core.Tensor {
	v := make([]float64, core.Numel(shape))
	for i := range v {
		v[i] = float64(i)
	}
	return core.FromSlice(v, shape...)
}

func TestSmoke(t *testing.T) {
	x := ramp(2, 3)
	require.Equal(t, []float64{0, 3, 1, 4, 2, 5}, elements(t, Contiguous(Transpose(x, 0, 1))))
	require.Equal(t, []float64{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}, elements(t, Cat([]*core.Tensor{x, x}, 0)))
	require.Equal(t, []float64{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}, elements(t, Cat([]*core.Tensor{x, x}, 1)))
	require.Equal(t, []float64{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}, elements(t, Stack([]*core.Tensor{x, x}, 2)))
	require.Equal(t, []float64{2, 3, 4}, elements(t, Arange(core.IntNum(2), core.IntNum(5), nil, TensorOptions{})))
	require.Equal(t, []float64{1, 0, 0, 1, 0, 0}, elements(t, Eye(3, 2, TensorOptions{})))
}
