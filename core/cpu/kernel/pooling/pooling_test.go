package pooling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
)

func operand(t *rawtensor.Tensor) core.Operand {
	return core.Operand{Memory: core.Memory{Ptr: t.Ptr}, DType: core.DType(t.DType), Shape: t.Shape, Strides: t.Strides}
}

// run runs a kernel on each of several pools and requires the same bits from all.
func run(t *testing.T, k kernel.Func, ints []int64, in []*rawtensor.Tensor, outs ...*rawtensor.Tensor) {
	t.Helper()
	var first [][]byte
	for _, threads := range []int{1, 2, 5} {
		p := pool.New(threads)
		ctx := &kernel.Context{Pool: p.Ptr()}
		c := &core.Call{Op: "test", Ints: ints}
		for _, x := range in {
			c.Ins = append(c.Ins, operand(x))
		}
		for _, y := range outs {
			for i := range y.Memory() {
				y.Memory()[i] = 0xa5
			}
			c.Outs = append(c.Outs, operand(y))
		}
		require.NoError(t, k(ctx, c))
		ctx.FreeScratch()
		p.Close()
		for i, y := range outs {
			if threads == 1 {
				first = append(first, append([]byte{}, y.Memory()...))
			}
			require.Equal(t, first[i], y.Memory(), "%d threads", threads)
		}
	}
}

// window returns the positions of a window in one dimension, and the window's size with padding.
func (g *geometry) window(d int, o int64) (at []int64, size int64) {
	if g.adaptive != 0 {
		for i := o * g.in[d] / g.out[d]; i*g.out[d] < (o+1)*g.in[d]; i++ {
			at = append(at, i)
		}
		return at, int64(len(at))
	}
	for k := range g.kernel[d] {
		if i := o*g.stride[d] - g.padding[d] + k*g.dilation[d]; i >= 0 && i < g.in[d] {
			at = append(at, i)
		}
		if o*g.stride[d]-g.padding[d]+k < g.in[d]+g.padding[d] {
			size++
		}
	}
	return at, size
}

// each calls f for each element of y, with the positions of its window.
func (g *geometry) each(f func(o int, at []int, size int64)) {
	n := int(g.in[0] * g.in[1] * g.in[2])
	o := 0
	for p := range int(g.planes) {
		for z := range g.out[0] {
			for y := range g.out[1] {
				for x := range g.out[2] {
					wz, nz := g.window(0, z)
					wy, ny := g.window(1, y)
					wx, nx := g.window(2, x)
					var at []int
					for _, i := range wz {
						for _, j := range wy {
							for _, k := range wx {
								at = append(at, p*n+int((i*g.in[1]+j)*g.in[2]+k))
							}
						}
					}
					f(o, at, nz*ny*nx)
					o++
				}
			}
		}
	}
}

func (g *geometry) attributes() []int64 {
	ints := []int64{3, g.adaptive}
	if g.adaptive != 0 {
		return ints
	}
	for _, v := range [][3]int64{g.kernel, g.stride, g.padding, g.dilation} {
		ints = append(ints, v[:]...)
	}
	return append(ints, g.includePad, g.divisor)
}

func randomGeometry(r *rand.Rand) geometry {
	g := geometry{planes: int64(r.IntN(4)), includePad: int64(r.IntN(2)), divisor: int64(r.IntN(2) * 3)}
	if r.IntN(3) == 0 {
		g.adaptive = 1
	}
	for d := range 3 {
		g.kernel[d], g.stride[d], g.dilation[d] = int64(1+r.IntN(3)), int64(1+r.IntN(3)), int64(1+r.IntN(2))
		g.padding[d] = int64(r.IntN(int(g.kernel[d]/2) + 1))
		reach := (g.kernel[d]-1)*g.dilation[d] + 1
		g.in[d] = reach + int64(r.IntN(6)) + int64(d/2*r.IntN(40))
		g.out[d] = (g.in[d]+2*g.padding[d]-reach)/g.stride[d] + 1
		if g.adaptive != 0 {
			g.out[d] = int64(1 + r.IntN(8))
		}
	}
	return g
}

