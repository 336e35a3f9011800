// Reductions over any axes of a strided tensor.
//
// A problem is in normal form: its kept and its reduced dimensions, each list merged and sorted by descending stride. A
// *leaf* reduces one contiguous block (a few rows, or a few hundred columns) into a running *state* for each result.
// run.c iterates over the blocks, and finish.c turns states into results. The shape decides how the work is split, and
// states are merged in a fixed order, so the bits of a result do not depend on threads. Leaves sum in a fixed number of
// lanes, so they do not depend on the vector width either. Short rows are copied to be columns of a block, which take one
// call for many.
#ifndef PLAITK_REDUCTION_H
#define PLAITK_REDUCTION_H

#include <math.h>

#include "keys.h"
#include "../../../include/plait_abreast.h"
#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"
#include "../../../include/plait_stream.h"
#include "../../../include/plait_vmath.h"

enum plaitk_reduction_op {
  REDUCE_SUM,
  REDUCE_MEAN,
  REDUCE_NANSUM,   // of floats that are not NaN
  REDUCE_PROD,
  REDUCE_MAX,
  REDUCE_MIN,
  REDUCE_ANY,
  REDUCE_ALL,
  REDUCE_COUNT,    // elements that are not zero
  REDUCE_NORM1,    // sum |x|
  REDUCE_NORM2,    // sqrt(sum x^2)
  REDUCE_NORMP,    // (sum |x|^p)^(1/p)
  REDUCE_NORMINF,  // max |x|
  REDUCE_NORMNINF, // min |x|
  REDUCE_VAR,      // out: variance; out2, if not NULL: mean
  REDUCE_STD,
  REDUCE_LOGSUMEXP,
  REDUCE_ARGMAX, // out, if not NULL: the value; out2: its first index
  REDUCE_ARGMIN,
  REDUCE_OPS,
};

enum {
  REDUCE_WIDTH = 1024,      // columns of a block, at most
  REDUCE_WIDTH_TWO = 512,   // the same for leaves that read a block twice
  REDUCE_WIDTH_GATHER = 128,
  REDUCE_ROWS = 64,         // rows of a block of columns, at most
  REDUCE_ROWS_TWO = 32,
  REDUCE_BLOCK = 4096,      // elements of a row in a block, at most
  REDUCE_RUN = 512,         // elements of a run that is copied to lie beside the next one, at most
  REDUCE_FAR = 2 << 20,     // bytes of an operand from which it is too large for the L2 cache
  REDUCE_BATCH = 256,       // rows whose states are in use at the same time
};

// A reduction in normal form. Strides are in elements.
struct plaitk_reduction {
  const void *in;
  void *out, *out2; // either may be NULL if the op allows it
  void *scratch;    // 3 words for each of pieces * kept states; used if pieces > 1
  double param;     // the p of a norm, or the correction of a variance
  int32_t op, dtype, out_dtype;
  int32_t columns;  // 1: blocks are columns, and the innermost kept dimension has the smallest stride; 0: blocks are rows
  int32_t abreast;  // 1: rows or columns are short, and copied so that they become long rows of a block
  int32_t pairs;    // 1: elements are pairs, the parts of complex numbers, also in strides of the input. Each has two states.
  int32_t gather;   // 1: the smallest stride is not 1, so blocks are copied before they are reduced
  int32_t nk, nr;
  int64_t ksize[PLAIT_MAX_DIMS], kin[PLAIT_MAX_DIMS], kout[PLAIT_MAX_DIMS];
  int64_t rsize[PLAIT_MAX_DIMS], rin[PLAIT_MAX_DIMS];
  int64_t kept, reduced; // products of the sizes
  int64_t width;         // columns only: width of a block
  int64_t fold;          // columns only: this many adjacent rows are read as one row
  int64_t pieces, piece; // the reduced dimensions are split into pieces of `piece` elements (for columns: rows)
  int64_t unit;          // rows, or blocks of columns, per chunk
  int64_t chunks;
};

