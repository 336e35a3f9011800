package op_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/op"
)

// TestResultsDoNotDependOnTheNumberOfThreads compares results and gradients of operations that are large enough to be
// shared by several threads, bit for bit.
func TestResultsDoNotDependOnTheNumberOfThreads(t *testing.T) {
	labels := func(n, classes int) *core.Tensor {
		v := make([]int64, n)
		for i := range v {
			v[i] = int64(i * 7 % classes)
		}
		return core.FromSlice(v)
	}
	cases := map[string]func() (inputs, outputs []*core.Tensor){
		"elementwise": func() (in, out []*core.Tensor) {
			x, y := op.Randn(300, 700), op.Randn(700)
			in = []*core.Tensor{x.SetRequiresGrad(true), y.SetRequiresGrad(true)}
			return in, []*core.Tensor{op.Mul(op.Gelu(x, "none"), y)}
		},
		"reductions": func() (in, out []*core.Tensor) {
			x := op.Randn(500, 411).SetRequiresGrad(true)
			return []*core.Tensor{x}, []*core.Tensor{op.Sum(x, nil, false), op.Sum(x, []int{0}, false), op.Sum(x, []int{1}, false),
				op.CumSum(x, 0), op.LogSoftmax(x, 0), op.Softmax(x, 1)}
		},
		"layer_norm": func() (in, out []*core.Tensor) {
			x, w, b := op.Randn(600, 256), op.Randn(256), op.Randn(256)
			for _, p := range []*core.Tensor{x, w, b} {
				p.SetRequiresGrad(true)
			}
			return []*core.Tensor{x, w, b}, []*core.Tensor{op.LayerNorm(x, []int{256}, w, b, 1e-5)}
		},
		"matmul": func() (in, out []*core.Tensor) {
			x, w := op.Randn(317, 1033).SetRequiresGrad(true), op.Randn(1033, 129).SetRequiresGrad(true)
			return []*core.Tensor{x, w}, []*core.Tensor{op.MatMul(x, w)}
		},
		"conv2d": func() (in, out []*core.Tensor) {
			x, w := op.Randn(5, 7, 33, 31).SetRequiresGrad(true), op.Randn(9, 7, 3, 3).SetRequiresGrad(true)
			return []*core.Tensor{x, w}, []*core.Tensor{op.Conv2d(x, w, nil, op.ConvOptions{Padding: []int{1, 1}})}
		},
		"attention": func() (in, out []*core.Tensor) {
			q, k, v := op.Randn(2, 4, 200, 32), op.Randn(2, 4, 200, 32), op.Randn(2, 4, 200, 32)
			for _, p := range []*core.Tensor{q, k, v} {
				p.SetRequiresGrad(true)
			}
			o := op.AttentionOptions{Causal: true, DropoutP: 0.1}
			return []*core.Tensor{q, k, v}, []*core.Tensor{op.ScaledDotProductAttention(q, k, v, o)}
		},
		"lstm_layer": func() (in, out []*core.Tensor) {
			for _, n := range []int{20, 5} { // cut along the batch, and along the features
				layer := []*core.Tensor{op.Randn(7, n, 30), op.Randn(n, 70), op.Randn(n, 70), op.Randn(280, 30), op.Randn(280, 70)}
				for _, p := range layer {
					in = append(in, p.SetRequiresGrad(true))
				}
				y, h, c := op.LSTMLayer(layer[0], layer[1], layer[2], layer[3], layer[4], nil, nil, op.RecurrentOptions{})
				out = append(out, y, h, c)
			}
			return in, out
		},
		"lstm_layer in bfloat16": func() (in, out []*core.Tensor) {
			for _, n := range []int{70, 5} {
				layer := []*core.Tensor{op.Randn(7, n, 30), op.Randn(n, 70), op.Randn(n, 70), op.Randn(280, 30), op.Randn(280, 70)}
				for i, p := range layer {
					layer[i] = op.To(op.Mul(p, core.Num(0.2)), core.BFloat16).Detach().SetRequiresGrad(true)
				}
				y, h, c := op.LSTMLayer(layer[0], layer[1], layer[2], layer[3], layer[4], nil, nil, op.RecurrentOptions{})
				in, out = append(in, layer...), append(out, y, h, c)
			}
			return in, out
		},
		"gru_layer": func() (in, out []*core.Tensor) {
			for _, n := range []int{20, 5} {
				layer := []*core.Tensor{op.Randn(7, n, 30), op.Randn(n, 70), op.Randn(210, 30), op.Randn(210, 70)}
				for _, p := range layer {
					in = append(in, p.SetRequiresGrad(true))
				}
				y, h := op.GRULayer(layer[0], layer[1], layer[2], layer[3], nil, nil, op.RecurrentOptions{Reverse: true})
				out = append(out, y, h)
			}
			return in, out
		},
		"complex reductions and products": func() (in, out []*core.Tensor) {
			x, y := op.Complex(op.Randn(300, 500), op.Randn(300, 500)), op.Complex(op.Randn(300, 500), op.Randn(300, 500))
			in = []*core.Tensor{x.SetRequiresGrad(true), y.SetRequiresGrad(true)}
			sums := op.Cat([]*core.Tensor{op.Sum(x, []int{0}, false), op.Sum(x, []int{1}, false), op.Prod(op.Sgn(x), []int{1}, false)}, 0)
			dots := op.Stack([]*core.Tensor{op.VDot(op.Flatten(x, 0, -1), op.Flatten(y, 0, -1)), op.Dot(op.Flatten(x, 0, -1), op.Flatten(y, 0, -1))}, 0)
			line := op.Sgn(op.Flatten(x, 0, -1)) // longer than the pieces of a scan
			made := op.Cat([]*core.Tensor{sums, dots, op.CumSum(line, 0), op.CumProd(line, 0), op.Flatten(op.MatMul(x, op.Transpose(y, 0, 1)), 0, -1)}, 0)
			return in, []*core.Tensor{op.ViewAsReal(made)}
		},
		"embedding and cross_entropy": func() (in, out []*core.Tensor) {
			w := op.Randn(50, 300).SetRequiresGrad(true)
			x := op.Embedding(labels(900, 50), w, op.EmbeddingOptions{})
			return []*core.Tensor{w}, []*core.Tensor{op.CrossEntropy(x, labels(900, 300), op.CrossEntropyOptions{})}
		},
	}
	old := cpu.NumThreads()
	defer cpu.SetNumThreads(old)
	for name, fn := range cases {
		t.Run(name, func(t *testing.T) {
			var want [][]byte
			for _, threads := range []int{1, 2, 5} {
				require.NoError(t, cpu.SetNumThreads(threads))
				inRank(t, func() {
					core.ManualSeed(11)
					in, out := fn()
					var seeds []*core.Tensor
					for _, o := range out {
						seeds = append(seeds, op.FullLike(o, core.Num(0.37), op.TensorOptions{}))
					}
					grads, err := autograd.Grad(out, in, seeds, autograd.Options{})
					require.NoError(t, err)
					var got [][]byte
					for _, x := range append(out, grads...) {
						b, err := x.Bytes()
						require.NoError(t, err)
						got = append(got, b)
					}
					if want == nil {
						want = got
					}
					for i := range got {
						require.True(t, string(want[i]) == string(got[i]), "value %d with %d threads", i, threads)
					}
				})
			}
		})
	}
}
