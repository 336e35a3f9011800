//go:build cgo && linux && amd64

package cuda

// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/plait-ml/plait/gpu/driver"
)

// Share implements [driver.Sharing].
func (g *device) Share(b driver.Buffer) ([]byte, error) {
	var handle C.CUipcMemHandle
	if e := C.plaitk_cu_share(g.g, b.(*buffer).at, &handle); e != 0 {
		return nil, errors.New(describe(e))
	}
	return C.GoBytes(unsafe.Pointer(&handle), C.sizeof_CUipcMemHandle), nil
}

// OpenShared implements [driver.Sharing].
func (g *device) OpenShared(handle []byte, size int) (driver.Buffer, error) {
	if len(handle) != C.sizeof_CUipcMemHandle {
		return nil, fmt.Errorf("a handle of %d bytes, want %d", len(handle), C.sizeof_CUipcMemHandle)
	}
	b := &buffer{g: g, kind: shared, size: size}
	if e := C.plaitk_cu_open_shared(g.g, unsafe.Pointer(unsafe.SliceData(handle)), &b.at); e != 0 {
		return nil, errors.New(describe(e))
	}
	return b, nil
}

// describe returns what an error of the driver means.
func describe(e C.CUresult) string {
	var text [256]C.char
	C.plaitk_cu_describe(e, &text[0], C.size_t(len(text)))
	return C.GoString(&text[0])
}
