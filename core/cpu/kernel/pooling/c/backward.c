#include "../../../include/plait_slots.h"
#include "windows.h"

#define min plaitk_pooling_min
#define max plaitk_pooling_max_of
#define SAME(x) (x)

// One plane of an average's gradient.
typedef struct {
  const plaitk_pooling_shape *s;
  const char *dy;
  char *dx;
  int64_t chunk;  // planes per chunk
  void (*run)(const plaitk_pooling_shape *s, const void *dy, void *dx, char *buffers);
  int64_t size;
  plait_slots slots;
} job;

#define SPREAD_PASS(STRIDE) _Pragma("omp simd") for (int64_t o = 0; o < out; o++) m[o * (STRIDE) + k] += part[o];

// Adds a row of dy to the columns of its windows, then adds that to the rows of its windows.
#define AVERAGE_GRAD(NAME, S, T, LOAD, STORE, DIRECT)                                                                 \
  PLAIT_CLONES static void average_grad_##NAME(const plaitk_pooling_shape *s, const void *vdy, void *vdx,             \
                                               char *buffers) {                                                       \
    int64_t left = plaitk_pooling_left(s), width = plaitk_pooling_width(s), in = s->in[2], out = s->out[2];           \
    int64_t stride = s->stride[2], elements = s->in[0] * s->in[1] * in;                                               \
    T *m = (T *)buffers, *part = m + left + width, *dx = DIRECT ? (T *)vdx : part + out;                              \
    _Pragma("omp simd") for (int64_t i = 0; i < elements; i++) dx[i] = 0;                                             \
    for (int64_t r = 0; r < s->out[0] * s->out[1]; r++) {                                                             \
      const S *dy = (const S *)vdy + r * out;                                                                         \
      plaitk_pooling_window wz = plaitk_pooling_window_at(s, 0, r / s->out[1]);                                       \
      plaitk_pooling_window wy = plaitk_pooling_window_at(s, 1, r % s->out[1]);                                       \
      T rows = (T)(wz.divisor * wy.divisor);                                                                          \
      _Pragma("omp simd") for (int64_t c = 0; c < left + width; c++) m[c] = 0;                                        \
      if (s->adaptive) {                                                                                              \
        for (int64_t o = 0; o < out; o++) {                                                                           \
          plaitk_pooling_window w = plaitk_pooling_window_at(s, 2, o);                                                \
          T v = LOAD(dy[o]) / (rows * (T)w.divisor);                                                                  \
          for (int64_t c = w.start; c < w.start + w.count; c++) m[c] += v;                                            \
        }                                                                                                             \
      } else {                                                                                                        \
        if (s->divisor != 0) {                                                                                        \
          T d = (T)s->divisor;                                                                                        \
          _Pragma("omp simd") for (int64_t o = 0; o < out; o++) part[o] = LOAD(dy[o]) / d;                            \
        } else {                                                                                                      \
          for (int64_t o = 0; o < out; o++) {                                                                         \
            T d = rows * (T)plaitk_pooling_window_at(s, 2, o).divisor;                                                \
            part[o] = d > 0 ? LOAD(dy[o]) / d : 0;                                                                    \
          }                                                                                                           \
        }                                                                                                             \
        for (int64_t k = 0; k < s->kernel[2]; k++) {                                                                  \
          if (stride == 1) {                                                                                          \
            SPREAD_PASS(1)                                                                                            \
          } else if (stride == 2) {                                                                                   \
            SPREAD_PASS(2)                                                                                            \
          } else {                                                                                                    \
            SPREAD_PASS(stride)                                                                                       \
          }                                                                                                           \
        }                                                                                                             \
      }                                                                                                               \
      const T *mi = m + left;                                                                                         \
      for (int64_t i = 0; i < wz.count; i++) {                                                                        \
        for (int64_t j = 0; j < wy.count; j++) {                                                                      \
          T *row = dx + ((wz.start + i * wz.step) * s->in[1] + wy.start + j * wy.step) * in;                          \
          _Pragma("omp simd") for (int64_t c = 0; c < in; c++) row[c] += mi[c];                                       \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
    if (!DIRECT) {                                                                                                    \
      S *to = vdx;                                                                                                    \
      _Pragma("omp simd") for (int64_t i = 0; i < elements; i++) to[i] = STORE(dx[i]);                                \
    }                                                                                                                 \
  }

AVERAGE_GRAD(f16, uint16_t, float, plait_f16_to_f32, plait_f32_to_f16, 0)
AVERAGE_GRAD(bf16, uint16_t, float, plait_bf16_to_f32, plait_f32_to_bf16, 0)
AVERAGE_GRAD(f32, float, float, SAME, SAME, 1)
AVERAGE_GRAD(f64, double, double, SAME, SAME, 1)

static void chunk(void *arg, int64_t c) {
  const job *j = arg;
  const plaitk_pooling_shape *s = j->s;
  int64_t in = s->in[0] * s->in[1] * s->in[2], out = s->out[0] * s->out[1] * s->out[2];
  int64_t slot = plait_slot_acquire(&j->slots);
  for (int64_t p = c * j->chunk; p < min((c + 1) * j->chunk, s->planes); p++) {
    j->run(s, j->dy + p * out * j->size, j->dx + p * in * j->size, j->slots.bytes + slot * j->slots.size);
  }
  plait_slot_release(&j->slots, slot);
}

void plaitk_pooling_average_grad(plait_pool *pool, const plaitk_pooling_shape *s, const void *dy, void *dx,
                                 void *scratch) {
  if (s->planes * s->in[0] * s->in[1] * s->in[2] == 0) return;
  job j = {.s = s, .dy = dy, .dx = dx, .size = 2};
  switch (s->dtype) {
    case PLAIT_F16: j.run = average_grad_f16; break;
    case PLAIT_BF16: j.run = average_grad_bf16; break;
    case PLAIT_F32: j.run = average_grad_f32; j.size = 4; break;
    default: j.run = average_grad_f64; j.size = 8;
  }
  int64_t rows = plaitk_pooling_rows(s), plane_rows = max(1, s->out[0] * s->out[1]);
  j.chunk = max(1, rows / plane_rows);
  char *at = scratch;
  int64_t threads = plait_pool_threads(pool);
  // Slots are the only scratch, so their size is the total divided by their number.
  int64_t whole = plaitk_pooling_scratch(pool, s);
  plait_slots_plan(&j.slots, &at, threads, whole / threads - PLAIT_SLOT_ALIGN, 1);
  plait_parallel(pool, (s->planes + j.chunk - 1) / j.chunk, chunk, &j);
}