func shapeOf(planes int64, sizes [3]int64) []int {
	return []int{int(planes), int(sizes[0]), int(sizes[1]), int(sizes[2])}
}

func TestPoolsOfEveryDType(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 120 {
		g := randomGeometry(r)
		for _, dtype := range rawtensor.DTypes[1:] {
			t.Run(fmt.Sprintf("%d %s", i, rawtensor.Name(dtype)), func(t *testing.T) {
				x := rawtensor.New(t, dtype, shapeOf(g.planes, g.in)...).Random(r)
				y := rawtensor.New(t, dtype, shapeOf(g.planes, g.out)...)
				index := rawtensor.New(t, rawtensor.Int64, shapeOf(g.planes, g.out)...)
				plain := rawtensor.New(t, dtype, shapeOf(g.planes, g.out)...)
				run(t, maxCall, g.attributes(), []*rawtensor.Tensor{x}, y, index)
				run(t, maxCall, g.attributes(), []*rawtensor.Tensor{x}, plain)
				require.Equal(t, y.Memory(), plain.Memory())
				value := func(i int) float64 { return x.Value(x.Unravel(i)...) }
				n := int(g.in[0] * g.in[1] * g.in[2])
				g.each(func(o int, at []int, _ int64) {
					best := at[0]
					for _, i := range at {
						if value(i) > value(best) {
							best = i
						}
					}
					require.Equal(t, value(best), y.Value(y.Unravel(o)...))
					require.Equal(t, int64(best%n), index.Int(y.Unravel(o)...))
				})
				if !rawtensor.IsFloat(dtype) {
					return
				}
				h := g
				h.dilation = [3]int64{1, 1, 1}
				for d := range 3 {
					if h.adaptive == 0 {
						h.out[d] = (h.in[d]+2*h.padding[d]-h.kernel[d])/h.stride[d] + 1
					}
				}
				y = rawtensor.New(t, dtype, shapeOf(h.planes, h.out)...)
				run(t, averageCall, h.attributes(), []*rawtensor.Tensor{x}, y)
				dx := rawtensor.New(t, dtype, shapeOf(h.planes, h.in)...)
				dy := rawtensor.New(t, dtype, shapeOf(h.planes, h.out)...).Random(r)
				run(t, averageGradCall, h.attributes(), []*rawtensor.Tensor{dy}, dx)
				tolerance := map[int]float64{rawtensor.Float16: 2e-3, rawtensor.BFloat16: 1.6e-2, rawtensor.Float32: 1e-6, rawtensor.Float64: 1e-14}[dtype]
				want := make([]float64, x.Numel())
				h.each(func(o int, at []int, size int64) {
					switch {
					case h.adaptive != 0:
					case h.divisor != 0:
						size = h.divisor
					case h.includePad == 0:
						size = int64(len(at))
					}
					sum := 0.0
					for _, i := range at {
						sum += value(i)
						want[i] += dy.Value(dy.Unravel(o)...) / float64(size)
					}
					require.InDelta(t, sum/float64(size), y.Value(y.Unravel(o)...), tolerance*(1+math.Abs(sum)))
				})
				for i, v := range want {
					require.InDelta(t, v, dx.Value(dx.Unravel(i)...), 4*tolerance*(1+math.Abs(v)))
				}
			})
		}
	}
}

