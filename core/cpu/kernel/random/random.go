// Package random holds the CPU kernels that draw random numbers from the Philox sequence of a seed: see
// core/cpu/include/plait_philox.h for which numbers of the sequence go where. Outputs are contiguous.
package random

/*
#include "c/random.h"
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

func init() {
	kernel.Register(contract.Random, fill)
	kernel.Register(contract.RandomIntegers, integers)
	kernel.Register(contract.Bernoulli, bernoulli)
	kernel.Register(contract.Poisson, poisson)
	kernel.Register(contract.Randperm, permutation)
	kernel.Register(contract.Multinomial, multinomial)
}

func workers(ctx *kernel.Context) *C.plait_pool { return (*C.plait_pool)(ctx.Pool) }

// words returns the words of blocks of the sequence, made with vectors of at most so many bytes. For tests.
func words(bytes int, blocks int, seed, counter uint64) []uint32 {
	w := make([]uint32, 4*blocks)
	C.plaitk_random_words(C.int64_t(bytes), (*C.uint32_t)(unsafe.SliceData(w)), C.int64_t(blocks), C.uint64_t(seed), C.uint64_t(counter))
	return w
}

func fill(ctx *kernel.Context, c *core.Call) error {
	out := &c.Outs[0]
	a := contract.RandomOf(c)
	r := C.plaitk_random{distribution: C.int64_t(a.Distribution), seed: C.uint64_t(a.Seed), offset: C.uint64_t(a.Offset)}
	for i, p := range []*C.double{&r.a, &r.b, &r.c, &r.d} {
		if i < len(a.Parameters) {
			*p = C.double(a.Parameters[i])
		}
	}
	C.plaitk_random_fill(workers(ctx), &r, out.Ptr(), C.int64_t(out.DType), C.int64_t(out.Numel()))
	return nil
}

func integers(ctx *kernel.Context, c *core.Call) error {
	out := &c.Outs[0]
	a := contract.RandomIntegersOf(c)
	C.plaitk_random_integers(workers(ctx), C.uint64_t(a.Seed), C.uint64_t(a.Offset), out.Ptr(), C.int64_t(out.DType),
		C.int64_t(out.Numel()), C.int64_t(a.Low), C.uint64_t(a.Range))
	return nil
}

func bernoulli(ctx *kernel.Context, c *core.Call) error {
	out, p := &c.Outs[0], &c.Ins[0]
	var probability C.double
	var probabilities unsafe.Pointer
	if p.IsNumber {
		probability = C.double(p.Number.Float)
	} else {
		probabilities = p.Ptr()
	}
	a := contract.DrawOf(c)
	bad := C.plaitk_random_bernoulli(workers(ctx), C.uint64_t(a.Seed), C.uint64_t(a.Offset), out.Ptr(), C.int64_t(out.DType),
		C.int64_t(out.Numel()), probability, probabilities, C.int64_t(p.DType))
	if bad >= 0 {
		return core.Errorf(core.ValueError, c.Op, "the probability at element %d is outside [0, 1]", int64(bad))
	}
	return nil
}

func poisson(ctx *kernel.Context, c *core.Call) error {
	out, rates := &c.Outs[0], &c.Ins[0]
	if rates.DType != out.DType || !out.DType.IsFloat() {
		return core.Errorf(core.DTypeError, c.Op, "got rates of %v and a result of %v, want floats of one dtype", rates.DType, out.DType)
	}
	a := contract.DrawOf(c)
	var rate C.double
	bad := C.plaitk_random_poisson(workers(ctx), C.uint64_t(a.Seed), C.uint64_t(a.Offset), out.Ptr(), rates.Ptr(), C.int64_t(out.DType), C.int64_t(out.Numel()), &rate)
	if bad >= 0 {
		return core.Errorf(core.ValueError, c.Op, "want rates of 0 or more, got %s at element %d", strings.ToLower(fmt.Sprintf("%g", float64(rate))), int64(bad))
	}
	return nil
}

func permutation(ctx *kernel.Context, c *core.Call) error {
	out := &c.Outs[0]
	n := C.int64_t(out.Numel())
	scratch, err := ctx.Scratch(int(C.plaitk_random_permutation_scratch(n)))
	if err != nil {
		return err
	}
	a := contract.DrawOf(c)
	C.plaitk_random_permutation(workers(ctx), C.uint64_t(a.Seed), C.uint64_t(a.Offset), (*C.int64_t)(out.Ptr()), n, scratch)
	return nil
}

func multinomial(ctx *kernel.Context, c *core.Call) error {
	out, in := &c.Outs[0], &c.Ins[0]
	last := len(in.Shape) - 1
	n, count := C.int64_t(in.Shape[last]), C.int64_t(out.Shape[last])
	rows := C.int64_t(core.Numel(in.Shape[:last]))
	scratch, err := ctx.Scratch(int(C.plaitk_random_multinomial_scratch(rows, n, count)))
	if err != nil {
		return err
	}
	var reason C.int64_t
	a := contract.DrawOf(c)
	bad := C.plaitk_random_multinomial(workers(ctx), C.uint64_t(a.Seed), C.uint64_t(a.Offset), (*C.int64_t)(out.Ptr()), in.Ptr(),
		C.int64_t(in.DType), rows, n, count, C.int64_t(contract.Flag(a.Replacement)), scratch, &reason)
	if bad < 0 {
		return nil
	}
	what := [...]string{1: "a weight that is negative or not finite", 2: "no positive weight",
		3: "fewer positive weights than samples to draw without replacement"}[reason]
	return core.Errorf(core.ValueError, c.Op, "row %d has %s, got %d weights, want %d samples", int64(bad), what, int64(n), int64(count))
}
