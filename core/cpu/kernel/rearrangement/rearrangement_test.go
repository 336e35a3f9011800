package rearrangement

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

func TestTriangle(t *testing.T) {
	workers := pool.New(2)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(9, 10))
	for _, shape := range [][]int{{4, 4}, {3, 7}, {7, 3}, {2, 5, 6}, {2, 3, 4, 4}, {1, 1}, {0, 3}, {3, 0}, {2, 0, 3, 3}, {400, 300}} {
		for _, dtype := range rawtensor.DTypes {
			if rawtensor.Numel(shape) > 10000 && dtype != rawtensor.Float32 {
				continue
			}
			for inName, in := range rawtensor.Layouts(t, dtype, shape) {
				in.Random(rng)
				for outName, out := range rawtensor.Layouts(t, dtype, shape) {
					diagonal, upper := rng.IntN(9)-4, rng.IntN(2) == 1
					if rng.IntN(8) == 0 {
						diagonal = math.MaxInt32 * (2*rng.IntN(2) - 1)
					}
					for i := range out.Memory() {
						out.Memory()[i] = 0xa5
					}
					triangle(workers.Ptr(), kerneltest.ViewOf(out), kerneltest.ViewOf(in), diagonal, upper)
					requireTriangle(t, out, in, diagonal, upper, fmt.Sprint(shape, rawtensor.Name(dtype), inName, outName))
					kerneltest.RequireOthersUntouched(t, out)
				}
				want := in.Clone(t)
				triangle(workers.Ptr(), kerneltest.ViewOf(in), kerneltest.ViewOf(in), 1, false)
				requireTriangle(t, in, want, 1, false, "in place")
			}
		}
	}
}

func requireTriangle(t *testing.T, out, in *rawtensor.Tensor, diagonal int, upper bool, name string) {
	t.Helper()
	out.Each(func(index []int) {
		r, c := index[len(index)-2], index[len(index)-1]
		keep := c-r <= diagonal
		if upper {
			keep = c-r >= diagonal
		}
		var want uint64
		if keep {
			want = in.Bits(index...)
		}
		if got := out.Bits(index...); got != want {
			require.Equal(t, want, got, "%s diagonal %d upper %v at %v", name, diagonal, upper, index)
		}
	})
}
