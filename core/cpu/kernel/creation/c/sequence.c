// Sequences of numbers.
#include <math.h>

#include "../../copying/c/copying.h"
#include "creation.h"

enum { BLOCK = 1024, CHUNK_ELEMENTS = 1 << 15 };

typedef struct sequence_job {
  const plait_view *out;
  bool integer; // values are int64
  void (*values)(const struct sequence_job *j, void *buffer, int64_t first, int64_t n);
  int64_t count, istart, istep;
  double a, b, base;
} sequence_job;

// Unsigned, so that integers wrap.
PLAIT_CLONES static void arange_int(const sequence_job *j, void *buffer, int64_t first, int64_t n) {
  uint64_t *v = buffer, step = (uint64_t)j->istep, start = (uint64_t)j->istart + (uint64_t)first * step;
  for (int64_t i = 0; i < n; i++) v[i] = start + (uint64_t)i * step;
}

static void arange_real(const sequence_job *j, void *buffer, int64_t first, int64_t n) {
  double *v = buffer, start = j->a, step = j->b, from = (double)first;
  for (int64_t i = 0; i < n; i++) v[i] = start + (from + (double)(int32_t)i) * step;
}

// Computes each element from the nearer end, so that both ends are exact.
static void linspace(const sequence_job *j, void *buffer, int64_t first, int64_t n) {
  double *v = buffer, step = j->count > 1 ? (j->b - j->a) / (double)(j->count - 1) : 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t at = first + i;
    v[i] = at < (j->count + 1) / 2 ? j->a + step * (double)at : j->b - step * (double)(j->count - 1 - at);
  }
}

static void logspace(const sequence_job *j, void *buffer, int64_t first, int64_t n) {
  double *v = buffer;
  linspace(j, buffer, first, n);
  for (int64_t i = 0; i < n; i++) v[i] = pow(j->base, v[i]);
}

static void sequence_chunk(void *arg, int64_t chunk) {
  const sequence_job *j = arg;
  int64_t last = plait_min64(j->count, (chunk + 1) * CHUNK_ELEMENTS), size = plait_dtype_size(j->out->dtype);
  int64_t type = j->integer ? PLAIT_I64 : PLAIT_F64;
  plaitk_convert convert = plaitk_copying_converter(j->out->dtype, type);
  for (int64_t i = chunk * CHUNK_ELEMENTS; i < last; i += BLOCK) {
    double values[BLOCK], converted[BLOCK];
    int64_t n = plait_min64(BLOCK, last - i);
    if (j->out->stride[0] == 1) {
      void *out = j->out->data + i * size;
      j->values(j, j->out->dtype == type ? out : values, i, n);
      if (j->out->dtype != type) convert(out, values, n);
      continue;
    }
    j->values(j, values, i, n);
    convert(converted, values, n);
    plaitk_plane p = {.n = {n, 1}, .out = {j->out->stride[0] * size, 0}, .in = {size, 0}};
    plaitk_copying_plane(size, j->out->data + i * j->out->stride[0] * size, (char *)converted, &p);
  }
}

static void run(plait_pool *pool, sequence_job *j) {
  j->count = j->out->shape[0];
  int64_t chunks = plait_ceil_div(j->count, CHUNK_ELEMENTS);
  if (chunks == 1) {
    sequence_chunk(j, 0);
  } else if (chunks > 1) {
    plait_parallel(pool, chunks, sequence_chunk, j);
  }
}

void plaitk_creation_arange(plait_pool *pool, const plait_view *out, int64_t istart, int64_t istep, double start, double step) {
  bool integer = !plait_is_float(out->dtype);
  sequence_job j = {.out = out, .integer = integer, .values = integer ? arange_int : arange_real,
                    .istart = istart, .istep = istep, .a = start, .b = step};
  run(pool, &j);
}

void plaitk_creation_linspace(plait_pool *pool, const plait_view *out, double a, double b) {
  sequence_job j = {.out = out, .values = linspace, .a = a, .b = b};
  run(pool, &j);
}

void plaitk_creation_logspace(plait_pool *pool, const plait_view *out, double a, double b, double base) {
  sequence_job j = {.out = out, .values = logspace, .a = a, .b = b, .base = base};
  run(pool, &j);
}
