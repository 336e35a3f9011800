// Exponentials and what is made of them: exp, exp2, expm1, tanh, sigmoid, softplus.
#ifndef PLAIT_VMATH_EXP_H
#define PLAIT_VMATH_EXP_H

#include "base.h"
#include "log.h"

// The polynomials are minimax fits of the relative error, their coefficients rounded one after the other.

// x = n ln 2 + r, |r| <= ln 2 / 2, for |x| < 2^15; n ln2_high is exact.
PLAIT_INLINE float plait_vm_exp_reducef(float x, int32_t *n) {
  float t = x * 0x1.715476p+0f + PLAIT_VM_ROUNDERF;
  *n = (int32_t)(plait_f32_bits(t) - 0x4b400000u);
  float k = t - PLAIT_VM_ROUNDERF;
  return (x - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
}

// exp(r) - 1 for |r| <= ln 2 / 2.
PLAIT_INLINE float plait_vm_expm1_polyf(float r) {
  float q = 0x1.9c5f48p-13f;
  q = q * r + 0x1.6d4caep-10f;
  q = q * r + 0x1.1113acp-7f;
  q = q * r + 0x1.5554eap-5f;
  q = q * r + 0x1.555554p-3f;
  q = q * r + 0.5f;
  return r + r * r * q;
}

// y 2^n for -252 <= n <= 254 and y near 1: overflows to infinity, rounds once when subnormal.
PLAIT_INLINE float plait_vm_scalef(float y, int32_t n) {
  int32_t half = n >> 1;
  return y * plait_vm_pow2if(half) * plait_vm_pow2if(n - half);
}

// x = n ln 2 + r as above, and the bits of 2^n without those of 1: those of 2^(n+k) are *power plus the bits of 2^k.
PLAIT_INLINE float plait_vm_exp_splitf(float x, uint32_t *power) {
  float t = x * 0x1.715476p+0f + PLAIT_VM_ROUNDERF;
  *power = plait_f32_bits(t) << 23;
  float k = t - PLAIT_VM_ROUNDERF;
  return (x - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
}

// exp(x), within 1 ulp. The power is applied as 2^(n+64) 2^-64 for a negative x and as 2^(n-64) 2^64 for others.
PLAIT_INLINE float plait_vm_expf(float x) {
  uint32_t power;
  float y = x > 100.0f ? 100.0f : x;
  y = y < -105.0f ? -105.0f : y;
  float r = plait_vm_exp_splitf(y, &power);
  uint32_t far = 0x5f800000u ^ ((plait_f32_bits(y) >> 1) & 0x40000000u);  // 2^64 or 2^-64
  return (1.0f + plait_vm_expm1_polyf(r)) * plait_bits_f32(power + (0x7f000000u - far)) * plait_bits_f32(far);
}

// exp(x) for x <= 0, within 1 ulp.
PLAIT_INLINE float plait_vm_exp_negativef(float x) {
  uint32_t power;
  float r = plait_vm_exp_splitf(x < -105.0f ? -105.0f : x, &power);
  return (1.0f + plait_vm_expm1_polyf(r)) * plait_bits_f32(power + 0x5f800000u) * 0x1p-64f;
}

// exp(x) for -87 <= x <= 88 (no overflow, no subnormal result), within 1 ulp.
PLAIT_INLINE float plait_vm_exp_normalf(float x) {
  uint32_t power;
  float r = plait_vm_exp_splitf(x, &power);
  return (1.0f + plait_vm_expm1_polyf(r)) * plait_bits_f32(power + 0x3f800000u);
}

// 2^x, within 1.5 ulp.
PLAIT_INLINE float plait_vm_exp2f(float x) {
  x = plait_vm_at_leastf(plait_vm_at_mostf(x, 140.0f), -152.0f);
  float t = x + PLAIT_VM_ROUNDERF;
  int32_t n = (int32_t)(plait_f32_bits(t) - 0x4b400000u);
  float r = x - (t - PLAIT_VM_ROUNDERF);
  float p = 0x1.d8199cp-17f;
  p = p * r + 0x1.444ba2p-13f;
  p = p * r + 0x1.5dae0ap-10f;
  p = p * r + 0x1.3b2a24p-7f;
  p = p * r + 0x1.c6b066p-5f;
  p = p * r + 0x1.ebfbe0p-3f;
  p = p * r + 0x1.62e430p-1f;
  return plait_vm_scalef(1.0f + r * p, n);
}

// exp(x) - 1, within 2 ulp.
PLAIT_INLINE float plait_vm_expm1f(float x) {
  int32_t n;
  float r = plait_vm_exp_reducef(plait_vm_at_leastf(plait_vm_at_mostf(x, 89.0f), -30.0f), &n);
  float p = plait_vm_expm1_polyf(r);
  // Half of 2^n (p + 1) - 1, doubled at the end, since 2^128 is no float.
  float s = plait_vm_pow2if(n - 1);
  float y = (s * p + (s - 0.5f)) * 2.0f;
  // n = 0 is exact this way, subnormal results included.
  y = plait_vm_pickf(n == 0, p, y);
  return plait_vm_copysignf(y, x);
}

// tanh(x), within 2 ulp.
PLAIT_INLINE float plait_vm_tanhf(float x) {
  float a = plait_vm_absf(x);
  a = a > 9.5f ? 9.5f : a;
  float z = a * a;
  float p = 0x1.1a2816p-9f;
  p = p * z - 0x1.0c5ed0p-7f;
  p = p * z + 0x1.63a550p-6f;
  p = p * z - 0x1.b9f188p-5f;
  p = p * z + 0x1.11107ap-3f;
  p = p * z - 0x1.555554p-2f;
  float small = a + a * z * p;
  float large = 1.0f - 2.0f / (plait_vm_exp_normalf(a + a) + 1.0f);
  return plait_vm_copysignf(plait_vm_pickf(a < 0.625f, small, large), x);
}

// 1 / (1 + exp(-x)), within 2.5 ulp, subnormal results included.
PLAIT_INLINE float plait_vm_sigmoidf(float x) {
  float e = plait_vm_exp_negativef(-plait_vm_absf(x));
  return plait_vm_pickf(x < 0.0f, e, 1.0f) / (1.0f + e);
}

// log(1 + exp(x)), within 2 ulp.
PLAIT_INLINE float plait_vm_softplusf(float x) {
  float e = plait_vm_exp_negativef(-plait_vm_absf(x));
  return plait_vm_at_leastf(x, 0.0f) + plait_vm_log1p_unitf(e);
}

// log(1 / (1 + exp(-x))), within 2 ulp.
PLAIT_INLINE float plait_vm_logsigmoidf(float x) {
  return -plait_vm_softplusf(-x);
}

#endif
