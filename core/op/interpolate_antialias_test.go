package op_test

import (
	"math"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// smoothRow is the definition in one dimension: an average weighted by a filter as wide as an element of the smaller of the two.
func smoothRow(x []float64, out int, scale, reach float64, filter func(float64) float64) []float64 {
	y, width := make([]float64, out), math.Max(scale, 1)
	for j := range y {
		centre, sum := (float64(j)+0.5)*scale, 0.0
		for i, v := range x {
			if d := math.Abs(float64(i)+0.5-centre) / width; d < reach {
				y[j] += v * filter(d)
				sum += filter(d)
			}
		}
		y[j] /= sum
	}
	return y
}

func TestAntialiasAgainstItsDefinition(t *testing.T) {
	sinc := func(x float64) float64 { return math.Sin(math.Pi*x+1e-300) / (math.Pi*x + 1e-300) }
	for mode, f := range map[string]struct {
		reach  float64
		filter func(float64) float64
	}{
		"bilinear": {1, func(x float64) float64 { return 1 - x }},
		"bicubic": {2, func(x float64) float64 {
			if x < 1 {
				return 1.5*x*x*x - 2.5*x*x + 1
			}
			return -0.5*x*x*x + 2.5*x*x - 4*x + 2
		}},
		"lanczos": {3, func(x float64) float64 { return sinc(x) * sinc(x/3) }},
	} {
		for _, sizes := range [][2]int{{7, 3}, {40, 9}, {5, 12}, {1, 4}, {9, 1}, {6, 6}, {300, 7}} {
			for _, factor := range []float64{0, 1.03} {
				in, out := sizes[0], sizes[1]
				o := op.InterpolateOptions{Size: []int{out, 2}, Mode: mode, Antialias: true}
				scale := float64(in) / float64(out)
				if factor != 0 && in != out { // equal sizes stay as they are
					f := float64(out) / float64(in) * factor
					o.Size, o.ScaleFactor = nil, []float64{f, 1}
					out, scale = int(float64(in)*f), 1/f
				}
				x := uniform(5, 2, 1, in, 2)
				y := op.Interpolate(x, o)
				require.NoError(t, y.Err())
				require.Equal(t, []int{2, 1, out, 2}, y.Shape())
				got, from := values(t, y), values(t, x)
				for line := range 4 {
					row, at := make([]float64, in), func(n, i int) int { return (line/2*n+i)*2 + line%2 }
					for i := range row {
						row[i] = from[at(in, i)]
					}
					for i, want := range smoothRow(row, out, scale, f.reach, f.filter) {
						require.InDelta(t, want, got[at(out, i)], 1e-12, "%s %v %v", mode, sizes, factor)
					}
				}
			}
		}
	}
}

// TestAntialiasImagesOfBytes compares with PyTorch's values, which are rounded after each of the two directions.
func TestAntialiasImagesOfBytes(t *testing.T) {
	x := core.FromSlice([]uint8{0, 255, 30, 77, 201, 5, 90, 12, 140, 33, 64, 250, 8, 190, 120}, 1, 1, 3, 5)
	for mode, want := range map[string][]float64{
		"bilinear": {84, 78, 122, 105, 86, 123},
		"bicubic":  {82, 80, 119, 104, 89, 121},
		"lanczos":  {81, 82, 111, 100, 96, 116},
	} {
		y := op.Interpolate(x, op.InterpolateOptions{Size: []int{2, 3}, Mode: mode, Antialias: true})
		require.Equal(t, core.Uint8, y.DType())
		require.Equal(t, want, values(t, y), mode)
	}
}
