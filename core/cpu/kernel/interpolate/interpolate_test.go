package interpolate

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
)

func TestInterpolations(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		in, out := []int{r.IntN(4), 1 + r.IntN(3), 1 + r.IntN(9), 1 + r.IntN(40)}, []int{0, 1 + r.IntN(3), 1 + r.IntN(9), 1 + r.IntN(50)}
		out[0] = in[0]
		mode, align := int64(r.IntN(4)), int64(r.IntN(2))
		scale := []float64{0, 0, 0}
		if r.IntN(2) == 0 {
			scale[2] = float64(out[3]) / float64(in[3]) * 1.01
		}
		t.Run(fmt.Sprintf("%d mode %d", i, mode), func(t *testing.T) {
			kerneltest.CheckLinear(t, r, interpolateCall, interpolateGradCall, []int64{3, mode, align}, scale, in, out)
		})
	}
}
