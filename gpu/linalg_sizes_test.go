package gpu_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// linalgShapes are batches and sizes at the edges of panels, of pairs of blocks, and beyond them.
var linalgShapes = [][]int{{1, 1}, {2, 2}, {5, 7, 7}, {31, 31}, {2, 33, 33}, {64, 64}, {65, 65}, {100, 100}, {2, 3, 48, 48}, {130, 130}}

// accurate requires that got, computed on the GPU, equals the CPU's want in float64, up to a multiple of float32's epsilon of want's
// largest element.
func accurate(t *testing.T, want, got *core.Tensor, multiple float64, what string) {
	t.Helper()
	got = op.To(op.ToDevice(got, cpuDevice(t)), core.Float64)
	size := value(t, op.Amax(op.Abs(want), nil, false))
	error := value(t, op.Amax(op.Abs(op.Sub(want, got)), nil, false))
	require.LessOrEqual(t, error, multiple*0x1p-23*size, what)
}

// eachSquare calls fn with random matrices of every shape, in float64 on the CPU and as they are there in float32 on the GPU; the latter are
// transposed views, so that no operand is contiguous.
func eachSquare(t *testing.T, fn func(t *testing.T, x, onGPU *core.Tensor)) {
	d := device(t)
	core.ManualSeed(7)
	shapes := linalgShapes
	if testing.Short() {
		shapes = [][]int{{5, 7, 7}, {65, 65}}
	}
	for _, shape := range shapes {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			core.Tidy(func() {
				x := op.Randn(shape...)
				fn(t, op.To(x, core.Float64), transposed(op.ToDevice(op.Contiguous(transposed(x)), d)))
			})
		})
	}
}

func identity64(n int) *core.Tensor { return op.To(op.Eye(n, n, op.TensorOptions{}), core.Float64) }

func TestCholeskyOfSizes(t *testing.T) {
	coretest.SkipUnderRace(t)
	check := func(t *testing.T, x, _ *core.Tensor) {
		n := x.Size(-1)
		positive := op.Add(op.MatMul(x, transposed(x)), op.Mul(identity64(n), core.Num(float64(n))))
		positive = op.To(op.To(positive, core.Float32), core.Float64)
		onGPU := op.ToDevice(op.To(positive, core.Float32), device(t))
		accurate(t, op.Cholesky(positive, false, ""), op.Cholesky(onGPU, false, ""), float64(8+n/4), "l")
		accurate(t, op.Cholesky(positive, true, ""), op.Cholesky(transposed(onGPU), true, ""), float64(8+n/4), "u")
	}
	eachSquare(t, check)
	if testing.Short() {
		return
	}
	for _, shape := range sized(t, [][]int{{600, 600}, {2, 544, 544}}, [][]int{{2, 520, 520}}) { // more than one strip of columns
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			core.Tidy(func() { check(t, op.To(op.Randn(shape...), core.Float64), nil) })
		})
	}
}

// TestLUOfSizes compares the factors, and the pivots exactly.
func TestLUOfSizes(t *testing.T) {
	coretest.SkipUnderRace(t)
	check := func(t *testing.T, x, onGPU *core.Tensor) {
		n := max(x.Size(-1), x.Size(-2))
		want, pivots, _ := op.LUFactor(x)
		got, same, infos := op.LUFactor(onGPU)
		require.Equal(t, int32s(t, pivots), int32s(t, same))
		require.NotContains(t, int32s(t, infos), int32(1))
		accurate(t, want, got, float64(16+4*n), "lu") // elements of random matrices grow by a small factor
	}
	eachSquare(t, check)
	core.ManualSeed(8)
	for _, shape := range [][]int{{300, 5}, {2, 70, 40}, {3, 40, 70}, {5, 1}, {1, 5}, {33, 200}, {1100, 40}} {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			core.Tidy(func() {
				x := op.Randn(shape...)
				check(t, op.To(x, core.Float64), op.ToDevice(x, device(t)))
			})
		})
	}
}

