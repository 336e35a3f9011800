// Matrix products of integers.
#ifndef PLAITK_MATMUL_INTEGERS_H
#define PLAITK_MATMUL_INTEGERS_H

#include "../../../include/plait_gemm.h"

// plaitk_matmul_integers is plaitk_gemm_batched for PLAIT_U8, PLAIT_I32 and PLAIT_I64, in which alpha and beta are whole
// numbers. Sums run in int64 and wrap round, as does the result.
void plaitk_matmul_integers(plait_pool *pool, const plaitk_gemm *g, int dims, const plaitk_gemm_dim *dim);

#endif
