#include "fft.h"
#include "../../../include/plait_slots.h"

// Work of fewer elements than this is not worth another thread.
enum { CHUNK = 1 << 14 };

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The scratch memory of a call.
struct room {
  plait_slots slots;
  int64_t batch;    // split lines whose stages run together, or 0: a task transforms whole lines
  int64_t middle;   // bytes of a split line between its two passes
  int64_t product;  // bytes of a convolution
  int64_t points;   // bytes of the points of a real line
  int64_t line;     // all of these
  char *lines;      // of the batch. Those of a task lie behind its rows.
};

static int64_t aligned(int64_t bytes) { return ceil_div(bytes, PLAIT_SLOT_ALIGN) * PLAIT_SLOT_ALIGN; }

// split_plan returns the plan of the split lines of f, its own or that of its convolution.
static const struct plaitk_fft_plan *split_plan(const struct plaitk_fft *f) {
  return f->plan->convolution ? f->plan->convolution : f->plan;
}

static int64_t lay_out(plait_pool *pool, const struct plaitk_fft *f, const struct fft_kernels *k, char *scratch,
                       struct room *r) {
  const struct plaitk_fft_plan *p = f->plan, *q = split_plan(f);
  int64_t size = plait_dtype_size(p->dtype), row = 2 * size * k->lanes, rows = (2 * p->points + 1) * row;
  char *at = scratch;
  *r = (struct room){0};
  if (q->n1) {
    rows = aligned((q->n1 > q->n2 ? q->n1 : q->n2) * row);
    r->middle = aligned(q->n1 * ceil_div(q->n2, k->lanes) * row);
    r->product = aligned(2 * size * p->m);
    r->points = f->kind == FFT_COMPLEX ? 0 : aligned(2 * size * p->points);
    r->line = r->middle + r->product + r->points;
    if (q->points > CHUNK) {
      r->batch = plait_pool_threads(pool) + 1 < f->lines ? plait_pool_threads(pool) + 1 : f->lines;
      r->lines = plait_carve(&at, r->batch * r->line);
    } else {
      rows += r->line;
    }
  }
  plait_slots_plan(&r->slots, &at, plait_pool_threads(pool), rows, scratch != NULL);
  return at - (char *)NULL;
}

// The stages of a split line. A convolution has two transforms.
enum stage { JOIN, MODULATE, COLUMNS, ROWS, FILTER, COLUMNS_BACK, ROWS_BACK, DEMODULATE, SEPARATE, MIRROR, STAGES };

struct job {
  const struct plaitk_fft *f;
  struct plaitk_fft inner;  // the transform of split lines: f, or one of a convolution
  const struct fft_kernels *k;
  struct room *room;
  int64_t unit, count;      // blocks of a chunk, and of a line
  int64_t first, batch;     // the split lines at hand
  enum stage stage;
};

// A split line: where it is read and written, and its scratch memory.
struct line {
  const char *in;
  char *out, *middle, *product, *points;
};

static struct line line_at(const struct plaitk_fft *f, int64_t line, const struct room *r, char *memory) {
  int64_t i = 0, o = 0, size = plait_dtype_size(f->plan->dtype);
  for (int d = f->nk - 1; d >= 0; d--) {
    int64_t at = line % f->ksize[d];
    line /= f->ksize[d], i += at * f->kin[d], o += at * f->kout[d];
  }
  return (struct line){f->in + i * size, f->out + o * size, memory, memory + r->middle, memory + r->middle + r->product};
}

// points_in sets where the points of a line are read, and points_out where they are written.
static const char *points_in(const struct plaitk_fft *f, const struct line *l, int64_t *step, int64_t *imag) {
  *step = f->in_step, *imag = 1;
  if (f->kind == FFT_HALF_TO_REAL) {
    *step = 2;
    return l->points;
  }
  if (f->kind == FFT_REAL_TO_HALF) {
    *imag = f->plan->halves ? f->in_step : FFT_REAL;
    if (f->plan->halves) *step *= 2;
  }
  return l->in;
}

