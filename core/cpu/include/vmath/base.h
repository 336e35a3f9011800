// Building blocks of the vector maths functions.
#ifndef PLAIT_VMATH_BASE_H
#define PLAIT_VMATH_BASE_H

#include "../plait_kernel.h"
#include <math.h>

// Square roots do not set errno here. Otherwise the compiler keeps a branch to libm and the loop stays scalar.
float sqrtf(float) __attribute__((const));
double sqrt(double) __attribute__((const));

#define PLAIT_VM_INFF __builtin_inff()
#define PLAIT_VM_NANF __builtin_nanf("")
#define PLAIT_VM_NAN __builtin_nan("")
#define PLAIT_VM_INF __builtin_inf()

PLAIT_INLINE uint64_t plait_vm_bits(double x) {
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

PLAIT_INLINE double plait_vm_from_bits(uint64_t u) {
  double x;
  memcpy(&x, &u, sizeof x);
  return x;
}

// Returns a where c is true and b elsewhere. It uses masks: for a conditional expression the compiler may put the
// arithmetic of one arm behind a branch, and then the loop is not vectorised.
PLAIT_INLINE float plait_vm_pickf(bool c, float a, float b) {
  uint32_t m = -(uint32_t)c;
  return plait_bits_f32((plait_f32_bits(a) & m) | (plait_f32_bits(b) & ~m));
}

PLAIT_INLINE double plait_vm_pick(bool c, double a, double b) {
  uint64_t m = -(uint64_t)c;
  return plait_vm_from_bits((plait_vm_bits(a) & m) | (plait_vm_bits(b) & ~m));
}

PLAIT_INLINE float plait_vm_absf(float x) { return plait_bits_f32(plait_f32_bits(x) & 0x7fffffffu); }

PLAIT_INLINE float plait_vm_copysignf(float x, float sign) {
  return plait_bits_f32((plait_f32_bits(x) & 0x7fffffffu) | (plait_f32_bits(sign) & 0x80000000u));
}

PLAIT_INLINE double plait_vm_abs(double x) { return plait_vm_from_bits(plait_vm_bits(x) & INT64_MAX); }

PLAIT_INLINE double plait_vm_copysign(double x, double sign) {
  return plait_vm_from_bits((plait_vm_bits(x) & INT64_MAX) | (plait_vm_bits(sign) & (uint64_t)INT64_MIN));
}

// The minimum or maximum of x and a bound, one instruction each. NaN stays NaN.
PLAIT_INLINE float plait_vm_at_mostf(float x, float bound) { return bound < x ? bound : x; }
PLAIT_INLINE float plait_vm_at_leastf(float x, float bound) { return bound > x ? bound : x; }
PLAIT_INLINE double plait_vm_at_most(double x, double bound) { return bound < x ? bound : x; }
PLAIT_INLINE double plait_vm_at_least(double x, double bound) { return bound > x ? bound : x; }

// The number in [low, high] nearest to x.
PLAIT_INLINE double plait_vm_limited(double x, double low, double high) {
  return plait_vm_pick(x < low, low, plait_vm_pick(x > high, high, x));
}

// a b + c, rounded once. It is one instruction in loops for AVX2, AVX-512 and ARM, and a call of libc in others.
PLAIT_INLINE float plait_vm_fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// The same as one integer instruction: not_below for a negative bound, not_above for a positive one. NaN may become the
// bound.
PLAIT_INLINE float plait_vm_not_belowf(float x, float bound) {
  uint32_t u = plait_f32_bits(x), b = plait_f32_bits(bound);
  return plait_bits_f32(u < b ? u : b);
}
PLAIT_INLINE float plait_vm_not_abovef(float x, float bound) {
  int32_t u = (int32_t)plait_f32_bits(x), b = (int32_t)plait_f32_bits(bound);
  return plait_bits_f32((uint32_t)(u < b ? u : b));
}

// Adding this constant rounds |x| < 2^22 (2^51) to an integer. The low bits of the sum are the integer's low bits.
#define PLAIT_VM_ROUNDERF 0x1.8p23f
#define PLAIT_VM_ROUNDER 0x1.8p52

// 2^n for -126 <= n <= 127 (-1022 <= n <= 1023).
PLAIT_INLINE float plait_vm_pow2if(int32_t n) { return plait_bits_f32((uint32_t)(n + 127) << 23); }
PLAIT_INLINE double plait_vm_pow2i(int64_t n) { return plait_vm_from_bits((uint64_t)(n + 1023) << 52); }

#endif
