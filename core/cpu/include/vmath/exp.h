// Exponentials and functions made of them: exp, exp2, expm1, tanh, sigmoid, softplus.
#ifndef PLAIT_VMATH_EXP_H
#define PLAIT_VMATH_EXP_H

#include "base.h"
#include "log.h"

// The polynomials are minimax fits of the relative error. Each coefficient was rounded before the next was fitted.

// Writes x as n ln 2 + r with |r| <= ln 2 / 2, for |x| < 2^15. n ln2_high is exact.
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

// (exp(r) - 1) / r for |r| <= ln 2 / 2, so that exp(r) is r times it plus 1. It has one term fewer than above and one
// more rounding.
PLAIT_INLINE float plait_vm_exp_polyf(float r) {
  float q = 0x1.6a4eccp-10f;
  q = q * r + 0x1.12399cp-7f;
  q = q * r + 0x1.5558b0p-5f;
  q = q * r + 0x1.555492p-3f;
  q = q * r + 0x1.fffffcp-2f;
  return q * r + 1.0f;
}

// Subtracts from x its nearest multiple n ln 2 and returns the rest. *t is the float n + rounder, whose low bits are
// those of n. If rounder includes the exponent's bias, they are the exponent bits of 2^n and only need a shift.
PLAIT_INLINE float plait_vm_exp_splitf(float x, float rounder, float *t) {
  *t = x * 0x1.715476p+0f + rounder;
  float k = *t - rounder;
  return (x - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
}

// y 2^n for y near 1 and t = n + PLAIT_VM_ROUNDERF, where -152 <= n <= 128. Where x < first, a result may be subnormal,
// and is rounded once. Where x <= last is false, the result is infinite, or NaN if x is.
PLAIT_INLINE float plait_vm_exp_scalef(float y, float t, float x, float first, float last) {
  uint32_t up = x < first ? 64u << 23 : 0;
  float down = x < first ? 0x1p-64f : 1.0f;
  down = x <= last ? down : x;
  return plait_bits_f32(plait_f32_bits(y) + (plait_f32_bits(t) << 23) + up) * down;
}

// Whether plait_vm_near_expf does not take x.
PLAIT_INLINE uint32_t plait_vm_far_expf(float x) { return (plait_f32_bits(x) & 0x7fffffffu) >= 0x42ae0000u; }

// exp(x) for -87 <= x <= 88 (no overflow, no subnormal result), within 1 ulp. The result for NaN is unspecified.
PLAIT_INLINE float plait_vm_near_expf(float x) {
  float t, r = plait_vm_exp_splitf(x, PLAIT_VM_ROUNDERF, &t);
  return plait_bits_f32(plait_f32_bits(1.0f + plait_vm_expm1_polyf(r)) + (plait_f32_bits(t) << 23));
}

// exp(x), within 1 ulp.
PLAIT_INLINE float plait_vm_expf(float x) {
  const float last = 0x1.62e42ep+6f;
  float y = plait_vm_not_abovef(plait_vm_not_belowf(x, -105.0f), last);
  float t, r = plait_vm_exp_splitf(y, PLAIT_VM_ROUNDERF, &t);
  return plait_vm_exp_scalef(1.0f + plait_vm_expm1_polyf(r), t, x, -87.0f, last);
}

// exp(x) for x <= 0, within 1 ulp. The result for NaN is unspecified.
PLAIT_INLINE float plait_vm_exp_negativef(float x) {
  float t, r = plait_vm_exp_splitf(plait_vm_not_belowf(x, -105.0f), PLAIT_VM_ROUNDERF + 64.0f, &t);
  return plait_bits_f32(plait_f32_bits(1.0f + plait_vm_expm1_polyf(r)) + (plait_f32_bits(t) << 23)) * 0x1p-64f;
}

// 2^x, within 1.5 ulp.
PLAIT_INLINE float plait_vm_exp2f(float x) {
  const float last = 0x1.fffffep+6f;
  float y = plait_vm_not_abovef(plait_vm_not_belowf(x, -151.0f), last);
  float t = y + PLAIT_VM_ROUNDERF;
  float r = y - (t - PLAIT_VM_ROUNDERF);
  float p = 0x1.d8199cp-17f;
  p = p * r + 0x1.444ba2p-13f;
  p = p * r + 0x1.5dae0ap-10f;
  p = p * r + 0x1.3b2a24p-7f;
  p = p * r + 0x1.c6b066p-5f;
  p = p * r + 0x1.ebfbe0p-3f;
  p = p * r + 0x1.62e430p-1f;
  return plait_vm_exp_scalef(1.0f + r * p, t, x, -125.0f, last);
}

// exp(x) - 1, within 2 ulp.
PLAIT_INLINE float plait_vm_expm1f(float x) {
  int32_t n;
  float r = plait_vm_exp_reducef(plait_vm_at_leastf(plait_vm_at_mostf(x, 89.0f), -30.0f), &n);
  float p = plait_vm_expm1_polyf(r);
  // Compute half of 2^n (p + 1) - 1 and double it at the end, since 2^128 is not a float.
  float s = plait_vm_pow2if(n - 1);
  float y = (s * p + (s - 0.5f)) * 2.0f;
  // This is exact for n = 0, also for subnormal results.
  y = plait_vm_pickf(n == 0, p, y);
  return plait_vm_copysignf(y, x);
}

// tanh(x), within 1.6 ulp: a polynomial for small |x|, else 1 - 2 / (exp(2x) + 1), with exp(2x) as 2^n 2^f and f = 2x /
// ln 2 - n. From tanh(x) = 1/2 on, the rounding errors of the exponential and the quotient are below the result's ulp.
// From 9.5 on the result is 1. NaN takes the polynomial. The exponential takes most of the time; pairing its terms
// shortens its dependency chain.
PLAIT_INLINE float plait_vm_tanhf(float x) {
  float a = plait_vm_absf(x), z = a * a;
  float p = 0x1.0d7a00p-6f;
  p = p * z - 0x1.af877ap-5f;
  p = p * z + 0x1.10cf5ep-3f;
  p = p * z - 0x1.555454p-2f;
  float small = a + a * z * p;
  float y = plait_vm_not_abovef(a, 9.5f);
  float t = y * 0x1.715476p+1f + (PLAIT_VM_ROUNDERF + 127.0f);
  float f = y * 0x1.715476p+1f - (t - (PLAIT_VM_ROUNDERF + 127.0f));
  float s = plait_bits_f32(plait_f32_bits(t) << 23);
  // (2^f - 1) / f for |f| <= 1/2
  float u = 0x1.41fbbcp-13f * f + 0x1.5f3e54p-10f, v = 0x1.3b2d4cp-7f * f + 0x1.c6aee8p-5f;
  float w = 0x1.ebfbdcp-3f * f + 0x1.62e430p-1f, f2 = f * f;
  float g = (u * f2 + v) * f2 + w;
  float large = 1.0f - 2.0f / (g * (s * f) + (s + 1.0f));
  float r = plait_vm_pickf(a >= 0.5495f, large, small);
  return plait_bits_f32(plait_f32_bits(r) | (plait_f32_bits(x) & 0x80000000u)); // r is not negative
}

// 1 / (1 + exp(-x)), within 2.5 ulp, also for subnormal results. Both terms are scaled by 2^-24, so that the
// exponential is finite wherever the result is not 0.
PLAIT_INLINE float plait_vm_sigmoidf(float x) {
  float y = plait_vm_not_abovef(plait_vm_not_belowf(x, -104.0f), 70.0f);
  float t, r = plait_vm_exp_splitf(-y, PLAIT_VM_ROUNDERF - 24.0f, &t);
  float e = plait_bits_f32(plait_f32_bits(1.0f + plait_vm_exp_polyf(r) * r) + (plait_f32_bits(t) << 23));
  return (x != x ? x : 0x1p-24f) / (0x1p-24f + e);
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
