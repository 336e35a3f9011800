// Rounding, remainders and roots.
#ifndef PLAIT_VMATH_ROUND_H
#define PLAIT_VMATH_ROUND_H

#include "base.h"

// The integer part of |x| < 2^23; anything else (already an integer, infinite or NaN) is returned as it is. The sign of a
// zero is kept.
PLAIT_INLINE float plait_vm_truncf(float x) {
  bool fits = plait_vm_absf(x) < 0x1p23f;
  float t = (float)(int32_t)plait_vm_pickf(fits, x, 0.0f);
  return plait_vm_pickf(fits, plait_vm_copysignf(t, x), x);
}

PLAIT_INLINE float plait_vm_floorf(float x) {
  float t = plait_vm_truncf(x);
  return plait_vm_copysignf(t - plait_vm_pickf(t > x, 1.0f, 0.0f), x);
}

PLAIT_INLINE float plait_vm_ceilf(float x) {
  float t = plait_vm_truncf(x);
  return plait_vm_copysignf(t + plait_vm_pickf(t < x, 1.0f, 0.0f), x);
}

// Rounds half to even.
PLAIT_INLINE float plait_vm_roundf(float x) {
  float a = plait_vm_absf(x);
  float t = (a + 0x1p23f) - 0x1p23f;
  return plait_vm_pickf(a < 0x1p23f, plait_vm_copysignf(t, x), x);
}

// Correctly rounded square root.
PLAIT_INLINE float plait_vm_sqrtf(float x) { return sqrtf(x); }

// 1 / sqrt(x), within 2 ulp.
PLAIT_INLINE float plait_vm_rsqrtf(float x) { return 1.0f / sqrtf(x); }

#endif
