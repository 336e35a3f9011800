package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/gemm"
)

// matrix is a rows x cols matrix in a buffer with any strides. The elements around and between its own are NaN.
type matrix struct {
	dtype      core.DType
	data       []byte
	start      int
	row, col   int
	rows, cols int
}

func (m *matrix) at(i, j int) int { return m.start + i*m.row + j*m.col }

func load(dtype core.DType, data []byte, i int) float64 {
	p := unsafe.Pointer(&data[i*dtype.Size()])
	switch dtype {
	case core.Float16:
		return float64(core.Float16Value(*(*uint16)(p)))
	case core.BFloat16:
		return float64(core.BFloat16Value(*(*uint16)(p)))
	case core.Float32:
		return float64(*(*float32)(p))
	}
	return *(*float64)(p)
}

func store(dtype core.DType, data []byte, i int, x float64) {
	p := unsafe.Pointer(&data[i*dtype.Size()])
	switch dtype {
	case core.Float16:
		*(*uint16)(p) = core.Float16Bits(float32(x))
	case core.BFloat16:
		*(*uint16)(p) = core.BFloat16Bits(float32(x))
	case core.Float32:
		*(*float32)(p) = float32(x)
	default:
		*(*float64)(p) = x
	}
}

// layouts are the memory layouts of a matrix: by rows, by columns, padded, with steps, and with negative strides.
var layouts = []string{"rows", "columns", "padded rows", "padded columns", "steps", "backwards"}

func newMatrix(r *rand.Rand, dtype core.DType, rows, cols int, layout string) *matrix {
	m := &matrix{dtype: dtype, rows: rows, cols: cols}
	switch layout {
	case "rows":
		m.row, m.col = cols, 1
	case "columns":
		m.row, m.col = 1, rows
	case "padded rows":
		m.row, m.col = cols+5, 1
	case "padded columns":
		m.row, m.col = 1, rows+3
	case "steps":
		m.row, m.col = 3*(2*cols+1), 2
	case "backwards":
		m.row, m.col = -(cols + 2), 1
	}
	const margin = 40
	low, high := 0, 0
	for _, span := range []int{m.row * (rows - 1), m.col * (cols - 1)} {
		low, high = low+min(span, 0), high+max(span, 0)
	}
	m.start = margin - low
	n := high - low + 1 + 2*margin
	m.data = make([]byte, n*dtype.Size())
	for i := range n {
		store(dtype, m.data, i, math.NaN())
	}
	for i := range rows {
		for j := range cols {
			store(dtype, m.data, m.at(i, j), float64(r.IntN(65)-32)/16)
		}
	}
	return m
}

func (m *matrix) operand() gemm.Matrix {
	return gemm.Matrix{Data: unsafe.Pointer(&m.data[m.start*m.dtype.Size()]), Row: m.row, Col: m.col}
}

// byRows returns the elements row by row.
func (m *matrix) byRows() []float64 {
	list := make([]float64, 0, m.rows*m.cols)
	for i := range m.rows {
		for j := range m.cols {
			list = append(list, load(m.dtype, m.data, m.at(i, j)))
		}
	}
	return list
}

// byColumns returns the elements column by column.
func (m *matrix) byColumns() []float64 {
	list := make([]float64, 0, m.rows*m.cols)
	for j := range m.cols {
		for i := range m.rows {
			list = append(list, load(m.dtype, m.data, m.at(i, j)))
		}
	}
	return list
}

type problem struct {
	m, n, k     int
	in, out     core.DType
	a, b, c     string
	alpha, beta float64
	bias        bool
	biasStep    int
}

func (p problem) String() string {
	return fmt.Sprintf("%dx%dx%d %v->%v a %s b %s c %s alpha %v beta %v bias %v", p.m, p.n, p.k, p.in, p.out,
		p.a, p.b, p.c, p.alpha, p.beta, p.bias)
}

// values are the operands of a problem before it ran: A and C row by row, B column by column.
type values struct{ a, b, c, bias []float64 }

