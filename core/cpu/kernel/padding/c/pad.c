#include "../../../include/plait_slots.h"
#include "padding.h"

#define SAME(x) (x)
#define CHUNK 32768
#define EDGE 16 // columns beside the copied ones, on each side, whose sources are found once for all rows

// Copies up to 64 bytes, by two copies of fixed sizes that may overlap.
PLAIT_INLINE void copy_short(char *to, const char *from, int64_t bytes) {
#define TWICE(N)                                                \
  if (bytes >= N) {                                             \
    char head[N], tail[N];                                      \
    memcpy(head, from, N), memcpy(tail, from + bytes - N, N);   \
    memcpy(to, head, N), memcpy(to + bytes - N, tail, N);       \
    return;                                                     \
  }
  TWICE(32) TWICE(16) TWICE(8) TWICE(4) TWICE(2) TWICE(1)
#undef TWICE
}

// Returns the input position of output position o in dimension d, or -1 for the constant.
PLAIT_INLINE int64_t source_index(const plaitk_padding *p, int64_t mode, int d, int64_t o) {
  int64_t n = p->in[d], i = o - p->left[d];
  if (i >= 0 && i < n) return i;
  switch (mode) {
    case PAD_REFLECT: return i < 0 ? -i : 2 * (n - 1) - i;
    case PAD_REPLICATE: return i < 0 ? 0 : n - 1;
    case PAD_CIRCULAR: return i < 0 ? i + n : i - n;
  }
  return -1;
}

// Finds the columns [lo, hi) of an output row that are consecutive columns of the input.
static void copied_columns(const plaitk_padding *p, int64_t *lo, int64_t *hi) {
  int64_t left = p->left[p->nd - 1], in = p->in[p->nd - 1], out = p->out[p->nd - 1];
  *hi = left + in < out ? left + in : out;
  *hi = *hi > 0 ? *hi : 0;
  *lo = left > 0 ? left : 0;
  *lo = *lo < *hi ? *lo : *hi;
}

// Returns the input row, within a plane, of output row r, or -1.
static int64_t source_row(const plaitk_padding *p, int64_t r) {
  int64_t row = 0, step = 1;
  for (int64_t d = p->nd - 2; d >= 0; d--) {
    int64_t o = d > 0 ? r % p->out[d] : r;
    int64_t i = source_index(p, p->mode, (int)d, o);
    if (i < 0) return -1;
    row += i * step;
    step *= p->in[d];
    if (d > 0) r /= p->out[d];
  }
  return row;
}

static int64_t rows_of(const plaitk_padding *p, const int64_t *sizes) {
  int64_t n = 1;
  for (int64_t d = 0; d + 1 < p->nd; d++) n *= sizes[d];
  return n;
}

// whole_rows reports whether only columns are padded.
static bool whole_rows(const plaitk_padding *p) {
  for (int64_t d = 0; d + 1 < p->nd; d++) {
    if (p->left[d] != 0 || p->in[d] != p->out[d]) return false;
  }
  return true;
}

typedef struct {
  const plaitk_padding *p;
  uint64_t value;
  const char *from;
  char *to;
  int64_t chunk, units, size;
  void (*run)(const plaitk_padding *p, const void *from, void *to, int64_t first, int64_t last,
              uint64_t value, void *sums);
  plait_slots slots;
} job;

