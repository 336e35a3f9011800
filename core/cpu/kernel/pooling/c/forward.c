#include <float.h>
#include <math.h>

#include "../../../include/plait_slots.h"
#include "windows.h"

#define min plaitk_pooling_min
#define max plaitk_pooling_max_of
#define NO_ROW INT32_MAX

typedef struct {
  const plaitk_pooling_shape *s;
  const void *x;
  void *y;
  int64_t *index;
  int64_t rows, chunk;  // rows of output, and rows per chunk
  void (*run)(const plaitk_pooling_shape *s, const void *x, void *y, int64_t *index, int64_t first, int64_t last,
              char *buffers);
  plait_slots slots;
} job;

#define SAME(x) (x)

#define FIRST_PASS(STRIDE) \
  _Pragma("omp simd") for (int64_t o = 0; o < out; o++) best[o] = m[o * (STRIDE)];

// Computes the maximum of each window's columns. best[o] starts as column o * stride of the buffer; each further tap
// replaces it if it is larger. GO is one such pass with a constant stride, so that it vectorises.
#define MAX_PASS(STRIDE)                                                                                              \
  _Pragma("omp simd") for (int64_t o = 0; o < out; o++) {                                                             \
    T v = m[o * (STRIDE) + at];                                                                                       \
    best[o] = (v > best[o]) | (v != v) ? v : best[o];                                                                 \
  }
#define MAX_PASS_INDEX(STRIDE)                                                                                        \
  _Pragma("omp simd") for (int64_t o = 0; o < out; o++) {                                                             \
    T v = m[o * (STRIDE) + at];                                                                                       \
    int32_t r = row_of[o * (STRIDE) + at];                                                                            \
    int take = (v > best[o]) | (v != v) | ((v == best[o]) & (r < best_row[o]));                                       \
    best[o] = take ? v : best[o];                                                                                     \
    best_row[o] = take ? r : best_row[o];                                                                             \
    best_tap[o] = take ? (int32_t)k : best_tap[o];                                                                    \
  }
#define PASS(BODY)                                                                                                    \
  if (stride == 1) {                                                                                                  \
    BODY(1)                                                                                                           \
  } else if (stride == 2) {                                                                                           \
    BODY(2)                                                                                                           \
  } else if (stride == 3) {                                                                                           \
    BODY(3)                                                                                                           \
  } else {                                                                                                            \
    BODY(stride)                                                                                                      \
  }

#define T_BUFFERS(T) /* the buffers of a slot, in their order */                                                      \
  int64_t left = plaitk_pooling_left(s), width = plaitk_pooling_width(s), in = s->in[2], out = s->out[2];             \
  int64_t stride = s->stride[2];                                                                                      \
  T *m = (T *)buffers, *best = m + left + width;                                                                      \
  int32_t *row_of = (int32_t *)(best + out), *best_row = row_of + left + width, *best_tap = best_row + out;           \
  (void)stride, (void)row_of, (void)best_row, (void)best_tap

// Runs BODY for the rows of one window, in order.
#define EACH_ROW(BODY)                                                                                                \
  int64_t plane = r / (s->out[0] * s->out[1]), oz = r / s->out[1] % s->out[0], oy = r % s->out[1];                    \
  plaitk_pooling_window wz = plaitk_pooling_window_at(s, 0, oz), wy = plaitk_pooling_window_at(s, 1, oy);             \
  for (int64_t i = 0; i < wz.count; i++) {                                                                            \
    for (int64_t j = 0; j < wy.count; j++) {                                                                          \
      int64_t line = (wz.start + i * wz.step) * s->in[1] + wy.start + j * wy.step;                                    \
      const S *row = (const S *)x + (plane * s->in[0] * s->in[1] + line) * in;                                        \
      BODY                                                                                                            \
    }                                                                                                                 \
  }

