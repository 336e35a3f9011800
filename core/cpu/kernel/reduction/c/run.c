// Iterates over the blocks of a problem.
#include "reduction.h"

struct job {
  const struct plaitk_reduction *r;
  leaf_fn fn;
  int64_t size; // bytes of an element
  int64_t rows; // rows of a block of columns
  bool sets;    // the leaf sets states
};

static const struct leaf *find_leaf(const struct plaitk_reduction *r) {
  int op = r->op, dtype = r->dtype;
  if (r->pairs) return plaitk_reduction_pairs_leaf(op, dtype);
  switch (op) {
  case REDUCE_SUM:
  case REDUCE_MEAN:
  case REDUCE_NANSUM:
  case REDUCE_PROD:
  case REDUCE_ANY:
  case REDUCE_ALL:
  case REDUCE_COUNT:
    return plaitk_reduction_sum_leaf(op, dtype);
  case REDUCE_MAX:
  case REDUCE_MIN:
    return plaitk_reduction_extreme_leaf(op, dtype);
  case REDUCE_ARGMAX:
  case REDUCE_ARGMIN:
    return plaitk_reduction_arg_leaf(op, dtype);
  case REDUCE_VAR:
  case REDUCE_STD:
    return plaitk_reduction_moments_leaf(dtype);
  case REDUCE_LOGSUMEXP:
    return plaitk_reduction_logsumexp_leaf(dtype);
  default:
    return plaitk_reduction_norm_leaf(op, dtype);
  }
}

struct words {
  uint64_t first, second;
};

#define COPY(T, STEP) \
  for (int64_t i = 0; i < n; i++) ((T *)to)[i] = ((const T *)from)[i * (STEP)]

// alternate copies every other element.
PLAIT_CLONES static void alternate(void *restrict to, const void *restrict from, int64_t n, int64_t size) {
  if (size == 4) {
    COPY(uint32_t, 2);
  } else {
    COPY(uint64_t, 2);
  }
}

// gather copies n elements that are `stride` elements apart.
static void gather(void *restrict to, const void *restrict from, int64_t n, int64_t stride, int64_t size) {
  if (stride == 1) {
    memcpy(to, from, (size_t)(n * size));
    return;
  }
  if (stride == 2 && (size == 4 || size == 8)) {
    alternate(to, from, n, size);
    return;
  }
  switch (size) {
  case 1:
    COPY(uint8_t, stride);
    break;
  case 2:
    COPY(uint16_t, stride);
    break;
  case 4:
    COPY(uint32_t, stride);
    break;
  case 8:
    COPY(uint64_t, stride);
    break;
  default:
    COPY(struct words, stride);
  }
}
#undef COPY

