// Package kerneltest calls registered kernels on raw memory in many layouts, for their tests.
package kerneltest

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
	"github.com/plait-ml/plait/core/cpu/kernel/internal/rawtensor"
	"github.com/plait-ml/plait/core/cpu/pool"
	"github.com/stretchr/testify/require"
)

// A Layout makes tensors with one kind of memory layout.
type Layout struct {
	Name string
	Make func(t testing.TB, d core.DType, shape []int) *rawtensor.Tensor
}

// Layouts are the layouts that all kernels must accept.
var Layouts = []Layout{{"contiguous", New}, {"transposed", transposed}, {"stepped", stepped}, {"broadcast", broadcast}}

// New returns a row-major tensor of zeros.
func New(t testing.TB, d core.DType, shape []int) *rawtensor.Tensor {
	return rawtensor.New(t, int(d), shape...)
}

func transposed(t testing.TB, d core.DType, shape []int) *rawtensor.Tensor {
	reversed, order := make([]int, len(shape)), make([]int, len(shape))
	for i, n := range shape {
		reversed[len(shape)-1-i], order[i] = n, len(shape)-1-i
	}
	return New(t, d, reversed).Permute(order...)
}

func stepped(t testing.TB, d core.DType, shape []int) *rawtensor.Tensor {
	bigger := make([]int, len(shape))
	for i, n := range shape {
		bigger[i] = 2*n + 1
	}
	x := New(t, d, bigger)
	for i, n := range shape {
		x = x.Slice(i, 1, 2*n+1, 2)
	}
	return x
}

func broadcast(t testing.TB, d core.DType, shape []int) *rawtensor.Tensor {
	small := make([]int, len(shape))
	for i, n := range shape {
		small[i] = 1
		if i%2 == 1 {
			small[i] = n
		}
	}
	return New(t, d, small).Expand(shape...)
}

// Random fills x with numbers that every dtype can hold. With special, some are NaN, infinities and signed zeros.
func Random(r *rand.Rand, x *rawtensor.Tensor, special bool) {
	d := core.DType(x.DType)
	for i := range x.Numel() {
		var v float64
		switch {
		case d == core.Bool:
			v = float64(r.IntN(2))
		case d.IsInt() && !d.IsSigned():
			v = float64(r.IntN(256))
		case d.IsInt():
			v = float64(r.IntN(19) - 9)
		case special && r.IntN(x.Numel()+1) == 0:
			v = []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0}[r.IntN(5)]
		default:
			v = math.Round(r.NormFloat64()*32) / 32
		}
		Set(x, v, i)
	}
}

// Set sets element i in row-major order.
func Set(x *rawtensor.Tensor, v float64, i int) {
	index := x.Unravel(i)
	if rawtensor.IsFloat(x.DType) {
		x.SetBits(rawtensor.Encode(x.DType, v), index...)
	} else {
		x.SetBits(uint64(int64(v)), index...)
	}
}

// From returns a row-major tensor with the given elements.
func From(t testing.TB, d core.DType, shape []int, values []float64) *rawtensor.Tensor {
	x := New(t, d, shape)
	for i, v := range values {
		Set(x, v, i)
	}
	return x
}

// Values returns the elements of x in row-major order.
func Values(x *rawtensor.Tensor) []float64 {
	v := make([]float64, x.Numel())
	index := make([]int, len(x.Shape))
	for i := range v {
		if rawtensor.IsFloat(x.DType) {
			v[i] = x.Float(index...)
		} else {
			v[i] = float64(x.Int(index...))
		}
		for d := len(index) - 1; d >= 0; d-- {
			if index[d]++; index[d] < x.Shape[d] {
				break
			}
			index[d] = 0
		}
	}
	return v
}

// A Call is one call of a kernel.
type Call struct {
	Threads int
	Kernel  string
	Ints    []int
	Floats  []float64
	In, Out []*rawtensor.Tensor
}

// Run calls the kernel with a new pool.
func (c Call) Run() error {
	p := pool.New(c.Threads)
	defer p.Close()
	ctx := kernel.Context{Pool: p.Ptr()}
	defer ctx.FreeScratch()
	return c.run(&ctx)
}

func (c Call) run(ctx *kernel.Context) error {
	call := &core.Call{Kernel: core.Kernel(c.Kernel), Op: c.Kernel, Floats: c.Floats}
	call.Dims(c.Ints)
	for _, x := range c.In {
		call.Ins = append(call.Ins, operand(x))
	}
	for _, x := range c.Out {
		call.Outs = append(call.Outs, operand(x))
	}
	if err := contract.Check(call); err != nil {
		return err
	}
	return kernel.Lookup(call.Kernel)(ctx, call)
}

// MustRun is Run for calls that must not fail.
func (c Call) MustRun(t testing.TB) {
	t.Helper()
	require.NoError(t, c.Run())
}

func operand(x *rawtensor.Tensor) core.Operand {
	return core.Operand{Memory: core.Memory{Ptr: x.Ptr}, DType: core.DType(x.DType), Shape: x.Shape, Strides: x.Strides}
}

// RequireSameBits fails unless two row-major tensors have the same bits.
func RequireSameBits(t testing.TB, a, b *rawtensor.Tensor) {
	t.Helper()
	require.True(t, bytes.Equal(a.Memory(), b.Memory()))
}
