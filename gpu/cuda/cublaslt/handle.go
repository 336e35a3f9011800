//go:build cgo && linux

package cublaslt

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
)

// A Handle is the library's state for one context of the CUDA driver, with the plans for its products. Goroutines may share it, but
// plaitk_lt_run is called by one at a time.
type Handle struct {
	lt *C.plaitk_lt

	mu    sync.Mutex
	plans map[C.plaitk_lt_shape]*C.plaitk_lt_plan // nil for a shape that the library does not support
}

// A Command is a product to run, in C a plaitk_lt_product.
type Command C.plaitk_lt_product

// Open returns a handle for a context of the CUDA driver, a CUcontext. The library must have been loaded.
func Open(context unsafe.Pointer) (*Handle, error) {
	var status C.int
	lt := C.plaitk_lt_open(context, &status)
	if lt == nil {
		return nil, failure("open", status)
	}
	return &Handle{lt: lt, plans: map[C.plaitk_lt_shape]*C.plaitk_lt_plan{}}, nil
}

// Close releases the handle and its plans. No product may be in flight.
func (h *Handle) Close() {
	for _, p := range h.plans {
		if p != nil {
			C.plaitk_lt_free(p)
		}
	}
	C.plaitk_lt_close(h.lt)
}

// Pointer returns the handle as C takes it, a plaitk_lt.
func (h *Handle) Pointer() unsafe.Pointer { return unsafe.Pointer(h.lt) }

// Function returns the C function plaitk_lt_run.
func Function() unsafe.Pointer { return C.plaitk_lt_run }

// Run puts a product on a stream, a CUstream, by [Function]. The handle's context is current on the calling thread.
func (h *Handle) Run(c *Command, stream unsafe.Pointer) error {
	if status := C.plaitk_lt_run(h.lt, (*C.plaitk_lt_product)(c), stream); status != 0 {
		return failure("run a product", status)
	}
	return nil
}

// Command returns the command for a product. address returns the address of a buffer on the GPU. ok is false if the library does not
// support the product.
func (h *Handle) Command(p *driver.Product, address func(driver.Buffer) uint64) (c Command, ok bool, err error) {
	at := func(r driver.Range) C.uint64_t {
		if r.Buffer == nil {
			return 0
		}
		return C.uint64_t(address(r.Buffer) + uint64(r.Offset))
	}
	// The library's matrices are column-major, so it computes the transposed product.
	c = Command{
		a: at(p.B.Range), b: at(p.A.Range), c: at(p.C.Range), bias: at(p.Bias), workspace: at(p.Workspace), alpha: C.double(p.Alpha), beta: C.double(p.Beta),
	}
	shape, err := shapeOf(p)
	if err != nil {
		return c, false, err
	}
	shape.align_a, shape.align_b, shape.align_c = alignment(c.a), alignment(c.b), alignment(c.c)
	if p.Bias.Buffer != nil {
		shape.bias, shape.align_bias = 1, alignment(c.bias)
	}
	c.plan, err = h.plan(shape)
	return c, c.plan != nil, err
}

// shapeOf returns the shape of a product without the alignment of its addresses.
func shapeOf(p *driver.Product) (s C.plaitk_lt_shape, err error) {
	factors, okFactors := types[p.Factors]
	result, okResult := types[p.Result]
	if !okFactors || !okResult || p.C.Columns || min(p.M, p.N, p.K, p.Count) < 1 {
		return s, fmt.Errorf("cuBLASLt: cannot describe a product of %d x %d x %d, %d times, of %v to %v (by columns: %v), want floats by rows",
			p.M, p.N, p.K, p.Count, p.Factors, p.Result, p.C.Columns)
	}
	return C.plaitk_lt_shape{
		m: C.uint64_t(p.N), n: C.uint64_t(p.M), k: C.uint64_t(p.K), count: C.int32_t(p.Count),
		lda: C.int64_t(p.B.Step), ldb: C.int64_t(p.A.Step), ldc: C.int64_t(p.C.Step),
		next_a: C.int64_t(p.B.Next), next_b: C.int64_t(p.A.Next), next_c: C.int64_t(p.C.Next),
		ta: flag(p.B.Columns), tb: flag(p.A.Columns), factors: factors, result: result, reduced: flag(p.Reduced),
		workspace: C.uint64_t(p.WorkspaceSize),
	}, nil
}

// types are the numbers of dtypes in the library.
var types = map[core.DType]C.int32_t{
	core.Float32: C.PLAITK_LT_F32, core.Float64: C.PLAITK_LT_F64, core.Float16: C.PLAITK_LT_F16, core.BFloat16: C.PLAITK_LT_BF16,
}

func flag(on bool) C.int32_t {
	if on {
		return 1
	}
	return 0
}

// alignment returns a power of two that divides an address. Algorithms differ for 16 bytes and more; few values let shapes share plans.
func alignment(address C.uint64_t) C.uint32_t {
	for _, n := range []C.uint32_t{256, 16, 8, 4} {
		if address%C.uint64_t(n) == 0 {
			return n
		}
	}
	return 2
}

// plan returns the plan for a shape; nil if the library does not support it.
func (h *Handle) plan(s C.plaitk_lt_shape) (*C.plaitk_lt_plan, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, known := h.plans[s]; known {
		return p, nil
	}
	var status C.int
	p := C.plaitk_lt_describe(&s, &status)
	if p == nil {
		return nil, failure("describe a product", status)
	}
	if status = C.plaitk_lt_choose(h.lt, p, &s); status != 0 {
		C.plaitk_lt_free(p)
		p = nil
		if status != C.PLAITK_LT_UNSUPPORTED {
			return nil, failure("choose an algorithm", status)
		}
	}
	h.plans[s] = p
	return p, nil
}

// failure returns the error for a status.
func failure(what string, status C.int) error {
	return fmt.Errorf("cuBLASLt: cannot %s: %s (%d)", what, C.GoString(C.plaitk_lt_status(status)), int(status))
}

// describe gives the library all descriptors of a product, without a handle.
func describe(p *driver.Product) error {
	s, err := shapeOf(p)
	if err != nil {
		return err
	}
	s.align_a, s.align_b, s.align_c, s.align_bias = 16, 16, 16, 16
	if p.Bias.Buffer != nil {
		s.bias = 1
	}
	var status C.int
	plan := C.plaitk_lt_describe(&s, &status)
	if plan == nil {
		return failure("describe a product", status)
	}
	defer C.plaitk_lt_free(plan)
	if status = C.plaitk_lt_choose(nil, plan, &s); status != 0 {
		return failure("say what an algorithm may do", status)
	}
	return nil
}
