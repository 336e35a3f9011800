// The modified Bessel functions of the second kind of doubles. The loops say, as simd.h does, that exceptions are not observed.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "loops.h"

// I0(x) for x^2 = (1 + t) / 2, -1 <= t <= 1, to 2^-57.
PLAIT_INLINE double near_i0(double t) {
  double p = 0x1.18eb9c35a4ccbp-52;
  p = p * t + 0x1.54c4d6bfd95eap-46;
  p = p * t + 0x1.078d2d51d173bp-37;
  p = p * t + 0x1.2964cd45ce72ep-29;
  p = p * t + 0x1.d29bad7d02f00p-22;
  p = p * t + 0x1.d5832972dcfbfp-15;
  p = p * t + 0x1.0ad5b0d4d1d67p-8;
  p = p * t + 0x1.10563a512a7f7p-3;
  p = p * t + 0x1.2103955e779d2p+0;
  return p;
}

// I1(x) / x, likewise.
PLAIT_INLINE double near_i1(double t) {
  double p = 0x1.8ec49a07715b0p-50;
  p = p * t + 0x1.523945dcf9f52p-50;
  p = p * t + 0x1.2b2017bd0a8cbp-41;
  p = p * t + 0x1.8b59dba664670p-33;
  p = p * t + 0x1.73bdfebe4f42fp-25;
  p = p * t + 0x1.d29bad776598cp-18;
  p = p * t + 0x1.60225f1627862p-11;
  p = p * t + 0x1.0ad5b0d4d1db8p-5;
  p = p * t + 0x1.10563a512a7f7p-1;
  return p;
}

// K0(x) + log(x) I0(x), likewise.
PLAIT_INLINE double near_k0(double t) {
  double p = -0x1.57c4fffbae1edp-52;
  p = p * t + 0x1.d24a06fd9b07bp-45;
  p = p * t + 0x1.527d4916507a2p-36;
  p = p * t + 0x1.6546fb2effe82p-28;
  p = p * t + 0x1.0120e8aa40166p-20;
  p = p * t + 0x1.cb6b8d18eeff3p-14;
  p = p * t + 0x1.b2d72c6a79d10p-8;
  p = p * t + 0x1.3830d94ea686dp-3;
  p = p * t + 0x1.0c2047108e956p-2;
  return p;
}

// (K1(x) - log(x) I1(x) - 1 / x) / x, likewise.
PLAIT_INLINE double near_k1(double t) {
  double p = 0x1.0835cfb91228cp-52;
  p = p * t - 0x1.d98ba99feed36p-49;
  p = p * t - 0x1.8cd82b90333c7p-40;
  p = p * t - 0x1.eb4b15a20216cp-32;
  p = p * t - 0x1.ac12dc130d45ep-24;
  p = p * t - 0x1.e53d2237da5c7p-17;
  p = p * t - 0x1.3b728099ba8dap-10;
  p = p * t - 0x1.710ab17f0d2b8p-5;
  p = p * t - 0x1.684507a99024ap-2;
  return p;
}

// sqrt(x) exp(x) K0(x) for 1 / x = (1 + t) / 2, -1 <= t <= 1, to 2^-54.
PLAIT_INLINE double far_k0(double t) {
  double p = -0x1.b16b8dd69c788p-29;
  p = p * t - 0x1.4d46d9d6e9c75p-25;
  p = p * t + 0x1.03d0ad57b0783p-24;
  p = p * t + 0x1.ff26604d7f0cbp-23;
  p = p * t - 0x1.3337e41e77017p-22;
  p = p * t - 0x1.6f70b6ac6a175p-21;
  p = p * t + 0x1.7b73d8baa2fa9p-21;
  p = p * t + 0x1.3be8d1e089d32p-20;
  p = p * t - 0x1.1f13fa587baacp-20;
  p = p * t - 0x1.6e1a419dfceafp-20;
  p = p * t + 0x1.29d69ca2e101ap-20;
  p = p * t + 0x1.1fae8b5c04fccp-20;
  p = p * t - 0x1.94d45792973fbp-21;
  p = p * t - 0x1.6a38e66b4d4a6p-21;
  p = p * t + 0x1.02ec52b2051f6p-21;
  p = p * t + 0x1.d305b177b65b3p-24;
  p = p * t + 0x1.fd7b4ace66e9bp-24;
  p = p * t - 0x1.258562f959fbbp-21;
  p = p * t + 0x1.e80ccd67c203ap-21;
  p = p * t - 0x1.ba0ad99aa5fb0p-20;
  p = p * t + 0x1.b585edb5a3278p-19;
  p = p * t - 0x1.bf0afaceb3f8ap-18;
  p = p * t + 0x1.dbe0ea1f1d742p-17;
  p = p * t - 0x1.0ae154f7ec02ap-15;
  p = p * t + 0x1.3f1d159a4cfefp-14;
  p = p * t - 0x1.9db9cd706fb2cp-13;
  p = p * t + 0x1.2a7215afea55ap-11;
  p = p * t - 0x1.f446a7e1852a7p-10;
  p = p * t + 0x1.085a24b1d6844p-7;
  p = p * t - 0x1.ac450893fa610p-5;
  p = p * t + 0x1.30ae2423de262p+0;
  return p;
}

