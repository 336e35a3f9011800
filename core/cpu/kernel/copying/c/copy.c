// The kernels that consist of one copy: copy and fill.
#include "copying.h"

enum { CHUNK_BYTES = 1 << 18 }; // of a chunk

typedef struct {
  const plaitk_copy_plan *plans;
  int64_t count, chunks;
} copy_job;

// Chunk c runs the c-th part of every plan. Inputs that interleave in the output are then written while their lines are
// cached.
static void copy_chunk(void *arg, int64_t chunk) {
  const copy_job *job = arg;
  for (int64_t i = 0; i < job->count; i++) {
    const plaitk_copy_plan *p = &job->plans[i];
    int64_t first = p->units / job->chunks * chunk + plait_min64(chunk, p->units % job->chunks);
    int64_t last = first + p->units / job->chunks + (chunk < p->units % job->chunks);
    if (first < last) plaitk_copying_run(p, first, last);
  }
}

void plaitk_copying_run_all(plait_pool *pool, const plaitk_copy_plan *plans, int64_t count) {
  int64_t bytes = 0, most = 1;
  for (int64_t i = 0; i < count; i++) {
    bytes += plans[i].units * plans[i].unit_bytes;
    most = plait_max64(most, plans[i].units);
  }
  copy_job job = {plans, count, plait_max64(1, plait_min64(most, bytes / CHUNK_BYTES))};
  if (job.chunks == 1) {
    copy_chunk(&job, 0);
  } else {
    plait_parallel_parts(pool, job.chunks, copy_chunk, &job);
  }
}

void plaitk_copying_copy(plait_pool *pool, const plait_view *out, const plait_view *in) {
  plaitk_copy_plan p;
  plaitk_copying_plan(&p, out, in);
  if (p.units > 0) plaitk_copying_run_all(pool, &p, 1);
}

void plaitk_copying_fill(plait_pool *pool, const plait_view *out, int64_t integer, double real) {
  bool is_real = plait_is_float(out->dtype);
  double value = 0;
  plaitk_copying_converter(out->dtype, is_real ? PLAIT_F64 : PLAIT_I64)(&value, is_real ? (void *)&real : (void *)&integer, 1);
  plait_view in = *out;
  in.data = (char *)&value;
  memset(in.stride, 0, sizeof in.stride);
  plaitk_copying_copy(pool, out, &in);
}
