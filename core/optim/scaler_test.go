package optim_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
)

func withGrad(values []float32, grads ...float32) *core.Tensor {
	p := core.FromSlice(values, len(values)).SetRequiresGrad(true)
	p.SetGrad(core.FromSlice(grads, len(grads)))
	return p
}

func floats(t *testing.T, x *core.Tensor) []float64 {
	t.Helper()
	v, err := core.Values[float64](x)
	require.NoError(t, err)
	return v
}

func TestGradScalerStepsAndLeavesOut(t *testing.T) {
	p := withGrad([]float32{1, 2}, 8, 16)
	o, err := optim.New("sgd", optim.Hyper{"lr": 1}, optim.Params{Tensors: []*core.Tensor{p}})
	require.NoError(t, err)
	s := optim.NewGradScaler()
	s.Scale, s.Interval = 8, 2
	require.Equal(t, []float64{24}, floats(t, s.ScaleLoss(core.FromSlice([]float32{3}, 1))))

	finite, err := s.Step(o)
	require.NoError(t, err)
	require.True(t, finite)
	require.Equal(t, []float64{0, 0}, floats(t, p))
	require.NoError(t, s.Update())
	require.Equal(t, 8.0, s.Scale)

	p.SetGrad(core.FromSlice([]float32{1, float32(math.Inf(-1))}, 2))
	finite, err = s.Step(o)
	require.NoError(t, err)
	require.False(t, finite)
	require.Equal(t, []float64{0, 0}, floats(t, p), "the step is left out")
	require.NoError(t, s.Update())
	require.Equal(t, 4.0, s.Scale)

	for range 2 {
		p.SetGrad(core.FromSlice([]float32{0, 0}, 2))
		_, err = s.Step(o)
		require.NoError(t, err)
		require.NoError(t, s.Update())
	}
	require.Equal(t, 8.0, s.Scale, "two good steps make it larger")
}

func TestGradScalerFindsWhatIsNotFinite(t *testing.T) {
	for _, d := range []core.DType{core.Float32, core.Float64, core.BFloat16} {
		for _, n := range []int{1, 7, 20000, 40000} {
			for _, bad := range []float64{0, math.NaN(), math.Inf(1), math.Inf(-1)} {
				values := make([]float64, n)
				for i := range values {
					values[i] = 1.5
				}
				values[n-1] += bad
				p := op.To(core.FromSlice(values, n), d).SetRequiresGrad(true)
				p.SetGrad(op.To(core.FromSlice(values, n), d))
				s := optim.NewGradScaler()
				s.Scale = 4
				finite, err := s.Check("key", []*core.Tensor{withGrad([]float32{0}, 1), p})
				require.NoError(t, err)
				require.Equal(t, bad == 0, finite, "%v of %d %v", bad, n, d)
				if n > 1 {
					require.Equal(t, 0.375, floats(t, p.Grad())[0])
				}
				s.Release()
			}
		}
	}
}

func TestGradScalerSaysWhatIsOutOfOrder(t *testing.T) {
	p := withGrad([]float32{1}, 1)
	s := optim.NewGradScaler()
	require.ErrorContains(t, s.Update(), "no gradients were looked at")
	require.NoError(t, s.Unscale(1, []*core.Tensor{p}))
	require.ErrorContains(t, s.Unscale(1, []*core.Tensor{p}), "called twice")
	_, err := s.Check(1, []*core.Tensor{p})
	require.NoError(t, err)
	require.InDelta(t, 1.0/65536, floats(t, p.Grad())[0], 1e-9, "unscaled once")
	require.ErrorContains(t, s.Unscale(1, []*core.Tensor{p}), "after step()")
	_, err = s.Check(1, []*core.Tensor{p})
	require.ErrorContains(t, err, "called twice")
	_, err = s.Check(2, []*core.Tensor{core.FromSlice([]float32{1}, 1)})
	require.ErrorContains(t, err, "no parameter of this optimiser has a gradient")
	require.NoError(t, s.Update())

	half := op.To(p, core.Float16).Detach().SetRequiresGrad(true)
	half.SetGrad(op.To(core.FromSlice([]float32{1}, 1), core.Float16))
	require.ErrorContains(t, s.Unscale(3, []*core.Tensor{half}), "float16")
	s.SetScale(1e38)
	s.Interval, s.Growth = 1, 1e10
	_, err = s.Check(1, []*core.Tensor{p})
	require.NoError(t, err)
	require.NoError(t, s.Update())
	require.InEpsilon(t, 1e38, s.Scale, 1e-6, "it does not grow past what float32 holds")
}