// offset_of returns the element offset of position `at` in row-major order over n dimensions.
static int64_t offset_of(int64_t at, int n, const int64_t *size, const int64_t *stride) {
  int64_t offset = 0;
  for (int d = n - 1; d >= 0 && at > 0; d--) {
    offset += at % size[d] * stride[d];
    at /= size[d];
  }
  return offset;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

// inner returns the size and the stride of the last of n dimensions. With n == 0 it returns a single element.
static int64_t inner(int n, const int64_t *size, const int64_t *stride, int64_t *step) {
  *step = n > 0 ? stride[n - 1] : 0;
  return n > 0 ? size[n - 1] : 1;
}

// gather_row copies elements [at, at + n) of the row that starts at p.
static void gather_row(char *to, const struct job *j, const char *p, int64_t at, int64_t n) {
  const struct plaitk_reduction *r = j->r;
  int64_t stride, run = inner(r->nr, r->rsize, r->rin, &stride), step, runs = inner(r->nr - 1, r->rsize, r->rin, &step);
  while (n > 0) {
    int64_t from = at % run;
    const char *q = p + offset_of(at - from, r->nr, r->rsize, r->rin) * j->size;
    for (int64_t i = at / run % runs; i < runs && n > 0; i++, q += step * j->size) {
      int64_t part = min64(run - from, n);
      gather(to, q + from * stride * j->size, part, stride, j->size);
      to += part * j->size, at += part, n -= part, from = 0;
    }
  }
}

// reduce_rows reduces elements [lo, hi) of `rows` rows into s. The rows start at p, `step` elements apart. Short runs of a row are
// joined to blocks.
static void reduce_rows(const struct job *j, const char *p, int64_t rows, int64_t step, int64_t lo, int64_t hi,
                        struct state s) {
  const struct plaitk_reduction *r = j->r;
  uint64_t copy[REDUCE_BLOCK];
  int64_t stride, run = inner(r->nr, r->rsize, r->rin, &stride), most = REDUCE_BLOCK / per_element(r);
  bool join = rows == 1 && r->nr > 1 && run <= REDUCE_RUN;
  for (int64_t at = lo, n; at < hi; at += n) {
    n = min64(join ? most : min64(run - at % run, most), hi - at);
    if (r->gather || join) {
      for (int64_t k = 0; k < rows; k++) {
        gather_row((char *)copy, j, p + k * step * j->size, at, n);
        j->fn(copy, 1, 0, n, at, r->param, state_at(s, k * per_element(r)));
      }
    } else {
      j->fn(p + offset_of(at, r->nr, r->rsize, r->rin) * j->size, rows, step, n, at, r->param, s);
    }
  }
}

// reduce_cols reduces rows [lo, hi) of `width` columns into s. The columns start at p.
static void reduce_cols(const struct job *j, const char *p, int64_t width, int64_t lo, int64_t hi, struct state s) {
  const struct plaitk_reduction *r = j->r;
  uint64_t copy[REDUCE_ROWS_TWO * REDUCE_WIDTH_GATHER];
  int64_t stride, run = inner(r->nr, r->rsize, r->rin, &stride);
  for (int64_t at = lo; at < hi;) {
    int64_t rows = min64(min64(run - at % run, hi - at), j->rows * r->fold);
    const char *q = p + offset_of(at, r->nr, r->rsize, r->rin) * j->size;
    if (r->gather) {
      rows = min64(rows, REDUCE_ROWS_TWO);
      for (int64_t k = 0; k < rows; k++) {
        gather((char *)copy + k * width * j->size, q + k * stride * j->size, width, r->kin[r->nk - 1], j->size);
      }
      j->fn(copy, rows, width, width, at, r->param, s);
    } else if (r->fold > 1) {
      int64_t wide = rows / r->fold, left = rows % r->fold;
      int64_t first = at / r->fold; // indices count merged rows until unfold
      if (wide > 0) j->fn(q, wide, width * r->fold, width * r->fold, first, r->param, s);
      if (left > 0) j->fn(q + wide * r->fold * width * j->size, 1, 0, left * width, first + wide, r->param, s);
    } else {
      j->fn(q, rows, stride, width, at, r->param, s);
    }
    at += rows;
  }
}

// partial returns the states of a piece at a kept position.
static struct state partial(const struct plaitk_reduction *r, int64_t piece, int64_t k) {
  double *p = r->scratch;
  int64_t per = per_element(r), n = r->pieces * r->kept * per;
  struct state s = {p, p + n, p + 2 * n, false};
  return state_at(s, (piece * r->kept + k) * per);
}

static void copy_states(const struct plaitk_reduction *r, struct state to, struct state from, int64_t n) {
  memcpy(to.a, from.a, (size_t)n * 8);
  memcpy(to.b, from.b, (size_t)n * 8);
  if (r->op == REDUCE_VAR || r->op == REDUCE_STD) memcpy(to.c, from.c, (size_t)n * 8);
}

// store writes the results at kept positions [k, k+n), which lie within one innermost kept dimension.
static void store(const struct plaitk_reduction *r, struct state s, int64_t k, int64_t n) {
  int64_t step, offset = offset_of(k, r->nk, r->ksize, r->kout);
  inner(r->nk, r->ksize, r->kout, &step);
  if (!r->pairs) {
    plaitk_reduction_store(r, s, n, offset, step);
  } else if (step == 2) {
    plaitk_reduction_store(r, s, 2 * n, offset, 1);
  } else {
    for (int64_t i = 0; i < n; i++) plaitk_reduction_store(r, state_at(s, 2 * i), 2, offset + i * step, 1);
  }
}

// finish_piece stores the finished states of one piece, or writes results if there is only one piece. The kept positions [k,
// k+n) lie within one innermost kept dimension.
static void finish_piece(const struct plaitk_reduction *r, struct state s, int64_t piece, int64_t k, int64_t n) {
  if (r->pieces > 1) {
    copy_states(r, partial(r, piece, k), s, n * per_element(r));
    return;
  }
  store(r, s, k, n);
}

static void rows_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  const struct plaitk_reduction *r = j->r;
  double words[3][2 * REDUCE_BATCH];
  struct state s = {words[0], words[1], words[2], false};
  int64_t piece = chunk % r->pieces, first = chunk / r->pieces * r->unit, last = min64(first + r->unit, r->kept);
  int64_t lo = piece * r->piece, hi = min64(lo + r->piece, r->reduced);
  int64_t step, run = inner(r->nk, r->ksize, r->kin, &step);
  for (int64_t k = first; k < last;) {
    int64_t n = min64(min64(run - k % run, last - k), REDUCE_BATCH);
    plaitk_reduction_init(r, s, n * per_element(r));
    const char *p = (const char *)r->in + offset_of(k, r->nk, r->ksize, r->kin) * j->size;
    reduce_rows(j, p, n, step, lo, hi, s);
    finish_piece(r, s, piece, k, n);
    k += n;
  }
}

// unfold merges the states of rows that were read as one wide row.
static void unfold(const struct plaitk_reduction *r, struct state s, int64_t width) {
  if (r->op == REDUCE_ARGMAX || r->op == REDUCE_ARGMIN) {
    int64_t *index = s.b;
    for (int64_t i = 0; i < r->fold * width; i++) {
      if (index[i] >= 0) index[i] = index[i] * r->fold + i / width;
    }
  }
  for (int64_t f = r->fold / 2; f > 0; f /= 2) plaitk_reduction_merge(r, s, state_at(s, f * width), f * width);
}

