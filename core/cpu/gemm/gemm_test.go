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

var variants = map[string]gemm.Variant{
	"best": gemm.Best, "baseline": gemm.Baseline, "avx2": gemm.AVX2, "avx512": gemm.AVX512,
	"avx512_bf16": gemm.AVX512BF16, "amx": gemm.AMX,
}

// forEachVariant runs a test on every instruction set of this machine.
func forEachVariant(t *testing.T, test func(t *testing.T)) {
	for name, v := range variants {
		t.Run(name, func(t *testing.T) {
			former, ok := gemm.Use(v)
			if !ok {
				t.Skip("not on this machine")
			}
			defer gemm.Use(former)
			test(t)
		})
	}
}

func TestProducts(t *testing.T) {
	forEachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		workers := pool.New(3)
		defer workers.Close()
		small := []int{1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 17, 24, 31, 32, 33, 47, 48, 49}
		for i := range 600 {
			randomProblem(r, small).check(t, uint64(i), workers.Ptr())
		}
		large := []int{1, 3, 12, 65, 96, 100, 130, 200, 385, 500}
		for i := range 25 {
			randomProblem(r, large).check(t, uint64(i), workers.Ptr())
		}
	})
}

func TestThinProducts(t *testing.T) {
	forEachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		workers := pool.New(2)
		defer workers.Close()
		for i := range 150 {
			p := randomProblem(r, []int{1, 2, 15, 33, 64, 100, 257, 1030})
			if i%2 == 0 {
				p.m = 1 + r.IntN(4)
			} else {
				p.n = 1 + r.IntN(4)
			}
			p.check(t, uint64(i), workers.Ptr())
		}
	})
}

func TestDeepProducts(t *testing.T) {
	forEachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 6))
		workers := pool.New(2)
		defer workers.Close()
		for i := range 15 {
			p := randomProblem(r, []int{1, 2, 5, 13, 40})
			p.k = 4096 + r.IntN(5000)
			p.check(t, uint64(i), workers.Ptr())
		}
	})
}

func TestEmptyProducts(t *testing.T) {
	for _, in := range dtypes {
		for _, bias := range []bool{false, true} {
			for _, size := range [][2]int{{1, 1}, {3, 1}, {1, 70}, {5, 6}, {200, 300}} {
				p := problem{m: size[0], n: size[1], k: 0, in: in[0], out: in[1], a: "rows", b: "rows", c: "rows",
					alpha: 1, beta: 0, bias: bias, biasStep: 1}
				p.check(t, 1, nil)
				p.beta = 0.5
				p.check(t, 2, nil)
				p.c, p.beta = "columns", 1
				p.check(t, 3, nil)
			}
		}
	}
	none := gemm.Product{M: 0, N: 3, K: 2, In: int(core.Float32), Out: int(core.Float32), Alpha: 1}
	require.NoError(t, none.Run(nil, newGuardedMemory(t)))
	none = gemm.Product{M: 3, N: 0, K: 2, In: int(core.Float32), Out: int(core.Float32), Alpha: 1}
	require.NoError(t, none.Run(nil, newGuardedMemory(t)))
	none = gemm.Product{M: 3, N: 3, K: 2, In: int(core.Float32), Out: int(core.Float32), Alpha: 1,
		Batch: []gemm.Dim{{Size: 0}}}
	require.NoError(t, none.Run(nil, newGuardedMemory(t)))
}

// All pools give the same bits, even a pool that is busy with another call.
func TestSameBitsForAnyPool(t *testing.T) {
	forEachVariant(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		for i := range 20 {
			p := randomProblem(r, []int{1, 3, 50, 64, 130, 257, 300})
			if i%4 == 0 {
				p.m, p.n, p.k = 20, 30, 5000
			}
			alone, _ := p.run(t, uint64(i), nil)
			for _, threads := range []int{2, 3, 8} {
				workers := pool.New(threads)
				got, _ := p.run(t, uint64(i), workers.Ptr())
				require.Equal(t, alone.data, got.data, "%v on %d threads", p, threads)
				workers.Close()
			}
		}
	})
}

func TestNaNAndInfinityPass(t *testing.T) {
	forEachVariant(t, func(t *testing.T) {
		for _, n := range []int{1, 3, 40, 150} {
			a, b, c := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
			for i := range n {
				a[i*n+i], b[i*n+i] = 1, 1
			}
			a[0] = float32(math.NaN())
			b[n*n-1] = float32(math.Inf(1))
			var pin runtime.Pinner
			pin.Pin(&a[0])
			pin.Pin(&b[0])
			pin.Pin(&c[0])
			p := gemm.Product{M: n, N: n, K: n, In: int(core.Float32), Out: int(core.Float32), Alpha: 1,
				A: gemm.Matrix{Data: unsafe.Pointer(&a[0]), Row: n, Col: 1},
				B: gemm.Matrix{Data: unsafe.Pointer(&b[0]), Row: n, Col: 1},
				C: gemm.Matrix{Data: unsafe.Pointer(&c[0]), Row: n, Col: 1}}
			require.NoError(t, p.Run(nil, newGuardedMemory(t)))
			pin.Unpin()
			require.True(t, math.IsNaN(float64(c[0])))
			if n > 1 {
				require.True(t, math.IsInf(float64(c[n*n-1]), 1))
				require.True(t, math.IsNaN(float64(c[n-1])), "0 * inf")
			}
		}
	})
}

