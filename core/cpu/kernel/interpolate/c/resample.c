#include "resample.h"

#include "../../../include/plait_slots.h"
#include "../../../include/plait_transpose.h"

// Lanes are summed beside each other. They are neighbours in memory where the inner dimensions have as many elements. Elsewhere so many
// lines are transposed into a tile, and the result back.
enum { LANES = 32 };

typedef struct job job;
struct job {
  const plaitk_resample_shape *s;
  const int64_t *windows;
  void *weights;  // in the type of the sums
  const char *from;
  char *to;
  int64_t chunk, units;  // rows of the result, or tiles
  void (*run)(const job *j, int64_t first, int64_t last, char *tile);
  plait_slots slots;
};

static int64_t element(const plaitk_resample_shape *s) { return plait_dtype_size(s->dtype); }

PLAIT_INLINE uint8_t to_byte(int32_t v) { return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v); }

// Writes row j of a result whose rows are `width` elements, from rows that are `step` elements apart.
#define ROW(NAME, S, T, START, END)                                                                                    \
  PLAIT_INLINE void row_##NAME(const job *job, const S *restrict x, int64_t step, S *restrict y, int64_t j,            \
                               int64_t width) {                                                                        \
    const T *w = (const T *)job->weights + j * job->s->taps;                                                           \
    int64_t n = job->windows[2 * j + 1], c = 0;                                                                        \
    int shift = (int)job->s->shift;                                                                                      \
    (void)shift;                                                                                                       \
    x += job->windows[2 * j] * step;                                                                                   \
    for (; c + LANES <= width; c += LANES) {                                                                           \
      T sum[LANES];                                                                                                    \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) sum[l] = START;                                              \
      for (int64_t k = 0; k < n; k++) {                                                                                \
        _Pragma("omp simd") for (int l = 0; l < LANES; l++) sum[l] += w[k] * (T)x[k * step + c + l];                   \
      }                                                                                                                \
      _Pragma("omp simd") for (int l = 0; l < LANES; l++) y[c + l] = END(sum[l]);                                      \
    }                                                                                                                  \
    for (; c < width; c++) {                                                                                           \
      T sum = START;                                                                                                   \
      for (int64_t k = 0; k < n; k++) sum += w[k] * (T)x[k * step + c];                                                \
      y[c] = END(sum);                                                                                                 \
    }                                                                                                                  \
  }                                                                                                                    \
  PLAIT_CLONES static void rows_##NAME(const job *job, int64_t first, int64_t last, char *tile) {                      \
    const plaitk_resample_shape *s = job->s;                                                                           \
    (void)tile;                                                                                                        \
    for (int64_t r = first; r < last; r++) {                                                                           \
      int64_t o = r / s->out, j = r % s->out;                                                                          \
      row_##NAME(job, (const S *)job->from + o * s->in * s->inner, s->inner, (S *)job->to + r * s->inner, j,           \
                 s->inner);                                                                                            \
    }                                                                                                                  \
  }

