// Circular functions and their inverses.
#ifndef PLAIT_VMATH_TRIG_H
#define PLAIT_VMATH_TRIG_H

#include "wide.h"

// Writes |x| as n pi/2 + r with |r| <= pi/4, for every finite |x| >= 1. *quadrant is n mod 4.
//
// This is Payne and Hanek's reduction in integers. x is a 24-bit integer times a power of two, so 96 bits of 2/pi, from
// the bit that counts four quadrants on, give the quadrant and 62 bits of the fraction. The words of 2/pi are selected
// by comparisons, which need no gather.
PLAIT_INLINE double plait_vm_trig_reduce(float x, uint32_t *quadrant) {
  uint32_t bits = plait_f32_bits(x) & 0x7fffffffu;
  uint32_t mantissa = (bits & 0x7fffffu) | 0x800000u;
  uint32_t shift = ((bits >> 23) - 127u) & 127u;
  uint32_t far = -(shift >> 6), odd = -((shift >> 5) & 1u);
  shift &= 31u;
  uint32_t a0 = (0x220a94feu & far) | (0x00000051u & ~far);
  uint32_t a1 = (0x13abe8fau & far) | (0x7cc1b727u & ~far);
  uint32_t a2 = (0x9a6ee06du & far) | (0x220a94feu & ~far);
  uint32_t a3 = (0xb14acc9eu & far) | (0x13abe8fau & ~far);
  uint32_t a4 = (0x21c820ffu & far) | (0x9a6ee06du & ~far);
  uint32_t b0 = (a1 & odd) | (a0 & ~odd);
  uint32_t b1 = (a2 & odd) | (a1 & ~odd);
  uint32_t b2 = (a3 & odd) | (a2 & ~odd);
  uint32_t b3 = (a4 & odd) | (a3 & ~odd);
  uint32_t back = 31u - shift;
  uint32_t w0 = (b0 << shift) | ((b1 >> 1) >> back);
  uint32_t w1 = (b1 << shift) | ((b2 >> 1) >> back);
  uint32_t w2 = (b2 << shift) | ((b3 >> 1) >> back);
  uint64_t turns = ((uint64_t)mantissa * w1) + (((uint64_t)mantissa * w2) >> 32);
  uint32_t high = (uint32_t)(turns >> 32) + mantissa * w0;
  uint32_t low = (uint32_t)turns;
  uint32_t n = (high + 0x20000000u) >> 30;
  int32_t fraction = (int32_t)(high - (n << 30));
  // (fraction 2^32 + low) 2^-62 pi/2
  *quadrant = n & 3u;
  return (double)fraction * 0x1.921fb54442d18p-30 + (double)(int32_t)(low >> 1) * 0x1.921fb54442d18p-61;
}

// Whether plait_vm_near_sinf and its like do not take x.
PLAIT_INLINE uint32_t plait_vm_far_trigf(float x) { return (plait_f32_bits(x) & 0x7fffffffu) >= 0x49800000u; }

// Writes x as n pi/2 + r with |r| <= pi/4, for |x| < 2^20. pi/2 has two parts, of which the first has so few bits that its
// product is exact.
PLAIT_INLINE double plait_vm_quarters(double x, uint64_t *n) {
  double t = x * 0x1.45f306dc9c883p-1 + PLAIT_VM_ROUNDER, k = t - PLAIT_VM_ROUNDER;
  *n = plait_vm_bits(t);
  return (x - k * 0x1.921fb544p+0) - k * 0x1.0b4611a626331p-34;
}

// x - k pi, likewise, for k a multiple of 1/2.
PLAIT_INLINE double plait_vm_less_turns(double x, double k) { return (x - k * 0x1.921fb544p+1) - k * 0x1.0b4611a626331p-33; }

// sin(r), negated if n is odd.
PLAIT_INLINE float plait_vm_signed_wavef(double r, uint64_t n) {
  return (float)plait_vm_from_bits(plait_vm_bits(plait_vm_wide_half_wave(r)) ^ (n << 63));
}

// sin(x), within 0.6 ulp for every finite x. The functions without a fall-back, for |x| < 2^20, take a third of the time.
PLAIT_INLINE float plait_vm_near_sinf(float x) {
  double t = (double)x * 0x1.45f306dc9c883p-2 + PLAIT_VM_ROUNDER;
  return plait_vm_signed_wavef(plait_vm_less_turns((double)x, t - PLAIT_VM_ROUNDER), plait_vm_bits(t));
}

