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

// exp(r) - 1 over r for |r| <= ln 2 / 2, so that exp(r) is r times it plus 1: one term fewer than above, at the price of a
// rounding.
PLAIT_INLINE float plait_vm_exp_polyf(float r) {
  float q = 0x1.6a4eccp-10f;
  q = q * r + 0x1.12399cp-7f;
  q = q * r + 0x1.5558b0p-5f;
  q = q * r + 0x1.555492p-3f;
  q = q * r + 0x1.fffffcp-2f;
  return q * r + 1.0f;
}

// x rounded to n ln 2, as the float n + rounder; the low bits of n are its last bits. Returns the rest. A rounder that has
// an exponent's bias added to it makes these the bits of a power of two, a shift away from their place.
PLAIT_INLINE float plait_vm_exp_splitf(float x, float rounder, float *t) {
  *t = x * 0x1.715476p+0f + rounder;
  float k = *t - rounder;
  return (x - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
}

// y 2^n for y near 1 and t = n + PLAIT_VM_ROUNDERF, where -152 <= n <= 128. Results are rounded once where x < first, below
// which they may be subnormal; where x <= last does not hold, they are infinite or, as x is, NaN.
PLAIT_INLINE float plait_vm_exp_scalef(float y, float t, float x, float first, float last) {
  uint32_t up = x < first ? 64u << 23 : 0;
  float down = x < first ? 0x1p-64f : 1.0f;
  down = x <= last ? down : x;
  return plait_bits_f32(plait_f32_bits(y) + (plait_f32_bits(t) << 23) + up) * down;
}

// exp(x), within 1 ulp.
PLAIT_INLINE float plait_vm_expf(float x) {
  const float last = 0x1.62e42ep+6f;
  float y = plait_vm_not_abovef(plait_vm_not_belowf(x, -105.0f), last);
  float t, r = plait_vm_exp_splitf(y, PLAIT_VM_ROUNDERF, &t);
  return plait_vm_exp_scalef(1.0f + plait_vm_expm1_polyf(r), t, x, -87.0f, last);
}

// exp(x) for x <= 0, within 1 ulp; some number for a NaN.
PLAIT_INLINE float plait_vm_exp_negativef(float x) {
  float t, r = plait_vm_exp_splitf(plait_vm_not_belowf(x, -105.0f), PLAIT_VM_ROUNDERF + 64.0f, &t);
  float y = 1.0f + plait_vm_expm1_polyf(r);
  return plait_bits_f32(plait_f32_bits(y) + (plait_f32_bits(t) << 23)) * 0x1p-64f;
}

// exp(x) for -87 <= x <= 88 (no overflow, no subnormal result), within 1 ulp.
PLAIT_INLINE float plait_vm_exp_normalf(float x) {
  float t, r = plait_vm_exp_splitf(x, PLAIT_VM_ROUNDERF + 127.0f, &t);
  return (1.0f + plait_vm_expm1_polyf(r)) * plait_bits_f32(plait_f32_bits(t) << 23);
}

// exp(x) of a double, within 0.8 ulp: as above with eleven terms, and 1 + r as the sum of two doubles.
PLAIT_INLINE double plait_vm_exp(double x) {
  const double last = 0x1.62e42fefa39efp+9;
  double y = plait_vm_at_most(plait_vm_at_least(x, -746.0), last);
  double t = y * 0x1.71547652b82fep+0 + PLAIT_VM_ROUNDER;
  double k = t - PLAIT_VM_ROUNDER;
  double high = y - k * 0x1.62e42feep-1, low = k * 0x1.a39ef35793c76p-33, r = high - low;
  double p = 0x1.af6ea400fd05cp-26;
  p = p * r + 0x1.28a1391f35ce3p-22;
  p = p * r + 0x1.71ddee5f22b42p-19;
  p = p * r + 0x1.a019a964f5162p-16;
  p = p * r + 0x1.a01a01b44bb2bp-13;
  p = p * r + 0x1.6c16c17d5da7bp-10;
  p = p * r + 0x1.111111110e9eep-7;
  p = p * r + 0x1.5555555552ff8p-5;
  p = p * r + 0x1.555555555555cp-3;
  p = p * r + 0.5;
  double one = 1.0 + high, rest = high - (one - 1.0);
  double e = one + (rest + (r * r * p - low));
  uint64_t up = -(uint64_t)(x < -708.0) & (UINT64_C(64) << 52);
  double down = plait_vm_pick(x <= last, plait_vm_pick(x < -708.0, 0x1p-64, 1.0), x);
  return plait_vm_from_bits(plait_vm_bits(e) + (plait_vm_bits(t) << 52) + up) * down;
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
  // Half of 2^n (p + 1) - 1, doubled at the end, since 2^128 is no float.
  float s = plait_vm_pow2if(n - 1);
  float y = (s * p + (s - 0.5f)) * 2.0f;
  // n = 0 is exact this way, subnormal results included.
  y = plait_vm_pickf(n == 0, p, y);
  return plait_vm_copysignf(y, x);
}

// tanh(x), within 1.6 ulp: a polynomial, or 1 - 2 / (exp(2x) + 1), whose exponential is 2^n 2^f with f = 2x / ln 2 - n. From
// tanh(x) = 1/2 on, what the exponential and the quotient are rounded by is less than the result's ulp, and from 9.5 on the result
// is 1. A NaN takes the polynomial's side. Most of the time is the exponential's, whose terms are paired to wait less.
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
  float r = a >= 0.5495f ? large : small;
  return plait_bits_f32(plait_f32_bits(r) | (plait_f32_bits(x) & 0x80000000u)); // r is not negative
}

// 1 / (1 + exp(-x)), within 2.5 ulp, subnormal results included: both terms are taken 2^-24 times, so that the exponential
// is finite wherever the result is not 0.
PLAIT_INLINE float plait_vm_sigmoidf(float x) {
  float y = plait_vm_not_abovef(plait_vm_not_belowf(x, -104.0f), 70.0f);
  float t, r = plait_vm_exp_splitf(-y, PLAIT_VM_ROUNDERF - 24.0f, &t);
  float e = plait_bits_f32(plait_f32_bits(1.0f + plait_vm_exp_polyf(r) * r) + (plait_f32_bits(t) << 23));
  return (x != x ? x : 0x1p-24f) / (0x1p-24f + e);
}

// The same of a double, within 2.5 ulp, subnormal results included.
PLAIT_INLINE double plait_vm_sigmoid(double x) {
  double e = plait_vm_exp(-plait_vm_abs(x));
  return plait_vm_pick(x < 0.0, e, 1.0) / (1.0 + e);
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
