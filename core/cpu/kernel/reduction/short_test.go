package reduction_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/stretchr/testify/require"
)

// shortShapes has lines of up to 40 elements along dimension 1, few and many, alone and beside others.
func shortShapes() (shapes [][]int) {
	for n := 1; n <= 40; n++ {
		shapes = append(shapes, []int{n*7%40 + 1, n}, []int{n % 6, n, n*3%21 + 1})
	}
	return append(shapes, []int{300, 3}, []int{131, 4}, []int{260, 32}, []int{50, 5, 3}, []int{70, 16, 4}, []int{9, 8, 33}, []int{3, 17, 50})
}

// Short rows and columns are reduced side by side.
func TestShortReductionsAgreeWithReference(t *testing.T) {
	for i, shape := range shortShapes() {
		l := kerneltest.Layouts[i%len(kerneltest.Layouts)]
		for _, d := range core.RealDTypes() {
			t.Run(fmt.Sprint(shape, l.Name, d), func(t *testing.T) {
				r := rand.New(rand.NewPCG(2, uint64(d)))
				in := l.Make(t, d, shape)
				for round := range 2 {
					kerneltest.Random(r, in, round > 0)
					want, outShape := groups(shape, []int{1}, kerneltest.Values(in))
					for _, ref := range references {
						checkReference(t, ref, d, in, []int{1}, want, outShape)
					}
					checkIndices(t, d, in, []int{1}, want, outShape)
				}
			})
		}
	}
}

// The elements of a short row are added in the lanes of long rows.
func TestShortSumsAddInTheOrderOfRows(t *testing.T) {
	for n := 1; n <= 32; n++ {
		for _, d := range []core.DType{core.Float32, core.Float64} {
			in, long := kerneltest.New(t, d, []int{150, n}), kerneltest.New(t, d, []int{150, 64})
			kerneltest.Random(rand.New(rand.NewPCG(uint64(n), 3)), in, false)
			x, lanes := kerneltest.Values(in), 64/d.Size()
			for i, v := range x {
				k := i % n // in a row of 64 elements with zeros, in the lane that it has in a row of n
				if full := n / lanes * lanes; full > 0 && k >= full {
					k += lanes - n%lanes
				}
				kerneltest.Set(long, v, i/n*64+k)
			}
			a, b := kerneltest.New(t, d, []int{150}), kerneltest.New(t, d, []int{150})
			launch(t, 1, "sum", []int{1}, nil, in, a)
			launch(t, 1, "sum", []int{1}, nil, long, b)
			require.Equal(t, kerneltest.Values(b), kerneltest.Values(a), "%v of %d elements", d, n)
		}
	}
}

// Chunks of short lines are adjacent in memory. The bits must not depend on the number of threads.
func TestShortReductionsOnManyThreads(t *testing.T) {
	for _, shape := range [][]int{{70_001, 3}, {9_001, 5, 3}} {
		in := kerneltest.New(t, core.Float32, shape)
		kerneltest.Random(rand.New(rand.NewPCG(4, 5)), in, true)
		_, outShape := groups(shape, []int{1}, nil)
		for _, ref := range references {
			one, many := kerneltest.New(t, ref.result(core.Float32), outShape), kerneltest.New(t, ref.result(core.Float32), outShape)
			launch(t, 1, ref.name, []int{1}, ref.floats, in, one)
			launch(t, 4, ref.name, []int{1}, ref.floats, in, many)
			kerneltest.RequireSameBits(t, one, many)
		}
	}
}
