package dropout

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// word returns word i of a generator, by the definition of Philox4x32-10.
func word(seed, offset uint64, i int) uint32 {
	counter := offset + uint64(i)/4
	c := [4]uint32{uint32(counter), uint32(counter >> 32), 0, 0}
	key := [2]uint32{uint32(seed), uint32(seed >> 32)}
	for range 10 {
		p, q := uint64(c[0])*0xD2511F53, uint64(c[2])*0xCD9E8D57
		c = [4]uint32{uint32(q>>32) ^ c[1] ^ key[0], uint32(q), uint32(p>>32) ^ c[3] ^ key[1], uint32(p)}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return c[i%4]
}

func TestAgainstDefinition(t *testing.T) {
	workers := pool.New(3)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	const seed, offset = 1<<50 + 3, 1<<32 - 5
	for _, dtype := range []int{rawtensor.Float16, rawtensor.BFloat16, rawtensor.Float32, rawtensor.Float64} {
		for _, n := range []int{0, 1, 5, 255, 257, 40000} {
			for _, p := range []float64{0, 0.3, 0.5, 1} {
				x := rawtensor.New(t, dtype, n).Fill(func([]int) float64 { return rng.NormFloat64() })
				y := rawtensor.New(t, dtype, n)
				scale := 1.0
				if p < 1 {
					scale = 1 / (1 - p)
				}
				apply(workers.Ptr(), dtype, x.Ptr, y.Ptr, n, seed, offset, p, scale)
				kept := 0
				for i := range n {
					want := 0.0
					if uint64(word(seed, offset, i)) < uint64((1-p)*0x1p32) {
						want, kept = x.Float(i)*scale, kept+1
					}
					if got := y.Float(i); want == 0 || got == 0 {
						require.Equal(t, want, got, "%s n %d p %v at %d", rawtensor.Name(dtype), n, p, i)
					} else {
						require.InEpsilon(t, want, got, 5e-3)
					}
				}
				if n > 10000 {
					require.InDelta(t, 1-p, float64(kept)/float64(n), 0.01)
				}
			}
		}
	}
}

func TestBitsDoNotDependOnThreads(t *testing.T) {
	workers := pool.New(4)
	defer workers.Close()
	const n = 100001
	one, many := rawtensor.New(t, rawtensor.Float32, n), rawtensor.New(t, rawtensor.Float32, n)
	apply(nil, rawtensor.Float32, nil, one.Ptr, n, 1, 2, 0.5, 2)
	apply(workers.Ptr(), rawtensor.Float32, nil, many.Ptr, n, 1, 2, 0.5, 2)
	require.True(t, bytes.Equal(one.Memory(), many.Memory()))
}

func BenchmarkDropout(b *testing.B) {
	workers := pool.New(2)
	defer workers.Close()
	for _, n := range []int{1000, 1 << 16, 1 << 24} {
		x, y := rawtensor.New(b, rawtensor.Float32, n), rawtensor.New(b, rawtensor.Float32, n)
		x.Random(rand.New(rand.NewPCG(1, 1)))
		b.Run(fmt.Sprintf("copy/%d", n), func(b *testing.B) {
			b.SetBytes(int64(8 * n))
			for range b.N {
				copy(y.Memory(), x.Memory())
			}
		})
		b.Run(fmt.Sprintf("dropout/%d", n), func(b *testing.B) {
			b.SetBytes(int64(8 * n))
			for range b.N {
				apply(workers.Ptr(), rawtensor.Float32, x.Ptr, y.Ptr, n, 1, 2, 0.1, 1/0.9)
			}
		})
	}
}
