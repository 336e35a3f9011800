// The Bessel functions of floats. The loops say, as simd.h does, that exceptions are not observed.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
#include "loops.h"

// J0(x) for x^2 = 32 + 32 t, -1 <= t <= 1, to 2^-52. Polynomials are absolutely as accurate as doubles are, since floats come near zeros.
PLAIT_INLINE double near_j0(double t) {
  double p = 0x1.4bc7d504c4779p-52;
  p = p * t - 0x1.9a167d13eff04p-47;
  p = p * t + 0x1.c1535dd2da30cp-42;
  p = p * t - 0x1.b3bee53f459bep-37;
  p = p * t + 0x1.71d150fb8ef66p-32;
  p = p * t - 0x1.0ff8a9ab93ae9p-27;
  p = p * t + 0x1.56a7a2d8f3018p-23;
  p = p * t - 0x1.6cc5264a684c2p-19;
  p = p * t + 0x1.42bc903372622p-15;
  p = p * t - 0x1.d11773b361daap-12;
  p = p * t + 0x1.09f3448afe526p-8;
  p = p * t - 0x1.d27f3cd0c2e4dp-6;
  p = p * t + 0x1.2afc33916d953p-3;
  p = p * t - 0x1.03d2da095b4e5p-1;
  p = p * t + 0x1.09d33c82734c7p+0;
  p = p * t - 0x1.9dbdd0f268edep-1;
  p = p * t - 0x1.4c042a76a3d9ap-1;
  p = p * t + 0x1.dc5071f1209f4p-1;
  p = p * t + 0x1.776fc5f84e280p-5;
  return p;
}

// J1(x) / x, likewise.
PLAIT_INLINE double near_j1(double t) {
  double p = 0x1.1d7653b863c36p-57;
  p = p * t - 0x1.755817e3d32fdp-52;
  p = p * t + 0x1.b28898084cbe5p-47;
  p = p * t - 0x1.c153468aa31f1p-42;
  p = p * t + 0x1.98837cb9fa303p-37;
  p = p * t - 0x1.439726e5a9b2cp-32;
  p = p * t + 0x1.b9f4137764ee4p-28;
  p = p * t - 0x1.00fdba22b21ddp-23;
  p = p * t + 0x1.f58f14a67249dp-20;
  p = p * t - 0x1.936bb4404efecp-16;
  p = p * t + 0x1.059d3114e6ffcp-12;
  p = p * t - 0x1.09f3448afe526p-9;
  p = p * t + 0x1.982f5536aa884p-7;
  p = p * t - 0x1.c07a4d5a245fdp-5;
  p = p * t + 0x1.44c7908bb221ep-3;
  p = p * t - 0x1.09d33c82734c7p-2;
  p = p * t + 0x1.364e5cb5ceb27p-3;
  p = p * t + 0x1.4c042a76a3d9ap-4;
  p = p * t - 0x1.dc5071f1209f4p-5;
  return p;
}

// Y0(x) - 2 / pi log(x) J0(x), likewise.
PLAIT_INLINE double near_y0(double t) {
  double p = -0x1.7af77ef54990ap-51;
  p = p * t + 0x1.ccd0becf2d24cp-46;
  p = p * t - 0x1.effd1aa69e5eap-41;
  p = p * t + 0x1.d7ca8824f3bd7p-36;
  p = p * t - 0x1.88011ab9784f7p-31;
  p = p * t + 0x1.1998aadbcc14fp-26;
  p = p * t - 0x1.5995ab1ecea19p-22;
  p = p * t + 0x1.651b8eda00960p-18;
  p = p * t - 0x1.31537c5ccd77ep-14;
  p = p * t + 0x1.a6a8c6c9838dap-11;
  p = p * t - 0x1.cc706012361fcp-8;
  p = p * t + 0x1.7bd6bf2ce921ap-5;
  p = p * t - 0x1.c06cc647f6aa5p-3;
  p = p * t + 0x1.5827981135a27p-1;
  p = p * t - 0x1.13da2b14a486ep+0;
  p = p * t + 0x1.272bb3b608b42p-3;
  p = p * t + 0x1.a5a81d661f788p+0;
  p = p * t - 0x1.a828bfbfdc936p-1;
  p = p * t - 0x1.876cb72f1c7ebp-2;
  return p;
}

