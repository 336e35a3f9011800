#include "../../../include/plait_slots.h"
#include "im2col.h"

#define SAME(x) (x)
#define CHUNK 32768

typedef struct {
  const plaitk_conv_patches *s;
  const char *from;
  char *to;
  int64_t chunk, units;
  void (*run)(const plaitk_conv_patches *s, const void *from, void *to, int64_t unit, void *sums);
  plait_slots slots;
} job;

// Finds the patches [lo, hi) of a row whose column tap kx lies inside the image, and the column that patch 0 has there.
static void valid_patches(const plaitk_conv_patches *s, int64_t kx, int64_t *lo, int64_t *hi, int64_t *first) {
  int64_t step = s->stride[1];
  *first = kx * s->dilation[1] - s->pad[1];
  *hi = s->in[1] > *first ? (s->in[1] - *first + step - 1) / step : 0;
  *hi = *hi < s->out[1] ? *hi : s->out[1];
  *lo = *first < 0 ? (-*first + step - 1) / step : 0;
  *lo = *lo < *hi ? *lo : *hi;
}

// A unit of work is one tap of one plane.
#define UNFOLD(S)                                                                                                     \
  static void unfold_##S(const plaitk_conv_patches *s, const void *from, void *to, int64_t unit, void *unused) {  \
    (void)unused;                                                                                                     \
    int64_t taps = s->kernel[0] * s->kernel[1], plane = unit / taps, tap = unit % taps, lo, hi, first;                \
    valid_patches(s, tap % s->kernel[1], &lo, &hi, &first);                                                                  \
    const S *x = (const S *)from + plane * s->in[0] * s->in[1];                                                       \
    S *y = (S *)to + unit * s->out[0] * s->out[1];                                                                    \
    for (int64_t oy = 0; oy < s->out[0]; oy++, y += s->out[1]) {                                                      \
      int64_t iy = oy * s->stride[0] + tap / s->kernel[1] * s->dilation[0] - s->pad[0];                               \
      if (iy < 0 || iy >= s->in[0]) {                                                                                 \
        memset(y, 0, (size_t)s->out[1] * sizeof(S));                                                                  \
        continue;                                                                                                     \
      }                                                                                                               \
      const S *row = x + iy * s->in[1] + first;                                                                       \
      for (int64_t o = 0; o < lo; o++) y[o] = 0;                                                                      \
      if (s->stride[1] == 1) {                                                                                        \
        memcpy(y + lo, row + lo, (size_t)(hi - lo) * sizeof(S));                                                      \
      } else {                                                                                                        \
        for (int64_t o = lo; o < hi; o++) y[o] = row[o * s->stride[1]];                                               \
      }                                                                                                               \
      for (int64_t o = hi; o < s->out[1]; o++) y[o] = 0;                                                              \
    }                                                                                                                 \
  }

UNFOLD(uint16_t)
UNFOLD(uint32_t)
UNFOLD(uint64_t)

