package op_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
)

// compressed returns a random matrix in compressed rows, some of them empty, and the same entries in another order, with that order.
func compressed(r *rand.Rand, rows, columns, entries int) (crow, col, order *core.Tensor, dense func(values *core.Tensor) *core.Tensor) {
	starts, at := make([]int64, rows+1), make([]int64, entries)
	row := make([]int64, entries)
	for k := range row {
		row[k] = int64(r.IntN(rows)*r.IntN(2)) * int64(rows-1) / int64(max(1, rows-1))
		at[k] = int64(r.IntN(columns))
	}
	for i := range starts {
		for _, v := range row {
			if v < int64(i) {
				starts[i]++
			}
		}
	}
	sorted, places := op.Sort(core.FromSlice(row), 0, op.SortOptions{Stable: true})
	crow, order = core.FromSlice(starts), places
	col = op.IndexSelect(core.FromSlice(at), 0, places)
	return crow, col, order, func(values *core.Tensor) *core.Tensor {
		zeros := op.ZerosWith([]int{rows, columns}, op.TensorOptions{DType: dtype(values.DType())})
		return op.IndexPut(zeros, []*core.Tensor{sorted, col}, op.IndexSelect(values, 0, places), true)
	}
}

func dtype(d core.DType) *core.DType { return &d }

func TestProductsOfCompressedRowsAgreeWithDenseOnes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, d := range []core.DType{core.Float64, core.Float32, core.Float16, core.BFloat16, core.Complex128} {
		for _, n := range []int{1, 3, 16, 77, 200} {
			t.Run(fmt.Sprint(d, n), func(t *testing.T) {
				crow, col, order, dense := compressed(r, 60, 40, 300)
				values := op.To(op.Randn(300), d).Detach().SetRequiresGrad(true)
				x := op.To(op.Randn(40, n), d).Detach().SetRequiresGrad(true)
				weights := op.To(op.Randn(60, n), d)
				if d.IsComplex() {
					weights = op.Complex(op.Real(weights), op.To(op.Randn(60, n), core.Float64))
				}
				y := op.CSRMatmul(crow, col, values, x, op.CSROptions{Order: order})
				loss := func(y *core.Tensor) *core.Tensor {
					p := op.Mul(y, weights)
					if d.IsComplex() {
						p = op.Add(op.Real(p), op.Imag(p))
					}
					return op.Sum(p, nil, false)
				}
				require.NoError(t, autograd.Backward(loss(y)))
				v2, x2 := values.Detach().SetRequiresGrad(true), x.Detach().SetRequiresGrad(true)
				want := op.MatMul(dense(v2), x2)
				require.NoError(t, autograd.Backward(loss(want)))
				tolerance := map[core.DType]float64{core.Float64: 1e-12, core.Complex128: 1e-12, core.Float32: 2e-4, core.Float16: 0.1, core.BFloat16: 0.8}[d]
				for _, pair := range [][2]*core.Tensor{{y, want}, {values.Grad(), v2.Grad()}, {x.Grad(), x2.Grad()}} {
					gap, err := op.Amax(op.To(op.Abs(op.Sub(pair[0], pair[1])), core.Float64), nil, false).Item()
					require.NoError(t, err)
					require.Less(t, gap, tolerance)
				}
			})
		}
	}
}

func TestDerivativesOfCompressedRowsInAnotherOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	crow, col, order, _ := compressed(r, 5, 4, 9)
	// The transposed structure is what derivatives would find themselves.
	sorted, places := op.Sort(col, 0, op.SortOptions{Stable: true})
	numbers := func(n int) *core.Tensor { return op.Arange(nil, core.IntNum(int64(n)), nil, op.TensorOptions{}) }
	rows := op.Sub(op.SearchSorted(crow, numbers(9), op.SearchOptions{Right: true}), core.IntNum(1))
	given := op.CSROptions{Order: order, TransposedCrow: op.SearchSorted(sorted, numbers(5), op.SearchOptions{}),
		TransposedRow: op.IndexSelect(rows, 0, places), TransposedOrder: op.IndexSelect(order, 0, places)}
	for _, o := range []op.CSROptions{{Order: order}, given} {
		f := func(in []*core.Tensor) []*core.Tensor {
			return []*core.Tensor{op.CSRMatmul(crow, col, in[0], in[1], o)}
		}
		in := []*core.Tensor{op.To(op.Randn(9), core.Float64).Detach().SetRequiresGrad(true), op.To(op.Randn(4, 3), core.Float64).Detach().SetRequiresGrad(true)}
		require.NoError(t, autograd.Check(f, in, 1e-6, 1e-6, 1e-5))
		require.NoError(t, autograd.CheckDouble(f, in, 1e-6, 1e-5, 1e-4))
	}
}

func TestProductsOfBadCompressedRows(t *testing.T) {
	ints := func(v ...int64) *core.Tensor { return core.FromSlice(v) }
	values, x := vector64(1, 2), op.Ones(3, 4)
	x = op.To(x, core.Float64)
	for _, c := range []struct {
		crow, col, order *core.Tensor
		want             string
	}{
		{ints(0, 1, 2), ints(0, 3), nil, "entry 1 is in column 3, want one of [0, 3)"},
		{ints(0, 1, 2), ints(0, -1), nil, "entry 1 is in column -1"},
		{ints(0, 2, 1), ints(0, 1), nil, "row 1 has the entries from 2 to 1"},
		{ints(0, 1, 3), ints(0, 1), nil, "row 1 has the entries from 1 to 3"},
		{ints(0, 1, 2), ints(0, 1), ints(0, 2), "entry 1 has the value 2"},
	} {
		_, err := core.Values[float64](op.CSRMatmul(c.crow, c.col, values, x, op.CSROptions{Order: c.order}))
		require.ErrorContains(t, err, c.want)
		_, err = core.Values[float64](op.CSRSampledMatmul(c.crow, c.col, op.To(op.Ones(2, 4), core.Float64), x, op.CSROptions{Order: c.order}))
		require.ErrorContains(t, err, c.want)
	}
	for _, crow := range []*core.Tensor{ints(1, 1, 2), ints(0, 1, 1)} { // an entry is in no row
		_, err := core.Values[float64](op.CSRSampledMatmul(crow, ints(0, 1), op.To(op.Ones(2, 4), core.Float64), x, op.CSROptions{}))
		require.ErrorContains(t, err, "has the entries from 1 to 1")
	}
	require.ErrorContains(t, op.CSRMatmul(ints(0), ints(0, 1), values, x, op.CSROptions{}).Err(), "2 entries for no rows")
	require.ErrorContains(t, op.CSRMatmul(ints(0, 2), ints(0, 1), vector64(1), x, op.CSROptions{}).Err(), "values of shape [1] for 2 entries")
	require.ErrorContains(t, op.CSRMatmul(ints(), ints(0, 1), values, x, op.CSROptions{}).Err(), "one element more")
	require.ErrorContains(t, op.CSRMatmul(ints(0, 2), vector64(0, 1), values, x, op.CSROptions{}).Err(), "vector of int64")
	require.ErrorContains(t, op.CSRMatmul(ints(0, 2), ints(0, 1), values, op.Ones(3, 4), op.CSROptions{}).Err(), "dtypes differ")
}
