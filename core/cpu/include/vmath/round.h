// Rounding, remainders and roots.
#ifndef PLAIT_VMATH_ROUND_H
#define PLAIT_VMATH_ROUND_H

#include "base.h"

// Integers near x: one instruction with AVX or on other processors.
PLAIT_INLINE float plait_vm_truncf(float x) { return __builtin_truncf(x); }
PLAIT_INLINE float plait_vm_floorf(float x) { return __builtin_floorf(x); }
PLAIT_INLINE float plait_vm_ceilf(float x) { return __builtin_ceilf(x); }
PLAIT_INLINE float plait_vm_roundf(float x) { return __builtin_rintf(x); }  // half to even

// Correctly rounded square root.
PLAIT_INLINE float plait_vm_sqrtf(float x) { return sqrtf(x); }

// 1 / sqrt(x), within 2 ulp.
PLAIT_INLINE float plait_vm_rsqrtf(float x) { return 1.0f / sqrtf(x); }

// One step of a long division: r mod y 2^shift, exact for 0 <= r < y 2^(shift + 28).
PLAIT_INLINE double plait_vm_mod_step(double r, double y, double inverse, double up, double down) {
  double q = (r * (inverse * down) + PLAIT_VM_ROUNDER) - PLAIT_VM_ROUNDER;
  r -= q * (y * up);
  return r + plait_vm_pick(r < 0.0, y * up, 0.0);
}

// x - y trunc(x / y), exact for all quotients, with the sign of x. Ten steps of 28 bits cover all pairs of floats.
PLAIT_INLINE float plait_vm_fmodf(float x, float y) {
  double d = plait_vm_abs((double)y), inverse = 1.0 / d, r = plait_vm_abs((double)x);
  r = plait_vm_mod_step(r, d, inverse, 0x1p252, 0x1p-252);
  r = plait_vm_mod_step(r, d, inverse, 0x1p224, 0x1p-224);
  r = plait_vm_mod_step(r, d, inverse, 0x1p196, 0x1p-196);
  r = plait_vm_mod_step(r, d, inverse, 0x1p168, 0x1p-168);
  r = plait_vm_mod_step(r, d, inverse, 0x1p140, 0x1p-140);
  r = plait_vm_mod_step(r, d, inverse, 0x1p112, 0x1p-112);
  r = plait_vm_mod_step(r, d, inverse, 0x1p84, 0x1p-84);
  r = plait_vm_mod_step(r, d, inverse, 0x1p56, 0x1p-56);
  r = plait_vm_mod_step(r, d, inverse, 0x1p28, 0x1p-28);
  r = plait_vm_mod_step(r, d, inverse, 1.0, 1.0);
  float m = plait_vm_copysignf((float)r, x);
  m = plait_vm_pickf((d == PLAIT_VM_INF) & (plait_vm_absf(x) < PLAIT_VM_INFF), x, m);
  return plait_vm_pickf((y == 0.0f) | (plait_vm_absf(x) == PLAIT_VM_INFF), PLAIT_VM_NANF, m);
}

// Whether plait_vm_near_fmodf and its like do not take x and y: quotients from 2^22 on, and numbers that are not finite.
PLAIT_INLINE uint32_t plait_vm_far_quotientf(float x, float y) {
  float d = plait_vm_absf(y);
  return (uint32_t)!((plait_vm_absf(x) < d * 0x1p22f) & (d < PLAIT_VM_INFF));
}

// The same exact result by one step. The quotient may round up to the next integer.
PLAIT_INLINE float plait_vm_near_fmodf(float x, float y) {
  float a = plait_vm_absf(x), d = plait_vm_absf(y);
  double r = (double)a - (double)(float)(int32_t)(a / d) * (double)d;
  float m = (float)r;
  return plait_vm_copysignf(m + plait_vm_pickf(m < 0.0f, d, 0.0f), x);
}

// x - y floor(x / y) from the exact fmod m, rounded once, with the sign of y.
PLAIT_INLINE float plait_vm_remainder_of_modf(float m, float y) {
  bool wrap = (m != 0.0f) & ((m < 0.0f) != (y < 0.0f));
  return m + plait_vm_pickf(wrap, y, -0.0f);
}

PLAIT_INLINE float plait_vm_remainderf(float x, float y) { return plait_vm_remainder_of_modf(plait_vm_fmodf(x, y), y); }

PLAIT_INLINE float plait_vm_near_remainderf(float x, float y) { return plait_vm_remainder_of_modf(plait_vm_near_fmodf(x, y), y); }

// floor(x / y) of the exact quotient, from the exact fmod m. x / 0 is infinite or NaN.
PLAIT_INLINE float plait_vm_floor_divide_of_modf(float x, float y, float m) {
  bool wrap = (m != 0.0f) & ((m < 0.0f) != (y < 0.0f));
  float q = (x - m) / y - plait_vm_pickf(wrap, 1.0f, 0.0f);
  float whole = plait_vm_floorf(q);
  whole += plait_vm_pickf(q - whole > 0.5f, 1.0f, 0.0f);
  whole = plait_vm_pickf(q == 0.0f, plait_vm_copysignf(0.0f, x / y), whole);
  return plait_vm_pickf(y == 0.0f, x / y, whole);
}

PLAIT_INLINE float plait_vm_floor_dividef(float x, float y) {
  return plait_vm_floor_divide_of_modf(x, y, plait_vm_fmodf(x, y));
}

PLAIT_INLINE float plait_vm_near_floor_dividef(float x, float y) {
  return plait_vm_floor_divide_of_modf(x, y, plait_vm_near_fmodf(x, y));
}

#endif
