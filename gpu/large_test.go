package gpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
)

// compareWithCPU runs fn on CPU tensors and on copies of them on the GPU, and compares the results.
func compareWithCPU(t *testing.T, tolerance float64, fn func(x ...*core.Tensor) []*core.Tensor, x ...*core.Tensor) {
	t.Helper()
	d := device(t)
	there := make([]*core.Tensor, len(x))
	for i := range x {
		there[i] = op.ToDevice(x[i], d).Detach().SetRequiresGrad(x[i].RequiresGrad())
	}
	want, got := fn(x...), fn(there...)
	for i := range want {
		require.NoError(t, equal(t, want[i], got[i], tolerance, "result"))
	}
}

func TestManyWorkgroups(t *testing.T) {
	if testing.Short() {
		t.Skip("large")
	}
	core.Tidy(func() {
		x := op.Randn(1<<22+1000, 4) // 4.2 million rows of 4, more elements than 65535 workgroups have invocations
		compareWithCPU(t, 2e-6, func(x ...*core.Tensor) []*core.Tensor {
			y := op.Add(op.Mul(x[0], core.Num(3)), op.Slice(x[0], 1, 0, 1, 1))
			return []*core.Tensor{op.Slice(y, 0, 1<<22, 1<<22+1000, 1), op.Amax(y, []int{0}, false)}
		}, x)
	})
	core.Tidy(func() {
		x := op.Randn(70_000, 40) // a workgroup for each row
		compareWithCPU(t, 2e-6, func(x ...*core.Tensor) []*core.Tensor {
			return []*core.Tensor{op.Sum(x[0], []int{1}, false), op.Slice(op.Softmax(x[0], 1), 0, 65_000, 70_000, 1)}
		}, x)
	})
}

func TestLongReductions(t *testing.T) {
	if testing.Short() {
		t.Skip("large")
	}
	core.Tidy(func() {
		for _, shape := range [][]int{{300_000}, {3, 100_000}, {100_000, 3}} {
			x := op.Randn(shape...)
			compareWithCPU(t, 3e-6, func(x ...*core.Tensor) []*core.Tensor {
				all, first := []int(nil), []int{0}
				values, indices := op.Max(x[0], 0, false)
				return []*core.Tensor{
					op.Mean(x[0], all, false), op.Var(x[0], all, 1, false), op.LogSumExp(x[0], first, false), op.Amin(x[0], first, false),
					values, indices, op.CountNonzero(x[0], first),
				}
			}, x)
		}
	})
}

func TestLongCausalAttention(t *testing.T) {
	coretest.SkipUnderRace(t)
	core.Tidy(func() {
		q, k, v := op.Randn(1, 4, 300, 16), op.Randn(1, 2, 300, 16), op.Randn(1, 2, 300, 16)
		for _, x := range []*core.Tensor{q, k, v} {
			x.SetRequiresGrad(true)
		}
		compareWithCPU(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
			y := op.ScaledDotProductAttention(x[0], x[1], x[2], op.AttentionOptions{Causal: true, EnableGQA: true})
			g, err := autograd.Grad([]*core.Tensor{op.Sum(op.Mul(y, y), nil, false)}, x, nil, autograd.Options{})
			require.NoError(t, err)
			return append(g, y)
		}, q, k, v)
	})
}

// TestInterpolate compares interpolation in every mode, at sizes that do not divide, and its gradients with the CPU.
func TestInterpolate(t *testing.T) {
	coretest.SkipUnderRace(t)
	device(t)
	modes := []op.InterpolateOptions{
		{Size: []int{61, 9}}, {Size: []int{61, 9}, Mode: "nearest-exact"}, {ScaleFactor: []float64{1.9, 0.3}, Mode: "bilinear"},
		{Size: []int{70, 71}, Mode: "bilinear", AlignCorners: true}, {ScaleFactor: []float64{0.45}, Mode: "bicubic"},
		{Size: []int{50, 90}, Mode: "bicubic", AlignCorners: true}, {Size: []int{7, 5}, Mode: "area"}, {Size: []int{9, 50}, Mode: "bicubic", Antialias: true},
	}
	for _, d := range []core.DType{core.Float32, core.BFloat16} {
		for _, o := range modes {
			core.Tidy(func() {
				x := op.To(op.Randn(2, 3, 33, 37), d).SetRequiresGrad(true)
				compareWithCPU(t, map[core.DType]float64{core.Float32: 1e-5, core.BFloat16: 2e-2}[d], func(x ...*core.Tensor) []*core.Tensor {
					y := op.Interpolate(x[0], o)
					g, err := autograd.Grad([]*core.Tensor{op.Sum(op.Mul(y, y), nil, false)}, x, nil, autograd.Options{})
					require.NoError(t, err)
					return append(g, y)
				}, x)
			})
		}
	}
}
