// Float functions that are less frequent compute in double: cancellation does no harm, and errors are near half an ulp.
#ifndef PLAIT_VMATH_WIDE_H
#define PLAIT_VMATH_WIDE_H

#include "base.h"

// log(1 + g) for sqrt(1/2) <= 1 + g <= sqrt(2), to 2^-52 of the result: with z = g / (2 + g), a series in odd powers of z.
PLAIT_INLINE double plait_vm_wide_log_near(double g) {
  double z = g / (2.0 + g), t = z * z;
  double p = 0x1.2ef0790cab289p-3;
  p = p * t + 0x1.39a3f82c715b2p-3;
  p = p * t + 0x1.7466266acca5dp-3;
  p = p * t + 0x1.c71c528d49b4cp-3;
  p = p * t + 0x1.2492494137789p-2;
  p = p * t + 0x1.9999999980d5cp-2;
  p = p * t + 0x1.555555555558fp-1;
  return 2.0 * z + z * t * p;
}

// log(1 + f) for f > -1, where 1 + f is a normal number, likewise.
PLAIT_INLINE double plait_vm_wide_log1p(double f) {
  // 1 + f is (1 + g) 2^e with g near 0. g comes from f itself, so a small f loses no bits.
  uint64_t bits = plait_vm_bits(1.0 + f) - 0x3fe6a09e667f3bcdu + (UINT64_C(1024) << 52);
  uint64_t biased = bits >> 52;
  double e = plait_vm_from_bits(biased | 0x4330000000000000u) - (0x1p52 + 1024.0);
  double scale = plait_vm_from_bits((2047u - biased) << 52);
  return e * 0x1.62e42fefa39efp-1 + plait_vm_wide_log_near(f * scale + (scale - 1.0));
}

