#define _GNU_SOURCE
#include "library.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "blas.h"
#include "../include/plait_gemm.h"
#include "../include/plait_lapack.h"

blas_library blas;
static plaitk_lapack lapack;

// OpenBLAS may add a prefix to its names (scipy's builds) and a suffix (64-bit integers).
static const struct {
  const char *prefix, *suffix;
  int wide;
} names[] = {{"", "", 0}, {"scipy_", "", 0}, {"", "64_", 1}, {"scipy_", "64_", 1}};

static void *symbol(void *handle, int name, const char *base) {
  char full[128];
  snprintf(full, sizeof full, "%s%s%s", names[name].prefix, base, names[name].suffix);
  return dlsym(handle, full);
}

static void copy_text(char *to, const char *from) {
  if (from == NULL) from = "";
  snprintf(to, PLAITK_BLAS_TEXT, "%s", from);
}

static int find(void *handle, blas_library *lib, char *config, char *core) {
  for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
    void *s = symbol(handle, i, "cblas_sgemm"), *d = symbol(handle, i, "cblas_dgemm");
    if (s == NULL || d == NULL) continue;
    lib->sgemm = s;
    lib->dgemm = d;
    lib->wide = names[i].wide;
    *(void **)&lib->set_threads = symbol(handle, i, "openblas_set_num_threads");
    char *(*text)(void);
    *(void **)&text = symbol(handle, i, "openblas_get_config");
    copy_text(config, text == NULL ? NULL : text());
    *(void **)&text = symbol(handle, i, "openblas_get_corename");
    copy_text(core, text == NULL ? NULL : text());
    return 0;
  }
  return -1;
}

// Opens the library at path, whose own threads must not receive signals: these belong to the language runtimes of the process.
static void *open_library(const char *path) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return handle;
}

int plaitk_blas_load(const char *path, char config[PLAITK_BLAS_TEXT], char core[PLAITK_BLAS_TEXT]) {
  void *handle = open_library(path);
  if (handle == NULL) {
    copy_text(config, dlerror());
    return -1;
  }
  blas_library lib = {0};
  if (find(handle, &lib, config, core) != 0) {
    dlclose(handle);
    copy_text(config, "no cblas_sgemm and cblas_dgemm in it");
    return -1;
  }
  if (lib.set_threads != NULL) lib.set_threads(1);
  blas = lib;
  plaitk_gemm_set_engine(&blas_engine);
  return 0;
}

void plaitk_blas_unload(void) { plaitk_gemm_set_engine(NULL); }

void plaitk_blas_alone(int threads, int is_double, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *a,
                       const void *b, void *c) {
  if (blas.set_threads != NULL) blas.set_threads(threads);
  blas_block block = {.m = m, .n = n, .k = k, .ta = ta, .tb = tb, .alpha = 1,
                      .a = a, .lda = ta ? m : k, .b = b, .ldb = tb ? k : n, .c = c, .ldc = n};
  blas_call(is_double, &block);
  if (blas.set_threads != NULL) blas.set_threads(1);
}

static bool find_lapack(void *handle, int name, plaitk_lapack *lib) {
  static const char *const routines[PLAIT_ROUTINES] = {"getrf", "trsm", "potrf", "geqrf", "orgqr", "syevd", "gesdd", "gelsy", "geev",
                                                      "sytrf"};
  static const char *const complex_routines[PLAIT_C_ROUTINES] = {"getrf", "trsm", "potrf", "geqrf", "ungqr", "heevd", "gesdd", "geev", "sytrf", "hetrf",
                                                                "gelsy"};
  for (int i = 0; i < 2 * PLAIT_ROUTINES; i++) {
    char base[16];
    snprintf(base, sizeof base, "%c%s_", "sd"[i % 2], routines[i / 2]);
    if ((lib->routine[i / 2][i % 2] = symbol(handle, name, base)) == NULL) return false;
  }
  for (int i = 0; i < 2 * PLAIT_C_ROUTINES; i++) {
    char base[16];
    snprintf(base, sizeof base, "%c%s_", "cz"[i % 2], complex_routines[i / 2]);
    if ((lib->complex_routine[i / 2][i % 2] = symbol(handle, name, base)) == NULL) return false;
  }
  lib->wide = names[name].wide;
  return true;
}

const void *plaitk_lapack_load(const char *path) {
  void *handle = open_library(path);
  for (int i = 0; handle != NULL && i < (int)(sizeof names / sizeof names[0]); i++) {
    if (!find_lapack(handle, i, &lapack)) continue;
    void (*set_threads)(int threads);
    *(void **)&set_threads = symbol(handle, i, "openblas_set_num_threads");
    if (set_threads != NULL) set_threads(1);
    return &lapack;
  }
  return NULL;
}
