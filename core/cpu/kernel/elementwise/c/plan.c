#include "plan.h"

#include <string.h>

#include "../../../include/plait_stream.h"

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static void swap_dims(plan *p, int a, int b) {
  int64_t t = p->shape[a];
  p->shape[a] = p->shape[b];
  p->shape[b] = t;
  for (int k = 0; k < p->n; k++) {
    t = p->lane[k].stride[a];
    p->lane[k].stride[a] = p->lane[k].stride[b];
    p->lane[k].stride[b] = t;
  }
}

// Reports whether dimension a belongs inside dimension b. The first operand whose strides differ decides, outputs
// first.
static bool is_inner(const plan *p, int a, int b) {
  for (int i = 0; i < p->n; i++) {
    const lane *l = &p->lane[(i + p->nin) % p->n];
    int64_t sa = magnitude(l->stride[a]), sb = magnitude(l->stride[b]);
    if (sa != sb && sa != 0 && sb != 0) return sa < sb;
  }
  return false;
}

static void order_dims(plan *p) {
  for (int i = 1; i < p->ndim; i++) {
    for (int j = i; j > 0 && is_inner(p, j - 1, j); j--) swap_dims(p, j - 1, j);
  }
}

static bool mergeable(const plan *p, int outer, int inner) {
  for (int k = 0; k < p->n; k++) {
    const int64_t *s = p->lane[k].stride;
    if (s[outer] != s[inner] * p->shape[inner]) return false;
  }
  return true;
}

static void merge_dims(plan *p) {
  if (p->ndim == 0) return;
  int last = 0;
  for (int d = 1; d < p->ndim; d++) {
    if (mergeable(p, last, d)) {
      p->shape[last] *= p->shape[d];
    } else {
      p->shape[++last] = p->shape[d];
    }
    for (int k = 0; k < p->n; k++) p->lane[k].stride[last] = p->lane[k].stride[d];
  }
  p->ndim = last + 1;
}

// Adds the dimensions with more than one element. Returns the number of elements.
static int64_t add_dims(plan *p, const plaitk_elementwise_call *call) {
  int64_t count = 1;
  p->ndim = 0;
  for (int64_t d = 0; d < call->ndim; d++) {
    count *= call->shape[d];
    if (call->shape[d] == 1) continue;
    p->shape[p->ndim] = call->shape[d];
    for (int k = 0; k < p->n; k++) {
      const plaitk_elementwise_operand *o = &call->operand[k];
      p->lane[k].stride[p->ndim] = o->data == NULL ? 0 : o->stride[d];
    }
    p->ndim++;
  }
  return count;
}

void plaitk_elementwise_number(plaitk_element *to, int type, plaitk_scalar value, double imaginary) {
  double wide[2] = {value.f, imaginary};
  float f[2] = {(float)value.f, (float)imaginary};
  bool b = value.f != 0;
  const void *from = &value;
  if (type == PLAIT_BOOL) from = &b;
  else if (type == PLAIT_F32 || type == PAIR_F32) from = f;
  else if (type == PAIR_F64) from = wide;
  memcpy(to->bytes, from, (size_t)size_of(type));
}

static void add_lanes(plan *p, const plaitk_elementwise_call *call) {
  for (int k = 0; k < p->n; k++) {
    const plaitk_elementwise_operand *o = &call->operand[k];
    lane *l = &p->lane[k];
    l->data = o->data;
    l->value = o->value;
    l->imaginary = o->imaginary;
    l->scalar = o->data == NULL;
    l->type = call->kernel->type[k];
    l->dtype = l->scalar ? l->type : (int)o->dtype;
    l->size = (int)size_of(l->dtype);
    l->type_size = (int)size_of(l->type);
    l->convert = NULL;
    if (l->type >= PLAIT_DTYPES) {
      if (l->dtype != l->type) l->convert = plaitk_elementwise_widen(l->dtype);
    } else if (l->dtype != l->type) {
      l->convert = k < p->nin ? plaitk_copying_converter(l->type, l->dtype) : plaitk_copying_converter(l->dtype, l->type);
    }
  }
}

