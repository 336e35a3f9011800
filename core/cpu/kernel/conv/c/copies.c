// The copies between the tensors of a convolution and the matrices of its products.
#include "products.h"

#define min plaitk_conv_min
#define max plaitk_conv_max
#define ceil_div plaitk_conv_ceil
#define volume plaitk_conv_volume

#define POSITIONS 64               // that are unfolded together
#define CHUNK_ELEMENTS (16 << 10)  // elements that a chunk copies, at least

typedef plaitk_conv_job job;

// Copies without arithmetic, for elements of each size.
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
  /* Copies a plane to its parts. */                                                                                   \
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
    T parts[PLAITK_CONV_PARTS];                                                                                        \
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
    T parts[PLAITK_CONV_PARTS];                                                                                        \
    for (int64_t c = chunk * j->chunk; c < min((chunk + 1) * j->chunk, j->count); c++) {                               \
      for (int64_t i = 0; i < j->block_size; i++) {                                                                    \
        memset(parts, 0, (size_t)(j->parts * j->part) * sizeof(T));                                                    \
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

void plaitk_conv_copy(plait_pool *pool, job *j, plaitk_conv_copy_kind kind, const void *from, void *to) {
  const copies *c = copies_of(j->io->size);
  plait_task task = NULL;
  int64_t count = 0, elements = 0;  // rows, and elements of each
  switch (kind) {
    case CONV_UNFOLD:
      task = j->same ? gather_x : j->shifted ? c->unfold_shifted : c->unfold;
      count = j->s->cin, elements = j->used * j->columns;
      break;
    case CONV_FOLD:
      task = j->io->compute_size == 8 ? fold_shifted_double : fold_shifted_float;
      if (!j->shifted) task = j->same ? scatter_x : fold;
      count = j->s->cin, elements = j->used * j->columns;
      break;
    case CONV_GATHER:
    case CONV_SCATTER:
      task = kind == CONV_GATHER ? gather_y : scatter_y;
      count = j->s->cout, elements = j->columns;
      break;
    case CONV_TAKE:
    case CONV_PUT:
      task = kind == CONV_TAKE ? c->take : c->put;
      count = j->s->cout * j->channels, elements = j->taps;
      break;
    case CONV_ROUND:
      task = round_sums;
      count = j->s->cout, elements = j->depth;
      break;
  }
  j->from = from, j->to = to, j->count = count;
  j->chunk = ceil_div(CHUNK_ELEMENTS, max(1, elements));
  plait_parallel(pool, ceil_div(count, j->chunk), task, j);
}
