// Convolutions as products of matrices: kernels of one element, and those of many channels at few positions.
//
// Few positions do not repay weights packed for the micro-kernels, and leave their vectors half empty. So the input is
// unfolded to a matrix U of a row for each channel and tap and a column for each output position of a block of images:
//
//   y = W U        dW = dy U^T        U' = W^T dy, which is folded to dx
//
// A tap that reads only padding, as all but the middle one of a 3 x 3 kernel do on a 1 x 1 image, has no rows.
#include "passes.h"

#include "lattice.h"
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
#define POSITIONS 64               // that are unfolded together
#define PART_ELEMENTS (12 << 10)   // of the parts of a plane, at most
#define CHUNK_ELEMENTS (16 << 10)  // elements that a chunk copies, at least

// A matrix [channels, positions] of a block of images of a tensor [images, channels, plane]. Column i of it is position
// i % plane of image i / plane.
typedef struct {
  char *data;
  int64_t row, column, image;  // strides in elements; that of images leads to the next block
  int copied;                  // it is a copy, made for each block, so it has no other block
} matrix;

typedef struct {
  const plaitk_conv_shape *s;
  const plaitk_conv_io *io;
  int64_t channels, rows;           // channels of x and of y in a group
  int64_t in_plane, out_plane;
  int64_t taps, used;               // taps of the kernel, and those that read the input
  int64_t depth;                    // rows of the unfolded matrix in a group: channels * used
  int64_t images, columns;          // images of a block, and columns of its matrices
  int64_t block_first, block_size;  // the images of the block under way
  int *tap;                         // [used]
  int *source;                      // [used, out_plane]: what a tap reads at a position; in_plane is padding
  // If shifted, a channel's plane is copied to a part for each residue modulo the strides, or made of such parts. In
  // these, with rows as long as those of y, a tap reads element p + shift[u] at position p, or padding.
  int shifted;
  int64_t *shift;                   // [used]
  int64_t part, before;             // elements of a part, and those of them before the first
  int64_t parts, most_parts;        // those that taps read, or all for the input gradient
  int64_t (*residue)[3];            // [parts]
  // All bits of an element where a tap reads the input, else none: [used, out_plane] elements of the unfolded matrix.
  char *keep;
  int *first, *term;                // element i of dx is the sum of terms first[i] to first[i + 1] - 1 of the unfolded
  int same;                         // the unfolded matrix is that of x
  int batched;                      // each image is a block that is not copied; one call multiplies all
  matrix x, y, unfolded;
  char *w;                          // [groups * rows, channels, used]
  char *sums;                       // of the weight gradient over blocks, where it cannot hold them itself; or NULL
  char *products;                   // memory for a matrix product
  int64_t product_bytes;
  const void *bias;
  // A copy.
  const char *from;
  char *to;
  int64_t count, chunk;             // channels or weights, and those of a chunk
} job;

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
  j->shifted = !j->same && j->most_parts * j->part <= PART_ELEMENTS;
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

