// The inverse of the normal distribution function of floats. The loops say, as simd.h does, that exceptions are not observed.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "loops.h"

// ndtri(p) / (2 p - 1) for -log(4 p (1 - p)) = 4 + 4 t, -1 <= t <= 1, to 2^-30.
PLAIT_INLINE double near_ndtri(double t) {
  double p = -0x1.e4da09bc099c0p-16;
  p = p * t + 0x1.197b0cafb2235p-14;
  p = p * t + 0x1.3fa8ca46ddcc8p-14;
  p = p * t - 0x1.c97cb96ea6eb7p-12;
  p = p * t + 0x1.ebf12b6662378p-12;
  p = p * t + 0x1.67b1e5cce6b76p-11;
  p = p * t - 0x1.983819ed38e09p-9;
  p = p * t + 0x1.0d401dfd49acap-8;
  p = p * t + 0x1.71d5df71640dbp-9;
  p = p * t - 0x1.70213f15417b4p-6;
  p = p * t + 0x1.609157709f813p-5;
  p = p * t - 0x1.2e78a34906e88p-6;
  p = p * t - 0x1.4ea1799881c70p-3;
  p = p * t + 0x1.4ab16264f4c72p+0;
  p = p * t + 0x1.50799705c9275p+1;
  return p;
}

// The same times v for v = (-log(4 p (1 - p)))^(-1/2) = 0.2258 + 0.1278 t, to 2^-30.
PLAIT_INLINE double far_ndtri(double t) {
  double p = 0x1.4324a814f133fp-17;
  p = p * t + 0x1.9462fc72df15dp-18;
  p = p * t - 0x1.54382b87b20bep-15;
  p = p * t - 0x1.4ae2c54c9c54ep-15;
  p = p * t + 0x1.8c65525988e7bp-15;
  p = p * t + 0x1.d651be4f155a6p-14;
  p = p * t + 0x1.f304cdeb5863dp-15;
  p = p * t + 0x1.9b870df1d2771p-14;
  p = p * t - 0x1.82b29508c7a57p-12;
  p = p * t + 0x1.f2ff0aadf89aap-10;
  p = p * t + 0x1.bdc719a5688fcp-11;
  p = p * t - 0x1.2994d14ec9da8p-5;
  p = p * t + 0x1.5d49cfe040f6cp+0;
  return p;
}

// -log(4 p (1 - p)). It is also -log(1 - (2 p - 1)^2), and like erfinv, ndtri is 2 p - 1 times a smooth function of it.
PLAIT_INLINE double depth(float p) { return -plait_vm_wide_log(4.0 * (double)p * (1.0 - (double)p)); }


PLAIT_INLINE double middle(float p) { return (2.0 * (double)p - 1.0) * near_ndtri(0.25 * depth(p) - 1.0); }

PLAIT_INLINE double tail(float p) {
  double root = sqrt(depth(p)), x = 2.0 * (double)p - 1.0;
  double y = x * root * far_ndtri(0x1.f4f35fd96bbb8p+2 / root - 0x1.c47384f5e3f93p+0);
  y = plait_vm_pick((p == 0.0f) | (p == 1.0f), x * PLAIT_VM_INF, y);
  return plait_vm_pick((p < 0.0f) | (p > 1.0f), PLAIT_VM_NAN, y);
}

#define IS_FAR(p) (((p) < 0x1.6p-14f) | ((p) > 1.0f - 0x1.6p-14f))
TWO_RANGES(ndtri, IS_FAR, middle, tail)

const plaitk_special_loop plaitk_special_loop_ndtri = ndtri;
