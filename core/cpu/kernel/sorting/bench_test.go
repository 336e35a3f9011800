package sorting_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
)

// BenchmarkSorting reports input bytes per second as a fraction of a copy's.
func BenchmarkSorting(b *testing.B) {
	for _, l := range []struct {
		shape []int
		dim   int
	}{{[]int{1 << 20}, 0}, {[]int{1000, 1000}, 1}, {[]int{1000, 1000}, 0}, {[]int{16384, 64}, 1}, {[]int{64, 50_000}, 1}} {
		for _, d := range []core.DType{core.Float32, core.BFloat16, core.Int64, core.Float64} {
			if d != core.Float32 && len(l.shape) > 1 {
				continue
			}
			in := kerneltest.New(b, d, l.shape)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range in.Numel() {
				kerneltest.Set(in, float64(r.Int32())/64, i)
			}
			n := l.shape[l.dim]
			for _, ref := range []reference{references(n)[0], {"median", []int{1}, one, median}, topk(10, true), topk(n/4, true)} {
				b.Run(fmt.Sprintf("%v dim %d/%s%v/%v", l.shape, l.dim, ref.kernel, ref.ints, d), func(b *testing.B) {
					shape := slices.Clone(l.shape)
					shape[l.dim] = ref.count(n)
					outs := []*rawtensor.Tensor{kerneltest.New(b, d, shape), kerneltest.New(b, core.Int64, shape)}
					kerneltest.Call{Threads: 1, Kernel: ref.kernel, Ints: append([]int{l.dim}, ref.ints...), In: []*rawtensor.Tensor{in}, Out: outs}.
						Bench(b, len(in.Memory()))
				})
			}
		}
	}
}