// Copies the rows [first, last) of the output, for a mode that the compiler knows.
#define PAD(S)                                                                                                   \
  PLAIT_INLINE void rows_##S(const plaitk_padding *p, int64_t mode, const S *x, S *y, int64_t first, int64_t last, \
                             S value) {                                                                          \
    int d = (int)p->nd - 1;                                                                                      \
    int64_t in_rows = rows_of(p, p->in), out_rows = rows_of(p, p->out), out = p->out[d], lo, hi;                 \
    int64_t plane = first / out_rows, r = first % out_rows;                                                      \
    copied_columns(p, &lo, &hi);                                                                                 \
    int64_t left[EDGE], right[EDGE], copied = (hi - lo) * (int64_t)sizeof(S), skipped = lo - p->left[d];         \
    bool few = lo <= EDGE && out - hi <= EDGE;                                                                   \
    for (int64_t o = 0; few && o < lo; o++) left[o] = source_index(p, mode, d, o);                               \
    for (int64_t o = hi; few && o < out; o++) right[o - hi] = source_index(p, mode, d, o);                       \
    y += first * out;                                                                                            \
    if (mode == PAD_CONSTANT && copied <= 64 && in_rows == out_rows && whole_rows(p)) {                          \
      x += first * p->in[d] + skipped;                                                                           \
      for (int64_t n = first; n < last;) {                                                                       \
        int64_t end = n + 64 < last ? n + 64 : last;                                                             \
        for (int64_t o = 0; o < (end - n) * out; o++) y[o] = value;                                              \
        for (; n < end; n++, x += p->in[d], y += out) copy_short((char *)(y + lo), (const char *)x, copied);     \
      }                                                                                                          \
      return;                                                                                                    \
    }                                                                                                            \
    for (int64_t n = first; n < last; n++, y += out) {                                                           \
      int64_t row = source_row(p, r), at = plane * in_rows + row;                                                \
      if (++r == out_rows) r = 0, plane++;                                                                       \
      if (row < 0) {                                                                                             \
        for (int64_t o = 0; o < out; o++) y[o] = value;                                                          \
        continue;                                                                                                \
      }                                                                                                          \
      const S *from = x + at * p->in[d];                                                                         \
      for (int64_t o = 0; o < lo; o++) {                                                                         \
        int64_t i = few ? left[o] : source_index(p, mode, d, o);                                                 \
        y[o] = i < 0 ? value : from[i];                                                                          \
      }                                                                                                          \
      if (copied <= 64) {                                                                                        \
        copy_short((char *)(y + lo), (const char *)(from + skipped), copied);                                    \
      } else {                                                                                                   \
        memcpy(y + lo, from + skipped, (size_t)copied);                                                          \
      }                                                                                                          \
      for (int64_t o = hi; o < out; o++) {                                                                       \
        int64_t i = few ? right[o - hi] : source_index(p, mode, d, o);                                           \
        y[o] = i < 0 ? value : from[i];                                                                          \
      }                                                                                                          \
    }                                                                                                            \
  }                                                                                                              \
  static void pad_##S(const plaitk_padding *p, const void *from, void *to, int64_t first, int64_t last,          \
                      uint64_t bits, void *unused) {                                                             \
    (void)unused;                                                                                                \
    switch (p->mode) {                                                                                           \
      case PAD_REFLECT: return rows_##S(p, PAD_REFLECT, from, to, first, last, (S)bits);                         \
      case PAD_REPLICATE: return rows_##S(p, PAD_REPLICATE, from, to, first, last, (S)bits);                     \
      case PAD_CIRCULAR: return rows_##S(p, PAD_CIRCULAR, from, to, first, last, (S)bits);                       \
      default: return rows_##S(p, PAD_CONSTANT, from, to, first, last, (S)bits);                                 \
    }                                                                                                            \
  }

PAD(uint8_t)
PAD(uint16_t)
PAD(uint32_t)
PAD(uint64_t)

#define PAD_GRAD(NAME, S, T, LOAD, STORE, DIRECT)                                                                     \
  PLAIT_CLONES static void grad_##NAME(const plaitk_padding *p, const void *from, void *to, int64_t first,   \
                                       int64_t last, uint64_t unused, void *sums) {                                   \
    (void)unused;                                                                                                     \
    int d = (int)p->nd - 1;                                                                                           \
    int64_t in_rows = rows_of(p, p->in), out_rows = rows_of(p, p->out), in = p->in[d], out = p->out[d], lo, hi;       \
    copied_columns(p, &lo, &hi);                                                                                              \
    for (int64_t plane = first; plane < last; plane++) {                                                              \
      T *dx = DIRECT ? (T *)to + plane * in_rows * in : sums;                                                         \
      for (int64_t i = 0; i < in_rows * in; i++) dx[i] = 0;                                                           \
      for (int64_t r = 0; r < out_rows; r++) {                                                                        \
        int64_t row = source_row(p, r);                                                                               \
        if (row < 0) continue;                                                                                        \
        const S *dy = (const S *)from + (plane * out_rows + r) * out;                                                 \
        T *x = dx + row * in;                                                                                         \
        T *middle = x - p->left[d];                                                                                   \
        for (int64_t o = 0; o < lo; o++) {                                                                            \
          int64_t i = source_index(p, p->mode, d, o);                                                                                \
          if (i >= 0) x[i] += LOAD(dy[o]);                                                                            \
        }                                                                                                             \
        _Pragma("omp simd") for (int64_t o = lo; o < hi; o++) middle[o] += LOAD(dy[o]);                               \
        for (int64_t o = hi; o < out; o++) {                                                                          \
          int64_t i = source_index(p, p->mode, d, o);                                                                                \
          if (i >= 0) x[i] += LOAD(dy[o]);                                                                            \
        }                                                                                                             \
      }                                                                                                               \
      if (!DIRECT) {                                                                                                  \
        S *t = (S *)to + plane * in_rows * in;                                                                        \
        for (int64_t i = 0; i < in_rows * in; i++) t[i] = STORE(dx[i]);                                               \
      }                                                                                                               \
    }                                                                                                                 \
  }

