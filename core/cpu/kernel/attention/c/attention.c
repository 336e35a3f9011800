#include "attention.h"

#include <math.h>

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_exp_below.h"
#include "../../../include/plait_gemm.h"
#include "../../../include/plait_philox.h"

// Number of keys in a tile.
#define KEYS 64
// Multiplications in a chunk, at least.
#define CHUNK_WORK (1 << 20)
// With fewer heads than this, backward splits the keys of each head.
#define ENOUGH_HEADS 16

PLAIT_INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
PLAIT_INLINE int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
PLAIT_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One call, as its chunks see it.
struct job {
  const struct plaitk_attention *a;
  struct plaitk_attention_view o, d_o, dq, dk, dv, dk_sum, dv_sum;
  void *lse;
  void *dq_parts;  // [splits][batch][heads][queries][dim] if there are several splits
  int64_t splits, split_keys, tiles, per_chunk;
};

PLAIT_INLINE double mask_value(const struct plaitk_attention *a, int64_t i) {
  switch (a->mask_dtype) {
    case PLAIT_BOOL: return ((const uint8_t *)a->mask)[i] ? 0 : -(double)INFINITY;
    case PLAIT_F16: return plait_f16_to_f32(((const uint16_t *)a->mask)[i]);
    case PLAIT_BF16: return plait_bf16_to_f32(((const uint16_t *)a->mask)[i]);
    case PLAIT_F32: return ((const float *)a->mask)[i];
    default: return ((const double *)a->mask)[i];
  }
}

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define PLAIT_ATTENTION_X86 1
#endif

#define PASTE_(a, b, c) a##_##b##_##c
#define PASTE(a, b, c) PASTE_(a, b, c)
#define FN(name) PASTE(name, SUFFIX, ISA)

#define SUFFIX f32
#define T float
#define ELEMENT_DTYPE PLAIT_F32
#define EXP(v) plait_exp_belowf(v)
#define LOG(v) plait_vm_logf(v)
#include "isas.h"
#undef SUFFIX
#undef T
#undef ELEMENT_DTYPE
#undef EXP
#undef LOG

#include "bf16.h"

#define SUFFIX f64
#define T double
#define ELEMENT_DTYPE PLAIT_F64
#define EXP(v) plait_vm_exp(v)
#define LOG(v) plait_vm_log(v)
#include "isas.h"

// The tile functions for one instruction set.
struct tiles {
  void (*forward)(const struct job *j, int64_t batch, int64_t head, int64_t query);
  void (*backward)(const struct job *j, int64_t batch, int64_t kv, int64_t split);
  void (*combine)(const struct job *j, int64_t batch, int64_t head);
};

// The newest instruction set that kernels may use. Tests lower it.
static int newest = PLAITK_ATTENTION_TILES;

void plaitk_attention_limit(int isa) { newest = isa; }

static struct tiles tiles_for(int dtype) {
  bool wide = dtype == PLAIT_F64;
#ifdef PLAIT_ATTENTION_X86
  if (dtype == PLAIT_BF16) return (struct tiles){.forward = forward_tile_bf16_tiles};
  if (newest >= PLAITK_ATTENTION_V4 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")) {
    if (wide) return (struct tiles){forward_tile_f64_v4, backward_split_f64_v4, combine_dq_f64_v4};
    return (struct tiles){forward_tile_f32_v4, backward_split_f32_v4, combine_dq_f32_v4};
  }
  if (newest >= PLAITK_ATTENTION_V3 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    if (wide) return (struct tiles){forward_tile_f64_v3, backward_split_f64_v3, combine_dq_f64_v3};
    return (struct tiles){forward_tile_f32_v3, backward_split_f32_v3, combine_dq_f32_v3};
  }
#endif
  if (wide) return (struct tiles){forward_tile_f64_base, backward_split_f64_base, combine_dq_f64_base};
  return (struct tiles){forward_tile_f32_base, backward_split_f32_base, combine_dq_f32_base};
}

struct run {
  struct job job;
  struct tiles tiles;
};

