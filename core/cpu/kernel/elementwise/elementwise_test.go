package elementwise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

// operandOf returns an operand on the memory of t.
func operandOf(t *rawtensor.Tensor) core.Operand {
	return core.Operand{Memory: core.Memory{Ptr: t.Ptr}, DType: core.DType(t.DType), Shape: t.Shape, Strides: t.Strides}
}

func numberOf(v float64) core.Operand {
	return core.Operand{IsNumber: true, Number: core.Number{Float: v, Int: int64(v)}}
}

func callOf(outs, ins []*rawtensor.Tensor, attrs ...float64) *core.Call {
	c := &core.Call{Op: "test", Floats: attrs}
	for _, t := range outs {
		c.Outs = append(c.Outs, operandOf(t))
	}
	for _, t := range ins {
		c.Ins = append(c.Ins, operandOf(t))
	}
	return c
}

func runKernel(t testing.TB, workers unsafe.Pointer, name string, c *core.Call) error {
	t.Helper()
	k := table[name]
	require.NotNil(t, k, name)
	ctx := kernel.Context{Pool: workers}
	defer ctx.FreeScratch()
	return run(&ctx, c, k)
}

// at returns the element of t at an index of the shape that t broadcasts to.
func at(t *rawtensor.Tensor, index []int) float64 {
	own := append([]int(nil), index[len(index)-len(t.Shape):]...)
	for d := range own {
		if t.Shape[d] == 1 {
			own[d] = 0
		}
	}
	return t.Value(own...)
}

// TestLayouts adds two inputs in every combination of layouts. The shapes are on both sides of all block sizes.
func TestLayouts(t *testing.T) {
	workers := pool.New(2)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	shapes := [][]int{
		{}, {1}, {5}, {0}, {3, 0, 2}, {2, 3}, {33, 65}, {40, 2, 3}, {3, 1, 70}, {70, 31}, {1, 2100}, {2100, 2}, {2, 3, 4, 5}, {130, 140},
		{2, 1, 3, 1, 2, 2},
	}
	for _, shape := range shapes {
		outs := rawtensor.Layouts(t, rawtensor.Float32, shape)
		xs := rawtensor.Layouts(t, rawtensor.Float32, shape)
		ys := rawtensor.Layouts(t, rawtensor.Float32, shape)
		if n := len(shape); n > 0 {
			row, column := make([]int, n), make([]int, n)
			for d := range shape {
				row[d], column[d] = 1, shape[d]
			}
			row[n-1], column[n-1] = shape[n-1], 1
			ys["row"], ys["column"] = rawtensor.New(t, rawtensor.Float32, row...), rawtensor.New(t, rawtensor.Float32, column...)
			ys["scalar"], ys["short"] = rawtensor.New(t, rawtensor.Float32), rawtensor.New(t, rawtensor.Float32, shape[n-1])
		}
		for xn, x := range xs {
			x.Random(rng)
			for yn, y := range ys {
				y.Random(rng)
				for on, out := range outs {
					require.NoError(t, runKernel(t, workers.Ptr(), "add.f32", callOf([]*rawtensor.Tensor{out}, []*rawtensor.Tensor{x, y})))
					out.Each(func(i []int) {
						if got, want := out.Value(i...), at(x, i)+at(y, i); got != want {
							require.Equal(t, want, got, "%v: %s = %s + %s at %v", shape, on, xn, yn, i)
						}
					})
				}
			}
		}
	}
}

// TestDTypes has operands of every dtype, which are converted to the loop's type and back.
func TestDTypes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, xt := range rawtensor.DTypes {
		for _, yt := range rawtensor.DTypes {
			for _, name := range []string{"mul.f32", "mul.f64", "mul.i64"} {
				if rawtensor.IsFloat(yt) && name == "mul.i64" {
					continue
				}
				for _, transposed := range []bool{false, true} {
					x, out := rawtensor.New(t, xt, 7, 37).Random(rng), rawtensor.New(t, yt, 7, 37)
					if transposed {
						x = rawtensor.New(t, xt, 37, 7).Random(rng).Permute(1, 0)
					}
					y := rawtensor.New(t, yt, 37).Random(rng)
					require.NoError(t, runKernel(t, nil, name, callOf([]*rawtensor.Tensor{out}, []*rawtensor.Tensor{x, y})))
					out.Each(func(i []int) {
						a := x.Value(i...)
						if name == "mul.i64" {
							a = math.Trunc(a)
						}
						want := stored(yt, a*y.Value(i[1]))
						require.Equal(t, want, out.Value(i...), "%s: %s * %s at %v", name, rawtensor.Name(xt), rawtensor.Name(yt), i)
					})
				}
			}
		}
	}
}

