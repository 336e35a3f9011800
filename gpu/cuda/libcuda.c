#include "libcuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

enum { LEAST_VERSION = 12000 };

static const char *path = "libcuda.so.1";
static plaitk_cu_table table;
static int version;
static char missing[512];
static pthread_once_t once = PTHREAD_ONCE_INIT;

void plaitk_cu_open_instead(const char *other) { path = other; }

static int load(void) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(missing, sizeof missing, "%s, the library of NVIDIA's driver, cannot be opened: %s", path, dlerror());
    return 0;
  }
#define PLAITK_CU_LOAD(symbol, name, params)                                                                           \
  table.name = (CUresult(*) params)dlsym(library, #symbol);                                                            \
  if (!table.name) {                                                                                                   \
    snprintf(missing, sizeof missing, "%s lacks %s: NVIDIA's driver is too old", path, #symbol);                       \
    return 0;                                                                                                          \
  }
  PLAITK_CU_FUNCTIONS(PLAITK_CU_LOAD)
#undef PLAITK_CU_LOAD
  CUresult error = table.init(0);
  if (error) {
    char text[256];
    plaitk_cu_describe(error, text, sizeof text);
    snprintf(missing, sizeof missing, "NVIDIA's driver does not start: %s", text);
    return 0;
  }
  table.version(&version);
  if (version < LEAST_VERSION) {
    snprintf(missing, sizeof missing, "NVIDIA's driver supports CUDA %d.%d, and %d.0 or newer is needed",
             version / 1000, version % 1000 / 10, LEAST_VERSION / 1000);
    return 0;
  }
  return 1;
}

static int loaded;
static void load_once(void) { loaded = load(); }

const plaitk_cu_table *plaitk_cu_library(void) {
  pthread_once(&once, load_once);
  return loaded ? &table : NULL;
}

const char *plaitk_cu_missing(void) { return plaitk_cu_library() ? "" : missing; }

int plaitk_cu_driver_version(void) { return plaitk_cu_library() ? version : 0; }

void plaitk_cu_describe(CUresult error, char *text, size_t size) {
  const char *name = NULL, *meaning = NULL;
  if (table.error_name) table.error_name(error, &name);
  if (table.error_string) table.error_string(error, &meaning);
  snprintf(text, size, "%s (%s)", meaning ? meaning : "unknown error", name ? name : "no name");
}