// (Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x, likewise.
PLAIT_INLINE double near_y1(double t) {
  double p = -0x1.489bbc9daf860p-56;
  p = p * t + 0x1.a7116c2189c80p-51;
  p = p * t - 0x1.e411a981655dcp-46;
  p = p * t + 0x1.eb6369538e118p-41;
  p = p * t - 0x1.b5d40ea73d302p-36;
  p = p * t + 0x1.532f686d70a8fp-31;
  p = p * t - 0x1.c3f1d8ed81411p-27;
  p = p * t + 0x1.ff34fc77196bap-23;
  p = p * t - 0x1.e35169de5c772p-19;
  p = p * t + 0x1.76c164b8551ecp-15;
  p = p * t - 0x1.d1604f9ccacf4p-12;
  p = p * t + 0x1.c097bb98fdbc4p-9;
  p = p * t - 0x1.4198f92a31f2bp-6;
  p = p * t + 0x1.41bb6917b15dbp-4;
  p = p * t - 0x1.923952d7c42a6p-3;
  p = p * t + 0x1.e16d7a1d07b70p-3;
  p = p * t + 0x1.7edab31507d03p-6;
  p = p * t - 0x1.f26fddceafd0ep-3;
  p = p * t + 0x1.21d516f81acf6p-4;
  return p;
}

// From x = 8 on, J and Y are m sqrt(2 / (pi x)) times the cosine and the sine of x - (2 order + 1) pi / 4 + phase / x. These
// are m, to 2^-37, and the phase, to 2^-46, where (8 / x)^2 = (1 + t) / 2.
PLAIT_INLINE double size_0(double t) {
  double p = -0x1.4c84202436f2ap-30;
  p = p * t + 0x1.ad8d1960ace7fp-27;
  p = p * t - 0x1.a029826d5cfa0p-23;
  p = p * t + 0x1.7b0d528ac9aadp-18;
  p = p * t - 0x1.f37c6af770c3fp-12;
  p = p * t + 0x1.ffc0cbf57d404p-1;
  return p;
}

PLAIT_INLINE double phase_0(double t) {
  double p = -0x1.4f9f1d1830ac7p-39;
  p = p * t + 0x1.2c32a67996b7ap-37;
  p = p * t - 0x1.e2bfbe07ea562p-36;
  p = p * t + 0x1.1fce204344603p-33;
  p = p * t - 0x1.948469cdcb8e3p-31;
  p = p * t + 0x1.557b4505b6154p-28;
  p = p * t - 0x1.74c6cebfd7667p-25;
  p = p * t + 0x1.1fbcbdd35b7c6p-21;
  p = p * t - 0x1.6c57b2c1540a8p-17;
  p = p * t + 0x1.fca9766f319c5p-12;
  p = p * t - 0x1.fdf756b3b84f0p-4;
  return p;
}

PLAIT_INLINE double size_1(double t) {
  double p = 0x1.ab9ff24de2436p-30;
  p = p * t - 0x1.25a8ddec41bddp-26;
  p = p * t + 0x1.3e4bcdec5d1dcp-22;
  p = p * t - 0x1.6a248e8f78c26p-17;
  p = p * t + 0x1.7a169eb899c04p-10;
  p = p * t + 0x1.005f4003456f7p+0;
  return p;
}

PLAIT_INLINE double phase_1(double t) {
  double p = 0x1.824dcbfe4a6dep-39;
  p = p * t - 0x1.5d42dce8fa44cp-37;
  p = p * t + 0x1.1e4e69b74ff98p-35;
  p = p * t - 0x1.5b764ce65d819p-33;
  p = p * t + 0x1.f41383633627bp-31;
  p = p * t - 0x1.b589a0545b92cp-28;
  p = p * t + 0x1.f99d01f51d703p-25;
  p = p * t - 0x1.afa0953628e46p-21;
  p = p * t + 0x1.4c0898f6ee0fep-16;
  p = p * t - 0x1.44eb77ec95911p-10;
  p = p * t + 0x1.7eb5a9fde20fep-2;
  return p;
}

