package creation

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

func TestTriangleIndices(t *testing.T) {
	for _, c := range [][3]int{{3, 3, 0}, {4, 2, 1}, {2, 5, -1}, {3, 3, -5}, {3, 3, 5}, {0, 3, 0}} {
		for _, upper := range []bool{false, true} {
			var rows, cols []int64
			for i := range c[0] {
				for j := range c[1] {
					if !upper && j-i <= c[2] || upper && j-i >= c[2] {
						rows, cols = append(rows, int64(i)), append(cols, int64(j))
					}
				}
			}
			out := rawtensor.New(t, rawtensor.Int64, 2, len(rows))
			triangleIndices(kerneltest.ViewOf(out), c[0], c[1], c[2], upper)
			for i := range rows {
				require.Equal(t, []int64{rows[i], cols[i]}, []int64{out.Int(0, i), out.Int(1, i)})
			}
		}
	}
}

func TestSequences(t *testing.T) {
	workers := pool.New(2)
	defer workers.Close()
	for _, n := range []int{0, 1, 2, 5, 100, 70001} {
		for _, dtype := range rawtensor.DTypes {
			for _, out := range rawtensor.Layouts(t, dtype, []int{n}) {
				arange(workers.Ptr(), kerneltest.ViewOf(out), -3, 2, -3, 0.5)
				out.Each(func(index []int) {
					i := index[0]
					if rawtensor.IsFloat(dtype) {
						require.Equal(t, rawtensor.Encode(dtype, -3+0.5*float64(i)), out.Bits(i))
					} else {
						require.Equal(t, rawtensor.Mask(dtype, rawtensor.Convert(dtype, rawtensor.Int64, uint64(-3+2*i))), out.Bits(i))
					}
				})
			}
		}
		out := rawtensor.New(t, rawtensor.Float64, n)
		linspace(workers.Ptr(), kerneltest.ViewOf(out), 1, 4.7)
		out.Each(func(index []int) {
			want := 1 + 3.7*float64(index[0])/float64(max(n-1, 1))
			require.InDelta(t, want, out.Float(index...), 1e-14)
		})
		if n > 1 {
			require.Equal(t, []float64{1, 4.7}, []float64{out.Float(0), out.Float(n - 1)})
		}
		logspace(workers.Ptr(), kerneltest.ViewOf(out), -1, 2, 3)
		out.Each(func(index []int) {
			want := math.Pow(3, -1+3*float64(index[0])/float64(max(n-1, 1)))
			require.InEpsilon(t, want, out.Float(index...), 1e-13)
		})
	}
}