static char *points_out(const struct plaitk_fft *f, const struct line *l, int64_t *step, int64_t *imag, double *scale) {
  *step = f->out_step, *imag = 1, *scale = f->scale;
  if (f->kind == FFT_REAL_TO_HALF) {
    *step = 2, *scale = 1;
    return l->points;
  }
  if (f->kind == FFT_HALF_TO_REAL) {
    *imag = f->plan->halves ? f->out_step : FFT_REAL;
    if (f->plan->halves) *step *= 2;
  }
  return l->out;
}

// work returns how many elements a stage of a line has, or columns or rows; 0 if the line skips it.
static int64_t work(const struct job *j, enum stage stage) {
  const struct plaitk_fft_plan *p = j->f->plan, *q = j->inner.plan;
  switch (stage) {
    case JOIN:
    case SEPARATE:
      if (j->f->kind != (stage == JOIN ? FFT_HALF_TO_REAL : FFT_REAL_TO_HALF)) return 0;
      return p->halves ? p->points / 2 + 1 : p->n / 2 + 1;
    case COLUMNS: return q->n2;
    case ROWS: return q->n1;
    case COLUMNS_BACK: return p->m ? q->n2 : 0;
    case ROWS_BACK: return p->m ? q->n1 : 0;
    case DEMODULATE: return p->m ? p->points : 0;
    case MIRROR: return j->f->whole ? (p->n - 1) / 2 : 0;
    default: return p->m;
  }
}

// blocks returns how many blocks a stage of a line has, and the elements of each.
static int64_t blocks(const struct job *j, enum stage stage, int64_t *elements) {
  int64_t n = work(j, stage), lanes = j->k->lanes;
  switch (stage) {
    case COLUMNS:
    case COLUMNS_BACK: *elements = j->inner.plan->n1 * lanes; return ceil_div(n, lanes);
    case ROWS:
    case ROWS_BACK: *elements = j->inner.plan->n2 * lanes; return ceil_div(n, lanes);
    default: *elements = n < CHUNK ? n : CHUNK; return ceil_div(n, CHUNK);
  }
}

// MIRROR_LINES writes, behind the first half of lines, the conjugates of elements `first` to `last` behind the one at 0.
#define MIRROR_LINES(T)                                                                                                  \
  for (int64_t i = 0; i < lines; i++) {                                                                                  \
    T *line = (T *)out[i];                                                                                               \
    for (int64_t k = first + 1; k <= last; k++) {                                                                        \
      line[(n - k) * step] = line[k * step], line[(n - k) * step + 1] = -line[k * step + 1];                             \
    }                                                                                                                    \
  }

static void mirror(const struct plaitk_fft *f, char *const *out, int64_t lines, int64_t first, int64_t last) {
  int64_t n = f->plan->n, step = f->out_step;
  if (f->plan->dtype == PLAIT_F64) {
    MIRROR_LINES(double)
  } else {
    MIRROR_LINES(float)
  }
}

// run_block runs a block of one stage of a split line.
static void run_block(const struct job *j, const struct line *l, int64_t block, enum stage stage, void *scratch) {
  const struct plaitk_fft *f = j->f, *inner = &j->inner;
  const struct fft_kernels *k = j->k;
  int64_t first = block * CHUNK, last = work(j, stage), step = 2, imag = 1;
  if (last > first + CHUNK) last = first + CHUNK;
  const char *in = l->product;
  char *out = l->product;
  double scale = 1;
  switch (stage) {
    case JOIN: k->join(f, l->in, f->in_step, first, last, l->points); break;
    case MODULATE:
      in = points_in(f, l, &step, &imag);
      k->modulate(f, in, step, imag, first, last, l->product);
      break;
    case COLUMNS:
      if (!f->plan->m) in = points_in(f, l, &step, &imag);
      // fallthrough
    case COLUMNS_BACK: k->columns(inner, in, step, imag, block * k->lanes, l->middle, scratch); break;
    case ROWS:
      if (!f->plan->m) out = points_out(f, l, &step, &imag, &scale);
      // fallthrough
    case ROWS_BACK: k->rows(inner, l->middle, block * k->lanes, out, step, imag, scale, scratch); break;
    case FILTER: k->filter(f, first, last, l->product); break;
    case DEMODULATE:
      out = points_out(f, l, &step, &imag, &scale);
      k->demodulate(f, l->product, first, last, out, step, imag, scale);
      break;
    case MIRROR: mirror(f, &l->out, 1, first, last); break;
    default: k->separate(f, l->points, first, last, l->out, f->out_step);
  }
}

