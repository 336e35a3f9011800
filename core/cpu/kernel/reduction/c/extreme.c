// Maximum and minimum. NaN wins over everything.
#include "reduction.h"

#define FLUSH_MAX_F16(s, k, v) FLUSH_FMAX(s, k, key_value_max_f16(v))
#define FLUSH_MAX_BF16(s, k, v) FLUSH_FMAX(s, k, key_value_max_bf16(v))
#define FLUSH_MAX_F32(s, k, v) FLUSH_FMAX(s, k, key_value_max_f32(v))
#define FLUSH_MAX_F64(s, k, v) FLUSH_FMAX(s, k, key_value_max_f64(v))
#define FLUSH_MIN_F16(s, k, v) FLUSH_FMIN(s, k, key_value_min_f16(v))
#define FLUSH_MIN_BF16(s, k, v) FLUSH_FMIN(s, k, key_value_min_bf16(v))
#define FLUSH_MIN_F32(s, k, v) FLUSH_FMIN(s, k, key_value_min_f32(v))
#define FLUSH_MIN_F64(s, k, v) FLUSH_FMIN(s, k, key_value_min_f64(v))

FOLD_LEAF(max_u8, uint8_t, uint8_t, 256, LOAD_SAME, 0, OP_MAX, FLUSH_MAX)
FOLD_LEAF(max_i8, int8_t, int8_t, 256, LOAD_SAME, INT8_MIN, OP_MAX, FLUSH_MAX)
FOLD_LEAF(max_i16, int16_t, int16_t, 128, LOAD_SAME, INT16_MIN, OP_MAX, FLUSH_MAX)
FOLD_LEAF(max_u16, uint16_t, uint16_t, 128, LOAD_SAME, 0, OP_MAX, FLUSH_MAX)
FOLD_LEAF(max_u32, uint32_t, uint32_t, 64, LOAD_SAME, 0, OP_MAX, FLUSH_MAX)
FOLD_LEAF(max_u64, uint64_t, int64_t, 32, PLAIT_ORDERED, INT64_MIN, OP_MAX, FLUSH_MAX)
FOLD_LEAF(max_i32, int32_t, int32_t, 64, LOAD_SAME, INT32_MIN, OP_MAX, FLUSH_MAX)
FOLD_LEAF(max_i64, int64_t, int64_t, 32, LOAD_SAME, INT64_MIN, OP_MAX, FLUSH_MAX)
FOLD_LEAF(max_f16, uint16_t, uint16_t, 128, key_max_f16, 0, OP_MAX, FLUSH_MAX_F16)
FOLD_LEAF(max_bf16, uint16_t, uint16_t, 128, key_max_bf16, 0, OP_MAX, FLUSH_MAX_BF16)
FOLD_LEAF(max_f32, uint32_t, uint32_t, 64, key_max_f32, 0, OP_MAX, FLUSH_MAX_F32)
FOLD_LEAF(max_f64, uint64_t, uint64_t, 32, key_max_f64, 0, OP_MAX, FLUSH_MAX_F64)

FOLD_LEAF(min_u8, uint8_t, uint8_t, 256, LOAD_SAME, UINT8_MAX, OP_MIN, FLUSH_MIN)
FOLD_LEAF(min_i8, int8_t, int8_t, 256, LOAD_SAME, INT8_MAX, OP_MIN, FLUSH_MIN)
FOLD_LEAF(min_i16, int16_t, int16_t, 128, LOAD_SAME, INT16_MAX, OP_MIN, FLUSH_MIN)
FOLD_LEAF(min_u16, uint16_t, uint16_t, 128, LOAD_SAME, UINT16_MAX, OP_MIN, FLUSH_MIN)
FOLD_LEAF(min_u32, uint32_t, uint32_t, 64, LOAD_SAME, UINT32_MAX, OP_MIN, FLUSH_MIN)
FOLD_LEAF(min_u64, uint64_t, int64_t, 32, PLAIT_ORDERED, INT64_MAX, OP_MIN, FLUSH_MIN)
FOLD_LEAF(min_i32, int32_t, int32_t, 64, LOAD_SAME, INT32_MAX, OP_MIN, FLUSH_MIN)
FOLD_LEAF(min_i64, int64_t, int64_t, 32, LOAD_SAME, INT64_MAX, OP_MIN, FLUSH_MIN)
FOLD_LEAF(min_f16, uint16_t, uint16_t, 128, key_min_f16, 0, OP_MAX, FLUSH_MIN_F16)
FOLD_LEAF(min_bf16, uint16_t, uint16_t, 128, key_min_bf16, 0, OP_MAX, FLUSH_MIN_BF16)
FOLD_LEAF(min_f32, uint32_t, uint32_t, 64, key_min_f32, 0, OP_MAX, FLUSH_MIN_F32)
FOLD_LEAF(min_f64, uint64_t, uint64_t, 32, key_min_f64, 0, OP_MAX, FLUSH_MIN_F64)

const struct leaf *plaitk_reduction_extreme_leaf(int op, int dtype) {
  static const struct leaf maxima[] = {PLAIT_BY_DTYPE(LEAF, max)};
  static const struct leaf minima[] = {PLAIT_BY_DTYPE(LEAF, min)};
  return op == REDUCE_MAX ? &maxima[dtype] : &minima[dtype];
}
