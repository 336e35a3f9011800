package nn_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
)

type block struct {
	nn.Base
	Norm    *nn.LayerNorm
	Up      *nn.Linear
	Gate    *nn.Linear `plait:"name=gate_proj"`
	Scale   *core.Tensor
	Steps   *core.Tensor `plait:"buffer"`
	Cache   *core.Tensor `plait:"transient"`
	Left    *nn.Linear   `plait:"-"`
	hidden  *nn.Linear   // parts count whether exported or not
	scratch *core.Tensor // tensors only if exported
}

func newBlock() *block {
	return &block{
		Norm: nn.NewLayerNorm([]int{4}, nn.NormOptions{}), Up: nn.NewLinear(4, 8, nn.LinearOptions{}),
		Gate: nn.NewLinear(4, 8, nn.LinearOptions{NoBias: true}), hidden: nn.NewLinear(4, 4, nn.LinearOptions{}),
		Scale: core.FromSlice([]float32{1}).SetRequiresGrad(true), Steps: core.Scalar(int64(3)), Cache: core.Scalar(float32(1)),
		Left: nn.NewLinear(1, 1, nn.LinearOptions{}), scratch: core.Scalar(float32(1)),
	}
}

func names(list []nn.Named) []string {
	var out []string
	for _, n := range list {
		out = append(out, n.Name)
	}
	return out
}

func TestNamesFollowTheFields(t *testing.T) {
	m := nn.NewSequential(newBlock(), nn.NewFunc(op.Relu), nn.NewFlatten())
	_ = m
	b := newBlock()
	require.Equal(t, []string{"scale", "steps", "cache", "norm.weight", "norm.bias", "up.weight", "up.bias", "gate_proj.weight", "hidden.weight", "hidden.bias"},
		names(nn.NamedTensors(b)))
	require.Equal(t, []string{"scale", "norm.weight", "norm.bias", "up.weight", "up.bias", "gate_proj.weight", "hidden.weight", "hidden.bias"},
		names(nn.NamedParameters(b)))
	require.NotContains(t, nn.StateDict(b), "cache")
	require.Contains(t, nn.StateDict(b), "steps")
	require.Equal(t, 1+4+4+32+8+32+16+4, nn.NumParameters(b))
	a := nn.NewMultiheadAttention(4, 2, nn.AttentionOptions{})
	require.Equal(t, []string{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}, names(nn.NamedTensors(a)))
	list := nn.NewModuleList(nn.NewLinear(1, 1, nn.LinearOptions{}), nn.NewLinear(1, 1, nn.LinearOptions{}))
	require.Equal(t, []string{"0.weight", "0.bias", "1.weight", "1.bias"}, names(nn.NamedTensors(list)))
	dict := nn.NewModuleDict(map[string]nn.Layer{"b": &nn.Identity{}, "a": nn.NewLinear(1, 1, nn.LinearOptions{})})
	require.Equal(t, []string{"a.weight", "a.bias"}, names(nn.NamedTensors(dict)))
	bn := nn.NewBatchNorm2d(3, nn.BatchNormOptions{})
	require.Equal(t, []string{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}, names(nn.NamedTensors(bn)))
	e := nn.NewTransformerEncoder(1, 4, 2, nn.TransformerOptions{FeedForward: 8, NormFirst: true})
	require.Equal(t, []string{"layers.0.self_attn.in_proj_weight", "layers.0.self_attn.in_proj_bias", "layers.0.self_attn.out_proj.weight",
		"layers.0.self_attn.out_proj.bias", "layers.0.linear1.weight", "layers.0.linear1.bias", "layers.0.linear2.weight", "layers.0.linear2.bias",
		"layers.0.norm1.weight", "layers.0.norm1.bias", "layers.0.norm2.weight", "layers.0.norm2.bias", "norm.weight", "norm.bias"},
		names(nn.NamedTensors(e)))
}

// Forward makes a block a layer.
func (b *block) Forward(x *core.Tensor) *core.Tensor {
	h := b.Norm.Forward(x)
	return op.Mul(op.Mul(b.Up.Forward(h), op.Sigmoid(b.Gate.Forward(h))), b.Scale)
}

func TestSharedParametersCountOnce(t *testing.T) {
	l := nn.NewLinear(3, 3, nn.LinearOptions{})
	m := nn.NewSequential(l, l)
	require.Len(t, nn.Parameters(m), 2)
	require.Len(t, nn.Modules(m), 2)
	require.Len(t, nn.StateDict(m), 4)
	require.NoError(t, nn.ToDType(m, core.Float64))
	require.Equal(t, core.Float64, l.Weight.DType())
	require.True(t, l.Weight.RequiresGrad())
	require.Len(t, nn.Parameters(m), 2)
}

func TestModesReachEveryPart(t *testing.T) {
	m := nn.NewSequential(newBlock(), nn.NewDropout(0.5))
	nn.Eval(m)
	for _, p := range nn.Modules(m) {
		if d, ok := p.Module.(*nn.Dropout); ok {
			require.False(t, d.Training())
		}
	}
	nn.Train(m)
	require.True(t, m.Training())
}

