// Solvers and decompositions of batches of small matrices. Each matrix runs on one thread, in double.
#ifndef PLAITK_LINALG_H
#define PLAITK_LINALG_H

#include <stdbool.h>
#include <stdint.h>

#include "../../../include/plait_pool.h"

enum {
  LINALG_SOLVE,       // X of A X = B; without B, the inverse of A
  LINALG_DET,         // determinant, its sign and the logarithm of its absolute value
  LINALG_TRIANGULAR,  // X of A X = B for a triangular A
  LINALG_CHOLESKY,    // lower triangular L of A = L L'
  LINALG_LU,          // L, without its unit diagonal, and U of A with its rows exchanged
  LINALG_QR,          // Q [m, min(m, n)] and R of A = Q R
  LINALG_EIGH,        // eigenvalues in ascending order and eigenvectors, as columns, of a symmetric A
  LINALG_SVD,         // U, singular values in descending order, and V', of A = U S V'
};

enum { LINALG_OK = 0, LINALG_SINGULAR, LINALG_NOT_POSITIVE, LINALG_DIVERGED };

// Matrices are contiguous and row-major, of float (dtype PLAIT_F32) or double. A is [m, n] and B [n, k].
struct plaitk_linalg {
  int32_t op, dtype;
  int64_t batch, m, n, k;
  const void *a, *b;
  void *out[3];
  int32_t upper, unit;  // of a triangular A: upper triangle, and unit diagonal
  int32_t *pivots;      // of LU: the row, counted from 1, that each of the first min(m, n) rows was exchanged with, in order
  int32_t *infos;       // of Cholesky or LU: the first row, counted from 1, that failed, or 0; if NULL, a failure is an error
  void *scratch;        // plaitk_linalg_scratch bytes, aligned to 64
};

int64_t plaitk_linalg_scratch(const plait_pool *pool, const struct plaitk_linalg *l);

// plaitk_linalg_run returns a status. *at is the index of the matrix that failed.
int32_t plaitk_linalg_run(plait_pool *pool, const struct plaitk_linalg *l, int64_t *at);

// plaitk_linalg_permutation writes the source of each of m rows, for each of `batch` lists of k exchanges. It returns
// the index of the first exchange with a row out of range, or -1.
int64_t plaitk_linalg_permutation(int64_t batch, int64_t k, int64_t m, const int32_t *pivots, int64_t *rows);

// The decompositions of one matrix. Those that return int return a status. Those that return int64_t return the first
// row, counted from 1, at which they failed, or 0. `w` is scratch.
int64_t plaitk_linalg_lu(int64_t m, int64_t n, double *a, int64_t *pivots, int *sign);
int64_t plaitk_linalg_cholesky(int64_t n, double *a);
void plaitk_linalg_qr(int64_t m, int64_t n, double *a, double *q, double *w);
int plaitk_linalg_eigh(int64_t n, double *a, double *values, double *vectors);
int plaitk_linalg_svd(int64_t m, int64_t n, double *rows, double *s, double *v);

#endif
