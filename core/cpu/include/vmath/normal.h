// The normal distribution.
#ifndef PLAIT_VMATH_NORMAL_H
#define PLAIT_VMATH_NORMAL_H

#include "double_erf.h"
#include "exp.h"

// The probability that a standard normal number is less than x, within 2.1 ulp or 2^-24.
PLAIT_INLINE float plait_vm_normal_cdff(float x) {
  float a = plait_vm_at_mostf(plait_vm_absf(x), 5.875f);
  // The binary logarithm of the probability of less than -a, nearly a parabola. Pairs of its terms shorten the chain of dependencies.
  float z = a * a;
  float p1 = -0x1.26aed4p+0f * a - 1.0f, p2 = -0x1.ade31cp-5f * a - 0x1.d63b7ep-2f, p3 = -0x1.366472p-14f * a + 0x1.cbab00p-8f;
  float p4 = 0x1.daab16p-15f * a - 0x1.e30972p-13f, p5 = 0x1.2f86b8p-22f * a - 0x1.a78818p-18f;
  float q = ((p5 * z + p4) * (z * z) + (p3 * z + p2)) * z + p1;
  // q as n + f. From n = -29 on, the result is 0.
  float t = q + (PLAIT_VM_ROUNDERF + 29.0f);
  float f = q - (t - (PLAIT_VM_ROUNDERF + 29.0f));
  float s = plait_bits_f32(plait_f32_bits(t) << 23) * 0x1p98f;
  // (2^f - 1) / f for |f| <= 1/2
  float u = 0x1.41fbbcp-13f * f + 0x1.5f3e54p-10f, v = 0x1.3b2d4cp-7f * f + 0x1.c6aee8p-5f;
  float w = 0x1.ebfbdcp-3f * f + 0x1.62e430p-1f, f2 = f * f;
  float y = ((u * f2 + v) * f2 + w) * (s * f) + s;
  return plait_vm_pickf(x < 0.0f, y, 1.0f - y);
}

// The same, to 2^-53.
PLAIT_INLINE double plait_vm_normal_cdf(double x) { return 0.5 + 0.5 * plait_vm_erf(x * 0x1.6a09e667f3bcdp-1); }

#endif
