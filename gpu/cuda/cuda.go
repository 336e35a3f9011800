//go:build cgo && linux && amd64

// Package cuda is the driver for NVIDIA's GPUs. It calls the driver's library, libcuda, and the run-time compiler, NVRTC, both of which are
// opened when they are needed: nothing of CUDA is needed to build Plait, and nothing at run time where there is no such GPU.
//
// The files, from the bottom up:
//   - libcuda.h, libcuda.c: the library's functions, and how it is opened
//   - guard.h, guard.c: no call into the library while the process ends, or in a fork
//   - shim.h, shim.c: the C functions of this package
//   - cuda.go, device.go, list.go: the implementation of package driver
//   - nvrtc: the compiler, and its cache on disk
//   - cublaslt: the library of matrix products, which is used where it is installed
//
// A [driver.GPU] of this package is used by one goroutine at a time.
package cuda

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/plait-ml/plait/gpu/cuda/internal/library"
	"github.com/plait-ml/plait/gpu/cuda/nvrtc"
	"github.com/plait-ml/plait/gpu/driver"
)

// Driver is the driver for CUDA.
var Driver driver.Driver = cudaDriver{}

type cudaDriver struct{}

const (
	// maxAdapters is how many GPUs are listed at most.
	maxAdapters = 64
	// leastCapability is the compute capability times ten of the oldest GPUs that are supported, those of Turing.
	leastCapability = 75
	nvidia          = 0x10de // the number of the vendor on the PCI bus
	// idleBatch is how many commands are worth a submission to an idle GPU. A submission costs an event more than its commands alone.
	idleBatch = 1
	// aheadBatches is 1 so that the GPU has the next batch before one ends: it is noticed late that it has ended.
	aheadBatches = 1
)

// Name implements [driver.Driver].
func (cudaDriver) Name() string { return "cuda" }

// Missing implements [driver.Driver].
func (cudaDriver) Missing() string {
	raw := list()
	if why := C.GoString(C.plaitk_cu_missing()); why != "" {
		return why
	}
	for i := range raw {
		if err := tooOld(&raw[i]); err != nil {
			return err.Error()
		}
	}
	if len(raw) == 0 {
		return "NVIDIA's driver found no GPU"
	}
	if _, _, _, err := nvrtc.Version(); err != nil {
		return err.Error()
	}
	return ""
}

// tooOld returns an error if a GPU is older than those that are supported.
func tooOld(a *C.plaitk_cu_adapter) error {
	if a.capability >= leastCapability {
		return nil
	}
	return fmt.Errorf("%s has compute capability %d.%d, and %d.%d is the least", C.GoString(&a.name[0]), a.capability/10, a.capability%10,
		leastCapability/10, leastCapability%10)
}

// list returns what the library says of each GPU.
func list() []C.plaitk_cu_adapter {
	raw := make([]C.plaitk_cu_adapter, maxAdapters)
	return raw[:min(int(C.plaitk_cu_adapters(&raw[0], maxAdapters)), maxAdapters)]
}

// Adapters implements [driver.Driver]. It lists the GPUs that are new enough, if there is a compiler for their programs.
func (cudaDriver) Adapters() []driver.Adapter {
	var out []driver.Adapter
	for i, a := range list() {
		if tooOld(&a) != nil {
			continue
		}
		if _, _, _, err := nvrtc.Version(); err != nil {
			return nil
		}
		out = append(out, driver.Adapter{
			Index: i, Name: C.GoString(&a.name[0]), Backend: "CUDA", Discrete: a.integrated == 0, Vendor: nvidia,
			UUID: *(*[16]byte)(unsafe.Pointer(&a.uuid)), ComputeCapability: int(a.capability), Memory: int(a.memory),
			Multiprocessors: int(a.multiprocessors),
		})
	}
	return out
}

// Open implements [driver.Driver].
func (cudaDriver) Open(index int) (driver.GPU, error) {
	if _, _, _, err := nvrtc.Version(); err != nil {
		return nil, err
	}
	text := (*C.char)(C.calloc(1, C.PLAITK_CU_TEXT))
	defer C.free(unsafe.Pointer(text))
	g := C.plaitk_cu_open(C.int(index), text)
	if g == nil {
		return nil, errors.New(C.GoString(text))
	}
	about := list()[index]
	if err := tooOld(&about); err != nil {
		C.plaitk_cu_close(g)
		return nil, err
	}
	d := &device{
		g: g, capability: int(about.capability),
		limits: driver.Limits{
			Buffer: maxBuffer, Binding: maxBuffer, Bindings: C.PLAITK_CU_BUFFERS, UniformAlignment: 16, UniformBinding: 4096,
			WorkgroupStorage: 48 << 10, Invocations: int(about.invocations), Workgroups: 65535, MappablePrimary: true, IdleBatch: idleBatch, AheadBatches: aheadBatches,
		},
	}
	d.openLibrary()
	return d, nil
}

// Shutdown implements [driver.Driver].
func (cudaDriver) Shutdown() bool { return C.plaitk_cu_leave() != 0 }

// SetFolders sets the folders that CUDA's libraries are looked for in first, such as those of a Python environment. Call it before GPUs are
// listed.
func SetFolders(list []string) { library.SetFolders(list) }

// openInstead names the library to open as libcuda.
func openInstead(path string) { C.plaitk_cu_open_instead(C.CString(path)) }
