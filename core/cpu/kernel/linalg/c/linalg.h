// Solutions and decompositions of stacks of small matrices, one matrix on one thread, computed in double.
#ifndef PLAITK_LINALG_H
#define PLAITK_LINALG_H

#include <stdbool.h>
#include <stdint.h>

#include "../../../include/plait_pool.h"

enum {
  LINALG_SOLVE,       // X of A X = B; without B, A's inverse
  LINALG_DET,         // determinant, its sign and the logarithm of its size
  LINALG_TRIANGULAR,  // X of A X = B for a triangular A
  LINALG_CHOLESKY,    // lower triangular L of A = L L'
  LINALG_QR,          // Q [m, min(m, n)] and R of A = Q R
  LINALG_EIGH,        // ascending eigenvalues and eigenvectors, in columns, of a symmetric A
  LINALG_SVD,         // U, descending singular values and V', of A = U S V'
};

enum { LINALG_OK = 0, LINALG_NO_MEMORY, LINALG_SINGULAR, LINALG_NOT_POSITIVE, LINALG_DIVERGED };

// Matrices are contiguous, row by row, of float (dtype PLAIT_F32) or double; A is [m, n] and B [n, k].
struct plaitk_linalg {
  int32_t op, dtype;
  int64_t batch, m, n, k;
  const void *a, *b;
  void *out[3];
  int32_t upper, unit;  // of a triangular A: which triangle, and whether its diagonal counts as ones
};

// plaitk_linalg_run returns a status; *at is the matrix of the stack that failed.
int32_t plaitk_linalg_run(plait_pool *pool, const struct plaitk_linalg *l, int64_t *at);

// The decompositions of one matrix; each returns a status. Memory at `w` is the caller's.
int plaitk_linalg_lu(int64_t n, double *a, int64_t *pivots, int *sign);
int plaitk_linalg_cholesky(int64_t n, double *a);
void plaitk_linalg_qr(int64_t m, int64_t n, double *a, double *q, double *w);
int plaitk_linalg_eigh(int64_t n, double *a, double *values, double *vectors);
int plaitk_linalg_svd(int64_t m, int64_t n, double *rows, double *s, double *v);

#endif
