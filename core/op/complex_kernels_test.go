package op_test

import (
	"fmt"
	"math/cmplx"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// TestComplexArithmeticInAnyLayout compares arithmetic with that of single numbers, out of place and in place, for numbers of
// elements around those of vectors, in layouts that kernels read directly and by way of scratch memory.
func TestComplexArithmeticInAnyLayout(t *testing.T) {
	core.ManualSeed(5)
	layouts := map[string]func(x *core.Tensor) *core.Tensor{
		"contiguous": func(x *core.Tensor) *core.Tensor { return op.Contiguous(op.Slice(x, 1, 0, x.Size(1), 2)) },
		"strided":    func(x *core.Tensor) *core.Tensor { return op.Slice(x, 1, 0, x.Size(1), 2) },
		"rows":       func(x *core.Tensor) *core.Tensor { return op.Narrow(x, 1, 1, x.Size(1)/2) },
		"transposed": func(x *core.Tensor) *core.Tensor {
			return op.Transpose(op.Contiguous(op.Transpose(op.Slice(x, 1, 0, x.Size(1), 2), 0, 1)), 0, 1)
		},
	}
	for _, cols := range []int{1, 5, 16, 33, 100, 3000} {
		for xn, xl := range layouts {
			for yn, yl := range layouts {
				core.Tidy(func() {
					name := fmt.Sprint(xn, yn, cols)
					x, y := xl(complexes(3, 2*cols)), yl(complexes(3, 2*cols))
					xs, ys := complexValues(t, x), complexValues(t, y)
					row := complexes(1, cols)
					rows := complexValues(t, op.Contiguous(op.Expand(row, 3, cols)))
					column := complexes(3, 1)
					columns := complexValues(t, op.Contiguous(op.Expand(column, 3, cols)))
					for of, c := range map[string]struct {
						got  *core.Tensor
						want func(i int) complex128
					}{
						"mul":    {op.Mul(x, y), func(i int) complex128 { return xs[i] * ys[i] }},
						"div":    {op.Div(x, y), func(i int) complex128 { return xs[i] / ys[i] }},
						"row":    {op.Mul(x, row), func(i int) complex128 { return xs[i] * rows[i] }},
						"column": {op.Mul(x, column), func(i int) complex128 { return xs[i] * columns[i] }},
						"sum":    {op.Add(x, y), func(i int) complex128 { return xs[i] + ys[i] }},
						"above":  {op.Sub(row, x), func(i int) complex128 { return rows[i] - xs[i] }},
						"beside": {op.AddScaled(x, column, 0.5), func(i int) complex128 { return xs[i] + 0.5*columns[i] }},
						"outer":  {op.Add(row, column), func(i int) complex128 { return rows[i] + columns[i] }},
						"number": {op.Mul(x, core.ComplexNum(2+3i)), func(i int) complex128 { return xs[i] * (2 + 3i) }},
						"real":   {op.Mul(x, op.Real(y)), func(i int) complex128 { return xs[i] * complex(real(ys[i]), 0) }},
						"conj":   {op.Conj(x), func(i int) complex128 { return cmplx.Conj(xs[i]) }},
					} {
						require.Less(t, distance(complexValues(t, c.got), each(len(xs), c.want)), 1e-12, "%s %s", of, name)
					}
					want := op.Mul(x, y)
					require.NoError(t, op.MulInPlace(x, y).Err())
					require.True(t, same(t, want, x), "in place: %s", name)
				})
			}
		}
	}
}

func each(n int, f func(i int) complex128) []complex128 {
	out := make([]complex128, n)
	for i := range out {
		out[i] = f(i)
	}
	return out
}

// TestComplexInPlace has operands that share memory with what is changed, and derivatives that need what was there.
func TestComplexInPlace(t *testing.T) {
	core.Tidy(func() {
		core.ManualSeed(6)
		x := complexes(40)
		xs := complexValues(t, x)
		require.NoError(t, op.MulInPlace(op.Narrow(x, 0, 0, 39), op.Narrow(x, 0, 1, 39)).Err())
		got := complexValues(t, x)
		require.Less(t, distance(got[:39], each(39, func(i int) complex128 { return xs[i] * xs[i+1] })), 1e-14)
		require.NoError(t, op.AddInPlace(x, op.Imag(x)).Err())
		require.Less(t, distance(complexValues(t, x), each(40, func(i int) complex128 { return got[i] + complex(imag(got[i]), 0) })), 1e-14)

		grads := func(change func(x, y *core.Tensor) *core.Tensor) []*core.Tensor {
			core.ManualSeed(7)
			a, b := complexes(3, 4).Detach().SetRequiresGrad(true), complexes(4).Detach().SetRequiresGrad(true)
			z := change(op.Mul(a, core.ComplexNum(1i)), b)
			grads, err := autograd.Grad([]*core.Tensor{z}, []*core.Tensor{a, b}, []*core.Tensor{z.Detach()}, autograd.Options{})
			require.NoError(t, err)
			return grads
		}
		in := grads(func(x, y *core.Tensor) *core.Tensor { return op.DivInPlace(op.MulInPlace(x, y), y) })
		out := grads(func(x, y *core.Tensor) *core.Tensor { return op.Div(op.Mul(x, y), y) })
		for i := range in {
			require.Less(t, distance(complexValues(t, in[i]), complexValues(t, out[i])), 1e-13)
		}
		require.ErrorContains(t, op.MulInPlace(op.Ones(3), complexes(3)).Err(), "can't be cast")
		require.ErrorContains(t, op.MulInPlace(complexes(3), complexes(2, 3)).Err(), "cannot hold")
	})
}

// TestComplexReductions compares sums, means and products over any dimensions with those of single numbers.
func TestComplexReductions(t *testing.T) {
	core.ManualSeed(8)
	for _, shape := range [][]int{{7}, {2, 3, 4}, {5, 100}, {100, 5}, {300, 2, 3}, {40000}, {3, 0}, {130, 130}} {
		for _, transposed := range []bool{false, true} {
			core.Tidy(func() {
				n := core.Numel(shape)
				x := op.Exp(op.Mul(complexes(shape...), core.ComplexNum(0.01i))) // whose products neither vanish nor overflow
				if transposed {
					x = op.Permute(x, reversed(len(shape))...)
				}
				xs, dims := complexValues(t, op.Contiguous(x)), x.Dim()
				for set := range 1 << dims {
					over := []int{}
					for d := range dims {
						if set>>d&1 != 0 {
							over = append(over, d)
						}
					}
					if len(over) == 0 {
						continue
					}
					sums, products, count := sumsAndProducts(xs, x.Shape(), over)
					got := op.Sum(x, over, false)
					require.Less(t, distance(complexValues(t, got), sums), 1e-9*float64(n+1), "sum %v %v", x.Shape(), over)
					require.Less(t, distance(complexValues(t, op.Prod(x, over, true)), products), 1e-9, "prod %v %v", x.Shape(), over)
					if count > 0 {
						means := each(len(sums), func(i int) complex128 { return sums[i] / complex(float64(count), 0) })
						require.Less(t, distance(complexValues(t, op.Mean(x, over, false)), means), 1e-11, "mean %v %v", x.Shape(), over)
					}
				}
			})
		}
	}
}

func reversed(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = n - 1 - i
	}
	return order
}