func TestBatches(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	workers := pool.New(2)
	defer workers.Close()
	for _, size := range [][3]int{{3, 4, 5}, {1, 33, 20}, {40, 50, 60}, {170, 170, 170}} {
		m, n, k := size[0], size[1], size[2]
		// A is [2, 3, m, k]. B is [3, k, n], broadcast along the first dimension, or [k, n], broadcast along both.
		a := newMatrix(r, core.Float32, 6*m, k, "rows")
		for _, shared := range []bool{false, true} {
			batches := 3
			dims := []gemm.Dim{{Size: 2, A: 3 * m * k, C: 3 * m * n}, {Size: 3, A: m * k, B: k * n, C: m * n}}
			if shared {
				batches = 1
				dims[1].B = 0
			}
			b := newMatrix(r, core.Float32, batches*k, n, "rows")
			were := values{a: a.byRows(), bias: make([]float64, batches*n)}
			for i := range batches {
				one := *b
				one.start, one.rows = b.at(i*k, 0), k
				were.b = append(were.b, one.byColumns()...)
			}
			c := newMatrix(r, core.Float32, 6*m, n, "rows")
			before := append([]byte(nil), c.data...)
			var pin runtime.Pinner
			pin.Pin(&a.data[0])
			pin.Pin(&b.data[0])
			pin.Pin(&c.data[0])
			p := gemm.Product{M: m, N: n, K: k, A: a.operand(), B: b.operand(), C: c.operand(), Batch: dims,
				In: int(core.Float32), Out: int(core.Float32), Alpha: 1}
			require.NoError(t, p.Run(workers.Ptr(), newGuardedMemory(t)))
			pin.Unpin()
			requireOnlyChanged(t, c, before)
			for row := range 6 * m {
				batch := row / m % batches
				for j := range n {
					want, _ := problem{k: k, alpha: 1}.expected(were, row, batch*n+j)
					if got := load(c.dtype, c.data, c.at(row, j)); math.Abs(got-want) > 1e-3 {
						require.Failf(t, "wrong product", "at [%d %d]: got %v, want %v", row, j, got, want)
					}
				}
			}
		}
	}
}

// A batch that is longer than its matrices, along which B stays: the input of a linear layer with two dimensions swapped.
func TestBatchLongerThanRows(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	workers := pool.New(2)
	defer workers.Close()
	const n, k = 21, 30
	for _, size := range [][3]int{{37, 2, 1}, {50, 3, 2}, {5, 4, 6}} {
		length, m, outer := size[0], size[1], size[2]
		// A is [outer, m, length, k], C [outer, length, m, n].
		a, b := newMatrix(r, core.Float32, outer*m*length, k, "rows"), newMatrix(r, core.Float32, k, n, "rows")
		c := newMatrix(r, core.Float32, outer*length*m, n, "rows")
		var pin runtime.Pinner
		pin.Pin(&a.data[0])
		pin.Pin(&b.data[0])
		pin.Pin(&c.data[0])
		p := gemm.Product{M: m, N: n, K: k, A: a.operand(), B: b.operand(), C: c.operand(), In: int(core.Float32),
			Out: int(core.Float32), Alpha: 1}
		p.A.Row = length * a.operand().Row
		p.Batch = []gemm.Dim{{Size: outer, A: m * length * a.operand().Row, C: m * length * c.operand().Row},
			{Size: length, A: a.operand().Row, C: m * c.operand().Row}}
		require.NoError(t, p.Run(workers.Ptr(), newGuardedMemory(t)))
		pin.Unpin()
		were := values{a: a.byRows(), b: b.byColumns(), bias: make([]float64, n)}
		for o := range outer {
			for i := range length {
				for row := range m {
					for j := range n {
						want, _ := problem{k: k, alpha: 1}.expected(were, (o*m+row)*length+i, j)
						require.InDelta(t, want, load(c.dtype, c.data, c.at((o*length+i)*m+row, j)), 1e-4)
					}
				}
			}
		}
	}
}

// These products pack their operands in several rounds. Each row of A selects a row of B, so the expected result needs
// no sum.
func TestLargeProducts(t *testing.T) {
	workers := pool.New(2)
	defer workers.Close()
	for _, s := range []struct {
		m, n, k int
		out     core.DType
		c       string
	}{
		{600, 600, 8000, core.Float32, "rows"},
		{590, 610, 7501, core.Float32, "columns"},
		{130, 9000, 40, core.BFloat16, "rows"},
		{9000, 130, 40, core.Float32, "steps"},
		{40, 40, 40000, core.Float32, "rows"},
	} {
		r := rand.New(rand.NewPCG(11, 12))
		a, b := newMatrix(r, core.Float32, s.m, s.k, "rows"), newMatrix(r, core.Float32, s.k, s.n, "rows")
		c := newMatrix(r, s.out, s.m, s.n, s.c)
		for i := range s.m {
			for j := range s.k {
				store(a.dtype, a.data, a.at(i, j), 0)
			}
			store(a.dtype, a.data, a.at(i, i*77%s.k), 2)
		}
		before := append([]byte(nil), c.data...)
		var pin runtime.Pinner
		pin.Pin(&a.data[0])
		pin.Pin(&b.data[0])
		pin.Pin(&c.data[0])
		p := gemm.Product{M: s.m, N: s.n, K: s.k, A: a.operand(), B: b.operand(), C: c.operand(), In: int(core.Float32),
			Out: int(s.out), Alpha: 1}
		require.NoError(t, p.Run(workers.Ptr(), newGuardedMemory(t)))
		pin.Unpin()
		for i := range s.m {
			for j := range s.n {
				if x, y := load(s.out, c.data, c.at(i, j)), 2*load(b.dtype, b.data, b.at(i*77%s.k, j)); x != y {
					require.Failf(t, "wrong product", "%v at [%d %d]: got %v, want %v", s, i, j, x, y)
				}
			}
		}
		requireOnlyChanged(t, c, before)
	}
}
