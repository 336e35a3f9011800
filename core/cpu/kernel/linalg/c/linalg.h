// Solvers and decompositions of batches of matrices. Each matrix runs on one thread, in its own dtype.
#ifndef PLAITK_LINALG_H
#define PLAITK_LINALG_H

#include <stdbool.h>
#include <stdint.h>

#include "../../../include/plait_lapack.h"
#include "../../../include/plait_pool.h"

enum {
  LINALG_SOLVE,       // X of A X = B; without B, the inverse of A
  LINALG_DET,         // determinant, its sign and the logarithm of its absolute value
  LINALG_TRIANGULAR,  // X of A X = B for a triangular A
  LINALG_CHOLESKY,    // lower triangular L of A = L L'
  LINALG_LU,          // L, without its unit diagonal, and U of A with its rows exchanged
  LINALG_QR,          // Q [m, min(m, n)] and R of A = Q R
  LINALG_EIGH,        // eigenvalues in ascending order and eigenvectors, as columns, of a symmetric A
  LINALG_SVD,         // singular values in descending order, U, and V', of A = U S V'
  LINALG_LSTSQ,       // the least X of those that make A X - B least
  LINALG_EIG,         // complex eigenvalues and eigenvectors, as columns
  LINALG_GEQRF,       // R and, below it, the reflections whose product is Q, and their factors
  LINALG_LDL,         // L, without its unit diagonal, and the D of blocks of 1 and 2 rows of A = L D L' with its rows and columns exchanged
};

enum { LINALG_OK = 0, LINALG_SINGULAR, LINALG_NOT_POSITIVE, LINALG_DIVERGED, LINALG_STATUSES };

// Matrices are contiguous and row-major, of float (dtype PLAIT_F32) or double, or of complex numbers of such parts, which want LAPACK. A is [m, n] and B [n, k], or [m, k] for LSTSQ.
struct plaitk_linalg {
  int32_t op, dtype;
  int32_t is_complex;     // always for EIG
  int32_t real;           // of EIG: A is real
  int64_t batch, m, n, k;
  const void *a, *b;
  void *out[3];           // eigenvectors and singular vectors may be NULL
  int32_t upper, unit;    // of a triangular A: upper triangle, and unit diagonal
  int32_t hermitian;      // of LDL: L' is conjugated
  int32_t *pivots;        // of LU: the row, counted from 1, that each of the first min(m, n) rows was exchanged with, in order;
                          // of LDL: the same, and of two rows of a block, with both, the negative of that of the second
  int32_t *infos;         // of Cholesky, LU or LDL: the first row, counted from 1, that failed, or 0; if NULL, a failure is an error
                          // of LSTSQ: the rank
  double rcond;           // of LSTSQ: the largest singular value times it counts as 0
  const void *lapack;     // a plaitk_lapack, or NULL
  void *scratch;          // plaitk_linalg_scratch bytes, aligned to 64
};

int64_t plaitk_linalg_scratch(const plait_pool *pool, const struct plaitk_linalg *l);

// plaitk_linalg_run returns a status. at[0] is the index of the first matrix that failed, and at[1] its row, counted from 1, where it did.
int32_t plaitk_linalg_run(plait_pool *pool, const struct plaitk_linalg *l, int64_t at[2]);

// plaitk_linalg_cross writes y, the cross products along the middle dimension of contiguous x and z [outer, 3, inner], of a floating dtype.
void plaitk_linalg_cross(plait_pool *pool, int32_t dtype, const void *x, const void *z, void *y, int64_t outer, int64_t inner);

// plaitk_linalg_permutation writes the source of each of m rows, for each of `batch` lists of k exchanges. It returns
// the index of the first exchange with a row out of range, or -1.
int64_t plaitk_linalg_permutation(int64_t batch, int64_t k, int64_t m, const int32_t *pivots, int64_t *rows);

#endif
