// Runs the update rules over a list of parameters.
#include "optim.h"
#include "../../../include/plait_vmath.h"

#define REAL float
#define NAME(name) name##_f32
#define SQRT sqrtf
#define ABS plait_vm_absf
#define PICK plait_vm_pickf
#define LARGER(x, y) plait_vm_pickf((x) > (y), x, y)
#include "rules.h"
#undef REAL
#undef NAME
#undef SQRT
#undef ABS
#undef PICK
#undef LARGER

#define REAL double
#define NAME(name) name##_f64
#define SQRT sqrt
#define ABS plait_vm_abs
#define PICK plait_vm_pick
#define LARGER(x, y) plait_vm_pick((x) > (y), x, y)
#include "rules.h"

// Elements of a chunk, and of the pieces in which 16-bit floats are converted to float32.
#define CHUNK PLAITK_OPTIM_CHUNK
#define PIECE 1024

typedef struct {
  const plaitk_optim_tensor *tensors;
  int64_t count;
  const double *numbers;
} step_task;

PLAIT_CLONES static void widen_f16(float *restrict y, const uint16_t *restrict x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = plait_f16_to_f32(x[i]);
}

PLAIT_CLONES static void widen_bf16(float *restrict y, const uint16_t *restrict x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = plait_bf16_to_f32(x[i]);
}

PLAIT_CLONES static void narrow_f16(uint16_t *restrict y, const float *restrict x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = plait_f32_to_f16(x[i]);
}

PLAIT_CLONES static void narrow_bf16(uint16_t *restrict y, const float *restrict x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = plait_f32_to_bf16(x[i]);
}

static void step_half(const plaitk_optim_tensor *x, int64_t first, int64_t n, const float *numbers) {
  float p[PIECE], g[PIECE];
  bool half = x->dtype == PLAIT_F16;
  for (int64_t i = first; i < first + n; i += PIECE) {
    int64_t m = first + n - i < PIECE ? first + n - i : PIECE;
    uint16_t *param = (uint16_t *)x->param + i;
    const uint16_t *grad = (const uint16_t *)x->grad + i;
    float *w = x->master ? x->master + i : p;
    if (!x->master) (half ? widen_f16 : widen_bf16)(p, param, m);
    (half ? widen_f16 : widen_bf16)(g, grad, m);
    rules_f32[x->rule](w, g, (float *)x->state[0] + i, (float *)x->state[1] + i, (float *)x->state[2] + i, m, numbers);
    (half ? narrow_f16 : narrow_bf16)(param, w, m);
  }
}

static void step_chunk(void *arg, int64_t chunk) {
  const step_task *t = arg;
  int64_t low = 0, high = t->count - 1; // binary search for the last tensor that starts at or before the chunk
  while (low < high) {
    int64_t middle = low + (high - low + 1) / 2;
    if (t->tensors[middle].first <= chunk) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const plaitk_optim_tensor *x = &t->tensors[low];
  const double *numbers = t->numbers + low * PLAITK_OPTIM_NUMBERS;
  int64_t first = (chunk - x->first) * CHUNK, n = x->n - first < CHUNK ? x->n - first : CHUNK;
  if (x->dtype == PLAIT_F64) {
    rules_f64[x->rule]((double *)x->param + first, (const double *)x->grad + first, (double *)x->state[0] + first,
                       (double *)x->state[1] + first, (double *)x->state[2] + first, n, numbers);
    return;
  }
  float narrow[PLAITK_OPTIM_NUMBERS];
  for (int i = 0; i < PLAITK_OPTIM_NUMBERS; i++) narrow[i] = (float)numbers[i];
  if (x->dtype == PLAIT_F32) {
    rules_f32[x->rule]((float *)x->param + first, (const float *)x->grad + first, (float *)x->state[0] + first,
                       (float *)x->state[1] + first, (float *)x->state[2] + first, n, narrow);
  } else {
    step_half(x, first, n, narrow);
  }
}

void plaitk_optim_step(plait_pool *pool, plaitk_optim_tensor *tensors, int64_t count, const double *numbers) {
  int64_t chunks = 0;
  for (int64_t i = 0; i < count; i++) {
    tensors[i].first = chunks;
    chunks += (tensors[i].n + CHUNK - 1) / CHUNK;
  }
  step_task t = {tensors, count, numbers};
  plait_parallel(pool, chunks, step_chunk, &t);
}
