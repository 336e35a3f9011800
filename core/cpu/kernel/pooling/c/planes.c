// Gather and scatter within planes.
#include <stdatomic.h>

#include "../../../include/plait_slots.h"
#include "pooling.h"

typedef struct {
  int64_t size, planes, n_in, n_index, n_out;
  const char *in;
  const int64_t *index;
  char *out;
  int64_t chunk;  // planes per chunk
  void (*run)(const void *in, const int64_t *index, void *out, int64_t n, int64_t limit, int64_t *bad, void *sums);
  _Atomic int64_t bad;
  plait_slots slots;
} job;

static void record_bad_index(_Atomic int64_t *bad, int64_t at) {
  int64_t old = atomic_load(bad);
  while ((old < 0 || at < old) && !atomic_compare_exchange_weak(bad, &old, at)) {
  }
}

#define GATHER(S)                                                                                                     \
  static void gather_##S(const void *in, const int64_t *index, void *out, int64_t n, int64_t limit, int64_t *bad,     \
                         void *unused) {                                                                              \
    (void)unused;                                                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                                                 \
      if ((uint64_t)index[i] >= (uint64_t)limit) {                                                                    \
        if (*bad < 0) *bad = i;                                                                                       \
        continue;                                                                                                     \
      }                                                                                                               \
      ((S *)out)[i] = ((const S *)in)[index[i]];                                                                      \
    }                                                                                                                 \
  }

#define PLACE(S)                                                                                                      \
  static void place_##S(const void *in, const int64_t *index, void *out, int64_t n, int64_t limit, int64_t *bad,      \
                        void *unused) {                                                                               \
    (void)unused;                                                                                                     \
    memset(out, 0, (size_t)limit * sizeof(S));                                                                        \
    for (int64_t i = 0; i < n; i++) {                                                                                 \
      if ((uint64_t)index[i] >= (uint64_t)limit) {                                                                    \
        if (*bad < 0) *bad = i;                                                                                       \
        continue;                                                                                                     \
      }                                                                                                               \
      ((S *)out)[index[i]] = ((const S *)in)[i];                                                                      \
    }                                                                                                                 \
  }

GATHER(uint8_t)
GATHER(uint16_t)
GATHER(uint32_t)
GATHER(uint64_t)
PLACE(uint8_t)
PLACE(uint16_t)
PLACE(uint32_t)
PLACE(uint64_t)

#define SAME(x) (x)

#define ADD(NAME, S, T, LOAD, STORE, DIRECT)                                                                          \
  static void add_##NAME(const void *in, const int64_t *index, void *out, int64_t n, int64_t limit, int64_t *bad,     \
                         void *sums) {                                                                                \
    T *to = DIRECT ? out : sums;                                                                                      \
    memset(to, 0, (size_t)limit * sizeof(T));                                                                         \
    for (int64_t i = 0; i < n; i++) {                                                                                 \
      if ((uint64_t)index[i] >= (uint64_t)limit) {                                                                    \
        if (*bad < 0) *bad = i;                                                                                       \
        continue;                                                                                                     \
      }                                                                                                               \
      to[index[i]] += LOAD(((const S *)in)[i]);                                                                       \
    }                                                                                                                 \
    if (!DIRECT) {                                                                                                    \
      for (int64_t i = 0; i < limit; i++) ((S *)out)[i] = STORE(to[i]);                                               \
    }                                                                                                                 \
  }

ADD(f16, uint16_t, float, plait_f16_to_f32, plait_f32_to_f16, 0)
ADD(bf16, uint16_t, float, plait_bf16_to_f32, plait_f32_to_bf16, 0)
ADD(f32, float, float, SAME, SAME, 1)
ADD(f64, double, double, SAME, SAME, 1)

static void chunk(void *arg, int64_t c) {
  job *j = arg;
  int64_t slot = j->slots.size ? plait_slot_acquire(&j->slots) : 0;
  void *sums = j->slots.size ? j->slots.bytes + slot * j->slots.size : NULL;
  int64_t end = (c + 1) * j->chunk < j->planes ? (c + 1) * j->chunk : j->planes;
  for (int64_t p = c * j->chunk; p < end; p++) {
    int64_t bad = -1;
    int64_t limit = j->n_in ? j->n_in : j->n_out;
    j->run(j->in + p * (j->n_in ? j->n_in : j->n_index) * j->size, j->index + p * j->n_index,
           j->out + p * (j->n_in ? j->n_index : j->n_out) * j->size, j->n_index, limit, &bad, sums);
    if (bad >= 0) record_bad_index(&j->bad, p * j->n_index + bad);
  }
  if (j->slots.size) plait_slot_release(&j->slots, slot);
}

static int64_t start(job *j, plait_pool *pool) {
  int64_t per = j->n_index + j->n_out + 1;
  j->chunk = 1 + 16384 / per;
  plait_parallel(pool, (j->planes + j->chunk - 1) / j->chunk, chunk, j);
  return atomic_load(&j->bad);
}

int64_t plaitk_pooling_gather(plait_pool *pool, int64_t size, int64_t planes, int64_t n_in, int64_t n_index,
                              const void *in, const int64_t *index, void *out) {
  if (planes * n_index == 0) return -1;
  if (n_in == 0) return 0;
  job j = {.size = size, .planes = planes, .n_in = n_in, .n_index = n_index, .in = in, .index = index, .out = out,
           .bad = -1};
  switch (size) {
    case 1: j.run = gather_uint8_t; break;
    case 2: j.run = gather_uint16_t; break;
    case 4: j.run = gather_uint32_t; break;
    default: j.run = gather_uint64_t;
  }
  return start(&j, pool);
}

int64_t plaitk_pooling_scatter_scratch(const plait_pool *pool, int64_t dtype, int64_t add, int64_t n_out) {
  if (!add || (dtype != PLAIT_F16 && dtype != PLAIT_BF16)) return 0;
  plait_slots slots;
  char *at = NULL;
  plait_slots_plan(&slots, &at, plait_pool_threads(pool), n_out * 4, 0);
  return (int64_t)(intptr_t)at;
}

int64_t plaitk_pooling_scatter(plait_pool *pool, int64_t dtype, int64_t add, int64_t planes, int64_t n_index,
                               int64_t n_out, const void *in, const int64_t *index, void *out, void *scratch) {
  if (planes * n_out == 0) return planes * n_index == 0 ? -1 : 0;
  job j = {.planes = planes, .n_index = n_index, .n_out = n_out, .in = in, .index = index, .out = out, .bad = -1};
  j.size = plait_dtype_size(dtype);
  switch (add ? dtype : PLAIT_BOOL) {
    case PLAIT_F16: j.run = add_f16; break;
    case PLAIT_BF16: j.run = add_bf16; break;
    case PLAIT_F32: j.run = add_f32; break;
    case PLAIT_F64: j.run = add_f64; break;
    default: j.run = j.size == 1 ? place_uint8_t : j.size == 2 ? place_uint16_t : j.size == 4 ? place_uint32_t : place_uint64_t;
  }
  if (add && (dtype == PLAIT_F16 || dtype == PLAIT_BF16)) {
    char *at = scratch;
    plait_slots_plan(&j.slots, &at, plait_pool_threads(pool), n_out * 4, 1);
  }
  return start(&j, pool);
}
