// Package gil knows about Python's global interpreter lock, without needing Python.
package gil

/*
#cgo linux LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>

static int plaitk_gil_held(void) {
  int (*check)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Check");
  return check != 0 && check();
}
*/
import "C"

// Held reports whether the calling thread holds the lock; it does not where there is no Python.
func Held() bool { return C.plaitk_gil_held() != 0 }