// run_lines runs whole lines, a block of them at a time or, if they are split, one by one.
static void run_lines(void *arg, int64_t chunk) {
  struct job *j = arg;
  struct room *r = j->room;
  int64_t slot = plait_slot_acquire(&r->slots), elements;
  char *scratch = r->slots.bytes + slot * r->slots.size;
  for (int64_t b = chunk * j->unit; b < (chunk + 1) * j->unit && b < j->count; b++) {
    if (!j->inner.plan->n1) {
      j->k->lines(j->f, b * j->k->lanes, scratch);
      char *out[FFT_GROUP];
      int64_t lines = j->k->lanes < j->f->lines - b * j->k->lanes ? j->k->lanes : j->f->lines - b * j->k->lanes;
      for (int64_t i = 0; j->f->whole && i < lines; i++) out[i] = line_at(j->f, b * j->k->lanes + i, r, scratch).out;
      mirror(j->f, out, lines, 0, work(j, MIRROR));
      continue;
    }
    struct line l = line_at(j->f, b, r, scratch + r->slots.size - r->line);
    for (enum stage stage = JOIN; stage < STAGES; stage++) {
      for (int64_t i = 0, n = blocks(j, stage, &elements); i < n; i++) run_block(j, &l, i, stage, scratch);
    }
  }
  plait_slot_release(&r->slots, slot);
}

// run_stage runs blocks of one stage of a batch of split lines.
static void run_stage(void *arg, int64_t chunk) {
  struct job *j = arg;
  struct room *r = j->room;
  int64_t slot = plait_slot_acquire(&r->slots);
  for (int64_t b = chunk * j->unit; b < (chunk + 1) * j->unit && b < j->count * j->batch; b++) {
    int64_t line = b / j->count;
    struct line l = line_at(j->f, j->first + line, r, r->lines + line * r->line);
    run_block(j, &l, b % j->count, j->stage, r->slots.bytes + slot * r->slots.size);
  }
  plait_slot_release(&r->slots, slot);
}

int64_t plaitk_fft_scratch(plait_pool *pool, const struct plaitk_fft *f) {
  struct room r;
  return lay_out(pool, f, fft_kernels_of(f->plan->dtype), NULL, &r);
}

void plaitk_fft_run(plait_pool *pool, const struct plaitk_fft *f) {
  const struct fft_kernels *k = fft_kernels_of(f->plan->dtype);
  struct room r;
  lay_out(pool, f, k, f->scratch, &r);
  struct job j = {.f = f, .inner = *f, .k = k, .room = &r};
  if (f->plan->m) j.inner = (struct plaitk_fft){.plan = split_plan(f), .kind = FFT_COMPLEX};
  if (!r.batch) {
    int64_t lines = j.inner.plan->n1 ? 1 : k->lanes, elements = f->plan->points * lines;
    j.count = ceil_div(f->lines, lines), j.unit = elements < CHUNK ? CHUNK / elements : 1;
    plait_parallel(pool, ceil_div(j.count, j.unit), run_lines, &j);
    return;
  }
  for (j.first = 0; j.first < f->lines; j.first += r.batch) {
    j.batch = f->lines - j.first < r.batch ? f->lines - j.first : r.batch;
    for (j.stage = JOIN; j.stage < STAGES; j.stage++) {
      int64_t elements;
      j.count = blocks(&j, j.stage, &elements);
      if (j.count == 0) continue;
      j.unit = elements < CHUNK ? CHUNK / elements : 1;
      plait_parallel(pool, ceil_div(j.count * j.batch, j.unit), run_stage, &j);
    }
  }
}