// The running states of n results, as arrays of n words. Their meaning depends on the leaf:
//   sums of floats   a: double sum, b: its compensation
//   sums of ints     a: int64
//   products         a: double or int64
//   of pairs         a: the real part, then the imaginary part
//   max, min         a: double or int64
//   arg              a: double or int64 value, b: int64 index, -1 for none
//   moments          a: count, b: mean, c: sum of squared deviations (doubles)
//   logsumexp        a: maximum m, b: sum of exp(x - m) (doubles)
struct state {
  void *a, *b, *c;
  bool far; // for column leaves: the elements do not fit the L2 cache
};

// A row leaf reduces `rows` rows of n <= REDUCE_BLOCK contiguous elements, `stride` elements apart, into the states 0
// to rows-1. A column leaf reduces `rows` <= REDUCE_ROWS rows of n <= REDUCE_WIDTH contiguous elements into the states
// 0 to n-1. `at` is the index of the first element (of the first row) along the reduced dimensions.
typedef void (*leaf_fn)(const void *p, int64_t rows, int64_t stride, int64_t n, int64_t at, double param, struct state s);

// `few` is a column leaf for all rows if they are at most PLAIT_ABREAST_N. It sets the states, which are sums in the order of the
// row leaf. Other ops, without one, use the column leaf.
struct leaf {
  leaf_fn rows, cols, few;
};
#define LEAF(name) {name##_rows, name##_cols, NULL}
#define SUM_LEAF(name) {name##_rows, name##_cols, name##_few}

// Each file of leaves has one table.
const struct leaf *plaitk_reduction_sum_leaf(int op, int dtype);
const struct leaf *plaitk_reduction_pairs_leaf(int op, int dtype);
const struct leaf *plaitk_reduction_norm_leaf(int op, int dtype);
const struct leaf *plaitk_reduction_extreme_leaf(int op, int dtype);
const struct leaf *plaitk_reduction_arg_leaf(int op, int dtype);
const struct leaf *plaitk_reduction_moments_leaf(int dtype);
const struct leaf *plaitk_reduction_logsumexp_leaf(int dtype);

// finish.c has what depends on the op but not on the layout.
void plaitk_reduction_init(const struct plaitk_reduction *r, struct state s, int64_t n);
// Merges the n states of src into those of dst.
void plaitk_reduction_merge(const struct plaitk_reduction *r, struct state dst, struct state src, int64_t n);
// Writes n <= REDUCE_WIDTH results at element offset `offset` of the outputs, `stride` apart.
void plaitk_reduction_store(const struct plaitk_reduction *r, struct state s, int64_t n, int64_t offset, int64_t stride);

int64_t plaitk_reduction_run(plait_pool *pool, const struct plaitk_reduction *r);

PLAIT_INLINE struct state state_at(struct state s, int64_t i) {
  struct state t = {(double *)s.a + i, (double *)s.b + i, (double *)s.c + i, s.far};
  return t;
}

// per_element returns the number of states that an element has.
PLAIT_INLINE int64_t per_element(const struct plaitk_reduction *r) { return r->pairs ? 2 : 1; }

// complex_multiply multiplies the complex number at a by x + iy.
PLAIT_INLINE void complex_multiply(double *a, double x, double y) {
  double re = a[0] * x - a[1] * y, im = a[0] * y + a[1] * x;
  a[0] = re, a[1] = im;
}

// How an element of each dtype is loaded.
#define LOAD_SAME(x) (x)
#define LOAD_F16(x) plait_f16_to_f32(x)
#define LOAD_BF16(x) plait_bf16_to_f32(x)

#define OP_ADD(a, b) ((a) + (b))
#define OP_MUL(a, b) ((a) * (b))
#define OP_MAX(a, b) ((b) > (a) ? (b) : (a))
#define OP_MIN(a, b) ((b) < (a) ? (b) : (a))
// For floats: if a or b is NaN, so is the result.
#define OP_FMAX(a, b) (((b) > (a)) | ((b) != (b)) ? (b) : (a))
#define OP_FMIN(a, b) (((b) < (a)) | ((b) != (b)) ? (b) : (a))