// abreast_chunk reduces short rows or columns as the columns of blocks.
static void abreast_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  const struct plaitk_reduction *r = j->r;
  double words[3][PLAIT_ABREAST];
  uint64_t block[PLAIT_ABREAST_BLOCK];
  struct state s = {words[0], words[1], words[2], false};
  struct plait_lines l = {.n = r->reduced, .nk = r->nk, .size = r->ksize, .step = r->kin};
  inner(r->nr, r->rsize, r->rin, &l.stride);
  int64_t step, run = inner(r->nk, r->ksize, r->kin, &step), out_step, last = min64((chunk + 1) * r->unit, r->kept);
  inner(r->nk, r->ksize, r->kout, &out_step);
  bool flat = true; // results are one run
  for (int d = 1; d < r->nk; d++) flat &= r->kout[d - 1] == r->ksize[d] * r->kout[d];
  for (int64_t k = chunk * r->unit, n; k < last; k += n) {
    n = min64(last - k, PLAIT_ABREAST);
    if (!j->sets) plaitk_reduction_init(r, s, n);
    if (step == 1 && k % run + n <= run) {
      j->fn((const char *)r->in + plait_lines_offset(&l, k) * j->size, l.n, l.stride, n, 0, r->param, s);
    } else {
      plait_abreast_load(block, r->in, &l, k, n, j->size);
      j->fn(block, l.n, PLAIT_ABREAST_PITCH, n, 0, r->param, s);
    }
    if (flat) {
      plaitk_reduction_store(r, s, n, k * out_step, out_step);
      continue;
    }
    for (int64_t at = 0, part; at < n; at += part) {
      part = min64(run - (k + at) % run, n - at);
      store(r, state_at(s, at), k + at, part);
    }
  }
}

static void cols_chunk(void *arg, int64_t chunk) {
  const struct job *j = arg;
  const struct plaitk_reduction *r = j->r;
  double words[3][REDUCE_WIDTH];
  struct state s = {words[0], words[1], words[2], r->kept * r->reduced * j->size >= REDUCE_FAR};
  int64_t run = r->ksize[r->nk - 1], blocks = (run + r->width - 1) / r->width, units = r->kept / run * blocks;
  int64_t piece = chunk % r->pieces, first = chunk / r->pieces * r->unit, last = min64(first + r->unit, units);
  int64_t lo = piece * r->piece, hi = min64(lo + r->piece, r->reduced);
  for (int64_t u = first; u < last; u++) {
    int64_t col = u % blocks * r->width, k = u / blocks * run + col, n = min64(r->width, run - col);
    plaitk_reduction_init(r, s, n * r->fold * per_element(r));
    const char *p = (const char *)r->in + offset_of(k, r->nk, r->ksize, r->kin) * j->size;
    reduce_cols(j, p, n, lo, hi, s);
    if (r->fold > 1) unfold(r, s, n);
    finish_piece(r, s, piece, k, n);
  }
}

enum { JOIN = 128 }; // kept positions in a chunk of join_chunk

// join_chunk merges the pieces of some kept positions as a binary tree, and writes their results.
static void join_chunk(void *arg, int64_t chunk) {
  const struct plaitk_reduction *r = ((const struct job *)arg)->r;
  int64_t first = chunk * JOIN, count = min64(JOIN, r->kept - first);
  for (int64_t h = 1; h < r->pieces; h *= 2) {
    for (int64_t i = 0; i + h < r->pieces; i += 2 * h) {
      plaitk_reduction_merge(r, partial(r, i, first), partial(r, i + h, first), count * per_element(r));
    }
  }
  int64_t step, run = inner(r->nk, r->ksize, r->kout, &step);
  for (int64_t k = first; k < first + count;) {
    int64_t n = min64(run - k % run, first + count - k);
    store(r, partial(r, 0, k), k, n);
    k += n;
  }
}

// plaitk_reduction_run returns 0, or 1 if the op does not support the dtype.
int64_t plaitk_reduction_run(plait_pool *pool, const struct plaitk_reduction *r) {
  const struct leaf *leaf = find_leaf(r);
  if (leaf == NULL) return 1;
  bool twice = r->op == REDUCE_VAR || r->op == REDUCE_STD || r->op == REDUCE_LOGSUMEXP;
  struct job j = {r, r->columns ? leaf->cols : leaf->rows, per_element(r) * plait_dtype_size(r->dtype),
                  twice ? REDUCE_ROWS_TWO : REDUCE_ROWS, false};
  if (r->abreast) {
    j.sets = leaf->few != NULL;
    j.fn = j.sets ? leaf->few : leaf->cols;
    plait_parallel(pool, r->chunks, abreast_chunk, &j);
    return 0;
  }
  plait_parallel(pool, r->chunks, r->columns ? cols_chunk : rows_chunk, &j);
  if (r->pieces > 1) plait_parallel(pool, (r->kept + JOIN - 1) / JOIN, join_chunk, &j);
  return 0;
}