// A unit of work is one plane.
#define FOLD(NAME, S, T, LOAD, STORE, DIRECT)                                                                         \
  PLAIT_CLONES static void fold_##NAME(const plaitk_conv_patches *s, const void *from, void *to, int64_t unit,    \
                                       void *sums) {                                                                  \
    int64_t taps = s->kernel[0] * s->kernel[1], in = s->in[0] * s->in[1], lo, hi, first, step = s->stride[1];         \
    T *x = DIRECT ? (T *)to + unit * in : sums;                                                                       \
    for (int64_t i = 0; i < in; i++) x[i] = 0;                                                                        \
    for (int64_t tap = 0; tap < taps; tap++) {                                                                        \
      valid_patches(s, tap % s->kernel[1], &lo, &hi, &first);                                                                \
      const S *y = (const S *)from + (unit * taps + tap) * s->out[0] * s->out[1];                                     \
      for (int64_t oy = 0; oy < s->out[0]; oy++, y += s->out[1]) {                                                    \
        int64_t iy = oy * s->stride[0] + tap / s->kernel[1] * s->dilation[0] - s->pad[0];                             \
        if (iy < 0 || iy >= s->in[0]) continue;                                                                       \
        T *row = x + iy * s->in[1] + first;                                                                           \
        if (step == 1) {                                                                                              \
          _Pragma("omp simd") for (int64_t o = lo; o < hi; o++) row[o] += LOAD(y[o]);                                 \
        } else {                                                                                                      \
          for (int64_t o = lo; o < hi; o++) row[o * step] += LOAD(y[o]);                                              \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
    if (!DIRECT) {                                                                                                    \
      S *t = (S *)to + unit * in;                                                                                     \
      for (int64_t i = 0; i < in; i++) t[i] = STORE(x[i]);                                                            \
    }                                                                                                                 \
  }

FOLD(f16, uint16_t, float, plait_f16_to_f32, plait_f32_to_f16, 0)
FOLD(bf16, uint16_t, float, plait_bf16_to_f32, plait_f32_to_bf16, 0)
FOLD(f32, float, float, SAME, SAME, 1)
FOLD(f64, double, double, SAME, SAME, 1)

static void chunk(void *arg, int64_t c) {
  const job *j = arg;
  int64_t last = (c + 1) * j->chunk < j->units ? (c + 1) * j->chunk : j->units;
  int64_t slot = j->slots.size ? plait_slot_acquire(&j->slots) : 0;
  void *sums = j->slots.size ? j->slots.bytes + slot * j->slots.size : NULL;
  for (int64_t u = c * j->chunk; u < last; u++) j->run(j->s, j->from, j->to, u, sums);
  if (j->slots.size) plait_slot_release(&j->slots, slot);
}

static void start(job *j, plait_pool *pool, int64_t units, int64_t cost) {
  j->units = units;
  j->chunk = 1 + CHUNK / (cost + 1);
  plait_parallel(pool, (units + j->chunk - 1) / j->chunk, chunk, j);
}

void plaitk_conv_im2col(plait_pool *pool, const plaitk_conv_patches *s, const void *x, void *columns) {
  int64_t out = s->out[0] * s->out[1], taps = s->kernel[0] * s->kernel[1];
  if (s->planes * taps * out == 0) return;
  job j = {.s = s, .from = x, .to = columns};
  switch (s->dtype) {
    case PLAIT_F16:
    case PLAIT_BF16: j.run = unfold_uint16_t; break;
    case PLAIT_F32: j.run = unfold_uint32_t; break;
    default: j.run = unfold_uint64_t;
  }
  start(&j, pool, s->planes * taps, out);
}

int64_t plaitk_conv_col2im_scratch(const plait_pool *pool, const plaitk_conv_patches *s) {
  if (s->dtype != PLAIT_F16 && s->dtype != PLAIT_BF16) return 0;
  plait_slots slots;
  char *at = NULL;
  plait_slots_plan(&slots, &at, plait_pool_threads(pool), s->in[0] * s->in[1] * 4, 0);
  return (int64_t)(intptr_t)at;
}

void plaitk_conv_col2im(plait_pool *pool, const plaitk_conv_patches *s, const void *columns, void *x,
                          void *scratch) {
  int64_t in = s->in[0] * s->in[1];
  if (s->planes * in == 0) return;
  job j = {.s = s, .from = columns, .to = x};
  switch (s->dtype) {
    case PLAIT_F16: j.run = fold_f16; break;
    case PLAIT_BF16: j.run = fold_bf16; break;
    case PLAIT_F32: j.run = fold_f32; break;
    default: j.run = fold_f64;
  }
  if (s->dtype == PLAIT_F16 || s->dtype == PLAIT_BF16) {
    char *at = scratch;
    plait_slots_plan(&j.slots, &at, plait_pool_threads(pool), in * 4, 1);
  }
  start(&j, pool, s->planes, in + s->kernel[0] * s->kernel[1] * s->out[0] * s->out[1]);
}