// sum_add adds x to a sum and the rounding error to its compensation (Knuth's TwoSum, which has no branch), so that the
// error does not grow with the number of blocks.
PLAIT_INLINE void sum_add(double *sum, double *comp, double x) {
  double s = *sum, t = s + x, y = t - s;
  *comp += (s - (t - y)) + (x - y);
  *sum = t;
}

// merged_mean returns the mean of `total` elements, of which n have the mean `more` and the others the mean `rest`. If
// one of these is infinite, so is the result.
PLAIT_INLINE double merged_mean(double rest, double more, double n, double total) {
  double delta = more - rest, part = n / total;
  return delta - delta == 0 ? rest + delta * part : rest * (1 - part) + more * part;
}

// logsumexp_add merges (m2, s2) into (m, s). A pair stands for log(s) + m; (-inf, 0) stands for an empty sum.
PLAIT_INLINE void logsumexp_add(double *m, double *s, double m2, double s2) {
  double top = OP_FMAX(*m, m2);
  if (!isfinite(top)) {
    *s = *s != *s ? *s : s2 != s2 ? s2 : top == -INFINITY ? 0 : 1;  // a NaN beside an infinity stays
  } else if (*s == 0) {
    *s = s2;
  } else if (m2 > -INFINITY) {
    *s = *s * exp(*m - top) + s2 * exp(m2 - top);
  }
  *m = top;
}

// FLUSH_*(s, k, v) merges a block's value into state k.
#define FLUSH_SUM(s, k, v) sum_add((double *)(s).a + (k), (double *)(s).b + (k), (double)(v))
#define FLUSH_COUNT(s, k, v) ((int64_t *)(s).a)[k] += (int64_t)(v)
#define FLUSH_WRAP(s, k, v) ((uint64_t *)(s).a)[k] += (uint64_t)(v)
#define FLUSH_PROD(s, k, v) ((double *)(s).a)[k] *= (v)
#define FLUSH_IPROD(s, k, v) ((uint64_t *)(s).a)[k] *= (v)
#define FLUSH_FMAX(s, k, v) ((double *)(s).a)[k] = OP_FMAX(((double *)(s).a)[k], (double)(v))
#define FLUSH_FMIN(s, k, v) ((double *)(s).a)[k] = OP_FMIN(((double *)(s).a)[k], (double)(v))
#define FLUSH_MAX(s, k, v) ((int64_t *)(s).a)[k] = OP_MAX(((int64_t *)(s).a)[k], (int64_t)(v))
#define FLUSH_MIN(s, k, v) ((int64_t *)(s).a)[k] = OP_MIN(((int64_t *)(s).a)[k], (int64_t)(v))

// PICK_<type>(c, a, b) is c ? a : b without a branch around the computation of a.
#define PICK_float(c, a, b) plait_vm_pickf(c, a, b)
#define PICK_double(c, a, b) plait_vm_pick(c, a, b)
#define PICK_int8_t(c, a, b) ((c) ? (a) : (b))
#define PICK_uint8_t(c, a, b) ((c) ? (a) : (b))
#define PICK_int16_t(c, a, b) ((c) ? (a) : (b))
#define PICK_uint16_t(c, a, b) ((c) ? (a) : (b))
#define PICK_int32_t(c, a, b) ((c) ? (a) : (b))
#define PICK_uint32_t(c, a, b) ((c) ? (a) : (b))
#define PICK_int64_t(c, a, b) ((c) ? (a) : (b))
#define PICK_uint64_t(c, a, b) ((c) ? (a) : (b))

#define SIMD _Pragma("omp simd")

// The prefetch distance for rows, in bytes. The hardware prefetcher is shorter and stops at every page.
#define FETCH_AHEAD 4096

