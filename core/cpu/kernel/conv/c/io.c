#include "io.h"

#include "../../../include/plait_kernel.h"

PLAIT_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

#define SAME(x) (x)

#define IO(NAME, S, T, LOAD, STORE)                                                                                    \
  PLAIT_CLONES static void fill_##NAME(void *vdst, const void *vsrc, const plaitk_conv_box *box) {                     \
    const S *src = vsrc;                                                                                               \
    int64_t step = box->step[2], start = box->start[2], n = box->n[2], width = box->width;                             \
    int64_t hi = box->size[2] > start ? ceil_div(box->size[2] - start, step) : 0;                                      \
    hi = hi < n ? hi : n;                                                                                              \
    int64_t lo = start < 0 ? ceil_div(-start, step) : 0;                                                               \
    lo = lo < hi ? lo : hi;                                                                                            \
    for (int64_t z = 0; z < box->n[0]; z++) {                                                                          \
      int64_t iz = box->start[0] + z * box->step[0];                                                                   \
      for (int64_t y = 0; y < box->n[1]; y++) {                                                                        \
        int64_t iy = box->start[1] + y * box->step[1];                                                                 \
        T *dst = (T *)vdst + z * box->pitch[0] + y * box->pitch[1];                                                    \
        if (iz < 0 || iz >= box->size[0] || iy < 0 || iy >= box->size[1]) {                                            \
          _Pragma("omp simd") for (int64_t e = 0; e < width; e++) dst[e] = 0;                                          \
          continue;                                                                                                    \
        }                                                                                                              \
        const S *row = src + (iz * box->size[1] + iy) * box->size[2] + start;                                          \
        for (int64_t e = 0; e < lo; e++) dst[e] = 0;                                                                   \
        if (step == 1) {                                                                                               \
          _Pragma("omp simd") for (int64_t e = lo; e < hi; e++) dst[e] = LOAD(row[e]);                                 \
        } else if (step == 2) {                                                                                        \
          _Pragma("omp simd") for (int64_t e = lo; e < hi; e++) dst[e] = LOAD(row[2 * e]);                             \
        } else {                                                                                                       \
          for (int64_t e = lo; e < hi; e++) dst[e] = LOAD(row[e * step]);                                              \
        }                                                                                                              \
        for (int64_t e = hi; e < width; e++) dst[e] = 0;                                                               \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  PLAIT_CLONES static void spread_##NAME(void *vdst, int64_t pitch, const void *vsrc, int64_t row, int64_t step,       \
                                         int64_t rows, int64_t cols) {                                                 \
    for (int64_t y = 0; y < rows; y++) {                                                                               \
      T *dst = (T *)vdst + y * pitch;                                                                                  \
      const S *src = (const S *)vsrc + y * row;                                                                        \
      if (step == 1) {                                                                                                 \
        _Pragma("omp simd") for (int64_t x = 0; x < cols; x++) dst[x] = LOAD(src[x]);                                  \
      } else if (step == 2) {                                                                                          \
        _Pragma("omp simd") for (int64_t x = 0; x < cols; x++) dst[x] = LOAD(src[2 * x]);                              \
      } else {                                                                                                         \
        for (int64_t x = 0; x < cols; x++) dst[x] = LOAD(src[x * step]);                                               \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  PLAIT_INLINE void pack_rows_##NAME(T *dst, const S *src, const plaitk_conv_weights *w, int64_t rows,                 \
                                     int64_t count) {                                                                  \
    for (int64_t c = 0; c < w->channels; c++) {                                                                        \
      for (int64_t z = 0; z < w->nt[0]; z++) {                                                                         \
        for (int64_t y = 0; y < w->nt[1]; y++) {                                                                       \
          int64_t tap = (w->tap0[0] + z * w->tap_step[0]) * w->kernel[1] + w->tap0[1] + y * w->tap_step[1];            \
          const S *s = src + c * w->c_stride + tap * w->kernel[2] + w->tap0[2];                                        \
          for (int64_t x = 0; x < w->nt[2]; x++, s += w->tap_step[2], dst += rows) {                                   \
            for (int64_t i = 0; i < count; i++) dst[i] = LOAD(s[i * w->m_stride]);                                     \
            for (int64_t i = count; i < rows; i++) dst[i] = 0;                                                         \
          }                                                                                                            \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  static void pack_##NAME(void *dst, const void *src, const plaitk_conv_weights *w, int64_t m, int64_t rows,           \
                          int64_t count) {                                                                             \
    const S *s = (const S *)src + m * w->m_stride;                                                                     \
    if (count == rows && rows == 8) {                                                                                  \
      pack_rows_##NAME(dst, s, w, 8, 8);                                                                               \
    } else if (count == rows && rows == 4) {                                                                           \
      pack_rows_##NAME(dst, s, w, 4, 4);                                                                               \
    } else {                                                                                                           \
      pack_rows_##NAME(dst, s, w, rows, count);                                                                        \
    }                                                                                                                  \
  }                                                                                                                    \
  PLAIT_CLONES static void store_##NAME(void *vdst, int64_t row, int64_t step, const void *vsrc, int64_t pitch,        \
                                        int64_t rows, int64_t cols, const void *vbias) {                               \
    T bias = vbias ? LOAD(*(const S *)vbias) : 0;                                                                      \
    for (int64_t y = 0; y < rows; y++) {                                                                               \
      S *dst = (S *)vdst + y * row;                                                                                    \
      const T *src = (const T *)vsrc + y * pitch;                                                                      \
      if (step == 1) {                                                                                                 \
        _Pragma("omp simd") for (int64_t x = 0; x < cols; x++) dst[x] = STORE(src[x] + bias);                          \
      } else {                                                                                                         \
        for (int64_t x = 0; x < cols; x++) dst[x * step] = STORE(src[x] + bias);                                       \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  PLAIT_CLONES static void fold_##NAME(void *vdst, const void *vsrc, const int *first, const int *term, int64_t n,     \
                                       const void *vbias) {                                                            \
    S *dst = vdst;                                                                                                     \
    const T *src = vsrc;                                                                                               \
    T bias = vbias ? LOAD(*(const S *)vbias) : 0;                                                                      \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
      T sum = 0;                                                                                                       \
      for (int k = first[i]; k < first[i + 1]; k++) sum += src[term[k]];                                               \
      dst[i] = STORE(sum + bias);                                                                                      \
    }                                                                                                                  \
  }                                                                                                                    \
  PLAIT_CLONES static void sum_##NAME(void *vdst, const void *vsrc, int64_t stride, int64_t count, int64_t n) {        \
    S *dst = vdst;                                                                                                     \
    const T *src = vsrc;                                                                                               \
    for (int64_t i = 0; i < n; i += 256) {                                                                             \
      int64_t len = n - i < 256 ? n - i : 256;                                                                         \
      T s[256];                                                                                                        \
      _Pragma("omp simd") for (int64_t j = 0; j < len; j++) s[j] = src[i + j];                                         \
      for (int64_t k = 1; k < count; k++) {                                                                            \
        const T *p = src + k * stride + i;                                                                             \
        _Pragma("omp simd") for (int64_t j = 0; j < len; j++) s[j] += p[j];                                            \
      }                                                                                                                \
      _Pragma("omp simd") for (int64_t j = 0; j < len; j++) dst[i + j] = STORE(s[j]);                                  \
    }                                                                                                                  \
  }                                                                                                                    \
  static const plaitk_conv_io io_##NAME = {sizeof(S),   sizeof(T),    fill_##NAME, spread_##NAME,                      \
                                           pack_##NAME, store_##NAME, fold_##NAME, sum_##NAME};

IO(f16, uint16_t, float, plait_f16_to_f32, plait_f32_to_f16)
IO(bf16, uint16_t, float, plait_bf16_to_f32, plait_f32_to_bf16)
IO(f32, float, float, SAME, SAME)
IO(f64, double, double, SAME, SAME)

const plaitk_conv_io *plaitk_conv_io_for(int64_t dtype) {
  switch (dtype) {
    case PLAIT_F16: return &io_f16;
    case PLAIT_BF16: return &io_bf16;
    case PLAIT_F32: return &io_f32;
    case PLAIT_F64: return &io_f64;
  }
  return NULL;
}