static void run_forward(void *arg, int64_t chunk) {
  const struct run *r = arg;
  const struct job *j = &r->job;
  int64_t total = j->a->batch * j->a->heads * j->tiles, lanes = j->a->dtype == PLAIT_F64 ? 32 : 64;
  int64_t last = min64(total, (chunk + 1) * j->per_chunk);
  for (int64_t t = chunk * j->per_chunk; t < last; t++) {
    int64_t head = t / j->tiles;
    // With causal attention, later queries see more keys. Start with them, so that no long tile is left for the end.
    int64_t tile = j->tiles - 1 - t % j->tiles;
    r->tiles.forward(j, head / j->a->heads, head % j->a->heads, tile * lanes);
  }
}

static void run_backward(void *arg, int64_t chunk) {
  const struct run *r = arg;
  const struct job *j = &r->job;
  int64_t total = j->a->batch * j->a->kv_heads * j->splits, last = min64(total, (chunk + 1) * j->per_chunk);
  for (int64_t t = chunk * j->per_chunk; t < last; t++) {
    int64_t head = t / j->splits;
    r->tiles.backward(j, head / j->a->kv_heads, head % j->a->kv_heads, t % j->splits);
  }
}

static void run_combine(void *arg, int64_t head) {
  const struct run *r = arg;
  r->tiles.combine(&r->job, head / r->job.a->heads, head % r->job.a->heads);
}

static int64_t acc_size(int dtype) { return dtype == PLAIT_F64 ? 8 : 4; }

// Reports whether the forward pass reads and writes 16-bit floats as they are.
static bool by_tiles(int dtype) {
#ifdef PLAIT_ATTENTION_X86
  return newest >= PLAITK_ATTENTION_TILES && plaitk_gemm_has_tiles(dtype);
#else
  (void)dtype;
  return false;
#endif
}

static bool is_half(int dtype) { return dtype == PLAIT_F16 || dtype == PLAIT_BF16; }

// Tensors of 16-bit floats are converted to contiguous float32 copies.
struct convert {
  int dtype;
  const struct plaitk_attention_view *half;
  float *wide;
  int64_t batch, heads, rows, dim;
  bool back;
};

PLAIT_CLONES static void widen_row(int dtype, const uint16_t *x, float *y, int64_t n) {
  if (dtype == PLAIT_F16) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = plait_f16_to_f32(x[i]);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = plait_bf16_to_f32(x[i]);
  }
}

PLAIT_CLONES static void narrow_row(int dtype, const float *x, uint16_t *y, int64_t n) {
  if (dtype == PLAIT_F16) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = plait_f32_to_f16(x[i]);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = plait_f32_to_bf16(x[i]);
  }
}

static void run_convert(void *arg, int64_t head) {
  const struct convert *c = arg;
  uint16_t *half = (uint16_t *)c->half->data + head / c->heads * c->half->batch + head % c->heads * c->half->head;
  float *wide = c->wide + head * c->rows * c->dim;
  for (int64_t r = 0; r < c->rows; r++) {
    if (c->back) narrow_row(c->dtype, wide + r * c->dim, half + r * c->half->row, c->dim);
    else widen_row(c->dtype, half + r * c->half->row, wide + r * c->dim, c->dim);
  }
}

static void convert(plait_pool *pool, int dtype, const struct plaitk_attention_view *half,
                    const struct plaitk_attention_view *wide, int64_t batch, int64_t heads, int64_t rows, int64_t dim,
                    bool back) {
  struct convert c = {dtype, half, (float *)wide->data, batch, heads, rows, dim, back};
  plait_parallel(pool, batch * heads, run_convert, &c);
}

// Carves a contiguous [batch, heads, rows, dim] float32 tensor from *at.
static struct plaitk_attention_view carve_tensor(char **at, int64_t batch, int64_t heads, int64_t rows, int64_t dim) {
  struct plaitk_attention_view v = {*at, heads * rows * dim, rows * dim, dim};
  *at += (batch * heads * rows * dim * 4 + 63) / 64 * 64;
  return v;
}

