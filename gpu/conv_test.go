package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
)

// TestConvolutions checks convolutions and their gradients, with channels that tiles divide and do not divide, and with patches
// that are gathered, stored, or stored for a library. The latter's products run as programs where the device has none.
func TestConvolutions(t *testing.T) {
	coretest.SkipUnderRace(t)
	quick := sized(t, false, true)
	for _, c := range []struct {
		x, w   []int
		o      op.ConvOptions
		long   bool // other cases cover its programs: on software runs with -all alone
		halves bool // also in 16-bit dtypes
	}{
		{[]int{2, 32, 7, 7}, []int{40, 32, 3, 3}, op.ConvOptions{Padding: []int{1}}, false, true},
		{[]int{1, 64, 9, 5}, []int{33, 64, 3, 2}, op.ConvOptions{Padding: []int{1, 0}}, true, false},
		{[]int{3, 64, 8, 8}, []int{64, 64, 3, 3}, op.ConvOptions{Stride: []int{2}, Padding: []int{1}}, false, true},
		{[]int{2, 48, 11, 10}, []int{8, 48, 3, 3}, op.ConvOptions{Padding: []int{3}, Dilation: []int{2}}, false, false},
		{[]int{2, 48, 8, 9}, []int{64, 24, 3, 3}, op.ConvOptions{Padding: []int{1}, Groups: 2}, false, true},
		{[]int{2, 3, 19, 18}, []int{16, 3, 7, 7}, op.ConvOptions{Stride: []int{2}, Padding: []int{3}}, false, true},
		{[]int{2, 32, 3, 2}, []int{32, 32, 5, 5}, op.ConvOptions{Padding: []int{2}}, false, false},
		{[]int{1, 32, 8, 8}, []int{65, 32, 1, 1}, op.ConvOptions{}, false, true},
		{[]int{5, 40, 7, 7}, []int{24, 40, 1, 1}, op.ConvOptions{}, true, true},
		{[]int{2, 32, 9, 9}, []int{16, 32, 1, 1}, op.ConvOptions{Stride: []int{2}}, true, true},
		{[]int{2, 32, 12, 13}, []int{32, 1, 3, 3}, op.ConvOptions{Padding: []int{1}, Groups: 32}, false, true},
		{[]int{3, 6, 9, 8}, []int{12, 1, 3, 2}, op.ConvOptions{Padding: []int{2, 1}, Stride: []int{2, 3}, Dilation: []int{1, 2}, Groups: 6}, false, true},
		{[]int{2, 5, 40}, []int{10, 1, 30}, op.ConvOptions{Padding: []int{4}, Groups: 5}, true, false},
		{[]int{2, 3, 4, 5, 6}, []int{6, 1, 3, 3, 4}, op.ConvOptions{Padding: []int{1, 0, 2}, Groups: 3}, true, false},
		{[]int{2, 3, 20, 9}, []int{3, 1, 5, 7}, op.ConvOptions{Padding: []int{2, 5}, Dilation: []int{2, 1}, Groups: 3}, false, false},
		{[]int{7, 1, 61, 67}, []int{1, 1, 3, 3}, op.ConvOptions{Stride: []int{2}}, false, false},
		{[]int{2, 24, 50}, []int{5, 24, 40}, op.ConvOptions{Padding: []int{4}}, false, false}, // too many taps: patches are stored
		{[]int{2, 24, 50}, []int{5, 24, 30}, op.ConvOptions{Padding: []int{4}}, true, false},
		{[]int{1, 32, 4, 5, 6}, []int{16, 32, 3, 2, 3}, op.ConvOptions{Padding: []int{1, 0, 1}, Stride: []int{1, 2, 1}}, true, true},
		{[]int{1, 32, 4, 5, 6}, []int{16, 32, 2, 3, 3}, op.ConvOptions{Padding: []int{1, 1, 0}, Dilation: []int{2, 1, 1}}, false, false},
	} {
		for _, dtype := range []core.DType{core.Float32, core.BFloat16, core.Float16} {
			for _, way := range []string{"gathered", "stored", "for a library", "on tensor cores"} {
				if dtype != core.Float32 && (!c.halves || way == "stored") || c.long && quick || testing.Short() && dtype == core.Float16 ||
					way == "on tensor cores" && (dtype == core.Float32 || gpu.Target(device(t)).Compute == 0) {
					continue
				}
				t.Run(fmt.Sprint(c.x, c.w, c.o, dtype, way), func(t *testing.T) {
					few, rounded := 0, 0.0
					switch way {
					case "stored":
						few = 1 << 40
					case "for a library":
						if gpu.Target(device(t)).Library {
							rounded = 2e-3 // TF32 has 10 bits of mantissa
						}
						defer gpu.PretendLibrary(device(t))()
						core.Permit(core.TF32Convolutions, true)
						defer core.Permit(core.TF32Convolutions, false)
					}
					defer gpu.Tune(device(t), func(f *shader.Tuning) { f.PatchBytes, f.TensorConvolutions = few, way == "on tensor cores" })()
					core.Tidy(func() {
						x, w, b := op.Randn(c.x...), op.Randn(c.w...), op.Randn(c.w[0])
						tolerance := max(1e-4, rounded)
						if dtype != core.Float32 {
							tolerance = 0.1
							x, w, b = op.To(x, dtype), op.To(w, dtype), op.To(b, dtype)
						}
						x, w, b = x.SetRequiresGrad(true), w.SetRequiresGrad(true), b.SetRequiresGrad(true)
						conv := []func(x, w, b *core.Tensor, o op.ConvOptions) *core.Tensor{op.Conv1d, op.Conv2d, op.Conv3d}[len(c.x)-3]
						var g *core.Tensor
						compareWithCPU(t, tolerance, func(x ...*core.Tensor) []*core.Tensor {
							y := conv(x[0], x[1], x[2], c.o)
							if g == nil {
								g = op.To(op.Randn(y.Shape()...), dtype)
							}
							grads, err := autograd.Grad([]*core.Tensor{y}, x, []*core.Tensor{op.ToDevice(g, y.Device())}, autograd.Options{})
							require.NoError(t, err)
							return append([]*core.Tensor{y}, grads...)
						}, x, w, b)
					})
				})
			}
		}
	}
}

