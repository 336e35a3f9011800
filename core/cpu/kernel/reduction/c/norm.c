// Sums of |x|^p, and maximum and minimum of |x|, of floats.
#include "reduction.h"

#define ABS_F16(x) fabsf(plait_f16_to_f32(x))
#define ABS_BF16(x) fabsf(plait_bf16_to_f32(x))
#define ABS_F32(x) fabsf(x)
#define ABS_F64(x) fabs(x)

#define SQUARE_F16(x) (plait_f16_to_f32(x) * plait_f16_to_f32(x))
#define SQUARE_BF16(x) (plait_bf16_to_f32(x) * plait_bf16_to_f32(x))
#define SQUARE(x) ((x) * (x))

#define POW_F16(x) powf(ABS_F16(x), (float)param)
#define POW_BF16(x) powf(ABS_BF16(x), (float)param)
#define POW_F32(x) powf(ABS_F32(x), (float)param)
#define POW_F64(x) pow(ABS_F64(x), param)

#define FLUSH_ABSMAX_F16(s, k, v) FLUSH_FMAX(s, k, key_value_absmax_f16(v))
#define FLUSH_ABSMAX_BF16(s, k, v) FLUSH_FMAX(s, k, key_value_absmax_bf16(v))
#define FLUSH_ABSMAX_F32(s, k, v) FLUSH_FMAX(s, k, key_value_absmax_f32(v))
#define FLUSH_ABSMAX_F64(s, k, v) FLUSH_FMAX(s, k, key_value_absmax_f64(v))
#define FLUSH_ABSMIN_F16(s, k, v) FLUSH_FMIN(s, k, key_value_absmin_f16(v))
#define FLUSH_ABSMIN_BF16(s, k, v) FLUSH_FMIN(s, k, key_value_absmin_bf16(v))
#define FLUSH_ABSMIN_F32(s, k, v) FLUSH_FMIN(s, k, key_value_absmin_f32(v))
#define FLUSH_ABSMIN_F64(s, k, v) FLUSH_FMIN(s, k, key_value_absmin_f64(v))

#define NORM_LEAVES(SUFFIX, T, C, L, ABS, SQR, POW)              \
  SUM_LEAVES(abs_##SUFFIX, T, C, L, ABS)                         \
  SUM_LEAVES(square_##SUFFIX, T, C, L, SQR)                      \
  SUM_LEAVES(pow_##SUFFIX, T, C, L, POW)

NORM_LEAVES(f16, uint16_t, float, 64, ABS_F16, SQUARE_F16, POW_F16)
NORM_LEAVES(bf16, uint16_t, float, 64, ABS_BF16, SQUARE_BF16, POW_BF16)
NORM_LEAVES(f32, float, float, 64, ABS_F32, SQUARE, POW_F32)
NORM_LEAVES(f64, double, double, 32, ABS_F64, SQUARE, POW_F64)

FOLD_LEAF(absmax_f16, uint16_t, uint16_t, 128, key_absmax_f16, 0, OP_MAX, FLUSH_ABSMAX_F16)
FOLD_LEAF(absmax_bf16, uint16_t, uint16_t, 128, key_absmax_bf16, 0, OP_MAX, FLUSH_ABSMAX_BF16)
FOLD_LEAF(absmax_f32, uint32_t, uint32_t, 64, key_absmax_f32, 0, OP_MAX, FLUSH_ABSMAX_F32)
FOLD_LEAF(absmax_f64, uint64_t, uint64_t, 32, key_absmax_f64, 0, OP_MAX, FLUSH_ABSMAX_F64)
FOLD_LEAF(absmin_f16, uint16_t, uint16_t, 128, key_absmin_f16, 0, OP_MAX, FLUSH_ABSMIN_F16)
FOLD_LEAF(absmin_bf16, uint16_t, uint16_t, 128, key_absmin_bf16, 0, OP_MAX, FLUSH_ABSMIN_BF16)
FOLD_LEAF(absmin_f32, uint32_t, uint32_t, 64, key_absmin_f32, 0, OP_MAX, FLUSH_ABSMIN_F32)
FOLD_LEAF(absmin_f64, uint64_t, uint64_t, 32, key_absmin_f64, 0, OP_MAX, FLUSH_ABSMIN_F64)

#define LEAVES(LEAF, name) {LEAF(name##_f16), LEAF(name##_bf16), LEAF(name##_f32), LEAF(name##_f64)}

const struct leaf *plaitk_reduction_norm_leaf(int op, int dtype) {
  static const struct leaf abs1[] = LEAVES(SUM_LEAF, abs), squares[] = LEAVES(SUM_LEAF, square), pows[] = LEAVES(SUM_LEAF, pow),
                           maxima[] = LEAVES(LEAF, absmax), minima[] = LEAVES(LEAF, absmin);
  int i = dtype - PLAIT_F16;
  if (i < 0) return NULL;
  switch (op) {
  case REDUCE_NORM1:
    return &abs1[i];
  case REDUCE_NORM2:
    return &squares[i];
  case REDUCE_NORMP:
    return &pows[i];
  case REDUCE_NORMINF:
    return &maxima[i];
  default:
    return &minima[i];
  }
}
