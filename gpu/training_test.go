package gpu_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/gpu"
)

// A gpt is a small GPT-2. Shapes: B texts, T tokens in each, C channels, V token kinds.
type gpt struct {
	kinds, context, width, layers, heads int
	p                                    []*core.Tensor // the embeddings, then twelve for each layer, then those of the last norm
	optimizer                            *optim.Optimizer
	dropout                              float64
}

// newGPT creates a model on a device. The initial values come from the CPU, so that they are the same on all devices.
func newGPT(kinds, context, width, layers, heads int, d core.Device) (*gpt, error) {
	g := &gpt{kinds: kinds, context: context, width: width, layers: layers, heads: heads}
	add := func(std float64, shape ...int) {
		t := op.Ones(shape...)
		switch {
		case std < 0:
			t = op.Zeros(shape...)
		case std > 0:
			t = op.Mul(op.Randn(shape...), core.Num(std))
		}
		g.p = append(g.p, op.ToDevice(t, d).Detach().SetRequiresGrad(true))
	}
	add(0.02, kinds, width)
	add(0.02, context, width)
	for range layers {
		add(0, width)
		add(-1, width)
		add(0.02, 3*width, width)
		add(-1, 3*width)
		add(0.02, width, width)
		add(-1, width)
		add(0, width)
		add(-1, width)
		add(0.02, 4*width, width)
		add(-1, 4*width)
		add(0.02, width, 4*width)
		add(-1, width)
	}
	add(0, width)
	add(-1, width)
	var err error
	g.optimizer, err = optim.NewAdamW(g.p, optim.Hyper{"lr": 3e-3})
	return g, err
}

func (g *gpt) loss(tokens, places, targets *core.Tensor) *core.Tensor {
	b, t, c := tokens.Size(0), tokens.Size(1), g.width
	x := op.Add(op.Embedding(tokens, g.p[0], op.EmbeddingOptions{}), op.Embedding(places, g.p[1], op.EmbeddingOptions{}))
	for i := range g.layers {
		w := g.p[2+12*i:]
		h := op.Linear(op.LayerNorm(x, []int{c}, w[0], w[1], 1e-5), w[2], w[3])
		var qkv [3]*core.Tensor
		for j, part := range op.Split(h, c, 2) {
			qkv[j] = op.Transpose(op.Reshape(part, b, t, g.heads, c/g.heads), 1, 2)
		}
		y := op.ScaledDotProductAttention(qkv[0], qkv[1], qkv[2], op.AttentionOptions{Causal: true})
		x = op.Add(x, op.Linear(op.Reshape(op.Transpose(y, 1, 2), b, t, c), w[4], w[5]))
		h = op.Gelu(op.Linear(op.LayerNorm(x, []int{c}, w[6], w[7], 1e-5), w[8], w[9]), "tanh")
		x = op.Add(x, op.Dropout(op.Linear(h, w[10], w[11]), g.dropout, true))
	}
	n := len(g.p)
	x = op.LayerNorm(x, []int{c}, g.p[n-2], g.p[n-1], 1e-5)
	return op.CrossEntropy(op.Reshape(op.Linear(x, g.p[0], nil), b*t, g.kinds), op.Reshape(targets, b*t), op.CrossEntropyOptions{})
}

// step runs a training step and returns the loss, without waiting for it.
func (g *gpt) step(tokens, places, targets *core.Tensor) (loss *core.Tensor, err error) {
	scope := core.RunScope(func() []*core.Tensor {
		l := g.loss(tokens, places, targets)
		if err = autograd.Backward(l); err == nil {
			err = g.optimizer.Step()
		}
		g.optimizer.ZeroGrad()
		return []*core.Tensor{l.Detach()}
	})
	return scope[0], err
}

// train trains a model with so many token kinds on one batch, and returns the losses.
func train(t *testing.T, d core.Device, kinds, steps int) []float64 {
	core.ManualSeed(1)
	g, err := newGPT(kinds, 24, 32, 2, 4, d)
	require.NoError(t, err)
	codes := make([]int64, 2*25)
	for i := range codes {
		codes[i] = int64(i*i%17 + i%5)
	}
	all := op.ToDevice(core.FromSlice(codes, 2, 25), d)
	tokens, targets := op.Contiguous(op.Slice(all, 1, 0, 24, 1)), op.Contiguous(op.Slice(all, 1, 1, 25, 1))
	places := op.ToDevice(op.Arange(nil, core.IntNum(24), nil, op.TensorOptions{}), d)
	require.NoError(t, d.Synchronize())
	var before gpu.Traffic
	onGPU, ok := d.(*gpu.Device)
	if ok {
		before = onGPU.Traffic()
	}
	var losses []float64
	for range steps {
		loss, err := g.step(tokens, places, targets)
		require.NoError(t, err)
		v, err := loss.Item()
		require.NoError(t, err)
		losses = append(losses, v)
	}
	if ok {
		after := onGPU.Traffic()
		require.Equal(t, steps, after.Downloads-before.Downloads, "a step reads its loss and nothing else")
		require.Zero(t, after.Uploads-before.Uploads)
		require.Equal(t, 4*steps, after.DownloadBytes-before.DownloadBytes)
	}
	return losses
}

func TestTraining(t *testing.T) {
	d := device(t)
	const steps = 8
	host, err := core.OpenDevice("cpu")
	require.NoError(t, err)
	for _, kinds := range []int{50, 1027} { // with 1027 the gradients of scores have padded rows
		var want, got []float64
		core.Tidy(func() { want = train(t, host, kinds, steps) })
		core.Tidy(func() { got = train(t, d, kinds, steps) })
		require.InDeltaSlice(t, want, got, 2e-4)
		require.Less(t, got[steps-1], got[0]-0.5, "it learns")
	}
}

func TestGradScalerFindsInfinity(t *testing.T) {
	d := device(t)
	core.Tidy(func() {
		param := func(values ...float32) *core.Tensor {
			p := op.ToDevice(op.Zeros(len(values)), d).Detach().SetRequiresGrad(true)
			require.NoError(t, autograd.Backward(op.Sum(op.Mul(p, op.ToDevice(core.FromSlice(values, len(values)), d)), nil, false)))
			return p
		}
		inf := float32(math.Inf(1))
		for name, c := range map[string]struct {
			grads  [][]float32
			finite bool
		}{
			"all are finite":   {[][]float32{{4, -8, 0}, {2}, {}}, true},
			"an infinity":      {[][]float32{{4, 8}, {1, 2, -inf, 3}}, false},
			"a NaN":            {[][]float32{{float32(math.NaN()), inf, 1}, {2}}, false},
			"large ones":       {[][]float32{{3e38, -3e38, 3e38}}, true},
			"only empty ones":  {[][]float32{{}}, true},
			"in the last word": {[][]float32{append(make([]float32, 70000), inf)}, false},
		} {
			var params []*core.Tensor
			for _, g := range c.grads {
				params = append(params, param(g...))
			}
			s := optim.NewGradScaler()
			s.Scale = 4
			require.NoError(t, s.Unscale(s, params), name)
			finite, err := s.Check(s, params)
			require.NoError(t, err, name)
			require.Equal(t, c.finite, finite, name)
			for i, p := range params {
				if !c.finite || len(c.grads[i]) == 0 {
					continue
				}
				v, err := core.Values[float32](p.Grad())
				require.NoError(t, err, name)
				for j, g := range c.grads[i] {
					require.Equal(t, g/4, v[j], name)
				}
			}
			require.NoError(t, s.Update(), name)
			require.Equal(t, map[bool]float64{true: 4, false: 2}[c.finite], s.Scale, name)
		}
	})
}