// Adds dimensions of size 1 until there are two, since blocks span two dimensions.
static void pad_dims(plan *p) {
  while (p->ndim < 2) {
    p->shape[1] = p->ndim == 0 ? 1 : p->shape[0];
    p->shape[0] = 1;
    for (int k = 0; k < p->n; k++) {
      p->lane[k].stride[1] = p->ndim == 0 ? 0 : p->lane[k].stride[0];
      p->lane[k].stride[0] = 0;
    }
    p->ndim++;
  }
}

// If an operand has its smallest stride in a dimension other than the innermost one, moves that dimension next to the
// innermost. Blocks then span both and use whole cache lines. Returns whether there is such an operand.
static bool move_row_dim(plan *p) {
  int cols = p->ndim - 1;
  for (int k = 0; k < p->n; k++) {
    const int64_t *s = p->lane[k].stride;
    int64_t shortest = magnitude(s[cols]);
    int best = -1;
    if (p->lane[k].scalar || shortest <= 1) continue;
    for (int d = 0; d < cols; d++) {
      if (s[d] != 0 && magnitude(s[d]) < shortest) {
        best = d;
        shortest = magnitude(s[d]);
      }
    }
    if (best < 0) continue;
    for (int d = best; d < cols - 1; d++) swap_dims(p, d, d + 1);
    return true;
  }
  return false;
}

// Reports whether an output uses non-temporal stores, because it is too large for the caches. Such an output goes
// through scratch.
static bool is_streamed(const plan *p, const lane *out, int64_t count) {
  if (out->convert != NULL || out->col != 1 || count * out->size < PLAIT_STREAM_BYTES) return false;
  for (int k = 0; k < p->nin; k++) {
    if (p->lane[k].data == out->data) return false;  // in place: its cache lines are loaded anyway
  }
  return true;
}

// Reports whether two lanes, both inputs or both outputs, are the parts of complex numbers that follow each other.
static bool is_pair(const plan *p, const lane *a, const lane *b) {
  if (a->scalar || b->scalar || a->convert != NULL || b->convert != NULL || a->dtype != b->dtype) return false;
  if (a->col != 2 || (a->size != 4 && a->size != 8)) return false;
  return b->data == a->data + a->size && memcmp(a->stride, b->stride, (size_t)p->ndim * sizeof a->stride[0]) == 0;
}

// Chooses the kernel's loop for numbers if the inputs that it takes as such are that, along a row.
static void choose_loop(plan *p) {
  const plaitk_elementwise_kernel *kernel = p->kernel;
  bool scalars = kernel->scalar != 0;
  for (int k = 0; k < p->nin; k++) {
    const lane *l = &p->lane[k];
    bool repeats = l->convert == NULL && l->stride[p->ndim - 1] == 0 && p->shape[p->ndim - 1] >= SHORT_ROW;
    if (kernel->scalar >> k & 1) scalars &= l->scalar || repeats;
  }
  p->loop = scalars ? kernel->scalars : kernel->loop;
  for (int k = 0; k < p->n; k++) {
    lane *l = &p->lane[k];
    l->single = scalars && (kernel->scalar >> k & 1);
    if (!l->single || !l->scalar) continue;
    plaitk_elementwise_number(&p->number[k], l->type, l->value, l->imaginary);
    l->data = p->number[k].bytes;
  }
}

