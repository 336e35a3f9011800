#include <math.h>

#include "../../../include/plait_slots.h"
#include "interpolate.h"

#define SAME(x) (x)

// An output position o of a dimension is a weighted sum of the input positions at[k * out + o] over taps k. The weights
// of the last dimension have the accumulator type.
typedef struct {
  int64_t taps;
  int32_t *at[3];
  double *weight[3];
  void *columns;
} tables;

typedef struct {
  const plaitk_interpolate_shape *s;
  tables t;
  const char *from;
  char *to;
  int64_t chunk, chunks;  // rows of output, or planes in the backward
  void (*run)(const plaitk_interpolate_shape *s, const tables *t, const void *from, void *to, int64_t first, int64_t last,
              char *buffers);
  plait_slots slots;
} job;

static int64_t clamp(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

// Keys' cubic convolution with A = -0.75. t is the position relative to the second of four points.
static void cubic(double t, double w[4]) {
  const double a = -0.75;
  double d[4] = {t + 1, t, 1 - t, 2 - t};
  for (int k = 0; k < 4; k++) {
    double x = d[k];
    w[k] = k == 1 || k == 2 ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  }
}

static void fill_table(const plaitk_interpolate_shape *s, int d, int32_t *at, double *weight) {
  int64_t in = s->in[d], out = s->out[d];
  if (s->mode <= INTERPOLATE_NEAREST_EXACT) {
    // The choice of elements is computed in single precision, as in PyTorch.
    float scale = s->scale[d] > 0 ? (float)(1 / s->scale[d]) : (float)in / (float)out;
    float half = s->mode == INTERPOLATE_NEAREST_EXACT ? 0.5f : 0;
    for (int64_t o = 0; o < out; o++) {
      at[o] = (int32_t)(in == out && s->scale[d] <= 0 ? o : clamp((int64_t)floorf(((float)o + half) * scale), in));
      weight[o] = 1;
    }
    return;
  }
  double scale = s->scale[d] > 0 ? 1 / s->scale[d] : (double)in / (double)out;
  if (s->align_corners) scale = out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
  for (int64_t o = 0; o < out; o++) {
    double x = s->align_corners ? (double)o * scale : ((double)o + 0.5) * scale - 0.5;
    if (s->mode == INTERPOLATE_LINEAR) {
      x = x > 0 ? x : 0;
      int64_t i = clamp((int64_t)x, in);
      double t = x - (double)i;
      t = t < 1 ? t : 1;
      at[o] = (int32_t)i;
      at[out + o] = (int32_t)clamp(i + 1, in);
      weight[o] = 1 - t;
      weight[out + o] = t;
    } else {
      double i = floor(x), w[4];
      cubic(x - i, w);
      for (int k = 0; k < 4; k++) {
        at[k * out + o] = (int32_t)clamp((int64_t)i - 1 + k, in);
        weight[k * out + o] = w[k];
      }
    }
  }
}

// Runs BODY for the input rows under output row r of a plane, with their weights, in order. It skips rows of weight 0.
#define EACH_ROW(BODY)                                                                                                \
  int64_t oz = r / s->out[1] % s->out[0], oy = r % s->out[1];                                                         \
  for (int64_t i = 0; i < t->taps; i++) {                                                                             \
    for (int64_t j = 0; j < t->taps; j++) {                                                                           \
      double weight = t->weight[0][i * s->out[0] + oz] * t->weight[1][j * s->out[1] + oy];                            \
      if (weight == 0) continue;                                                                                      \
      int64_t line = (int64_t)t->at[0][i * s->out[0] + oz] * s->in[1] + t->at[1][j * s->out[1] + oy];                 \
      BODY                                                                                                            \
    }                                                                                                                 \
  }

#define INTERPOLATE(NAME, S, T, LOAD, STORE)                                                                          \
  PLAIT_CLONES static void forward_##NAME(const plaitk_interpolate_shape *s, const tables *t, const void *from,          \
                                          void *to, int64_t first, int64_t last, char *buffers) {                     \
    int64_t in = s->in[2], out = s->out[2], taps = t->taps;                                                           \
    T *m = (T *)buffers;                                                                                              \
    const int32_t *at = t->at[2];                                                                                     \
    const T *wx = t->columns;                                                                                         \
    for (int64_t r = first; r < last; r++) {                                                                          \
      S *y = (S *)to + r * out;                                                                                       \
      int64_t plane = r / (s->out[0] * s->out[1]);                                                                    \
      int fresh = 1;                                                                                                  \
      EACH_ROW({                                                                                                      \
        const S *row = (const S *)from + (plane * s->in[0] * s->in[1] + line) * in;                                   \
        T w = (T)weight;                                                                                              \
        if (taps == 1) {                                                                                              \
          for (int64_t o = 0; o < out; o++) y[o] = row[at[o]];                                                        \
        } else if (fresh) {                                                                                           \
          _Pragma("omp simd") for (int64_t c = 0; c < in; c++) m[c] = w * LOAD(row[c]);                               \
        } else {                                                                                                      \
          _Pragma("omp simd") for (int64_t c = 0; c < in; c++) m[c] += w * LOAD(row[c]);                              \
        }                                                                                                             \
        fresh = 0;                                                                                                    \
      })                                                                                                              \
      if (taps == 2) {                                                                                                \
        const int32_t *at1 = at + out;                                                                                \
        const T *w1 = wx + out;                                                                                       \
        _Pragma("omp simd") for (int64_t o = 0; o < out; o++) {                                                       \
          y[o] = STORE(wx[o] * m[at[o]] + w1[o] * m[at1[o]]);                                                         \
        }                                                                                                             \
      } else if (taps == 4) {                                                                                         \
        _Pragma("omp simd") for (int64_t o = 0; o < out; o++) {                                                       \
          T sum = 0;                                                                                                  \
          for (int64_t k = 0; k < 4; k++) sum += wx[k * out + o] * m[at[k * out + o]];                                \
          y[o] = STORE(sum);                                                                                          \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
  }

#define TRANSPOSE(NAME, S, T, LOAD, STORE, DIRECT)                                                                    \
  PLAIT_CLONES static void backward_##NAME(const plaitk_interpolate_shape *s, const tables *t, const void *from,         \
                                           void *to, int64_t first, int64_t last, char *buffers) {                    \
    int64_t in = s->in[2], out = s->out[2], taps = t->taps, elements = s->in[0] * s->in[1] * in;                      \
    T *m = (T *)buffers;                                                                                              \
    const T *wx = t->columns;                                                                                         \
    for (int64_t plane = first; plane < last; plane++) {                                                              \
      T *dx = DIRECT ? (T *)to + plane * elements : m + in;                                                           \
      _Pragma("omp simd") for (int64_t c = 0; c < elements; c++) dx[c] = 0;                                           \
      for (int64_t r = 0; r < s->out[0] * s->out[1]; r++) {                                                           \
        const S *dy = (const S *)from + (plane * s->out[0] * s->out[1] + r) * out;                                    \
        _Pragma("omp simd") for (int64_t c = 0; c < in; c++) m[c] = 0;                                                \
        for (int64_t o = 0; o < out; o++) {                                                                           \
          T g = LOAD(dy[o]);                                                                                          \
          for (int64_t k = o; k < taps * out; k += out) m[t->at[2][k]] += wx[k] * g;                                  \
        }                                                                                                             \
        EACH_ROW({                                                                                                    \
          T *row = dx + line * in;                                                                                    \
          T w = (T)weight;                                                                                            \
          _Pragma("omp simd") for (int64_t c = 0; c < in; c++) row[c] += w * m[c];                                    \
        })                                                                                                            \
      }                                                                                                               \
      if (!DIRECT) {                                                                                                  \
        S *d = (S *)to + plane * elements;                                                                            \
        _Pragma("omp simd") for (int64_t c = 0; c < elements; c++) d[c] = STORE(dx[c]);                               \
      }                                                                                                               \
    }                                                                                                                 \
  }

INTERPOLATE(u8, uint8_t, float, SAME, SAME)
INTERPOLATE(f16, uint16_t, float, plait_f16_to_f32, plait_f32_to_f16)
INTERPOLATE(bf16, uint16_t, float, plait_bf16_to_f32, plait_f32_to_bf16)
INTERPOLATE(f32, float, float, SAME, SAME)
INTERPOLATE(f64, double, double, SAME, SAME)
TRANSPOSE(f16, uint16_t, float, plait_f16_to_f32, plait_f32_to_f16, 0)
TRANSPOSE(bf16, uint16_t, float, plait_bf16_to_f32, plait_f32_to_bf16, 0)
TRANSPOSE(f32, float, float, SAME, SAME, 1)
TRANSPOSE(f64, double, double, SAME, SAME, 1)

static int64_t plan(job *j, const plait_pool *pool, char *scratch) {
  const plaitk_interpolate_shape *s = j->s;
  char *at = scratch;
  j->t.taps = s->mode == INTERPOLATE_CUBIC ? 4 : s->mode == INTERPOLATE_LINEAR ? 2 : 1;
  for (int d = 0; d < 3; d++) {
    int64_t n = s->out[d] * j->t.taps;
    j->t.at[d] = plait_carve(&at, n * 4);
    j->t.weight[d] = plait_carve(&at, n * 8);
    if (!scratch) continue;
    fill_table(s, d, j->t.at[d], j->t.weight[d]);
    // The input has a single position, so one tap is enough.
    for (int64_t i = 0; i < n && s->in[d] == 1; i++) j->t.weight[d][i] = i < s->out[d];
  }
  int64_t columns = s->out[2] * j->t.taps;
  j->t.columns = plait_carve(&at, columns * 8);
  for (int64_t i = 0; i < columns && scratch; i++) {
    if (s->dtype == PLAIT_F64) {
      ((double *)j->t.columns)[i] = j->t.weight[2][i];
    } else {
      ((float *)j->t.columns)[i] = (float)j->t.weight[2][i];
    }
  }
  int64_t bytes = s->in[2] * 8;
  if (s->dtype == PLAIT_F16 || s->dtype == PLAIT_BF16) bytes += s->in[0] * s->in[1] * s->in[2] * 4;
  plait_slots_plan(&j->slots, &at, plait_pool_threads(pool), bytes, scratch != NULL);
  return (int64_t)((intptr_t)at - (intptr_t)scratch);
}

int64_t plaitk_interpolate_scratch(const plait_pool *pool, const plaitk_interpolate_shape *s) {
  job j = {.s = s};
  return plan(&j, pool, NULL);
}

static void chunk(void *arg, int64_t c) {
  const job *j = arg;
  int64_t slot = plait_slot_acquire(&j->slots), last = (c + 1) * j->chunk;
  j->run(j->s, &j->t, j->from, j->to, c * j->chunk, last < j->chunks ? last : j->chunks,
         j->slots.bytes + slot * j->slots.size);
  plait_slot_release(&j->slots, slot);
}

static void start(job *j, plait_pool *pool, int64_t units, int64_t cost, void *scratch) {
  plan(j, pool, scratch);
  j->chunk = 1 + 32768 / (cost + 1);
  j->chunks = units;
  plait_parallel(pool, (units + j->chunk - 1) / j->chunk, chunk, j);
}

void plaitk_interpolate_forward(plait_pool *pool, const plaitk_interpolate_shape *s, const void *x, void *y, void *scratch) {
  int64_t rows = s->planes * s->out[0] * s->out[1];
  if (rows * s->out[2] == 0) return;
  job j = {.s = s, .from = x, .to = y};
  switch (s->dtype) {
    case PLAIT_U8: j.run = forward_u8; break;
    case PLAIT_F16: j.run = forward_f16; break;
    case PLAIT_BF16: j.run = forward_bf16; break;
    case PLAIT_F32: j.run = forward_f32; break;
    default: j.run = forward_f64;
  }
  start(&j, pool, rows, s->in[2] + 2 * s->out[2], scratch);
}

void plaitk_interpolate_backward(plait_pool *pool, const plaitk_interpolate_shape *s, const void *dy, void *dx,
                              void *scratch) {
  if (s->planes * s->in[0] * s->in[1] * s->in[2] == 0) return;
  job j = {.s = s, .from = dy, .to = dx};
  switch (s->dtype) {
    case PLAIT_F16: j.run = backward_f16; break;
    case PLAIT_BF16: j.run = backward_bf16; break;
    case PLAIT_F32: j.run = backward_f32; break;
    default: j.run = backward_f64;
  }
  start(&j, pool, s->planes, s->out[0] * s->out[1] * (s->in[2] + 2 * s->out[2]), scratch);
}
