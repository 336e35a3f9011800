#include "dot.h"

enum {
  LANES = 64,    // sums of a block of real numbers
  PAIRS = 32,    // of each product of the parts of complex ones
  BLOCK = 4096,  // elements whose products are summed in the elements' type
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

// Writes the sum of the products of real numbers to sums[0]. Of complex numbers sums has those of the real parts, of the
// imaginary parts, and of real parts with imaginary ones in either order.
#define DOT(T)                                                                                       \
  PLAIT_CLONES static void dot_##T(const T *x, const T *y, int64_t n, double *sums) {                \
    double total = 0;                                                                                \
    for (int64_t from = 0; from < n; from += BLOCK) {                                                \
      const T *p = x + from, *q = y + from;                                                          \
      int64_t i = 0, count = min64(BLOCK, n - from);                                                 \
      T sum[LANES] = {0};                                                                            \
      for (; i + LANES <= count; i += LANES) {                                                       \
        _Pragma("omp simd") for (int j = 0; j < LANES; j++) sum[j] += p[i + j] * q[i + j];           \
      }                                                                                              \
      for (int j = 0; i < count; i++, j++) sum[j] += p[i] * q[i];                                    \
      for (int h = LANES / 2; h > 0; h /= 2) {                                                       \
        _Pragma("omp simd") for (int j = 0; j < h; j++) sum[j] += sum[j + h];                        \
      }                                                                                              \
      total += (double)sum[0];                                                                       \
    }                                                                                                \
    sums[0] = total;                                                                                 \
  }                                                                                                  \
  PLAIT_CLONES static void dot_complex_##T(const T *x, const T *y, int64_t n, double *sums) {        \
    for (int k = 0; k < 4; k++) sums[k] = 0;                                                         \
    for (int64_t from = 0; from < n; from += BLOCK) {                                                \
      const T *p = x + 2 * from, *q = y + 2 * from;                                                  \
      int64_t i = 0, count = min64(BLOCK, n - from);                                                 \
      T same[2 * PAIRS] = {0}, other[2 * PAIRS] = {0};                                               \
      for (; i + PAIRS <= count; i += PAIRS, p += 2 * PAIRS, q += 2 * PAIRS) {                       \
        _Pragma("omp simd") for (int j = 0; j < 2 * PAIRS; j++) same[j] += p[j] * q[j];              \
        _Pragma("omp simd") for (int j = 0; j < 2 * PAIRS; j += 2) {                                 \
          other[j] += p[j] * q[j + 1], other[j + 1] += p[j + 1] * q[j];                              \
        }                                                                                            \
      }                                                                                              \
      for (int j = 0; i + j / 2 < count; j += 2) {                                                   \
        same[j] += p[j] * q[j], same[j + 1] += p[j + 1] * q[j + 1];                                  \
        other[j] += p[j] * q[j + 1], other[j + 1] += p[j + 1] * q[j];                                \
      }                                                                                              \
      for (int h = PAIRS; h > 1; h /= 2) {                                                           \
        _Pragma("omp simd") for (int j = 0; j < h; j++) same[j] += same[j + h], other[j] += other[j + h]; \
      }                                                                                              \
      for (int k = 0; k < 2; k++) sums[k] += (double)same[k], sums[2 + k] += (double)other[k];       \
    }                                                                                                \
  }
DOT(float)
DOT(double)

typedef struct {
  int dtype, complex;
  const char *x, *y;
  int64_t n;
  double *sums;
} dot;

static void dot_piece(void *arg, int64_t piece) {
  const dot *d = arg;
  int64_t from = piece * PLAITK_DOT_PIECE, n = min64(PLAITK_DOT_PIECE, d->n - from);
  int64_t at = from * plait_dtype_size(d->dtype) * (d->complex ? 2 : 1);
  const void *x = d->x + at, *y = d->y + at;
  double *sums = d->sums + piece * PLAITK_DOT_SUMS;
  if (d->dtype == PLAIT_F32) (d->complex ? dot_complex_float : dot_float)(x, y, n, sums);
  else (d->complex ? dot_complex_double : dot_double)(x, y, n, sums);
}

static void store(void *out, int dtype, int64_t i, double v) {
  if (dtype == PLAIT_F32) ((float *)out)[i] = (float)v;
  else ((double *)out)[i] = v;
}

void plaitk_matmul_dot(plait_pool *pool, int dtype, int complex, int conjugate, const void *x, const void *y, int64_t n, void *out,
                       double *sums) {
  dot d = {dtype, complex, x, y, n, sums};
  int64_t pieces = (n + PLAITK_DOT_PIECE - 1) / PLAITK_DOT_PIECE;
  if (pieces == 1) dot_piece(&d, 0);
  else plait_parallel(pool, pieces, dot_piece, &d);
  double total[PLAITK_DOT_SUMS] = {0};
  for (int64_t i = 0; i < pieces; i++) {
    for (int k = 0; k < (complex ? PLAITK_DOT_SUMS : 1); k++) total[k] += sums[i * PLAITK_DOT_SUMS + k];
  }
  if (!complex) {
    store(out, dtype, 0, total[0]);
    return;
  }
  store(out, dtype, 0, conjugate ? total[0] + total[1] : total[0] - total[1]);
  store(out, dtype, 1, conjugate ? total[2] - total[3] : total[2] + total[3]);
}
