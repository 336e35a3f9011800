#include "recurrent.h"

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_gemm.h"
#include "../../../include/plait_vmath.h"

#define MANY_ROWS 16               // batch size from which chunks are sequences, not features
#define CHUNK_ROWS 32              // most sequences in a chunk
#define RESIDENT_BYTES (1 << 20)   // size of weights up to which every thread may read all of them in each step
#define CHUNK_PRODUCTS (1 << 17)   // multiplications in a chunk of features
#define TILE_PRODUCTS (1 << 19)    // the same by tile registers
#define PACK_PRODUCTS 65536        // elements in a chunk of packing

#define T float
#define H float
#define LOAD(v) (v)
#define STORE(v) (v)
#define FN(name) name##_f32
#define SIGMOID(v) plait_vm_sigmoidf(v)
#define TANH(v) plait_vm_tanhf(v)
#include "cells.h"
#define T double
#define H double
#define LOAD(v) (v)
#define STORE(v) (v)
#define FN(name) name##_f64
#define SIGMOID(v) plait_vm_sigmoid(v)
#define TANH(v) plait_vm_tanh(v)
#include "cells.h"
#define T float
#define H uint16_t
#define LOAD(v) plait_bf16_to_f32(v)
#define STORE(v) plait_f32_to_bf16(v)
#define FN(name) name##_bf16
#define SIGMOID(v) plait_vm_sigmoidf(v)
#define TANH(v) plait_vm_tanhf(v)
#include "cells.h"

struct job {
  const struct plaitk_recurrent *a;
  int backward, tiles;            // tiles: the products are of bfloat16, by tile registers
  int64_t size, wide, gates;      // bytes of an element of the states, and of the sums
  int64_t products;               // number of matrices that the weights are packed into
  plaitk_gemm_panels panels[4];   // forward: one for each gate; backward: one for all
  int64_t panel_bytes;
  const char *w;                  // the weights as they are packed, with these strides
  int64_t w_row, w_col;
  char *wide_w;                   // a copy of the weights in float32, where bfloat16 has no tiles
  char *sums;                     // [n, products, count * panel]
  char *lefts;                    // of each chunk, the left-hand side of its product, if that is not a tensor
  void *zeros;                    // [3, hidden]
  int64_t left_bytes, bytes;      // bytes of a left-hand side, and of all scratch
  int64_t rows;                   // in a chunk of sequences, or 0 if chunks are features
  int64_t pack_panels, chunk_panels, round;
};

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t left_bytes(const struct job *j, int64_t rows) {
  if (j->size == j->wide) return 0;
  return j->tiles ? plaitk_gemm_tiles_bytes(rows, j->panels[0].k) : round_up(rows * j->panels[0].k * j->wide, 64);
}

// Gives out scratch, aligned to 64 bytes.
static char *take(struct job *j, int64_t bytes) {
  char *data = j->a->scratch == NULL ? NULL : (char *)j->a->scratch + j->bytes;
  j->bytes += round_up(bytes, 64);
  return data;
}

static struct job job_of(plait_pool *pool, const struct plaitk_recurrent *a, int backward) {
  struct job j = {.a = a, .backward = backward, .w = a->w, .w_row = a->w_row, .w_col = a->w_col};
  j.size = a->dtype == PLAIT_F64 ? 8 : a->dtype == PLAIT_F32 ? 4 : 2;
  j.wide = max64(4, j.size);
  j.tiles = a->dtype == PLAIT_BF16 && plaitk_gemm_has_tiles(PLAIT_BF16);
  j.gates = a->kind == RECURRENT_LSTM ? 4 : 3;
  j.products = backward ? 1 : j.gates;
  for (int64_t g = 0; g < j.products; g++) {
    plaitk_gemm_panels *p = &j.panels[g];
    int64_t k = backward ? j.gates * a->hidden : a->hidden;
    if (j.tiles) {
      *p = (plaitk_gemm_panels){.k = k, .n = a->hidden, .panel = PLAITK_GEMM_TILE};
      p->count = ceil_div(p->n, p->panel);
    } else {
      *p = plaitk_gemm_panels_of(a->dtype == PLAIT_F64 ? PLAIT_F64 : PLAIT_F32, k, a->hidden);
    }
    j.panel_bytes = j.tiles ? plaitk_gemm_tiles_bytes(p->panel, k) : p->panel * k * j.wide;
    p->data = take(&j, p->count * j.panel_bytes);
  }
  const plaitk_gemm_panels *p = &j.panels[0];
  int64_t panel_products = p->panel * p->k * j.products;
  j.pack_panels = max64(1, PACK_PRODUCTS / (p->panel * p->k));
  j.sums = take(&j, a->n * j.products * p->count * p->panel * j.wide);
  j.zeros = take(&j, 3 * a->hidden * j.wide);
  if (j.size < j.wide && !j.tiles) j.wide_w = take(&j, j.gates * a->hidden * a->hidden * j.wide);
  int64_t chunks;
  if (a->n >= MANY_ROWS && p->count * j.products * j.panel_bytes <= RESIDENT_BYTES) {
    int64_t threads = plait_pool_threads(pool);
    j.rows = ceil_div(a->n, round_up(ceil_div(a->n, CHUNK_ROWS), threads));
    chunks = ceil_div(a->n, j.rows);
  } else {
    int64_t most = (j.tiles ? TILE_PRODUCTS : CHUNK_PRODUCTS) / (panel_products * a->n);
    j.chunk_panels = min64(p->count, max64(1, most));
    chunks = ceil_div(p->count, j.chunk_panels);
  }
  j.left_bytes = left_bytes(&j, j.rows > 0 ? j.rows : a->n);
  j.lefts = take(&j, chunks * j.left_bytes);
  return j;
}

