package op_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/stretchr/testify/require"
)

// integral returns a tensor of small whole numbers, whose products are exact in every dtype.
func integral(r *rand.Rand, d core.DType, shape ...int) *core.Tensor {
	v := make([]float64, core.Numel(shape))
	for i := range v {
		v[i] = float64(r.IntN(5))
		if d != core.Uint8 {
			v[i] -= 2
		}
	}
	return tensorOf(d, v, shape...)
}

// tensorOf returns a tensor of any dtype with the given elements.
func tensorOf(d core.DType, v []float64, shape ...int) *core.Tensor {
	switch d {
	case core.Uint8:
		return core.FromSlice(convertTo[uint8](v), shape...)
	case core.Int32:
		return core.FromSlice(convertTo[int32](v), shape...)
	case core.Int64:
		return core.FromSlice(convertTo[int64](v), shape...)
	case core.Float32:
		return core.FromSlice(convertTo[float32](v), shape...)
	case core.Float64:
		return core.FromSlice(v, shape...)
	}
	bits := make([]byte, 0, 2*len(v))
	for _, x := range v {
		h := core.BFloat16Bits(float32(x))
		if d == core.Float16 {
			h = core.Float16Bits(float32(x))
		}
		bits = append(bits, byte(h), byte(h>>8))
	}
	return core.FromBytes(d, bits, shape...)
}

func convertTo[E uint8 | int32 | int64 | float32](v []float64) []E {
	out := make([]E, len(v))
	for i, x := range v {
		out[i] = E(x)
	}
	return out
}

// naiveMatMul is the definition of MatMul.
func naiveMatMul(t *testing.T, x, y *core.Tensor) []float64 {
	xs, ys := x.Shape(), y.Shape()
	if len(xs) == 1 {
		xs = []int{1, xs[0]}
	}
	if len(ys) == 1 {
		ys = []int{ys[0], 1}
	}
	m, k, n := xs[len(xs)-2], xs[len(xs)-1], ys[len(ys)-1]
	batch, err := core.Broadcast("test", xs[:len(xs)-2], ys[:len(ys)-2])
	require.NoError(t, err)
	index := func(shape []int, b int) int {
		at, step := 0, 1
		for d := len(batch) - 1; d >= 0; d-- {
			i := b % batch[d]
			b /= batch[d]
			if e := d - (len(batch) - len(shape)); e >= 0 {
				if shape[e] > 1 {
					at += i * step
				}
				step *= shape[e]
			}
		}
		return at
	}
	xv, yv := values(t, x), values(t, y)
	var out []float64
	for b := range core.Numel(batch) {
		xb, yb := index(xs[:len(xs)-2], b)*m*k, index(ys[:len(ys)-2], b)*k*n
		for i := range m {
			for j := range n {
				sum := 0.0
				for p := range k {
					sum += xv[xb+i*k+p] * yv[yb+p*n+j]
				}
				out = append(out, sum)
			}
		}
	}
	return out
}

func TestMatMulOfEveryDTypeAndRank(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	cases := []struct{ x, y, want []int }{
		{[]int{4}, []int{4}, []int{}},
		{[]int{3, 4}, []int{4, 5}, []int{3, 5}},
		{[]int{4}, []int{4, 5}, []int{5}},
		{[]int{3, 4}, []int{4}, []int{3}},
		{[]int{2, 3, 4}, []int{4}, []int{2, 3}},
		{[]int{4}, []int{2, 4, 5}, []int{2, 5}},
		{[]int{2, 3, 4}, []int{4, 5}, []int{2, 3, 5}},
		{[]int{3, 4}, []int{2, 4, 5}, []int{2, 3, 5}},
		{[]int{2, 1, 3, 4}, []int{6, 4, 5}, []int{2, 6, 3, 5}},
		{[]int{2, 6, 3, 4}, []int{1, 4, 5}, []int{2, 6, 3, 5}},
		{[]int{0, 4}, []int{4, 5}, []int{0, 5}},
		{[]int{3, 0}, []int{0, 5}, []int{3, 5}},
		{[]int{0}, []int{0}, []int{}},
		{[]int{2, 0, 4}, []int{4, 3}, []int{2, 0, 3}},
		{[]int{0, 3, 4}, []int{0, 4, 5}, []int{0, 3, 5}},
		{[]int{7, 33}, []int{33, 65}, []int{7, 65}},
	}
	for _, d := range []core.DType{core.Uint8, core.Int32, core.Int64, core.Float16, core.BFloat16, core.Float32, core.Float64} {
		for _, c := range cases {
			t.Run(fmt.Sprint(d, c.x, c.y), func(t *testing.T) {
				x, y := integral(r, d, c.x...), integral(r, d, c.y...)
				got := op.MatMul(x, y)
				require.NoError(t, got.Err())
				require.Equal(t, c.want, append([]int{}, got.Shape()...))
				require.Equal(t, d, got.DType())
				want := naiveMatMul(t, x, y)
				for i, v := range values(t, got) {
					require.Equal(t, want[i], v)
				}
			})
		}
	}
}

