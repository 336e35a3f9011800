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