// The average of a whole plane sums its columns, and these in eights, whatever the width of a row.
func TestAveragesOfPlanes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for width := range int64(17) {
		g := geometry{planes: 5, adaptive: 1, in: [3]int64{2, 3, width + 1}, out: [3]int64{1, 1, 1}}
		x := rawtensor.New(t, rawtensor.Float32, shapeOf(g.planes, g.in)...).Fill(func([]int) float64 { return r.NormFloat64() })
		y := rawtensor.New(t, rawtensor.Float32, shapeOf(g.planes, g.out)...)
		run(t, averageCall, g.attributes(), []*rawtensor.Tensor{x}, y)
		for p := range int(g.planes) {
			columns := make([]float32, g.in[2])
			for i := range int(g.in[0] * g.in[1]) {
				for c := range columns {
					columns[c] += float32(x.Value(p, i/3, i%3, c))
				}
			}
			var eight [8]float32
			var sum float32
			for len(columns) >= 8 {
				for l := range eight {
					eight[l] += columns[l]
				}
				columns = columns[8:]
			}
			for _, c := range columns {
				sum += c
			}
			sum += ((eight[0] + eight[1]) + (eight[2] + eight[3])) + ((eight[4] + eight[5]) + (eight[6] + eight[7]))
			require.Equal(t, sum/float32(6*g.in[2]), float32(y.Value(p, 0, 0, 0)), "rows of %d", g.in[2])
		}
	}
}

func TestGatherAndScatter(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, shape := range [][3]int{{3, 7, 5}, {40, 1000, 300}, {0, 4, 4}, {2, 0, 3}, {2, 5, 1}} {
		planes, n, size := shape[0], shape[1], shape[2]
		index := rawtensor.New(t, rawtensor.Int64, planes, n).Fill(func([]int) float64 { return float64(r.IntN(size)) })
		for _, dtype := range rawtensor.DTypes {
			x := rawtensor.New(t, dtype, planes, size).Random(r)
			y := rawtensor.New(t, dtype, planes, n)
			run(t, gatherCall, []int64{1}, []*rawtensor.Tensor{x, index}, y)
			y.Each(func(i []int) {
				require.Equal(t, x.Bits(i[0], int(index.Int(i...))), y.Bits(i...))
			})
			for _, add := range []int64{0, 1} {
				if add == 1 && !rawtensor.IsFloat(dtype) {
					continue
				}
				values := rawtensor.New(t, dtype, planes, n).Random(r)
				back := rawtensor.New(t, dtype, planes, size)
				run(t, scatterCall, []int64{1, add}, []*rawtensor.Tensor{values, index}, back)
				want := make([]float64, planes*size)
				values.Each(func(i []int) {
					at := i[0]*size + int(index.Int(i...))
					want[at] = values.Value(i...) + float64(add)*want[at]
				})
				back.Each(func(i []int) {
					w := want[i[0]*size+i[1]]
					require.Equal(t, rawtensor.Decode(dtypeOfFloat(dtype), rawtensor.Encode(dtypeOfFloat(dtype), w)), back.Value(i...))
				})
			}
		}
	}
}

// dtypeOfFloat returns the floating-point dtype in which an exact value of dtype is rounded.
func dtypeOfFloat(dtype int) int {
	if rawtensor.IsFloat(dtype) {
		return dtype
	}
	return rawtensor.Float64
}

func TestIndicesOutOfRange(t *testing.T) {
	x := rawtensor.New(t, rawtensor.Float32, 2, 3).Random(rand.New(rand.NewPCG(5, 6)))
	for _, bad := range []float64{-1, 3, math.MinInt64} {
		index := rawtensor.New(t, rawtensor.Int64, 2, 4)
		index.Set(bad, 1, 2)
		y := rawtensor.New(t, rawtensor.Float32, 2, 4)
		c := &core.Call{Op: "test", Ints: []int64{1, 1}, Ins: []core.Operand{operand(x), operand(index)}, Outs: []core.Operand{operand(y)}}
		want := fmt.Sprintf("test: index %d out of range for planes of 3 elements", int64(bad))
		require.EqualError(t, gatherCall(&kernel.Context{}, c), want)
		c = &core.Call{Op: "test", Ints: []int64{1, 1}, Ins: []core.Operand{operand(y), operand(index)}, Outs: []core.Operand{operand(x)}}
		require.EqualError(t, scatterCall(&kernel.Context{}, c), want)
	}
}