func TestLoadStateDict(t *testing.T) {
	a, b := newBlock(), newBlock()
	state := nn.StateDict(a)
	_, err := nn.LoadStateDict(b, state, true)
	require.NoError(t, err)
	x := op.Rand(2, 4)
	ya, err := core.Values[float32](a.Forward(x))
	require.NoError(t, err)
	yb, err := core.Values[float32](b.Forward(x))
	require.NoError(t, err)
	require.Equal(t, ya, yb)

	before, err := core.Values[float32](b.Up.Weight)
	require.NoError(t, err)
	delete(state, "scale")
	state["extra"] = core.Scalar(float32(1))
	state["up.weight"] = op.Zeros(8, 4)
	r, err := nn.LoadStateDict(b, state, true)
	require.ErrorContains(t, err, "missing: scale; unexpected: extra")
	require.Equal(t, []string{"scale"}, r.Missing)
	after, err := core.Values[float32](b.Up.Weight)
	require.NoError(t, err)
	require.Equal(t, before, after, "a failing load changes nothing")
	r, err = nn.LoadStateDict(b, state, false)
	require.NoError(t, err)
	require.Equal(t, []string{"extra"}, r.Unexpected)
	state["up.weight"] = op.Zeros(4, 8)
	_, err = nn.LoadStateDict(b, state, false)
	require.ErrorContains(t, err, "up.weight (got [4 8], want [8 4])")
}

func TestErrorsOfConstructionSurface(t *testing.T) {
	m := nn.NewMultiheadAttention(5, 2, nn.AttentionOptions{})
	require.ErrorContains(t, nn.Err(m), "in_proj_weight: multihead_attention: 2 heads do not divide 5")
	require.ErrorContains(t, m.Forward(op.Rand(1, 2, 5)).Err(), "do not divide")
	require.ErrorContains(t, nn.Err(nn.NewLinear(-1, 2, nn.LinearOptions{})), "negative dimension")
}

func TestInitialisationStatistics(t *testing.T) {
	core.ManualSeed(1)
	std := func(x *core.Tensor) float64 {
		v, err := core.Values[float64](x)
		require.NoError(t, err)
		s, s2 := 0.0, 0.0
		for _, a := range v {
			s += a
			s2 += a * a
		}
		n := float64(len(v))
		return math.Sqrt(s2/n - s/n*s/n)
	}
	require.InDelta(t, 0.1/math.Sqrt(3), std(nn.NewLinear(100, 300, nn.LinearOptions{}).Weight), 0.001)
	require.InDelta(t, 1, std(nn.NewEmbedding(100, 300, nn.EmbeddingOptions{}).Weight), 0.02)
	require.InDelta(t, 1/math.Sqrt(3*36), std(nn.NewConv2d(4, 200, 3, nn.ConvOptions{}).Weight), 0.002)
	p := 3
	e := nn.NewEmbedding(5, 4, nn.EmbeddingOptions{PaddingIdx: &p})
	v, err := core.Values[float32](op.Narrow(e.Weight, 0, 3, 1))
	require.NoError(t, err)
	require.Equal(t, []float32{0, 0, 0, 0}, v)
	require.True(t, e.Weight.RequiresGrad())
}

func TestLayersTrain(t *testing.T) {
	core.ManualSeed(3)
	x := op.Rand(6, 1, 8, 8)
	m := nn.NewSequential(
		nn.NewConv2d(1, 4, 3, nn.ConvOptions{}), nn.NewBatchNorm2d(4, nn.BatchNormOptions{}), nn.NewFunc(op.Relu),
		nn.NewMaxPool2d(2, op.MaxPoolOptions{}), nn.NewFlatten(), nn.NewLinear(36, 12, nn.LinearOptions{}), nn.NewPReLU(1, 0.25),
		nn.NewDropout(0.1), nn.NewLinear(12, 3, nn.LinearOptions{}))
	require.NoError(t, nn.Err(m))
	target := core.FromSlice([]int64{0, 1, 2, 0, 1, 2})
	loss := op.CrossEntropy(m.Forward(x), target, op.CrossEntropyOptions{})
	require.NoError(t, autograd.Backward(loss))
	for _, p := range nn.NamedParameters(m) {
		require.NotNil(t, p.Tensor.Grad(), p.Name)
		require.Equal(t, p.Tensor.Shape(), p.Tensor.Grad().Shape())
	}
	nn.ZeroGrad(m)
	require.Nil(t, nn.Parameters(m)[0].Grad())
	_, err := core.Values[float32](m.Forward(op.Rand(2, 3)))
	require.Error(t, err)
}

func TestTransformersAttend(t *testing.T) {
	core.ManualSeed(5)
	o := nn.TransformerOptions{FeedForward: 16, NormFirst: true}
	e, d := nn.NewTransformerEncoder(2, 8, 2, o), nn.NewTransformerDecoder(1, 8, 2, o)
	require.NoError(t, nn.Err(e))
	x := op.Rand(2, 5, 8)
	full, err := core.Values[float64](e.Encode(x, nn.Mask{Causal: true}))
	require.NoError(t, err)
	part, err := core.Values[float64](e.Encode(op.Narrow(x, 1, 0, 3), nn.Mask{Causal: true}))
	require.NoError(t, err)
	require.InDeltaSlice(t, full[:24], part[:24], 1e-5, "a causal encoder does not see what comes after")
	padding := core.FromSlice([]bool{false, false, false, true, true, false, false, false, true, true}, 2, 5)
	masked, err := core.Values[float64](e.Encode(x, nn.Mask{Padding: padding}))
	require.NoError(t, err)
	short, err := core.Values[float64](e.Encode(op.Narrow(x, 1, 0, 3), nn.Mask{}))
	require.NoError(t, err)
	require.InDeltaSlice(t, short[:24], masked[:24], 1e-5, "padding is not seen")
	y := d.Decode(op.Rand(2, 4, 8), e.Forward(x), nn.Mask{Causal: true}, nn.Mask{})
	require.NoError(t, autograd.Backward(op.Sum(y, nil, false)))
	for _, p := range append(nn.NamedParameters(e), nn.NamedParameters(d)...) {
		require.NotNil(t, p.Tensor.Grad(), p.Name)
	}
}