int64_t plaitk_recurrent_scratch(plait_pool *pool, const struct plaitk_recurrent *a, int backward) {
  return a->n == 0 || a->hidden == 0 ? 0 : job_of(pool, a, backward).bytes;
}

PLAIT_CLONES static void widen(float *to, const uint16_t *from, int64_t n, int64_t step) {
  for (int64_t i = 0; i < n; i++) to[i] = plait_bf16_to_f32(from[i * step]);
}

static void widen_chunk(void *arg, int64_t row) {
  const struct job *j = arg;
  int64_t h = j->a->hidden;
  widen((float *)j->wide_w + row * h, (const uint16_t *)j->a->w + row * j->a->w_row, h, j->a->w_col);
}

static void pack_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  int64_t per = ceil_div(j->panels[0].count, j->pack_panels), g = chunk / per, first = chunk % per * j->pack_panels;
  const plaitk_gemm_panels *p = &j->panels[g];
  int64_t last = min64(first + j->pack_panels, p->count), element = j->tiles ? j->size : j->wide;
  const char *b = j->w + g * j->a->hidden * j->w_row * element;
  int64_t b_row = j->backward ? j->w_row : j->w_col, b_col = j->backward ? j->w_col : j->w_row;
  if (j->tiles) {
    int64_t column = first * p->panel;
    plaitk_gemm_tiles_b((char *)p->data + first * j->panel_bytes, (const uint16_t *)b + column * b_col,
                        min64(last * p->panel, p->n) - column, b_col, p->k, b_row);
  } else {
    plaitk_gemm_pack(p, b, b_row, b_col, first, last);
  }
}

// Multiplies `rows` rows of the left-hand side by the weights, for some panels. `own` is the chunk's memory.
static void multiply(const struct job *j, const char *left, int64_t rows, int64_t first, int64_t last, char *own,
                     char *to) {
  const plaitk_gemm_panels *p = j->panels;
  int64_t gate = p->count * p->panel, row = j->products * gate;
  if (j->tiles) {
    plaitk_gemm_tiles_a(own, (const uint16_t *)left, rows, p->k, p->k, 1);
    int64_t column = first * p->panel, columns = min64(last * p->panel, p->n) - column;
    for (int64_t g = 0; g < j->products; g++) {
      plaitk_gemm_by_tiles(rows, columns, p->k, own, (const char *)p[g].data + first * j->panel_bytes,
                           (float *)to + g * gate + column, row, 0);
    }
    return;
  }
  if (j->size < j->wide) {
    widen((float *)own, (const uint16_t *)left, rows * p->k, 1);
    left = own;
  }
  for (int64_t g = 0; g < j->products; g++) {
    plaitk_gemm_by_panels(&p[g], rows, left, p->k, first, last, to + g * gate * j->wide, row);
  }
}

// Runs step `round`, counted in the order of execution, for some rows and panels: a chunk's.
static void run_step(const struct job *j, int64_t round, int64_t r0, int64_t r1, int64_t first, int64_t last,
                     int64_t chunk) {
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
  char *to = j->sums + r0 * row * j->wide;
  if (left != NULL) {
    multiply(j, left + r0 * width * j->size, r1 - r0, first, last, j->lefts + chunk * j->left_bytes, to);
  } else {  // of a backward pass, which has one product
    for (int64_t r = 0; r < r1 - r0; r++) memset(to + (r * row + j0) * j->wide, 0, (size_t)((j1 - j0) * j->wide));
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
  if (a->dtype == PLAIT_F64) {
    CELL(f64)
  } else if (a->dtype == PLAIT_F32) {
    CELL(f32)
  } else {
    CELL(bf16)
  }
#undef CELL
}

static void rows_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  int64_t r0 = chunk * j->rows, r1 = min64(r0 + j->rows, j->a->n);
  for (int64_t t = 0; t < j->a->steps; t++) run_step(j, t, r0, r1, 0, j->panels[0].count, chunk);
}

static void features_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  int64_t first = chunk * j->chunk_panels;
  run_step(j, j->round, 0, j->a->n, first, min64(first + j->chunk_panels, j->panels[0].count), chunk);
}

void plaitk_recurrent_run(plait_pool *pool, const struct plaitk_recurrent *a, int backward) {
  if (a->n == 0 || a->hidden == 0 || a->steps == 0) return;
  struct job j = job_of(pool, a, backward);
  int64_t count = j.panels[0].count;
  memset(j.zeros, 0, (size_t)(3 * a->hidden * j.wide));
  if (backward) memset(a->carry, 0, (size_t)(a->n * a->hidden * j.wide));
  if (j.wide_w != NULL) {
    plait_parallel(pool, j.gates * a->hidden, widen_chunk, &j);
    j.w = j.wide_w, j.w_row = a->hidden, j.w_col = 1;
  }
  plait_parallel(pool, j.products * ceil_div(count, j.pack_panels), pack_chunk, &j);
  if (j.rows > 0) {
    plait_parallel(pool, ceil_div(a->n, j.rows), rows_chunk, &j);
    return;
  }
  for (; j.round < a->steps; j.round++) plait_parallel(pool, ceil_div(count, j.chunk_panels), features_chunk, &j);
}
