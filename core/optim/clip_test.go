package optim

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

func clipParams() []*core.Tensor {
	params := []*core.Tensor{leaf(core.Float32, start(3), 3), leaf(core.Float64, start(6), 2, 3), leaf(core.Float16, start(2), 2), leaf(core.Float32, start(2), 2)}
	setGrads(params[:3], 1, -2, 3)
	// A gradient with gaps between its elements.
	wide := core.FromSlice([]float64{-2, 99, -6, 99, -10, 99, -4, 99, -8, 99, -12, 99}, 2, 6)
	params[1].SetGrad(op.Slice(wide, 1, 0, 6, 2))
	return params
}

func grads(t *testing.T, params []*core.Tensor) (all []float64) {
	for _, p := range params {
		if p.Grad() != nil {
			all = append(all, values(t, p.Grad())...)
		}
	}
	return all
}

func TestClipGradNorm(t *testing.T) {
	for _, p := range []float64{0, 1, 2, 3, math.Inf(1)} {
		power := p
		if p == 0 {
			power = 2
		}
		params := clipParams()
		before := grads(t, params)
		want := 0.0
		for _, g := range before {
			if math.IsInf(p, 1) {
				want = max(want, math.Abs(g))
			} else {
				want += math.Pow(math.Abs(g), power)
			}
		}
		sum := want
		if !math.IsInf(p, 1) {
			want = math.Pow(want, 1/power)
		}
		s, err := GradPowerSum(params, ClipOptions{Norm: p}).Item()
		require.NoError(t, err)
		require.InEpsilon(t, sum, s, 1e-12)
		for _, limit := range []float64{want * 2, want / 3} {
			total := ClipGradNorm(params, limit, ClipOptions{Norm: p})
			v, err := total.Item()
			require.NoError(t, err)
			require.InEpsilon(t, want, v, 1e-12)
			require.Equal(t, core.Float64, total.DType())
			factor := min(1, limit/(want+1e-6))
			for i, g := range grads(t, params) {
				require.InEpsilon(t, before[i]*factor, g, 1e-3)
				if i >= 3 && i < 9 {
					require.InEpsilon(t, before[i]*factor, g, 1e-14)
				}
			}
		}
		require.Nil(t, params[3].Grad())
	}
}

func TestClipGradValue(t *testing.T) {
	params := clipParams()
	before := grads(t, params)
	require.NoError(t, ClipGradValue(params, 2.5))
	for i, g := range grads(t, params) {
		require.Equal(t, min(max(before[i], -2.5), 2.5), g)
	}
	require.EqualError(t, ClipGradValue(params, math.NaN()), "clip_grad_value: the limit must be at least 0, got NaN")
}

func TestClipErrors(t *testing.T) {
	none := []*core.Tensor{leaf(core.Float32, start(2), 2)}
	v, err := ClipGradNorm(none, 1, ClipOptions{}).Item()
	require.NoError(t, err)
	require.Zero(t, v)
	require.NoError(t, ClipGradValue(none, 1))

	params := clipParams()
	require.EqualError(t, ClipGradNorm(params, -1, ClipOptions{}).Err(), "clip_grad_norm: the largest norm must be at least 0, got -1")
	params[0].SetGrad(core.FromSlice([]float32{1, float32(math.Inf(1)), 0}))
	before := grads(t, params)
	require.EqualError(t, ClipGradNorm(params, 1, ClipOptions{ErrorIfNonfinite: true}).Err(), "clip_grad_norm: the norm of the gradients is +Inf")
	require.Equal(t, before, grads(t, params))
	params[0].SetGrad(core.ErrorTensor(core.Errorf(core.ShapeError, "matmul", "inner dimensions differ")))
	require.EqualError(t, ClipGradNorm(params, 1, ClipOptions{}).Err(), "clip_grad_norm: the gradient of parameter 0: matmul: inner dimensions differ")
	require.EqualError(t, ClipGradsWithNorm(clipParams(), 1, core.FromSlice([]float32{1, 2})), "clip_grad_norm: the norm must be a 0-d tensor of dtype float32 or float64, got float32[2] on cpu:0")
}

// A norm over several devices that runs out of memory, at whatever allocation, leaves nothing behind.
func TestGradNormOutOfMemory(t *testing.T) {
	const rank = 79
	dev, err := core.OpenDevice("cpu:0")
	require.NoError(t, err)
	other, err := core.OpenDevice("cpu:1")
	require.NoError(t, err)
	ctx := core.NewRankContext(rank, dev)
	defer ctx.Free()
	core.WithContext(ctx, func() {
		params := []*core.Tensor{leaf(core.Float32, start(6), 2, 3)}
		params = append(params, op.ToDevice(params[0].Detach(), other).SetRequiresGrad(true))
		for _, p := range params {
			require.NoError(t, p.Err())
			wide := op.ZerosWith([]int{3, 2}, op.TensorOptions{Device: p.Device()})
			p.SetGrad(op.Transpose(wide, 0, 1))
		}
		used := []int{core.RankUsage(dev, rank).Current, core.RankUsage(other, rank).Current}
		coretest.EachAllocation(t, func() error {
			total := GradNorm(params, ClipOptions{ErrorIfNonfinite: true})
			if err := total.Err(); err != nil {
				return err
			}
			total.Release()
			return nil
		}, func() {
			_ = dev.Synchronize() // the errors of execution are known
			_ = other.Synchronize()
			require.Equal(t, used, []int{core.RankUsage(dev, rank).Current, core.RankUsage(other, rank).Current})
		}, rank)
	})
}
