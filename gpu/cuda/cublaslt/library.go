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
	"path/filepath"
	"strings"
	"sync"
	"unsafe"
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

// Load loads the library, once for the process. It takes one that the process has already loaded, then one in the given folders, then one
// that the system finds. The error says where it was looked for.
func Load(folders []string) error {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.path != "" {
		return nil
	}
	var reasons []string
	try := func(path string, present bool) bool {
		version, err := load(path, present)
		if err != nil {
			if !present {
				reasons = append(reasons, err.Error())
			}
			return false
		}
		loaded.path, loaded.version = path, version
		return true
	}
	for _, name := range names {
		if try(name, true) {
			return nil
		}
	}
	for _, name := range names {
		for _, folder := range folders {
			if found, _ := filepath.Glob(filepath.Join(folder, name)); len(found) > 0 && try(found[0], false) {
				return nil
			}
		}
	}
	for _, name := range names {
		if try(name, false) {
			return nil
		}
	}
	return fmt.Errorf("cuBLASLt, NVIDIA's library for matrix products, cannot be loaded (%s); it is in the package nvidia-cublas", strings.Join(reasons, "; "))
}

// Version returns the path and the version of the library; 0 if it has not been loaded.
func Version() (path string, version int) {
	loaded.Lock()
	defer loaded.Unlock()
	return loaded.path, loaded.version
}

// load loads a file. With present, it takes only one that the process has already loaded.
func load(path string, present bool) (version int, err error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	flag := C.int(0)
	if present {
		flag = 1
	}
	var text [C.PLAITK_LT_TEXT]C.char
	version = int(C.plaitk_lt_load(name, flag, &text[0]))
	if version == 0 {
		return 0, fmt.Errorf("%s", C.GoString(&text[0]))
	}
	if major := version / versionUnit; major < oldest || major > newest {
		return 0, fmt.Errorf("%s: it has version %d, want %d or %d", path, major, oldest, newest)
	}
	return version, nil
}
