package joining

import (
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

func TestCat(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	workers := pool.New(2)
	defer workers.Close()
	for _, dtype := range rawtensor.DTypes {
		for dim := range 3 {
			for _, sizes := range [][]int{{1}, {2, 3}, {0, 4, 0, 1}, {0}, {30, 1, 50, 7}} {
				shape, total := []int{40, 9, 5}, 0
				var ins []*rawtensor.Tensor
				var views []kernel.View
				for i, n := range sizes {
					shape[dim] = n
					total += n
					layouts := rawtensor.Layouts(t, dtype, shape)
					in := layouts[[]string{"contiguous", "transposed", "sliced", "narrowed"}[i%4]].Random(rng)
					ins, views = append(ins, in), append(views, *kerneltest.ViewOf(in))
				}
				shape[dim] = total
				for _, out := range rawtensor.Layouts(t, dtype, shape) {
					scratch := rawtensor.New(t, rawtensor.Uint8, len(sizes)*planBytes)
					cat(workers.Ptr(), kerneltest.ViewOf(out), dim, views, scratch.Ptr)
					at := 0
					for i, n := range sizes {
						kerneltest.RequireSameElements(t, out.Slice(dim, at, at+n, 1), ins[i])
						at += n
					}
				}
			}
		}
	}
}
