// Order-preserving unsigned keys of floats.
//
// Maximum and minimum compare keys, not floats: integer lanes need no second comparison for NaN, and 16-bit floats need
// no conversion. Key 0 is the identity: -inf for maximum, +inf for minimum, 0 and +inf for those of |x|. NaNs of either
// sign have the largest keys. +0 is above -0.
#ifndef PLAITK_REDUCE_KEYS_H
#define PLAITK_REDUCE_KEYS_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_vmath.h"

// F: the dtype. U, S: unsigned and signed integers of its size. INF: the bits of infinity. VALUE: converts bits to a
// number.
#define FLOAT_KEYS(F, U, S, INF, C, VALUE)                                                       \
  /* As signed integers these are in the order of the floats; it is its own inverse. */          \
  PLAIT_INLINE U key_order_##F(U u) { return (U)(u ^ ((U)((S)u >> (8 * sizeof(U) - 1)) >> 1)); } \
  PLAIT_INLINE U key_max_##F(U u) { return (U)(key_order_##F(u) + (INF) + 1); }                  \
  PLAIT_INLINE U key_min_##F(U u) { return (U)((INF)-key_order_##F(u)); }                        \
  PLAIT_INLINE U key_absmax_##F(U u) { return (U)(u & ((U) ~(U)0 >> 1)); }                       \
  PLAIT_INLINE U key_absmin_##F(U u) { return (U)((INF)-key_absmax_##F(u)); }                    \
  PLAIT_INLINE C key_value_max_##F(U k) { return VALUE(key_order_##F((U)(k - (INF)-1))); }       \
  PLAIT_INLINE C key_value_min_##F(U k) { return VALUE(key_order_##F((U)((INF)-k))); }           \
  PLAIT_INLINE C key_value_absmax_##F(U k) { return VALUE(k); }                                  \
  PLAIT_INLINE C key_value_absmin_##F(U k) { return VALUE((U)((INF)-k)); }

FLOAT_KEYS(f16, uint16_t, int16_t, 0x7c00u, float, plait_f16_to_f32)
FLOAT_KEYS(bf16, uint16_t, int16_t, 0x7f80u, float, plait_bf16_to_f32)
FLOAT_KEYS(f32, uint32_t, int32_t, 0x7f800000u, float, plait_bits_f32)
FLOAT_KEYS(f64, uint64_t, int64_t, 0x7ff0000000000000u, double, plait_vm_from_bits)

#endif