// Copies `count` lines of n elements into columns of a tile, or with `back` the columns into lines. Line l is that of (l / inner, l % inner).
#define TILES(NAME, S, T, SIZE, L)                                                                                     \
  PLAIT_INLINE void turn_##NAME(const plaitk_resample_shape *s, S *tile, S *lines, int64_t n, int64_t at,              \
                                int64_t count, int back) {                                                             \
    int64_t k = 0;                                                                                                     \
    if (s->inner == 1 && count == LANES) {                                                                             \
      S *line = lines + at * n;                                                                                        \
      for (; k + L <= n; k += L) {                                                                                     \
        for (int64_t l = 0; l < LANES; l += L) {                                                                       \
          char *a = (char *)(tile + k * LANES + l), *b = (char *)(line + l * n + k);                                   \
          int64_t as = LANES * SIZE, bs = n * SIZE;                                                                    \
          if (back) {                                                                                                  \
            plait_transpose_block##SIZE(b, bs, a, as);                                                                 \
          } else {                                                                                                     \
            plait_transpose_block##SIZE(a, as, b, bs);                                                                 \
          }                                                                                                            \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
    for (int64_t l = 0; l < count; l++) {                                                                              \
      S *line = lines + (at + l) / s->inner * n * s->inner + (at + l) % s->inner;                                      \
      for (int64_t i = k; i < n; i++) {                                                                                \
        if (back) {                                                                                                    \
          line[i * s->inner] = tile[i * LANES + l];                                                                    \
        } else {                                                                                                       \
          tile[i * LANES + l] = line[i * s->inner];                                                                    \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  PLAIT_CLONES static void tiles_##NAME(const job *job, int64_t first, int64_t last, char *memory) {                   \
    const plaitk_resample_shape *s = job->s;                                                                           \
    S *in = (S *)memory, *out = in + s->in * LANES;                                                                    \
    int64_t lines = s->outer * s->inner;                                                                               \
    for (int64_t t = first; t < last; t++) {                                                                           \
      int64_t at = t * LANES, count = lines - at < LANES ? lines - at : LANES;                                         \
      if (count < LANES) memset(in, 0, (size_t)(s->in * LANES * SIZE));                                                \
      turn_##NAME(s, in, (S *)job->from, s->in, at, count, 0);                                                         \
      for (int64_t j = 0; j < s->out; j++) row_##NAME(job, in, LANES, out + j * LANES, j, LANES);                      \
      turn_##NAME(s, out, (S *)job->to, s->out, at, count, 1);                                                         \
    }                                                                                                                  \
  }

#define SAME(x) (x)
#define SHIFTED(x) to_byte((x) >> shift)

ROW(f32, float, float, 0, SAME)
ROW(f64, double, double, 0, SAME)
ROW(u8, uint8_t, int32_t, (1 << shift) >> 1, SHIFTED)
TILES(f32, float, float, 4, 4)
TILES(f64, double, double, 8, 2)
TILES(u8, uint8_t, int32_t, 1, 16)

static int64_t plan(job *j, const plait_pool *pool, const double *weights, char *scratch) {
  const plaitk_resample_shape *s = j->s;
  char *at = scratch;
  int64_t n = s->out * s->taps;
  j->weights = plait_carve(&at, n * 8);
  for (int64_t i = 0; i < n && scratch; i++) {
    switch (s->dtype) {
      case PLAIT_F32: ((float *)j->weights)[i] = (float)weights[i]; break;
      case PLAIT_F64: ((double *)j->weights)[i] = weights[i]; break;
      default: ((int32_t *)j->weights)[i] = (int32_t)weights[i];
    }
  }
  int64_t bytes = s->inner < LANES ? (s->in + s->out) * LANES * element(s) : 0;
  plait_slots_plan(&j->slots, &at, plait_pool_threads(pool), bytes, scratch != NULL);
  return (int64_t)((intptr_t)at - (intptr_t)scratch);
}

int64_t plaitk_resample_scratch(const plait_pool *pool, const plaitk_resample_shape *s) {
  job j = {.s = s};
  return plan(&j, pool, NULL, NULL);
}

static void chunk(void *arg, int64_t c) {
  const job *j = arg;
  int64_t slot = plait_slot_acquire(&j->slots), last = (c + 1) * j->chunk;
  j->run(j, c * j->chunk, last < j->units ? last : j->units, j->slots.bytes + slot * j->slots.size);
  plait_slot_release(&j->slots, slot);
}

void plaitk_resample(plait_pool *pool, const plaitk_resample_shape *s, const int64_t *windows, const double *weights,
                     const void *x, void *y, void *scratch) {
  if (s->outer * s->out * s->inner == 0) return;
  job j = {.s = s, .windows = windows, .from = x, .to = y};
  plan(&j, pool, weights, scratch);
  bool tiles = s->inner < LANES;
  switch (s->dtype) {
    case PLAIT_F32: j.run = tiles ? tiles_f32 : rows_f32; break;
    case PLAIT_F64: j.run = tiles ? tiles_f64 : rows_f64; break;
    default: j.run = tiles ? tiles_u8 : rows_u8;
  }
  j.units = tiles ? (s->outer * s->inner + LANES - 1) / LANES : s->outer * s->out;
  int64_t cost = tiles ? (s->in + s->out * s->taps) * LANES : s->inner * s->taps;
  j.chunk = 1 + 65536 / (cost + 1);
  plait_parallel(pool, (j.units + j.chunk - 1) / j.chunk, chunk, &j);
}
