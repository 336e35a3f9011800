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

static void *plaitk_gil_leave(void) {
  void *(*leave)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "PyEval_SaveThread");
  return leave != 0 ? leave() : 0;
}

static void plaitk_gil_enter(void *state) {
  void (*enter)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "PyEval_RestoreThread");
  if (enter != 0) enter(state);
}
*/
import "C"

// LockHeld reports whether the calling thread holds the global interpreter lock; it does not where there is no Python.
func LockHeld() bool { return C.plaitk_gil_held() != 0 }

// Unlocked runs fn without the global interpreter lock, if the calling thread holds it.
func Unlocked(fn func()) {
	if LockHeld() {
		state := C.plaitk_gil_leave()
		defer C.plaitk_gil_enter(state)
	}
	fn()
}
