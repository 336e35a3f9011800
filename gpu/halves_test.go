package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
)

// halfOps are operations whose kernels read and write 16-bit elements four at a time. Their bits are those of the operation on the same
// numbers in float32, rounded once.
var halfOps = map[string]func(x, w, b *core.Tensor) *core.Tensor{
	"layer_norm":  func(x, w, b *core.Tensor) *core.Tensor { return op.LayerNorm(x, x.Shape()[1:], w, b, 1e-5) },
	"rms_norm":    func(x, w, _ *core.Tensor) *core.Tensor { return op.RMSNorm(x, x.Shape()[1:], w, 1e-5) },
	"softmax":     func(x, _, _ *core.Tensor) *core.Tensor { return op.Softmax(x.Detach(), 1) }, // the derivative reads the rounded result
	"log_softmax": func(x, _, _ *core.Tensor) *core.Tensor { return op.LogSoftmax(x.Detach(), 1) },
	"batch_norm": func(x, _, _ *core.Tensor) *core.Tensor {
		return op.BatchNorm(op.Reshape(x, 2, 3, x.Numel()/6), nil, nil, nil, nil, true, 0.1, 1e-5)
	},
	"sum of columns": func(x, _, _ *core.Tensor) *core.Tensor { return op.Sum(x, []int{0}, false) },
	"sum of rows":    func(x, _, _ *core.Tensor) *core.Tensor { return op.Sum(x, []int{1}, false) },
	"dropout": func(x, _, _ *core.Tensor) *core.Tensor {
		core.ManualSeed(3)
		return op.Dropout(x, 0.4, true)
	},
	"transposed":    func(x, _, _ *core.Tensor) *core.Tensor { return op.Contiguous(op.Transpose(x, 0, 1)) },
	"gelu":          func(x, _, _ *core.Tensor) *core.Tensor { return op.Gelu(x, "tanh") },
	"cross_entropy": halfLoss,
}

func halfLoss(x, _, _ *core.Tensor) *core.Tensor {
	target := op.ToDevice(op.Arange(nil, core.IntNum(int64(x.Size(0))), nil, op.TensorOptions{}), x.Device())
	return op.CrossEntropy(x, op.Remainder(target, core.IntNum(int64(x.Size(1)))), op.CrossEntropyOptions{})
}

// halves returns random numbers in bfloat16.
func halves(d core.Device, shape ...int) *core.Tensor {
	return op.To(op.ToDevice(op.Randn(shape...), d), core.BFloat16)
}

// bits returns an operation's result and the gradients of its inputs, which are x, w and b in dtype d; all in bfloat16.
func bits(t *testing.T, fn func(x, w, b *core.Tensor) *core.Tensor, d core.DType, inputs ...*core.Tensor) (all [][]byte) {
	t.Helper()
	var in [3]*core.Tensor
	for i, x := range inputs {
		in[i] = op.To(x, d).Detach().SetRequiresGrad(true)
	}
	y := fn(in[0], in[1], in[2])
	require.NoError(t, y.Err())
	seed := op.To(op.Cos(op.To(y.Detach(), core.BFloat16)), y.DType())
	var grads []*core.Tensor
	if y.RequiresGrad() {
		var err error
		grads, err = autograd.Grad([]*core.Tensor{y}, in[:], []*core.Tensor{seed},
			autograd.Options{AllowUnused: true})
		require.NoError(t, err)
	}
	for _, r := range append([]*core.Tensor{y}, grads...) {
		if r == nil {
			continue
		}
		b, err := op.Contiguous(op.To(r, core.BFloat16)).Bytes()
		require.NoError(t, err)
		all = append(all, b)
	}
	return all
}

func TestHalvesComputeAsFloat32(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	for name, fn := range halfOps {
		for _, shape := range [][2]int{{6, 64}, {18, 520}, {24, 4100}, {6, 67}, {6, 1027}} {
			t.Run(fmt.Sprint(name, shape), func(t *testing.T) {
				core.Tidy(func() {
					x := halves(d, shape[0], shape[1])
					w, b := halves(d, shape[1]), halves(d, shape[1])
					require.Equal(t, bits(t, fn, core.Float32, x, w, b), bits(t, fn, core.BFloat16, x, w, b))
				})
			})
		}
	}
}

// TestHalfParametersStepAsFloat32 compares optimisers' steps of 16-bit parameters, four elements at a time, with those of one at a time.
func TestHalfParametersStepAsFloat32(t *testing.T) {
	d := device(t)
	step := func(p, g *core.Tensor) []byte {
		p.SetGrad(g)
		o, err := optim.NewAdamW([]*core.Tensor{p}, optim.Hyper{"lr": 0.1})
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, o.Step())
		}
		b, err := p.Bytes()
		require.NoError(t, err)
		return b
	}
	core.Tidy(func() {
		const n = 260
		values, grads := halves(d, n+1), halves(d, n+1)
		aligned := op.Clone(op.Slice(values, 0, 0, n, 1)).SetRequiresGrad(true)
		got := step(aligned, op.Clone(op.Slice(grads, 0, 0, n, 1)))
		single := step(op.Clone(values).SetRequiresGrad(true), op.Clone(grads)) // an odd number of elements is stepped one by one
		require.Equal(t, single[:2*n], got)
	})
}
