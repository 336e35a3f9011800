package reduction_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
)

// The benchmarks report bytes read per second as a fraction of a copy's bytes.
func BenchmarkOneThread(b *testing.B)  { benchmark(b, 1) }
func BenchmarkAllThreads(b *testing.B) { benchmark(b, runtime.NumCPU()) }

func benchmark(b *testing.B, threads int) {
	for _, l := range []struct {
		name  string
		shape []int
		dims  []int
	}{
		{"all", []int{1 << 25}, []int{0}},
		{"rows", []int{1 << 13, 1 << 12}, []int{1}},
		{"short rows", []int{1 << 20, 32}, []int{1}},
		{"columns", []int{1 << 13, 1 << 12}, []int{0}},
		{"tall", []int{1 << 19, 64}, []int{0}},
		{"narrow", []int{1 << 23, 4}, []int{0}},
		{"channels", []int{128, 64, 64, 64}, []int{0, 2, 3}},
		{"in cache", []int{64, 1024}, []int{1}},
		{"columns in cache", []int{64, 1024}, []int{0}},
	} {
		for _, k := range []struct {
			kernel string
			dtype  core.DType
			floats []float64
		}{
			{"sum", core.Float32, nil}, {"sum", core.BFloat16, nil}, {"sum", core.Float16, nil}, {"sum", core.Float64, nil}, {"sum", core.Int64, nil},
			{"amax", core.Float32, nil}, {"argmax", core.Float32, nil}, {"prod", core.Float32, nil}, {"any", core.Bool, nil},
			{"var", core.Float32, []float64{1}}, {"norm", core.Float32, []float64{2}}, {"norm", core.Float32, []float64{math.Inf(1)}},
			{"logsumexp", core.Float32, nil},
		} {
			if k.kernel == "argmax" && len(l.dims) > 1 {
				continue
			}
			b.Run(fmt.Sprintf("%s/%s%v/%v", l.name, k.kernel, k.floats, k.dtype), func(b *testing.B) {
				in := kerneltest.Filled(b, k.dtype, l.shape...)
				_, outShape := groups(l.shape, l.dims, nil)
				out := kerneltest.New(b, sumType(k.dtype), outShape)
				if k.kernel == "any" {
					out.DType = int(core.Bool)
				}
				outs := []*rawtensor.Tensor{out}
				if k.kernel == "argmax" {
					outs = []*rawtensor.Tensor{kerneltest.New(b, core.Int64, outShape)}
				}
				kerneltest.Call{Threads: threads, Kernel: k.kernel, Ints: l.dims, Floats: k.floats, In: []*rawtensor.Tensor{in}, Out: outs}.
					Bench(b, len(in.Memory()))
			})
		}
	}
}