// stored returns v as an element of a dtype stores it.
func stored(dtype int, v float64) float64 {
	switch {
	case dtype == rawtensor.Bool:
		if v != 0 {
			return 1
		}
		return 0
	case rawtensor.IsFloat(dtype):
		return rawtensor.Decode(dtype, rawtensor.Encode(dtype, v))
	}
	return rawtensor.Wrap(dtype, int64(v))
}

func TestNumbersAreScalarsOfTheLoop(t *testing.T) {
	for _, n := range []int{1, 5, 3000, 20000} {
		x, out := rawtensor.New(t, rawtensor.Float32, n), rawtensor.New(t, rawtensor.Float32, n)
		x.Fill(func(i []int) float64 { return float64(i[0]) })
		c := callOf([]*rawtensor.Tensor{out}, []*rawtensor.Tensor{x})
		c.Ins = append(c.Ins, numberOf(0.5))
		require.NoError(t, runKernel(t, nil, "mul.f32", c))
		out.Each(func(i []int) {
			if got := out.Value(i...); got != float64(i[0])/2 {
				require.Equal(t, float64(i[0])/2, got)
			}
		})
	}
	big := rawtensor.New(t, rawtensor.Int64, 3)
	c := callOf([]*rawtensor.Tensor{big}, []*rawtensor.Tensor{big})
	c.Ins = append(c.Ins, core.Operand{IsNumber: true, Number: core.Number{Int: 1<<62 + 1}})
	require.NoError(t, runKernel(t, nil, "add.i64", c))
	require.Equal(t, int64(1<<62+1), big.Int(2), "integers keep all their bits")
	mask := rawtensor.New(t, rawtensor.Bool, 3)
	c = callOf([]*rawtensor.Tensor{mask}, []*rawtensor.Tensor{mask})
	c.Ins = append(c.Ins, numberOf(1))
	require.NoError(t, runKernel(t, nil, "logical_or.bool", c))
	require.Equal(t, 1.0, mask.Value(0))
}

// TestNumbersForRows compares a second operand that is the same along a row, which a loop reads once, with one that has all elements:
// in every layout and dtype of the first, with rows on both sides of the shortest ones that get a loop, and outputs of any size.
func TestNumbersForRows(t *testing.T) {
	workers := pool.New(2)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(9, 10))
	for _, dtype := range []int{rawtensor.Float32, rawtensor.Float16, rawtensor.Int64} {
		for _, shape := range [][]int{{70, 31}, {70, 32}, {5, 7, 40}, {3, 20000}, {600, 300}} {
			column := slices.Clone(shape)
			column[len(shape)-1] = 1
			for name, x := range rawtensor.Layouts(t, dtype, shape) {
				x.Random(rng)
				y := rawtensor.New(t, rawtensor.Float32, column...).Random(rng)
				out := rawtensor.New(t, rawtensor.Float32, shape...)
				for _, kernel := range []string{"sub.f32", "lerp.f32", "clamp_numbers.f32"} {
					c := callOf([]*rawtensor.Tensor{out}, []*rawtensor.Tensor{x, y})
					if kernel != "sub.f32" {
						c = callOf([]*rawtensor.Tensor{out}, []*rawtensor.Tensor{x, y, y})
					}
					require.NoError(t, runKernel(t, workers.Ptr(), kernel, c))
					spread := y.Expand(shape...).Clone(t)
					for i := 1; i < len(c.Ins); i++ {
						c.Ins[i] = operandOf(spread)
					}
					want := rawtensor.New(t, rawtensor.Float32, shape...)
					c.Outs[0] = operandOf(want)
					require.NoError(t, runKernel(t, nil, kernel, c))
					want.Each(func(i []int) {
						if want.Bits(i...) != out.Bits(i...) {
							require.Equal(t, want.Value(i...), out.Value(i...), "%s of %s %s %v at %v", kernel, rawtensor.Name(dtype), name, shape, i)
						}
					})
				}
			}
		}
	}
}

func TestAttributes(t *testing.T) {
	for _, c := range []struct {
		kernel string
		dtype  int
	}{{"add_scaled.f32", rawtensor.BFloat16}, {"add_scaled.f64", rawtensor.Float64}, {"add_scaled.i64", rawtensor.Int32}} {
		x, y := rawtensor.New(t, c.dtype, 3), rawtensor.New(t, c.dtype, 3)
		x.Fill(func(i []int) float64 { return float64(i[0]) })
		y.Fill(func(i []int) float64 { return 2 })
		call := callOf([]*rawtensor.Tensor{x}, []*rawtensor.Tensor{x, y}, -3)
		if c.kernel == "add_scaled.i64" {
			call.Floats, call.Ints = nil, []int64{-3}
		}
		require.NoError(t, runKernel(t, nil, c.kernel, call))
		require.Equal(t, []float64{-6, -5, -4}, []float64{x.Value(0), x.Value(1), x.Value(2)})
	}
}

