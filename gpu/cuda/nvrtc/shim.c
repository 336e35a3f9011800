//go:build cgo && linux && amd64

#include "shim.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { NO_MEMORY = 1 }; // NVRTC_ERROR_OUT_OF_MEMORY

// The library must not compile while exit() takes it down.
static struct {
  pid_t process; // that registered at_exit
  int leaving;   // no thread may begin to compile any more
  int inside;    // number of threads that compile
} state;

// How long at_exit waits, and microseconds between two checks. The first compilation reads large libraries, from a disk.
enum { LEAVE_SECONDS = 60, LEAVE_PAUSE = 200 };

static void at_exit(void) {
  if (__atomic_load_n(&state.process, __ATOMIC_SEQ_CST) != getpid()) return;
  __atomic_store_n(&state.leaving, 1, __ATOMIC_SEQ_CST);
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    if (__atomic_load_n(&state.inside, __ATOMIC_SEQ_CST) == 0) return;
    usleep(LEAVE_PAUSE);
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (now.tv_sec - begin.tv_sec < LEAVE_SECONDS);
}

int plaitk_nvrtc_about(const plaitk_nvrtc *l, int *major, int *minor, int *archs, int max) {
  if (__atomic_exchange_n(&state.process, getpid(), __ATOMIC_SEQ_CST) == 0) {
    // The library opens another one when it first compiles. Functions of exit() run from the last to the first, so
    // at_exit must come after those of both.
    plaitk_nvrtc_handle p;
    if (l->create(&p, "", "nothing", 0, NULL, NULL) == 0) {
      l->compile(p, 0, NULL);
      l->destroy(&p);
    }
    atexit(at_exit);
  }
  int n = 0, result = l->version(major, minor);
  if (result == 0) result = l->archs_count(&n);
  if (result != 0) return -result;
  if (n > max) return -NO_MEMORY;
  result = l->archs(archs);
  return result == 0 ? n : -result;
}

static int finish(const plaitk_nvrtc *l, plaitk_nvrtc_handle p, int result, plaitk_nvrtc_result *out) {
  size_t size = 0;
  if (l->log_size(p, &size) == 0 && size > 1 && (out->log = malloc(size)) != NULL) l->log(p, out->log);
  if (result != 0) return result;
  result = l->cubin_size(p, &out->cubin_size);
  if (result != 0) return result;
  out->cubin = malloc(out->cubin_size);
  return out->cubin == NULL ? NO_MEMORY : l->cubin(p, out->cubin);
}

static int compile(const plaitk_nvrtc *l, const char *source, const char *name, int n, const char *const *options,
                   plaitk_nvrtc_result *out) {
  plaitk_nvrtc_handle p;
  int result = l->create(&p, source, name, 0, NULL, NULL);
  if (result != 0) return result;
  result = finish(l, p, l->compile(p, n, options), out);
  l->destroy(&p);
  return result;
}

int plaitk_nvrtc_compile(const plaitk_nvrtc *l, const char *source, const char *name, int n,
                         const char *const *options, plaitk_nvrtc_result *out) {
  __atomic_fetch_add(&state.inside, 1, __ATOMIC_SEQ_CST);
  int result = __atomic_load_n(&state.leaving, __ATOMIC_SEQ_CST) ? PLAITK_NVRTC_LEAVING
                                                                 : compile(l, source, name, n, options, out);
  __atomic_fetch_sub(&state.inside, 1, __ATOMIC_SEQ_CST);
  return result;
}

const char *plaitk_nvrtc_error(const plaitk_nvrtc *l, int result) { return l->error(result); }
