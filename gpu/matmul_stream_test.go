package gpu_test

import (
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/gpu/shader"
)

var halfTolerance = map[core.DType]float64{core.Float32: 1e-4, core.Float16: 4e-3, core.BFloat16: 3e-2}

// byColumns returns a matrix with the same values, stored by columns.
func byColumns(x *core.Tensor) *core.Tensor {
	return op.Transpose(op.Contiguous(op.Transpose(x, -2, -1)), -2, -1)
}

// TestStreamedProducts checks products with few rows or few columns: in every layout of the factors, of every dtype, at sizes that can
// be read four elements at a time and others, and with K in pieces.
func TestStreamedProducts(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, multiprocessors := range []int{1, 132} {
		defer gpu.Tune(device(t), func(f *shader.Tuning) { f.Multiprocessors = multiprocessors })()
		for dtype, tolerance := range halfTolerance {
			for _, size := range [][2]int{{300, 64}, {67, 131}, {20, 2052}} {
				if (testing.Short() || multiprocessors == 1) && size[1] != 131 {
					continue
				}
				long, k := size[0], size[1]
				for _, few := range []int{1, 4} {
					core.Tidy(func() {
						x, v := op.To(op.Randn(long, k), dtype), op.To(op.Randn(k, few), dtype)
						compareWithCPU(t, tolerance, func(x ...*core.Tensor) []*core.Tensor {
							m, v := x[0], x[1]
							mt, vt := op.Transpose(m, 0, 1), op.Transpose(v, 0, 1)
							return []*core.Tensor{
								op.MatMul(m, v), op.MatMul(byColumns(m), v), op.MatMul(m, byColumns(v)),
								op.MatMul(vt, mt), op.MatMul(vt, byColumns(mt)), op.MatMul(byColumns(vt), mt),
							}
						}, x, v)
					})
				}
			}
		}
	}
}

// TestStreamedEpilogues checks bias, scaled results, results that are added to others, and batches.
func TestStreamedEpilogues(t *testing.T) {
	coretest.SkipUnderRace(t)
	for dtype, tolerance := range halfTolerance {
		core.Tidy(func() {
			compareWithCPU(t, tolerance, func(x ...*core.Tensor) []*core.Tensor {
				m, v, to, bias := x[0], x[1], x[2], x[3]
				row := op.Transpose(v, 0, 1)
				return []*core.Tensor{
					op.Linear(row, m, bias), op.MV(m, op.Select(v, 1, 0)), op.AddMM(to, m, v, 0.5, 2), op.AddMMInPlace(op.Clone(to), m, v, 2, 0.5),
					op.AddMMInPlace(op.Clone(op.Transpose(to, 0, 1)), row, op.Transpose(m, 0, 1), 1, 1), op.MatMul(x[4], x[5]), op.MatMul(x[4], op.Expand(op.Select(x[5], 0, 0), 5, 132, 2)),
					op.MatMul(op.Transpose(x[5], -2, -1), op.Transpose(x[4], -2, -1)),
				}
			}, op.To(op.Randn(68, 132), dtype), op.To(op.Randn(132, 2), dtype), op.To(op.Randn(68, 2), dtype), op.To(op.Randn(68), dtype),
				op.To(op.Randn(5, 68, 132), dtype), op.To(op.Randn(5, 132, 2), dtype))
		})
	}
}

// TestProductsOf16Bits checks tiles that are read and written four elements at a time, in every layout, with a K that ends inside a tile.
func TestProductsOf16Bits(t *testing.T) {
	coretest.SkipUnderRace(t)
	for _, dtype := range []core.DType{core.Float16, core.BFloat16} {
		for _, size := range [][3]int{{68, 72, 64}, {36, 40, 44}, {35, 41, 43}} {
			core.Tidy(func() {
				compareWithCPU(t, halfTolerance[dtype], func(x ...*core.Tensor) []*core.Tensor {
					a, b, old := x[0], x[1], x[2]
					return []*core.Tensor{
						op.MatMul(a, b), op.MatMul(byColumns(a), b), op.MatMul(a, byColumns(b)), op.MatMul(byColumns(a), byColumns(b)),
						op.AddMMInPlace(op.Clone(old), a, b, 0.5, 2), op.AddMM(op.Select(old, 0, 0), a, b, 1, 1), op.MatMul(op.Stack([]*core.Tensor{a, a}, 0), b),
					}
				}, op.To(op.Randn(size[0], size[2]), dtype), op.To(op.Randn(size[2], size[1]), dtype), op.To(op.Randn(size[0], size[1]), dtype))
			})
		}
	}
}
