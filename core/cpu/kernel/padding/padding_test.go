package padding

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/kerneltest"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
)

func TestPaddings(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 80 {
		mode := int64(r.IntN(4))
		in := []int{r.IntN(4), 1 + r.IntN(3), 1 + r.IntN(5), 1 + r.IntN(40)}
		out := append([]int{}, in...)
		ints := []int64{3, mode}
		for d := 1; d < 4; d++ {
			limit := in[d]
			if mode == reflectMode {
				limit--
			}
			left, right := r.IntN(2*limit+1)-limit, r.IntN(limit+1)
			ints = append(ints, int64(left))
			out[d] += left + right
		}
		t.Run(fmt.Sprintf("%d mode %d", i, mode), func(t *testing.T) {
			if mode != 0 { // constant padding is not linear
				kerneltest.CheckLinear(t, r, padCall, padGradCall, ints, nil, in, out)
			}
			for _, dtype := range rawtensor.DTypes[1:] {
				x := rawtensor.New(t, dtype, in...).Random(r)
				y := kerneltest.Apply(t, padCall, ints, nil, x, out)
				y.Each(func(o []int) {
					at := []int{o[0], 0, 0, 0}
					for d := 1; d < 4; d++ {
						p, n := o[d]-int(ints[1+d]), in[d]
						switch {
						case p >= 0 && p < n:
						case mode == reflectMode:
							if p = max(p, -p); p >= n {
								p = 2*(n-1) - p
							}
						case mode == 2:
							p = min(max(p, 0), n-1)
						case mode == 3:
							p = (p + n) % n
						default:
							require.Equal(t, 3.0, y.Value(o...))
							return
						}
						at[d] = p
					}
					require.Equal(t, x.Bits(at...), y.Bits(o...))
				})
			}
		})
	}
}

const reflectMode = 1
