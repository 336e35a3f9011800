// Package dlpack makes DLPack's structures around exported memory. They live off the Go heap, and other libraries delete
// them, from any thread and in any state of their language.
package dlpack

/*
#cgo CFLAGS: -Wall -Wextra -Werror
#cgo linux LDFLAGS: -ldl
#include "dlpack.h"
*/
import "C"

import (
	"unsafe"

	"github.com/plait-ml/plait/core"
)

// End is called with the export of a tensor that was deleted.
var End func(export int64)

//export plaitkDlpackEnd
func plaitkDlpackEnd(export C.int64_t) { End(int64(export)) }

// code returns DLPack's number of a kind of elements.
func code(d core.DType) C.int32_t {
	switch d {
	case core.Bool:
		return 6
	case core.BFloat16:
		return 4
	}
	switch {
	case d.IsComplex():
		return 5
	case d.IsFloat():
		return 2
	case d.IsSigned():
		return 0
	}
	return 1
}

// New returns the address of a managed tensor for the memory of t, of version 1 or of the form from before versions; 0
// without memory. copied says that the memory is nobody else's.
func New(t *core.Tensor, versioned, copied bool, export int64) int64 {
	n := t.Dim()
	dims := make([]C.int64_t, 2*n+1)
	for i := range n {
		dims[i], dims[n+i] = C.int64_t(t.Shape()[i]), C.int64_t(t.Strides()[i])
	}
	var data unsafe.Pointer
	if t.Numel() > 0 {
		data = unsafe.Add(t.Storage().Memory().Ptr, t.Offset()*t.DType().Size())
	}
	var version C.int32_t
	var flags C.uint64_t
	if versioned {
		version = 1
	}
	if copied {
		flags = 2
	}
	bits := C.int32_t(8 * t.DType().Size())
	p := C.plaitk_dlpack_new(data, C.int32_t(n), code(t.DType()), bits, &dims[0], &dims[n], version, flags, C.int64_t(export))
	return int64(uintptr(p))
}

// Destructor returns the address of the destructor of capsules.
func Destructor() int64 { return int64(uintptr(C.plaitk_dlpack_destroy)) }

// Taken is another library's managed tensor. Close gives it back.
type Taken struct{ Managed, Deleter int64 }

// Close calls the deleter.
func (t Taken) Close() { C.plaitk_dlpack_delete(C.int64_t(t.Managed), C.int64_t(t.Deleter)) }
