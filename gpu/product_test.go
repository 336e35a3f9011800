package gpu_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
)

// libraryDevice opens a device whose library computes products on the host.
func libraryDevice(t *testing.T) *gpu.Device {
	t.Helper()
	d, err := core.OpenDevice("fakeproducts:0")
	require.NoError(t, err)
	return d.(*gpu.Device)
}

// A form is a way to store a matrix on a device.
type form struct {
	name string
	put  func(x *core.Tensor) *core.Tensor
}

// forms returns ways in which a matrix may lie in memory. Each puts a tensor of the CPU on the device.
func forms(d *gpu.Device) []form {
	transposed := func(x *core.Tensor) *core.Tensor { return op.Transpose(x, -2, -1) }
	inside := func(x *core.Tensor) *core.Tensor { // between other rows and columns
		pad := op.ToDevice(op.Contiguous(op.Pad(x, []int{3, 4, 1, 2}, op.PadOptions{Value: 1e6})), d)
		return op.Slice(op.Slice(pad, -2, 1, 1+x.Size(-2), 1), -1, 3, 3+x.Size(-1), 1)
	}
	return []form{
		{"contiguous", func(x *core.Tensor) *core.Tensor { return op.ToDevice(x, d) }},
		{"transposed", func(x *core.Tensor) *core.Tensor { return transposed(op.ToDevice(op.Contiguous(transposed(x)), d)) }},
		{"inside", inside},
		{"inside transposed", func(x *core.Tensor) *core.Tensor { return transposed(inside(transposed(x))) }},
	}
}

var libraryDTypes = map[core.DType]float64{core.Float32: 1e-5, core.Float16: 4e-3, core.BFloat16: 3e-2}

// TestLibraryProductOfEveryLayout compares products of a library with the CPU's, for every layout of the factors.
// Tensors of 16 bits have even numbers of elements: the last word of others is written by a program, which the fake does not run.
func TestLibraryProductOfEveryLayout(t *testing.T) {
	d := libraryDevice(t)
	for dtype, tolerance := range libraryDTypes {
		for _, size := range [][3]int{{6, 8, 10}, {1, 8, 6}, {8, 1, 6}, {4, 6, 1}, {1, 1, 4}} {
			for _, fa := range forms(d) {
				for _, fb := range forms(d) {
					core.Tidy(func() {
						name := fmt.Sprint(dtype, size, fa.name, ", ", fb.name)
						x, y := op.To(op.Randn(size[0], size[2]), dtype), op.To(op.Randn(size[2], size[1]), dtype)
						require.NoError(t, equal(t, op.MatMul(x, y), op.MatMul(fa.put(x), fb.put(y)), tolerance, name))
						require.Len(t, gpu.Products(d), 1, name)
					})
				}
			}
		}
	}
}

// TestLibraryProductBatches checks batches: of one stride, shared factors, and heads that lie between those of other tokens.
func TestLibraryProductBatches(t *testing.T) {
	d := libraryDevice(t)
	check := func(name string, calls int, fn func(x, y *core.Tensor) *core.Tensor, x, y *core.Tensor) {
		t.Helper()
		gpu.Products(d)
		require.NoError(t, equal(t, fn(x, y), fn(op.ToDevice(x, d), op.ToDevice(y, d)), 1e-5, name))
		require.Len(t, gpu.Products(d), calls, name)
	}
	core.Tidy(func() {
		check("plain", 1, op.MatMul, op.Randn(6, 4, 5), op.Randn(6, 5, 3))
		check("two dimensions", 1, op.MatMul, op.Randn(2, 3, 4, 5), op.Randn(2, 3, 5, 3))
		check("shared right factor", 1, op.MatMul, op.Randn(6, 4, 5), op.Randn(5, 3))
		check("shared left factor", 1, op.MatMul, op.Randn(4, 5), op.Randn(6, 5, 3))
		check("broadcast along one dimension", 2, op.MatMul, op.Randn(2, 3, 4, 5), op.Randn(3, 5, 3))
		heads := func(x *core.Tensor) *core.Tensor { return op.Transpose(op.Reshape(x, 2, 6, 4, 8), 1, 2) }
		check("heads", 2, func(x, y *core.Tensor) *core.Tensor {
			return op.MatMul(heads(x), op.Transpose(heads(y), -2, -1))
		}, op.Randn(2, 6, 32), op.Randn(2, 6, 32))
		check("many matrices", 2, op.MatMul, op.Randn(70_000, 1, 2), op.Randn(70_000, 2, 1))
	})
}

