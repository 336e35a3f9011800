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
  LINALG_LU,          // L below the diagonal, where its ones are left out, and U of A with its rows exchanged
  LINALG_QR,          // Q [m, min(m, n)] and R of A = Q R
  LINALG_EIGH,        // ascending eigenvalues and eigenvectors, in columns, of a symmetric A
  LINALG_SVD,         // U, descending singular values and V', of A = U S V'
};

enum { LINALG_OK = 0, LINALG_SINGULAR, LINALG_NOT_POSITIVE, LINALG_DIVERGED };

// Matrices are contiguous, row by row, of float (dtype PLAIT_F32) or double; A is [m, n] and B [n, k].
struct plaitk_linalg {
  int32_t op, dtype;
  int64_t batch, m, n, k;
  const void *a, *b;
  void *out[3];
  int32_t upper, unit;  // of a triangular A: which triangle, and whether its diagonal counts as ones
  int32_t *pivots;      // of an LU: the row, from 1, with which each of the first min(m, n) was exchanged, one after the other
  int32_t *infos;       // of a Cholesky or LU: the first row, from 1, at which it failed, or 0; without them that is a failure
  void *scratch;        // plaitk_linalg_scratch bytes, aligned to 64
};

int64_t plaitk_linalg_scratch(const plait_pool *pool, const struct plaitk_linalg *l);

// plaitk_linalg_run returns a status; *at is the matrix of the stack that failed.
int32_t plaitk_linalg_run(plait_pool *pool, const struct plaitk_linalg *l, int64_t *at);

// plaitk_linalg_permutation writes where each of m rows came from, for each of batch exchanges of k rows. It returns the number
// of the first exchange with a row that is none of the m, or -1.
int64_t plaitk_linalg_permutation(int64_t batch, int64_t k, int64_t m, const int32_t *pivots, int64_t *rows);

// The decompositions of one matrix. Those that return an int return a status, those that return an int64_t the first row, from
// 1, at which they failed, or 0. Memory at `w` is the caller's.
int64_t plaitk_linalg_lu(int64_t m, int64_t n, double *a, int64_t *pivots, int *sign);
int64_t plaitk_linalg_cholesky(int64_t n, double *a);
void plaitk_linalg_qr(int64_t m, int64_t n, double *a, double *q, double *w);
int plaitk_linalg_eigh(int64_t n, double *a, double *values, double *vectors);
int plaitk_linalg_svd(int64_t m, int64_t n, double *rows, double *s, double *v);

#endif