// TestInPlace has an output that is also an input, in every layout, with and without conversion.
func TestInPlace(t *testing.T) {
	workers := pool.New(2)
	defer workers.Close()
	rng := rand.New(rand.NewPCG(5, 6))
	for _, dtype := range rawtensor.DTypes {
		for _, shape := range [][]int{{3}, {70, 130}, {300, 3}, {20000}} {
			for name, x := range rawtensor.Layouts(t, dtype, shape) {
				x.Random(rng)
				old := x.Clone(t)
				require.NoError(t, runKernel(t, workers.Ptr(), "mul.f64", callOf([]*rawtensor.Tensor{x}, []*rawtensor.Tensor{x, x})))
				x.Each(func(i []int) {
					if want, got := stored(dtype, old.Value(i...)*old.Value(i...)), x.Value(i...); want != got {
						require.Equal(t, want, got, "%s %s %v at %v", rawtensor.Name(dtype), name, shape, i)
					}
				})
			}
		}
	}
}

func TestDivisionByZeroIsReported(t *testing.T) {
	x, y := rawtensor.New(t, rawtensor.Int32, 40000), rawtensor.New(t, rawtensor.Int32, 40000)
	y.Fill(func([]int) float64 { return 3 })
	for _, name := range []string{"floor_divide.i64", "remainder.i64", "fmod.i64", "trunc_divide.i64"} {
		c := callOf([]*rawtensor.Tensor{x}, []*rawtensor.Tensor{x, y})
		require.NoError(t, runKernel(t, nil, name, c))
		y.Set(0, 39999)
		require.EqualError(t, runKernel(t, nil, name, c), "test: integer division by zero")
		y.Set(3, 39999)
	}
	z := rawtensor.New(t, rawtensor.Float32, 2)
	require.NoError(t, runKernel(t, nil, "floor_divide.f32", callOf([]*rawtensor.Tensor{z}, []*rawtensor.Tensor{z, z})))
}

// TestNonTemporalStores has an output that is large enough for non-temporal stores.
func TestNonTemporalStores(t *testing.T) {
	if testing.Short() {
		t.Skip("uses much memory")
	}
	const n = 9<<20 + 13
	x, out := rawtensor.New(t, rawtensor.Float32, n), rawtensor.New(t, rawtensor.Float32, n+1).Slice(0, 1, n+1, 1)
	xs, outs := unsafe.Slice((*float32)(x.Ptr), n), unsafe.Slice((*float32)(out.Ptr), n)
	for i := range xs {
		xs[i] = float32(i % 1000)
	}
	c := callOf([]*rawtensor.Tensor{out}, []*rawtensor.Tensor{x, x})
	require.NoError(t, runKernel(t, nil, "add.f32", c))
	for i, v := range outs {
		if v != 2*xs[i] {
			require.Equal(t, 2*xs[i], v, "at %d", i)
		}
	}
	c.Ins[1] = numberOf(3)
	require.NoError(t, runKernel(t, nil, "add.f32", c))
	for i, v := range outs {
		if v != xs[i]+3 {
			require.Equal(t, xs[i]+3, v, "at %d", i)
		}
	}
}

// TestBitsDoNotDependOnThreads checks that results have the same bits for any number of threads.
func TestBitsDoNotDependOnThreads(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	x := rawtensor.New(t, rawtensor.Float32, 300, 301).Fill(func([]int) float64 { return rng.NormFloat64() })
	y := rawtensor.New(t, rawtensor.Float32, 301, 300).Fill(func([]int) float64 { return rng.NormFloat64() }).Permute(1, 0)
	var want []byte
	for _, threads := range []int{1, 2, 3, 8} {
		workers := pool.New(threads)
		out := rawtensor.New(t, rawtensor.Float32, 300, 301)
		require.NoError(t, runKernel(t, workers.Ptr(), "atan2.f32", callOf([]*rawtensor.Tensor{out}, []*rawtensor.Tensor{x, y})))
		if want == nil {
			want = out.Memory()
		}
		require.Equal(t, want, out.Memory(), fmt.Sprintf("%d threads", threads))
		workers.Close()
	}
}