// The copies, for elements of each size.
#define COPIES(T)                                                                                                      \
  /* Row c * used + u of the unfolded matrix is what tap u reads of channel c. */                                      \
  static void unfold_##T(void *arg, int64_t chunk) {                                                                   \
    const job *j = arg;                                                                                                \
    static const T padding = 0;                                                                                        \
    for (int64_t c = chunk * j->chunk; c < min((chunk + 1) * j->chunk, j->count); c++) {                               \
      for (int64_t i = 0; i < j->block_size; i++) {                                                                    \
        const T *plane = (const T *)j->from + ((j->block_first + i) * j->s->cin + c) * j->in_plane;                    \
        T *to = (T *)j->to + c * j->used * j->columns + i * j->out_plane;                                              \
        /* Some positions at a time, so that what all taps read of them stays in the cache. */                         \
        for (int64_t p0 = 0; p0 < j->out_plane; p0 += POSITIONS) {                                                     \
          int64_t p1 = min(p0 + POSITIONS, j->out_plane);                                                              \
          const int *source = j->source;                                                                               \
          T *row = to;                                                                                                 \
          for (int64_t u = 0; u < j->used; u++, source += j->out_plane, row += j->columns) {                           \
            for (int64_t p = p0; p < p1; p++) row[p] = *(source[p] < j->in_plane ? plane + source[p] : &padding);      \
          }                                                                                                            \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  /* Copies a plane to its parts. */                                                                                    \
  PLAIT_INLINE void divide_##T(const job *j, const T *plane, T *parts) {                                               \
    const int64_t *in = j->s->in, *out = j->s->out, *step = j->s->stride;                                              \
    if (volume(step) == 1 && memcmp(in + 1, out + 1, 2 * sizeof *in) == 0) {                                           \
      memcpy(parts + j->before, plane, (size_t)j->in_plane * sizeof(T));                                               \
      return;                                                                                                          \
    }                                                                                                                  \
    for (int64_t k = 0; k < j->parts; k++) {                                                                           \
      const int64_t *r = j->residue[k];                                                                                \
      T *part = parts + k * j->part + j->before;                                                                       \
      int64_t count = ceil_div(in[2] - r[2], step[2]);                                                                 \
      for (int64_t z = r[0]; z < in[0]; z += step[0]) {                                                                \
        for (int64_t y = r[1]; y < in[1]; y += step[1]) {                                                              \
          const T *from = plane + (z * in[1] + y) * in[2] + r[2];                                                      \
          T *to = part + (z / step[0] * out[1] + y / step[1]) * out[2];                                                \
          if (step[2] == 2) {                                                                                          \
            _Pragma("omp simd") for (int64_t x = 0; x < count; x++) to[x] = from[2 * x];                               \
          } else {                                                                                                     \
            for (int64_t x = 0; x < count; x++) to[x] = from[x * step[2]];                                             \
          }                                                                                                            \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  /* Unfolds where taps are shifted. */                                                                                \
  PLAIT_CLONES static void unfold_shifted_##T(void *arg, int64_t chunk) {                                              \
    const job *j = arg;                                                                                                \
    T parts[PART_ELEMENTS];                                                                                            \
    memset(parts, 0, (size_t)(j->parts * j->part) * sizeof(T));                                                        \
    for (int64_t c = chunk * j->chunk; c < min((chunk + 1) * j->chunk, j->count); c++) {                               \
      for (int64_t i = 0; i < j->block_size; i++) {                                                                    \
        divide_##T(j, (const T *)j->from + ((j->block_first + i) * j->s->cin + c) * j->in_plane, parts);               \
        T *to = (T *)j->to + c * j->used * j->columns + i * j->out_plane;                                              \
        const T *keep = (const T *)j->keep;                                                                            \
        for (int64_t u = 0; u < j->used; u++, keep += j->out_plane, to += j->columns) {                                \
          const T *from = parts + j->before + j->shift[u];                                                             \
          _Pragma("omp simd") for (int64_t p = 0; p < j->out_plane; p++) to[p] = from[p] & keep[p];                    \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }                                                                                                                    \
  /* Takes the taps that are used from the weight. */                                                                  \
  static void take_##T(void *arg, int64_t chunk) {                                                                     \
    const job *j = arg;                                                                                                \
    int64_t begin = chunk * j->chunk, end = min(begin + j->chunk, j->count);                                           \
    const T *from = (const T *)j->from + begin * j->taps;                                                              \
    T *to = (T *)j->to + begin * j->used;                                                                              \
    for (int64_t i = begin; i < end; i++, from += j->taps, to += j->used) {                                            \
      for (int64_t u = 0; u < j->used; u++) to[u] = from[j->tap[u]];                                                   \
    }                                                                                                                  \
  }                                                                                                                    \
  /* Writes the gradient of the weight, which is zero for the other taps. */                                           \
  static void put_##T(void *arg, int64_t chunk) {                                                                      \
    const job *j = arg;                                                                                                \
    int64_t begin = chunk * j->chunk, end = min(begin + j->chunk, j->count);                                           \
    const T *from = (const T *)j->from + begin * j->used;                                                              \
    T *to = (T *)j->to + begin * j->taps;                                                                              \
    memset(to, 0, (size_t)((end - begin) * j->taps) * sizeof(T));                                                      \
    for (int64_t i = begin; i < end; i++, from += j->used, to += j->taps) {                                            \
      for (int64_t u = 0; u < j->used; u++) to[j->tap[u]] = from[u];                                                   \
    }                                                                                                                  \
  }

COPIES(uint16_t)
COPIES(uint32_t)
COPIES(uint64_t)

typedef struct {
  plait_task unfold, unfold_shifted, take, put;
} copies;

static const copies *copies_of(int64_t size) {
  static const copies two = {unfold_uint16_t, unfold_shifted_uint16_t, take_uint16_t, put_uint16_t};
  static const copies four = {unfold_uint32_t, unfold_shifted_uint32_t, take_uint32_t, put_uint32_t};
  static const copies eight = {unfold_uint64_t, unfold_shifted_uint64_t, take_uint64_t, put_uint64_t};
  return size == 2 ? &two : size == 4 ? &four : &eight;
}

// Folds the unfolded gradient to that of the input.
static void fold(void *arg, int64_t chunk) {
  const job *j = arg;
  int64_t size = j->io->size;
  for (int64_t c = chunk * j->chunk; c < min((chunk + 1) * j->chunk, j->count); c++) {
    const char *bias = j->bias != NULL ? (const char *)j->bias + c * size : NULL;
    for (int64_t i = 0; i < j->block_size; i++) {
      j->io->fold(j->to + ((j->block_first + i) * j->s->cin + c) * j->in_plane * size,
                  j->from + (c * j->used * j->columns + i * j->out_plane) * j->io->compute_size, j->first, j->term,
                  j->in_plane, bias);
    }
  }
}

// Writes a plane of the input's gradient from its parts.
static void unite(const job *j, int64_t c, int64_t i, const char *parts) {
  const int64_t *in = j->s->in, *out = j->s->out, *step = j->s->stride;
  int64_t size = j->io->size, compute_size = j->io->compute_size;
  const char *bias = j->bias != NULL ? (const char *)j->bias + c * size : NULL;
  char *plane = j->to + ((j->block_first + i) * j->s->cin + c) * j->in_plane * size;
  for (int64_t k = 0; k < j->parts; k++) {
    const int64_t *r = j->residue[k];
    const char *part = parts + (k * j->part + j->before) * compute_size;
    for (int64_t z = r[0]; z < in[0]; z += step[0]) {
      j->io->store(plane + ((z * in[1] + r[1]) * in[2] + r[2]) * size, step[1] * in[2], step[2],
                   part + z / step[0] * out[1] * out[2] * compute_size, out[2], ceil_div(in[1] - r[1], step[1]),
                   ceil_div(in[2] - r[2], step[2]), bias);
    }
  }
}

// The same where taps are shifted. It adds the same terms in the same order.
#define FOLD_SHIFTED(T, U)                                                                                             \
  PLAIT_CLONES static void fold_shifted_##T(void *arg, int64_t chunk) {                                                \
    const job *j = arg;                                                                                                \
    T parts[PART_ELEMENTS];                                                                                            \
    for (int64_t c = chunk * j->chunk; c < min((chunk + 1) * j->chunk, j->count); c++) {                               \
      for (int64_t i = 0; i < j->block_size; i++) {                                                                    \
        memset(parts, 0, (size_t)(j->parts * j->part) * sizeof(T));                                                \
        const T *from = (const T *)j->from + c * j->used * j->columns + i * j->out_plane;                              \
        const U *keep = (const U *)j->keep;                                                                            \
        for (int64_t u = 0; u < j->used; u++, keep += j->out_plane, from += j->columns) {                              \
          T *sums = parts + j->before + j->shift[u];                                                                   \
          _Pragma("omp simd") for (int64_t p = 0; p < j->out_plane; p++) sums[p] += keep[p] ? from[p] : (T)0;          \
        }                                                                                                              \
        unite(j, c, i, (const char *)parts);                                                                           \
      }                                                                                                                \
    }                                                                                                                  \
  }

FOLD_SHIFTED(float, uint32_t)
FOLD_SHIFTED(double, uint64_t)

// Copies the block's part of a tensor to its matrix, or back.
static void transpose(const job *j, int64_t chunk, int64_t plane, int back) {
  int64_t bytes = plane * j->io->size;
  for (int64_t c = chunk * j->chunk; c < min((chunk + 1) * j->chunk, j->count); c++) {
    for (int64_t i = 0; i < j->block_size; i++) {
      int64_t tensor = ((j->block_first + i) * j->count + c) * bytes, in_matrix = (c * j->images + i) * bytes;
      memcpy(j->to + (back ? tensor : in_matrix), j->from + (back ? in_matrix : tensor), (size_t)bytes);
    }
  }
}

static void gather_x(void *j, int64_t chunk) { transpose(j, chunk, ((const job *)j)->in_plane, 0); }
static void scatter_x(void *j, int64_t chunk) { transpose(j, chunk, ((const job *)j)->in_plane, 1); }
static void gather_y(void *j, int64_t chunk) { transpose(j, chunk, ((const job *)j)->out_plane, 0); }
static void scatter_y(void *j, int64_t chunk) { transpose(j, chunk, ((const job *)j)->out_plane, 1); }

// Writes the weight gradient from its sums.
static void round_sums(void *arg, int64_t chunk) {
  const job *j = arg;
  int64_t begin = chunk * j->chunk, end = min(begin + j->chunk, j->count);
  j->io->store(j->to + begin * j->depth * j->io->size, j->depth, 1, j->from + begin * j->depth * j->io->compute_size,
               j->depth, end - begin, j->depth, NULL);
}

// Runs a copy of so many channels or weights, of so many elements each.
static void copy(plait_pool *pool, job *j, plait_task task, const void *from, void *to, int64_t count,
                 int64_t elements) {
  j->from = from, j->to = to, j->count = count;
  j->chunk = ceil_div(CHUNK_ELEMENTS, max(1, elements));
  plait_parallel(pool, ceil_div(count, j->chunk), task, j);
}

// Runs a pass for the block under way.
static void run_block(plait_pool *pool, job *j, plaitk_conv_pass pass, const void *x, const void *y) {
  int64_t cin = j->s->cin, cout = j->s->cout, unfolded = j->used * j->columns;
  if (pass != CONV_INPUT_GRAD && j->unfolded.copied) {
    const copies *c = copies_of(j->io->size);
    plait_task unfold = j->same ? gather_x : j->shifted ? c->unfold_shifted : c->unfold;
    copy(pool, j, unfold, x, j->unfolded.data, cin, unfolded);
  }
  if (pass != CONV_FORWARD && j->y.copied) copy(pool, j, gather_y, y, j->y.data, cout, j->columns);
  for (int64_t group = 0; group < j->s->groups; group++) multiply(pool, j, pass, group, j->product_bytes);
  if (pass == CONV_FORWARD && j->y.copied) copy(pool, j, scatter_y, j->y.data, (void *)y, cout, j->columns);
  if (pass == CONV_INPUT_GRAD && j->unfolded.copied) {
    plait_task fold_all = j->io->compute_size == 8 ? fold_shifted_double : fold_shifted_float;
    copy(pool, j, j->same ? scatter_x : j->shifted ? fold_all : fold, j->unfolded.data, (void *)x, cin, unfolded);
  }
}

int64_t plaitk_conv_products_scratch(const plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass) {
  job j = {0};
  return plan(&j, pool, s, pass, NULL, NULL, NULL, NULL);
}

void plaitk_conv_by_products(plait_pool *pool, const plaitk_conv_shape *s, plaitk_conv_pass pass, const void *x,
                         const void *w, const void *bias, const void *y, void *scratch) {
  job j = {.bias = bias};
  plan(&j, pool, s, pass, x, w, y, scratch);
  int64_t weights = s->cout * j.channels;
  const copies *c = copies_of(j.io->size);
  if (pass != CONV_WEIGHT_GRAD && j.w != w) copy(pool, &j, c->take, w, j.w, weights, j.taps);
  for (j.block_first = 0; j.block_first < s->n; j.block_first += j.batched ? s->n : j.images) {
    j.block_size = min(j.images, s->n - j.block_first);
    run_block(pool, &j, pass, x, y);
  }
  if (j.sums != NULL) copy(pool, &j, round_sums, j.sums, j.w, s->cout, j.depth);
  if (pass == CONV_WEIGHT_GRAD && j.w != w) copy(pool, &j, c->put, j.w, (void *)w, weights, j.taps);
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
