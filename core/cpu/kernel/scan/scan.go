// Package scan has the CPU kernels that scan a tensor along a dimension: running sums, products, extremes with their indices, and
// log-sum-exp. scan.h explains how they work.
//
// Every kernel takes the tensor as its only input. Its integer attributes are the dimension and, optionally, 1 to scan from the last
// element to the first. The output has the input's shape and dtype, except that sums and products of integers are int64. Extremes have a
// second output for the index.
package scan

/*
#include "c/scan.h"
*/
import "C"

import (
	"slices"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	for k, op := range map[core.KernelID]C.int32_t{
		contract.CumSum: C.SCAN_SUM, contract.CumProd: C.SCAN_PROD, contract.ComplexCumProd: C.SCAN_PROD, contract.CumMax: C.SCAN_MAX, contract.CumMin: C.SCAN_MIN, contract.LogCumSumExp: C.SCAN_LOGSUMEXP,
	} {
		kernel.Register(k, func(ctx *kernel.Context, c *core.Call) error { return run(ctx, c, op) })
	}
	kernel.Register(contract.LinearScan, linear)
	kernel.Register(contract.ComplexLinearScan, linear)
}

const (
	// chunk is the number of elements in a chunk, at least.
	chunk = 1 << 15
	// fewLines is the number of lines below which splitting lines pays, although it reads them twice. Of pairs, which wait less for each
	// other, lines have to be twice as long.
	fewLines = 16
)

// linear runs a linear recurrence; see linear.c.
func linear(ctx *kernel.Context, c *core.Call) error {
	a, b, y := &c.Ins[0], &c.Ins[1], &c.Outs[0]
	for _, o := range []*core.Operand{a, b, y} {
		if !o.Contiguous() || o.DType != y.DType || !slices.Equal(o.Shape, y.Shape) {
			return core.Errorf(core.ShapeError, c.Op, "operands differ in shape, dtype or layout, got %v%v and %v%v", y.DType, y.Shape, o.DType, o.Shape)
		}
	}
	attrs := contract.ScanOf(c)
	dim := attrs.Dim
	outer, n, inner := core.Numel(y.Shape[:dim]), y.Shape[dim], core.Numel(y.Shape[dim+1:])
	if y.Complex() {
		inner /= 2
	}
	if outer*n*inner == 0 {
		return nil
	}
	l := C.struct_plaitk_linear{a: a.Ptr(), b: b.Ptr(), y: y.Ptr(), dtype: C.int32_t(y.DType), reverse: C.int32_t(contract.Flag(attrs.Reverse)), pairs: C.int32_t(contract.Flag(y.Complex())),
		outer: C.int64_t(outer), n: C.int64_t(n), inner: C.int64_t(inner)}
	width := 1
	if inner >= 8 {
		l.columns, width = 1, min(inner, C.SCAN_WIDTH)
	}
	l.unit = C.int64_t(max(1, chunk/(n*width)))
	if status := C.plaitk_scan_linear((*C.plait_pool)(ctx.Pool), &l); status != 0 {
		return core.Errorf(core.DTypeError, c.Op, "not defined for %v", y.DType)
	}
	return nil
}

func run(ctx *kernel.Context, c *core.Call, op C.int32_t) error {
	in, out, a := &c.Ins[0], &c.Outs[0], contract.ScanOf(c)
	var s C.struct_plaitk_scan
	s.in, s.out, s.op, s.dtype = in.Ptr(), out.Ptr(), op, C.int32_t(in.DType)
	if len(c.Outs) > 1 {
		index := &c.Outs[1]
		if !slices.Equal(index.Strides, out.Strides) {
			return core.Errorf(core.ShapeError, c.Op, "values and indices are laid out differently, got strides %v and %v", out.Strides, index.Strides)
		}
		s.index = (*C.int64_t)(index.Ptr())
	}
	lay(&s, in, out, a, in.Complex())
	if s.columns != 0 && s.pairs != 0 && op == C.SCAN_SUM { // columns of parts are summed as columns of real numbers
		lay(&s, in, out, a, false)
	}
	lines, n := int(s.lines), int(s.n)
	if lines == 0 || n == 0 {
		return nil
	}
	if a.Reverse {
		if len(c.Outs) > 1 {
			return core.Errorf(core.NotImplemented, c.Op, "no indices of a scan in reverse")
		}
		elements := (n - 1) * int(1+s.pairs)
		s.in = unsafe.Add(s.in, elements*int(s.in_stride)*in.DType.Size())
		s.out = unsafe.Add(s.out, elements*int(s.out_stride)*out.DType.Size())
		s.in_stride, s.out_stride = -s.in_stride, -s.out_stride
	}
	run, width := 1, C.SCAN_LINES
	if s.nk > 0 {
		run = int(s.ksize[s.nk-1])
	}
	if s.columns != 0 {
		width = C.SCAN_WIDTH
	}
	if s.columns == 0 && s.pairs == 0 && n <= C.PLAIT_ABREAST_N && lines >= fewLines {
		s.abreast, width, run = 1, C.PLAIT_ABREAST, lines
	}
	groups := lines / run * ((run + width - 1) / width)
	pieces, piece := 1, n
	if lines <= fewLines && n >= (2+2*int(s.pairs))*chunk {
		piece = max(chunk, (n+255)/256)
		pieces = (n + piece - 1) / piece
		scratch, err := ctx.Scratch(2 * 8 * pieces * lines)
		if err != nil {
			return err
		}
		s.scratch = scratch
	}
	s.width, s.groups = C.int64_t(width), C.int64_t(groups)
	s.pieces, s.piece = C.int64_t(pieces), C.int64_t(piece)
	s.unit = C.int64_t(max(1, chunk/(piece*min(width, run))))
	if status := C.plaitk_scan_run((*C.plait_pool)(ctx.Pool), &s); status != 0 {
		return core.Errorf(core.DTypeError, c.Op, "not defined for %v", in.DType)
	}
	return nil
}

// lay writes the shape and the strides of a scan of in to out in normal form. With pairs, the last dimension is that of the parts of
// complex numbers, and elements are pairs.
func lay(s *C.struct_plaitk_scan, in, out *core.Operand, a contract.ScanAttrs, pairs bool) {
	rank, part := len(in.Shape), 1
	if pairs {
		rank, part = rank-1, 2
	}
	var dims [core.MaxDims]kernel.Dim
	nk, lines := 0, 1
	for i, size := range in.Shape[:rank] {
		d := kernel.Dim{Size: size, In: in.Strides[i] / part, Out: out.Strides[i] / part}
		if i == a.Dim {
			s.n, s.in_stride, s.out_stride = C.int64_t(size), C.int64_t(d.In), C.int64_t(d.Out)
			continue
		}
		lines *= size
		if size != 1 {
			dims[nk] = d
			nk++
		}
	}
	kernel.SortDims(dims[:nk])
	nk = kernel.CollapseDims(dims[:nk])
	for i, d := range dims[:nk] {
		s.ksize[i], s.kin[i], s.kout[i] = C.int64_t(d.Size), C.int64_t(d.In), C.int64_t(d.Out)
	}
	s.nk, s.lines, s.pairs, s.columns = C.int32_t(nk), C.int64_t(lines), C.int32_t(contract.Flag(pairs)), 0
	if nk > 0 {
		if d := dims[nk-1]; d.In == 1 && d.Out == 1 && d.Size >= 8 {
			s.columns = 1
		}
	}
}
