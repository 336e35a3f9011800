package pipeline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

// in64 runs fn with float64 as the default dtype, and memory tidied up.
func in64(t *testing.T, fn func()) {
	t.Helper()
	c := core.CurrentContext()
	old := c.DefaultDType()
	require.NoError(t, c.SetDefaultDType(core.Float64))
	defer func() { require.NoError(t, c.SetDefaultDType(old)) }()
	core.Tidy(fn)
	require.NoError(t, core.Synchronize())
}

// mlp returns a model of n layers, each of the given width.
func mlp(n, width int, dropout float64) *nn.Sequential {
	core.ManualSeed(7)
	var layers []nn.Layer
	for i := range n {
		l := []nn.Layer{nn.NewLinear(width, width, nn.LinearOptions{}), nn.NewLayerNorm([]int{width}, nn.NormOptions{}), nn.NewTanh()}
		if dropout > 0 {
			l = append(l, nn.NewDropout(dropout))
		}
		_ = i
		layers = append(layers, nn.NewSequential(l...))
	}
	m := nn.NewSequential(layers...)
	for _, p := range nn.Parameters(m) {
		p.Keep()
	}
	return m
}

func mse(sum bool) func(y, target *core.Tensor) *core.Tensor {
	return func(y, target *core.Tensor) *core.Tensor {
		d := op.Sub(y, target)
		d = op.Mul(d, d)
		if sum {
			return op.Sum(d, nil, false)
		}
		return op.Mean(d, nil, false)
	}
}

func names(devices int) []string {
	return []string{"cpu:0", "cpu:1", "cpu:2", "cpu:3"}[:devices]
}

func vals(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	require.NotNil(t, x)
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

// grads returns the gradients of a module by name, and drops them.
func grads(t *testing.T, m nn.Module) map[string][]float64 {
	t.Helper()
	out := map[string][]float64{}
	for _, n := range nn.NamedParameters(m) {
		if g := n.Tensor.Grad(); g != nil {
			out[n.Name] = vals(t, g)
			n.Tensor.SetGrad(nil)
		}
	}
	return out
}

// near asserts that gradients are equal but for rounding.
func near(t *testing.T, want, got map[string][]float64, what ...any) {
	t.Helper()
	require.Equal(t, len(want), len(got), what...)
	for name, w := range want {
		require.InDeltaSlice(t, w, got[name], 1e-12, append([]any{"%s " + name}, what...)...)
	}
}

// whole runs the model on one device, on the whole batch.
func whole(t *testing.T, m nn.Layer, x, target *core.Tensor, loss func(y, target *core.Tensor) *core.Tensor) (l, y *core.Tensor) {
	t.Helper()
	y = nn.Call(m, x)
	l = loss(y, target)
	require.NoError(t, autograd.Backward(l))
	return l, y
}
