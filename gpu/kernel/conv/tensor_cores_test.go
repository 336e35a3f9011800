package conv

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/gpu/cuda/nvrtc"
	"github.com/plait-ml/plait/gpu/shader"
)

// A tensorCase is a convolution for tensor cores.
type tensorCase struct {
	dtype                            core.DType
	x, w, y                          []int
	stride, padding, dilation, group int
}

var tensorCases = []tensorCase{
	{core.BFloat16, []int{64, 3, 224, 224}, []int{64, 3, 7, 7}, []int{64, 64, 112, 112}, 2, 3, 1, 1},
	{core.BFloat16, []int{64, 64, 56, 56}, []int{64, 64, 3, 3}, []int{64, 64, 56, 56}, 1, 1, 1, 1},
	{core.Float16, []int{64, 128, 56, 56}, []int{128, 128, 3, 3}, []int{64, 128, 28, 28}, 2, 1, 1, 1},
	{core.BFloat16, []int{64, 256, 56, 56}, []int{512, 256, 1, 1}, []int{64, 512, 28, 28}, 2, 0, 1, 1},
	{core.BFloat16, []int{64, 2048, 7, 7}, []int{512, 2048, 1, 1}, []int{64, 512, 7, 7}, 1, 0, 1, 1},
	{core.BFloat16, []int{64, 1024, 14, 14}, []int{256, 1024, 1, 1}, []int{64, 256, 14, 14}, 1, 0, 1, 1},
	{core.BFloat16, []int{64, 256, 56, 56}, []int{64, 256, 1, 1}, []int{64, 64, 56, 56}, 1, 0, 1, 1},
	{core.BFloat16, []int{2, 40, 9, 9}, []int{24, 20, 3, 3}, []int{2, 24, 9, 9}, 1, 2, 2, 2},
}

// record records the forward pass and both gradients on a GPU of a compute capability.
func (c tensorCase) record(t *testing.T, r *recording, compute int) {
	t.Helper()
	recorder := &shader.Recorder{Runtime: r, GPU: tensorGPU(compute, 132)}
	x, w, y := r.operand(c.dtype, c.x, false), r.operand(c.dtype, c.w, false), r.operand(c.dtype, c.y, false)
	require.NoError(t, convForwardCall(recorder, c.call(y, x, w)))
	require.NoError(t, convInputGradCall(recorder, c.call(x, y, w)))
	require.NoError(t, convWeightGradCall(recorder, c.call(w, x, y)))
}

// tensorGPU returns a GPU of a compute capability without a library.
func tensorGPU(compute, multiprocessors int) *shader.Device {
	return &shader.Device{
		Language: shader.CUDA{}, Compute: compute, Limits: shader.Limits{Binding: 1 << 34, Workgroups: 65535, WorkgroupStorage: 48 << 10},
		Tuning: shader.Tuning{Multiprocessors: multiprocessors, TensorConvolutions: true},
	}
}

// call returns the call that computes out from a and b.
func (c tensorCase) call(out, a, b core.Operand) *core.Call {
	call := &core.Call{Op: "conv", Outs: []core.Operand{out}, Ins: []core.Operand{a, b}}
	both := func(n int) []int { return []int{n, n} }
	contract.SetConv(call, both(c.stride), both(c.padding), both(c.dilation), c.group, false)
	return call
}

// TestTensorPrograms compiles programs for GPUs of several kinds.
func TestTensorPrograms(t *testing.T) {
	_, _, _, missing := nvrtc.Version()
	if missing != nil && os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	for _, c := range tensorCases {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			for _, capability := range []int{80, 90} {
				r := newRecording()
				c.record(t, r, capability)
				n := 0
				for key, source := range r.programs {
					if !strings.Contains(source.Text, "struct problem") {
						continue
					}
					n++
					require.LessOrEqual(t, source.Dynamic, 49<<10+8<<10, "%s: two workgroups share a multiprocessor's memory", key.Name)
					if missing != nil {
						continue
					}
					_, err := nvrtc.Compile(source.Text, key.Name, capability)
					require.NoError(t, err)
				}
				require.GreaterOrEqual(t, n, 2, "results and the gradient of the input may share one")
			}
			if missing != nil {
				t.Skip(missing)
			}
		})
	}
}
