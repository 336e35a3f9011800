//go:build cgo && linux

package mpi

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl -lpthread
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"
)

// A Library is an MPI library that can be used.
type Library struct {
	Path string
	// ABI is "mpich", "openmpi" or "abi", the standard's.
	ABI string
	// Version is the library's name and version in its own words, the first line of them.
	Version string

	family      family
	initialized bool
	raw         unsafe.Pointer
	about       *C.plaitk_mpi_about
}

// String returns the library's version and path.
func (l *Library) String() string { return fmt.Sprintf("%s (%s)", l.Version, l.Path) }

// open opens a library by path or soname; with loaded, only one that the process has loaded.
func open(name string, loaded bool) (*Library, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	about := new(C.plaitk_mpi_about)
	flag := C.int(0)
	if loaded {
		flag = 1
	}
	raw := C.plaitk_mpi_open(text, flag, about)
	if raw == nil {
		reason := C.GoString(&about.error[0])
		if !strings.Contains(reason, name) {
			reason = name + ": " + reason
		}
		return nil, errors.New(reason)
	}
	version := C.GoString(&about.library[0])
	l := &Library{
		Path: C.GoString(&about.path[0]), ABI: C.GoString(about.abi.name), Version: short(version), family: mpich,
		initialized: about.initialized != 0, raw: raw, about: about,
	}
	if strings.Contains(version, "Open MPI") {
		l.family = openMPI
	}
	return l, nil
}

// short returns the name and the version of what a library says of itself, which may be pages.
func short(version string) string {
	line, _, _ := strings.Cut(version, "\n")
	line, _, _ = strings.Cut(line, ",")
	return strings.Join(strings.Fields(strings.Replace(line, "Version:", "", 1)), " ")
}

// close gives up a library that is not used.
func (l *Library) close() { C.plaitk_mpi_close(l.raw) }

// loadedPaths returns the paths of libraries of the process that may be MPI's.
func loadedPaths() []string {
	const size = 1 << 16
	text := (*C.char)(C.malloc(size))
	defer C.free(unsafe.Pointer(text))
	C.plaitk_mpi_loaded(text, size)
	return strings.Fields(C.GoString(text))
}
