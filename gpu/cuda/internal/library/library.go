//go:build cgo && linux && amd64

// Package library opens the shared libraries of CUDA while the program runs. Nothing is linked, so that one program runs with and without
// them.
package library

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"
)

// A Handle is an open library. It stays open as long as the process.
type Handle struct{ raw unsafe.Pointer }

var folders struct {
	sync.Mutex
	list []string
}

// SetFolders sets the folders that libraries are looked for in, before those of the virtual environment. Call it before [Open].
func SetFolders(list []string) {
	folders.Lock()
	defer folders.Unlock()
	folders.list = list
}

// Open opens the first library that is found, and returns its path. Sonames, such as libnvrtc.so.13, are those of the versions that can be
// used, the best first. A library that the process has loaded comes first, so that there is one of it; then those in folders: the ones given
// to [SetFolders], and the packages nvidia-* of the virtual environment; then what the system's loader finds.
func Open(sonames ...string) (Handle, string, error) {
	for _, name := range sonames {
		if h, path, err := open(name, true); err == nil {
			return h, path, nil
		}
	}
	var failure error
	for _, name := range candidates(sonames) {
		h, path, err := open(name, false)
		if err == nil {
			return h, path, nil
		}
		if failure == nil || filepath.IsAbs(name) {
			failure = err // what is wrong with a file says more than that the system has none
		}
	}
	return Handle{}, "", failure
}

// candidates lists the paths and names to try, the best first.
func candidates(sonames []string) []string {
	folders.Lock()
	list := append([]string{}, folders.list...)
	folders.Unlock()
	if env := os.Getenv("VIRTUAL_ENV"); env != "" {
		// Glob only fails on a syntax error in the pattern, and this pattern has none.
		found, _ := filepath.Glob(filepath.Join(env, "lib", "python*", "site-packages", "nvidia", "*", "lib"))
		list = append(list, found...)
	}
	var names []string
	for _, soname := range sonames {
		for _, folder := range list {
			if path := filepath.Join(folder, soname); isFile(path) {
				names = append(names, path)
			}
		}
	}
	return append(names, sonames...)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// open opens a library by path or soname; with loaded, only one that the process has loaded.
func open(name string, loaded bool) (Handle, string, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var found [C.PLAITK_LIBRARY_TEXT]C.char
	flag := C.int(0)
	if loaded {
		flag = 1
	}
	raw := C.plaitk_library_open(text, flag, &found[0])
	message := C.GoString(&found[0])
	if raw == nil {
		if !strings.Contains(message, name) {
			message = name + ": " + message
		}
		return Handle{}, "", fmt.Errorf("cannot open a library: %s", message)
	}
	return Handle{raw}, message, nil
}

// Symbol returns the address of a function of the library.
func (h Handle) Symbol(name string) (unsafe.Pointer, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	if p := C.plaitk_library_symbol(h.raw, text); p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("the library has no function %s", name)
}
