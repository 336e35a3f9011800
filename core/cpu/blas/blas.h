// Matrix products by a BLAS library that is loaded while the program runs.
#ifndef PLAITK_BLAS_H
#define PLAITK_BLAS_H

#include <stdint.h>

#define PLAITK_BLAS_TEXT 256

// plaitk_blas_load loads the library at path, sets it to one thread and makes it the engine of plaitk_gemm_batched for
// large products. On success it returns 0 and writes what the library says of itself to config and core; otherwise it
// returns -1 and writes the reason to config, and nothing changes. Calls must not overlap.
int plaitk_blas_load(const char *path, char config[PLAITK_BLAS_TEXT], char core[PLAITK_BLAS_TEXT]);

// plaitk_blas_unload goes back to the built-in products. The library stays in memory: it may have threads.
void plaitk_blas_unload(void);

// plaitk_blas_alone calls the loaded library for a whole product of contiguous matrices in its own way, on so many
// threads of its own; ta and tb say that A or B is stored transposed. It is what benchmarks compare with.
void plaitk_blas_alone(int threads, int is_double, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *a,
                       const void *b, void *c);

#endif