// FOLD_ROW sets `out` (of type C) to the fold of MAP(p[0..n-1]) with OP.
#define FOLD_ROW(out, p, n, C, L, MAP, IDENTITY, OP)              \
  do {                                                            \
    C even_, odd_;                                                \
    FOLD_PAIRS(even_, odd_, p, n, C, L, MAP, IDENTITY, OP);       \
    out = OP(even_, odd_);                                        \
  } while (0)

// FOLD_PAIRS sets `even` and `odd` to folds that together are FOLD_ROW's. If n is even, they are those of the elements with even
// and with odd indices. The bulk uses L lanes, the rest L/4 lanes, the last of them masked. L is 16 to 256.
#define FOLD_PAIRS(even, odd, p, n, C, L, MAP, IDENTITY, OP)                          \
  do {                                                                                \
    enum { Q = (L) / 4 };                                                             \
    C t_[Q];                                                                          \
    SIMD for (int j = 0; j < Q; j++) t_[j] = (C)(IDENTITY);                           \
    int64_t i_ = 0;                                                                   \
    if ((n) >= (L)) {                                                                 \
      C acc_[L];                                                                      \
      SIMD for (int j = 0; j < (L); j++) acc_[j] = (C)(IDENTITY);                     \
      for (; i_ + (L) <= (n); i_ += (L)) {                                            \
        plait_prefetch((const char *)((p) + i_) + FETCH_AHEAD, (L) * sizeof(*(p)));      \
        SIMD for (int j = 0; j < (L); j++) {                                          \
          C x_ = (C)MAP((p)[i_ + j]);                                                 \
          acc_[j] = OP(acc_[j], x_);                                                  \
        }                                                                             \
      }                                                                               \
      SIMD for (int j = 0; j < Q; j++) {                                              \
        C u_ = OP(acc_[j], acc_[j + Q]), v_ = OP(acc_[j + 2 * Q], acc_[j + 3 * Q]);   \
        t_[j] = OP(u_, v_);                                                           \
      }                                                                               \
    }                                                                                 \
    for (; i_ + Q <= (n); i_ += Q) {                                                  \
      SIMD for (int j = 0; j < Q; j++) {                                              \
        C x_ = (C)MAP((p)[i_ + j]);                                                   \
        t_[j] = OP(t_[j], x_);                                                        \
      }                                                                               \
    }                                                                                 \
    int rest_ = (int)((n) - i_);                                                      \
    if (rest_ > 0 && (n) >= Q) {                                                      \
      SIMD for (int j = 0; j < Q; j++) {                                              \
        C x_ = PICK_##C(j >= Q - rest_, (C)MAP((p)[(n) - Q + j]), (C)(IDENTITY));     \
        t_[j] = OP(t_[j], x_);                                                        \
      }                                                                               \
    } else if (rest_ > 0) {                                                           \
      SIMD for (int j = 0; j < Q; j++) {                                              \
        __typeof__(*(p)) e_ = j < rest_ ? (p)[i_ + j] : 0;                            \
        C x_ = PICK_##C(j < rest_, (C)MAP(e_), (C)(IDENTITY));                        \
        t_[j] = OP(t_[j], x_);                                                        \
      }                                                                               \
    }                                                                                 \
    FOLD_HALF(C, 32, OP) FOLD_HALF(C, 16, OP) FOLD_HALF(C, 8, OP) FOLD_HALF(C, 4, OP) \
    even = OP(t_[0], t_[2]), odd = OP(t_[1], t_[3]);                                  \
  } while (0)

// Halves FOLD_ROW's lanes once. The constant condition removes halvings that L does not need.
#define FOLD_HALF(C, H, OP)                                                  \
  if (Q > (H)) {                                                             \
    SIMD for (int j = 0; j < (H); j++) t_[j] = OP(t_[j], t_[(j + (H)) % Q]); \
  }

// Columns that are folded between two prefetches.
#define FOLD_STRIP 64

