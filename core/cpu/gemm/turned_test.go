package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/gemm"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// TestTurnedProducts compares products by a matrix of complex numbers with those of its parts, for sizes around those of panels.
func TestTurnedProducts(t *testing.T) {
	workers := pool.New(3)
	defer workers.Close()
	forEachVariant(t, func(t *testing.T) {
		for _, d := range []core.DType{core.Float32, core.Float64} {
			for _, size := range [][3]int{{1, 2, 1}, {3, 9, 5}, {16, 16, 16}, {5, 33, 17}, {64, 64, 64}, {70, 41, 200}, {200, 100, 300}, {5, 3, 3000}} {
				for _, byColumns := range []bool{false, true} {
					m, n, k := size[0], size[1], size[2]
					name := fmt.Sprint(gemm.Current(), d, size, byColumns)
					run := func(pool *pool.Pool) (a, z, c *matrix) {
						r := rand.New(rand.NewPCG(7, 7))
						a, c = newMatrix(r, d, m, 2*k, "rows"), newMatrix(r, d, m, 2*n, "padded rows")
						p := gemm.Product{M: m, N: 2 * n, K: 2 * k, A: a.operand(), C: c.operand(), In: int(d), Out: int(d), Turned: true, Alpha: 1}
						if byColumns {
							z = newMatrix(r, d, n, 2*k+4, "rows")
							p.B = gemm.Matrix{Data: z.operand().Data, Row: 1, Col: k + 2}
						} else {
							z = newMatrix(r, d, k, 2*n+4, "rows")
							p.B = gemm.Matrix{Data: z.operand().Data, Row: n + 2, Col: 1}
						}
						var pin runtime.Pinner
						defer pin.Unpin()
						for _, x := range []*matrix{a, z, c} {
							pin.Pin(&x.data[0])
						}
						before := append([]byte(nil), c.data...)
						require.NoError(t, p.Run(pool.Ptr(), newGuardedMemory(t)))
						requireOnlyChanged(t, c, before)
						return a, z, c
					}
					a, z, c := run(nil)
					_, _, again := run(workers)
					require.Equal(t, c.data, again.data, "%s: bits", name)
					as, zs, cs := a.byRows(), z.byRows(), c.byRows()
					for i := range m {
						for j := range n {
							var want complex128
							for q := range k {
								at := q*(2*n+4) + 2*j
								if byColumns {
									at = j*(2*k+4) + 2*q
								}
								want += complex(as[(2*i*k)+2*q], as[(2*i*k)+2*q+1]) * complex(zs[at], zs[at+1])
							}
							near := tolerance[d] * float64(8*k+1)
							require.InDelta(t, real(want), cs[2*i*n+2*j], near, name)
							require.InDelta(t, imag(want), cs[2*i*n+2*j+1], near, name)
						}
					}
				}
			}
		}
	})
}
