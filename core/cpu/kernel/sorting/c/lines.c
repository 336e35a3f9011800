// Iterates over lines.
#include "sorting.h"

enum {
  FEW = 64, // number of results up to which keeping them sorted is faster than selecting
  BLOCK = 256,
};

static bool is_few(const struct plaitk_sorting *s) { return s->k <= FEW && s->n >= 4 * s->k; }

// Reports whether most elements of a line that has no few results are dropped when they are read.
static bool is_some(const struct plaitk_sorting *s) { return s->n >= 8 * s->k; }

// Returns the largest number of entries that are kept of a line.
static int64_t entries_of(const struct plaitk_sorting *s) {
  if (s->op != SORTING_TOP) return s->n;
  return is_few(s) ? s->k : is_some(s) ? 2 * s->k + BLOCK : s->n;
}

// write_result writes the element of a line at `index`, and the index, to the outputs.
static inline void write_result(const struct plaitk_sorting *s, const char *in, uint64_t index, int64_t out) {
  s->indices[out] = (int64_t)index;
  if (s->values == NULL) return;
  int64_t from = (int64_t)index * s->in_stride;
  switch (plait_dtype_size(s->dtype)) {
  case 1:
    ((uint8_t *)s->values)[out] = ((const uint8_t *)in)[from];
    break;
  case 2:
    ((uint16_t *)s->values)[out] = ((const uint16_t *)in)[from];
    break;
  case 4:
    ((uint32_t *)s->values)[out] = ((const uint32_t *)in)[from];
    break;
  default:
    ((uint64_t *)s->values)[out] = ((const uint64_t *)in)[from];
  }
}

#define E packed
#include "lines_impl.h"

#define E wide
#include "lines_impl.h"

// line_scratch returns the bytes of scratch for one line, or for lines that are sorted at once.
static int64_t line_scratch(const struct plaitk_sorting *s) {
  if (s->abreast) return plaitk_sorting_abreast_scratch();
  int64_t entry = key_is_wide(s->dtype) ? sizeof(wide) : sizeof(packed);
  int64_t entries = entries_of(s);
  char *at = NULL;
  plait_carve(&at, entries * entry);
  plait_carve(&at, entries * entry);
  plait_carve(&at, order_counters(entries) * (int64_t)sizeof(uint32_t));
  return (int64_t)(intptr_t)at;
}

static int64_t slots_of(const struct plaitk_sorting *s) {
  int64_t chunks = s->unit > 0 ? (s->lines + s->unit - 1) / s->unit : 1;
  return s->unit == 0 ? 1 : s->threads < chunks ? s->threads : chunks;
}

int64_t plaitk_sorting_scratch(const struct plaitk_sorting *s) {
  plait_slots slots;
  char *at = NULL;
  plait_slots_plan(&slots, &at, slots_of(s), line_scratch(s), 0);
  return (int64_t)(intptr_t)at;
}

struct job {
  const struct plaitk_sorting *s;
  plait_slots slots;
};

static int64_t offset_of(int64_t at, int n, const int64_t *size, const int64_t *stride) {
  int64_t offset = 0;
  for (int d = n - 1; d >= 0 && at > 0; d--) {
    offset += at % size[d] * stride[d];
    at /= size[d];
  }
  return offset;
}

static void one_line(plait_pool *pool, const struct plaitk_sorting *s, int64_t line, char *scratch) {
  const char *in = (const char *)s->in + offset_of(line, s->nk, s->ksize, s->kin) * plait_dtype_size(s->dtype);
  int64_t out = offset_of(line, s->nk, s->ksize, s->kout);
  if (key_is_wide(s->dtype)) {
    line_wide(pool, s, in, out, scratch);
  } else {
    line_packed(pool, s, in, out, scratch);
  }
}

static void lines_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  int64_t slot = plait_slot_acquire(&j->slots);
  int64_t first = chunk * j->s->unit, last = first + j->s->unit < j->s->lines ? first + j->s->unit : j->s->lines;
  char *scratch = j->slots.bytes + slot * j->slots.size;
  if (j->s->abreast) {
    plaitk_sorting_abreast(j->s, first, last, scratch);
  } else {
    for (int64_t line = first; line < last; line++) one_line(NULL, j->s, line, scratch);
  }
  plait_slot_release(&j->slots, slot);
}

void plaitk_sorting_run(plait_pool *pool, const struct plaitk_sorting *s) {
  struct job j = {.s = s};
  char *at = s->scratch;
  plait_slots_plan(&j.slots, &at, slots_of(s), line_scratch(s), 1);
  if (s->unit > 0) {
    plait_parallel(pool, (s->lines + s->unit - 1) / s->unit, lines_chunk, &j);
    return;
  }
  for (int64_t line = 0; line < s->lines; line++) one_line(pool, s, line, j.slots.bytes);
}
