// Bessel functions J of doubles. The loops say, as simd.h does, that exceptions are not observed.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "loops.h"

// J0(x), and J1(x) / x, over x^2 - a^2 and x^2 - b^2 for their first zeros a and b, x^2 = 25/2 (1 + t) and -1 <= t <= 1.
PLAIT_INLINE double near_j0(double t) {
  double v = t * t, p = 0x1.505b985c88944p-46, q = -0x1.832056e5ee1d6p-52;
  q = q * v - 0x1.d92398cc02a93p-41;
  p = p * v + 0x1.1648d5d025147p-35;
  q = q * v - 0x1.0cdec11d69386p-30;
  p = p * v + 0x1.a13bed365de2dp-26;
  q = q * v - 0x1.f9558f6b1603cp-22;
  p = p * v + 0x1.cc073a3fe4e76p-18;
  q = q * v - 0x1.2ab4ba4dd3f02p-14;
  p = p * v + 0x1.ff5f552d9419ap-12;
  p = p + t * q;
  p = p * t - 0x1.f799f81a24df3p-10;
  return p * t + 0x1.a1c5e862f307cp-9;
}

PLAIT_INLINE double near_j1(double t) {
  double v = t * t, p = 0x1.9627921f41cc7p-51, q = -0x1.b80e61fa52ffcp-57;
  q = q * v - 0x1.3483dbabf3b04p-45;
  p = p * v + 0x1.8a6df94225701p-40;
  q = q * v - 0x1.a1301c53c5a18p-35;
  p = p * v + 0x1.656be7f3f3d17p-30;
  q = q * v - 0x1.e2f3904d919cap-26;
  p = p * v + 0x1.f0b5f2cbddf4bp-22;
  q = q * v - 0x1.7223792a41bb7p-18;
  p = p * v + 0x1.72eee8d97b78dp-15;
  p = p + t * q;
  p = p * t - 0x1.b6fd6da03642bp-13;
  return p * t + 0x1.c55f67750a6b9p-12;
}

// From x = 5 on, J is m sqrt(2 / (pi x)) times the cosine of x - (2 order + 1) pi / 4 + phase / x. These are m and the phase, where
// (5 / x)^2 = (1 + t) / 2.
PLAIT_INLINE double size_0(double t) {
  double v = t * t, p = 0x1.f9915c9e9b6d5p-39, q = -0x1.5b2ba950b9148p-39;
  q = q * v + 0x1.3ca972fd4055bp-38;
  p = p * v - 0x1.0ed95b2646a5cp-38;
  q = q * v - 0x1.0e876e5ceaad2p-36;
  p = p * v + 0x1.b10ef38637bc4p-36;
  q = q * v - 0x1.20032e1b31aa3p-35;
  p = p * v + 0x1.a08d1f7dbaa3ap-34;
  q = q * v - 0x1.32def2813ce60p-32;
  p = p * v + 0x1.ca25d6778836cp-31;
  q = q * v - 0x1.7ececb49723cap-29;
  p = p * v + 0x1.6f4ca5dda1833p-27;
  q = q * v - 0x1.a402f27781fb8p-25;
  p = p * v + 0x1.30859e8f560a5p-22;
  q = q * v - 0x1.3632da427f842p-19;
  p = p * v + 0x1.0c9cd06f30dffp-15;
  p = p + t * q;
  p = p * t - 0x1.34b0188461717p-10;
  return p * t + 0x1.ff611c4cdbfe8p-1;
}

PLAIT_INLINE double phase_0(double t) {
  double v = t * t, p = -0x1.40bc07dc6e8cdp-37, q = 0x1.2b219b6810e61p-36;
  p = p * v + 0x1.c3681c59a1992p-37;
  p = p * v - 0x1.7b4ebd20e310bp-35;
  q = q * v - 0x1.c544cf8d99359p-36;
  p = p * v - 0x1.8b3b4971cf9cdp-34;
  q = q * v + 0x1.94aff66cc8822p-34;
  p = p * v - 0x1.3d446ea1d2b47p-31;
  q = q * v + 0x1.c20b3205a8b69p-33;
  p = p * v - 0x1.1ec1153590b43p-28;
  q = q * v + 0x1.9c2483738c3f3p-30;
  p = p * v - 0x1.80a02c540b2e7p-25;
  q = q * v + 0x1.ba9cd35ebf116p-27;
  p = p * v - 0x1.e0498e2cc09d8p-21;
  q = q * v + 0x1.84c56b9dd9e34p-23;
  p = p * v - 0x1.e61cb9fa489a7p-15;
  q = q * v + 0x1.883c9828f7f00p-18;
  p = p + t * q;
  p = p * t + 0x1.3111fd6bb9e72p-10;
  return p * t - 0x1.faf7a17ee3a71p-4;
}

