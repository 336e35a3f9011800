#include "recurrent.h"

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_gemm.h"
#include "../../../include/plait_vmath.h"

#define ROWS 8                     // sequences in a chunk
#define MANY_ROWS 16               // batch size from which chunks are sequences, not features
#define RESIDENT_BYTES (512 << 10) // size of weights up to which every thread may read all of them in each step
#define CHUNK_PRODUCTS (1 << 17)   // multiplications in a chunk of features
#define PACK_PRODUCTS 65536        // elements in a chunk of packing

#define T float
#define FN(name) name##_f32
#define SIGMOID(v) plait_vm_sigmoidf(v)
#define TANH(v) plait_vm_tanhf(v)
#include "cells.h"
#define T double
#define FN(name) name##_f64
#define SIGMOID(v) plait_vm_sigmoid(v)
#define TANH(v) plait_vm_tanh(v)
#include "cells.h"

struct job {
  const struct plaitk_recurrent *a;
  int backward;
  int64_t size, gates, products;  // products: number of matrices that the weights are packed into
  plaitk_gemm_panels panels[4];   // forward: one for each gate; backward: one for all
  char *sums;                     // [n, products, count * panel]
  void *zeros;                    // [3, hidden]
  int64_t pack_panels, chunk_panels, round;
};

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static struct job job_of(const struct plaitk_recurrent *a, int backward) {
  struct job j = {.a = a, .backward = backward, .size = a->dtype == PLAIT_F64 ? 8 : 4};
  j.gates = a->kind == RECURRENT_LSTM ? 4 : 3;
  j.products = backward ? 1 : j.gates;
  char *data = a->scratch;
  for (int64_t g = 0; g < j.products; g++) {
    plaitk_gemm_panels *p = &j.panels[g];
    *p = plaitk_gemm_panels_of(a->dtype, backward ? j.gates * a->hidden : a->hidden, a->hidden);
    p->data = data;
    data += p->count * p->panel * p->k * j.size;
  }
  j.sums = data;
  j.zeros = data + a->n * j.products * j.panels[0].count * j.panels[0].panel * j.size;
  return j;
}

int64_t plaitk_recurrent_scratch(const struct plaitk_recurrent *a, int backward) {
  struct job j = job_of(a, backward);
  int64_t columns = j.panels[0].count * j.panels[0].panel;
  return (columns * j.products * (j.panels[0].k + a->n) + 3 * a->hidden) * j.size;
}

static void pack_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  const struct plaitk_recurrent *a = j->a;
  int64_t per = ceil_div(j->panels[0].count, j->pack_panels), g = chunk / per, first = chunk % per * j->pack_panels;
  int64_t last = min64(first + j->pack_panels, j->panels[0].count);
  if (j->backward) {
    plaitk_gemm_pack(&j->panels[0], a->w, a->w_row, a->w_col, first, last);
  } else {
    plaitk_gemm_pack(&j->panels[g], (const char *)a->w + g * a->hidden * a->w_row * j->size, a->w_col, a->w_row, first,
                     last);
  }
}

// Runs step `round`, counted in the order of execution, for some rows and panels.
static void run_step(const struct job *j, int64_t round, int64_t r0, int64_t r1, int64_t first, int64_t last) {
  const struct plaitk_recurrent *a = j->a;
  int64_t time = j->backward ? a->steps - 1 - round : round;
  int64_t step = a->reverse ? a->steps - 1 - time : time, next = a->reverse ? step - 1 : step + 1;
  int64_t prev = time == 0 ? -1 : a->reverse ? step + 1 : step - 1;
  int64_t gate = j->panels[0].count * j->panels[0].panel, row = j->products * gate;
  int64_t j0 = first * j->panels[0].panel, j1 = min64(last * j->panels[0].panel, a->hidden);
  // The left-hand side of the product: the state before this step, or the gradients of the gates in the next step.
  int64_t width = j->panels[0].k;
  const char *left = NULL;
  if (!j->backward) {
    left = prev < 0 ? a->h0 : (const char *)a->y + prev * a->n * width * j->size;
  } else if (round > 0) {
    left = (const char *)(a->kind == RECURRENT_GRU ? a->ds : a->dx) + next * a->n * width * j->size;
  }
  for (int64_t g = 0; g < j->products; g++) {
    char *to = j->sums + (r0 * row + g * gate) * j->size;
    if (left != NULL) {
      plaitk_gemm_by_panels(&j->panels[g], r1 - r0, left + r0 * width * j->size, width, first, last, to, row);
    } else {
      for (int64_t r = 0; r < r1 - r0; r++) {
        memset(to + (r * row + j0) * j->size, 0, (size_t)((last - first) * j->panels[0].panel * j->size));
      }
    }
  }
#define CELL(suffix)                                                                   \
  if (a->kind == RECURRENT_LSTM && !j->backward) {                                     \
    lstm_##suffix(a, step, prev, r0, r1, j0, j1, j->sums, row, gate);                  \
  } else if (a->kind == RECURRENT_LSTM) {                                              \
    lstm_grad_##suffix(a, step, prev, r0, r1, j0, j1, j->sums, row, j->zeros);         \
  } else if (!j->backward) {                                                           \
    gru_##suffix(a, step, prev, r0, r1, j0, j1, j->sums, row, gate, j->zeros);         \
  } else {                                                                             \
    gru_grad_##suffix(a, step, prev, r0, r1, j0, j1, j->sums, row, j->zeros);          \
  }
  if (j->size == 8) {
    CELL(f64)
  } else {
    CELL(f32)
  }
#undef CELL
}

static void rows_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  int64_t r0 = chunk * ROWS, r1 = min64(r0 + ROWS, j->a->n);
  for (int64_t t = 0; t < j->a->steps; t++) run_step(j, t, r0, r1, 0, j->panels[0].count);
}

static void features_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  int64_t first = chunk * j->chunk_panels;
  run_step(j, j->round, 0, j->a->n, first, min64(first + j->chunk_panels, j->panels[0].count));
}

void plaitk_recurrent_run(plait_pool *pool, const struct plaitk_recurrent *a, int backward) {
  if (a->n == 0 || a->hidden == 0 || a->steps == 0) return;
  struct job j = job_of(a, backward);
  const plaitk_gemm_panels *p = &j.panels[0];
  memset(j.zeros, 0, (size_t)(3 * a->hidden * j.size));
  if (backward) memset(a->carry, 0, (size_t)(a->n * a->hidden * j.size));
  int64_t panel_products = p->panel * p->k;
  j.pack_panels = max64(1, PACK_PRODUCTS / panel_products);
  plait_parallel(pool, j.products * ceil_div(p->count, j.pack_panels), pack_chunk, &j);
  if (a->n >= MANY_ROWS && j.gates * a->hidden * a->hidden * j.size <= RESIDENT_BYTES) {
    plait_parallel(pool, ceil_div(a->n, ROWS), rows_chunk, &j);
    return;
  }
  j.chunk_panels = min64(p->count, max64(1, CHUNK_PRODUCTS / (panel_products * j.products * a->n)));
  for (; j.round < a->steps; j.round++) plait_parallel(pool, ceil_div(p->count, j.chunk_panels), features_chunk, &j);
}