// TestConvolutionScratchMemory checks how much memory a convolution and its gradients take for patches, if they are gathered and
// if they are stored.
func TestConvolutionScratchMemory(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	const patches = 4 * (4 * 16 * 25) * (32 * 32)
	taken := func(few int) int {
		// A GPU of one multiprocessor has no reason to split K, which takes memory of its own.
		defer gpu.Tune(device(t), func(f *shader.Tuning) { f.PatchBytes, f.Multiprocessors = few, 1 })()
		x, w := on(d, 4, 16, 32, 32).SetRequiresGrad(true), on(d, 32, 16, 5, 5).SetRequiresGrad(true)
		defer x.Release()
		defer w.Release()
		require.NoError(t, d.Synchronize())
		d.EmptyCache()
		before := d.Reserved() - gpu.FreeBytes(d)
		core.Tidy(func() {
			y := op.Conv2d(x, w, nil, op.ConvOptions{Padding: []int{2}})
			_, err := autograd.Grad([]*core.Tensor{y}, []*core.Tensor{x, w}, []*core.Tensor{y}, autograd.Options{})
			require.NoError(t, err)
			require.NoError(t, d.Synchronize())
		})
		return d.Reserved() - gpu.FreeBytes(d) - before
	}
	stored, gathered := taken(1<<40), taken(0)
	t.Logf("stored %d, gathered %d, of patches %d", stored, gathered, patches)
	require.Greater(t, stored, patches)
	require.Less(t, gathered, stored-patches+patches/4)
}
