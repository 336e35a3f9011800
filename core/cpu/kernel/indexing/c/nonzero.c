// Coordinates of the nonzero elements. A first pass counts them in each chunk, so that each chunk knows where to write.
#include "indexing.h"

struct job {
  const void *in;
  int32_t dtype, ndim;
  int64_t n;
  const int64_t *shape;
  int64_t *offsets, *out;
};

#define EACH_DTYPE(DO)                     \
  switch (j->dtype) {                      \
  case PLAIT_BOOL:                         \
  case PLAIT_U8:                           \
  case PLAIT_I8:                           \
    DO(uint8_t, x != 0) break;             \
  case PLAIT_I16:                          \
  case PLAIT_U16:                          \
    DO(uint16_t, x != 0) break;            \
  case PLAIT_I32:                          \
  case PLAIT_U32:                          \
    DO(int32_t, x != 0) break;             \
  case PLAIT_I64:                          \
  case PLAIT_U64:                          \
    DO(int64_t, x != 0) break;             \
  case PLAIT_F16:                          \
  case PLAIT_BF16:                         \
    DO(uint16_t, (x & 0x7fff) != 0) break; \
  case PLAIT_F32:                          \
    DO(float, x != 0) break;               \
  default:                                 \
    DO(double, x != 0) break;              \
  }

PLAIT_CLONES static int64_t count_range(const struct job *j, int64_t lo, int64_t hi) {
  int32_t count = 0; // at most NONZERO_CHUNK
#define COUNT(T, TEST)                                                         \
  {                                                                            \
    const T *p = j->in;                                                        \
    _Pragma("omp simd reduction(+:count)") for (int64_t i = lo; i < hi; i++) { \
      T x = p[i];                                                              \
      count += TEST;                                                           \
    }                                                                          \
  }
  EACH_DTYPE(COUNT)
#undef COUNT
  return count;
}

#define BLOCK 512

// Writes the positions of the nonzero elements from lo to hi and returns how many there are. It has no branch, which would be
// as unpredictable as the elements.
static int64_t find(const struct job *j, int64_t lo, int64_t hi, int64_t *found) {
  int64_t n = 0;
#define FIND(T, TEST)                      \
  {                                        \
    const T *p = j->in;                    \
    for (int64_t i = lo; i < hi; i++) {    \
      T x = p[i];                          \
      found[n] = i;                        \
      n += TEST;                           \
    }                                      \
  }
  EACH_DTYPE(FIND)
#undef FIND
  return n;
}

static void count_chunk(void *arg, int64_t chunk) {
  struct job *j = arg;
  int64_t lo = chunk * NONZERO_CHUNK, hi = lo + NONZERO_CHUNK < j->n ? lo + NONZERO_CHUNK : j->n;
  j->offsets[chunk] = count_range(j, lo, hi);
}

static void fill_chunk(void *arg, int64_t chunk) {
  struct job *j = arg;
  int64_t lo = chunk * NONZERO_CHUNK, hi = lo + NONZERO_CHUNK < j->n ? lo + NONZERO_CHUNK : j->n;
  int64_t *out = j->out + j->offsets[chunk] * j->ndim, at[PLAIT_MAX_DIMS] = {0}, found[BLOCK];
  int last = j->ndim - 1;
  int64_t width = last < 0 ? 1 : j->shape[last], row = lo / width * width, rest = lo / width;
  for (int d = last - 1; d >= 0; d--) {
    at[d] = rest % j->shape[d];
    rest /= j->shape[d];
  }
  for (; lo < hi; lo += BLOCK) {
    int64_t n = find(j, lo, lo + BLOCK < hi ? lo + BLOCK : hi, found);
    for (int64_t i = 0; i < n; i++) {
      for (; found[i] - row >= width; row += width) {
        for (int d = last - 1; d >= 0 && ++at[d] == j->shape[d]; d--) at[d] = 0;
      }
      for (int d = 0; d < last; d++) *out++ = at[d];
      if (last >= 0) *out++ = found[i] - row;
    }
  }
}

void plaitk_indexing_nonzero(plait_pool *pool, const void *in, int32_t dtype, int64_t n, int32_t ndim, const int64_t *shape,
                             int64_t *offsets, int64_t *out) {
  struct job j = {in, dtype, ndim, n, shape, offsets, out};
  int64_t chunks = (n + NONZERO_CHUNK - 1) / NONZERO_CHUNK, total = 0;
  plait_parallel(pool, chunks, count_chunk, &j);
  for (int64_t i = 0; i < chunks; i++) {
    int64_t count = offsets[i];
    offsets[i] = total;
    total += count;
  }
  plait_parallel(pool, chunks, fill_chunk, &j);
}
