//go:build cgo && linux && amd64

// Package nvrtc compiles CUDA C++ with NVRTC, NVIDIA's compiler library. The library is opened at the first program; compiling needs no GPU.
package nvrtc

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/plait-ml/plait/gpu/cuda/internal/library"
)

// The major versions that the shim was written for.
var known = []int{13, 12}

// A compiler is the opened library.
type compiler struct {
	functions    C.plaitk_nvrtc
	path         string
	major, minor int
	capabilities []int
}

// open opens the library, once it has been found.
var open = sync.OnceValues(func() (*compiler, error) {
	var sonames []string
	for _, major := range known {
		sonames = append(sonames, fmt.Sprintf("libnvrtc.so.%d", major))
	}
	h, path, err := library.Open(sonames...)
	if err != nil {
		return nil, fmt.Errorf("nvrtc: %w; the Python package nvidia-cuda-nvrtc has the library", err)
	}
	c := &compiler{path: path}
	for name, to := range map[string]unsafe.Pointer{
		"nvrtcGetErrorString":       unsafe.Pointer(&c.functions.error),
		"nvrtcVersion":              unsafe.Pointer(&c.functions.version),
		"nvrtcGetNumSupportedArchs": unsafe.Pointer(&c.functions.archs_count),
		"nvrtcGetSupportedArchs":    unsafe.Pointer(&c.functions.archs),
		"nvrtcCreateProgram":        unsafe.Pointer(&c.functions.create),
		"nvrtcDestroyProgram":       unsafe.Pointer(&c.functions.destroy),
		"nvrtcCompileProgram":       unsafe.Pointer(&c.functions.compile),
		"nvrtcGetCUBINSize":         unsafe.Pointer(&c.functions.cubin_size),
		"nvrtcGetCUBIN":             unsafe.Pointer(&c.functions.cubin),
		"nvrtcGetProgramLogSize":    unsafe.Pointer(&c.functions.log_size),
		"nvrtcGetProgramLog":        unsafe.Pointer(&c.functions.log),
	} {
		if *(*unsafe.Pointer)(to), err = h.Symbol(name); err != nil {
			return nil, fmt.Errorf("nvrtc: %s: %w", path, err)
		}
	}
	var major, minor C.int
	var list [64]C.int
	n := int(C.plaitk_nvrtc_about(&c.functions, &major, &minor, &list[0], C.int(len(list))))
	if n < 0 {
		return nil, fmt.Errorf("nvrtc: %s does not say what it compiles for: %s", path, c.errorText(-n))
	}
	c.major, c.minor = int(major), int(minor)
	if !slices.Contains(known, c.major) {
		return nil, fmt.Errorf("nvrtc: %s has version %d.%d, want major version %d or %d", path, major, minor, known[0], known[1])
	}
	for _, a := range list[:n] {
		c.capabilities = append(c.capabilities, int(a))
	}
	return c, nil
})

func (c *compiler) errorText(result int) string {
	if result == C.PLAITK_NVRTC_LEAVING {
		return "the process ends"
	}
	return C.GoString(C.plaitk_nvrtc_error(&c.functions, C.int(result)))
}

// Version returns the version and the path of the library, and an error if it cannot be used.
func Version() (major, minor int, path string, err error) {
	c, err := open()
	if err != nil {
		return 0, 0, "", err
	}
	return c.major, c.minor, c.path, nil
}

// Compile returns the cubin of a program for GPUs of a compute capability, which is given times ten: 90 for 9.0. The name is for messages.
// Functions are for the GPU unless they say otherwise. Options are added to the compiler's; one that begins with --gpu-architecture replaces
// the capability's. Cubins are kept in the user's cache, so that most are compiled once on a machine.
func Compile(source, name string, capability int, options ...string) ([]byte, error) {
	c, err := open()
	if err != nil {
		return nil, err
	}
	all, err := c.options(capability, options)
	if err != nil {
		return nil, err
	}
	stored, err := programs()
	if err != nil {
		return nil, err
	}
	path := stored.path(fmt.Sprintf("%d.%d", c.major, c.minor), source, all)
	if cubin := stored.load(path); cubin != nil {
		return cubin, nil
	}
	cubin, err := c.compile(source, name, all)
	if err == nil {
		stored.store(path, cubin)
	}
	return cubin, err
}

const architecture = "--gpu-architecture"

// options returns all options of a compilation.
func (c *compiler) options(capability int, more []string) ([]string, error) {
	all := []string{"--std=c++17", "--device-as-default-execution-space"}
	if !slices.ContainsFunc(more, func(o string) bool { return strings.HasPrefix(o, architecture) }) {
		// Cubins run on GPUs of the same major capability and the same or a higher minor one.
		best := 0
		for _, a := range c.capabilities {
			if a/10 == capability/10 && a <= capability {
				best = max(best, a)
			}
		}
		if best == 0 {
			return nil, fmt.Errorf("nvrtc: %s, version %d.%d, does not compile for compute capability %d.%d; it knows %v",
				c.path, c.major, c.minor, capability/10, capability%10, c.capabilities)
		}
		target := fmt.Sprintf("%s=sm_%d", architecture, best)
		if best == 90 && capability == 90 {
			target += "a" // with the instructions that only this capability has
		}
		all = append(all, target)
	}
	return append(all, more...), nil
}

func (c *compiler) compile(source, name string, options []string) ([]byte, error) {
	raw := make([]*C.char, len(options))
	for i, o := range options {
		raw[i] = C.CString(o)
		defer C.free(unsafe.Pointer(raw[i]))
	}
	text, title := C.CString(source), C.CString(name)
	defer C.free(unsafe.Pointer(text))
	defer C.free(unsafe.Pointer(title))
	var out C.plaitk_nvrtc_result
	result := int(C.plaitk_nvrtc_compile(&c.functions, text, title, C.int(len(raw)), &raw[0], &out))
	defer C.free(unsafe.Pointer(out.cubin))
	defer C.free(unsafe.Pointer(out.log))
	if result != 0 {
		log := ""
		if out.log != nil {
			log = "\n" + C.GoString(out.log)
		}
		return nil, fmt.Errorf("nvrtc: %s: %s%s", name, c.errorText(result), log)
	}
	return C.GoBytes(unsafe.Pointer(out.cubin), C.int(out.cubin_size)), nil
}
