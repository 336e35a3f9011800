// Package scan has the CPU kernels that scan a tensor along a dimension: running sums, products, extremes with their
// indices, and log-sum-exp. scan.h says how they work.
//
// Every kernel takes the tensor as its only input and the dimension as its integer attribute. The output has the input's
// shape and dtype, but int64 for sums and products of integers; those of extremes have a second one for the index.
package scan

/*
#cgo CFLAGS: -O3 -fopenmp-simd
#cgo LDFLAGS: -lm
#cgo noescape plaitk_scan_run
#cgo nocallback plaitk_scan_run
#include "scan.h"
*/
import "C"

import (
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	for name, op := range map[string]C.int32_t{
		"cumsum": C.SCAN_SUM, "cumprod": C.SCAN_PROD, "cummax": C.SCAN_MAX, "cummin": C.SCAN_MIN, "logcumsumexp": C.SCAN_LOGSUMEXP,
	} {
		kernel.Register(name, func(ctx *kernel.Context, c *core.Call) error { return run(ctx, c, op) })
	}
}

const (
	// chunk is the number of elements worth a chunk of their own.
	chunk = 1 << 15
	// fewLines is how many lines there may be for cutting them to pay, since that reads them twice.
	fewLines = 16
)

func run(ctx *kernel.Context, c *core.Call, op C.int32_t) error {
	in, out := &c.Ins[0], &c.Outs[0]
	var s C.struct_plaitk_scan
	s.in, s.out, s.op, s.dtype = in.Ptr(), out.Ptr(), op, C.int32_t(in.DType)
	if len(c.Outs) > 1 {
		index := &c.Outs[1]
		if !slices.Equal(index.Strides, out.Strides) {
			return core.Errorf(core.ShapeError, c.Op, "values and indices are laid out differently, got strides %v and %v", out.Strides, index.Strides)
		}
		s.index = (*C.int64_t)(index.Ptr())
	}
	var dims [core.MaxDims]kernel.Dim
	nk, lines, n := 0, 1, 1
	for i, size := range in.Shape {
		d := kernel.Dim{Size: size, In: in.Strides[i], Out: out.Strides[i]}
		if i == int(c.Ints[0]) {
			n, s.in_stride, s.out_stride = size, C.int64_t(d.In), C.int64_t(d.Out)
			continue
		}
		lines *= size
		if size != 1 {
			dims[nk] = d
			nk++
		}
	}
	if lines == 0 || n == 0 {
		return nil
	}
	kernel.SortDims(dims[:nk])
	nk = kernel.CollapseDims(dims[:nk])
	for i, d := range dims[:nk] {
		s.ksize[i], s.kin[i], s.kout[i] = C.int64_t(d.Size), C.int64_t(d.In), C.int64_t(d.Out)
	}
	s.nk = C.int32_t(nk)

	run, width := 1, C.SCAN_LINES
	if nk > 0 {
		d := dims[nk-1]
		run = d.Size
		if d.In == 1 && d.Out == 1 && d.Size >= 8 {
			s.columns, width = 1, C.SCAN_WIDTH
		}
	}
	groups := lines / run * ((run + width - 1) / width)
	pieces, piece := 1, n
	if lines <= fewLines && n >= 2*chunk {
		piece = max(chunk, (n+255)/256)
		pieces = (n + piece - 1) / piece
		scratch, err := ctx.Scratch(2 * 8 * pieces * lines)
		if err != nil {
			return err
		}
		s.scratch = scratch
	}
	s.lines, s.n, s.width, s.groups = C.int64_t(lines), C.int64_t(n), C.int64_t(width), C.int64_t(groups)
	s.pieces, s.piece = C.int64_t(pieces), C.int64_t(piece)
	s.unit = C.int64_t(max(1, chunk/(piece*min(width, run))))
	if status := C.plaitk_scan_run((*C.plait_pool)(ctx.Pool), &s); status != 0 {
		return core.Errorf(core.DTypeError, c.Op, "not defined for %v", in.DType)
	}
	return nil
}
