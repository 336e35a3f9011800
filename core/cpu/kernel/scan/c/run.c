// Iterates over groups of lines: in one pass, or in two passes if lines are split into pieces.
#include <math.h>

#include "scan.h"

struct job {
  const struct plaitk_scan *s;
  scan_leaf fn, few;
  int64_t in_size, out_size;
  int64_t from, count; // the pieces of a line that are scanned
  bool totals;         // this is the first of two passes
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static bool is_sum(const struct plaitk_scan *s) { return s->op == SCAN_SUM || s->op == SCAN_PROD; }

static int64_t offset_of(int64_t at, int n, const int64_t *size, const int64_t *stride) {
  int64_t offset = 0;
  for (int d = n - 1; d >= 0 && at > 0; d--) {
    offset += at % size[d] * stride[d];
    at /= size[d];
  }
  return offset;
}

static void fill_double(double *p, double v, int64_t n) {
  for (int64_t i = 0; i < n; i++) p[i] = v;
}

static void fill_int(int64_t *p, int64_t v, int64_t n) {
  for (int64_t i = 0; i < n; i++) p[i] = v;
}

static void init(const struct plaitk_scan *s, struct scan_state t, int64_t n) {
  switch (s->op) {
  case SCAN_SUM:
    fill_int(t.a, 0, n); // also the bits of 0.0
    if (s->pairs) fill_double(t.b, 0, n);
    break;
  case SCAN_PROD:
    plait_is_float(s->dtype) ? fill_double(t.a, 1, n) : fill_int(t.a, 1, n);
    if (s->pairs) fill_double(t.b, 0, n);
    break;
  case SCAN_LOGSUMEXP:
    fill_double(t.a, -INFINITY, n);
    fill_double(t.b, 0, n);
    break;
  default:
    fill_int(t.a, 0, n);
    fill_int(t.b, -1, n);
  }
}

// merge_state turns t, the state of one piece, into the state after it. s is the state of all pieces before.
static void merge_state(const struct plaitk_scan *p, struct scan_state s, struct scan_state t) {
  bool f = plait_is_float(p->dtype);
  double *a = s.a, *b = s.b, *x = t.a, *y = t.b;
  int64_t *ia = s.a, *ib = s.b, *ix = t.a, *iy = t.b;
  switch (p->op) {
  case SCAN_SUM:
    if (p->pairs) {
      *x += *a;
      *y += *b;
    } else if (f) {
      *x += *a;
    } else {
      *ix = (int64_t)((uint64_t)*ix + (uint64_t)*ia);
    }
    break;
  case SCAN_PROD:
    if (p->pairs) {
      double re = *a * *x - *b * *y, im = *a * *y + *b * *x;
      *x = re;
      *y = im;
    } else if (f) {
      *x *= *a;
    } else {
      *ix = (int64_t)((uint64_t)*ix * (uint64_t)*ia);
    }
    break;
  case SCAN_LOGSUMEXP: {
    double top = (*x > *a) | (*x != *x) ? *x : *a;
    *y = *y * (*x == top ? 1 : exp(*x - top)) + *b * (*a == top ? 1 : exp(*a - top));
    *x = top;
    break;
  }
  default: {
    bool beats;
    if (f) {
      beats = *x != *x || (*a == *a && (p->op == SCAN_MAX ? *x >= *a : *x <= *a));
    } else {
      beats = p->op == SCAN_MAX ? *ix >= *ia : *ix <= *ia;
    }
    if (!beats) {
      *ix = *ia;
      *iy = *ib;
    }
  }
  }
}

// together reports whether a leaf takes several pieces of one line, not the same piece of several lines. The indices of
// extremes count from the start of the line, so their pieces cannot be taken together.
static bool together(const struct plaitk_scan *s) { return is_sum(s) && !s->columns; }

// state_of returns the state before a piece of a line. The states that one leaf call uses are adjacent.
static struct scan_state state_of(const struct plaitk_scan *s, int64_t piece, int64_t line) {
  int64_t n = s->pieces * s->lines, at = together(s) ? line * s->pieces + piece : piece * s->lines + line;
  struct scan_state t = {(double *)s->scratch + at, (double *)s->scratch + n + at};
  return t;
}

// set_addresses sets the addresses of a part of a line that starts at a position.
static void set_addresses(const struct job *j, struct scan_part *p, int64_t line, int64_t at) {
  const struct plaitk_scan *s = j->s;
  int64_t from = offset_of(line, s->nk, s->ksize, s->kin) + at * s->in_stride;
  int64_t to = offset_of(line, s->nk, s->ksize, s->kout) + at * s->out_stride;
  p->at = at;
  p->in = (const char *)s->in + from * j->in_size;
  p->out = NULL;
  p->index = NULL;
  if (j->totals) return;
  p->out = (char *)s->out + to * j->out_size;
  if (s->index != NULL) p->index = s->index + to;
}

// lines_chunk scans some groups of lines, or one piece of each.
static void lines_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  const struct plaitk_scan *s = j->s;
  double words[2][SCAN_WIDTH];
  int64_t piece = j->from + chunk % j->count;
  if (j->totals && piece == s->pieces - 1) return;
  int64_t first = chunk / j->count * s->unit, last = min64(first + s->unit, s->groups);
  int64_t run = s->nk > 0 ? s->ksize[s->nk - 1] : 1, per_run = (run + s->width - 1) / s->width;
  struct scan_part p = {.in_stride = s->in_stride, .out_stride = s->out_stride};
  p.n = min64(s->piece, s->n - piece * s->piece);
  if (s->nk > 0) {
    p.in_line = s->kin[s->nk - 1];
    p.out_line = s->kout[s->nk - 1];
  }
  for (int64_t g = first; g < last; g++) {
    int64_t within = g % per_run * s->width, line = g / per_run * run + within;
    p.lines = min64(s->width, run - within);
    set_addresses(j, &p, line, piece * s->piece);
    p.s = (struct scan_state){words[0], words[1]};
    if (s->pieces > 1) p.s = state_of(s, piece + j->totals, line);
    if (s->pieces == 1 || j->totals) init(s, p.s, p.lines);
    j->fn(&p);
  }
}

