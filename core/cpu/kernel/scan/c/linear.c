// The linear recurrences in the derivatives of scans, on contiguous [outer, n, inner] tensors of floats; float32 is
// computed in double:
//   forward   y[i] = b[i] + a[i] y[i-1]
//   reverse   y[i] = b[i] + a[i+1] y[i+1]
// Each is the other's derivative with respect to b.
#include "scan.h"

#define LINEAR_LEAVES(NAME, T, C, LOAD, STORE)                                                                         \
  static void NAME##_rows(const struct plaitk_linear *l, int64_t first, int64_t last) {                                \
    for (int64_t k = first; k < last; k++) {                                                                           \
      int64_t start = k / l->inner * l->n * l->inner + k % l->inner, step = l->inner;                                  \
      const T *a = (const T *)l->a + start, *b = (const T *)l->b + start;                                              \
      T *y = (T *)l->y + start;                                                                                        \
      C v = 0;                                                                                                         \
      if (l->reverse) {                                                                                                \
        for (int64_t i = l->n - 1; i >= 0; i--) {                                                                      \
          v = LOAD(b[i * step]) + (i + 1 < l->n ? LOAD(a[(i + 1) * step]) * v : 0);                                    \
          y[i * step] = (T)STORE(v);                                                                                   \
        }                                                                                                              \
      } else {                                                                                                         \
        for (int64_t i = 0; i < l->n; i++) {                                                                           \
          v = LOAD(b[i * step]) + (i > 0 ? LOAD(a[i * step]) * v : 0);                                                 \
          y[i * step] = (T)STORE(v);                                                                                   \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  PLAIT_CLONES static void NAME##_columns(const struct plaitk_linear *l, int64_t first, int64_t last) {                \
    int64_t start = first / l->inner * l->n * l->inner + first % l->inner, width = last - first;                       \
    C v[SCAN_WIDTH];                                                                                                   \
    for (int64_t k = 0; k < l->n; k++) {                                                                               \
      int64_t i = l->reverse ? l->n - 1 - k : k;                                                                       \
      const T *b = (const T *)l->b + start + i * l->inner, *a = (const T *)l->a + start + (i + l->reverse) * l->inner; \
      T *y = (T *)l->y + start + i * l->inner;                                                                         \
      if (k == 0) {                                                                                                    \
        SIMD for (int64_t j = 0; j < width; j++) v[j] = LOAD(b[j]);                                                    \
      } else {                                                                                                         \
        SIMD for (int64_t j = 0; j < width; j++) v[j] = LOAD(b[j]) + LOAD(a[j]) * v[j];                                \
      }                                                                                                                \
      SIMD for (int64_t j = 0; j < width; j++) y[j] = (T)STORE(v[j]);                                                  \
    }                                                                                                                  \
  }

LINEAR_LEAVES(linear_f16, uint16_t, float, LOAD_F16, STORE_F16)
LINEAR_LEAVES(linear_bf16, uint16_t, float, LOAD_BF16, STORE_BF16)
LINEAR_LEAVES(linear_f32, float, double, LOAD_SAME, STORE_SAME)
LINEAR_LEAVES(linear_f64, double, double, LOAD_SAME, STORE_SAME)

// The same for complex numbers, whose strides are in pairs.
#define PAIR_LEAVES(NAME, T)                                                                                           \
  static void NAME##_rows(const struct plaitk_linear *l, int64_t first, int64_t last) {                                \
    for (int64_t k = first; k < last; k++) {                                                                           \
      int64_t start = k / l->inner * l->n * l->inner + k % l->inner, step = l->reverse ? -l->inner : l->inner;         \
      if (l->reverse) start += (l->n - 1) * l->inner;                                                                  \
      const T *a = (const T *)l->a + 2 * (start + (l->reverse ? l->inner : 0)), *b = (const T *)l->b + 2 * start;      \
      T *y = (T *)l->y + 2 * start;                                                                                    \
      double re = b[0], im = b[1];                                                                                     \
      y[0] = (T)re, y[1] = (T)im;                                                                                      \
      for (int64_t i = 1; i < l->n; i++) {                                                                             \
        int64_t at = 2 * i * step;                                                                                     \
        double c = a[at], d = a[at + 1], up = b[at] + c * re - d * im;                                                 \
        im = b[at + 1] + c * im + d * re, re = up;                                                                     \
        y[at] = (T)re, y[at + 1] = (T)im;                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  PLAIT_CLONES static void NAME##_columns(const struct plaitk_linear *l, int64_t first, int64_t last) {                \
    int64_t start = first / l->inner * l->n * l->inner + first % l->inner, width = last - first;                       \
    double re[SCAN_WIDTH], im[SCAN_WIDTH];                                                                             \
    for (int64_t k = 0; k < l->n; k++) {                                                                               \
      int64_t i = l->reverse ? l->n - 1 - k : k, at = start + i * l->inner;                                            \
      const T *b = (const T *)l->b + 2 * at, *a = (const T *)l->a + 2 * (at + l->reverse * l->inner);                  \
      T *y = (T *)l->y + 2 * at;                                                                                       \
      if (k == 0) {                                                                                                    \
        SIMD for (int64_t j = 0; j < width; j++) re[j] = b[2 * j], im[j] = b[2 * j + 1];                               \
      } else {                                                                                                         \
        SIMD for (int64_t j = 0; j < width; j++) {                                                                     \
          double c = a[2 * j], d = a[2 * j + 1], u = re[j], v = im[j];                                                 \
          re[j] = b[2 * j] + c * u - d * v, im[j] = b[2 * j + 1] + c * v + d * u;                                      \
        }                                                                                                              \
      }                                                                                                                \
      SIMD for (int64_t j = 0; j < width; j++) y[2 * j] = (T)re[j], y[2 * j + 1] = (T)im[j];                           \
    }                                                                                                                  \
  }

PAIR_LEAVES(pairs_f32, float)
PAIR_LEAVES(pairs_f64, double)

typedef void (*linear_leaf)(const struct plaitk_linear *l, int64_t first, int64_t last);

static const linear_leaf rows[] = {linear_f16_rows, linear_bf16_rows, linear_f32_rows, linear_f64_rows, pairs_f32_rows, pairs_f64_rows};
static const linear_leaf columns[] = {linear_f16_columns, linear_bf16_columns, linear_f32_columns, linear_f64_columns,
                                      pairs_f32_columns, pairs_f64_columns};

static int64_t place(const struct plaitk_linear *l) { return l->dtype - PLAIT_F16 + 2 * l->pairs; }

static void chunk_of(void *arg, int64_t chunk) {
  const struct plaitk_linear *l = arg;
  int64_t lines = l->outer * l->inner;
  if (!l->columns) {
    int64_t first = chunk * l->unit, last = first + l->unit;
    rows[place(l)](l, first, last < lines ? last : lines);
    return;
  }
  int64_t blocks = (l->inner + SCAN_WIDTH - 1) / SCAN_WIDTH, groups = l->outer * blocks;
  for (int64_t g = chunk * l->unit; g < (chunk + 1) * l->unit && g < groups; g++) {
    int64_t col = g % blocks * SCAN_WIDTH, width = l->inner - col < SCAN_WIDTH ? l->inner - col : SCAN_WIDTH;
    int64_t first = g / blocks * l->inner + col;
    columns[place(l)](l, first, first + width);
  }
}

int64_t plaitk_scan_linear(plait_pool *pool, const struct plaitk_linear *l) {
  if (!plait_is_float(l->dtype)) return 1;
  int64_t groups = l->outer * (l->columns ? (l->inner + SCAN_WIDTH - 1) / SCAN_WIDTH : l->inner);
  plait_parallel(pool, (groups + l->unit - 1) / l->unit, chunk_of, (void *)l);
  return 0;
}