func int32s(t *testing.T, x *core.Tensor) []int32 {
	t.Helper()
	v, err := core.Values[int32](op.ToDevice(x, cpuDevice(t)))
	require.NoError(t, err)
	return v
}

// conditioned returns a matrix with a small condition, so that its inverse is known accurately.
func conditioned(x *core.Tensor) *core.Tensor {
	n := float64(x.Size(-1))
	return op.Add(x, op.Mul(op.ToDevice(op.To(op.Eye(int(n), int(n), op.TensorOptions{}), x.DType()), x.Device()), core.Num(3*n)))
}

func TestSystemsOfSizes(t *testing.T) {
	coretest.SkipUnderRace(t)
	eachSquare(t, func(t *testing.T, x, onGPU *core.Tensor) {
		n := x.Size(-1)
		shape := append(append([]int{}, x.Shape()[:x.Dim()-1]...), 3)
		b := op.Randn(shape...)
		b64, bGPU := op.To(b, core.Float64), op.ToDevice(b, device(t))
		well, wellGPU := conditioned(x), conditioned(onGPU)
		accurate(t, op.Inv(well), op.Inv(wellGPU), float64(8+n/4), "inverse")
		accurate(t, op.Solve(well, b64), op.Solve(wellGPU, bGPU), float64(8+n/4), "solution")
		for _, upper := range []bool{false, true} {
			accurate(t, op.SolveTriangular(well, b64, upper, false), op.SolveTriangular(wellGPU, bGPU, upper, false), float64(8+n/4), "triangular solution")
			unit, unitGPU := op.Div(x, core.Num(float64(n))), op.Div(onGPU, core.Num(float64(n)))
			accurate(t, op.SolveTriangular(unit, b64, upper, true), op.SolveTriangular(unitGPU, bGPU, upper, true), float64(8+n/4), "unit triangular solution")
		}
	})
}

// orthonormal requires that the columns of q are orthonormal.
func orthonormal(t *testing.T, q *core.Tensor, what string) {
	t.Helper()
	q = op.To(op.ToDevice(q, cpuDevice(t)), core.Float64)
	k := q.Size(-1)
	product := op.MatMul(transposed(q), q)
	accurate(t, op.Expand(identity64(k), product.Shape()...), product, 32, what)
}

func on64(t *testing.T, x *core.Tensor) *core.Tensor {
	return op.To(op.ToDevice(x, cpuDevice(t)), core.Float64)
}

// rectangles are the shapes of factorisations that need no square matrices.
var rectangles = append([][]int{{300, 5}, {2, 70, 40}, {3, 40, 70}, {5, 1}, {1, 5}, {33, 200}}, linalgShapes...)

func TestQROfSizes(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	core.ManualSeed(9)
	for _, shape := range append(rectangles, []int{1100, 40}, []int{5000, 3}) {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			core.Tidy(func() {
				x := op.Randn(shape...)
				q, r := op.QR(op.ToDevice(x, d))
				_, want := op.QR(op.To(x, core.Float64))
				orthonormal(t, q, "q'q")
				accurate(t, op.To(x, core.Float64), op.MatMul(on64(t, q), on64(t, r)), 32, "q r")
				if x.Size(-1) <= 48 || x.Size(-2) != x.Size(-1) { // R of a square matrix can be ill-conditioned
					accurate(t, want, r, 256, "r")
				}
			})
		})
	}
}

// skipLargeIterations skips a test of iterations over a matrix that has more than a few blocks, which take a software GPU seconds.
func skipLargeIterations(t *testing.T, n int) {
	t.Helper()
	if n > sized(t, n, 65) {
		t.Skip("iterations over a large matrix: runs on a GPU of hardware, or with -all")
	}
}

