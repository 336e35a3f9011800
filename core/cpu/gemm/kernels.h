// The pieces of the built-in matrix product that depend on element type and instruction set.
#ifndef PLAITK_GEMM_KERNELS_H
#define PLAITK_GEMM_KERNELS_H

#include <stdint.h>

#include "../include/plait_kernel.h"

// Bounds over all variants: rows and vectors of a tile, and its bytes.
#define GEMM_MAX_MR 12
#define GEMM_MAX_NV 3
#define GEMM_MAX_TILE_BYTES 1536

// Rows of A that a product with B's lines takes at once.
#define GEMM_MAX_DOTS 4

// A micro kernel multiplies a packed panel of A, mr elements for each of k steps, with one of B, nv vectors for each
// step, and stores the mr x nv tile of sums to out, or adds it there.
typedef void (*gemm_micro)(int64_t k, const void *a, const void *b, void *out, int64_t out_row, int add);

// The same with operands where they are: A with any strides, the columns of B contiguous.
typedef void (*gemm_direct)(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
                            void *out, int64_t out_row, int add);

// Adds to out[i * out_row + j] the products of a few rows of A with `lines` lines of B, contiguous along k, both.
typedef void (*gemm_dots)(int64_t lines, int64_t k, const void *a, int64_t a_row, const void *b, int64_t b_line,
                          void *out, int64_t out_row);

// How sums become elements of C: alpha * sum + beta * C + bias.
typedef struct gemm_finish {
  int out;
  int64_t c_row, c_col;
  double alpha, beta;
  int bias_rows;  // the bias belongs to rows, not columns
} gemm_finish;

typedef struct gemm_kernels {
  int size;    // bytes of an element of the accumulating type
  int lanes;   // elements of a vector
  int mr, nv;  // the tile: mr rows of nv vectors
  gemm_micro micro[GEMM_MAX_NV][GEMM_MAX_MR];
  gemm_direct direct[GEMM_MAX_NV][GEMM_MAX_MR];
  gemm_dots dots[GEMM_MAX_DOTS];

  // pack copies a strip of `width` lines of `depth` elements of the given dtype to dst[p * panel + i], converted, with
  // zeros for width <= i < panel. Strides are in elements: line_step from line to line, depth_step along a line.
  void (*pack)(void *dst, int64_t panel, const void *src, int dtype, int64_t width, int64_t line_step, int64_t depth,
               int64_t depth_step);

  // finish writes rows x cols of C. bias, contiguous and of the accumulating type, may be NULL.
  void (*finish)(const gemm_finish *f, const void *sums, int64_t sums_row, int64_t rows, int64_t cols, void *c,
                 const void *bias);
} gemm_kernels;

// gemm_kernels_of returns the set for products of dtype on `variant`; NULL if this build or machine has none.
const gemm_kernels *gemm_kernels_of(int variant, int dtype);

#endif
