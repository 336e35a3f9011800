// The functions of elementwise programs that are neither operators nor in plait_vmath.h. Package expr documents them.
#ifndef PLAITK_ELEMENTWISE_SCALAR_H
#define PLAITK_ELEMENTWISE_SCALAR_H

#include "elementwise.h"
#include "../../../include/plait_vmath.h"

#define EW PLAIT_INLINE

// Integers are computed as unsigned, where overflow wraps.
EW int64_t ew_add_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
EW int64_t ew_sub_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
EW int64_t ew_mul_i64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
EW int64_t ew_neg_i64(int64_t a) { return (int64_t)(0 - (uint64_t)a); }
EW int64_t ew_abs_i64(int64_t a) { return a < 0 ? ew_neg_i64(a) : a; }
EW int64_t ew_sign_i64(int64_t a) { return (a > 0) - (a < 0); }
EW int64_t ew_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
EW int64_t ew_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
EW int64_t ew_bit_and_i64(int64_t a, int64_t b) { return a & b; }
EW int64_t ew_bit_or_i64(int64_t a, int64_t b) { return a | b; }
EW int64_t ew_bit_xor_i64(int64_t a, int64_t b) { return a ^ b; }
EW int64_t ew_bit_not_i64(int64_t a) { return ~a; }
EW int64_t ew_shl_i64(int64_t a, int64_t n) { return (uint64_t)n > 63 ? 0 : (int64_t)((uint64_t)a << (n & 63)); }
EW int64_t ew_shr_i64(int64_t a, int64_t n) { return a >> ((uint64_t)n > 63 ? 63 : n); }

EW int64_t ew_trunc_divide_i64(int64_t a, int64_t b) {
  if (b == -1) return ew_neg_i64(a);  // the only quotient that can overflow
  return b == 0 ? 0 : a / b;
}

EW int64_t ew_fmod_i64(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

EW int64_t ew_remainder_i64(int64_t a, int64_t b) {
  int64_t r = ew_fmod_i64(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}

EW int64_t ew_floor_divide_i64(int64_t a, int64_t b) {
  int64_t q = ew_trunc_divide_i64(a, b);
  return ew_fmod_i64(a, b) != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

EW int64_t ew_pow_i64(int64_t a, int64_t n) {
  if (n < 0) return a == 1 ? 1 : a == -1 ? 1 - 2 * (n & 1) : 0;
  uint64_t r = 1, p = (uint64_t)a;
  for (; n > 0; n >>= 1, p *= p) r *= n & 1 ? p : 1;
  return (int64_t)r;
}

// Quotients of 32 bits take half the time.
EW int64_t ew_gcd_i64(int64_t a, int64_t b) {
  uint64_t x = (uint64_t)ew_abs_i64(a), y = (uint64_t)ew_abs_i64(b), large = x < y ? y : x, small = x < y ? x : y;
  while (small != 0 && large >> 32 != 0) {
    uint64_t r = large % small;
    large = small;
    small = r;
  }
  uint32_t p = (uint32_t)large, q = (uint32_t)small;
  if (q == 0) return (int64_t)large;
  while (q != 0) {
    uint32_t r = p % q;
    p = q;
    q = r;
  }
  return (int64_t)p;
}

// Floats.
EW float ew_abs_f32(float x) { return plait_vm_absf(x); }
EW double ew_abs_f64(double x) { return plait_vm_abs(x); }
EW float ew_sign_f32(float x) { return (x > 0 ? 1.0f : 0.0f) - (x < 0 ? 1.0f : 0.0f); }
EW double ew_sign_f64(double x) { return (x > 0 ? 1.0 : 0.0) - (x < 0 ? 1.0 : 0.0); }
// NaN if either is. Where b is a constant, this is one comparison.
EW float ew_min_f32(float a, float b) { return plait_vm_pickf((b == b) & !(a >= b), a, b); }
EW double ew_min_f64(double a, double b) { return plait_vm_pick((b == b) & !(a >= b), a, b); }
EW float ew_max_f32(float a, float b) { return plait_vm_pickf((b == b) & !(a <= b), a, b); }
EW double ew_max_f64(double a, double b) { return plait_vm_pick((b == b) & !(a <= b), a, b); }
EW float ew_floor_f32(float x) { return plait_vm_floorf(x); }
EW double ew_floor_f64(double x) { return plait_vm_floor(x); }
EW float ew_ceil_f32(float x) { return plait_vm_ceilf(x); }
EW double ew_ceil_f64(double x) { return plait_vm_ceil(x); }
EW float ew_round_f32(float x) { return plait_vm_roundf(x); }
EW double ew_round_f64(double x) { return plait_vm_round(x); }
EW float ew_trunc_f32(float x) { return plait_vm_truncf(x); }
EW double ew_trunc_f64(double x) { return plait_vm_trunc(x); }
EW float ew_sqrt_f32(float x) { return plait_vm_sqrtf(x); }
EW double ew_sqrt_f64(double x) { return plait_vm_sqrt(x); }
EW float ew_rsqrt_f32(float x) { return plait_vm_rsqrtf(x); }
EW double ew_rsqrt_f64(double x) { return plait_vm_rsqrt(x); }
EW float ew_copysign_f32(float x, float s) { return plait_vm_copysignf(x, s); }
EW double ew_copysign_f64(double x, double s) { return plait_vm_copysign(x, s); }
EW bool ew_isnan_f32(float x) { return x != x; }
EW bool ew_isnan_f64(double x) { return x != x; }
EW bool ew_isinf_f32(float x) { return plait_vm_absf(x) == PLAIT_VM_INFF; }
EW bool ew_isinf_f64(double x) { return plait_vm_abs(x) == PLAIT_VM_INF; }

EW double ew_hypot_f64(double x, double y) { return hypot(x, y); }

// In double precision, the squares of floats neither overflow nor underflow.
EW float ew_hypot_f32(float x, float y) {
  double a = x, b = y;
  float r = (float)sqrt(a * a + b * b);
  bool infinite = ew_isinf_f32(x) | ew_isinf_f32(y);
  return infinite ? PLAIT_VM_INFF : r;
}

// The Hurwitz zeta function.
double plaitk_elementwise_zeta(double s, double q);
EW double ew_zeta_f64(double s, double q) { return plaitk_elementwise_zeta(s, q); }
EW float ew_zeta_f32(float s, float q) {
  return plait_vm_far_zetaf(s, q) ? (float)plaitk_elementwise_zeta(s, q) : plait_vm_near_zetaf(s, q);
}

#undef EW

// How many arguments a loop tests at a time for whether all are near: they stay in the L1 cache.
#define PLAITK_ELEMENTWISE_PART 2048

// The declaration of a loop.
#define PLAITK_ELEMENTWISE_LOOP(name)                                        \
  static int64_t name(void *const *in __attribute__((unused)), void *const *out, \
                      const plaitk_scalar *attr __attribute__((unused)), int64_t n)

#endif
