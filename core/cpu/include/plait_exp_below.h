// The exponential of a number that is not positive, as softmax takes it.
#ifndef PLAIT_EXP_BELOW_H
#define PLAIT_EXP_BELOW_H

#include "plait_vmath.h"

// exp(x) for x <= 88, within 2 ulp, in about half of plait_vm_expf's instructions: results below exp(-87), the smallest
// ones that are no subnormals, become 0. A NaN stays.
PLAIT_INLINE float plait_exp_belowf(float x) {
  float y = x < -87.0f ? -87.0f : x;
  float t = y * 0x1.715476p+0f + PLAIT_VM_ROUNDERF;
  float k = t - PLAIT_VM_ROUNDERF;
  float r = (y - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
  float e = 1.0f + plait_vm_expm1_polyf(r);
  // The low bits of t are the power of two; shifted, they go to the exponent of 1. A product keeps a NaN of any bits.
  float product = e * plait_bits_f32(0x3f800000u + (plait_f32_bits(t) << 23));
  return plait_bits_f32(plait_f32_bits(product) & ~-(uint32_t)(x < -87.0f));
}

#endif
