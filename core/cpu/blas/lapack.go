package blas

/*
#include <stdlib.h>
#include "blas.h"
*/
import "C"

import (
	"os"
	"unsafe"
)

// Lapack returns a plaitk_lapack, the routines of the library that PLAIT_BLAS chooses; nil if there is none that has them. It calls [Load].
func Lapack() (unsafe.Pointer, error) {
	if state.searched.Load() {
		return state.lapack, nil
	}
	if err := Load(); err != nil {
		return nil, err
	}
	state.Lock()
	defer state.Unlock()
	if !state.searched.Load() {
		state.lapack = findLapack(os.Getenv("PLAIT_BLAS"), state.preferred)
		state.searched.Store(true)
	}
	return state.lapack, nil
}

func findLapack(setting, preferred string) unsafe.Pointer {
	paths := []string{setting}
	switch setting {
	case "none":
		return nil
	case "", "auto", "openblas":
		paths = candidates(preferred)
	}
	for _, path := range paths {
		name := C.CString(path)
		defer C.free(unsafe.Pointer(name))
		if found := C.plaitk_lapack_load(name); found != nil {
			return found
		}
	}
	return nil
}
