// The largest rows of bags.
#include "indexing.h"

enum { BAG_COLUMNS = 512, BAG_WORK = 1 << 15 };

#define PLAIT_TEMPLATE "../kernel/indexing/c/bags.h"
#include "../../../include/plait_each_float.h"

typedef struct {
  const plaitk_bag_max *m;
  int64_t segments, bags_per_chunk;
} bags_job;

// A chunk is a range of bags and a segment of the columns.
static void bags_chunk(void *arg, int64_t chunk) {
  const bags_job *job = arg;
  const plaitk_bag_max *m = job->m;
  int64_t column = chunk % job->segments * BAG_COLUMNS, n = plait_min64(BAG_COLUMNS, m->columns - column);
  int64_t b = chunk / job->segments * job->bags_per_chunk, end = plait_min64(m->bags, b + job->bags_per_chunk);
  for (; b < end; b++) {
    int64_t first = m->offsets ? m->offsets[b] : b * m->size, at = b * m->columns + column;
    int64_t last = !m->offsets ? first + m->size : b + 1 < m->bags ? m->offsets[b + 1] : m->count;
    int64_t *rows = m->rows ? m->rows + at : NULL;
    switch (m->dtype) {
    case PLAIT_F32: bag_f32(m, (float *)m->y + at, rows, m->index + first, last - first, column, n); break;
    case PLAIT_F16: bag_f16(m, (uint16_t *)m->y + at, rows, m->index + first, last - first, column, n); break;
    case PLAIT_BF16: bag_bf16(m, (uint16_t *)m->y + at, rows, m->index + first, last - first, column, n); break;
    case PLAIT_F64: bag_f64(m, (double *)m->y + at, rows, m->index + first, last - first, column, n); break;
    }
  }
}

int64_t plaitk_indexing_bag_max(plait_pool *pool, const plaitk_bag_max *m, plaitk_bad_index *bad) {
  plait_view index = {.data = (char *)m->index, .dtype = PLAIT_I64, .ndim = 1, .shape = {m->count}, .stride = {1}};
  if (plaitk_indexing_check(pool, &index, m->vocabulary, false, bad)) return 1;
  if (m->bags == 0 || m->columns == 0) return 0;
  bags_job job = {.m = m, .segments = plait_ceil_div(m->columns, BAG_COLUMNS)};
  int64_t work = plait_min64(m->columns, BAG_COLUMNS) * (m->count / m->bags + 1); // of a bag, on average
  job.bags_per_chunk = plait_max64(1, BAG_WORK / work);
  plaitk_run(pool, plait_ceil_div(m->bags, job.bags_per_chunk) * job.segments, bags_chunk, &job);
  return 0;
}
