package op

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/stretchr/testify/require"
)

func values(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

func TestAddBroadcastsAndPromotes(t *testing.T) {
	x := core.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	y := core.FromSlice([]int64{10, 20, 30}, 3)
	z := Add(x, y)
	require.Equal(t, core.Float32, z.DType())
	require.Equal(t, []int{2, 3}, z.Shape())
	require.Equal(t, []float64{11, 22, 33, 14, 25, 36}, values(t, z))
	require.Equal(t, []float64{11.5, 21.5, 31.5}, values(t, Add(y, core.Num(1.5))))
	require.Equal(t, []float64{11, 21, 31}, values(t, Add(y, core.IntNum(1))))
}
