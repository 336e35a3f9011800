package op_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// leaf makes a tensor require a gradient.
func leaf(x *core.Tensor) *core.Tensor { return x.Detach().SetRequiresGrad(true) }

// gradients returns those of the sum of y*weights, by element, with respect to the inputs.
func gradients(t *testing.T, y, weights *core.Tensor, inputs ...*core.Tensor) []*core.Tensor {
	t.Helper()
	g, err := autograd.Grad([]*core.Tensor{y}, inputs, []*core.Tensor{weights}, autograd.Options{})
	require.NoError(t, err)
	return g
}

func TestLayerNormGradientKeepsTheShape(t *testing.T) {
	x, w, b := leaf(uniform(1, 2, 3, 4)), leaf(uniform(2, 4)), leaf(uniform(3, 4))
	y := op.LayerNorm(x, []int{4}, w, b, 1e-5)
	require.Equal(t, []int{2, 3, 4}, y.Shape())
	g := gradients(t, y, uniform(4, 2, 3, 4), x, w, b)
	require.Equal(t, []int{2, 3, 4}, g[0].Shape())
	require.Equal(t, []int{4}, g[1].Shape())
	require.Equal(t, []int{4}, g[2].Shape())
}

// In evaluation the statistics are constants: dx = dy*w/sqrt(var + eps), not the training formula.
func TestBatchNormEvaluationGradient(t *testing.T) {
	x, w, b := leaf(uniform(1, 3, 2, 5)), leaf(uniform(2, 2)), leaf(uniform(3, 2))
	mean, variance := core.FromSlice([]float64{0.3, -0.2}), core.FromSlice([]float64{2, 0.5})
	dy := uniform(4, 3, 2, 5)
	y := op.BatchNorm(x, mean, variance, w, b, false, 0.1, 1e-5)
	xv, wv, bv, dv := values(t, x), values(t, w), values(t, b), values(t, dy)
	g := gradients(t, y, dy, x, w, b)
	wantY, wantX := make([]float64, 30), make([]float64, 30)
	wantW, wantB := make([]float64, 2), make([]float64, 2)
	for i := range wantY {
		c := i / 5 % 2
		m, r := []float64{0.3, -0.2}[c], 1/math.Sqrt([]float64{2, 0.5}[c]+1e-5)
		wantY[i] = (xv[i]-m)*r*wv[c] + bv[c]
		wantX[i] = dv[i] * wv[c] * r
		wantW[c] += dv[i] * (xv[i] - m) * r
		wantB[c] += dv[i]
	}
	requireValues(t, wantY, values(t, y), 1e-12)
	requireValues(t, wantX, values(t, g[0]), 1e-12)
	requireValues(t, wantW, values(t, g[1]), 1e-12)
	requireValues(t, wantB, values(t, g[2]), 1e-12)
}

