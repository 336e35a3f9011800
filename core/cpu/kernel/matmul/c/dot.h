// Dot products of vectors.
#ifndef PLAITK_MATMUL_DOT_H
#define PLAITK_MATMUL_DOT_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

enum {
  PLAITK_DOT_PIECE = 1 << 15,  // elements that a thread takes at a time
  PLAITK_DOT_SUMS = 4,         // sums of a piece
};

// plaitk_matmul_dot writes the dot product of n contiguous elements to out: of dtype PLAIT_F32 or PLAIT_F64, or complex
// numbers with such parts, where those of x may be conjugated. sums has PLAITK_DOT_SUMS numbers for each piece.
void plaitk_matmul_dot(plait_pool *pool, int dtype, int complex, int conjugate, const void *x, const void *y, int64_t n, void *out,
                       double *sums);

#endif
