package interpolate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
)

// TestResample compares with plain loops, along each of three dimensions.
func TestResample(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 90 {
		shape := [3]int{1 + r.IntN(70), 1 + r.IntN(20), 1 + r.IntN(70)}
		shape[i%3] = 1 + r.IntN(40)
		dim, out, taps := i%3, r.IntN(30), 1+r.IntN(6)
		dtype := []int{rawtensor.Float32, rawtensor.Float64, rawtensor.Uint8}[r.IntN(3)]
		shift := 0
		if dtype == rawtensor.Uint8 {
			shift = r.IntN(16)
		}
		ints, weights := []int64{int64(dim), int64(shift)}, make([]float64, out*taps)
		for j := range out {
			first := r.IntN(shape[dim])
			ints = append(ints, int64(first), int64(r.IntN(min(taps, shape[dim]-first)+1)))
			for k := range taps {
				weights[j*taps+k] = 2*r.Float64() - 1
				if shift > 0 {
					weights[j*taps+k] = float64(r.IntN(2<<shift) - 1<<(shift-1))
				}
			}
		}
		t.Run(fmt.Sprint(i, shape, dim, out, rawtensor.Name(dtype)), func(t *testing.T) {
			x := rawtensor.New(t, dtype, shape[:]...).Random(r)
			if dtype == rawtensor.Uint8 {
				x.Fill(func([]int) float64 { return float64(r.IntN(256)) })
			}
			result := shape
			result[dim] = out
			y := kerneltest.Apply(t, resampleCall, ints, weights, x, result[:])
			y.Each(func(at []int) {
				j, sum, from := at[dim], 0.0, append([]int{}, at...)
				first, count := int(ints[2+2*j]), int(ints[3+2*j])
				for k := range count {
					from[dim] = first + k
					sum += weights[j*taps+k] * x.Value(from...)
				}
				tolerance := map[int]float64{rawtensor.Float32: 1e-5, rawtensor.Float64: 1e-13}[dtype]
				if dtype == rawtensor.Uint8 {
					half := math.Floor(math.Ldexp(0.5, shift))
					sum = min(max(math.Floor(math.Ldexp(sum+half, -shift)), 0), 255)
				}
				require.InDelta(t, sum, y.Value(at...), tolerance, at)
			})
		})
	}
}
