package gpu_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// TestAccumulatingDerivatives checks derivatives that add to gradients that have arrived from elsewhere. Gradients must match the
// CPU's, and those of separate additions, which a hook on every node enforces.
func TestAccumulatingDerivatives(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	kinds := 5
	codes := make([]int64, 700)
	for i := range codes {
		codes[i] = int64(i * i % kinds)
	}
	one := 1
	sin := func(x *core.Tensor) *core.Tensor { return op.Sum(op.Sin(x), nil, false) }
	tied := func(o op.EmbeddingOptions) func(x *core.Tensor, w ...*core.Tensor) *core.Tensor {
		return func(x *core.Tensor, w ...*core.Tensor) *core.Tensor {
			all := op.ToDevice(core.FromSlice(codes, len(codes)), x.Device())
			some := op.ToDevice(core.FromSlice([]int64{3, 1, 3}, 3), x.Device())
			sum := sin(op.Linear(op.Embedding(some, w[0], o), w[0], nil))
			return op.Add(sum, op.Mul(sin(op.Embedding(all, w[0], o)), core.Num(0.01)))
		}
	}
	for name, c := range map[string]struct {
		loss func(x *core.Tensor, w ...*core.Tensor) *core.Tensor
		rows int
		size [2]int
		bits bool // bitwise equal to separate additions
	}{
		"residual blocks": {func(x *core.Tensor, w ...*core.Tensor) *core.Tensor {
			y := op.Add(x, op.Linear(op.LayerNorm(x, []int{36}, w[1], w[2], 1e-5), w[0], nil))
			return sin(op.Add(y, op.RMSNorm(y, []int{36}, w[2], 1e-5)))
		}, 50, [2]int{36, 36}, false},
		"tied embeddings":                {tied(op.EmbeddingOptions{}), 1, [2]int{kinds, 36}, true},
		"tied embeddings with a padding": {tied(op.EmbeddingOptions{PaddingIdx: &one}), 1, [2]int{kinds, 30}, true},
		"three products of one tensor":   {threeProducts, 65, [2]int{36, 36}, true},
		"products split along K":         {threeProducts, 3, [2]int{2100, 20}, true},
	} {
		t.Run(name, func(t *testing.T) {
			core.Tidy(func() {
				core.ManualSeed(3)
				scale := core.Num(0.3)
				numbers := []*core.Tensor{op.Randn(c.rows, c.size[1]), op.Mul(op.Randn(c.size[0], c.size[1]), scale), op.Randn(c.size[1]), op.Randn(c.size[1])}
				run := func(on core.Device, watched bool) (grads [][]float64, added int) {
					var in []*core.Tensor
					for _, p := range numbers {
						in = append(in, op.ToDevice(p, on).Detach().SetRequiresGrad(true))
					}
					loss := c.loss(op.Tanh(in[0]), in[1:]...)
					require.NoError(t, loss.Err())
					if watched {
						hookEveryNode(loss)
					}
					added = countAdditions(t, on, func() { require.NoError(t, autograd.Backward(loss)) })
					for _, p := range in {
						var v []float64
						if p.Grad() != nil {
							var err error
							v, err = core.Values[float64](p.Grad())
							require.NoError(t, err)
						}
						grads = append(grads, v)
					}
					return grads, added
				}
				want, _ := run(cpuDevice(t), false)
				separate, more := run(d, true)
				got, less := run(d, false)
				require.Less(t, less, more)
				for i := range want {
					for j, v := range want[i] {
						require.InDelta(t, v, got[i][j], 1e-5*(3+math.Abs(v)))
					}
					if c.bits {
						require.Equal(t, separate[i], got[i])
					} else {
						largest := 0.0 // tells the size of the terms
						for _, v := range want[i] {
							largest = max(largest, math.Abs(v))
						}
						for j, v := range separate[i] { // the order of the sum differs
							require.InDelta(t, v, got[i][j], 1e-6*(1+largest))
						}
					}
				}
			})
		})
	}
}

// threeProducts computes three products of one tensor, like the projections to queries, keys and values.
func threeProducts(x *core.Tensor, w ...*core.Tensor) *core.Tensor {
	var sum *core.Tensor
	for i := range 3 {
		y := op.Sum(op.Sin(op.Linear(x, op.Mul(w[0], core.Num(float64(i+1))), nil)), nil, false)
		if sum == nil {
			sum = y
		} else {
			sum = op.Add(sum, y)
		}
	}
	return sum
}

// hookEveryNode adds a hook to every node of y's graph, so that each gradient is computed by itself.
func hookEveryNode(y *core.Tensor) {
	seen := map[*core.Node]bool{}
	work := []*core.Node{y.AutogradMeta().Edge().Node}
	work[0].Release()
	for len(work) > 0 {
		n := work[0]
		work = work[1:]
		if n == nil || seen[n] || n.Leaf() != nil {
			continue
		}
		seen[n] = true
		n.PostHooks().Add(core.NodeHook{Fn: func(_, _ []*core.Tensor) []*core.Tensor { return nil }})
		for _, e := range n.Edges() {
			work = append(work, e.Node)
		}
	}
}

// TestBackwardOfGPTRunsNoAdditions checks that backward of GPT-2 adds gradients inside derivatives, and never by a separate
// addition.
func TestBackwardOfGPTRunsNoAdditions(t *testing.T) {
	for _, d := range []core.Device{device(t), cpuDevice(t)} {
		core.Tidy(func() {
			g, err := newGPT(50, 24, 32, 3, 4, d)
			require.NoError(t, err)
			tokens := op.ToDevice(core.FromSlice(make([]int64, 48), 2, 24), d)
			places := op.ToDevice(op.Arange(nil, core.IntNum(24), nil, op.TensorOptions{}), d)
			loss := g.loss(tokens, places, tokens)
			require.Zero(t, countAdditions(t, d, func() { require.NoError(t, autograd.Backward(loss)) }), d)
		})
	}
}

// countAdditions returns how many additions of tensors fn runs.
func countAdditions(t *testing.T, d core.Device, fn func()) (n int) {
	t.Helper()
	require.NoError(t, d.Synchronize())
	p, err := core.StartProfile(false)
	require.NoError(t, err)
	defer p.Stop()
	fn()
	require.NoError(t, d.Synchronize())
	executions := p.Stop()
	require.NotEmpty(t, executions)
	for _, e := range executions {
		if e.Op == "add" || e.Op == "add_" {
			n++
		}
	}
	return n
}
