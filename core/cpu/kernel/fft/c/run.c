#include "fft.h"
#include "../../../include/plait_slots.h"

// Work of fewer elements than this is not worth another thread.
enum { CHUNK = 1 << 14 };

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The scratch memory of a call.
struct room {
  plait_slots slots;
  int64_t batch;   // split lines that are transformed together
  int64_t middle;  // bytes of a split line between its two passes
  int64_t points;  // bytes of the points of a real one
  char *middles, *all;
};

static int64_t lay_out(plait_pool *pool, const struct plaitk_fft *f, const struct fft_kernels *k, char *scratch,
                       struct room *r) {
  const struct plaitk_fft_plan *p = f->plan;
  int64_t size = plait_dtype_size(p->dtype), row = 2 * size * k->lanes, rows = 2 * p->points + 1 + 2 * p->m;
  char *at = scratch;
  *r = (struct room){.batch = 1};
  if (p->n1) {
    rows = p->n1 > p->n2 ? p->n1 : p->n2;
    r->batch = plait_pool_threads(pool) * CHUNK / p->points + 1;
    if (r->batch > f->lines) r->batch = f->lines;
    r->middle = p->n1 * ceil_div(p->n2, k->lanes) * row;
    r->points = f->kind == FFT_COMPLEX ? 0 : 2 * size * p->points;
    r->middles = plait_carve(&at, r->batch * r->middle);
    r->all = plait_carve(&at, r->batch * r->points);
  }
  plait_slots_plan(&r->slots, &at, plait_pool_threads(pool), rows * row, scratch != NULL);
  return at - (char *)NULL;
}

struct job {
  const struct plaitk_fft *f;
  const struct fft_kernels *k;
  struct room *room;
  int64_t unit, count;     // blocks of a chunk, and of a line
  int64_t first, batch;    // the split lines at hand
};

static void line_at(const struct plaitk_fft *f, int64_t line, int64_t *in, int64_t *out) {
  *in = *out = 0;
  for (int d = f->nk - 1; d >= 0; d--) {
    int64_t at = line % f->ksize[d];
    line /= f->ksize[d], *in += at * f->kin[d], *out += at * f->kout[d];
  }
}

static void run_lines(void *arg, int64_t chunk) {
  struct job *j = arg;
  int64_t slot = plait_slot_acquire(&j->room->slots);
  for (int64_t b = chunk * j->unit; b < (chunk + 1) * j->unit && b < j->count; b++) {
    j->k->lines(j->f, b * j->k->lanes, j->room->slots.bytes + slot * j->room->slots.size);
  }
  plait_slot_release(&j->room->slots, slot);
}

enum stage { JOIN, COLUMNS, ROWS, SEPARATE };

// run_stage runs blocks of one stage of a batch of split lines.
static void run_stage(struct job *j, int64_t chunk, enum stage stage) {
  const struct plaitk_fft *f = j->f;
  struct room *r = j->room;
  int64_t size = plait_dtype_size(f->plan->dtype), slot = plait_slot_acquire(&r->slots), lanes = j->k->lanes;
  void *scratch = r->slots.bytes + slot * r->slots.size;
  for (int64_t b = chunk * j->unit; b < (chunk + 1) * j->unit && b < j->count * j->batch; b++) {
    int64_t i, o, line = b / j->count, block = b % j->count;
    line_at(f, j->first + line, &i, &o);
    const char *in = f->in + i * size;
    char *out = f->out + o * size, *middle = r->middles + line * r->middle, *all = r->all + line * r->points;
    int64_t last = (block + 1) * CHUNK < f->plan->n / 2 + 1 ? (block + 1) * CHUNK : f->plan->n / 2 + 1;
    if (f->plan->halves && last > f->plan->points / 2 + 1) last = f->plan->points / 2 + 1;
    int64_t step, imag;
    switch (stage) {
      case JOIN: j->k->join(f, in, f->in_step, block * CHUNK, last, all); break;
      case COLUMNS:
        step = f->in_step, imag = 1;
        if (f->kind == FFT_REAL_TO_HALF) {
          if (f->plan->halves) step = 2 * f->in_step, imag = f->in_step;
          else imag = FFT_REAL;
        } else if (f->kind == FFT_HALF_TO_REAL) {
          in = all, step = 2;
        }
        j->k->columns(f, in, step, imag, block * lanes, middle, scratch);
        break;
      case ROWS:
        step = f->out_step, imag = 1;
        double scale = f->scale;
        if (f->kind == FFT_HALF_TO_REAL) {
          if (f->plan->halves) step = 2 * f->out_step, imag = f->out_step;
          else imag = FFT_REAL;
        } else if (f->kind == FFT_REAL_TO_HALF) {
          out = all, step = 2, scale = 1;
        }
        j->k->rows(f, middle, block * lanes, out, step, imag, scale, scratch);
        break;
      default: j->k->separate(f, all, block * CHUNK, last, out, f->out_step);
    }
  }
  plait_slot_release(&r->slots, slot);
}

static void join(void *arg, int64_t chunk) { run_stage(arg, chunk, JOIN); }
static void columns(void *arg, int64_t chunk) { run_stage(arg, chunk, COLUMNS); }
static void rows(void *arg, int64_t chunk) { run_stage(arg, chunk, ROWS); }
static void separate(void *arg, int64_t chunk) { run_stage(arg, chunk, SEPARATE); }

// stage runs a stage of all lines of the batch: `count` blocks of each, of `elements` elements.
static void stage(plait_pool *pool, struct job *j, plait_task task, int64_t count, int64_t elements) {
  j->count = count, j->unit = elements < CHUNK ? CHUNK / elements : 1;
  plait_parallel(pool, ceil_div(count * j->batch, j->unit), task, j);
}

int64_t plaitk_fft_scratch(plait_pool *pool, const struct plaitk_fft *f) {
  struct room r;
  return lay_out(pool, f, fft_kernels_of(f->plan->dtype), NULL, &r);
}

void plaitk_fft_run(plait_pool *pool, const struct plaitk_fft *f) {
  const struct plaitk_fft_plan *p = f->plan;
  const struct fft_kernels *k = fft_kernels_of(p->dtype);
  struct room r;
  lay_out(pool, f, k, f->scratch, &r);
  struct job j = {.f = f, .k = k, .room = &r};
  if (!p->n1) {
    j.batch = 1;
    stage(pool, &j, run_lines, ceil_div(f->lines, k->lanes), p->points * k->lanes);
    return;
  }
  int64_t pairs = ceil_div(p->halves ? p->points / 2 + 1 : p->n / 2 + 1, CHUNK);
  for (j.first = 0; j.first < f->lines; j.first += r.batch) {
    j.batch = f->lines - j.first < r.batch ? f->lines - j.first : r.batch;
    if (f->kind == FFT_HALF_TO_REAL) stage(pool, &j, join, pairs, p->points < CHUNK ? p->points : CHUNK);
    stage(pool, &j, columns, ceil_div(p->n2, k->lanes), p->n1 * k->lanes);
    stage(pool, &j, rows, ceil_div(p->n1, k->lanes), p->n2 * k->lanes);
    if (f->kind == FFT_REAL_TO_HALF) stage(pool, &j, separate, pairs, p->points < CHUNK ? p->points : CHUNK);
  }
}
