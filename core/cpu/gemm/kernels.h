// The pieces of the built-in matrix product that depend on element type and instruction set.
#ifndef PLAITK_GEMM_KERNELS_H
#define PLAITK_GEMM_KERNELS_H

#include <stdint.h>

#include "../include/plait_kernel.h"

// Upper bounds over all variants: rows and vectors of a tile, and its bytes.
#define GEMM_MAX_MR 12
#define GEMM_MAX_NV 3
#define GEMM_MAX_TILE_BYTES 4096

// The most rows of A that a dot-product kernel takes.
#define GEMM_MAX_DOTS 4

// A micro-kernel multiplies a packed panel of A, mr elements for each of K steps, by a packed panel of B, nv vectors
// for each step. It stores the mr x nv tile of accumulators to out, or adds it if `add`.
typedef void (*gemm_micro)(int64_t k, const void *a, const void *b, void *out, int64_t out_row, int add);

// The same for panels of pairs of elements along K, for `rows` rows and `vectors` vectors. A step is a pair.
typedef void (*gemm_pairs)(int64_t rows, int64_t vectors, int64_t k, const void *a, const void *b, void *out,
                           int64_t out_row, int add);

// A micro-kernel on unpacked operands: A with any strides, B with contiguous rows.
typedef void (*gemm_unpacked)(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
                            void *out, int64_t out_row, int add);

// Adds to out[i * out_row + j] the dot products of a few rows of A with `lines` columns of B, both contiguous along K.
typedef void (*gemm_dots)(int64_t lines, int64_t k, const void *a, int64_t a_row, const void *b, int64_t b_line,
                          void *out, int64_t out_row);

// The same for rows of bfloat16, and columns of it or of float32 that is rounded to it, as dtype says. It adds nothing:
// out holds the dot products alone.
typedef void (*gemm_pair_dots)(int64_t rows, int64_t lines, int64_t k, const void *a, int64_t a_row, const void *b,
                               int dtype, int64_t b_line, float *out, int64_t out_row);

// Bytes of a line after those that are being packed, which memory is asked for: so many lines at once are more streams
// than a processor foresees.
#define GEMM_PACK_AHEAD 256

// The dtype of float32 elements that are rounded to bfloat16 as they are packed.
#define GEMM_ROUNDED (-1)

// The dtype of the accumulator type's elements that are turned; see plait_gemm.h.
#define GEMM_TURNED (-2)

// A gemm_pack copies `width` lines of `depth` elements to a panel, dst[p * panel + i], and converts them to the accumulator
// type, or joins them to pairs, or turns them, from an even line and step on. Lines from width to panel are zeros.
// Strides are in elements: line_step between lines, depth_step along a line.
typedef void (*gemm_pack)(void *dst, int64_t panel, const void *src, int dtype, int64_t width, int64_t line_step,
                          int64_t depth, int64_t depth_step);

// The epilogue: alpha * accumulator + beta * C + bias.
typedef struct gemm_epilogue {
  int out;
  int64_t c_row, c_col;
  double alpha, beta;
  int bias_rows;  // the bias is added to rows, not columns
} gemm_epilogue;

typedef struct gemm_kernels {
  int size;         // bytes of an element of the accumulator type, and of a line's step of K in a panel
  int lanes;        // elements of a vector
  int mr, nv;       // the tile: mr rows of nv vectors
  int pair;         // elements of K in a step: 1, or 2 for kernels of pairs
  int unit;         // zeros fill the steps of a panel up to a multiple of this
  int a_lanes;      // zeros fill the rows of a panel of A up to a multiple of this
  int depth_bytes;  // bytes of a line in a K block, at most

  // Where a step is a pair there are no other micro-kernels but pair_dots, which may be NULL; else pairs is NULL. A
  // thread calls begin, if there is one, before its calls of pairs, and end after them.
  gemm_pairs pairs;
  gemm_pair_dots pair_dots;
  void (*begin)(void), (*end)(void);

  gemm_micro micro[GEMM_MAX_NV][GEMM_MAX_MR];
  gemm_unpacked unpacked[GEMM_MAX_NV][GEMM_MAX_MR];
  gemm_dots dots[GEMM_MAX_DOTS];

  gemm_pack pack, pack_a;  // of panels of B, and of A, whose order may be another

  // epilogue writes alpha * sums + beta * C + bias for rows x cols of C. bias is contiguous, of the accumulator type, or
  // NULL.
  void (*epilogue)(const gemm_epilogue *f, const void *sums, int64_t sums_row, int64_t rows, int64_t cols, void *c,
                   const void *bias);
} gemm_kernels;

// gemm_kernels_of returns the kernels for a dtype and an instruction set; NULL if the build or the machine lacks it.
const gemm_kernels *gemm_kernels_of(int variant, int dtype);

// gemm_pair_kernels_of returns kernels of pairs of a dtype, or NULL if the instruction set has none.
const gemm_kernels *gemm_pair_kernels_of(int variant, int dtype);

#endif
