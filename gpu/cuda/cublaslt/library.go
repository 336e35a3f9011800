//go:build cgo && linux

package cublaslt

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/plait-ml/plait/gpu/cuda/internal/library"
)

// names lists the library's versions that are known, the best first.
var names = []string{"libcublasLt.so.13", "libcublasLt.so.12"}

const (
	oldest, newest = 12, 13
	// versionUnit divides the library's version to its major number.
	versionUnit = 10000
)

// loaded is the library, after it was found.
var loaded struct {
	sync.Mutex
	path    string
	version int
}

// Load loads the library, once for the process, from where package library finds it.
func Load() error {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.path != "" {
		return nil
	}
	_, path, err := library.Open(names...)
	if err == nil {
		var version int
		if version, err = load(path); err == nil {
			loaded.path, loaded.version = path, version
			return nil
		}
	}
	return fmt.Errorf("cuBLASLt, NVIDIA's library of matrix products, cannot be loaded: %w; the Python package nvidia-cublas has it", err)
}

// Version returns the path and the version of the library; 0 if it has not been loaded.
func Version() (path string, version int) {
	loaded.Lock()
	defer loaded.Unlock()
	return loaded.path, loaded.version
}

// load takes the functions of a library that the process has opened.
func load(path string) (version int, err error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text [C.PLAITK_LT_TEXT]C.char
	version = int(C.plaitk_lt_load(name, &text[0]))
	if version == 0 {
		return 0, fmt.Errorf("%s", C.GoString(&text[0]))
	}
	if major := version / versionUnit; major < oldest || major > newest {
		return 0, fmt.Errorf("%s: it has version %d, want %d or %d", path, major, oldest, newest)
	}
	return version, nil
}