// fold_fetch prefetches n bytes of eight rows into the L2 cache: rows a power of two apart compete for few sets of the
// L1 cache.
PLAIT_INLINE void fold_fetch(const void *p, int64_t stride, int64_t n) {
  for (int64_t r = 0; r < 8; r++) {
    const char *row = (const char *)p + r * stride;
    for (int64_t k = 0; k < n; k += PLAIT_LINE) __builtin_prefetch(row + k, 0, 2);
  }
}

// FOLD_COLS folds column j of `rows` rows into acc[j] (of type C), eight rows at a time as a tree. If the elements are
// far, it prefetches the next eight rows strip by strip.
#define FOLD_COLS(acc, p, rows, stride, n, far, C, MAP, OP)                                                   \
  do {                                                                                                        \
    int64_t r_ = 0, strip_ = (far) ? FOLD_STRIP : (n);                                                        \
    for (; r_ + 8 <= (rows); r_ += 8) {                                                                       \
      __typeof__(p) q_ = (p) + r_ * (stride);                                                                 \
      for (int64_t i_ = 0; i_ < (n); i_ += strip_) {                                                          \
        int64_t end_ = i_ + strip_ < (n) ? i_ + strip_ : (n);                                                 \
        if (far) fold_fetch(q_ + 8 * (stride) + i_, (stride) * (int64_t)sizeof *q_, FOLD_STRIP * sizeof *q_); \
        SIMD for (int64_t j = i_; j < end_; j++) {                                                            \
          C x0 = (C)MAP(q_[j]), x1 = (C)MAP(q_[j + (stride)]);                                                \
          C x2 = (C)MAP(q_[j + 2 * (stride)]), x3 = (C)MAP(q_[j + 3 * (stride)]);                             \
          C x4 = (C)MAP(q_[j + 4 * (stride)]), x5 = (C)MAP(q_[j + 5 * (stride)]);                             \
          C x6 = (C)MAP(q_[j + 6 * (stride)]), x7 = (C)MAP(q_[j + 7 * (stride)]);                             \
          x0 = OP(x0, x1), x2 = OP(x2, x3), x4 = OP(x4, x5), x6 = OP(x6, x7);                                 \
          x0 = OP(x0, x2), x4 = OP(x4, x6);                                                                   \
          x0 = OP(x0, x4);                                                                                    \
          (acc)[j] = OP((acc)[j], x0);                                                                        \
        }                                                                                                     \
      }                                                                                                       \
    }                                                                                                         \
    for (; r_ < (rows); r_++) {                                                                               \
      __typeof__(p) q_ = (p) + r_ * (stride);                                                                 \
      SIMD for (int64_t j = 0; j < (n); j++) {                                                                \
        C x_ = (C)MAP(q_[j]);                                                                                 \
        (acc)[j] = OP((acc)[j], x_);                                                                          \
      }                                                                                                       \
    }                                                                                                         \
  } while (0)

// FOLD_LEAF defines the leaves NAME_rows and NAME_cols that fold MAP(x) over elements x of type T in lanes of type C.
#define FOLD_LEAF(NAME, T, C, L, MAP, IDENTITY, OP, FLUSH)                                                  \
  PLAIT_CLONES static void NAME##_rows(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                  \
    for (int64_t k = 0; k < rows; k++) {                                                                    \
      const T *p = (const T *)in + k * stride;                                                              \
      C v;                                                                                                  \
      FOLD_ROW(v, p, n, C, L, MAP, IDENTITY, OP);                                                           \
      FLUSH(s, k, v);                                                                                       \
    }                                                                                                       \
  }                                                                                                         \
  PLAIT_CLONES static void NAME##_cols(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                       double param, struct state s) {                                      \
    (void)at, (void)param;                                                                                  \
    const T *p = in;                                                                                        \
    C acc[REDUCE_WIDTH];                                                                                    \
    SIMD for (int64_t j = 0; j < n; j++) acc[j] = (C)(IDENTITY);                                            \
    FOLD_COLS(acc, p, rows, stride, n, s.far, C, MAP, OP);                                                  \
    SIMD for (int64_t j = 0; j < n; j++) FLUSH(s, j, acc[j]);                                               \
  }

