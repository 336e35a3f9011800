// Sums, products and counts.
#include "reduction.h"

#define LOAD_WIDE(x) (int64_t)(x)
#define LOAD_NONZERO(x) ((x) != 0)
#define LOAD_NONZERO_HALF(x) (((x) & 0x7fff) != 0)

// 16-bit floats are summed in float32, integers of 32 and 64 bits modulo 2^64. The sum of a block of shorter ones fits
// 32 bits, and the count of a block 16.
FOLD_LEAF(sum_u8, uint8_t, uint32_t, 64, LOAD_SAME, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(sum_i8, int8_t, int32_t, 64, LOAD_SAME, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(sum_i16, int16_t, int32_t, 64, LOAD_SAME, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(sum_u16, uint16_t, uint32_t, 64, LOAD_SAME, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(sum_u32, uint32_t, uint64_t, 32, LOAD_SAME, 0, OP_ADD, FLUSH_WRAP)
FOLD_LEAF(sum_i32, int32_t, uint64_t, 32, LOAD_WIDE, 0, OP_ADD, FLUSH_WRAP)
FOLD_LEAF(sum_i64, int64_t, uint64_t, 32, LOAD_SAME, 0, OP_ADD, FLUSH_WRAP)
SUM_LEAVES(sum_f16, uint16_t, float, 64, LOAD_F16)
SUM_LEAVES(sum_bf16, uint16_t, float, 64, LOAD_BF16)
SUM_LEAVES(sum_f32, float, float, 64, LOAD_SAME)
SUM_LEAVES(sum_f64, double, double, 32, LOAD_SAME)

// NaN does not count in sums of floats.
#define LOAD_KNOWN(x) ((x) == (x) ? (x) : 0)
#define LOAD_KNOWN_F16(x) LOAD_KNOWN(plait_f16_to_f32(x))
#define LOAD_KNOWN_BF16(x) LOAD_KNOWN(plait_bf16_to_f32(x))
SUM_LEAVES(nansum_f16, uint16_t, float, 64, LOAD_KNOWN_F16)
SUM_LEAVES(nansum_bf16, uint16_t, float, 64, LOAD_KNOWN_BF16)
SUM_LEAVES(nansum_f32, float, float, 64, LOAD_KNOWN)
SUM_LEAVES(nansum_f64, double, double, 32, LOAD_KNOWN)

// Products are double: partial products of float32 data rarely overflow there unless the whole product does.
FOLD_LEAF(prod_u8, uint8_t, uint64_t, 32, LOAD_SAME, 1, OP_MUL, FLUSH_IPROD)
FOLD_LEAF(prod_i8, int8_t, uint64_t, 32, LOAD_WIDE, 1, OP_MUL, FLUSH_IPROD)
FOLD_LEAF(prod_i16, int16_t, uint64_t, 32, LOAD_WIDE, 1, OP_MUL, FLUSH_IPROD)
FOLD_LEAF(prod_u16, uint16_t, uint64_t, 32, LOAD_SAME, 1, OP_MUL, FLUSH_IPROD)
FOLD_LEAF(prod_u32, uint32_t, uint64_t, 32, LOAD_SAME, 1, OP_MUL, FLUSH_IPROD)
FOLD_LEAF(prod_i32, int32_t, uint64_t, 32, LOAD_WIDE, 1, OP_MUL, FLUSH_IPROD)
FOLD_LEAF(prod_i64, int64_t, uint64_t, 32, LOAD_SAME, 1, OP_MUL, FLUSH_IPROD)
FOLD_LEAF(prod_f16, uint16_t, double, 32, LOAD_F16, 1, OP_MUL, FLUSH_PROD)
FOLD_LEAF(prod_bf16, uint16_t, double, 32, LOAD_BF16, 1, OP_MUL, FLUSH_PROD)
FOLD_LEAF(prod_f32, float, double, 32, LOAD_SAME, 1, OP_MUL, FLUSH_PROD)
FOLD_LEAF(prod_f64, double, double, 32, LOAD_SAME, 1, OP_MUL, FLUSH_PROD)

FOLD_LEAF(count_u8, uint8_t, uint16_t, 128, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_u16, uint16_t, uint16_t, 128, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_f16, uint16_t, uint16_t, 128, LOAD_NONZERO_HALF, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_i32, int32_t, uint32_t, 64, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_i64, int64_t, uint64_t, 32, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_f32, float, uint32_t, 64, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_f64, double, uint64_t, 32, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)

// Modulo 2^64 the sign does not matter, and zeros of a size are alike.
#define sum_u64_rows sum_i64_rows
#define sum_u64_cols sum_i64_cols
#define prod_u64_rows prod_i64_rows
#define prod_u64_cols prod_i64_cols
#define count_u64_rows count_i64_rows
#define count_u64_cols count_i64_cols
#define count_i8_rows count_u8_rows
#define count_i8_cols count_u8_cols
#define count_i16_rows count_u16_rows
#define count_i16_cols count_u16_cols
#define count_u32_rows count_i32_rows
#define count_u32_cols count_i32_cols
#define count_bf16_rows count_f16_rows
#define count_bf16_cols count_f16_cols

// Integers are added in any order.
#define sum_u8_few NULL
#define sum_i8_few NULL
#define sum_i16_few NULL
#define sum_u16_few NULL
#define sum_i32_few NULL
#define sum_u32_few NULL
#define sum_i64_few NULL
#define sum_u64_few NULL

const struct leaf *plaitk_reduction_sum_leaf(int op, int dtype) {
  static const struct leaf sums[] = {PLAIT_BY_DTYPE(SUM_LEAF, sum)};
  static const struct leaf prods[] = {PLAIT_BY_DTYPE(LEAF, prod)};
  static const struct leaf counts[] = {PLAIT_BY_DTYPE(LEAF, count)};
  static const struct leaf known[] = {SUM_LEAF(nansum_f16), SUM_LEAF(nansum_bf16), SUM_LEAF(nansum_f32),
                                      SUM_LEAF(nansum_f64)};
  switch (op) {
  case REDUCE_NANSUM:
    return plait_is_float(dtype) ? &known[dtype - PLAIT_F16] : NULL;
  case REDUCE_SUM:
  case REDUCE_MEAN:
    return &sums[dtype];
  case REDUCE_PROD:
    return &prods[dtype];
  default:
    return &counts[dtype];
  }
}
