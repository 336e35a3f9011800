package gemm_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/gemm"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// fill replaces the elements of a matrix by numbers that bfloat16 does not have, and a few that are not finite.
func fill(r *rand.Rand, m *matrix) {
	for i := range m.rows {
		for j := range m.cols {
			x := r.NormFloat64()
			if r.IntN(5000) == 0 {
				x = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[r.IntN(3)]
			}
			store(m.dtype, m.data, m.at(i, j), x)
		}
	}
}

// rounded returns the matrix in bfloat16.
func (m *matrix) rounded() *matrix {
	n := *m
	n.dtype, n.data = core.BFloat16, make([]byte, len(m.data)/2)
	for i := range len(m.data) / 4 {
		store(core.BFloat16, n.data, i, load(core.Float32, m.data, i))
	}
	return &n
}

// Operands that are rounded as they are packed give the bits of those that were rounded before.
func TestRoundedOperands(t *testing.T) {
	forEachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(9, 10))
		workers := pool.New(2)
		defer workers.Close()
		for i := range 120 {
			p := randomProblem(r, []int{1, 2, 5, 16, 31, 33, 48, 100, 200, 300})
			if i%10 == 0 {
				p.m, p.n, p.k = 20, 30, 4100
			}
			p.in = core.Float32
			a, b := newMatrix(r, p.in, p.m, p.k, p.a), newMatrix(r, p.in, p.k, p.n, p.b)
			bias := newMatrix(r, p.in, p.n, 1, "rows")
			for _, m := range []*matrix{a, b, bias} {
				fill(r, m)
			}
			run := func(rounded int) []byte {
				c := newMatrix(rand.New(rand.NewPCG(1, 1)), core.BFloat16, p.m, p.n, p.c)
				operands := []*matrix{a, b, bias}
				for o, m := range operands {
					if rounded&(1<<o) == 0 {
						operands[o] = m.rounded()
					}
				}
				g := gemm.Product{M: p.m, N: p.n, K: p.k, A: operands[0].operand(), B: operands[1].operand(), C: c.operand(),
					In: int(core.BFloat16), Out: int(core.BFloat16), Alpha: p.alpha, Beta: p.beta, Rounded: rounded}
				if g.Rounded &^= gemm.OperandBias; p.bias {
					g.Rounded, g.Bias, g.BiasStep = rounded, operands[2].operand().Data, 1
				}
				var pin runtime.Pinner
				defer pin.Unpin()
				pin.Pin(unsafe.Pointer(&c.data[0]))
				for _, m := range operands {
					pin.Pin(unsafe.Pointer(&m.data[0]))
				}
				require.NoError(t, g.Run(workers.Ptr(), newGuardedMemory(t)))
				return c.data
			}
			want := run(0)
			for rounded := 1; rounded < 8; rounded++ {
				require.Equal(t, want, run(rounded), "%v, rounded %b", p, rounded)
			}
		}
	})
}