#define MAX(NAME, ATTR, S_, T_, LOAD, STORE, LOWEST)                                                                  \
  ATTR static void max_##NAME(const plaitk_pooling_shape *s, const void *x, void *vy, int64_t *index,                 \
                                      int64_t first, int64_t last, char *buffers) {                                   \
    typedef S_ S;                                                                                                     \
    typedef T_ T;                                                                                                     \
    T_BUFFERS(T);                                                                                                     \
    for (int64_t r = first; r < last; r++) {                                                                          \
      S *y = (S *)vy + r * out;                                                                                       \
      _Pragma("omp simd") for (int64_t c = 0; c < left + width; c++) m[c] = LOWEST;                                   \
      if (index) {                                                                                                    \
        _Pragma("omp simd") for (int64_t c = 0; c < left + width; c++) row_of[c] = NO_ROW;                            \
      }                                                                                                               \
      T *mi = m + left;                                                                                               \
      int32_t *ri = row_of + left;                                                                                    \
      EACH_ROW({                                                                                                      \
        int32_t number = (int32_t)line;                                                                               \
        if (index) {                                                                                                  \
          _Pragma("omp simd") for (int64_t c = 0; c < in; c++) {                                                      \
            T v = LOAD(row[c]);                                                                                       \
            int take = (v > mi[c]) | (v != v) | (ri[c] == NO_ROW);                                                    \
            mi[c] = take ? v : mi[c];                                                                                 \
            ri[c] = take ? number : ri[c];                                                                            \
          }                                                                                                           \
        } else {                                                                                                      \
          _Pragma("omp simd") for (int64_t c = 0; c < in; c++) {                                                      \
            T v = LOAD(row[c]);                                                                                       \
            mi[c] = (v > mi[c]) | (v != v) ? v : mi[c];                                                               \
          }                                                                                                           \
        }                                                                                                             \
      })                                                                                                              \
      if (s->adaptive) {                                                                                              \
        for (int64_t o = 0; o < out; o++) {                                                                           \
          plaitk_pooling_window w = plaitk_pooling_window_at(s, 2, o);                                                \
          int64_t at = w.start;                                                                                       \
          for (int64_t c = w.start + 1; c < w.start + w.count; c++) {                                                 \
            int take = (m[c] > m[at]) | (m[c] != m[c]);                                                               \
            if (index) take |= (m[c] == m[at]) & (row_of[c] < row_of[at]);                                            \
            at = take ? c : at;                                                                                       \
          }                                                                                                           \
          y[o] = STORE(m[at]);                                                                                        \
          if (index) index[r * out + o] = row_of[at] * in + at;                                                       \
        }                                                                                                             \
        continue;                                                                                                     \
      }                                                                                                               \
      PASS(FIRST_PASS)                                                                                                \
      if (index) {                                                                                                    \
        _Pragma("omp simd") for (int64_t o = 0; o < out; o++) {                                                       \
          best_row[o] = row_of[o * stride];                                                                           \
          best_tap[o] = 0;                                                                                            \
        }                                                                                                             \
      }                                                                                                               \
      for (int64_t k = 1; k < s->kernel[2]; k++) {                                                                    \
        int64_t at = k * s->dilation[2];                                                                              \
        if (index) {                                                                                                  \
          PASS(MAX_PASS_INDEX)                                                                                        \
        } else {                                                                                                      \
          PASS(MAX_PASS)                                                                                              \
        }                                                                                                             \
      }                                                                                                               \
      _Pragma("omp simd") for (int64_t o = 0; o < out; o++) y[o] = STORE(best[o]);                                    \
      if (!index) continue;                                                                                           \
      for (int64_t o = 0; o < out; o++) {                                                                             \
        int64_t column = o * stride + best_tap[o] * s->dilation[2] - left;                                            \
        index[r * out + o] = best_row[o] == NO_ROW ? 0 : best_row[o] * in + column;                                   \
      }                                                                                                               \
    }                                                                                                                 \
  }

MAX(u8, , uint8_t, uint8_t, SAME, SAME, 0)
MAX(i8, , int8_t, int8_t, SAME, SAME, INT8_MIN)
MAX(i16, , int16_t, int16_t, SAME, SAME, INT16_MIN)
MAX(u16, , uint16_t, uint16_t, SAME, SAME, 0)
MAX(u32, , uint32_t, uint32_t, SAME, SAME, 0)
MAX(u64, , uint64_t, uint64_t, SAME, SAME, 0)
MAX(i32, , int32_t, int32_t, SAME, SAME, INT32_MIN)
MAX(i64, , int64_t, int64_t, SAME, SAME, INT64_MIN)
MAX(f16, PLAIT_CLONES, uint16_t, float, plait_f16_to_f32, plait_f32_to_f16, -INFINITY)
MAX(bf16, PLAIT_CLONES, uint16_t, float, plait_bf16_to_f32, plait_f32_to_bf16, -INFINITY)
MAX(f32, PLAIT_CLONES, float, float, SAME, SAME, -INFINITY)
MAX(f64, PLAIT_CLONES, double, double, SAME, SAME, -INFINITY)

