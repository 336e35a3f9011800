// The shim between Go and NVRTC. The library is not linked and its header is not needed: the few functions that are
// used are declared here.
#ifndef PLAIT_NVRTC_SHIM_H
#define PLAIT_NVRTC_SHIM_H

#include <stddef.h>

typedef struct plaitk_nvrtc_program *plaitk_nvrtc_handle;

// The functions of the library.
typedef struct {
  const char *(*error)(int result);
  int (*version)(int *major, int *minor);
  int (*archs_count)(int *n);
  int (*archs)(int *list);
  int (*create)(plaitk_nvrtc_handle *p, const char *source, const char *name, int headers, const char *const *texts,
                const char *const *names);
  int (*destroy)(plaitk_nvrtc_handle *p);
  int (*compile)(plaitk_nvrtc_handle p, int n, const char *const *options);
  int (*cubin_size)(plaitk_nvrtc_handle p, size_t *size);
  int (*cubin)(plaitk_nvrtc_handle p, char *to);
  int (*log_size)(plaitk_nvrtc_handle p, size_t *size);
  int (*log)(plaitk_nvrtc_handle p, char *to);
} plaitk_nvrtc;

// plaitk_nvrtc_about writes the version, and at most max architectures that the library compiles for. It returns how
// many there are, or minus the library's error. It is called once, before anything else.
int plaitk_nvrtc_about(const plaitk_nvrtc *l, int *major, int *minor, int *archs, int max);

// What a compilation gives: the cubin, or NULL, and the compiler's log. Both are freed by the caller.
typedef struct {
  char *cubin, *log;
  size_t cubin_size;
} plaitk_nvrtc_result;

enum { PLAITK_NVRTC_LEAVING = -1 }; // the process ends

// plaitk_nvrtc_compile compiles a program and returns the library's result, 0 for success, or PLAITK_NVRTC_LEAVING.
int plaitk_nvrtc_compile(const plaitk_nvrtc *l, const char *source, const char *name, int n,
                         const char *const *options, plaitk_nvrtc_result *out);

const char *plaitk_nvrtc_error(const plaitk_nvrtc *l, int result);

#endif