// log(x) for positive normal x.
PLAIT_INLINE double plait_vm_wide_log(double x) {
  uint64_t bits = plait_vm_bits(x) - 0x3fe6a09e667f3bcdu + (UINT64_C(1024) << 52);
  double e = plait_vm_from_bits((bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1024.0);
  double m = plait_vm_from_bits((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
  return e * 0x1.62e42fefa39efp-1 + plait_vm_wide_log_near(m - 1.0);
}

// exp(x) for |x| < 700, to 2^-44 of the result.
PLAIT_INLINE double plait_vm_wide_exp(double x) {
  double t = x * 0x1.71547652b82fep+0 + PLAIT_VM_ROUNDER;
  double k = t - PLAIT_VM_ROUNDER;
  double r = (x - k * 0x1.62e42ffp-1) + k * 0x1.718432a1b0e26p-35;
  double p = 0x1.710120f1d8cfbp-19;
  p = p * r + 0x1.a16edf139497ap-16;
  p = p * r + 0x1.a01b74ec49602p-13;
  p = p * r + 0x1.6c163b6220613p-10;
  p = p * r + 0x1.1111108d6ab12p-7;
  p = p * r + 0x1.5555557e2c50bp-5;
  p = p * r + 0x1.555555558a585p-3;
  p = p * r + 0x1.fffffffff121dp-2;
  double y = 1.0 + (r + r * r * p);
  return y * plait_vm_from_bits((plait_vm_bits(t) << 52) + (UINT64_C(1023) << 52));
}

// The same to 2^-29 of the result, as 2^k 2^f.
PLAIT_INLINE double plait_vm_wide_exp_short(double x) {
  double t = x * 0x1.71547652b82fep+0 + PLAIT_VM_ROUNDER;
  double f = x * 0x1.71547652b82fep+0 - (t - PLAIT_VM_ROUNDER);
  double y = 0x1.41d32b8b51e1ep-13;
  y = y * f + 0x1.5f456b2682e7cp-10;
  y = y * f + 0x1.3b2dbbd4484c0p-7;
  y = y * f + 0x1.c6aed4b821370p-5;
  y = y * f + 0x1.ebfbdadc7d56fp-3;
  y = y * f + 0x1.62e430c7e9929p-1;
  y = y * f + 0x1.000000026189ap+0;
  return plait_vm_from_bits(plait_vm_bits(y) + (plait_vm_bits(t) << 52));
}

// sin(r) and cos(r) for |r| <= 1, to 2^-43.
PLAIT_INLINE double plait_vm_wide_sin(double r) {
  double z = r * r;
  double p = -0x1.a6466802672cbp-26;
  p = p * z + 0x1.71cc53a568a17p-19;
  p = p * z - 0x1.a019dda75906ep-13;
  p = p * z + 0x1.111110f168182p-7;
  p = p * z - 0x1.5555555530f5ep-3;
  return r + r * z * p;
}

PLAIT_INLINE double plait_vm_wide_cos(double r) {
  double z = r * r;
  double p = 0x1.196999028825dp-29;
  p = p * z - 0x1.27d5bf2140af0p-22;
  p = p * z + 0x1.a019d7f629efcp-16;
  p = p * z - 0x1.6c16c13217aa0p-10;
  p = p * z + 0x1.555555550a721p-5;
  p = p * z - 0x1.ffffffffff7dap-2;
  return 1.0 + z * p;
}

// sin(r) for |r| <= 1.59, to 2^-35 of the result.
PLAIT_INLINE double plait_vm_wide_half_wave(double r) {
  double z = r * r;
  double p = -0x1.99ca1c80820aap-26;
  p = p * z + 0x1.716987d219fe2p-19;
  p = p * z - 0x1.a017a3d9123ccp-13;
  p = p * z + 0x1.11110ba7a7e33p-7;
  p = p * z - 0x1.555555450cd13p-3;
  return r * (1.0 + z * p);
}

// sin(pi x) and cos(pi x) for finite x.
PLAIT_INLINE void plait_vm_wide_sincospi(double x, double *sine, double *cosine) {
  // From 2^24 on, every float is an even integer.
  x = plait_vm_pick(plait_vm_abs(x) < 0x1p24, x, 0.0);
  double t = x + x + PLAIT_VM_ROUNDER;
  uint64_t n = plait_vm_bits(t);
  double r = (x - 0.5 * (t - PLAIT_VM_ROUNDER)) * 0x1.921fb54442d18p+1;
  double s = plait_vm_wide_sin(r), c = plait_vm_wide_cos(r);
  double a = plait_vm_pick(n & 1u, c, s), b = plait_vm_pick(n & 1u, s, c);
  *sine = plait_vm_from_bits(plait_vm_bits(a) ^ ((n & 2u) << 62));
  *cosine = plait_vm_from_bits(plait_vm_bits(b) ^ (((n + 1u) & 2u) << 62));
}

// asin(x) for |x| <= 1/2, to 2^-47.
PLAIT_INLINE double plait_vm_wide_asin(double x) {
  double t = x * x;
  double p = 0x1.02286a31c96a6p-5;
  p = p * t - 0x1.df0e6223fa004p-8;
  p = p * t + 0x1.258568f13fc99p-6;
  p = p * t + 0x1.9b741f26f769ap-7;
  p = p * t + 0x1.1f824fa55e75dp-6;
  p = p * t + 0x1.6e43d6bc333d8p-6;
  p = p * t + 0x1.f1caf8bdc416ap-6;
  p = p * t + 0x1.6db6cc3d04600p-5;
  p = p * t + 0x1.33333350b24f8p-4;
  p = p * t + 0x1.55555555418aep-3;
  return x + x * t * p;
}

// atan(x) for |x| <= tan(pi / 8), to 2^-49.
PLAIT_INLINE double plait_vm_wide_atan(double x) {
  double t = x * x;
  double p = -0x1.a1163d41bc090p-6;
  p = p * t + 0x1.9c901655e7720p-5;
  p = p * t - 0x1.0aa4f4285b3eap-4;
  p = p * t + 0x1.3a566e149ab69p-4;
  p = p * t - 0x1.744f7698de0c3p-4;
  p = p * t + 0x1.c71bd8c32cd5ap-4;
  p = p * t - 0x1.2492473c13fa0p-3;
  p = p * t + 0x1.999999939b595p-3;
  p = p * t - 0x1.555555555215dp-2;
  return x + x * t * p;
}

#endif
