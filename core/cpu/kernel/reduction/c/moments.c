// Mean and sum of squared deviations. Each block takes two passes; blocks are merged by Chan, Golub and LeVeque's
// formula.
#include "reduction.h"

// Elements of a lane that are summed before the partial sum is added to the rest.
#define CHAIN 16

// moments_add merges a block of n elements with the given mean and sum of squared deviations into state k.
PLAIT_INLINE void moments_add(struct state s, int64_t k, double n, double block_mean, double block_m2) {
  double *count = s.a, *mean = s.b, *m2 = s.c;
  double before = count[k], total = before + n, delta = block_mean - mean[k];
  count[k] = total;
  mean[k] = before == 0 ? block_mean : merged_mean(mean[k], block_mean, n, total);
  m2[k] = before == 0 ? block_m2 : m2[k] + block_m2 + delta * delta * (before * n / total);
}

// corrected_mean adds the correction `shift` to a rounded mean. With an infinite mean there are no deviations, and
// shift is NaN.
PLAIT_INLINE double corrected_mean(double mean, double shift) { return shift == shift ? mean + shift : mean; }

// The deviations are taken from a rounded mean, and their own sum corrects for the rounding.
#define MOMENTS_LEAF(NAME, T, C, L, LOAD)                                                                   \
  PLAIT_CLONES static void NAME##_rows(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                  \
    for (int64_t k = 0; k < rows; k++) {                                                                    \
      const T *p = (const T *)in + k * stride;                                                              \
      C sum;                                                                                                \
      double off, m2;                                                                                       \
      FOLD_ROW(sum, p, n, C, L, LOAD, 0, OP_ADD);                                                           \
      C center = sum / (C)n;                                                                                \
      DEVIATIONS(off, m2, p, n, T, C, L, LOAD, center);                                                     \
      double shift = off / (double)n, v = m2 - shift * off;                                                 \
      moments_add(s, k, (double)n, corrected_mean((double)center, shift), v < 0 ? 0 : v);                   \
    }                                                                                                       \
  }                                                                                                         \
  PLAIT_CLONES static void NAME##_cols(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                  \
    const T *p = in;                                                                                        \
    C center[REDUCE_WIDTH_TWO], off[REDUCE_WIDTH_TWO], m2[REDUCE_WIDTH_TWO];                                \
    SIMD for (int64_t j = 0; j < n; j++) center[j] = off[j] = m2[j] = 0;                                    \
    FOLD_COLS(center, p, rows, stride, n, s.far, C, LOAD, OP_ADD);                                          \
    SIMD for (int64_t j = 0; j < n; j++) center[j] /= (C)rows;                                              \
    int64_t r = 0;                                                                                          \
    for (; r + 4 <= rows; r += 4) {                                                                         \
      const T *q = p + r * stride;                                                                          \
      SIMD for (int64_t j = 0; j < n; j++) {                                                                \
        C d0 = LOAD(q[j]) - center[j], d1 = LOAD(q[j + stride]) - center[j];                                \
        C d2 = LOAD(q[j + 2 * stride]) - center[j], d3 = LOAD(q[j + 3 * stride]) - center[j];               \
        off[j] += (d0 + d1) + (d2 + d3);                                                                    \
        m2[j] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);                                                 \
      }                                                                                                     \
    }                                                                                                       \
    for (; r < rows; r++) {                                                                                 \
      const T *q = p + r * stride;                                                                          \
      SIMD for (int64_t j = 0; j < n; j++) {                                                                \
        C d = LOAD(q[j]) - center[j];                                                                       \
        off[j] += d;                                                                                        \
        m2[j] += d * d;                                                                                     \
      }                                                                                                     \
    }                                                                                                       \
    SIMD for (int64_t j = 0; j < n; j++) {                                                                  \
      double shift = (double)off[j] / (double)rows, v = (double)m2[j] - shift * (double)off[j];             \
      moments_add(s, j, (double)rows, corrected_mean((double)center[j], shift), v < 0 ? 0 : v);             \
    }                                                                                                       \
  }

// DEVIATIONS sets off and m2 to the sums of x - center and of its square over p[0..n-1]. Lanes are as in FOLD_ROW; each
// lane sums CHAIN elements at a time, and lanes are added in float64. Short chains matter: elements far from zero have
// few digits left after the subtraction, and a long float32 sum of their squares is rounded down more often than up.
#define DEVIATIONS(off, m2, p, n, T, C, L, LOAD, center)               \
  do {                                                                 \
    enum { H = (L) / 2 };                                              \
    C o_[H], q_[H];                                                    \
    SIMD for (int j = 0; j < H; j++) o_[j] = q_[j] = 0;                \
    int64_t i_ = 0;                                                    \
    while (i_ + H <= (n)) {                                            \
      int64_t end_ = i_ + CHAIN * H < (n) ? i_ + CHAIN * H : (n);      \
      C u_[H], v_[H];                                                  \
      SIMD for (int j = 0; j < H; j++) u_[j] = v_[j] = 0;              \
      for (; i_ + H <= end_; i_ += H) {                                \
        SIMD for (int j = 0; j < H; j++) {                             \
          C d_ = LOAD((p)[i_ + j]) - (center);                         \
          u_[j] += d_;                                                 \
          v_[j] += d_ * d_;                                            \
        }                                                              \
      }                                                                \
      SIMD for (int j = 0; j < H; j++) o_[j] += u_[j], q_[j] += v_[j]; \
    }                                                                  \
    int rest_ = (int)((n) - i_);                                       \
    if (rest_ > 0) {                                                   \
      SIMD for (int j = 0; j < H; j++) {                               \
        T e_ = j < rest_ ? (p)[i_ + j] : 0;                            \
        C d_ = PICK_##C(j < rest_, LOAD(e_) - (center), 0);            \
        o_[j] += d_;                                                   \
        q_[j] += d_ * d_;                                              \
      }                                                                \
    }                                                                  \
    FOLD_ROW(off, o_, (int)H, double, L, LOAD_SAME, 0, OP_ADD);        \
    FOLD_ROW(m2, q_, (int)H, double, L, LOAD_SAME, 0, OP_ADD);         \
  } while (0)

MOMENTS_LEAF(moments_f16, uint16_t, float, 64, LOAD_F16)
MOMENTS_LEAF(moments_bf16, uint16_t, float, 64, LOAD_BF16)
MOMENTS_LEAF(moments_f32, float, float, 64, LOAD_SAME)
MOMENTS_LEAF(moments_f64, double, double, 32, LOAD_SAME)

const struct leaf *plaitk_reduction_moments_leaf(int dtype) {
  static const struct leaf leaves[] = {LEAF(moments_f16), LEAF(moments_bf16), LEAF(moments_f32), LEAF(moments_f64)};
  return plait_is_float(dtype) ? &leaves[dtype - PLAIT_F16] : NULL;
}
