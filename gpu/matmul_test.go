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
	"github.com/plait-ml/plait/gpu/kernel/matmul"
	"github.com/plait-ml/plait/gpu/shader"
)

// TestMatMulTiles checks that every tile gives the same products, at sizes that it divides and does not divide.
func TestMatMulTiles(t *testing.T) {
	d := device(t)
	if testing.Short() {
		t.Skip("compiles many programs")
	}
	tiles := [][5]int{{32, 32, 16, 4, 4}}
	if !d.Software() {
		tiles = append(tiles, [][5]int{{64, 64, 16, 8, 4}, {128, 128, 16, 8, 8}}...)
	}
	for _, shape := range [][3]int{{65, 36, 52}, {33, 51, 35}, {64, 128, 32}} {
		m, n, k := shape[0], shape[1], shape[2]
		core.Tidy(func() {
			x, y, z := op.Randn(m, k), op.Randn(k, n), op.Randn(m, n)
			want, err := core.Values[float64](op.MatMul(x, y))
			require.NoError(t, err)
			onto, err := core.Values[float64](op.AddMM(z, x, y, 0.5, 1))
			require.NoError(t, err)
			a, b, c := op.ToDevice(x, d), op.ToDevice(y, d), op.ToDevice(z, d)
			at, bt := op.Transpose(op.ToDevice(op.Contiguous(op.Transpose(x, 0, 1)), d), 0, 1), op.Transpose(op.ToDevice(op.Contiguous(op.Transpose(y, 0, 1)), d), 0, 1)
			for _, s := range tiles {
				for _, double := range []bool{false, true} {
					func() {
						defer gpu.Tune(d, onlyTile(double, s[0], s[1], s[2], s[3], s[4]))()
						for form, f := range map[string][2]*core.Tensor{"NN": {a, b}, "NT": {a, bt}, "TN": {at, b}, "TT": {at, bt}} {
							got, err := core.Values[float64](op.MatMul(f[0], f[1]))
							require.NoError(t, err)
							require.InDeltaSlice(t, want, got, 2e-3, fmt.Sprint(shape, s, double, form))
						}
						got, err := core.Values[float64](op.AddMMInPlace(op.Clone(c), a, b, 0.5, 1))
						require.NoError(t, err)
						require.InDeltaSlice(t, onto, got, 2e-3, fmt.Sprint(shape, s, double, "added"))
						require.NoError(t, d.Synchronize())
					}()
				}
			}
		})
	}
}

// TestTransposedMatMul checks factors stored column by column, which the device may copy, and transposing copies.
func TestTransposedMatMul(t *testing.T) {
	coretest.SkipUnderRace(t)
	core.Tidy(func() {
		x, y := op.Randn(1030, 65), op.Randn(67, 65)
		compareWithCPU(t, 1e-5, func(x ...*core.Tensor) []*core.Tensor {
			return []*core.Tensor{op.MatMul(x[0], op.Transpose(x[1], 0, 1)), op.MatMul(op.Reshape(x[0], 2, 515, 65), op.Transpose(x[1], 0, 1))}
		}, x, y)
	})
	core.Tidy(func() {
		x := op.Randn(3, 70, 5, 131)
		compareWithCPU(t, 0, func(x ...*core.Tensor) []*core.Tensor {
			return []*core.Tensor{
				op.Contiguous(op.Transpose(x[0], 1, 3)), op.Contiguous(op.Transpose(op.Slice(x[0], 3, 1, 130, 1), 1, 3)),
				op.Contiguous(op.Transpose(op.Reshape(x[0], 1050, 131), 0, 1)),
			}
		}, x)
	})
}

// TestSplitK checks products with few results and a large K, which are split along K.
func TestSplitK(t *testing.T) {
	for _, depth := range []int{3000, 12345} {
		core.Tidy(func() {
			compareWithCPU(t, 1e-4, func(x ...*core.Tensor) []*core.Tensor {
				return []*core.Tensor{op.MatMul(x[0], x[1]), op.MatMul(x[0], op.Transpose(x[0], 0, 1))}
			}, op.Randn(5, depth), op.Randn(depth, 7))
		})
	}
}

