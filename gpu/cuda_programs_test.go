package gpu_test

import (
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/cuda/nvrtc"
)

// TestEveryProgramIsCUDA compiles programs of the registry in CUDA C++, which needs no GPU: some, or all of them for each kind of GPU.
func TestEveryProgramIsCUDA(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles many programs")
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
				dtypes = append(dtypes, core.Float16, core.BFloat16)
			} else if i == 0 {
				dtypes = append(dtypes, s.DTypes...)
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
	for i, n := range rng.Perm(len(programs))[:120] {
		compile(programs[n], capabilities[i%len(capabilities)])
	}
}