PLAIT_INLINE double size_1(double t) {
  double v = t * t, p = -0x1.2138bed033111p-38, q = 0x1.86f899dd1f324p-39;
  q = q * v - 0x1.5faee846e95ebp-38;
  p = p * v + 0x1.368da2271301fp-38;
  q = q * v + 0x1.34beb7b281707p-36;
  p = p * v - 0x1.faca631b34722p-36;
  q = q * v + 0x1.585e10c9f026ap-35;
  p = p * v - 0x1.f223f83075adbp-34;
  q = q * v + 0x1.72cf1b5aeda08p-32;
  p = p * v - 0x1.192de3c0579b8p-30;
  q = q * v + 0x1.df2c8e1708b51p-29;
  p = p * v - 0x1.d82769d406410p-27;
  q = q * v + 0x1.189eece197bb1p-24;
  p = p * v - 0x1.b0b94de6413dfp-22;
  q = q * v + 0x1.eb9cb48297344p-19;
  p = p * v - 0x1.080bab4a87e70p-14;
  p = p + t * q;
  p = p * t + 0x1.d94e98b947112p-9;
  return p * t + 0x1.00f10d1ad2220p+0;
}

PLAIT_INLINE double phase_1(double t) {
  double v = t * t, p = 0x1.6eac1b0ca7b0fp-37, q = -0x1.5155a13ccfbe6p-36;
  p = p * v - 0x1.0835505361f69p-36;
  p = p * v + 0x1.bea0c68b983e2p-35;
  q = q * v + 0x1.f6f029660052bp-36;
  p = p * v + 0x1.cb74a822a73c9p-34;
  q = q * v - 0x1.cf20589ec3440p-34;
  p = p * v + 0x1.7bc025140fd1dp-31;
  q = q * v - 0x1.0c92a3f2d9a2ap-32;
  p = p * v + 0x1.5ffeb1e5e4c7fp-28;
  q = q * v - 0x1.f23deb05eeb1cp-30;
  p = p * v + 0x1.ede89615f0dc3p-25;
  q = q * v - 0x1.14ec2f0783445p-26;
  p = p * v + 0x1.535bded1233cep-20;
  q = q * v - 0x1.031d8ccea3fccp-22;
  p = p * v + 0x1.cb2dd2c848f65p-14;
  q = q * v - 0x1.3295ade84e4dbp-17;
  p = p + t * q;
  p = p * t - 0x1.8ce5fb98652e1p-9;
  return p * t + 0x1.7cc6b17b48e5ap-2;
}

// sin(v) for |v| <= 1.62.
PLAIT_INLINE double half_wave(double v) {
  double z = v * v;
  double u = z * z, p = -0x1.ae3ed2b5a225cp-41, q = 0x1.87ad5a2dfcb34p-49;
  q = q * u + 0x1.6123bc37cfee3p-33;
  p = p * u - 0x1.ae645497d6906p-26;
  q = q * u + 0x1.71de3a522e2a5p-19;
  p = p * u - 0x1.a01a01a01403fp-13;
  q = q * u + 0x1.11111111110bfp-7;
  p = p * u - 0x1.5555555555555p-3;
  return v + v * z * (p + z * q);
}

// The cosine of |x| - pi / 4 + phase / |x| if `order` is 0, else its sine, times m sqrt(2 / (pi |x|)).
PLAIT_INLINE double far_wave(double x, double size, double phase, double inverse, int order) {
  uint64_t quadrant;
  plait_vm_sum r = plait_vm_double_quarters(plait_vm_abs(x), &quadrant);
  bool odd = quadrant & 1u;
  // cos(r - pi / 4) is sin(r + pi / 4), and a quarter on it is sin(pi / 4 - r). sin(r - pi / 4) becomes sin(r + pi / 4).
  double sign = plait_vm_pick(odd & (order == 0), -1.0, 1.0), eighth = plait_vm_pick(odd | (order == 0), 1.0, -1.0);
  plait_vm_sum v = plait_vm_two_sum(eighth * 0x1.921fb54442d18p-1, sign * r.high);
  double low = v.low + (sign * (r.low + phase * inverse) + eighth * 0x1.1a62633145c07p-55);
  double y = half_wave(v.high + low) * (size * sqrt(0x1.45f306dc9c883p-1 * inverse));
  return plait_vm_from_bits(plait_vm_bits(y) ^ (quadrant >> 1 << 63));
}