// sumsAndProducts returns the sums and products over dims of row-major elements, and of how many elements each is made.
func sumsAndProducts(xs []complex128, shape, dims []int) (sums, products []complex128, count int) {
	strides, size := make([]int, len(shape)), 1
	for d := len(shape) - 1; d >= 0; d-- {
		strides[d] = size
		for _, r := range dims {
			if r == d {
				strides[d] = 0
			}
		}
		if strides[d] != 0 {
			size *= shape[d]
		}
	}
	sums, products = make([]complex128, size), make([]complex128, size)
	for i := range products {
		products[i] = 1
	}
	for i, x := range xs {
		at := 0
		for d := len(shape) - 1; d >= 0; d-- {
			at += i % shape[d] * strides[d]
			i /= shape[d]
		}
		sums[at] += x
		products[at] *= x
	}
	count = 1
	for _, d := range dims {
		count *= shape[d]
	}
	return sums, products, count
}

// TestComplexScans compares running sums and products, from either end, with those of single numbers.
func TestComplexScans(t *testing.T) {
	core.ManualSeed(12)
	for _, shape := range [][]int{{1}, {7}, {50}, {3, 50}, {50, 3}, {20, 33}, {2, 9, 5}, {300_000}, {2, 150_001}, {150_001, 2}, {3, 0}} {
		for _, layout := range []string{"contiguous", "transposed", "strided"} {
			core.Tidy(func() {
				x := op.Exp(op.Mul(complexes(shape...), core.ComplexNum(0.001i))) // whose products neither vanish nor overflow
				switch layout {
				case "transposed":
					x = op.Permute(x, reversed(len(shape))...)
				case "strided":
					x = op.Slice(op.Cat([]*core.Tensor{x, x}, -1), -1, 0, 2*x.Size(-1), 2)
				}
				leaf := x.Detach().SetRequiresGrad(true)
				xs := complexValues(t, op.Contiguous(x))
				for dim := range x.Dim() {
					name := fmt.Sprint(layout, x.Shape(), dim)
					sums, products := scans(xs, x.Shape(), dim, false)
					sum := op.CumSum(leaf, dim)
					near := 1e-13 * float64(x.Size(dim)+1)
					require.Less(t, distance(complexValues(t, sum), sums), near*float64(x.Size(dim)+1), "cumsum %s", name)
					require.Less(t, distance(complexValues(t, op.CumProd(x, dim)), products), near, "cumprod %s", name)
					require.Less(t, distance(complexValues(t, op.CumProd(op.To(x, core.Complex64), dim)), products), 1e-5+1e-7*float64(x.Size(dim)), "complex64 %s", name)
					back, err := autograd.Grad([]*core.Tensor{sum}, []*core.Tensor{leaf}, []*core.Tensor{x}, autograd.Options{})
					require.NoError(t, err)
					sums, _ = scans(xs, x.Shape(), dim, true)
					require.Less(t, distance(complexValues(t, back[0]), sums), near*float64(x.Size(dim)+1), "reverse %s", name)
				}
			})
		}
	}
}