// abreast_chunk scans groups of short lines as columns of blocks.
static void abreast_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  const struct plaitk_scan *s = j->s;
  double words[2][SCAN_WIDTH];
  uint64_t in[PLAIT_ABREAST_BLOCK], out[PLAIT_ABREAST_BLOCK];
  int64_t index[PLAIT_ABREAST_BLOCK];
  // In reverse the blocks are scanned from their last row.
  bool reverse = s->in_stride < 0;
  int64_t back = reverse ? s->n - 1 : 0, pitch = reverse ? -PLAIT_ABREAST_PITCH : PLAIT_ABREAST_PITCH;
  int64_t in_step = reverse ? -s->in_stride : s->in_stride, out_step = reverse ? -s->out_stride : s->out_stride;
  struct plait_lines from = {s->n, in_step, s->nk, s->ksize, s->kin}, to = {s->n, out_step, s->nk, s->ksize, s->kout};
  const char *first_in = (const char *)s->in - back * in_step * j->in_size;
  char *first_out = (char *)s->out - back * out_step * j->out_size;
  struct scan_part p = {.n = s->n, .in_stride = pitch, .out_stride = pitch, .in_line = 1, .out_line = 1};
  p.s = (struct scan_state){words[0], words[1]};
  p.in = (const char *)in + back * PLAIT_ABREAST_PITCH * j->in_size;
  p.out = (char *)out + back * PLAIT_ABREAST_PITCH * j->out_size;
  p.index = s->index != NULL ? index : NULL;
  int64_t last = min64((chunk + 1) * s->unit, s->groups);
  for (int64_t g = chunk * s->unit; g < last; g++) {
    int64_t line = g * PLAIT_ABREAST;
    p.lines = min64(PLAIT_ABREAST, s->lines - line);
    if (j->few != NULL) {
      struct scan_part few = {.n = s->n, .lines = p.lines, .in_line = s->kin[0], .out_line = s->kout[0], .s = p.s};
      set_addresses(j, &few, line, 0);
      init(s, p.s, 1);
      j->few(&few);
      continue;
    }
    plait_abreast_load(in, first_in, &from, line, p.lines, j->in_size);
    init(s, p.s, p.lines);
    j->fn(&p);
    plait_abreast_store(out, first_out, &to, line, p.lines, j->out_size);
    if (s->index != NULL) plait_abreast_store(index, s->index, &to, line, p.lines, 8);
  }
}