PLAIT_INLINE double far_j0(double x) {
  double inverse = 1.0 / plait_vm_abs(x), w = 5.0 * inverse, t = 2.0 * w * w - 1.0;
  return far_wave(x, size_0(t), phase_0(t), inverse, 0);
}

PLAIT_INLINE double far_j1(double x) {
  double inverse = 1.0 / plait_vm_abs(x), w = 5.0 * inverse, t = 2.0 * w * w - 1.0;
  double y = far_wave(x, size_1(t), phase_1(t), inverse, 1);
  return plait_vm_pick(x < 0.0, -y, y);
}

// (J0(x) - 1) / z, and (J1(x) / x - 1/2) / z, for z = x^2 <= 2.56.
PLAIT_INLINE double tiny_j0(double z) {
  double v = z * z, p = 0x1.462b1ebf8c824p-47, q = -0x1.51f027b707f4ap-39;
  p = p * v + 0x1.02e7c3e9d5780p-31;
  p = p * v + 0x1.c71c71c0a728bp-18;
  q = q * v - 0x1.234565b9eff8dp-24;
  p = p * v + 0x1.ffffffffffe78p-7;
  q = q * v - 0x1.c71c71c70faaap-12;
  p = p + z * q;
  return p * z - 0x1.ffffffffffffep-3;
}

PLAIT_INLINE double tiny_j1(double z) {
  double v = z * z, p = 0x1.2360d5eed4f4dp-51, q = -0x1.51ffecc65fd99p-43;
  p = p * v + 0x1.27e493eac3d0fp-35;
  p = p * v + 0x1.6c16c16a5553cp-21;
  q = q * v - 0x1.845c88ecebebep-28;
  p = p * v + 0x1.555555555553ap-9;
  q = q * v - 0x1.c71c71c719a5dp-15;
  p = p + z * q;
  return p * z - 0x1.0000000000000p-4;
}

// x^2 - zero^2 for x >= 0, with its relative error near the zero, a sum, too.
PLAIT_INLINE double less_zero(double x, double zero, double low) { return ((x - zero) - low) * (x + zero); }

PLAIT_INLINE double small_j0(double x) {
  double a = plait_vm_abs(x), z = a * a;
  double zeros = less_zero(a, 0x1.33d152e971b40p+1, -0x1.0f539d7da258ep-53) * less_zero(a, 0x1.6148f5b2c2e45p+2, 0x1.75054cd60a517p-54);
  return plait_vm_pick(a < 1.6, 1.0 + z * tiny_j0(z), zeros * near_j0(z * 0.08 - 1.0));
}

PLAIT_INLINE double small_j1(double x) {
  double a = plait_vm_abs(x), z = a * a;
  double zeros = less_zero(a, 0x1.ea75575af6f09p+1, -0x1.60155a9d1b256p-53) * less_zero(a, 0x1.c0ff5f3b47250p+2, -0x1.b226d9d243827p-54);
  return x * plait_vm_pick(a < 1.6, 0.5 + z * tiny_j1(z), zeros * near_j1(z * 0.08 - 1.0));
}

#define IS_FAR(x) (plait_vm_abs(x) > 5.0)
TWO_RANGES_DOUBLE(usual_j0, IS_FAR, small_j0, far_j0)
TWO_RANGES_DOUBLE(usual_j1, IS_FAR, small_j1, far_j1)

// From 2^20 on, angles take a longer reduction.
#define WITH_HUGE(NAME, USUAL, FUNCTION)                                                 \
  static void NAME(double *restrict out, const double *restrict x, int64_t n) {          \
    USUAL(out, x, n);                                                                    \
    for (int64_t i = 0; i < n; i++) {                                                    \
      if (plait_vm_far_trig(x[i])) out[i] = plaitk_special_of(FUNCTION, x[i]);           \
    }                                                                                    \
  }

WITH_HUGE(bessel_j0, usual_j0, SPECIAL_J0)
WITH_HUGE(bessel_j1, usual_j1, SPECIAL_J1)

const plaitk_special_double_loop plaitk_special_double_loops_j[2] = {bessel_j0, bessel_j1};
