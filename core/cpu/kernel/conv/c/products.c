// Convolutions as products of matrices: kernels of one element, and those of many channels at few positions.
//
// Few positions do not repay weights packed for the micro-kernels, and leave their vectors half empty. So the input is
// unfolded to a matrix U of a row for each channel and tap and a column for each output position of a block of images:
//
//   y = W U        dW = dy U^T        U' = W^T dy, which is folded to dx
//
// A tap that reads only padding, as all but the middle one of a 3 x 3 kernel do on a 1 x 1 image, has no rows.
#include "passes.h"

#include "products.h"
#include "../../../include/plait_gemm.h"
#include "../../../include/plait_slots.h"

#define min plaitk_conv_min
#define max plaitk_conv_max
#define ceil_div plaitk_conv_ceil
#define floor_div plaitk_conv_floor
#define volume plaitk_conv_volume

#define MAX_PLANE 4096             // output positions of an image
#define DIRECT_PLANE 48            // positions of an image that is a matrix of its own
#define MAX_UNFOLDED (4 << 20)     // elements of the unfolded matrix of a block of images

typedef plaitk_conv_matrix matrix;
typedef plaitk_conv_job job;

// The positions at which a tap reads the input: from first to last - 1 in each dimension.
typedef struct {
  int64_t tap[3], first[3], last[3];
} reach;

static reach reach_of(const plaitk_conv_shape *s, int64_t t) {
  reach r = {{t / (s->kernel[1] * s->kernel[2]), t / s->kernel[2] % s->kernel[1], t % s->kernel[2]}, {0}, {0}};
  for (int d = 0; d < 3; d++) {
    int64_t before = s->pad[d] - r.tap[d] * s->dilation[d], step = s->stride[d];
    r.first[d] = before > 0 ? ceil_div(before, step) : 0;
    r.last[d] = before + s->in[d] > 0 ? min(ceil_div(before + s->in[d], step), s->out[d]) : 0;
    r.last[d] = max(r.first[d], r.last[d]);
  }
  return r;
}

static int64_t reads(const reach *r) {
  return (r->last[0] - r->first[0]) * (r->last[1] - r->first[1]) * (r->last[2] - r->first[2]);
}

// Writes what a tap reads at each position.
static void sources(const plaitk_conv_shape *s, const reach *r, int *source) {
  int64_t p[3], at[3];
  for (p[0] = 0; p[0] < s->out[0]; p[0]++) {
    for (p[1] = 0; p[1] < s->out[1]; p[1]++) {
      for (p[2] = 0; p[2] < s->out[2]; p[2]++) {
        int inside = 1;
        for (int d = 0; d < 3; d++) {
          inside &= p[d] >= r->first[d] && p[d] < r->last[d];
          at[d] = p[d] * s->stride[d] - s->pad[d] + r->tap[d] * s->dilation[d];
        }
        *source++ = (int)(inside ? (at[0] * s->in[1] + at[1]) * s->in[2] + at[2] : volume(s->in));
      }
    }
  }
}

// Returns how far tap t is shifted within a part, and the residue of what it reads.
static int64_t shift_of(const plaitk_conv_shape *s, int64_t t, int64_t residue[3]) {
  reach r = reach_of(s, t);
  int64_t shift = 0;
  for (int d = 0; d < 3; d++) {
    int64_t at = r.tap[d] * s->dilation[d] - s->pad[d], step = floor_div(at, s->stride[d]);
    residue[d] = at - step * s->stride[d];
    shift = shift * s->out[d] + step;
  }
  return shift;
}

// Writes the parts, the shifts, and where taps read the input.
static void shift_taps(job *j, int64_t size) {
  const int64_t *step = j->s->stride;
  for (int64_t k = 0; j->most_parts == volume(step) && k < j->most_parts; k++) {
    int64_t residue[3] = {k / (step[1] * step[2]), k / step[2] % step[1], k % step[2]};
    memcpy(j->residue[j->parts++], residue, sizeof residue);
  }
  for (int64_t u = 0; u < j->used; u++) {
    int64_t residue[3], part = 0;
    j->shift[u] = shift_of(j->s, j->tap[u], residue);
    while (part < j->parts && memcmp(j->residue[part], residue, sizeof residue) != 0) part++;
    if (part == j->parts) memcpy(j->residue[j->parts++], residue, sizeof residue);
    j->shift[u] += part * j->part;
    for (int64_t p = u * j->out_plane; p < (u + 1) * j->out_plane; p++) {
      memset(j->keep + p * size, j->source[p] < j->in_plane ? 0xff : 0, (size_t)size);
    }
  }
}

