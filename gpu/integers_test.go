package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestShortIntegers compares the integers that programs hold in parts of words, and uint32, with the CPU, wrapped around too.
func TestShortIntegers(t *testing.T) {
	dev := device(t)
	for _, d := range []core.DType{core.Int8, core.Int16, core.Uint16, core.Uint32, core.Uint8} {
		v := []float64{1, 127, 100, 3, 200, 65535, 70000, 5, 9}
		if d.IsSigned() {
			v = []float64{-1, 127, -128, 3, 300, -32768, 70000, 5, 9}
		}
		x := op.To(core.FromSlice(v, 3, 3), d)
		g := op.ToDevice(x, dev)
		for name, f := range map[string]func(x *core.Tensor) *core.Tensor{
			"add": func(x *core.Tensor) *core.Tensor { return op.Add(x, x) }, "mul": func(x *core.Tensor) *core.Tensor { return op.Mul(x, x) },
			"sum": func(x *core.Tensor) *core.Tensor { return op.Sum(x, nil, false) }, "amax": func(x *core.Tensor) *core.Tensor { return op.Amax(x, []int{1}, false) },
			"amin": func(x *core.Tensor) *core.Tensor { return op.Amin(x, []int{0}, false) }, "float": func(x *core.Tensor) *core.Tensor { return op.To(x, core.Float32) },
			"half": func(x *core.Tensor) *core.Tensor { return op.To(op.To(x, core.Float32), x.DType()) }, "lt": func(x *core.Tensor) *core.Tensor { return op.Lt(x, core.IntNum(3)) },
			"transpose": func(x *core.Tensor) *core.Tensor { return op.Contiguous(op.Transpose(x, 0, 1)) }, "argmax": func(x *core.Tensor) *core.Tensor { return op.ArgMax(x, []int{1}, false) },
			"matmul": func(x *core.Tensor) *core.Tensor { return op.MatMul(x, x) }, "div": func(x *core.Tensor) *core.Tensor { return op.FloorDivide(x, core.IntNum(2)) },
			"int64": func(x *core.Tensor) *core.Tensor { return op.To(op.To(x, core.Int64), x.DType()) }, "bool": func(x *core.Tensor) *core.Tensor { return op.To(x, core.Bool) },
			"cat": func(x *core.Tensor) *core.Tensor { return op.Cat([]*core.Tensor{x, x}, 1) }, "cumsum": func(x *core.Tensor) *core.Tensor { return op.CumSum(x, 1) },
		} {
			want, err := core.Values[float64](f(x))
			require.NoError(t, err, name)
			got, err := core.Values[float64](f(g))
			require.NoError(t, err, "%v %s", d, name)
			require.Equal(t, want, got, "%v %s", d, name)
		}
	}
}
