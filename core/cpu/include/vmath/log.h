// Logarithms.
#ifndef PLAIT_VMATH_LOG_H
#define PLAIT_VMATH_LOG_H

#include "base.h"

// Returns t with log(1 + f) = f - t, for sqrt(1/2) - 1 <= f <= sqrt(2) - 1.
PLAIT_INLINE float plait_vm_log_tailf(float f) {
  float p = 0x1.129548p-4f;
  p = p * f - 0x1.ddb254p-4f;
  p = p * f + 0x1.e704aap-4f;
  p = p * f - 0x1.fc3afap-4f;
  p = p * f + 0x1.233bf6p-3f;
  p = p * f - 0x1.555aacp-3f;
  p = p * f + 0x1.99a45cp-3f;
  p = p * f - 0x1.000016p-2f;
  p = p * f + 0x1.555548p-2f;
  float z = f * f;
  return 0.5f * z - z * f * p;
}

// Writes a positive finite x as (1 + f) 2^e.
PLAIT_INLINE float plait_vm_log_splitf(float x, float *e) {
  uint32_t subnormal = -(uint32_t)(x < 0x1p-126f);
  uint32_t bits = plait_f32_bits(x * plait_vm_pickf(x < 0x1p-126f, 0x1p23f, 1.0f)) - 0x3f3504f3u;
  *e = (float)(((int32_t)bits >> 23) - (int32_t)(subnormal & 23u));
  return plait_bits_f32((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
}

// Replaces y, a logarithm of x, where x is outside (0, inf).
PLAIT_INLINE float plait_vm_log_edgesf(float x, float y) {
  y = plait_vm_pickf(x < PLAIT_VM_INFF, y, x);
  y = plait_vm_pickf(x < 0.0f, PLAIT_VM_NANF, y);
  return plait_vm_pickf(x == 0.0f, -PLAIT_VM_INFF, y);
}

// log(x), within 1 ulp.
PLAIT_INLINE float plait_vm_logf(float x) {
  float e, f = plait_vm_log_splitf(x, &e);
  float y = (f - (plait_vm_log_tailf(f) - e * 0x1.7f7d1cp-20f)) + e * 0x1.62e4p-1f;
  return plait_vm_log_edgesf(x, y);
}

// log(x) of a double, within 1 ulp: with s = f / (2 + f), log(1 + f) is log((1 + s) / (1 - s)), a series in odd powers
// of s.
PLAIT_INLINE double plait_vm_log(double x) {
  uint64_t bits = plait_vm_bits(x * plait_vm_pick(x < 0x1p-1022, 0x1p54, 1.0)) - 0x3fe6a09e667f3bcdu + (UINT64_C(1024) << 52);
  double e = plait_vm_from_bits((bits >> 52) | 0x4330000000000000u) - plait_vm_pick(x < 0x1p-1022, 0x1p52 + 1078.0, 0x1p52 + 1024.0);
  double f = plait_vm_from_bits((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
  double s = f / (2.0 + f), z = s * s;
  double p = 0x1.2f0d5e2c92795p-3;
  p = p * z + 0x1.39a0ddfa994c2p-3;
  p = p * z + 0x1.7466486178ecdp-3;
  p = p * z + 0x1.c71c51d50fa2ap-3;
  p = p * z + 0x1.249249423c734p-2;
  p = p * z + 0x1.999999997f72dp-2;
  p = p * z + 0x1.5555555555594p-1;
  double half = 0.5 * f * f;
  double y = e * 0x1.62e42feep-1 - ((half - (s * (half + z * p) + e * 0x1.a39ef35793c76p-33)) - f);
  y = plait_vm_pick(x < PLAIT_VM_INF, y, x);
  y = plait_vm_pick(x < 0.0, PLAIT_VM_NAN, y);
  return plait_vm_pick(x == 0.0, -PLAIT_VM_INF, y);
}

// log2(x), within 2 ulp; exact for powers of two.
PLAIT_INLINE float plait_vm_log2f(float x) {
  float e, f = plait_vm_log_splitf(x, &e);
  float t = plait_vm_log_tailf(f);
  float y = e + (f + (f * 0x1.c551dap-2f - t * 0x1.715476p+0f));
  return plait_vm_log_edgesf(x, y);
}

// log10(x), within 2 ulp.
PLAIT_INLINE float plait_vm_log10f(float x) {
  float e, f = plait_vm_log_splitf(x, &e);
  float t = plait_vm_log_tailf(f);
  float y = 0.5f * f + ((e * 0x1.3509f8p-18f - f * 0x1.0d213ap-4f) - t * 0x1.bcb7b2p-2f);
  return plait_vm_log_edgesf(x, y + e * 0x1.344p-2f);
}

// log(1 + x) for -1 < x < inf.
PLAIT_INLINE float plait_vm_log1p_finitef(float x) {
  // 1 + x determines the exponent. The fraction comes from x itself, so a small x loses no bits.
  uint32_t bits = plait_f32_bits(1.0f + x) - 0x3f3504f3u;
  int32_t n = (int32_t)bits >> 23;
  float e = (float)n;
  // 2^-n is a product of two factors, since 2^-128 is subnormal.
  int32_t half = -n >> 1;
  float s = plait_vm_pow2if(half), u = plait_vm_pow2if(-n - half);
  float f = x * s * u + (s * u - 1.0f);
  return (f - (plait_vm_log_tailf(f) - e * 0x1.7f7d1cp-20f)) + e * 0x1.62e4p-1f;
}

// log(1 + x) for 0 <= x <= 1.
PLAIT_INLINE float plait_vm_log1p_unitf(float x) {
  bool high = x > 0x1.a8279ap-2f;
  float f = plait_vm_pickf(high, 0.5f * x - 0.5f, x);
  float e = plait_vm_pickf(high, 1.0f, 0.0f);
  return (f - (plait_vm_log_tailf(f) - e * 0x1.7f7d1cp-20f)) + e * 0x1.62e4p-1f;
}

// log(1 + x), within 2 ulp.
PLAIT_INLINE float plait_vm_log1pf(float x) {
  float y = plait_vm_log1p_finitef(x);
  y = plait_vm_pickf(x < PLAIT_VM_INFF, y, x);
  y = plait_vm_pickf(x < -1.0f, PLAIT_VM_NANF, y);
  y = plait_vm_pickf(x == -1.0f, -PLAIT_VM_INFF, y);
  return plait_vm_pickf(x == 0.0f, x, y);
}

#endif