// pieces_chunk scans adjacent pieces of one line together, as if they were lines.
static void pieces_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  const struct plaitk_scan *s = j->s;
  int64_t groups = (j->count + SCAN_LINES - 1) / SCAN_LINES, line = chunk / groups, first = j->from + chunk % groups * SCAN_LINES;
  int64_t last = min64(min64(first + SCAN_LINES, j->from + j->count), s->pieces - (j->totals ? 1 : 0));
  struct scan_part p = {.in_stride = s->in_stride, .out_stride = s->out_stride, .n = s->piece};
  p.in_line = s->piece * s->in_stride;
  p.out_line = s->piece * s->out_stride;
  p.lines = last - first;
  if (last * s->piece > s->n) p.lines--; // the last piece is shorter and runs on its own
  if (p.lines > 0) {
    set_addresses(j, &p, line, first * s->piece);
    p.s = state_of(s, first + j->totals, line);
    if (j->totals) init(s, p.s, p.lines);
    j->fn(&p);
  }
  if (last * s->piece > s->n) {
    set_addresses(j, &p, line, (last - 1) * s->piece);
    p.n = s->n - p.at;
    p.lines = 1;
    p.s = state_of(s, last - 1, line);
    j->fn(&p);
  }
}

// plaitk_scan_run returns 0, or 1 if the op does not support the dtype.
int64_t plaitk_scan_run(plait_pool *pool, const struct plaitk_scan *s) {
  const struct scan_leaves *leaves;
  if (s->pairs) {
    leaves = plaitk_scan_pairs(s->op, s->dtype);
  } else if (is_sum(s)) {
    leaves = plaitk_scan_sums(s->op, s->dtype);
  } else if (s->op == SCAN_LOGSUMEXP) {
    leaves = plaitk_scan_logsumexp(s->dtype);
  } else {
    leaves = plaitk_scan_extremes(s->op, s->dtype);
  }
  if (leaves == NULL) return 1;
  struct job j = {.s = s, .fn = s->columns ? leaves->columns : leaves->rows, .in_size = plait_dtype_size(s->dtype), .count = 1};
  if (s->pairs) j.in_size *= 2;
  j.out_size = is_sum(s) && !plait_is_float(s->dtype) ? 8 : j.in_size;
  int64_t units = (s->groups + s->unit - 1) / s->unit;
  if (s->abreast) j.fn = leaves->columns;
  // Transposes of so few elements of 8 bytes are not worth it.
  if (s->nk == 1 && s->in_stride == 1 && s->out_stride == 1 && j.in_size == 8) j.few = leaves->few;
  if (s->pieces == 1) {
    plait_parallel(pool, units, s->abreast ? abreast_chunk : lines_chunk, &j);
    return 0;
  }
  for (int64_t k = 0; k < s->lines; k++) init(s, state_of(s, 0, k), 1);
  // Both passes take some pieces for each thread at a time, which are in its cache when the second one reads them.
  int64_t wave = SCAN_LINES * plait_pool_threads(pool);
  for (; j.from < s->pieces; j.from += j.count) {
    j.count = min64(wave, s->pieces - j.from);
    plait_task task = together(s) ? pieces_chunk : lines_chunk;
    int64_t chunks = together(s) ? s->lines * ((j.count + SCAN_LINES - 1) / SCAN_LINES) : units * j.count;
    j.totals = true;
    plait_parallel(pool, chunks, task, &j);
    for (int64_t k = 0; k < s->lines; k++) {
      for (int64_t piece = j.from + 1; piece <= j.from + j.count && piece < s->pieces; piece++) {
        if (piece > 1) merge_state(s, state_of(s, piece - 1, k), state_of(s, piece, k));
      }
    }
    j.totals = false;
    plait_parallel(pool, chunks, task, &j);
  }
  return 0;
}