func TestEighOfSizes(t *testing.T) {
	coretest.SkipUnderRace(t)
	eachSquare(t, func(t *testing.T, x, onGPU *core.Tensor) {
		skipLargeIterations(t, x.Size(-1))
		x, onGPU = op.Add(x, transposed(x)), op.Add(onGPU, transposed(onGPU))
		want, _ := op.Eigh(x, "")
		values, vectors := op.Eigh(onGPU, "")
		accurate(t, want, values, 32, "eigenvalues")
		orthonormal(t, vectors, "v'v")
		v := on64(t, vectors)
		accurate(t, x, op.MatMul(op.Mul(v, op.Unsqueeze(on64(t, values), -2)), transposed(v)), 64, "v w v'")
	})
}

// TestEighOfClusters checks matrices that converge slowly: with equal eigenvalues, of low rank, graded, and nearly the identity.
func TestEighOfClusters(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	core.ManualSeed(10)
	n := 48
	switch {
	case *all:
		n = 100
	case testing.Short():
		n = 34
	}
	q, _ := op.QR(op.To(op.Randn(n, n), core.Float64))
	for name, value := range map[string]func(i int) float64{
		"equal":    func(i int) float64 { return []float64{1, -1, 3, 0}[i%4] },
		"low rank": func(i int) float64 { return float64(max(i-n+6, 0)) },
		"graded":   func(i int) float64 { return math.Pow(10, -float64(i)/10) },
		"identity": func(i int) float64 { return 1 + 1e-5*float64(i*i%7) },
		"zero":     func(int) float64 { return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			core.Tidy(func() {
				list := make([]float64, n)
				for i := range list {
					list[i] = value(i)
				}
				x := op.MatMul(op.Mul(q, core.FromSlice(list, n)), transposed(q))
				x = op.To(op.To(op.Add(x, transposed(x)), core.Float32), core.Float64)
				want, _ := op.Eigh(x, "")
				values, vectors := op.Eigh(op.ToDevice(op.To(x, core.Float32), d), "")
				accurate(t, want, values, 32, "eigenvalues")
				orthonormal(t, vectors, "v'v")
				v := on64(t, vectors)
				accurate(t, want, op.Diagonal(op.MatMul(op.MatMul(transposed(v), x), v), 0, -2, -1), 32, "v'xv")
			})
		})
	}
}

func TestSVDOfSizes(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	core.ManualSeed(11)
	shapes := rectangles
	if testing.Short() {
		shapes = shapes[:len(shapes)/2]
	}
	for _, shape := range shapes {
		t.Run(fmt.Sprint(shape), func(t *testing.T) {
			skipLargeIterations(t, min(shape[len(shape)-1], shape[len(shape)-2]))
			core.Tidy(func() {
				x := op.Randn(shape...)
				u, s, vh := op.SVD(op.ToDevice(x, d))
				_, want, _ := op.SVD(op.To(x, core.Float64))
				accurate(t, want, s, 32, "singular values")
				orthonormal(t, u, "u'u")
				orthonormal(t, transposed(vh), "v'v")
				accurate(t, op.To(x, core.Float64), op.MatMul(op.Mul(on64(t, u), op.Unsqueeze(on64(t, s), -2)), on64(t, vh)), 64, "u s v'")
			})
		})
	}
}

// TestDecompositionsGrow checks the numbers of dispatches and of workgroups for a hardware GPU, on which a chain of dispatches takes a few
// microseconds for each of them: dispatches grow with the number of panels or of rounds, and workgroups with the cube of n at most, with
// some room for how products choose their tiles.
func TestDecompositionsGrow(t *testing.T) {
	opened, err := core.OpenDevice("fakegpu")
	require.NoError(t, err)
	d := opened.(*gpu.Device)
	most := map[string]int{"cholesky": 21, "lu": 60, "inv": 90, "solve": 90, "qr": 170, "eigh": 800, "svd": 1000} // dispatches for n = 512
	for _, c := range decompositions {
		t.Run(c.name, func(t *testing.T) {
			var dispatches, groups [4]int
			for i := range dispatches {
				core.Tidy(func() {
					n := 256 << i
					f := core.Float32
					x := op.EmptyWith([]int{n, n}, op.TensorOptions{DType: &f, Device: d})
					require.NoError(t, d.Synchronize())
					_, before := gpu.Ran(d)
					already := gpu.Groups(d)
					c.fn(x, x)
					_ = d.Synchronize() // the results are meaningless
					_, after := gpu.Ran(d)
					dispatches[i], groups[i] = after-before, gpu.Groups(d)-already
				})
				if i > 0 {
					growth := 2.25
					if i == 3 { // panels of more than 1024 rows have half as many columns
						growth = 3.25
					}
					require.LessOrEqual(t, float64(dispatches[i]), growth*float64(dispatches[i-1]), "dispatches %v", dispatches)
					require.LessOrEqual(t, float64(groups[i]), 10*float64(groups[i-1]), "workgroups %v", groups)
				}
			}
			t.Log("dispatches", dispatches, "workgroups", groups)
			require.LessOrEqual(t, dispatches[1], most[c.name])
		})
	}
}