static int64_t tensor_bytes(int64_t batch, int64_t heads, int64_t rows, int64_t dim, int64_t size) {
  return (batch * heads * rows * dim * size + 63) / 64 * 64;
}

int64_t plaitk_attention_forward_scratch(const struct plaitk_attention *a) {
  if (!is_half(a->dtype) || by_tiles(a->dtype)) return 0;
  return tensor_bytes(a->batch, a->heads, a->queries, a->dim + a->value_dim, 4) +
         tensor_bytes(a->batch, a->kv_heads, a->keys, a->dim + a->value_dim, 4) + 256;
}

static void forward(plait_pool *pool, const struct plaitk_attention *a, struct plaitk_attention_view o, void *lse) {
  int64_t lanes = a->dtype == PLAIT_F64 ? 32 : 64;
  struct run r = {.job = {.a = a, .o = o, .lse = lse, .tiles = ceil_div(a->queries, lanes)},
                  .tiles = tiles_for(a->dtype)};
  r.job.per_chunk = max64(1, CHUNK_WORK / max64(1, lanes * a->keys * (a->dim + a->value_dim)));
  plait_parallel(pool, ceil_div(a->batch * a->heads * r.job.tiles, r.job.per_chunk), run_forward, &r);
}

// Replaces the 16-bit inputs of *a by float32 copies.
static void widen_inputs(plait_pool *pool, struct plaitk_attention *a, char **at) {
  int dtype = a->dtype;
  struct plaitk_attention_view q = carve_tensor(at, a->batch, a->heads, a->queries, a->dim);
  struct plaitk_attention_view k = carve_tensor(at, a->batch, a->kv_heads, a->keys, a->dim);
  struct plaitk_attention_view v = carve_tensor(at, a->batch, a->kv_heads, a->keys, a->value_dim);
  convert(pool, dtype, &a->q, &q, a->batch, a->heads, a->queries, a->dim, false);
  convert(pool, dtype, &a->k, &k, a->batch, a->kv_heads, a->keys, a->dim, false);
  convert(pool, dtype, &a->v, &v, a->batch, a->kv_heads, a->keys, a->value_dim, false);
  a->q = q;
  a->k = k;
  a->v = v;
  a->dtype = PLAIT_F32;
}

void plaitk_attention_forward(plait_pool *pool, const struct plaitk_attention *a, struct plaitk_attention_view o,
                              void *lse, void *scratch) {
  if (a->batch * a->heads * a->queries == 0) return;
  if (!is_half(a->dtype) || by_tiles(a->dtype)) {
    forward(pool, a, o, lse);
    return;
  }
  struct plaitk_attention wide = *a;
  char *at = scratch;
  widen_inputs(pool, &wide, &at);
  struct plaitk_attention_view wide_o = carve_tensor(&at, a->batch, a->heads, a->queries, a->value_dim);
  forward(pool, &wide, wide_o, lse);
  convert(pool, a->dtype, &o, &wide_o, a->batch, a->heads, a->queries, a->value_dim, true);
}

static int64_t count_splits(const struct plaitk_attention *a) {
  int64_t heads = max64(1, a->batch * a->kv_heads), tiles = max64(1, ceil_div(a->keys, KEYS));
  return heads >= ENOUGH_HEADS ? 1 : min64(tiles, ceil_div(ENOUGH_HEADS, heads));
}

static bool fits_vectors(const struct plaitk_attention_view *v, int64_t dim, int64_t size) {
  return dim * size % 64 == 0 && v->row >= dim;
}

int64_t plaitk_attention_backward_scratch(const struct plaitk_attention *a) {
  int64_t size = acc_size(a->dtype), splits = count_splits(a);
  int64_t q = tensor_bytes(a->batch, a->heads, a->queries, a->dim, size);
  int64_t o = tensor_bytes(a->batch, a->heads, a->queries, a->value_dim, size);
  int64_t k = tensor_bytes(a->batch, a->kv_heads, a->keys, a->dim, size);
  int64_t v = tensor_bytes(a->batch, a->kv_heads, a->keys, a->value_dim, size);
  int64_t padded = tensor_bytes(a->batch, a->kv_heads, a->keys, a->dim + a->value_dim + 32, size);
  return (splits > 1 ? splits * q : 0) + padded + (is_half(a->dtype) ? 2 * (q + o + k + v) : 0) + 1024;
}