// Writes the terms of each element of dx, in the order of the taps.
static void invert(const job *j) {
  int64_t all = j->used * j->out_plane;
  memset(j->first, 0, (size_t)(j->in_plane + 2) * sizeof *j->first);
  for (int64_t i = 0; i < all; i++) j->first[j->source[i] + 1]++;
  for (int64_t i = 0; i <= j->in_plane; i++) j->first[i + 1] += j->first[i];
  // first[i] is where the next term of element i goes; in the end that is where those of i + 1 begin.
  for (int64_t i = 0; i < all; i++) {
    int element = j->source[i];
    if (element < j->in_plane) j->term[j->first[element]++] = (int)(i / j->out_plane * j->columns + i % j->out_plane);
  }
  for (int64_t i = j->in_plane; i > 0; i--) j->first[i] = j->first[i - 1];
  j->first[0] = 0;
}

// The matrix of a tensor: the tensor itself where strides can say so, else a copy.
static matrix matrix_of(const job *j, const void *tensor, int64_t channels, int64_t plane, char **at) {
  if (plane == 1) return (matrix){(char *)tensor, 1, channels, channels, 0};
  if (j->images == 1) return (matrix){(char *)tensor, plane, 1, channels * plane, 0};
  return (matrix){plait_carve(at, channels * j->columns * j->io->size), j->columns, 1, 0, 1};
}

static char *matrix_at(const job *j, const matrix *m, int64_t row, int64_t size) {
  return m->data + (j->block_first * m->image + row * m->row) * size;
}

// The product of a pass for a group of the block under way.
static plaitk_gemm product(const job *j, plaitk_conv_pass pass, int64_t group) {
  int64_t size = j->io->size, depth = j->depth, out = group * j->rows, in = group * depth;
  const matrix *u = &j->unfolded;
  int64_t unfolded_size = pass == CONV_INPUT_GRAD && !j->same ? j->io->compute_size : size;
  char *w = j->w + out * depth * size, *y = matrix_at(j, &j->y, out, size), *x = matrix_at(j, u, in, unfolded_size);
  plaitk_gemm p = {.in = (int)j->s->dtype, .out = (int)j->s->dtype, .alpha = 1};
  p.m = j->block_size * j->out_plane;
  switch (pass) {
    case CONV_FORWARD:  // y^T = U^T W^T, since the bias is added along columns
      p.n = j->rows, p.k = depth;
      p.a = x, p.a_row = u->column, p.a_col = u->row;
      p.b = w, p.b_row = 1, p.b_col = depth;
      p.c = y, p.c_row = j->y.column, p.c_col = j->y.row;
      if (j->bias != NULL) p.bias = (const char *)j->bias + out * size, p.bias_step = 1;
      break;
    case CONV_INPUT_GRAD:  // U'^T = dy^T W
      p.n = depth, p.k = j->rows;
      p.a = y, p.a_row = j->y.column, p.a_col = j->y.row;
      p.b = w, p.b_row = depth, p.b_col = 1;
      p.c = x, p.c_row = u->column, p.c_col = u->row;
      if (unfolded_size != size) p.out = PLAIT_F32;
      if (j->same && j->bias != NULL) p.bias = (const char *)j->bias + in * size, p.bias_step = 1;
      break;
    case CONV_WEIGHT_GRAD:  // dW = dy U^T, summed over the blocks
      p.m = j->rows, p.n = depth, p.k = j->block_size * j->out_plane;
      p.a = y, p.a_row = j->y.row, p.a_col = j->y.column;
      p.b = x, p.b_row = u->column, p.b_col = u->row;
      p.c = w, p.c_row = depth, p.c_col = 1;
      if (j->sums != NULL) p.out = PLAIT_F32, p.c = j->sums + out * depth * j->io->compute_size;
      p.beta = j->block_first > 0;
      break;
  }
  return p;
}

// Reports whether the result holds sums as they are.
static int exact(const job *j) { return j->io->size == j->io->compute_size; }