func TestMatMulErrors(t *testing.T) {
	f := func(shape ...int) *core.Tensor { return core.FromSlice(make([]float32, core.Numel(shape)), shape...) }
	scalar := core.Scalar(float32(1))
	for want, got := range map[string]*core.Tensor{
		"matmul: inner dimensions differ, got [3 4] x [5 6]":                      op.MatMul(f(3, 4), f(5, 6)),
		"matmul: inner dimensions differ, got [4] x [5]":                          op.MatMul(f(4), f(5)),
		"matmul: inner dimensions differ, got [2 3 4] x [3]":                      op.MatMul(f(2, 3, 4), f(3)),
		"matmul: leading dimensions do not broadcast, got [2 3 4] x [3 4 5]":      op.MatMul(f(2, 3, 4), f(3, 4, 5)),
		"matmul: want at least one dimension, got [] x [3]":                       op.MatMul(scalar, f(3)),
		"matmul: dtypes differ, got float32 and int64":                            op.MatMul(f(2, 2), core.FromSlice([]int64{1, 2}, 2, 1)),
		"matmul: not defined for bool":                                            op.MatMul(core.FromSlice([]bool{true}, 1, 1), core.FromSlice([]bool{true}, 1, 1)),
		"matmul: got a number, want a tensor":                                     op.MatMul(f(2, 2), core.Num(2)),
		"mm: want two matrices, got [2 2] x [1 2 2]":                              op.MM(f(2, 2), f(1, 2, 2)),
		"bmm: the stacks have different heights, got [2 2 2] x [3 2 2]":           op.BMM(f(2, 2, 2), f(3, 2, 2)),
		"mv: want a matrix and a vector, got [2] x [2 2]":                         op.MV(f(2), f(2, 2)),
		"dot: inner dimensions differ, got [2] x [3]":                             op.Dot(f(2), f(3)),
		"linear: inner dimensions differ, got input [2 3] and weight [4 2]":       op.Linear(f(2, 3), f(4, 2), nil),
		"linear: got bias [3], want [4] for weight [4 3]":                         op.Linear(f(2, 3), f(4, 3), f(3)),
		"linear: want an input [*, in] and a weight [out, in], got [] x [4 2]":    op.Linear(scalar, f(4, 2), nil),
		"linear: want an input [*, in] and a weight [out, in], got [2] x [4 2 2]": op.Linear(f(2), f(4, 2, 2), nil),
	} {
		require.EqualError(t, got.Err(), want)
	}
}

func TestLinear(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, d := range []core.DType{core.Int64, core.Float16, core.Float32, core.Float64} {
		for _, lead := range [][]int{{}, {1}, {5}, {2, 3}, {2, 0}} {
			for _, withBias := range []bool{false, true} {
				x, w := integral(r, d, append(append([]int{}, lead...), 4)...), integral(r, d, 3, 4)
				var bias *core.Tensor
				b := make([]float64, 3)
				if withBias {
					bias = integral(r, d, 3)
					b = values(t, bias)
				}
				got := op.Linear(x, w, bias)
				require.NoError(t, got.Err())
				require.Equal(t, append(append([]int{}, lead...), 3), append([]int{}, got.Shape()...))
				xv, wv, gv := values(t, x), values(t, w), values(t, got)
				for i := range core.Numel(lead) {
					for o := range 3 {
						sum := b[o]
						for k := range 4 {
							sum += xv[i*4+k] * wv[o*4+k]
						}
						require.Equal(t, sum, gv[i*3+o])
					}
				}
				vector := op.Linear(x, op.Reshape(integral(r, d, 4), 4), nil)
				require.NoError(t, vector.Err())
				require.Equal(t, lead, append([]int{}, vector.Shape()...))
			}
		}
	}
}
