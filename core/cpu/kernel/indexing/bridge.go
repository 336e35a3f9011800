package indexing

/*
#include "c/indexing.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core/contract"
)

// A view is an operand: shape, strides in elements, and the address of the element at index 0.
type view = C.plait_view

func newView(p unsafe.Pointer, dtype int, shape, strides []int) view {
	v := view{data: (*C.char)(p), dtype: C.int64_t(dtype), ndim: C.int64_t(len(shape))}
	for i := range shape {
		v.shape[i], v.stride[i] = C.int64_t(shape[i]), C.int64_t(strides[i])
	}
	return v
}

// bad is the first index out of range: the index tensor it is in, its row-major position there, and its value.
type bad struct{ tensor, position, value int }

func (b *bad) set(c *C.plaitk_bad_index) { *b = bad{int(c.tensor), int(c.position), int(c.value)} }

func gather(pool unsafe.Pointer, out, in, index *view, dim int, b *bad) bool {
	var c C.plaitk_bad_index
	if C.plaitk_indexing_gather((*C.plait_pool)(pool), out, in, index, C.int64_t(dim), &c) == 0 {
		return true
	}
	b.set(&c)
	return false
}

func scatter(pool unsafe.Pointer, self, index, src *view, dim, mode int, b *bad) bool {
	var c C.plaitk_bad_index
	if C.plaitk_indexing_scatter((*C.plait_pool)(pool), self, index, src, C.int64_t(dim), C.int64_t(mode), &c) == 0 {
		return true
	}
	b.set(&c)
	return false
}

func selectAt(pool unsafe.Pointer, out, in *view, index []view, wrap bool, scratch unsafe.Pointer, b *bad) bool {
	var c C.plaitk_bad_index
	if C.plaitk_indexing_select((*C.plait_pool)(pool), out, in, C.int64_t(len(index)), unsafe.SliceData(index), C.int64_t(contract.Flag(wrap)),
		(*C.int64_t)(scratch), &c) == 0 {
		return true
	}
	b.set(&c)
	return false
}

func put(pool unsafe.Pointer, self, values *view, index []view, wrap bool, mode int, scratch unsafe.Pointer, b *bad) bool {
	var c C.plaitk_bad_index
	if C.plaitk_indexing_put((*C.plait_pool)(pool), self, values, C.int64_t(len(index)), unsafe.SliceData(index), C.int64_t(contract.Flag(wrap)),
		C.int64_t(mode), (*C.int64_t)(scratch), &c) == 0 {
		return true
	}
	b.set(&c)
	return false
}

// putScratch returns the bytes of scratch for each index tuple.
func putScratch(dtype, mode int) int {
	return 8 * int(C.plaitk_indexing_put_scratch(C.int64_t(dtype), C.int64_t(mode)))
}

func embeddingBackward(pool unsafe.Pointer, out, grad, index *view, padding int, byFrequency, onto bool, scratch unsafe.Pointer, b *bad) bool {
	var c C.plaitk_bad_index
	if C.plaitk_indexing_embedding_backward((*C.plait_pool)(pool), out, grad, index, C.int64_t(padding), C.int64_t(contract.Flag(byFrequency)),
		C.int64_t(contract.Flag(onto)), (*C.int64_t)(scratch), &c) == 0 {
		return true
	}
	b.set(&c)
	return false
}

// maskScratch returns the bytes of scratch that the kernels need for a mask.
func maskScratch(mask *view) int { return 8 * int(C.plaitk_indexing_mask_scratch(mask)) }

func count(pool unsafe.Pointer, mask *view, scratch unsafe.Pointer) int {
	return int(C.plaitk_indexing_count((*C.plait_pool)(pool), mask, (*C.int64_t)(scratch)))
}

func positions(pool unsafe.Pointer, out, mask *view, scratch unsafe.Pointer) int {
	return int(C.plaitk_indexing_positions((*C.plait_pool)(pool), out, mask, (*C.int64_t)(scratch)))
}

func maskedSelect(pool unsafe.Pointer, out, in, mask *view, scratch unsafe.Pointer) int {
	return int(C.plaitk_indexing_masked_select((*C.plait_pool)(pool), out, in, mask, (*C.int64_t)(scratch)))
}

func maskedScatter(pool unsafe.Pointer, self, mask, source *view, scratch unsafe.Pointer) int {
	return int(C.plaitk_indexing_masked_scatter((*C.plait_pool)(pool), self, mask, source, (*C.int64_t)(scratch)))
}
