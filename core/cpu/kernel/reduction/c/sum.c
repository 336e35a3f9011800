// Sums, products and counts.
#include "reduction.h"

#define LOAD_I32(x) (int64_t)(x)
#define LOAD_NONZERO(x) ((x) != 0)
#define LOAD_NONZERO_HALF(x) (((x) & 0x7fff) != 0)

// 16-bit floats are summed in float32, integers of 32 and 64 bits modulo 2^64. The sum of a block of bytes fits 32
// bits, and the count of a block 16.
FOLD_LEAF(sum_u8, uint8_t, uint32_t, 64, LOAD_SAME, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(sum_i32, int32_t, uint64_t, 32, LOAD_I32, 0, OP_ADD, FLUSH_WRAP)
FOLD_LEAF(sum_i64, int64_t, uint64_t, 32, LOAD_SAME, 0, OP_ADD, FLUSH_WRAP)
FOLD_LEAF(sum_f16, uint16_t, float, 64, LOAD_F16, 0, OP_ADD, FLUSH_SUM)
FOLD_LEAF(sum_bf16, uint16_t, float, 64, LOAD_BF16, 0, OP_ADD, FLUSH_SUM)
FOLD_LEAF(sum_f32, float, float, 64, LOAD_SAME, 0, OP_ADD, FLUSH_SUM)
FOLD_LEAF(sum_f64, double, double, 32, LOAD_SAME, 0, OP_ADD, FLUSH_SUM)

// Products are double: partial products of float32 data rarely overflow there unless the whole product does.
FOLD_LEAF(prod_u8, uint8_t, uint64_t, 32, LOAD_SAME, 1, OP_MUL, FLUSH_IPROD)
FOLD_LEAF(prod_i32, int32_t, uint64_t, 32, LOAD_I32, 1, OP_MUL, FLUSH_IPROD)
FOLD_LEAF(prod_i64, int64_t, uint64_t, 32, LOAD_SAME, 1, OP_MUL, FLUSH_IPROD)
FOLD_LEAF(prod_f16, uint16_t, double, 32, LOAD_F16, 1, OP_MUL, FLUSH_PROD)
FOLD_LEAF(prod_bf16, uint16_t, double, 32, LOAD_BF16, 1, OP_MUL, FLUSH_PROD)
FOLD_LEAF(prod_f32, float, double, 32, LOAD_SAME, 1, OP_MUL, FLUSH_PROD)
FOLD_LEAF(prod_f64, double, double, 32, LOAD_SAME, 1, OP_MUL, FLUSH_PROD)

FOLD_LEAF(count_8, uint8_t, uint16_t, 128, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_half, uint16_t, uint16_t, 128, LOAD_NONZERO_HALF, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_32, int32_t, uint32_t, 64, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_64, int64_t, uint64_t, 32, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_f32, float, uint32_t, 64, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)
FOLD_LEAF(count_f64, double, uint64_t, 32, LOAD_NONZERO, 0, OP_ADD, FLUSH_COUNT)

const struct leaf *plaitk_reduction_sum_leaf(int op, int dtype) {
  static const struct leaf sums[] = {LEAF(sum_u8),  LEAF(sum_u8),   LEAF(sum_i32), LEAF(sum_i64),
                                     LEAF(sum_f16), LEAF(sum_bf16), LEAF(sum_f32), LEAF(sum_f64)};
  static const struct leaf prods[] = {LEAF(prod_u8),  LEAF(prod_u8),   LEAF(prod_i32), LEAF(prod_i64),
                                      LEAF(prod_f16), LEAF(prod_bf16), LEAF(prod_f32), LEAF(prod_f64)};
  static const struct leaf counts[] = {LEAF(count_8),    LEAF(count_8),    LEAF(count_32),  LEAF(count_64),
                                       LEAF(count_half), LEAF(count_half), LEAF(count_f32), LEAF(count_f64)};
  switch (op) {
  case REDUCE_SUM:
  case REDUCE_MEAN:
    return &sums[dtype];
  case REDUCE_PROD:
    return &prods[dtype];
  default:
    return &counts[dtype];
  }
}
