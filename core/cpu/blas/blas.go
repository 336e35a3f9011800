// Package blas makes matrix products use an OpenBLAS that is found while the program runs, and finds LAPACK in it.
//
// The built-in kernels of package gemm are as fast where they have AVX2 or AVX-512, so a library is only looked for
// elsewhere, or if the environment asks for it. PLAIT_BLAS is one of
//
//	auto      the default: the built-in kernels where they are fast, otherwise as openblas
//	openblas  the library at the path given by [SetPath], the scipy-openblas32 package of the virtual environment, or
//	          the system's; the built-in kernels if there is none
//	none      the built-in kernels
//	a path    the library at that path; an error if it cannot be used
//
// Either way products are cut over the device's own workers by their shape; the library is kept to one thread. [Lapack] looks for a
// library with auto too.
package blas

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "blas.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/plait-ml/plait/core/cpu/gemm"
)

// A Library describes what computes matrix products.
type Library struct {
	Path    string // of the library file; empty for the built-in kernels
	Version string // the version that the library reports
	Core    string // the processor type that the kernels are made for
}

// String describes the library in one line.
func (l Library) String() string {
	if l.Path == "" {
		return fmt.Sprintf("built-in kernels (%s)", l.Core)
	}
	return fmt.Sprintf("%s (%s, %s)", l.Path, l.Version, l.Core)
}

var state struct {
	sync.Mutex
	ready     atomic.Bool // the choice was made
	preferred string
	library   Library
	err       error

	searched atomic.Bool // for LAPACK
	lapack   unsafe.Pointer
}

// SetPath sets the path of a library that is preferred over the system's. Call it before the first product. It does not
// load the library.
func SetPath(path string) {
	state.Lock()
	defer state.Unlock()
	state.preferred = path
	state.ready.Store(false)
	state.searched.Store(false)
}

// Load chooses what computes matrix products, once. It may be called from several goroutines. It fails if PLAIT_BLAS
// names a library that cannot be used.
func Load() error {
	if state.ready.Load() {
		return nil
	}
	state.Lock()
	defer state.Unlock()
	if state.ready.Load() {
		return nil
	}
	state.library, state.err = choose(os.Getenv("PLAIT_BLAS"), state.preferred)
	state.ready.Store(state.err == nil)
	return state.err
}

// Info describes what computes matrix products. It calls [Load].
func Info() (Library, error) {
	err := Load()
	state.Lock()
	defer state.Unlock()
	return state.library, err
}

func builtIn() Library {
	C.plaitk_blas_unload()
	return Library{Core: gemm.Current().String()}
}

func choose(setting, preferred string) (Library, error) {
	switch setting {
	case "none":
		return builtIn(), nil
	case "", "auto":
		if gemm.Current() != gemm.Baseline {
			return builtIn(), nil
		}
	case "openblas":
	default:
		l, err := open(setting)
		if err != nil {
			return builtIn(), fmt.Errorf("PLAIT_BLAS: %w", err)
		}
		return l, nil
	}
	for _, path := range candidates(preferred) {
		if l, err := open(path); err == nil {
			return l, nil
		}
	}
	return builtIn(), nil
}

// candidates lists paths and names to try, the best first.
func candidates(preferred string) []string {
	var list []string
	if preferred != "" {
		list = append(list, preferred)
	}
	if env := os.Getenv("VIRTUAL_ENV"); env != "" {
		// Glob only fails on a syntax error in the pattern, and this pattern has none.
		found, _ := filepath.Glob(filepath.Join(env, "lib", "python*", "site-packages", "scipy_openblas32", "lib",
			"libscipy_openblas.*"))
		list = append(list, found...)
	}
	return append(list, "libopenblas.so.0", "libopenblas.so", "libopenblas64_.so.0", "libopenblas.dylib",
		"libcblas.so.3", "libblas.so.3")
}

func open(path string) (Library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var config, core [C.PLAITK_BLAS_TEXT]C.char
	if C.plaitk_blas_load(name, &config[0], &core[0]) != 0 {
		return Library{}, fmt.Errorf("cannot use %s as a BLAS library: %s", path, C.GoString(&config[0]))
	}
	return Library{Path: path, Version: C.GoString(&config[0]), Core: C.GoString(&core[0])}, nil
}