// FOLD_FEW sets t[0][j] to the sum of MAP(x) over column j of at most PLAIT_ABREAST_N rows, in FOLD_ROW's order. t has L/4 rows,
// and m <= FEW_STRIP. `zero` must not be a constant that the compiler sees, or it calls for slow copies of memory.
#define FEW_STRIP 64
#define FOLD_FEW(t, p, rows, stride, m, C, L, MAP, zero)                                                              \
  do {                                                                                                                \
    enum { Q = (L) / 4 };                                                                                             \
    int64_t half_ = Q;                                                                                                \
    if ((rows) <= Q) {                                                                                                \
      half_ = 1;                                                                                                      \
      while (2 * half_ < (rows)) half_ *= 2;                                                                          \
      for (int64_t r_ = 0; r_ < half_; r_++) {                                                                        \
        __typeof__(p) q_ = (p) + r_ * (stride);                                                                       \
        C *to_ = (t)[r_];                                                                                             \
        if (r_ + half_ < (rows)) {                                                                                    \
          SIMD for (int64_t j = 0; j < (m); j++) to_[j] = (C)MAP(q_[j]) + (C)MAP(q_[j + half_ * (stride)]);           \
        } else {                                                                                                      \
          SIMD for (int64_t j = 0; j < (m); j++) to_[j] = (C)MAP(q_[j]) + (zero);                                     \
        }                                                                                                             \
      }                                                                                                               \
    } else {                                                                                                          \
      for (int64_t r_ = 0; r_ < (rows); r_++) {                                                                       \
        __typeof__(p) q_ = (p) + r_ * (stride);                                                                       \
        C *to_ = (t)[r_ < (rows) / Q * Q ? r_ % Q : Q - (rows) + r_];                                                 \
        if (r_ < Q) {                                                                                                 \
          SIMD for (int64_t j = 0; j < (m); j++) to_[j] = (C)MAP(q_[j]) + (zero);                                     \
        } else {                                                                                                      \
          SIMD for (int64_t j = 0; j < (m); j++) to_[j] += (C)MAP(q_[j]);                                             \
        }                                                                                                             \
      }                                                                                                               \
    }                                                                                                                 \
    for (half_ /= 2; half_ > 0; half_ /= 2) {                                                                         \
      for (int64_t r_ = 0; r_ < half_; r_++) {                                                                        \
        SIMD for (int64_t j = 0; j < (m); j++) (t)[r_][j] += (t)[r_ + half_][j];                                      \
      }                                                                                                               \
    }                                                                                                                 \
  } while (0)

// SUM_LEAVES defines the leaves of a sum of floats.
#define SUM_LEAVES(NAME, T, C, L, MAP)                                                                     \
  FOLD_LEAF(NAME, T, C, L, MAP, 0, OP_ADD, FLUSH_SUM)                                                      \
  PLAIT_CLONES static void NAME##_few(const void *in, int64_t rows, int64_t stride, int64_t n, int64_t at, \
                                      double param, struct state s) {                                      \
    (void)param;                                                                                           \
    const C zero = (C)at;                                                                                  \
    double *sum = s.a, *comp = s.b;                                                                        \
    for (int64_t first = 0; first < n; first += FEW_STRIP) {                                               \
      const T *p = (const T *)in + first;                                                                  \
      int64_t m = n - first < FEW_STRIP ? n - first : FEW_STRIP;                                           \
      C t[(L) / 4][FEW_STRIP];                                                                             \
      FOLD_FEW(t, p, rows, stride, m, C, L, MAP, zero);                                                    \
      SIMD for (int64_t j = 0; j < m; j++) sum[first + j] = t[0][j], comp[first + j] = 0;                    \
    }                                                                                                      \
  }

#endif