// TestMatMulAccumulation checks products that are added to a tensor: aligned to vec4, unaligned, and of 16 bits.
func TestMatMulAccumulation(t *testing.T) {
	for _, dtype := range []core.DType{core.Float32, core.BFloat16, core.Float16} {
		for _, n := range []int{68, 67} {
			core.Tidy(func() {
				compareWithCPU(t, map[core.DType]float64{core.Float32: 1e-5, core.Float16: 2e-3, core.BFloat16: 2e-2}[dtype], func(x ...*core.Tensor) []*core.Tensor {
					return []*core.Tensor{op.AddMMInPlace(op.Clone(x[2]), x[0], x[1], 1, 1), op.AddMMInPlace(op.Clone(op.Transpose(x[2], 0, 1)), op.Transpose(x[1], 0, 1), op.Transpose(x[0], 0, 1), 2, 0.5)}
				}, op.To(op.Randn(65, 40), dtype), op.To(op.Randn(40, n), dtype), op.To(op.Randn(65, n), dtype))
			})
		}
	}
}

// TestSplitLastWave checks products in which only the tiles of the last wave are split along K: as vec4 and not, at edges, with
// every epilogue, and bitwise equal twice.
func TestSplitLastWave(t *testing.T) {
	coretest.SkipUnderRace(t)
	defer gpu.Tune(device(t), onlyTile(true, 32, 32, 16, 4, 4))()
	defer gpu.Tune(device(t), func(f *shader.Tuning) { f.Multiprocessors = 4 })()
	for _, c := range []struct{ m, n, k int }{{96, 96, 512}, {70, 86, 1024}, {131, 69, 800}} { // those of TestLastWaveIsSplit
		for _, transposed := range []bool{true, false} {
			core.Tidy(func() {
				compareWithCPU(t, 2e-4, func(x ...*core.Tensor) []*core.Tensor {
					a := x[0]
					if transposed {
						a = op.Transpose(op.Contiguous(op.Transpose(a, 0, 1)), 0, 1)
					}
					first, again := op.MatMul(a, x[1]), op.MatMul(a, x[1])
					return []*core.Tensor{
						first, op.Sub(again, first), op.AddMM(x[2], a, x[1], 0.5, 2), op.AddMMInPlace(op.Clone(x[2]), a, x[1], 2, 0.5),
						op.AddMM(op.Select(x[2], 0, 0), a, x[1], 1, 1), op.AddMMInPlace(op.Transpose(op.Clone(op.Transpose(x[2], 0, 1)), 0, 1), a, x[1], 1, 1),
					}
				}, op.Randn(c.m, c.k), op.Randn(c.k, c.n), op.Randn(c.m, c.n))
			})
		}
	}
}

// TestMorePiecesThanK checks splits along K in which the last pieces begin past K.
func TestMorePiecesThanK(t *testing.T) {
	d := device(t)
	defer gpu.Tune(d, onlyTile(true, 32, 32, 16, 4, 4))()
	defer gpu.Tune(device(t), func(f *shader.Tuning) { f.Multiprocessors = 4 })()
	for i := range 4 {
		transposed, last := i%2 == 1, i/2 == 1
		forget := matmul.Prefer(gpu.Target(d), 96, 96, 80, transposed, 4, last)
		core.Tidy(func() {
			compareWithCPU(t, 1e-4, func(x ...*core.Tensor) []*core.Tensor {
				a := x[0]
				if transposed {
					a = op.Transpose(op.Contiguous(op.Transpose(a, 0, 1)), 0, 1)
				}
				return []*core.Tensor{op.MatMul(a, x[1])}
			}, op.Randn(96, 80), op.Randn(80, 96))
		})
		forget()
	}
}

// paddedRows returns the matrix x with a row stride, and NaN in the padding.
func paddedRows(x *core.Tensor, stride int) *core.Tensor {
	rows, cols := x.Size(0), x.Size(1)
	wide := op.Pad(x, []int{0, stride - cols, 0, 3}, op.PadOptions{Value: math.NaN()})
	return op.Slice(op.Slice(wide, 0, 0, rows, 1), 1, 0, cols, 1)
}

