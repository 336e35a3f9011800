// Attention of one tile of bfloat16 by products of tiles. Scores and sums are float32; the weights of the values are rounded
// to bfloat16 for their product. Part of attention.c, after the functions for float32 and AVX-512.
#ifdef PLAIT_ATTENTION_X86

#define SUFFIX bf16
#define ISA tiles
#define T float
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define LANES ((int64_t)64)
#define SUMMED 16
#define EXP(v) plait_exp_belowf(v)
#define LOG(v) plait_vm_logf(v)
#define SHARED(name) PASTE(name, f32, v4)
#define ELEMENT uint16_t

// The operands of a tile: queries, then keys or values, then the weights of values.
#define QUERY_BYTES(dim) plaitk_gemm_tiles_bytes(LANES, dim)
#define KEY_BYTES(dim, vdim) max64(plaitk_gemm_tiles_bytes(KEYS, dim), plaitk_gemm_tiles_bytes(vdim, KEYS))
#define OPERAND_BYTES(dim, vdim) (QUERY_BYTES(dim) + KEY_BYTES(dim, vdim) + plaitk_gemm_tiles_bytes(LANES, KEYS))

static TARGET void FN(take_queries)(const struct plaitk_attention *a, const uint16_t *q, int64_t n, int64_t lanes,
                                    char *operands) {
  (void)lanes;
  plaitk_gemm_tiles_b(operands, q, n, a->q.row, a->dim, 1);
}

// s[k][q] = keys * queries * scale
static TARGET void FN(scores)(const struct plaitk_attention *a, const uint16_t *k, int64_t keys, int64_t lanes,
                              char *operands, float *s) {
  char *left = operands + QUERY_BYTES(a->dim);
  plaitk_gemm_tiles_a(left, k, keys, a->k.row, a->dim, 1);
  plaitk_gemm_by_tiles(keys, lanes, a->dim, left, operands, s, LANES, false);
  float scale = (float)a->scale;
  for (int64_t i = 0; i < keys; i++) {
#pragma omp simd
    for (int64_t q = 0; q < lanes; q++) s[i * LANES + q] *= scale;
  }
}

// Packs the weights s[k][q] as plaitk_gemm_tiles_b does, with zeros after the last key.
static TARGET void FN(pack_weights)(const float *s, int64_t keys, int64_t lanes, uint32_t *to) {
  int64_t pairs = ceil_div(keys, PLAITK_GEMM_TILE) * PLAITK_GEMM_TILE / 2;
  for (int64_t q0 = 0; q0 < lanes; q0 += PLAITK_GEMM_TILE) {
    int64_t width = min64(PLAITK_GEMM_TILE, lanes - q0);
    for (int64_t p = 0; p < pairs; p++, to += width) {
      const float *first = s + 2 * p * LANES + q0, *second = first + LANES;
      if (2 * p + 1 < keys) {
#pragma omp simd
        for (int64_t q = 0; q < width; q++) {
          to[q] = plait_f32_to_bf16(first[q]) | (uint32_t)plait_f32_to_bf16(second[q]) << 16;
        }
      } else {
        for (int64_t q = 0; q < width; q++) to[q] = 2 * p < keys ? plait_f32_to_bf16(first[q]) : 0;
      }
    }
  }
}

// ot[d][q] += values * s
static TARGET void FN(weigh_values)(const struct plaitk_attention *a, const uint16_t *v, int64_t keys, int64_t lanes,
                                    char *operands, const float *s, float *ot) {
  char *left = operands + QUERY_BYTES(a->dim), *right = left + KEY_BYTES(a->dim, a->value_dim);
  plaitk_gemm_tiles_a(left, v, a->value_dim, 1, keys, a->v.row);
  FN(pack_weights)(s, keys, lanes, (uint32_t *)right);
  plaitk_gemm_by_tiles(a->value_dim, lanes, keys, left, right, ot, LANES, true);
}

// x[q][d] = t[d][q] * scale[q]
static TARGET void FN(transpose_out)(const float *t, uint16_t *x, int64_t row, int64_t n, int64_t dim,
                                     const float *scale) {
  for (int64_t q = 0; q < n; q++) {
    for (int64_t d = 0; d < dim; d++) x[q * row + d] = plait_f32_to_bf16(t[d * LANES + q] * scale[q]);
  }
}

#include "forward.h"

#undef SUFFIX
#undef ISA
#undef T
#undef TARGET
#undef LANES
#undef SUMMED
#undef EXP
#undef LOG
#undef SHARED
#undef ELEMENT
#undef QUERY_BYTES
#undef KEY_BYTES
#undef OPERAND_BYTES
#endif
