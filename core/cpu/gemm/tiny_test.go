package gemm_test

import (
	"bytes"
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

// Batches of products that are too small for a vector each, in two dimensions, with all layouts.
func TestTinyBatches(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	workers := pool.New(2)
	defer workers.Close()
	sizes := [][3]int{{1, 1, 4}, {3, 3, 3}, {3, 1, 3}, {1, 7, 5}, {6, 6, 6}, {2, 5, 0}, {8, 4, 8}, {1, 1, 64}, {16, 4, 4}, {17, 4, 4}}
	for i := range 200 {
		size, outer, inner := sizes[i%len(sizes)], 1+r.IntN(4), 1+r.IntN(30)
		if i%20 == 19 {
			inner = 500
		}
		m, n, k := size[0], size[1], size[2]
		dtype := []core.DType{core.Float32, core.Float64}[r.IntN(2)]
		one := func(rows, cols int) *matrix {
			return newMatrix(r, dtype, max(rows, 1), max(cols, 1), layouts[r.IntN(len(layouts))])
		}
		// The products of a batch are `apart` in the buffers, which hold one matrix after another.
		a, b, c, bias := one(m, k), one(k, n), one(m, n), newMatrix(r, dtype, 1, n, "rows")
		aBatch, bBatch, cBatch := repeated(r, a, outer*inner), repeated(r, b, outer*inner), repeated(r, c, outer*inner)
		p := gemm.Product{M: m, N: n, K: k, A: aBatch.operand(), B: bBatch.operand(), C: cBatch.operand(), In: int(dtype), Out: int(dtype),
			Alpha: []float64{1, -0.5}[r.IntN(2)], Beta: []float64{0, 0, 1, 0.25}[r.IntN(4)]}
		p.Batch = []gemm.Dim{{Size: outer, A: inner * a.size(), B: inner * b.size(), C: inner * c.size()}, {Size: inner, A: a.size(), B: b.size(), C: c.size()}}
		shared := r.IntN(4)
		if shared == 1 {
			p.Batch[0].B, p.Batch[1].B = 0, 0
		} else if shared == 2 {
			p.Batch[0].A, p.Batch[1].A = 0, 0
		}
		biased := r.IntN(2) == 0
		var pin runtime.Pinner
		for _, x := range []*matrix{aBatch, bBatch, cBatch, bias} {
			pin.Pin(&x.data[0])
		}
		if biased {
			p.Bias, p.BiasStep = bias.operand().Data, 1
		}
		before := append([]byte(nil), cBatch.data...)
		require.NoError(t, p.Run(workers.Ptr(), newGuardedMemory(t)))
		pin.Unpin()
		touched := map[int]bool{}
		for q := range outer * inner {
			for i := range m {
				for j := range n {
					at := cBatch.at(i, j) + q*c.size()
					touched[at] = true
					want := 0.0
					for d := range k {
						x, y := aBatch.at(i, d), bBatch.at(d, j)
						if shared != 2 {
							x += q * a.size()
						}
						if shared != 1 {
							y += q * b.size()
						}
						want += load(dtype, aBatch.data, x) * load(dtype, bBatch.data, y)
					}
					want *= p.Alpha
					if p.Beta != 0 {
						want += p.Beta * load(dtype, before, at)
					}
					if biased {
						want += load(dtype, bias.data, bias.at(0, j))
					}
					if got := load(dtype, cBatch.data, at); !(math.Abs(got-want) < 1e-4) {
						require.Failf(t, "wrong product", "%v, product %d of %d x %d, at [%d %d]: got %v, want %v", size, q, outer, inner, i, j, got, want)
					}
				}
			}
		}
		for i := range len(before) / dtype.Size() {
			if !touched[i] {
				lo, hi := i*dtype.Size(), (i+1)*dtype.Size()
				require.True(t, bytes.Equal(before[lo:hi], cBatch.data[lo:hi]), "element %d is not of a product", i)
			}
		}
	}
}

// size returns the elements of the buffer.
func (m *matrix) size() int { return len(m.data) / m.dtype.Size() }

// repeated returns the first of n matrices of one layout with other elements, each in a buffer behind that of the one before.
func repeated(r *rand.Rand, m *matrix, n int) *matrix {
	all := *m
	all.data = make([]byte, 0, n*len(m.data))
	for range n {
		all.data = append(all.data, m.data...)
	}
	for q := range n {
		for i := range m.rows {
			for j := range m.cols {
				store(m.dtype, all.data, m.at(i, j)+q*m.size(), float64(r.IntN(65)-32)/16)
			}
		}
	}
	return &all
}

// A batch without products writes nothing, however many rows each would have.
func TestEmptyBatchesOfTinyProducts(t *testing.T) {
	a, b, c := make([]float32, 400), make([]float32, 16), make([]float32, 400)
	for i := range c {
		c[i] = 7
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&a[0])
	pin.Pin(&b[0])
	pin.Pin(&c[0])
	p := gemm.Product{M: 100, N: 4, K: 4, A: gemm.Matrix{Data: unsafe.Pointer(&a[0]), Row: 4, Col: 1}, B: gemm.Matrix{Data: unsafe.Pointer(&b[0]), Row: 4, Col: 1},
		C: gemm.Matrix{Data: unsafe.Pointer(&c[0]), Row: 4, Col: 1}, In: int(core.Float32), Out: int(core.Float32), Alpha: 1, Batch: []gemm.Dim{{Size: 0, A: 400, B: 16, C: 400}}}
	require.NoError(t, p.Run(nil, newGuardedMemory(t)))
	for _, v := range c {
		require.EqualValues(t, 7, v)
	}
}

// A vector holds products, or rows, of any number: those that fill it in part have the bits of the others.
func TestBitsOfTinyProductsDoNotDependOnTheBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	const k, n = 3, 3
	a, b := make([]float32, 100*k), make([]float32, k*n)
	for i := range a {
		a[i] = r.Float32()
	}
	for i := range b {
		b[i] = r.Float32()
	}
	run := func(rows int) []float32 {
		c := make([]float32, rows*n)
		var pin runtime.Pinner
		defer pin.Unpin()
		pin.Pin(&a[0])
		pin.Pin(&b[0])
		pin.Pin(&c[0])
		p := gemm.Product{M: rows, N: n, K: k, A: gemm.Matrix{Data: unsafe.Pointer(&a[0]), Row: k, Col: 1}, B: gemm.Matrix{Data: unsafe.Pointer(&b[0]), Row: n, Col: 1},
			C: gemm.Matrix{Data: unsafe.Pointer(&c[0]), Row: n, Col: 1}, In: int(core.Float32), Out: int(core.Float32), Alpha: 1}
		require.NoError(t, p.Run(nil, newGuardedMemory(t)))
		return c
	}
	all := run(100)
	for rows := 16; rows < 100; rows++ {
		require.Equal(t, all[:rows*n], run(rows), "%d rows", rows)
	}
}