// Runs the products of a group for the block under way, and for all blocks if they are batched. With less scratch than
// needed it does nothing and returns the bytes needed.
static int64_t multiply(plait_pool *pool, const job *j, plaitk_conv_pass pass, int64_t group, int64_t bytes) {
  plaitk_gemm p = product(j, pass, group);
  int64_t x = j->unfolded.image, y = j->y.image;
  plaitk_gemm_dim images = {j->batched ? j->s->n : 1, pass == CONV_FORWARD ? x : y, 0, pass == CONV_FORWARD ? y : x};
  return plaitk_gemm_batched(pool, &p, 1, &images, j->products, bytes);
}

static void measure(job *j, const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  j->s = s;
  j->io = plaitk_conv_io_for(s->dtype);
  j->channels = s->cin / s->groups, j->rows = s->cout / s->groups;
  j->in_plane = volume(s->in), j->out_plane = volume(s->out);
  j->taps = volume(s->kernel);
  int64_t all = 0;
  for (int64_t t = 0; t < j->taps; t++) {
    reach r = reach_of(s, t);
    j->used += reads(&r) > 0;
    all += reads(&r);
    int64_t residue[3], shift = shift_of(s, t, residue);
    if (reads(&r) > 0) j->before = max(j->before, shift < 0 ? -shift : shift);
  }
  // A single tap reads elements in their order. If it reads all of them, each is in its place.
  j->same = j->used == 1 && all == j->in_plane && j->in_plane == j->out_plane;
  j->part = j->out_plane + 2 * j->before;
  j->most_parts = pass == CONV_INPUT_GRAD ? volume(s->stride) : min(volume(s->stride), j->used);
  j->shifted = !j->same && j->most_parts * j->part <= PLAITK_CONV_PARTS;
  for (int d = 0; d < 3; d++) j->shifted &= ceil_div(s->in[d], s->stride[d]) <= s->out[d];
  j->depth = j->channels * j->used;
  // Images that fill vectors need no copy if each is a block.
  int64_t image = s->groups * j->depth * j->out_plane, most = MAX_UNFOLDED / max(1, image);
  if (j->same && j->out_plane >= DIRECT_PLANE) most = 1;
  most = max(1, min(s->n, most));
  j->images = ceil_div(s->n, ceil_div(s->n, most));
  j->columns = j->images * j->out_plane;
}

// Lays out the job in scratch. With scratch == NULL it writes nothing. Returns the bytes needed.
static int64_t plan(job *j, const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *x,
                    const void *w, const void *y, char *scratch) {
  char *at = scratch;
  measure(j, s, pass);
  j->tap = plait_carve(&at, j->used * (int64_t)sizeof *j->tap);
  j->source = plait_carve(&at, j->same ? 0 : j->used * j->out_plane * (int64_t)sizeof *j->source);
  for (int64_t t = 0, u = 0; scratch != NULL && t < j->taps; t++) {
    reach r = reach_of(s, t);
    if (reads(&r) == 0) continue;
    if (!j->same) sources(s, &r, j->source + u * j->out_plane);
    j->tap[u++] = (int)t;
  }
  j->y = matrix_of(j, y, s->cout, j->out_plane, &at);
  int64_t size = pass == CONV_INPUT_GRAD ? j->io->compute_size : j->io->size;
  if (j->same) {
    j->unfolded = matrix_of(j, x, s->cin, j->in_plane, &at);
  } else {
    j->unfolded = (matrix){plait_carve(&at, s->groups * j->depth * j->columns * size), j->columns, 1, 0, 1};
  }
  if (j->shifted) {
    j->shift = plait_carve(&at, j->used * (int64_t)sizeof *j->shift);
    j->residue = plait_carve(&at, j->most_parts * (int64_t)sizeof *j->residue);
    j->keep = plait_carve(&at, j->used * j->out_plane * size);
    if (scratch != NULL) shift_taps(j, size);
  } else if (!j->same && pass == CONV_INPUT_GRAD) {
    j->first = plait_carve(&at, (j->in_plane + 2) * (int64_t)sizeof *j->first);
    j->term = plait_carve(&at, j->used * j->out_plane * (int64_t)sizeof *j->term);
    if (scratch != NULL) invert(j);
  }
  j->w = j->used == j->taps ? (char *)w : plait_carve(&at, s->cout * j->depth * j->io->size);
  if (pass == CONV_WEIGHT_GRAD && !exact(j) && j->images < s->n) {
    j->sums = plait_carve(&at, s->cout * j->depth * j->io->compute_size);
  }
  j->batched = pass != CONV_WEIGHT_GRAD && j->images == 1 && !j->unfolded.copied && !j->y.copied;
  for (j->block_first = 0; j->block_first < s->n; j->block_first += j->batched ? s->n : j->images) {
    j->block_size = min(j->images, s->n - j->block_first);
    j->product_bytes = max(j->product_bytes, multiply((plait_pool *)pool, j, pass, 0, -1));
  }
  j->products = plait_carve(&at, j->product_bytes);
  return (int64_t)((intptr_t)at - (intptr_t)scratch);
}

