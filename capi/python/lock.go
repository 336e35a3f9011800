// Package python knows a little about the Python that may be around, without needing one.
package python

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

// LockHeld reports whether the calling thread holds the global interpreter lock; it does not where there is no Python.
func LockHeld() bool { return C.plaitk_gil_held() != 0 }