// The sine of x + phase / x + pi / 4 if `later`, else of x + phase / x - pi / 4, times m sqrt(2 / (pi x)). The argument of the
// polynomial is near 0 where the sine is, and so loses no bits there.
PLAIT_INLINE double far_wave(float x, double size, double phase, double inverse, bool later) {
  uint64_t quadrant;
  double r = plait_vm_quarters((double)plait_vm_absf(x), &quadrant) + phase * inverse, eighth = 0x1.921fb54442d18p-1;
  bool odd = quadrant & 1u;
  double v = plait_vm_pick(odd & later, -r, r) + plait_vm_pick(odd | later, eighth, -eighth);
  double y = plait_vm_wide_half_wave(v) * (size * sqrt(0x1.45f306dc9c883p-1 * inverse));
  return plait_vm_from_bits(plait_vm_bits(y) ^ (quadrant >> 1 << 63));
}

#define FAR(ORDER, LATER)                                                       \
  double inverse = 1.0 / (double)plait_vm_absf(x), w = 8.0 * inverse, t = 2.0 * w * w - 1.0; \
  return far_wave(x, size_##ORDER(t), phase_##ORDER(t), inverse, LATER);

PLAIT_INLINE double far_j0(float x) { FAR(0, true) }
PLAIT_INLINE double far_y0(float x) { FAR(0, false) }
PLAIT_INLINE double far_j1_of_size(float x) { FAR(1, false) }
PLAIT_INLINE double far_y1_negated(float x) { FAR(1, true) }
PLAIT_INLINE double far_j1(float x) { return plait_vm_pick(x < 0.0f, -far_j1_of_size(x), far_j1_of_size(x)); }
PLAIT_INLINE double far_y1(float x) { return -far_y1_negated(x); }

PLAIT_INLINE double place(float x) { return (double)x * (double)x * 0x1p-5 - 1.0; }

PLAIT_INLINE double small_j0(float x) { return near_j0(place(x)); }
PLAIT_INLINE double small_j1(float x) { return (double)x * near_j1(place(x)); }

// Y at 0 and below is minus infinity and NaN.
PLAIT_INLINE double y_edges(float x, double y) {
  return plait_vm_pick(x < 0.0f, PLAIT_VM_NAN, plait_vm_pick(x == 0.0f, -PLAIT_VM_INF, y));
}

PLAIT_INLINE double small_y0(float x) {
  return y_edges(x, 0x1.45f306dc9c883p-1 * plait_vm_wide_log((double)x) * small_j0(x) + near_y0(place(x)));
}

PLAIT_INLINE double small_y1(float x) {
  double v = (double)x, lead = plait_vm_wide_log(v) * small_j1(x) - 1.0 / v;
  return y_edges(x, 0x1.45f306dc9c883p-1 * lead + v * near_y1(place(x)));
}

#define J_IS_FAR(x) (plait_vm_absf(x) > 8.0f)
#define Y_IS_FAR(x) ((x) > 8.0f)
TWO_RANGES(usual_j0, J_IS_FAR, small_j0, far_j0)
TWO_RANGES(usual_j1, J_IS_FAR, small_j1, far_j1)
TWO_RANGES(usual_y0, Y_IS_FAR, small_y0, far_y0)
TWO_RANGES(usual_y1, Y_IS_FAR, small_y1, far_y1)

// From 2^20 on, angles take a longer reduction.
#define WITH_HUGE(NAME, USUAL, FUNCTION)                                                                 \
  static void NAME(float *restrict out, const float *restrict x, int64_t n) {                            \
    USUAL(out, x, n);                                                                                    \
    for (int64_t i = 0; i < n; i++) {                                                                    \
      if (plait_vm_far_trigf(x[i])) out[i] = (float)plaitk_special_of(FUNCTION, (double)x[i]);           \
    }                                                                                                    \
  }

WITH_HUGE(bessel_j0, usual_j0, SPECIAL_J0)
WITH_HUGE(bessel_j1, usual_j1, SPECIAL_J1)
WITH_HUGE(bessel_y0, usual_y0, SPECIAL_Y0)
WITH_HUGE(bessel_y1, usual_y1, SPECIAL_Y1)

const plaitk_special_loop plaitk_special_loops_jy[4] = {bessel_j0, bessel_j1, bessel_y0, bessel_y1};