#define SUM_PASS(STRIDE)                                                                                              \
  _Pragma("omp simd") for (int64_t o = 0; o < out; o++) best[o] += m[o * (STRIDE) + at];

#define AVERAGE(NAME, S_, T_, LOAD, STORE)                                                                            \
  /* The sum of a plane with short rows, in the order below. */                                                       \
  PLAIT_INLINE T_ sum_plane_##NAME(const S_ *x, int64_t rows, const int in) {                                         \
    T_ m[8] = {0}, sum = 0;                                                                                           \
    for (int64_t i = 0; i < rows; i++) {                                                                              \
      for (int c = 0; c < in; c++) m[c] += LOAD(x[i * in + c]);                                                       \
    }                                                                                                                 \
    if (in == 8) return sum + (((m[0] + m[1]) + (m[2] + m[3])) + ((m[4] + m[5]) + (m[6] + m[7])));                    \
    for (int c = 0; c < in; c++) sum += m[c];                                                                         \
    return sum;                                                                                                       \
  }                                                                                                                   \
  PLAIT_CLONES static void average_planes_##NAME(const S_ *x, S_ *y, int64_t first, int64_t last, int64_t rows,       \
                                                 int64_t in) {                                                        \
    T_ count = (T_)rows * (T_)in;                                                                                     \
    for (int64_t r = first; r < last; r++) {                                                                          \
      const S_ *plane = x + r * rows * in;                                                                            \
      T_ sum = in == 2 ? sum_plane_##NAME(plane, rows, 2) : in == 4 ? sum_plane_##NAME(plane, rows, 4)                \
                                                                    : sum_plane_##NAME(plane, rows, 8);               \
      y[r] = STORE(sum / count);                                                                                      \
    }                                                                                                                 \
  }                                                                                                                   \
  PLAIT_CLONES static void average_##NAME(const plaitk_pooling_shape *s, const void *x, void *vy, int64_t *unused,    \
                                          int64_t first, int64_t last, char *buffers) {                               \
    typedef S_ S;                                                                                                     \
    typedef T_ T;                                                                                                     \
    (void)unused;                                                                                                     \
    if (s->adaptive && s->out[0] * s->out[1] * s->out[2] == 1 && (s->in[2] == 2 || s->in[2] == 4 || s->in[2] == 8)) { \
      average_planes_##NAME(x, vy, first, last, s->in[0] * s->in[1], s->in[2]);                                       \
      return;                                                                                                         \
    }                                                                                                                 \
    T_BUFFERS(T);                                                                                                     \
    for (int64_t r = first; r < last; r++) {                                                                          \
      S *y = (S *)vy + r * out;                                                                                       \
      _Pragma("omp simd") for (int64_t c = 0; c < left + width; c++) m[c] = 0;                                        \
      T *mi = m + left;                                                                                               \
      EACH_ROW({ _Pragma("omp simd") for (int64_t c = 0; c < in; c++) mi[c] += LOAD(row[c]); })                       \
      T rows = (T)(wz.divisor * wy.divisor);                                                                          \
      if (s->adaptive) {                                                                                              \
        for (int64_t o = 0; o < out; o++) {                                                                           \
          plaitk_pooling_window w = plaitk_pooling_window_at(s, 2, o);                                                \
          T sum = 0, eight[8] = {0};                                                                                  \
          int64_t c = w.start, end = w.start + w.count;                                                               \
          for (; c + 8 <= end; c += 8) {                                                                              \
            for (int l = 0; l < 8; l++) eight[l] += m[c + l];                                                         \
          }                                                                                                           \
          for (; c < end; c++) sum += m[c];                                                                           \
          sum += ((eight[0] + eight[1]) + (eight[2] + eight[3])) + ((eight[4] + eight[5]) + (eight[6] + eight[7]));   \
          y[o] = STORE(sum / (rows * (T)w.divisor));                                                                  \
        }                                                                                                             \
        continue;                                                                                                     \
      }                                                                                                               \
      PASS(FIRST_PASS)                                                                                                \
      for (int64_t k = 1; k < s->kernel[2]; k++) {                                                                    \
        int64_t at = k;                                                                                               \
        PASS(SUM_PASS)                                                                                                \
      }                                                                                                               \
      if (s->divisor != 0) {                                                                                          \
        T d = (T)s->divisor;                                                                                          \
        _Pragma("omp simd") for (int64_t o = 0; o < out; o++) y[o] = STORE(best[o] / d);                              \
        continue;                                                                                                     \
      }                                                                                                               \
      for (int64_t o = 0; o < out; o++) {                                                                             \
        plaitk_pooling_window w = plaitk_pooling_window_at(s, 2, o);                                                  \
        T d = rows * (T)w.divisor;                                                                                    \
        y[o] = STORE(d > 0 ? best[o] / d : 0);                                                                        \
      }                                                                                                               \
    }                                                                                                                 \
  }