PAD_GRAD(f16, uint16_t, float, plait_f16_to_f32, plait_f32_to_f16, 0)
PAD_GRAD(bf16, uint16_t, float, plait_bf16_to_f32, plait_f32_to_bf16, 0)
PAD_GRAD(f32, float, float, SAME, SAME, 1)
PAD_GRAD(f64, double, double, SAME, SAME, 1)

static void chunk(void *arg, int64_t c) {
  const job *j = arg;
  int64_t last = (c + 1) * j->chunk < j->units ? (c + 1) * j->chunk : j->units;
  int64_t slot = j->slots.size ? plait_slot_acquire(&j->slots) : 0;
  j->run(j->p, j->from, j->to, c * j->chunk, last, j->value,
         j->slots.size ? j->slots.bytes + slot * j->slots.size : NULL);
  if (j->slots.size) plait_slot_release(&j->slots, slot);
}

static void start(job *j, plait_pool *pool, int64_t units, int64_t cost) {
  j->units = units;
  j->chunk = 1 + CHUNK / (cost + 1);
  plait_parallel_parts(pool, (units + j->chunk - 1) / j->chunk, chunk, j);
}

int64_t plaitk_padding_scratch(const plait_pool *pool, const plaitk_padding *p, int64_t dtype) {
  if (dtype != PLAIT_F16 && dtype != PLAIT_BF16) return 0;
  plait_slots slots;
  char *at = NULL;
  plait_slots_plan(&slots, &at, plait_pool_threads(pool), rows_of(p, p->in) * p->in[p->nd - 1] * 4, 0);
  return (int64_t)(intptr_t)at;
}

void plaitk_padding_forward(plait_pool *pool, const plaitk_padding *p, int64_t size, uint64_t value,
                         const void *x, void *y, void *scratch) {
  (void)scratch;
  int64_t rows = p->planes * rows_of(p, p->out), out = p->out[p->nd - 1];
  if (rows * out == 0) return;
  job j = {.p = p, .from = x, .to = y, .value = value};
  switch (size) {
    case 1: j.run = pad_uint8_t; break;
    case 2: j.run = pad_uint16_t; break;
    case 4: j.run = pad_uint32_t; break;
    default: j.run = pad_uint64_t;
  }
  start(&j, pool, rows, out);
}

void plaitk_padding_backward(plait_pool *pool, const plaitk_padding *p, int64_t dtype, const void *dy,
                              void *dx, void *scratch) {
  int64_t in = rows_of(p, p->in) * p->in[p->nd - 1];
  if (p->planes * in == 0) return;
  job j = {.p = p, .from = dy, .to = dx};
  switch (dtype) {
    case PLAIT_F16: j.run = grad_f16; break;
    case PLAIT_BF16: j.run = grad_bf16; break;
    case PLAIT_F32: j.run = grad_f32; break;
    default: j.run = grad_f64;
  }
  if (dtype == PLAIT_F16 || dtype == PLAIT_BF16) {
    char *at = scratch;
    plait_slots_plan(&j.slots, &at, plait_pool_threads(pool), in * 4, 1);
  }
  start(&j, pool, p->planes, in + rows_of(p, p->out) * p->out[p->nd - 1]);
}
