package nn_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
)

func moments(v []float64) (mean, std, low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	s2 := 0.0
	for _, a := range v {
		mean += a / float64(len(v))
		s2 += a * a / float64(len(v))
		low, high = min(low, a), max(high, a)
	}
	return mean, math.Sqrt(s2 - mean*mean), low, high
}

func TestInitialisers(t *testing.T) {
	core.ManualSeed(2)
	w := func() *core.Tensor { return op.Empty(80, 120) }
	for name, c := range map[string]struct {
		t              *core.Tensor
		std, low, high float64
	}{
		"uniform":         {nn.InitUniform(w(), -1, 1), 1 / math.Sqrt(3), -1, 1},
		"normal":          {nn.InitNormal(w(), 0, 0.5), 0.5, -3, 3},
		"trunc_normal":    {nn.InitTruncNormal(w(), 0, 1, -2, 2), 0.8796, -2, 2},
		"xavier_uniform":  {nn.InitXavierUniform(w(), 2), 2 * math.Sqrt(2./200), -0.36, 0.36},
		"xavier_normal":   {nn.InitXavierNormal(w(), 2), 2 * math.Sqrt(2./200), -1.1, 1.1},
		"kaiming_uniform": {nn.InitKaimingUniform(w(), nn.KaimingOptions{}), math.Sqrt(2. / 120), -0.23, 0.23},
		"kaiming_normal":  {nn.InitKaimingNormal(w(), nn.KaimingOptions{FanOut: true, Nonlinearity: "tanh"}), 5. / 3 / math.Sqrt(80), -1, 1},
	} {
		mean, std, low, high := moments(floats(t, c.t))
		require.InDelta(t, 0, mean, 0.05*c.std, name)
		require.InEpsilon(t, c.std, std, 0.03, name)
		require.GreaterOrEqual(t, low, c.low, name)
		require.LessOrEqual(t, high, c.high, name)
	}
	for _, shape := range [][]int{{40, 100}, {100, 40}, {3, 4, 5}, {70, 70}} {
		q := op.Reshape(nn.InitOrthogonal(op.EmptyWith(shape, op.TensorOptions{}), 2), shape[0], -1)
		if q.Size(0) > q.Size(1) {
			q = op.Transpose(q, 0, 1)
		}
		n := q.Size(0)
		for i, v := range floats(t, op.MatMul(q, op.Transpose(q, 0, 1))) {
			want := 0.0
			if i/n == i%n {
				want = 4
			}
			require.InDelta(t, want, v, 1e-5)
		}
	}
	require.Equal(t, []float64{1, 0, 0, 0, 1, 0}, floats(t, nn.InitEye(op.Empty(2, 3))))
	x := op.Randn(1, 4, 5)
	y := op.Conv1d(x, nn.InitDirac(op.Empty(4, 2, 3), 2), nil, op.ConvOptions{Padding: []int{1}, Groups: 2})
	require.Equal(t, floats(t, x), floats(t, y))
	sparse := floats(t, nn.InitSparse(op.Empty(10, 7), 0.25, 1))
	for c := range 7 {
		zeros := 0
		for r := range 10 {
			if sparse[r*7+c] == 0 {
				zeros++
			}
		}
		require.Equal(t, 3, zeros)
	}
	require.EqualError(t, nn.InitXavierUniform(op.Empty(3), 1).Err(), "init_xavier_uniform: want from 2 to 1073741824 dimensions, got shape [3]")
}

// The fused attention and the one that returns weights are the same, with every kind of mask and extra key.
func TestAttentionWithWeights(t *testing.T) {
	core.ManualSeed(4)
	for _, o := range []nn.AttentionOptions{{}, {KDim: 6, VDim: 4}, {AddBiasKV: true}, {AddZeroAttn: true, NoBias: true}, {AddBiasKV: true, AddZeroAttn: true}} {
		m := nn.NewMultiheadAttention(8, 2, o)
		require.NoError(t, nn.Err(m))
		q, k, v := op.Randn(3, 4, 8), op.Randn(3, 4, 8), op.Randn(3, 4, 8)
		if o.KDim > 0 {
			k, v = op.Randn(3, 4, 6), op.Randn(3, 4, 4)
		}
		keep := core.FromSlice([]bool{true, false, true, true, true, true, false, true, true, true, true, true, true, true, true, false}, 4, 4)
		padding := core.FromSlice([]bool{false, false, false, true, false, true, false, false, false, false, false, false}, 3, 4)
		for _, mask := range []nn.Mask{{}, {Causal: true}, {Attention: keep}, {Attention: op.Randn(4, 4)}, {Padding: padding}, {Attention: op.Randn(4, 4), Padding: padding}} {
			y := m.ForwardQKV(q, k, v, mask)
			z, w := m.ForwardQKVWithWeights(q, k, v, mask)
			require.InDeltaSlice(t, floats(t, y), floats(t, z), 1e-5, "%+v", o)
			require.Equal(t, []int{3, 2, 4}, w.Shape()[:3])
			for _, s := range floats(t, op.Sum(w, []int{-1}, false)) {
				require.InDelta(t, 1, s, 1e-5)
			}
		}
		one := m.ForwardQKV(op.Select(q, 0, 1), op.Select(k, 0, 1), op.Select(v, 0, 1), nn.Mask{})
		require.InDeltaSlice(t, floats(t, m.ForwardQKV(q, k, v, nn.Mask{}))[32:64], floats(t, one), 1e-5)
	}
}

