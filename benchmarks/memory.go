package main

/*
#include <string.h>
static void copy_bytes(void *dst, const void *src, size_t n) { memcpy(dst, src, n); }
#cgo noescape copy_bytes
#cgo nocallback copy_bytes
*/
import "C"

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// data returns the address of a tensor's first element.
func data(t *core.Tensor) unsafe.Pointer {
	return unsafe.Add(t.Storage().Memory().Ptr, t.Offset()*t.DType().Size())
}

// copyLoop returns a function that copies a tensor's bytes with memcpy, in as many parts as there are threads.
func copyLoop(threads int, dst, src *core.Tensor) func() error {
	total := src.Numel() * src.DType().Size()
	return func() error {
		var others sync.WaitGroup
		part := (total + threads - 1) / threads
		for i := range threads {
			begin := i * part
			copyPart := func() {
				C.copy_bytes(unsafe.Add(data(dst), begin), unsafe.Add(data(src), begin), C.size_t(min(part, total-begin)))
			}
			if i == threads-1 {
				copyPart()
			} else {
				others.Go(copyPart)
			}
		}
		others.Wait()
		return nil
	}
}

// pass is an operation whose time goes into reading and writing memory.
type pass struct {
	name          string
	reads, writes float64 // in elements for each element of the operand
	run           func(x, y *core.Tensor) *core.Tensor
	dtype         core.DType // float32 unless it is another floating-point one
	open          bool       // without a goal
}

var (
	rowDims, columnDims = []int{1}, []int{0}

	sumRows   = func(x, _ *core.Tensor) *core.Tensor { return op.Sum(x, rowDims, false) }
	softRows  = func(x, _ *core.Tensor) *core.Tensor { return op.Softmax(x, -1) }
	layerRows = func(x, _ *core.Tensor) *core.Tensor { return op.LayerNorm(x, []int{1024}, nil, nil, 1e-5) }
	expOf     = func(x, _ *core.Tensor) *core.Tensor { return op.Exp(x) }
)