// scans returns the running sums and products along dim of row-major elements.
func scans(xs []complex128, shape []int, dim int, reverse bool) (sums, products []complex128) {
	sums, products = slices.Clone(xs), slices.Clone(xs)
	step, n := core.Numel(shape[dim+1:]), shape[dim]
	for k := range xs {
		i, before := k, k-step
		if reverse {
			i = len(xs) - 1 - k
			before = i + step
		}
		if at := i / step % n; !reverse && at > 0 || reverse && at < n-1 {
			sums[i] += sums[before]
			products[i] *= products[before]
		}
	}
	return sums, products
}

// TestComplexScanGradients compares first and second derivatives with differences, also where elements are 0.
func TestComplexScanGradients(t *testing.T) {
	core.ManualSeed(13)
	for _, shape := range [][]int{{6}, {3, 4}, {4, 9}} {
		for dim := range shape {
			core.Tidy(func() {
				x := op.MaskedFill(complexes(shape...), op.Lt(op.Rand(shape...), core.Num(0.2)), core.Num(0)).Detach().SetRequiresGrad(true)
				for _, f := range []func(*core.Tensor, int) *core.Tensor{op.CumSum, op.CumProd} {
					scan := func(in []*core.Tensor) []*core.Tensor { return []*core.Tensor{f(in[0], dim)} }
					require.NoError(t, autograd.Check(scan, []*core.Tensor{x}, 1e-6, 1e-8, 1e-6))
					require.NoError(t, autograd.CheckDouble(scan, []*core.Tensor{x}, 1e-6, 1e-7, 1e-6))
				}
			})
		}
	}
}

// TestDotProducts compares dot products of every dtype with a kernel, for numbers of elements around those of its blocks.
func TestDotProducts(t *testing.T) {
	core.ManualSeed(9)
	for _, n := range []int{0, 1, 31, 64, 100, 4097, 70001} {
		core.Tidy(func() {
			x, y := complexes(2*n), complexes(2*n)
			for _, step := range []int{1, 2} {
				a, b := op.Slice(x, 0, 0, n*step, step), op.Slice(y, 0, 0, n*step, step)
				var dot, vdot, re complex128
				as, bs := complexValues(t, op.Contiguous(a)), complexValues(t, op.Contiguous(b))
				for i := range as {
					dot += as[i] * bs[i]
					vdot += cmplx.Conj(as[i]) * bs[i]
					re += complex(real(as[i])*real(bs[i]), 0)
				}
				near := 1e-12 * float64(n+1)
				require.Less(t, distance(complexValues(t, op.Dot(a, b)), []complex128{dot}), near)
				require.Less(t, distance(complexValues(t, op.MatMul(a, b)), []complex128{dot}), near)
				require.Less(t, distance(complexValues(t, op.VDot(a, b)), []complex128{vdot}), near)
				r := op.Dot(op.Real(a), op.Real(b))
				require.Less(t, distance(complexValues(t, op.To(r, core.Complex128)), []complex128{re}), near)
			}
		})
	}
	require.ErrorContains(t, op.Dot(op.Ones(3), op.Ones(4)).Err(), "inner dimensions differ")
	require.ErrorContains(t, op.VDot(complexes(3), complexes(4)).Err(), "differ")
}

// TestComplexMatMulShapes compares products in either arrangement of the factors, which their shapes decide.
func TestComplexMatMulShapes(t *testing.T) {
	core.ManualSeed(10)
	for _, c := range []struct{ x, y []int }{
		{[]int{2, 40}, []int{40, 30}}, {[]int{40, 30}, []int{30, 2}}, {[]int{1, 9}, []int{9, 1}}, {[]int{20, 20}, []int{20, 20}},
		{[]int{3, 2, 40}, []int{40, 30}}, {[]int{3, 2, 40}, []int{3, 40, 30}}, {[]int{2, 40}, []int{3, 40, 30}}, {[]int{2, 0}, []int{0, 3}},
		{[]int{4, 17, 33}, []int{4, 33, 9}}, {[]int{2, 1, 9, 8}, []int{3, 8, 7}}, {[]int{3, 130, 70}, []int{3, 70, 90}}, {[]int{6, 0}, []int{0, 4}},
	} {
		for _, flip := range []bool{false, true} {
			core.Tidy(func() {
				x, y := complexes(c.x...), complexes(c.y...)
				if flip {
					x, y = op.Transpose(op.Contiguous(op.Transpose(x, -1, -2)), -1, -2), op.Transpose(op.Contiguous(op.Transpose(y, -1, -2)), -1, -2)
				}
				re := op.Sub(op.MatMul(op.Real(x), op.Real(y)), op.MatMul(op.Imag(x), op.Imag(y)))
				im := op.Add(op.MatMul(op.Real(x), op.Imag(y)), op.MatMul(op.Imag(x), op.Real(y)))
				require.Less(t, distance(complexValues(t, op.MatMul(x, y)), complexValues(t, op.Complex(re, im))), 1e-12, "%v %v", c.x, c.y)
			})
		}
	}
}