func TestConvolutionPadsByMode(t *testing.T) {
	x := op.Randn(1, 1, 5)
	for _, mode := range []string{"zeros", "reflect", "replicate", "circular"} {
		for _, o := range []op.ConvOptions{{Padding: []int{2}}, {Same: true}} {
			c := nn.NewConv1d(1, 1, 5, nn.ConvOptions{ConvOptions: o, PaddingMode: mode})
			pad := mode
			if mode == "zeros" {
				pad = "constant"
			}
			want := op.Conv1d(op.Pad(x, []int{2, 2}, op.PadOptions{Mode: pad}), c.Weight, c.Bias, op.ConvOptions{})
			require.InDeltaSlice(t, floats(t, want), floats(t, c.Forward(x)), 1e-6, mode)
		}
	}
}

func TestCumulativeBatchStatistics(t *testing.T) {
	b := nn.NewBatchNorm1d(1, nn.BatchNormOptions{Cumulative: true})
	for _, v := range []float32{1, 4, 10} {
		require.NoError(t, b.Forward(core.FromSlice([]float32{v - 1, v + 1}, 2, 1)).Err())
	}
	require.InDelta(t, 5, floats(t, b.RunningMean)[0], 1e-5)
	require.InDelta(t, 2, floats(t, b.RunningVar)[0], 1e-5)
	require.Equal(t, []float64{3}, floats(t, b.NumBatchesTracked))
	nn.Eval(b)
	require.InDelta(t, (3-5)/math.Sqrt(2+1e-5), floats(t, b.Forward(core.FromSlice([]float32{3, 3}, 2, 1)))[0], 1e-5)
}

// An optimiser made before a module moved has the old parameters, and says so.
func TestMovingReleasesTheOldParameters(t *testing.T) {
	l := nn.NewLinear(2, 2, nn.LinearOptions{})
	o, err := optim.NewSGD(nn.Parameters(l), nil)
	require.NoError(t, err)
	for _, p := range nn.Parameters(l) {
		p.SetGrad(op.Ones(p.Shape()...))
	}
	require.NoError(t, nn.ToDType(l, core.Float64))
	require.Equal(t, core.Float64, l.Weight.Grad().DType())
	require.EqualError(t, o.Step(), "sgd: parameter 0 of group 0 was released: make the optimiser after moving the module")
	o, err = optim.NewSGD(nn.Parameters(l), nil)
	require.NoError(t, err)
	require.NoError(t, o.Step())
	require.ErrorContains(t, nn.ToDType(l, core.Int64), "must be floating point or complex, got int64")
}

func TestDescribe(t *testing.T) {
	m := nn.NewSequential(nn.NewLinear(2, 3, nn.LinearOptions{}), nn.NewReLU(), nn.NewDropout(0.5))
	require.Equal(t, "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=true)\n  (1): ReLU()\n  (2): Dropout(p=0.5)\n)", nn.Describe(m))
}

func TestRReLUDrawsSlopesInTraining(t *testing.T) {
	m := nn.NewRReLU(0.25, 0.5)
	x := op.Full([]int{1000}, core.Num(-1), op.TensorOptions{})
	least, most := 0.0, -1.0
	for _, v := range floats(t, m.Forward(x)) {
		require.True(t, v <= -0.25 && v >= -0.5)
		least, most = min(least, v), max(most, v)
	}
	require.Less(t, least, -0.45)
	require.Greater(t, most, -0.3)
	nn.Eval(m)
	require.InDelta(t, -0.375, floats(t, m.Forward(x))[7], 1e-6)
	require.Equal(t, "RReLU(lower=0.25, upper=0.5)", nn.Describe(m))
	require.Equal(t, []float64{3}, floats(t, m.Forward(core.FromSlice([]float64{3}))))
}