PLAIT_INLINE float plait_vm_sinf(float x) {
  uint32_t far = plait_vm_far_trigf(x), n;
  double r = plait_vm_trig_reduce(x, &n);
  r = plait_vm_pick(n & 1u, 0x1.921fb54442d18p+0 - plait_vm_abs(r), r);
  float y = plait_vm_signed_wavef(r, (n >> 1) ^ (plait_f32_bits(x) >> 31));
  y = plait_vm_pickf(plait_vm_absf(x) < PLAIT_VM_INFF, y, x - x);
  return plait_vm_pickf(far, y, plait_vm_near_sinf(plait_vm_pickf(far, 0.0f, x)));
}

// cos(x), within 0.6 ulp for every finite x.
PLAIT_INLINE float plait_vm_near_cosf(float x) {
  double t = ((double)x * 0x1.45f306dc9c883p-2 - 0.5) + PLAIT_VM_ROUNDER;
  return plait_vm_signed_wavef(plait_vm_less_turns((double)x, (t - PLAIT_VM_ROUNDER) + 0.5), ~plait_vm_bits(t));
}

PLAIT_INLINE float plait_vm_cosf(float x) {
  uint32_t far = plait_vm_far_trigf(x), n;
  double r = plait_vm_trig_reduce(x, &n);
  r = plait_vm_pick(n & 1u, r, 0x1.921fb54442d18p+0 - plait_vm_abs(r));
  float y = plait_vm_signed_wavef(r, (n + 1u) >> 1);
  y = plait_vm_pickf(plait_vm_absf(x) < PLAIT_VM_INFF, y, x - x);
  return plait_vm_pickf(far, y, plait_vm_near_cosf(plait_vm_pickf(far, 0.0f, x)));
}

// tan(r), or tan(r + pi / 2) if n is odd, as one quotient, to 2^-35 of the result for |r| <= pi / 4.
PLAIT_INLINE float plait_vm_tan_quartersf(double r, uint64_t n) {
  double z = r * r;
  double p = 0x1.19c2a001bb6eep-10;
  p = p * z - 0x1.c81e0129c6ab6p-4;
  p = p * z + 0x1.0000000014110p+0;
  double q = 0x1.05ad55bd80708p-6;
  q = q * z - 0x1.c75cd58683470p-2;
  q = q * z + 1.0;
  bool odd = n & 1u;
  return (float)(plait_vm_pick(odd, -q, r * p) / plait_vm_pick(odd, r * p, q));
}

// tan(x), within 0.6 ulp for every finite x.
PLAIT_INLINE float plait_vm_near_tanf(float x) {
  uint64_t n;
  double r = plait_vm_quarters((double)x, &n);
  return plait_vm_tan_quartersf(r, n);
}

PLAIT_INLINE float plait_vm_tanf(float x) {
  uint32_t far = plait_vm_far_trigf(x), n;
  double r = plait_vm_trig_reduce(x, &n);
  float y = plait_vm_tan_quartersf(plait_vm_copysign(1.0, (double)x) * r, n);
  y = plait_vm_pickf(plait_vm_absf(x) < PLAIT_VM_INFF, y, x - x);
  return plait_vm_pickf(far, y, plait_vm_near_tanf(plait_vm_pickf(far, 0.0f, x)));
}

// asin(x), within 1 ulp; NaN outside [-1, 1].
PLAIT_INLINE float plait_vm_asinf(float x) {
  double a = plait_vm_abs((double)x);
  bool outer = a > 0.5;
  double y = plait_vm_wide_asin(plait_vm_pick(outer, sqrt(0.5 - 0.5 * a), a));
  y = plait_vm_pick(outer, 0x1.921fb54442d18p+0 - 2.0 * y, y);
  return (float)plait_vm_copysign(y, (double)x);
}

// acos(x), within 1 ulp; NaN outside [-1, 1].
PLAIT_INLINE float plait_vm_acosf(float x) {
  double v = (double)x, a = plait_vm_abs(v);
  bool outer = a > 0.5;
  double y = plait_vm_wide_asin(plait_vm_pick(outer, sqrt(0.5 - 0.5 * a), v));
  double low = plait_vm_pick(v < 0.0, 0x1.921fb54442d18p+1 - 2.0 * y, 2.0 * y);
  return (float)plait_vm_pick(outer, low, 0x1.921fb54442d18p+0 - y);
}

// The angle of (x, y) in [0, pi / 2], for x, y >= 0.
PLAIT_INLINE double plait_vm_wide_angle(double y, double x) {
  double small = plait_vm_pick(y > x, x, y), large = plait_vm_pick(y > x, y, x);
  // A quotient of two infinities or two zeros is taken as 1 or 0.
  bool infinite = small == PLAIT_VM_INF;
  small = plait_vm_pick(infinite, 1.0, small);
  large = plait_vm_pick(infinite, 1.0, large);
  large = plait_vm_pick(large == 0.0, 1.0, large);
  bool steep = small > 0x1.a827999fcef32p-2 * large;
  double z = plait_vm_pick(steep, small - large, small) / plait_vm_pick(steep, small + large, large);
  double r = plait_vm_wide_atan(z) + plait_vm_pick(steep, 0x1.921fb54442d18p-1, 0.0);
  return plait_vm_pick(y > x, 0x1.921fb54442d18p+0 - r, r);
}