// TestLinalgErrorsInLaterPanels checks matrices whose fault is behind the first panel: the second of a batch of two.
func TestLinalgErrorsInLaterPanels(t *testing.T) {
	d := device(t)
	core.ManualSeed(12)
	const n, bad = 130, 100
	core.Tidy(func() {
		x := make([]float32, 2*n*n)
		for i := range x {
			x[i] = float32(math.Sin(float64(i * i)))
		}
		positive := make([]float32, 2*n*n)
		for i := range 2 * n {
			positive[i*n+i%n] = 2
		}
		for i := range n {
			x[n*n+i*n+bad] = 0
		}
		positive[n*n+bad*n+bad] = -2
		batch := func(v []float32) *core.Tensor { return op.ToDevice(core.FromSlice(v, 2, n, n), d) }
		triangle := op.Add(op.Tril(batch(x), -1), batch(positive))
		zero := op.Mul(triangle, op.ToDevice(op.Ge(core.FromSlice(positive, 2, n, n), core.Num(-1)), d))
		_, _, infos := op.LUFactor(batch(x))
		require.Equal(t, []int32{0, bad + 1}, int32s(t, infos))
		l, infos := op.CholeskyInfo(batch(positive), false, "")
		require.Equal(t, []int32{0, bad + 1}, int32s(t, infos))
		near(t, op.ToDevice(op.Mul(op.Eye(n, n, op.TensorOptions{}), core.Num(math.Sqrt2)), d), op.Select(l, 0, 0), 1e-6, "the good one's factor")
		for want, result := range map[string]*core.Tensor{
			"matrix 1 is singular":              op.Inv(batch(x)),
			"matrix 1 is singular, want":        op.SolveTriangular(zero, op.ToDevice(op.Ones(2, n, 1), d), false, false),
			"matrix 1 is not positive definite": op.Cholesky(batch(positive), false, ""),
		} {
			_, err := result.Bytes()
			require.ErrorContains(t, err, want)
			_ = d.Synchronize() // reports the error again
		}
		x[n*n+3*n+bad] = 1e-6 // nearly singular is no error
		_, err := op.Inv(batch(x)).Bytes()
		require.NoError(t, err)
	})
}

// TestDecompositionsRepeat checks that a decomposition has the same bits in every run.
func TestDecompositionsRepeat(t *testing.T) {
	d := device(t)
	core.ManualSeed(13)
	core.Tidy(func() {
		x := op.ToDevice(op.Randn(65, 65), d)
		small := op.ToDevice(op.Randn(33, 33), d) // iterations take a software GPU long
		for _, fn := range []func() *core.Tensor{
			func() *core.Tensor { return op.Inv(x) },
			func() *core.Tensor { q, _ := op.QR(x); return q },
			func() *core.Tensor { _, v := op.Eigh(op.Add(small, transposed(small)), ""); return v },
			func() *core.Tensor { u, _, _ := op.SVD(small); return u },
		} {
			want, err := fn().Bytes()
			require.NoError(t, err)
			got, err := fn().Bytes()
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})
}
