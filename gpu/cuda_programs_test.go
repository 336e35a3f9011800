package gpu_test

import (
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/cuda/nvrtc"
	"github.com/plait-ml/plait/gpu/shader"
	"github.com/plait-ml/plait/parallel/collective"
)

// TestEveryProgramIsCUDA compiles programs of the registry in CUDA C++, which needs no GPU: some, or all of them for each kind of GPU.
func TestEveryProgramIsCUDA(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles many programs")
	}
	if *under != "" {
		t.Skip("needs no GPU")
	}
	if _, _, path, err := nvrtc.Version(); err == nil {
		t.Log(path)
	} else if os.Getenv("CI") == "true" && runtime.GOOS == "linux" {
		t.Fatal(err)
	} else {
		t.Skip(err)
	}
	opened, err := core.OpenDevice("fakegpu:2")
	require.NoError(t, err)
	d := opened.(*gpu.Device)
	for n, r := range op.Rows() {
		for i, s := range r.Samples {
			dtypes := []core.DType{core.Float32}
			if i == 0 && s.DTypes == nil {
				dtypes = append(dtypes, core.Float16, core.BFloat16, core.Float64)
			} else if i == 0 {
				dtypes = append(dtypes, s.DTypes...)
			} else if *all && (s.DTypes == nil || slices.Contains(s.DTypes, core.Float64)) {
				dtypes = append(dtypes, core.Float64)
			}
			for _, dtype := range dtypes {
				ctx := core.NewRankContext(0, nil)
				core.WithContext(ctx, func() {
					core.Tidy(func() { runOnFakeDevice(t, r, s, d, dtype, n+i) })
				})
				ctx.Free()
			}
		}
	}
	require.NoError(t, d.Synchronize())
	programs := gpu.Programs(d)
	require.Greater(t, len(programs), 1000)
	capabilities := []int{80, 90}
	compile := func(text string, capability int) {
		_, err := nvrtc.Compile(text, "program", capability)
		assert.NoError(t, err, "for compute capability %d:\n%s", capability, text)
	}
	if *all {
		for _, text := range programs {
			for _, c := range capabilities {
				compile(text, c)
			}
		}
		return
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i, n := range rng.Perm(len(programs))[:60] {
		compile(programs[n], capabilities[i%len(capabilities)])
	}
}

// TestProductsAreCUDA compiles the programs of products that are larger than those of the registry, and of convolutions for a library.
func TestProductsAreCUDA(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles many programs")
	}
	if _, _, _, err := nvrtc.Version(); err != nil {
		t.Skip(err)
	}
	opened, err := core.OpenDevice("fakegpu:2")
	require.NoError(t, err)
	d := opened.(*gpu.Device)
	require.NoError(t, d.Synchronize())
	known := map[string]bool{}
	for _, text := range gpu.Programs(d) {
		known[text] = true
	}
	defer gpu.PretendLibrary(d)()
	for dtype := range halfTolerance {
		core.Tidy(func() {
			on := func(sizes ...int) *core.Tensor { return op.ToDevice(op.To(op.Randn(sizes...), dtype), d) }
			for _, k := range []int{64, 131} {
				m, v := on(300, k), on(k, 3)
				op.MatMul(m, v)
				op.MatMul(byColumns(m), v)
				op.Linear(op.Transpose(v, 0, 1), m, on(300))
				op.MatMul(on(128, k), on(k, 132))
			}
			op.MatMul(on(5, 8, 4000), on(5, 4000, 2))
			x, w := on(2, 32, 9, 9).SetRequiresGrad(true), on(24, 32, 3, 3).SetRequiresGrad(true)
			y := op.Conv2d(x, w, nil, op.ConvOptions{})
			_, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x, w}, []*core.Tensor{y}, autograd.Options{})
			require.NoError(t, err)
			require.NoError(t, d.Synchronize())
		})
	}
	fresh := 0
	for _, text := range gpu.Programs(d) {
		if !known[text] {
			fresh++
			_, err := nvrtc.Compile(text, "program", 90)
			assert.NoError(t, err, text)
		}
	}
	require.Greater(t, fresh, 20)
}

// TestCombineIsCUDA compiles the programs of collectives for each dtype and operation.
func TestCombineIsCUDA(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles many programs")
	}
	if _, _, _, err := nvrtc.Version(); err != nil {
		t.Skip(err)
	}
	opened, err := core.OpenDevice("fakegpu:3")
	require.NoError(t, err)
	d := opened.(*gpu.Device)
	gpu.Target(d).Language = shader.CUDA{}
	const n = 20001 // in vectors, and the rest one by one
	for dtype := range halfTolerance {
		for _, o := range []collective.ReduceOp{collective.Sum, collective.Avg, collective.Max} {
			combineOn(t, d, dtype, n, o)
		}
	}
	for _, o := range []collective.ReduceOp{collective.Sum, collective.Avg, collective.Product, collective.Min} {
		combineOn(t, d, core.Float32, n, o)
	}
	for _, dtype := range []core.DType{core.Int32, core.Int64, core.Uint8, core.Bool} {
		for _, o := range []collective.ReduceOp{collective.Sum, collective.Product, collective.Min, collective.BitXor} {
			combineOn(t, d, dtype, n, o)
		}
	}
	require.NoError(t, d.Synchronize())
	programs := gpu.Programs(d)
	require.Greater(t, len(programs), 20)
	for _, text := range programs {
		_, err := nvrtc.Compile(text, "program", 90)
		assert.NoError(t, err, text)
	}
}

// combineOn reduces the tensors of four ranks on one device.
func combineOn(t *testing.T, d *gpu.Device, dtype core.DType, n int, o collective.ReduceOp) {
	core.Tidy(func() {
		var lists [][]*core.Tensor
		for range 4 {
			lists = append(lists, []*core.Tensor{op.EmptyWith([]int{n}, op.TensorOptions{DType: &dtype, Device: d})})
		}
		require.NoError(t, collective.AllReduceSyncMany(lists, o))
	})
}