// Runs a pass for the block under way.
static void run_block(plait_pool *pool, job *j, plaitk_conv_pass pass, const void *x, const void *y) {
  if (pass != CONV_INPUT_GRAD && j->unfolded.copied) plaitk_conv_copy(pool, j, CONV_UNFOLD, x, j->unfolded.data);
  if (pass != CONV_FORWARD && j->y.copied) plaitk_conv_copy(pool, j, CONV_GATHER, y, j->y.data);
  for (int64_t group = 0; group < j->s->groups; group++) multiply(pool, j, pass, group, j->product_bytes);
  if (pass == CONV_FORWARD && j->y.copied) plaitk_conv_copy(pool, j, CONV_SCATTER, j->y.data, (void *)y);
  if (pass == CONV_INPUT_GRAD && j->unfolded.copied) plaitk_conv_copy(pool, j, CONV_FOLD, j->unfolded.data, (void *)x);
}

int64_t plaitk_conv_products_scratch(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  job j = {0};
  return plan(&j, pool, s, pass, NULL, NULL, NULL, NULL);
}

void plaitk_conv_by_products(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *x,
                         const void *w, const void *bias, const void *y, void *scratch) {
  job j = {.bias = bias};
  plan(&j, pool, s, pass, x, w, y, scratch);
  if (pass != CONV_WEIGHT_GRAD && j.w != w) plaitk_conv_copy(pool, &j, CONV_TAKE, w, j.w);
  for (j.block_first = 0; j.block_first < s->n; j.block_first += j.batched ? s->n : j.images) {
    j.block_size = min(j.images, s->n - j.block_first);
    run_block(pool, &j, pass, x, y);
  }
  if (j.sums != NULL) plaitk_conv_copy(pool, &j, CONV_ROUND, j.sums, j.w);
  if (pass == CONV_WEIGHT_GRAD && j.w != w) plaitk_conv_copy(pool, &j, CONV_PUT, j.w, (void *)w);
}

// The bounds are where products were as fast with AVX2, on one thread and two.
int plaitk_conv_suits_products(const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  int64_t plane = volume(s->out), in_plane = volume(s->in);
  if (s->n * plane * in_plane == 0) return 0;
  job j = {0};
  measure(&j, s, pass);
  if (min(j.depth, j.rows) < 8) return 0;
  if (j.same) return 1;
  if (plane > MAX_PLANE || in_plane >= INT32_MAX || s->groups * j.depth * plane > MAX_UNFOLDED) return 0;
  if (plane <= 16) return 1;  // less than the vectors of the micro-kernels
  if (plaitk_gemm_has_tiles((int)s->dtype) && min(j.depth, j.rows) >= 16) return 1;
  // Unfolding costs little where few taps read an element, as with large strides; elsewhere many sums must repay it.
  if (j.depth < 64) return 0;
  int few_taps = 2 * j.used * plane <= 5 * in_plane;
  if (pass == CONV_WEIGHT_GRAD) return few_taps || plane <= 256 ? j.rows >= 48 : j.rows >= 64 && j.depth >= 256;
  if (few_taps && pass == CONV_INPUT_GRAD) return j.rows >= 48;
  // The micro-kernels need no unfolding, but few positions do not repay their packing of the weight. Rows that leave
  // vectors half empty, and the order of the weight for the input gradient, repay it later.
  int full = s->out[2] % plaitk_conv_micro_for(s->dtype == PLAIT_F64)->lanes == 0;
  int64_t most = min(8 * j.rows, 1600);
  if (pass == CONV_FORWARD && few_taps) most = full ? 4 * j.rows : INT64_MAX;
  else if (pass == CONV_FORWARD) most = min((full || s->out[2] > 24 ? 1 : 4) * j.rows, 1600);
  return j.rows >= 128 && s->n * plane <= most;
}
