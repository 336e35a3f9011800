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
	reads, writes float64 // in elements for each element of the operand, of four bytes
	run           func(x, y *core.Tensor) *core.Tensor
}

// passes have operands of shape [rows, 1024].
var passes = []pass{
	{"add", 2, 1, op.Add},
	{"mul by a number", 1, 1, func(x, _ *core.Tensor) *core.Tensor { return op.Mul(x, core.Num(2)) }},
	{"add a row", 1, 1, func(x, y *core.Tensor) *core.Tensor { return op.Add(x, op.Select(y, 0, 0)) }},
	{"relu", 1, 1, func(x, _ *core.Tensor) *core.Tensor { return op.Relu(x) }},
	{"exp", 1, 1, func(x, _ *core.Tensor) *core.Tensor { return op.Exp(x) }},
	{"tanh", 1, 1, func(x, _ *core.Tensor) *core.Tensor { return op.Tanh(x) }},
	{"sigmoid", 1, 1, func(x, _ *core.Tensor) *core.Tensor { return op.Sigmoid(x) }},
	{"copy", 1, 1, func(x, _ *core.Tensor) *core.Tensor { return op.Clone(x) }},
	{"to bfloat16", 1, 0.5, func(x, _ *core.Tensor) *core.Tensor { return op.To(x, core.BFloat16) }},
	{"sum", 1, 0, func(x, _ *core.Tensor) *core.Tensor { return op.Sum(x, nil, false) }},
	{"sum of rows", 1, 0, func(x, _ *core.Tensor) *core.Tensor { return op.Sum(x, []int{1}, false) }},
	{"sum of columns", 1, 0, func(x, _ *core.Tensor) *core.Tensor { return op.Sum(x, []int{0}, false) }},
	{"maximum of rows", 1, 0, func(x, _ *core.Tensor) *core.Tensor { return op.Amax(x, []int{1}, false) }},
	{"argmax of rows", 1, 0, func(x, _ *core.Tensor) *core.Tensor { return op.ArgMax(x, []int{1}, false) }},
	{"softmax of rows", 1, 1, func(x, _ *core.Tensor) *core.Tensor { return op.Softmax(x, -1) }},
	{"log_softmax of rows", 1, 1, func(x, _ *core.Tensor) *core.Tensor { return op.LogSoftmax(x, -1) }},
	{"layer_norm of rows", 1, 1, func(x, _ *core.Tensor) *core.Tensor { return op.LayerNorm(x, []int{1024}, nil, nil, 1e-5) }},
	{"rms_norm of rows", 1, 1, func(x, _ *core.Tensor) *core.Tensor { return op.RMSNorm(x, []int{1024}, nil, 1e-6) }},
}

// memoryBound compares operations on 128 MiB with memcpy of as much.
func memoryBound(b *bench) { comparePasses(b, 32<<10, 0.8) }

// cacheBound compares them on 256 KiB, the cost of the call included.
func cacheBound(b *bench) { comparePasses(b, 64, 0) }

func comparePasses(b *bench, rows int, goal float64) {
	x, y := op.Rand(rows, 1024), op.Rand(rows, 1024)
	defer x.Release()
	defer y.Release()
	copying := copyLoop(b.threads, y, x)
	bytes := float64(x.Numel() * 4)
	for _, p := range passes {
		ours, theirs := b.compare(func() (err error) {
			core.Tidy(func() { err = p.run(x, y).Err() })
			return err
		}, copying)
		b.add(p.name, (p.reads+p.writes)*bytes/ours/1e9, 2*bytes/theirs/1e9, goal)
		if b.err != nil {
			b.err = fmt.Errorf("%s: %w", p.name, b.err)
			return
		}
	}
}