// passes have operands of shape [rows, 1024].
var passes = []pass{
	{name: "add", reads: 2, writes: 1, run: op.Add},
	{name: "mul by a number", reads: 1, writes: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.Mul(x, core.Num(2)) }},
	{name: "add a row", reads: 1, writes: 1, run: func(x, y *core.Tensor) *core.Tensor { return op.Add(x, op.Select(y, 0, 0)) }},
	{name: "add a column", reads: 1, writes: 1, run: func(x, y *core.Tensor) *core.Tensor { return op.Add(x, op.Narrow(y, 1, 0, 1)) }},
	{name: "relu", reads: 1, writes: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.Relu(x) }},
	{name: "exp", reads: 1, writes: 1, run: expOf},
	{name: "tanh", reads: 1, writes: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.Tanh(x) }},
	{name: "sigmoid", reads: 1, writes: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.Sigmoid(x) }},
	{name: "copy", reads: 1, writes: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.Clone(x) }},
	{name: "copy of the transpose", reads: 1, writes: 1, open: true,
		run: func(x, _ *core.Tensor) *core.Tensor { return op.Contiguous(op.Transpose(x, 0, 1)) }},
	{name: "to bfloat16", reads: 1, writes: 0.5, run: func(x, _ *core.Tensor) *core.Tensor { return op.To(x, core.BFloat16) }},
	{name: "sum", reads: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.Sum(x, nil, false) }},
	{name: "sum of rows", reads: 1, run: sumRows},
	{name: "sum of columns", reads: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.Sum(x, columnDims, false) }},
	{name: "product of rows", reads: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.Prod(x, rowDims, false) }},
	{name: "variance of rows", reads: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.Var(x, rowDims, 1, false) }},
	{name: "logsumexp of rows", reads: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.LogSumExp(x, rowDims, false) }},
	{name: "norm of rows", reads: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.VectorNorm(x, 2, rowDims, op.ReduceOptions{}) }},
	{name: "maximum of rows", reads: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.Amax(x, rowDims, false) }},
	{name: "argmax of rows", reads: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.ArgMax(x, rowDims, false) }},
	{name: "cumsum of rows", reads: 1, writes: 1, open: true, run: func(x, _ *core.Tensor) *core.Tensor { return op.CumSum(x, 1) }},
	{name: "cumsum of columns", reads: 1, writes: 1, open: true, run: func(x, _ *core.Tensor) *core.Tensor { return op.CumSum(x, 0) }},
	{name: "softmax of rows", reads: 1, writes: 1, run: softRows},
	{name: "log_softmax of rows", reads: 1, writes: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.LogSoftmax(x, -1) }},
	{name: "layer_norm of rows", reads: 1, writes: 1, run: layerRows},
	{name: "rms_norm of rows", reads: 1, writes: 1, run: func(x, _ *core.Tensor) *core.Tensor { return op.RMSNorm(x, []int{1024}, nil, 1e-6) }},
	// A batch's statistics want all of it before its first element can be normalised: past the caches it is read twice.
	{name: "batch_norm of [N, 64, 16, 16]", reads: 2, writes: 1, open: true,
		run: func(x, _ *core.Tensor) *core.Tensor {
			return op.BatchNorm(images(x), nil, nil, nil, nil, true, 0.1, 1e-5)
		}},
	{name: "group_norm(32) of [N, 64, 16, 16]", reads: 1, writes: 1, open: true,
		run: func(x, _ *core.Tensor) *core.Tensor { return op.GroupNorm(images(x), 32, nil, nil, 1e-5) }},

	{name: "float64: add", reads: 2, writes: 1, run: op.Add, dtype: core.Float64},
	{name: "float64: exp", reads: 1, writes: 1, run: expOf, dtype: core.Float64, open: true},
	{name: "float64: sum of rows", reads: 1, run: sumRows, dtype: core.Float64},
	{name: "float64: softmax of rows", reads: 1, writes: 1, run: softRows, dtype: core.Float64, open: true},
	{name: "float16: add", reads: 2, writes: 1, run: op.Add, dtype: core.Float16, open: true},
	{name: "float16: softmax of rows", reads: 1, writes: 1, run: softRows, dtype: core.Float16, open: true},
	{name: "bfloat16: add", reads: 2, writes: 1, run: op.Add, dtype: core.BFloat16, open: true},
	{name: "bfloat16: sum of rows", reads: 1, run: sumRows, dtype: core.BFloat16, open: true},
	{name: "bfloat16: layer_norm of rows", reads: 1, writes: 1, run: layerRows, dtype: core.BFloat16, open: true},
}

// operands returns x and y, or tensors of as many bytes in the dtype of the pass.
func (p pass) operands(x, y *core.Tensor) (*core.Tensor, *core.Tensor) {
	if !p.dtype.IsFloat() {
		return x, y
	}
	rows := x.Numel() * 4 / 1024 / p.dtype.Size()
	return op.To(op.Rand(rows, 1024), p.dtype), op.To(op.Rand(rows, 1024), p.dtype)
}

// images returns x as images of 64 channels.
func images(x *core.Tensor) *core.Tensor { return op.Reshape(x, -1, 64, 16, 16) }

// memoryBound compares operations on 128 MiB with memcpy of as much.
func memoryBound(b *bench) { comparePasses(b, 32<<10, 0.8) }

// cacheBound compares them on 256 KiB, the cost of the call included.
func cacheBound(b *bench) { comparePasses(b, 64, 0) }

// comparePasses measures the passes on operands of as many bytes as [height, 1024] has in float32.
func comparePasses(b *bench, height int, goal float64) {
	x, y := op.Rand(height, 1024), op.Rand(height, 1024)
	defer x.Release()
	defer y.Release()
	copying := copyLoop(b.threads, y, x)
	for _, p := range passes {
		if !strings.Contains(p.name, rows) {
			continue
		}
		core.Tidy(func() {
			left, right := p.operands(x, y)
			ours, theirs := b.compare(func() (err error) {
				core.Tidy(func() { err = p.run(left, right).Err() })
				return err
			}, copying)
			want := goal
			if p.open {
				want = 0
			}
			bytes := float64(x.Numel() * 4)
			b.add(p.name, (p.reads+p.writes)*bytes/ours/1e9, 2*bytes/theirs/1e9, want)
		})
		if b.err != nil {
			b.err = fmt.Errorf("%s: %w", p.name, b.err)
			return
		}
	}
}
