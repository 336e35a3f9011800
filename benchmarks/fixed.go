package main

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// Figures of others, in milliseconds: RUMUS as its default build and as one for the native CPU, and PyTorch.
const (
	rumusAdd, rumusNativeAdd             = 0.18, 0.17
	rumusAddRow, rumusNativeAddRow       = 3.3, 3.2
	rumusTranspose, rumusNativeTranspose = 3.7, 3.9

	rumusMLP, rumusNativeMLP, torchMLP    = 10.6, 6.2, 1.6
	rumusConv, rumusNativeConv, torchConv = 37, 27, 1.8
	torchLSTM, torchGPT                   = 11.73, 44
)

// What the report says of them.
const (
	rumusNote = "RUMUS, a framework in Rust (crate rumus 0.3.1), was measured once, in float32 with one thread on a machine of " +
		"two shared AMD EPYC cores, built as by default and for the native CPU. Its figures are constants of " +
		"`benchmarks/fixed.go`: they say how far this is from where it began, not what RUMUS would do here and today."
	torchNote = "So are PyTorch's, version 2 with two threads, of an Intel Xeon for the first two steps and of an AMD EPYC for the others."
)

// operations measures single operations of which RUMUS's times are known, with one thread as it had.
func operations(b *bench) {
	if b.threads != 1 {
		return
	}
	x, y := op.Rand(1000, 1000), op.Rand(1000, 1000)
	defer x.Release()
	defer y.Release()
	for _, o := range []struct {
		name          string
		run           func() *core.Tensor
		rumus, native float64
	}{
		{"add", func() *core.Tensor { return op.Add(x, y) }, rumusAdd, rumusNativeAdd},
		{"add a row", func() *core.Tensor { return op.Add(x, op.Select(y, 0, 0)) }, rumusAddRow, rumusNativeAddRow},
		{"copy of the transpose", func() *core.Tensor { return op.Contiguous(op.Transpose(x, 0, 1)) }, rumusTranspose, rumusNativeTranspose},
	} {
		ms := b.alone(func() (err error) {
			core.Tidy(func() { err = o.run().Err() })
			return err
		}) * 1e3
		b.addTimes(o.name+" / RUMUS", ms, o.rumus, 0)
		b.addTimes(o.name+" / RUMUS native", ms, o.native, 0)
	}
}