// Splits the two innermost dimensions into blocks and decides which operands go through scratch.
static void plan_blocks(plan *p, int64_t count) {
  // Chunks of equal size, a multiple of EVEN of them, so that two, four or eight threads have as much to do.
  int64_t chunks = ceil_div(count, CHUNK * EVEN) * EVEN, chunk = ceil_div(ceil_div(count, chunks), LINE) * LINE;
  bool tiles = move_row_dim(p);
  choose_loop(p);
  bool scratch = false, gaps = false;
  int64_t rows = p->shape[p->ndim - 2], cols = p->shape[p->ndim - 1];
  int widest = 1;
  p->part = PLAIT_STREAM_PART;
  p->streamed = false;
  for (int k = 0; k < p->n; k++) {
    lane *l = &p->lane[k];
    l->row = l->stride[p->ndim - 2];
    if (l->single) {
      l->col = 0;
      l->packed = l->streamed = false;
      gaps |= l->row != 0;
      continue;
    }
    l->col = cols == 1 ? 1 : l->stride[p->ndim - 1];
    bool gap = rows > 1 && l->row != cols;
    l->streamed = k >= p->nin && is_streamed(p, l, count);
    l->packed = l->scalar || l->convert != NULL || l->streamed || l->col != 1 || (gap && cols < SHORT_ROW);
    scratch |= l->packed;
    p->streamed |= l->streamed;
    if (l->streamed) p->part = min64(p->part, PLAIT_STREAM_PART / l->size);
    gaps |= gap && !l->packed;
    if (l->size > widest) widest = l->size;
    if (l->type_size > widest) widest = l->type_size;
  }
  for (int k = 0; k < p->n; k++) {
    bool second = k > 0 && p->lane[k - 1].paired;
    p->lane[k].paired = !second && k + 1 != p->nin && k + 1 < p->n && is_pair(p, &p->lane[k], &p->lane[k + 1]);
  }
  int64_t limit = scratch || tiles ? SCRATCH / widest : chunk;
  if (tiles) {
    // At least as many rows as a cache line has elements, so that an operand contiguous across rows uses whole lines.
    int64_t lines = 64 / widest;
    p->cols = min64(cols, limit / min64(rows, lines));
  } else {
    p->cols = min64(cols, limit);
  }
  p->rows = min64(rows, limit / p->cols);
  p->by_row = p->rows > 1 && (gaps || p->cols < cols);
  p->blocks = ceil_div(rows, p->rows) * ceil_div(cols, p->cols);
  for (int d = 0; d < p->ndim - 2; d++) p->blocks *= p->shape[d];
  p->blocks_per_chunk = ceil_div(chunk, p->rows * p->cols);
}

bool plaitk_elementwise_plan(plan *p, const plaitk_elementwise_call *call) {
  const plaitk_elementwise_kernel *kernel = call->kernel;
  p->kernel = kernel;
  p->attr = call->attr;
  p->nin = kernel->nin;
  p->n = kernel->nin + kernel->nout;
  p->status = 0;
  int64_t count = add_dims(p, call);
  if (count == 0) return false;
  add_lanes(p, call);
  order_dims(p);
  merge_dims(p);
  pad_dims(p);
  plan_blocks(p, count);
  return true;
}

void plaitk_elementwise_seek(const plan *p, cursor *c, int64_t block) {
  int64_t across = ceil_div(p->shape[p->ndim - 1], p->cols), down = ceil_div(p->shape[p->ndim - 2], p->rows);
  c->col = block % across * p->cols;
  block /= across;
  c->row = block % down * p->rows;
  block /= down;
  for (int k = 0; k < p->n; k++) c->data[k] = p->lane[k].data;
  for (int d = p->ndim - 3; d >= 0; d--) {
    c->index[d] = block % p->shape[d];
    block /= p->shape[d];
    for (int k = 0; k < p->n; k++) {
      if (!p->lane[k].scalar) c->data[k] += c->index[d] * p->lane[k].stride[d] * p->lane[k].size;
    }
  }
}

void plaitk_elementwise_advance(const plan *p, cursor *c) {
  c->col += p->cols;
  if (c->col < p->shape[p->ndim - 1]) return;
  c->col = 0;
  c->row += p->rows;
  if (c->row < p->shape[p->ndim - 2]) return;
  c->row = 0;
  for (int d = p->ndim - 3; d >= 0; d--) {
    bool wraps = ++c->index[d] == p->shape[d];
    int64_t steps = wraps ? 1 - p->shape[d] : 1;
    for (int k = 0; k < p->n; k++) {
      if (!p->lane[k].scalar) c->data[k] += steps * p->lane[k].stride[d] * p->lane[k].size;
    }
    if (!wraps) return;
    c->index[d] = 0;
  }
}
