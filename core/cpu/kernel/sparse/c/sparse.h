// Products of a sparse matrix in compressed rows with dense ones. core/contract/sparse.go says what they compute.
//
// A chunk is a range of rows, cut by shape. A row is computed by one thread, entry after entry, so that the number of threads does not
// matter. Columns are taken in tiles whose sums stay in registers.
#ifndef PLAITK_SPARSE_H
#define PLAITK_SPARSE_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"
#include "../../../include/plait_view.h"

struct plaitk_csr {
  const int64_t *crow, *col, *order; // order may be NULL
  int64_t rows, columns, entries;
  int32_t dtype;
};

// What is wrong with the first bad entry, or row.
enum plaitk_csr_fault { CSR_GOOD, CSR_BAD_ROW, CSR_BAD_COLUMN, CSR_BAD_ORDER };

// y [rows, n] = the matrix times x [columns, n]. It returns a fault, with its position in at.
int64_t plaitk_sparse_matmul(plait_pool *pool, const struct plaitk_csr *s, const void *values, const void *x, void *y, int64_t n, int64_t *at);

// values [entries] = a [rows, n] times the transpose of b [columns, n], at the entries only.
int64_t plaitk_sparse_sampled(plait_pool *pool, const struct plaitk_csr *s, const void *a, const void *b, void *values, int64_t n, int64_t *at);

#endif
