#include "../include/plait_transpose.h"
#include "gemm.h"

// Batches of tiny products, such as rotations of points, and products of many short rows. Several products are computed abreast: element
// (i, j) of each is in a lane of one vector, so that none is filled in part and no product has a set-up of its own.

enum { VECTOR = 64, MOST_LANES = VECTOR / sizeof(float), MOST = 64 };  // bytes, products abreast, elements of a matrix

// Where products abreast begin, in elements.
typedef struct places {
  int64_t a[MOST_LANES], b[MOST_LANES], c[MOST_LANES];
} places;

#define TINY(T)                                                                                                       \
  typedef T T##_lanes __attribute__((vector_size(VECTOR)));                                                           \
  enum { T##_LANES = VECTOR / sizeof(T) };                                                                            \
                                                                                                                      \
  /* Reads one row of each product, contiguous and at equal distances, by transposes of blocks. */                    \
  PLAIT_INLINE void T##_turn(T##_lanes *to, const T *from, int64_t apart, int64_t n) {                                 \
    enum { L = 16 / sizeof(T) };                                                                                      \
    for (int l = 0; l < T##_LANES; l += L) {                                                                          \
      for (int64_t j = 0; j < n; j += L) {                                                                            \
        if (j + L > n) j = n - L;                                                                                     \
        T##_TURN((char *)(to + j) + l * sizeof(T), VECTOR, (const char *)(from + l * apart + j), apart * sizeof(T));  \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
                                                                                                                      \
  /* Reads one matrix of each product. */                                                                             \
  PLAIT_INLINE void T##_read(T##_lanes *to, const T *from, const int64_t *at, int64_t rows, int64_t cols, int64_t row, \
                             int64_t col) {                                                                           \
    bool even = rows == 1 && col == 1 && cols >= (int64_t)(16 / sizeof(T));                                           \
    for (int l = 2; l < T##_LANES; l++) even &= at[l] - at[l - 1] == at[1] - at[0];                                   \
    if (even) {                                                                                                       \
      T##_turn(to, from + at[0], at[1] - at[0], cols);                                                                \
      return;                                                                                                         \
    }                                                                                                                 \
    const T *p[T##_LANES];                                                                                            \
    for (int l = 0; l < T##_LANES; l++) p[l] = from + at[l];                                                          \
    for (int64_t i = 0; i < rows; i++) {                                                                              \
      for (int64_t j = 0; j < cols; j++, to++) {                                                                      \
        T lanes[T##_LANES];                                                                                           \
        for (int l = 0; l < T##_LANES; l++) lanes[l] = p[l][i * row + j * col];                                       \
        memcpy(to, lanes, VECTOR);                                                                                    \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
                                                                                                                      \
  /* Computes products abreast and stores the first `count`. With `shared` all of them have one B. */                 \
  PLAIT_CLONES static void T##_abreast(const plaitk_gemm *g, const places *at, int64_t count, bool shared) {          \
    T##_lanes a[MOST], b[MOST];                                                                                       \
    const T *shared_b = (const T *)g->b + at->b[0];                                                                   \
    T##_read(a, g->a, at->a, g->m, g->k, g->a_row, g->a_col);                                                         \
    if (!shared) T##_read(b, g->b, at->b, g->k, g->n, g->b_row, g->b_col);                                            \
    for (int64_t j = 0; j < g->n; j++) {                                                                              \
      T bias = g->bias != NULL ? ((const T *)g->bias)[j * g->bias_step] : 0;                                          \
      for (int64_t i = 0; i < g->m; i++) {                                                                            \
        T##_lanes sum = {0};                                                                                          \
        for (int64_t p = 0; p < g->k; p++) {                                                                          \
          if (shared) sum += a[i * g->k + p] * shared_b[p * g->b_row + j * g->b_col];                                 \
          else sum += a[i * g->k + p] * b[p * g->n + j];                                                              \
        }                                                                                                             \
        sum *= (T)g->alpha;                                                                                           \
        T *c = (T *)g->c + i * g->c_row + j * g->c_col, out[T##_LANES];                                               \
        memcpy(out, &sum, VECTOR);                                                                                    \
        for (int64_t l = 0; l < count; l++) {                                                                         \
          T *to = c + at->c[l];                                                                                       \
          *to = (g->beta != 0 ? (T)g->beta * *to : 0) + out[l] + bias;                                                \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
  }

#define float_TURN plait_transpose_block4
#define double_TURN plait_transpose_block8
TINY(float)
TINY(double)

bool gemm_is_tiny(const plaitk_gemm *g) {
  return (g->in == PLAIT_F32 || g->in == PLAIT_F64) && g->out == g->in && !g->turned && !g->rounded && g->m > 0 && g->n > 0 &&
         g->m * g->k <= MOST && g->k * g->n <= MOST && g->m * g->n * g->k <= GEMM_TINY_OPS;
}

// A walk goes over the products of a batch.
typedef struct walk {
  int dims;
  const plaitk_gemm_dim *dim;
  int64_t index[PLAIT_MAX_DIMS], a, b, c;
} walk;

static walk walk_from(int dims, const plaitk_gemm_dim *dim, int64_t first) {
  walk w = {.dims = dims, .dim = dim};
  for (int d = dims - 1; d >= 0; d--) {
    w.index[d] = first % dim[d].size;
    first /= dim[d].size;
    w.a += w.index[d] * dim[d].a, w.b += w.index[d] * dim[d].b, w.c += w.index[d] * dim[d].c;
  }
  return w;
}

static inline void step(walk *w) {
  for (int d = w->dims - 1; d >= 0; d--) {
    const plaitk_gemm_dim *dim = &w->dim[d];
    w->a += dim->a, w->b += dim->b, w->c += dim->c;
    if (++w->index[d] < dim->size) return;
    w->index[d] = 0;
    w->a -= dim->size * dim->a, w->b -= dim->size * dim->b, w->c -= dim->size * dim->c;
  }
}

void gemm_tiny(const plaitk_gemm *g, int dims, const plaitk_gemm_dim *dim, int64_t first, int64_t end) {
  int lanes = g->in == PLAIT_F32 ? float_LANES : double_LANES;
  walk w = walk_from(dims, dim, first);
  bool shared = true;
  for (int d = 0; d < dims; d++) shared &= dim[d].b == 0;
  for (int64_t at = first; at < end; at += lanes) {
    places p;
    int64_t count = min64(lanes, end - at);
    if (dims == 1 && count == lanes) {
      for (int l = 0; l < lanes; l++) p.a[l] = w.a + l * dim->a, p.b[l] = w.b + l * dim->b, p.c[l] = w.c + l * dim->c;
      w.a += lanes * dim->a, w.b += lanes * dim->b, w.c += lanes * dim->c;
    } else {
      for (int l = 0; l < lanes; l++) {
        p.a[l] = w.a, p.b[l] = w.b, p.c[l] = w.c;
        if (l + 1 < count) step(&w);  // lanes that are not wanted repeat the last product
      }
      step(&w);
    }
    (g->in == PLAIT_F32 ? float_abreast : double_abreast)(g, &p, count, shared);
  }
}
