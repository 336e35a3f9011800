// The loaded library and how it is called.
#ifndef PLAITK_BLAS_LIBRARY_H
#define PLAITK_BLAS_LIBRARY_H

#include <stdbool.h>
#include <stdint.h>

#include "../include/plait_gemm.h"

typedef struct blas_library {
  void *sgemm, *dgemm;
  bool wide;  // integers have 64 bits
  void (*set_threads)(int threads);
} blas_library;

extern blas_library blas;

// A product of row-major matrices with the arguments of cblas_sgemm.
typedef struct blas_block {
  int64_t m, n, k;
  int ta, tb;
  double alpha, beta;
  const void *a;
  int64_t lda;
  const void *b;
  int64_t ldb;
  void *c;
  int64_t ldc;
} blas_block;

// blas_call computes one block on the calling thread.
void blas_call(bool is_double, const blas_block *block);

// blas_engine splits large products into blocks for the library. Other products run on the built-in kernels.
extern const plaitk_gemm_engine blas_engine;

#endif
