// Package sorting has the CPU kernels that sort and select along a dimension, find unique elements, search sorted sequences and count
// histograms. sorting.h explains how they work.
package sorting

/*
#include "c/sorting.h"
*/
import "C"

import (
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.Sort, func(ctx *kernel.Context, c *core.Call) error {
		a := contract.SortOf(c)
		return lines(ctx, c, C.SORTING_SORT, &c.Outs[0], &c.Outs[1], a.Dim, 0, a.Descending)
	})
	kernel.Register(contract.ArgSort, func(ctx *kernel.Context, c *core.Call) error {
		a := contract.SortOf(c)
		return lines(ctx, c, C.SORTING_SORT, nil, &c.Outs[0], a.Dim, 0, a.Descending)
	})
	kernel.Register(contract.TopK, func(ctx *kernel.Context, c *core.Call) error {
		a := contract.TopKOf(c)
		return lines(ctx, c, C.SORTING_TOP, &c.Outs[0], &c.Outs[1], a.Dim, a.K, a.Largest)
	})
	for k, op := range map[core.KernelID]C.int32_t{
		contract.KthValue: C.SORTING_KTH, contract.Median: C.SORTING_MEDIAN, contract.NanMedian: C.SORTING_NANMEDIAN, contract.Mode: C.SORTING_MODE,
	} {
		kernel.Register(k, func(ctx *kernel.Context, c *core.Call) error {
			a := contract.PickOf(c)
			if op != C.SORTING_KTH {
				a.K = 1
			}
			return lines(ctx, c, op, &c.Outs[0], &c.Outs[1], a.Dim, a.K, false)
		})
	}
}

const (
	// chunk is the number of elements in a chunk, at least.
	chunk = 1 << 13
	// longLine is the length from which all threads sort one line together, if there are fewer than fewLines lines.
	longLine = 1 << 17
	fewLines = 32
	// manyLines is the number of short lines from which they are sorted at once.
	manyLines = 8
)

// lines runs an operation on the lines of c.Ins[0] along a dimension. values may be nil.
func lines(ctx *kernel.Context, c *core.Call, op C.int32_t, values, indices *core.Operand, dim, k int, descending bool) error {
	in := &c.Ins[0]
	var s C.struct_plaitk_sorting
	s.in, s.indices, s.op, s.dtype = in.Ptr(), (*C.int64_t)(indices.Ptr()), op, C.int32_t(in.DType)
	s.threads = C.int32_t(C.plait_pool_threads((*C.plait_pool)(ctx.Pool)))
	if values != nil {
		if !slices.Equal(values.Strides, indices.Strides) {
			return core.Errorf(core.ShapeError, c.Op, "values and indices are laid out differently, got strides %v and %v", values.Strides, indices.Strides)
		}
		s.values = values.Ptr()
	}
	if descending {
		s.descending = 1
	}
	keepdim := len(indices.Shape) == len(in.Shape)
	var dims [core.MaxDims]kernel.Dim
	nk, count, n, o := 0, 1, 1, 0
	for i, size := range in.Shape {
		if i == dim {
			n, s.in_stride = size, C.int64_t(in.Strides[i])
			if keepdim {
				s.out_stride = C.int64_t(indices.Strides[o])
				o++
			}
			continue
		}
		count *= size
		if size != 1 {
			dims[nk] = kernel.Dim{Size: size, In: in.Strides[i], Out: indices.Strides[o]}
			nk++
		}
		o++
	}
	if count == 0 || n == 0 || indices.Numel() == 0 {
		return nil
	}
	if n > math.MaxUint32 {
		return core.Errorf(core.NotImplemented, c.Op, "got %d elements in a dimension, want at most %d", n, math.MaxUint32)
	}
	kernel.SortDims(dims[:nk])
	nk = kernel.CollapseDims(dims[:nk])
	for i, d := range dims[:nk] {
		s.ksize[i], s.kin[i], s.kout[i] = C.int64_t(d.Size), C.int64_t(d.In), C.int64_t(d.Out)
	}
	s.nk, s.lines, s.n, s.k = C.int32_t(nk), C.int64_t(count), C.int64_t(n), C.int64_t(k)
	s.unit = C.int64_t(max(1, chunk/n))
	if op != C.SORTING_MODE && n <= C.PLAIT_ABREAST_N && count >= manyLines {
		s.abreast, s.unit = 1, (s.unit+C.PLAIT_ABREAST-1)/C.PLAIT_ABREAST*C.PLAIT_ABREAST
	}
	if op == C.SORTING_SORT && n >= longLine && count < fewLines {
		s.unit = 0
	}
	scratch, err := ctx.Scratch(int(C.plaitk_sorting_scratch(&s)))
	if err != nil {
		return err
	}
	s.scratch = scratch
	C.plaitk_sorting_run((*C.plait_pool)(ctx.Pool), &s)
	return nil
}
