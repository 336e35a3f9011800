// Matrix products by a BLAS library that is loaded at run time.
#ifndef PLAITK_BLAS_H
#define PLAITK_BLAS_H

#include <stdint.h>

#define PLAITK_BLAS_TEXT 256

// plaitk_blas_load loads the library at path, sets it to one thread, and makes plaitk_gemm_batched use it for large
// products. It returns 0 and writes the library's description to config and core. If it fails, it returns -1 and writes
// the reason to config, and changes nothing else. Calls must not overlap.
int plaitk_blas_load(const char *path, char config[PLAITK_BLAS_TEXT], char core[PLAITK_BLAS_TEXT]);

// plaitk_blas_unload returns to the built-in products. The library stays loaded, since it may have threads.
void plaitk_blas_unload(void);

// plaitk_lapack_load returns the plaitk_lapack of the library at path, set to one thread, or NULL if it lacks a routine. The next call
// overwrites it. Calls must not overlap.
const void *plaitk_lapack_load(const char *path);

// plaitk_blas_alone calls the loaded library for a whole product of contiguous matrices, on `threads` threads of its
// own. ta and tb say that A or B is stored transposed. Benchmarks use it for comparison.
void plaitk_blas_alone(int threads, int is_double, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *a,
                       const void *b, void *c);

#endif