// run runs the problem on a pool. It returns C and the operands from before.
func (p problem) run(t *testing.T, seed uint64, workers unsafe.Pointer) (*matrix, values) {
	r := rand.New(rand.NewPCG(seed, 1))
	a, b := newMatrix(r, p.in, p.m, p.k, p.a), newMatrix(r, p.in, p.k, p.n, p.b)
	c := newMatrix(r, p.out, p.m, p.n, p.c)
	if p.beta == 0 {
		for i := range p.m {
			for j := range p.n {
				store(p.out, c.data, c.at(i, j), math.NaN())
			}
		}
	}
	product := gemm.Product{M: p.m, N: p.n, K: p.k, A: a.operand(), B: b.operand(), C: c.operand(), In: int(p.in),
		Out: int(p.out), Alpha: p.alpha, Beta: p.beta}
	were := values{a: a.byRows(), b: b.byColumns(), c: c.byRows(), bias: make([]float64, p.n)}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&a.data[0])
	pin.Pin(&b.data[0])
	pin.Pin(&c.data[0])
	if p.bias {
		bias := newMatrix(r, p.in, p.n, 1, "rows")
		if p.biasStep != 1 {
			bias = newMatrix(r, p.in, p.n, 1, "backwards")
		}
		product.Bias, product.BiasStep = bias.operand().Data, bias.row
		pin.Pin(&bias.data[0])
		were.bias = bias.byRows()
	}
	before := append([]byte(nil), c.data...)
	require.NoError(t, product.Run(workers, newGuardedMemory(t)))
	requireOnlyChanged(t, c, before)
	return c, were
}

// expected returns the expected element [i j] of C, and the sum of its terms' absolute values.
//
// The race detector is off here: it finds nothing and makes the function thirty times slower.
//
//go:norace
func (p problem) expected(were values, i, j int) (want, size float64) {
	a, b := were.a[i*p.k:(i+1)*p.k], were.b[j*p.k:(j+1)*p.k]
	for k := range a {
		x := a[k] * b[k]
		want += x
		size += math.Abs(x)
	}
	want *= p.alpha
	if p.beta != 0 {
		want += p.beta * were.c[i*p.n+j]
	}
	want += were.bias[j]
	return want, math.Abs(p.alpha)*size + 4
}

// requireOnlyChanged checks that only the elements of c changed.
func requireOnlyChanged(t *testing.T, c *matrix, before []byte) {
	t.Helper()
	after := append([]byte(nil), c.data...)
	size := c.dtype.Size()
	for i := range c.rows {
		for j := range c.cols {
			at := c.at(i, j) * size
			copy(after[at:at+size], before[at:at+size])
		}
	}
	require.Equal(t, before, after, "wrote outside of C")
}

var tolerance = map[core.DType]float64{core.Float64: 1e-14, core.Float32: 3e-6, core.Float16: 1e-3, core.BFloat16: 8e-3}

func (p problem) check(t *testing.T, seed uint64, workers unsafe.Pointer) {
	t.Helper()
	got, were := p.run(t, seed, workers)
	for i := range p.m {
		for j := range p.n {
			x := load(p.out, got.data, got.at(i, j))
			y, scale := p.expected(were, i, j)
			if !(math.Abs(x-y) <= tolerance[p.out]*scale) {
				require.Failf(t, "wrong product", "%v at [%d %d]: got %v, want %v", p, i, j, x, y)
			}
		}
	}
}

var dtypes = [][2]core.DType{
	{core.Float32, core.Float32}, {core.Float64, core.Float64}, {core.Float16, core.Float16},
	{core.BFloat16, core.BFloat16}, {core.Float16, core.Float32}, {core.Float32, core.BFloat16},
}

func randomProblem(r *rand.Rand, sizes []int) problem {
	pick := func() int { return sizes[r.IntN(len(sizes))] }
	d := dtypes[r.IntN(len(dtypes))]
	p := problem{m: pick(), n: pick(), k: pick(), in: d[0], out: d[1], alpha: 1, biasStep: 1 - 3*r.IntN(2)}
	p.a, p.b = layouts[r.IntN(len(layouts))], layouts[r.IntN(len(layouts))]
	p.c = "rows"
	if r.IntN(2) == 0 {
		p.c = layouts[r.IntN(len(layouts))]
	}
	if r.IntN(4) == 0 {
		p.alpha = -0.5
	}
	p.beta = []float64{0, 0, 1, 0.25}[r.IntN(4)]
	p.bias = r.IntN(3) == 0
	return p
}