// sqrt(x) exp(x) K1(x), likewise.
PLAIT_INLINE double far_k1(double t) {
  double p = -0x1.3319af17e4de1p-26;
  p = p * t + 0x1.617d697fa9364p-25;
  p = p * t + 0x1.96d9fdd9d2d28p-24;
  p = p * t - 0x1.0d72d974ad986p-22;
  p = p * t - 0x1.f64dca6094abfp-23;
  p = p * t + 0x1.8198df1ecca1ap-21;
  p = p * t + 0x1.64c62feb14947p-22;
  p = p * t - 0x1.49e0ec1f5e168p-20;
  p = p * t - 0x1.4c3542c88dc07p-22;
  p = p * t + 0x1.7cd39bdc7110bp-20;
  p = p * t + 0x1.619c92042ace0p-23;
  p = p * t - 0x1.292c7ccc92df4p-20;
  p = p * t - 0x1.9ae4e13ba9cfcp-24;
  p = p * t + 0x1.78b9133341fe3p-21;
  p = p * t - 0x1.8ee21ffbf2bb1p-24;
  p = p * t - 0x1.7e71ef515d3c8p-24;
  p = p * t - 0x1.4856ff41983a4p-22;
  p = p * t + 0x1.57b3a71f8f24ep-21;
  p = p * t - 0x1.1b43142dd063ap-20;
  p = p * t + 0x1.0dd476717397bp-19;
  p = p * t - 0x1.0e7c33e2b678cp-18;
  p = p * t + 0x1.1803926272806p-17;
  p = p * t - 0x1.2f8c3eda82ed1p-16;
  p = p * t + 0x1.5c51db54095f5p-15;
  p = p * t - 0x1.acf5ab1cd5408p-14;
  p = p * t + 0x1.21729d5255d23p-12;
  p = p * t - 0x1.bab479ae35721p-11;
  p = p * t + 0x1.97e59d88ac8d5p-9;
  p = p * t - 0x1.03bbb0fa2f46bp-6;
  p = p * t + 0x1.80fb15bf9d190p-3;
  p = p * t + 0x1.7628990a85c65p+0;
  return p;
}

// K at 0 and below is infinity and NaN.
PLAIT_INLINE double k_edges(double x, double y) {
  return plait_vm_pick(x < 0.0, PLAIT_VM_NAN, plait_vm_pick(x == 0.0, PLAIT_VM_INF, y));
}

PLAIT_INLINE double small_k0(double x) {
  double t = 2.0 * (x * x) - 1.0;
  return k_edges(x, near_k0(t) - plait_vm_log(x) * near_i0(t));
}

PLAIT_INLINE double small_k1(double x) {
  double t = 2.0 * (x * x) - 1.0;
  return k_edges(x, 1.0 / x + x * (near_k1(t) + plait_vm_log(x) * near_i1(t)));
}

PLAIT_INLINE double large_k0e(double x) { return far_k0(2.0 / x - 1.0) / sqrt(x); }
PLAIT_INLINE double large_k1e(double x) { return far_k1(2.0 / x - 1.0) / sqrt(x); }

// y exp(-x), rounded once where it is subnormal.
PLAIT_INLINE double decay(double y, double x) {
  double t, e = plait_vm_exp_fraction((plait_vm_sum){-plait_vm_at_most(x, 760.0), 0.0}, PLAIT_VM_EXP_ROUNDER, &t);
  return plait_vm_exp_scale(plait_vm_pick(x < 760.0, y, plait_vm_pick(x == x, 0.0, x)) * e, t);
}
PLAIT_INLINE double large_k0(double x) { return decay(large_k0e(x), x); }
PLAIT_INLINE double large_k1(double x) { return decay(large_k1e(x), x); }

PLAIT_INLINE double growth(double x) { return plait_vm_near_exp(plait_vm_at_most(plait_vm_abs(x), 1.0)); }
PLAIT_INLINE double small_k0e(double x) { return small_k0(x) * growth(x); }
PLAIT_INLINE double small_k1e(double x) { return small_k1(x) * growth(x); }

#define IS_FAR(x) ((x) > 1.0)
TWO_RANGES_DOUBLE(bessel_k0, IS_FAR, small_k0, large_k0)
TWO_RANGES_DOUBLE(bessel_k1, IS_FAR, small_k1, large_k1)
TWO_RANGES_DOUBLE(bessel_k0e, IS_FAR, small_k0e, large_k0e)
TWO_RANGES_DOUBLE(bessel_k1e, IS_FAR, small_k1e, large_k1e)

const plaitk_special_double_loop plaitk_special_double_loops_k[4] = {bessel_k0, bessel_k1, bessel_k0e, bessel_k1e};
