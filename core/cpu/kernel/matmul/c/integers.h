// Matrix products of integers.
#ifndef PLAITK_MATMUL_INTEGERS_H
#define PLAITK_MATMUL_INTEGERS_H

#include "../../../include/plait_gemm.h"

// plaitk_matmul_integers is plaitk_gemm_batched for integers. alpha and beta are whole
// numbers. Sums are in int64; sums and results wrap around.
void plaitk_matmul_integers(plait_pool *pool, const plaitk_gemm *g, int dims, const plaitk_gemm_dim *dim);

#endif