func TestBatchNormMovesRunningStatistics(t *testing.T) {
	for _, d := range []core.DType{core.Float64, core.Float32, core.Float16} {
		x := op.To(core.FromSlice([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 2, 2, 2), d)
		stat := d
		if d == core.Float16 {
			stat = core.Float32 // parameters may be wider than half precision data
		}
		// The running statistics lie in memory with gaps.
		both := op.To(core.FromSlice([]float64{10, 1, 20, 2}, 2, 2), stat)
		mean, variance := op.Select(both, 1, 0), op.Select(both, 1, 1)
		version := mean.Storage().Version()
		y := op.BatchNorm(x, mean, variance, nil, nil, true, 0.25, 0)
		require.NoError(t, y.Err())
		require.Equal(t, d, y.DType())
		// Channel 0 has 1 2 5 6, channel 1 has 3 4 7 8: means 3.5 and 5.5, unbiased variances 17/3.
		requireValues(t, []float64{0.75*10 + 0.25*3.5, 0.75*20 + 0.25*5.5}, values(t, mean), 1e-5)
		requireValues(t, []float64{0.75*1 + 0.25*17/3, 0.75*2 + 0.25*17/3}, values(t, variance), 1e-5)
		require.Greater(t, mean.Storage().Version(), version)
		s := math.Sqrt(4.25)
		requireValues(t, []float64{-2.5 / s, -1.5 / s, -2.5 / s, -1.5 / s, 1.5 / s, 2.5 / s, 1.5 / s, 2.5 / s}, values(t, y), 2e-3)
	}
}

// A batch of no samples is one of a loader's, and leaves the statistics as they are.
func TestBatchNormOfNothing(t *testing.T) {
	x, w := leaf(core.FromSlice([]float64{}, 0, 3)), leaf(core.FromSlice([]float64{1, 2, 3}))
	mean, variance := core.FromSlice([]float64{1, 2, 3}), core.FromSlice([]float64{4, 5, 6})
	y := op.BatchNorm(x, mean, variance, w, nil, true, 0.25, 1e-5)
	require.NoError(t, y.Err())
	require.Equal(t, []int{0, 3}, y.Shape())
	require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
	require.Equal(t, []float64{0, 0, 0}, values(t, w.Grad()))
	require.Equal(t, []int{0, 3}, x.Grad().Shape())
	require.Equal(t, []float64{1, 2, 3}, values(t, mean))
	require.Equal(t, []float64{4, 5, 6}, values(t, variance))
}

func TestInstanceNormMovesRunningStatistics(t *testing.T) {
	x := core.FromSlice([]float64{1, 2, 3, 4, 5, 9, 7, 8}, 2, 2, 2)
	mean, variance := core.FromSlice([]float64{10, 20}), core.FromSlice([]float64{1, 2})
	y := op.InstanceNorm(x, mean, variance, nil, nil, true, 0.5, 0)
	requireValues(t, []float64{-1, 1, -1, 1, -1, 1, -1, 1}, values(t, y), 1e-12)
	requireValues(t, []float64{5 + 0.5*(1.5+7)/2, 10 + 0.5*(3.5+7.5)/2}, values(t, mean), 1e-12)
	requireValues(t, []float64{0.5 + 0.5*(0.5+8)/2, 1 + 0.5*(0.5+0.5)/2}, values(t, variance), 1e-12)
	// Without statistics of the input's own, the running ones are used.
	z := op.InstanceNorm(x, core.FromSlice([]float64{1, 2}), core.FromSlice([]float64{4, 9}), nil, nil, false, 0.5, 0)
	requireValues(t, []float64{0, 0.5, 1. / 3, 2. / 3, 2, 4, 5. / 3, 2}, values(t, z), 1e-12)
}

// Weights of float32 go with half precision data, and their gradients are float32.
func TestNormsTakeWiderParameters(t *testing.T) {
	x := leaf(op.To(uniform(1, 4, 6), core.BFloat16))
	w, b := leaf(op.To(uniform(2, 6), core.Float32)), leaf(op.To(uniform(3, 6), core.Float32))
	for name, y := range map[string]*core.Tensor{
		"layer": op.LayerNorm(x, []int{6}, w, b, 1e-5),
		"group": op.GroupNorm(x, 3, w, b, 0.1),
		"batch": op.BatchNorm(x, nil, nil, w, b, true, 0.1, 1e-5),
	} {
		require.Equal(t, core.BFloat16, y.DType(), name)
		g := gradients(t, y, op.OnesLike(y, op.TensorOptions{}), x, w, b)
		require.Equal(t, core.BFloat16, g[0].DType(), name)
		require.Equal(t, core.Float32, g[1].DType(), name)
		requireValues(t, []float64{4, 4, 4, 4, 4, 4}, values(t, g[2]), 1e-6)
	}
	require.ErrorContains(t, op.LayerNorm(op.To(x, core.Float32), []int{6}, op.To(w, core.Float64), nil, 0).Err(), "parameters of float64 for an input of float32")
}

// Only the gradients that are asked for are computed, and asking for fewer changes no bits.
func TestNormGradientsOneByOne(t *testing.T) {
	x, w, b := leaf(uniform(1, 5, 6)), leaf(uniform(2, 6)), leaf(uniform(3, 6))
	for name, f := range map[string]func() *core.Tensor{
		"layer": func() *core.Tensor { return op.LayerNorm(x, []int{6}, w, b, 1e-5) },
		"group": func() *core.Tensor { return op.GroupNorm(x, 2, w, b, 1e-5) },
		"batch": func() *core.Tensor { return op.BatchNorm(x, nil, nil, w, b, true, 0.1, 1e-5) },
	} {
		all := gradients(t, f(), uniform(4, 5, 6), x, w, b)
		for i, in := range []*core.Tensor{x, w, b} {
			require.Equal(t, values(t, all[i]), values(t, gradients(t, f(), uniform(4, 5, 6), in)[0]), "%s %d", name, i)
		}
	}
}

func TestLocalResponseNormAgainstDefinition(t *testing.T) {
	x := uniform(1, 2, 6, 3)
	xv, want := values(t, x), make([]float64, 36)
	const size, alpha, beta, k = 4, 0.3, 0.75, 1.5
	for i := range want {
		c, sum := i/3%6, 0.0
		for j := c - size/2; j <= c+(size-1)/2; j++ {
			if j >= 0 && j < 6 {
				sum += xv[i+3*(j-c)] * xv[i+3*(j-c)]
			}
		}
		want[i] = xv[i] / math.Pow(k+alpha*sum/size, beta)
	}
	requireValues(t, want, values(t, op.LocalResponseNorm(x, size, alpha, beta, k)), 1e-12)
}

func TestNormErrors(t *testing.T) {
	x := core.FromSlice(make([]float32, 24), 2, 3, 4)
	three, four := core.FromSlice(make([]float32, 3)), core.FromSlice(make([]float32, 4))
	for want, got := range map[string]*core.Tensor{
		"layer_norm: the normalised dimensions must be the input's last ones, got [3] for an input of shape [2 3 4]": op.LayerNorm(x, []int{3}, nil, nil, 0),
		"layer_norm: weight of shape [3], want [4]":                                               op.LayerNorm(x, []int{4}, three, nil, 0),
		"rms_norm: weight of shape [3], want [4]":                                                 op.RMSNorm(x, []int{4}, three, 1e-5),
		"group_norm: 3 channels do not divide into 2 groups":                                      op.GroupNorm(x, 2, nil, nil, 0),
		"group_norm: bias of shape [4], want [3]":                                                 op.GroupNorm(x, 3, nil, four, 0),
		"batch_norm: evaluation needs running statistics, got none":                               op.BatchNorm(x, nil, nil, nil, nil, false, 0, 0),
		"batch_norm: got one running statistic, want both or none":                                op.BatchNorm(x, three, nil, nil, nil, true, 0, 0),
		"batch_norm: running_mean of shape [4], want [3]":                                         op.BatchNorm(x, four, three, nil, nil, true, 0, 0),
		"batch_norm: got an input of shape [4], want [N, C, ...]":                                 op.BatchNorm(four, nil, nil, nil, nil, true, 0, 0),
		"layer_norm: the input must be floating point, got int64":                                 op.LayerNorm(core.FromSlice([]int64{1}), []int{1}, nil, nil, 0),
		"softmax: got a number, want a tensor":                                                    op.Softmax(core.Num(1), 0),
		"softmax: dimension 3 out of range, want [-3, 2]":                                         op.Softmax(x, 3),
		"instance_norm: want more than one element per channel of a sample, got shape [3 1]":      op.InstanceNorm(core.FromSlice(make([]float32, 3), 3, 1), nil, nil, nil, nil, true, 0, 0),
		"batch_norm: training needs more than one value per channel, got an input of shape [1 3]": op.BatchNorm(core.FromSlice(make([]float32, 3), 1, 3), nil, nil, nil, nil, true, 0, 0),
	} {
		require.EqualError(t, got.Err(), want)
	}
}

// TestRMSNormOfHalvesAddsAsLittleAsOfFloat32 takes rows whose squares are below the distance of halves from 1 to the next number.
func TestRMSNormOfHalvesAddsAsLittleAsOfFloat32(t *testing.T) {
	for _, d := range halves {
		x := op.To(op.Mul(normalNumbers(rand.New(rand.NewPCG(37, 38)), 0, 3, 8), core.Num(0.01)), d.DType)
		got := values(t, op.RMSNorm(x, []int{8}, nil, math.NaN()))
		require.LessOrEqual(t, rmsError(got, values(t, op.RMSNorm(op.To(x, core.Float32), []int{8}, nil, math.NaN()))), d.rounding, "%v", d.DType)
	}
}