AVERAGE(f16, uint16_t, float, plait_f16_to_f32, plait_f32_to_f16)
AVERAGE(bf16, uint16_t, float, plait_bf16_to_f32, plait_f32_to_bf16)
AVERAGE(f32, float, float, SAME, SAME)
AVERAGE(f64, double, double, SAME, SAME)

static int64_t plan(job *j, const plait_pool *pool, char *scratch) {
  const plaitk_pooling_shape *s = j->s;
  char *at = scratch;
  j->rows = s->planes * s->out[0] * s->out[1];
  j->chunk = plaitk_pooling_rows(s);
  int64_t columns = plaitk_pooling_left(s) + plaitk_pooling_width(s) + s->out[2];
  // Sums, maxima, the rows of the maxima, and taps.
  int64_t bytes = columns * 12 + s->out[2] * 4;
  // The gradient of an average needs a plane in scratch if sums have more bits than the result.
  if (s->dtype == PLAIT_F16 || s->dtype == PLAIT_BF16) bytes = max(bytes, columns * 12 + s->in[0] * s->in[1] * s->in[2] * 4);
  plait_slots_plan(&j->slots, &at, plait_pool_threads(pool), bytes, scratch != NULL);
  return (int64_t)((intptr_t)at - (intptr_t)scratch);
}

int64_t plaitk_pooling_scratch(const plait_pool *pool, const plaitk_pooling_shape *s) {
  job j = {.s = s};
  return plan(&j, pool, NULL);
}

static void chunk(void *arg, int64_t c) {
  const job *j = arg;
  int64_t slot = plait_slot_acquire(&j->slots);
  j->run(j->s, j->x, j->y, j->index, c * j->chunk, min((c + 1) * j->chunk, j->rows),
         j->slots.bytes + slot * j->slots.size);
  plait_slot_release(&j->slots, slot);
}

static void start(job *j, plait_pool *pool, void *scratch) {
  const plaitk_pooling_shape *s = j->s;
  if (s->planes * s->out[0] * s->out[1] * s->out[2] == 0) return;
  plan(j, pool, scratch);
  plait_parallel(pool, (j->rows + j->chunk - 1) / j->chunk, chunk, j);
}

void plaitk_pooling_max(plait_pool *pool, const plaitk_pooling_shape *s, const void *x, void *y, int64_t *index,
                        void *scratch) {
  job j = {.s = s, .x = x, .y = y, .index = index};
  switch (s->dtype) {
    case PLAIT_U8: j.run = max_u8; break;
    case PLAIT_I8: j.run = max_i8; break;
    case PLAIT_I16: j.run = max_i16; break;
    case PLAIT_U16: j.run = max_u16; break;
    case PLAIT_U32: j.run = max_u32; break;
    case PLAIT_U64: j.run = max_u64; break;
    case PLAIT_I32: j.run = max_i32; break;
    case PLAIT_I64: j.run = max_i64; break;
    case PLAIT_F16: j.run = max_f16; break;
    case PLAIT_BF16: j.run = max_bf16; break;
    case PLAIT_F32: j.run = max_f32; break;
    default: j.run = max_f64;
  }
  start(&j, pool, scratch);
}

void plaitk_pooling_average(plait_pool *pool, const plaitk_pooling_shape *s, const void *x, void *y, void *scratch) {
  job j = {.s = s, .x = x, .y = y};
  switch (s->dtype) {
    case PLAIT_F16: j.run = average_f16; break;
    case PLAIT_BF16: j.run = average_bf16; break;
    case PLAIT_F32: j.run = average_f32; break;
    default: j.run = average_f64;
  }
  start(&j, pool, scratch);
}
