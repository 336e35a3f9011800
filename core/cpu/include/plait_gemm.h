// Matrix products inside kernels: single-threaded, to be called from the chunks of a parallel kernel.
#ifndef PLAIT_GEMM_H
#define PLAIT_GEMM_H

#include <stdint.h>

// plait_sgemm computes C = alpha op(A) op(B) + beta C for row-major matrices, where op(A) is m x k, op(B) is k x n, C is
// m x n, and op transposes where ta or tb is not zero. lda, ldb and ldc are the distances between stored rows. With
// beta == 0 C is written without being read, and with k == 0 the product is zero. The bits of the result depend on the
// arguments alone.
void plait_sgemm(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                 const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

// plait_dgemm is plait_sgemm in float64.
void plait_dgemm(int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                 const double *b, int64_t ldb, double beta, double *c, int64_t ldc);

#endif