static void backward(plait_pool *pool, struct run *r, char *at) {
  struct job *j = &r->job;
  const struct plaitk_attention *a = j->a;
  int64_t size = acc_size(a->dtype), per = 64 / size;
  r->tiles = tiles_for(a->dtype);
  j->splits = count_splits(a);
  j->split_keys = ceil_div(ceil_div(a->keys, j->splits), KEYS) * KEYS;
  j->splits = max64(1, ceil_div(a->keys, max64(1, j->split_keys)));
  if (j->splits > 1) {
    j->dq_parts = at;
    at += j->splits * tensor_bytes(a->batch, a->heads, a->queries, a->dim, size);
  }
  struct plaitk_attention_view *out[2] = {&j->dk, &j->dv}, *sum[2] = {&j->dk_sum, &j->dv_sum};
  int64_t dims[2] = {a->dim, a->value_dim};
  for (int i = 0; i < 2; i++) {
    *sum[i] = *out[i];
    if (!out[i]->data || fits_vectors(out[i], dims[i], size)) continue;
    int64_t ld = ceil_div(dims[i], per) * per;
    *sum[i] = (struct plaitk_attention_view){at, a->kv_heads * a->keys * ld, a->keys * ld, ld};
    at += tensor_bytes(a->batch, a->kv_heads, a->keys, ld, size);
  }
  int64_t work = a->heads / max64(1, a->kv_heads) * a->queries * min64(a->keys, j->split_keys) * (a->dim + a->value_dim);
  j->per_chunk = max64(1, CHUNK_WORK / max64(1, work));
  plait_parallel(pool, ceil_div(a->batch * a->kv_heads * j->splits, j->per_chunk), run_backward, r);
  if (j->splits > 1 && j->dq.data) plait_parallel(pool, a->batch * a->heads, run_combine, r);
}

void plaitk_attention_backward(plait_pool *pool, const struct plaitk_attention *a, struct plaitk_attention_view o,
                               const void *lse, struct plaitk_attention_view d_o, struct plaitk_attention_view dq,
                               struct plaitk_attention_view dk, struct plaitk_attention_view dv, void *scratch) {
  if (a->batch * a->kv_heads == 0) return;
  struct run r = {.job = {.a = a, .o = o, .d_o = d_o, .dq = dq, .dk = dk, .dv = dv, .lse = (void *)lse}};
  if (!is_half(a->dtype)) {
    backward(pool, &r, scratch);
    return;
  }
  struct plaitk_attention wide = *a;
  char *at = scratch;
  widen_inputs(pool, &wide, &at);
  r.job.a = &wide;
  r.job.o = carve_tensor(&at, a->batch, a->heads, a->queries, a->value_dim);
  r.job.d_o = carve_tensor(&at, a->batch, a->heads, a->queries, a->value_dim);
  convert(pool, a->dtype, &o, &r.job.o, a->batch, a->heads, a->queries, a->value_dim, false);
  convert(pool, a->dtype, &d_o, &r.job.d_o, a->batch, a->heads, a->queries, a->value_dim, false);
  if (dq.data) r.job.dq = carve_tensor(&at, a->batch, a->heads, a->queries, a->dim);
  if (dk.data) r.job.dk = carve_tensor(&at, a->batch, a->kv_heads, a->keys, a->dim);
  if (dv.data) r.job.dv = carve_tensor(&at, a->batch, a->kv_heads, a->keys, a->value_dim);
  backward(pool, &r, at);
  if (dq.data) convert(pool, a->dtype, &dq, &r.job.dq, a->batch, a->heads, a->queries, a->dim, true);
  if (dk.data) convert(pool, a->dtype, &dk, &r.job.dk, a->batch, a->kv_heads, a->keys, a->dim, true);
  if (dv.data) convert(pool, a->dtype, &dv, &r.job.dv, a->batch, a->kv_heads, a->keys, a->value_dim, true);
}