// TestLibraryProductEpilogues checks bias, and results that are scaled or added to a tensor, also to one that is stored by columns.
func TestLibraryProductEpilogues(t *testing.T) {
	d := libraryDevice(t)
	for dtype, tolerance := range libraryDTypes {
		core.Tidy(func() {
			x, y, z := op.To(op.Randn(6, 5), dtype), op.To(op.Randn(5, 10), dtype), op.To(op.Randn(6, 10), dtype)
			row := op.To(op.Randn(10), dtype)
			weight := op.Contiguous(op.Transpose(y, 0, 1))
			there := func(x *core.Tensor) *core.Tensor { return op.ToDevice(x, d) }
			gpu.Products(d)
			require.NoError(t, equal(t, op.Linear(x, weight, row), op.Linear(there(x), there(weight), there(row)), tolerance, "bias"))
			require.NoError(t, equal(t, op.AddMMInPlace(op.Clone(z), x, y, 0.5, 2), op.AddMMInPlace(there(z), there(x), there(y), 0.5, 2), tolerance, "added"))
			byColumns := op.Transpose(there(op.Contiguous(op.Transpose(z, 0, 1))), 0, 1)
			require.NoError(t, equal(t, op.AddMMInPlace(op.Clone(z), x, y, 1, 2), op.AddMMInPlace(byColumns, there(x), there(y), 1, 2), tolerance, "by columns"))
			list := gpu.Products(d)
			require.Len(t, list, 3)
			require.NotNil(t, list[0].Bias.Buffer)
			require.Equal(t, [2]int{10, 6}, [2]int{list[2].M, list[2].N}, "the transposed product")
			for _, p := range list {
				require.Equal(t, [2]core.DType{dtype, dtype}, [2]core.DType{p.Factors, p.Result}, "16 bits go in and out")
			}
		})
	}
}

// TestLibraryProductGradients checks that the derivatives of a product use the library too.
func TestLibraryProductGradients(t *testing.T) {
	d := libraryDevice(t)
	core.Tidy(func() {
		x, w, g := op.Randn(3, 4, 5), op.Randn(7, 5), op.Randn(3, 4, 7)
		grads := func(x, w, g *core.Tensor) []*core.Tensor {
			x, w = x.Detach().SetRequiresGrad(true), w.Detach().SetRequiresGrad(true)
			out, err := autograd.Grad([]*core.Tensor{op.Linear(x, w, nil)}, []*core.Tensor{x, w}, []*core.Tensor{g}, autograd.Options{})
			require.NoError(t, err)
			return out
		}
		gpu.Products(d)
		want, got := grads(x, w, g), grads(op.ToDevice(x, d), op.ToDevice(w, d), op.ToDevice(g, d))
		for i := range want {
			require.NoError(t, equal(t, want[i], got[i], 1e-5, fmt.Sprint(i)))
		}
		require.Len(t, gpu.Products(d), 3)
	})
}

// TestProductsThatTheLibraryDoesNotTake checks that layouts and dtypes a library cannot express run as programs.
func TestProductsThatTheLibraryDoesNotTake(t *testing.T) {
	d := libraryDevice(t)
	there := func(sizes ...int) *core.Tensor { return op.ToDevice(op.Randn(sizes...), d) }
	core.Tidy(func() {
		for name, fn := range map[string]func() *core.Tensor{
			"every second column": func() *core.Tensor { return op.MatMul(op.Slice(there(4, 10), 1, 0, 10, 2), there(5, 3)) },
			"repeated rows":       func() *core.Tensor { return op.MatMul(op.Expand(there(1, 5), 4, 5), there(5, 3)) },
			"no algorithm":        func() *core.Tensor { return op.MatMul(there(4, 13), there(13, 3)) },
			"integers": func() *core.Tensor {
				return op.MatMul(op.ToDevice(op.To(op.Ones(4, 5), core.Int64), d), op.ToDevice(op.To(op.Ones(5, 3), core.Int64), d))
			},
			"no depth":     func() *core.Tensor { return op.MatMul(there(4, 0), there(0, 3)) },
			"many strides": func() *core.Tensor { return op.MatMul(there(400, 300, 1, 2), there(300, 2, 1)) },
		} {
			gpu.Products(d)
			before := d.Traffic().Dispatches
			fn()
			require.NoError(t, d.Synchronize(), name)
			require.Empty(t, gpu.Products(d), name)
			require.Greater(t, d.Traffic().Dispatches, before, name)
		}
	})
}

// TestReducedPrecisionIsThatOfTheCall checks that a product has the precision that was permitted when it was called.
func TestReducedPrecisionIsThatOfTheCall(t *testing.T) {
	d := libraryDevice(t)
	for p, dtype := range map[core.Permission]core.DType{core.TF32Products: core.Float32, core.Float16Sums: core.Float16, core.BFloat16Sums: core.BFloat16} {
		core.Tidy(func() {
			x, y := op.ToDevice(op.To(op.Randn(4, 5), dtype), d), op.ToDevice(op.To(op.Randn(5, 3), dtype), d)
			require.NoError(t, d.Synchronize())
			gpu.Products(d)
			release := gpu.HoldThread(d)
			op.MatMul(x, y)
			require.False(t, core.Permit(p, true))
			op.MatMul(x, y)
			require.True(t, core.Permit(p, false))
			op.MatMul(x, y)
			release()
			require.NoError(t, d.Synchronize())
			var reduced []bool
			for _, p := range gpu.Products(d) {
				reduced = append(reduced, p.Reduced)
			}
			require.Equal(t, []bool{false, true, false}, reduced, dtype)
		})
	}
}

// TestMissingLibraryIsTold checks that a device without its library computes by programs and says what is missing.
func TestMissingLibraryIsTold(t *testing.T) {
	require.NoError(t, libraryDevice(t).MissingLibrary())
	opened, err := core.OpenDevice("fakeproducts:1")
	require.NoError(t, err)
	d := opened.(*gpu.Device)
	require.ErrorContains(t, d.MissingLibrary(), "libproducts.so.1")
	core.Tidy(func() {
		op.MatMul(op.ToDevice(op.Randn(4, 5), d), op.ToDevice(op.Randn(5, 3), d))
		require.NoError(t, d.Synchronize())
		require.Empty(t, gpu.Products(d))
	})
}
