package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

func TestDropoutKeepsTheExpectation(t *testing.T) {
	inRank(t, func() {
		for _, d := range []core.DType{core.Float16, core.BFloat16, core.Float32, core.Float64} {
			x := op.To(op.Full([]int{200, 301}, core.Num(3), op.TensorOptions{}), d)
			kept, sum := 0.0, 0.0
			for _, v := range values(t, op.Dropout(op.Transpose(x, 0, 1), 0.25, true)) {
				if v != 0 {
					require.InDelta(t, 4, v, 0.03)
					kept++
				}
				sum += v
			}
			n := 200.0 * 301
			require.InDelta(t, 0.75, kept/n, 0.01)
			require.InDelta(t, 3, sum/n, 0.04)
		}
	})
}

// The gradient is dropped where the value was, although no mask is stored; the next use drops other elements.
func TestDropoutGradientDropsTheSame(t *testing.T) {
	inRank(t, func() {
		x := leaf(op.Full([]int{7, 11}, core.Num(2), op.TensorOptions{}))
		y, other := op.Dropout(x, 0.5, true), op.Dropout(x, 0.5, true)
		require.NotEqual(t, values(t, y), values(t, other))
		g := gradients(t, y, op.OnesLike(y, op.TensorOptions{}), x)[0]
		gv := values(t, g)
		for i, v := range values(t, y) {
			require.Equal(t, v, 2*gv[i])
		}
		again, err := autograd.Grad([]*core.Tensor{op.Dropout(x, 0.5, true)}, []*core.Tensor{x},
			[]*core.Tensor{leaf(op.OnesLike(x, op.TensorOptions{}))}, autograd.Options{CreateGraph: true})
		require.NoError(t, err)
		require.True(t, again[0].RequiresGrad())
	})
}

func TestDropoutRepeatsWithItsSeed(t *testing.T) {
	inRank(t, func() {
		x := op.Ones(1000)
		core.ManualSeed(3)
		a := values(t, op.Dropout(x, 0.5, true))
		core.ManualSeed(3)
		require.Equal(t, a, values(t, op.Dropout(x, 0.5, true)))
	})
}

func TestChannelDropout(t *testing.T) {
	inRank(t, func() {
		x := op.Ones(40, 50, 2, 3)
		for name, f := range map[string]func(*core.Tensor, float64, bool) *core.Tensor{"2d": op.Dropout2d, "3d": op.Dropout3d, "1d": op.Dropout1d} {
			in := x
			if name == "1d" {
				in = op.Reshape(x, 40, 50, 6)
			}
			v := values(t, f(in, 0.5, true))
			kept := 0.0
			lead := 40 * 50
			if name == "3d" {
				lead = 40 // [C, D, H, W] has no batch
			}
			for c := range lead {
				part := v[c*len(v)/lead : (c+1)*len(v)/lead]
				for _, y := range part {
					require.Equal(t, part[0], y, name)
				}
				kept += part[0] / 2 / float64(lead)
			}
			require.InDelta(t, 0.5, kept, 0.3, name)
		}
	})
}

func TestAlphaDropoutKeepsMeanAndVariance(t *testing.T) {
	inRank(t, func() {
		const n = 200000
		x := op.Randn(n/10, 10)
		for _, f := range []func(*core.Tensor, float64, bool) *core.Tensor{op.AlphaDropout, op.FeatureAlphaDropout} {
			mean, square := 0.0, 0.0
			for _, v := range values(t, f(x, 0.3, true)) {
				mean += v / n
				square += v * v / n
			}
			require.InDelta(t, 0, mean, 0.02)
			require.InDelta(t, 1, math.Sqrt(square-mean*mean), 0.02)
		}
	})
}

// TestChannelDropoutOfOtherShapes has no choice to make where nothing or everything is dropped, and none among channels that are not
// there.
func TestChannelDropoutOfOtherShapes(t *testing.T) {
	drops := map[string]func(x *core.Tensor, p float64, training bool) *core.Tensor{
		"dropout2d": op.Dropout2d, "dropout3d": op.Dropout3d, "feature_alpha_dropout": op.FeatureAlphaDropout}
	for name, drop := range drops {
		for _, shape := range [][]int{{}, {4}, {0}} {
			x := op.Ones(shape...)
			require.Equal(t, values(t, x), values(t, drop(x, 0, true)), "%s %v", name, shape)
			require.Equal(t, values(t, x), values(t, drop(x, 0.5, false)), "%s %v", name, shape)
			require.Equal(t, values(t, op.Zeros(shape...)), values(t, drop(x, 1, true)), "%s %v", name, shape)
			if len(shape) == 0 || shape[0] > 0 && name != "dropout3d" {
				require.ErrorContains(t, drop(x, 0.5, true).Err(), "want [N, C, ...]", "%s %v", name, shape)
			} else {
				require.NoError(t, drop(x, 0.5, true).Err(), "%s %v", name, shape)
			}
		}
	}
	for _, shape := range [][]int{{}, {4}, {1, 2, 3, 4}} {
		require.ErrorContains(t, op.Dropout1d(op.Ones(shape...), 0, true).Err(), "want [N, C, L] or [C, L]")
	}
	got := values(t, op.Dropout3d(op.Ones(64, 3, 2), 0.5, true)) // 64 channels
	for i, v := range got {
		require.Equal(t, got[i/6*6], v)
	}
}