// atan(x), within 0.53 ulp.
PLAIT_INLINE float plait_vm_atanf(float x) {
  // The tangent t of the angle, less a multiple of pi / 4, in two parts.
  float v = plait_vm_absf(x);
  bool steep = v > 0x1.3504f4p+1f, middle = !steep & (v > 0x1.a8279ap-2f);
  float more = v + 1.0f, less = v - 1.0f;
  float above = plait_vm_pickf(steep, -1.0f, plait_vm_pickf(middle, less, v));
  float below = plait_vm_not_abovef(plait_vm_pickf(steep, v, plait_vm_pickf(middle, more, 1.0f)), 0x1p60f);
  // What v - 1 and v + 1 have lost.
  float lost = plait_vm_pickf(middle, v - (less + 1.0f), 0.0f), missing = plait_vm_pickf(middle, v - (more - 1.0f), 0.0f);
  float inverse = 1.0f / below, t = above * inverse;
  float low = (plait_vm_fmaf(-t, below, above) + (lost - t * missing)) * inverse;
  // The angle is t - t z / 3 and a little more.
  float z = t * t, third = z * -0x1.555556p-2f, m = t * third;
  float p = 0x1.a36860p-5f;
  p = p * z - 0x1.6333f0p-4f;
  p = p * z + 0x1.c5f4aep-4f;
  p = p * z - 0x1.2490d2p-3f;
  p = p * z + 0x1.9999d0p-3f;
  p = (z * z) * p + plait_vm_fmaf(z, -0x1.555556p-2f, -third);
  p = plait_vm_fmaf(t, t, -z) * -0x1.555556p-2f + p;
  float base = plait_vm_pickf(steep, 0x1.921fb6p+0f, plait_vm_pickf(middle, 0x1.921fb6p-1f, 0.0f));
  low += base * -0x1.de12cap-26f - 0.87f * z * low;
  low += t * p + plait_vm_fmaf(t, third, -m);
  float sum = base + t, y = sum + m;
  return plait_vm_copysignf(y + (((t - (sum - base)) + (m - (y - sum))) + low), x);
}

// atan2(y, x), within 1 ulp.
PLAIT_INLINE float plait_vm_atan2f(float y, float x) {
  double v = (double)y, u = (double)x;
  double r = plait_vm_wide_angle(plait_vm_abs(v), plait_vm_abs(u));
  r = plait_vm_pick(plait_vm_bits(u) >> 63, 0x1.921fb54442d18p+1 - r, r);
  r = plait_vm_pick((v != v) | (u != u), v + u, r);
  return (float)plait_vm_copysign(r, v);
}

// sin(r) and cos(r) for |r| <= 1.
PLAIT_INLINE float plait_vm_sin_polyf(float r) {
  float z = r * r;
  float p = 0x1.6de9f6p-19f;
  p = p * z - 0x1.a01ffep-13f;
  p = p * z + 0x1.11113ep-7f;
  p = p * z - 0x1.555556p-3f;
  return r + r * z * p;
}

PLAIT_INLINE float plait_vm_cos_polyf(float r) {
  float z = r * r;
  float p = -0x1.2680ecp-22f;
  p = p * z + 0x1.a02c1ep-16f;
  p = p * z - 0x1.6c1712p-10f;
  p = p * z + 0x1.555556p-5f;
  return 1.0f - (0.5f * z - z * z * p);
}

// The sine and cosine of t turns, 0 <= t < 1, within 2 ulp.
PLAIT_INLINE void plait_vm_sincos_turnsf(float t, float *sine, float *cosine) {
  float rounded = 4.0f * t + PLAIT_VM_ROUNDERF;
  uint32_t n = plait_f32_bits(rounded);
  float r = (4.0f * t - (rounded - PLAIT_VM_ROUNDERF)) * 0x1.921fb6p+0f;
  float s = plait_vm_sin_polyf(r), c = plait_vm_cos_polyf(r);
  float y = plait_vm_pickf(n & 1u, c, s), x = plait_vm_pickf(n & 1u, s, c);
  *sine = plait_bits_f32(plait_f32_bits(y) ^ ((n & 2u) << 30));
  *cosine = plait_bits_f32(plait_f32_bits(x) ^ (((n + 1u) & 2u) << 30));
}

#endif
