//go:build cgo && linux && amd64

#include "shim.h"

#include <stdlib.h>

enum { NO_MEMORY = 1 }; // NVRTC_ERROR_OUT_OF_MEMORY

int plaitk_nvrtc_about(const plaitk_nvrtc *l, int *major, int *minor, int *archs, int max) {
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

int plaitk_nvrtc_compile(const plaitk_nvrtc *l, const char *source, const char *name, int n,
                         const char *const *options, plaitk_nvrtc_result *out) {
  plaitk_nvrtc_handle p;
  int result = l->create(&p, source, name, 0, NULL, NULL);
  if (result != 0) return result;
  result = finish(l, p, l->compile(p, n, options), out);
  l->destroy(&p);
  return result;
}

const char *plaitk_nvrtc_error(const plaitk_nvrtc *l, int result) { return l->error(result); }