// TestMatMulOfPaddedRows checks factors whose row stride is a multiple of four while the length and the number of rows are not:
// as one product, and split in two.
func TestMatMulOfPaddedRows(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, parts := range []bool{false, true} {
		for _, k := range []int{1, 16, 33, 46, 47, 1001} {
			t.Run(fmt.Sprint(k, parts), func(t *testing.T) {
				if parts {
					defer gpu.Tune(device(t), func(f *shader.Tuning) { f.RemainderK = 0 })()
				}
				core.Tidy(func() {
					compareWithCPU(t, 1e-4, func(x ...*core.Tensor) []*core.Tensor {
						a, b := paddedRows(x[0], 1004), paddedRows(x[1], 72)
						stacked, bias := op.Reshape(a, 2, 35, k), op.Select(x[4], 0, 0)
						out := []*core.Tensor{
							op.MatMul(a, b), op.MatMul(stacked, b), op.MatMul(stacked, op.Expand(b, 2, k, 69)), op.MatMul(a, op.Transpose(paddedRows(x[2], 1004), 0, 1)),
							op.MatMul(op.Transpose(a, 0, 1), paddedRows(x[3], 36)), op.MatMul(op.Transpose(b, 0, 1), op.Transpose(a, 0, 1)),
							op.AddMM(paddedRows(x[4], 72), a, b, 0.5, 2), op.Linear(a, op.Transpose(b, 0, 1), bias),
						}
						return append(out, op.AddMMInPlace(op.Clone(x[4]), a, b, 0.5, 2))
					}, op.Randn(70, k), op.Randn(k, 69), op.Randn(67, k), op.Randn(70, 33), op.Randn(70, 69))
				})
			})
		}
	}
}

// onlyTile makes products choose this tile.
func onlyTile(double bool, rows, cols, depth, high, wide int) func(*shader.Tuning) {
	return func(f *shader.Tuning) {
		f.Tiles = []shader.Tile{{Rows: rows, Cols: cols, K: depth, ThreadRows: high, ThreadCols: wide, Double: double, TileCost: 100_000}}
	}
}

// TestAlignedProducts checks products for tensor cores of matrices whose rows are not aligned: with one or more of their sizes cut, of
// every layout, and with results that are scaled, added and biased.
func TestAlignedProducts(t *testing.T) {
	coretest.SkipUnderRace(t)
	d := device(t)
	core.Permit(core.TF32Products, true)
	defer core.Permit(core.TF32Products, false)
	defer gpu.PretendLibrary(d)()
	defer gpu.Tune(d, func(f *shader.Tuning) { f.AlignedWork, f.AlignedReuse = 1, 1 })()
	there := func(x *core.Tensor) *core.Tensor { return op.ToDevice(x, d) }
	for dtype, tolerance := range map[core.DType]float64{core.Float32: 4e-3, core.Float16: 4e-3, core.BFloat16: 3e-2} {
		for i, size := range [][3]int{{33, 41, 35}, {32, 17, 48}, {19, 24, 16}, {24, 16, 25}, {17, 9, 12}} {
			for _, fa := range forms(d) {
				for _, fb := range forms(d) {
					if !*all && (i > 0 && fa.name != fb.name || dtype == core.Float16 && (i > 1 || testing.Short() && i > 0)) {
						continue
					}
					core.Tidy(func() {
						name := fmt.Sprint(dtype, size, fa.name, ", ", fb.name)
						x, y := op.To(op.Randn(size[0], size[2]), dtype), op.To(op.Randn(size[2], size[1]), dtype)
						z, row := op.To(op.Randn(size[0], size[1]), dtype), op.To(op.Randn(size[1]), dtype)
						a, b := fa.put(x), fb.put(y)
						require.NoError(t, equal(t, op.MatMul(x, y), op.MatMul(a, b), tolerance, name))
						require.NoError(t, equal(t, op.AddMMInPlace(op.Clone(z), x, y, 0.5, 2), op.AddMMInPlace(there(z), a, b, 0.5, 2), 3*tolerance, name+", added"))
						require.NoError(t, equal(t, op.Linear(x, op.Transpose(y, 0, 1), row), op.Linear(a, op.Transpose(b, 0, 1), there(row)), tolerance, name+", biased"))
					})
				}
			}
		}
	}
}
