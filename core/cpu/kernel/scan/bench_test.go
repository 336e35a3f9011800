package scan_test

import (
	"fmt"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
)

// BenchmarkScan reports bytes read and written per second as a fraction of a copy's.
func BenchmarkScan(b *testing.B) {
	for _, l := range []struct {
		name  string
		shape []int
		dim   int
	}{{"one line", []int{1 << 24}, 0}, {"rows", []int{4096, 4096}, 1}, {"columns", []int{4096, 4096}, 0}} {
		for _, ref := range references {
			b.Run(fmt.Sprintf("%s/%s", l.name, ref.name), func(b *testing.B) {
				in := kerneltest.Filled(b, core.Float32, l.shape...)
				ints := []int{l.dim, 0}
				outs, bytes := []*rawtensor.Tensor{kerneltest.Filled(b, core.Float32, l.shape...)}, 2*len(in.Memory())
				if ref.indexed {
					outs = append(outs, kerneltest.Filled(b, core.Int64, l.shape...))
					bytes, ints = 2*bytes, ints[:1]
				}
				kerneltest.Call{Threads: 1, Kernel: ref.name, Ints: ints, In: []*rawtensor.Tensor{in}, Out: outs}.Bench(b, bytes)
			})
		}
	}
}
