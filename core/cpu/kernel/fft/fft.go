// Package fft has the CPU kernel of Fourier transforms. fft.h explains how it works.
package fft

/*
#include "c/fft.h"
*/
import "C"

import (
	"runtime"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() { kernel.Register(contract.FFT, run) }

const (
	// longLine is the number of points above which a block of lines does not fit the caches, and lines are split.
	longLine = 1 << 12
	// middleLine is the number above which it does not fit the nearest cache, and lines whose two passes fill the lanes are split.
	middleLine = 1 << 8
	// longColumn is the same as longLine for lines that lie side by side, which are read in order.
	longColumn = 1 << 16
	// shortLine is the number of points below which splitting does not pay.
	shortLine = 64
	// keptPlans is the number of bytes of plans that are kept for the next call.
	keptPlans = 16 << 20
)

// splitting returns whether to split lines of so many points. Beside says that they lie side by side.
func splitting(points, lines int, beside bool) C.enum_fft_split {
	switch {
	case lines < C.FFT_GROUP && points >= shortLine, points > longColumn, points > longLine && !beside:
		return C.FFT_SPLIT
	case points > middleLine && !beside:
		return C.FFT_SPLIT_BINARY
	}
	return C.FFT_WHOLE
}

func run(ctx *kernel.Context, c *core.Call) error {
	x, y, a := &c.Ins[0], &c.Outs[0], contract.FFTOf(c)
	whole := a.Kind == contract.FFTRealToWhole
	if whole {
		a.Kind = contract.FFTRealToHalf
	}
	f := C.struct_plaitk_fft{in: (*C.char)(x.Ptr()), out: (*C.char)(y.Ptr()), kind: C.int32_t(a.Kind), whole: C.int32_t(contract.Flag(whole)), inverse: C.int32_t(contract.Flag(a.Inverse)),
		scale: C.double(a.Scale), in_step: C.int64_t(x.Strides[a.Dim]), out_step: C.int64_t(y.Strides[a.Dim])}
	n := min(len(x.Shape), len(y.Shape))
	if a.Kind == contract.FFTComplex {
		n-- // the dimension of the parts
	}
	var dims [core.MaxDims]kernel.Dim
	nk, lines := 0, 1
	for d, size := range x.Shape[:n] {
		if d != a.Dim && size != 1 {
			dims[nk] = kernel.Dim{Size: size, In: x.Strides[d], Out: y.Strides[d]}
			lines *= size
			nk++
		}
	}
	if lines == 0 {
		return nil
	}
	kernel.SortDims(dims[:nk])
	nk = kernel.CollapseDims(dims[:nk])
	for i, d := range dims[:nk] {
		f.ksize[i], f.kin[i], f.kout[i] = C.int64_t(d.Size), C.int64_t(d.In), C.int64_t(d.Out)
	}
	f.nk, f.lines = C.int32_t(nk), C.int64_t(lines)

	points, width := a.Length, 2
	if a.Kind != contract.FFTComplex && points%2 == 0 {
		points /= 2
	}
	if a.Kind == contract.FFTRealToHalf {
		width = 1
	}
	beside := nk > 0 && dims[nk-1].In == width
	p, err := planOf(planKey{a.Length, x.DType, a.Kind != contract.FFTComplex, splitting(points, lines, beside)})
	if err != nil {
		return core.Errorf(core.MemoryError, c.Op, "%w", err)
	}
	f.plan = p.tables
	pool := (*C.plait_pool)(ctx.Pool)
	scratch, err := ctx.Scratch(int(C.plaitk_fft_scratch(pool, &f)))
	if err != nil {
		return err
	}
	f.scratch = scratch
	C.plaitk_fft_run(pool, &f)
	runtime.KeepAlive(p)
	return nil
}

// A plan has the tables for lines of one length.
type plan struct {
	tables *C.struct_plaitk_fft_plan
	bytes  int
	used   uint64 // when it was last asked for
}

type planKey struct {
	length int
	dtype  core.DType
	real   bool
	split  C.enum_fft_split
}

// plans are those of recent calls. A plan that is dropped is freed when no call uses it.
var plans struct {
	sync.Mutex
	kept  map[planKey]*plan
	bytes int
	clock uint64
}

func planOf(key planKey) (*plan, error) {
	plans.Lock()
	p := plans.kept[key]
	if p != nil {
		plans.clock++
		p.used = plans.clock
	}
	plans.Unlock()
	if p != nil {
		return p, nil
	}
	tables := C.plaitk_fft_new(C.int64_t(key.length), C.int64_t(key.dtype), C.int64_t(contract.Flag(key.real)), C.int64_t(key.split))
	if tables == nil {
		return nil, core.Errorf(core.MemoryError, "fft", "no memory for the tables of lines of %d elements", key.length)
	}
	p = &plan{tables: tables, bytes: int(tables.bytes)}
	runtime.AddCleanup(p, func(t *C.struct_plaitk_fft_plan) { C.plaitk_fft_free(t) }, tables)
	keep(key, p)
	return p, nil
}

// keep adds a plan to those of recent calls, and drops the ones that have not been used for longest.
func keep(key planKey, p *plan) {
	plans.Lock()
	defer plans.Unlock()
	if plans.kept == nil {
		plans.kept = map[planKey]*plan{}
	}
	if old := plans.kept[key]; old != nil { // another thread's, of the same time
		plans.bytes -= old.bytes
	}
	plans.clock++
	p.used = plans.clock
	plans.kept[key] = p
	plans.bytes += p.bytes
	for plans.bytes > keptPlans && len(plans.kept) > 1 {
		var oldest planKey
		least := plans.clock + 1
		for k, q := range plans.kept {
			if q.used < least {
				oldest, least = k, q.used
			}
		}
		plans.bytes -= plans.kept[oldest].bytes
		delete(plans.kept, oldest)
	}
}
