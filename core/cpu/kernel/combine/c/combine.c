#include "combine.h"

// Elements per block. A block of the result stays in the L1 cache until all sources are combined.
#define BLOCK 2048

typedef void (*block_fn)(const void *const *sources, int64_t n_sources, void *const *targets, int64_t n_targets, int64_t from,
                         int64_t n, double divisor);

// BLOCK_FN defines a function that combines one block. T is the type in memory and A the type of the arithmetic.
// JOIN(a, b) combines two elements, and DIVIDE(a) divides the result.
#define BLOCK_FN(NAME, T, A, LOAD, STORE, JOIN, DIVIDE)                                                                        \
  PLAIT_CLONES static void NAME(const void *const *sources, int64_t n_sources, void *const *targets, int64_t n_targets,         \
                                int64_t from, int64_t n, double divisor) {                                                     \
    A acc[BLOCK];                                                                                                              \
    const T *x = (const T *)sources[0] + from;                                                                                 \
    if (n_sources == 1) {                                                                                                      \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) acc[i] = LOAD(x[i]);                                                 \
    } else {                                                                                                                   \
      const T *y = (const T *)sources[1] + from;                                                                               \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) acc[i] = JOIN(A, LOAD(x[i]), LOAD(y[i]));                            \
    }                                                                                                                          \
    for (int64_t s = 2; s < n_sources; s++) {                                                                                  \
      const T *y = (const T *)sources[s] + from;                                                                               \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) acc[i] = JOIN(A, acc[i], LOAD(y[i]));                                \
    }                                                                                                                          \
    DIVIDE(A);                                                                                                                 \
    for (int64_t t = 0; t < n_targets; t++) {                                                                                  \
      T *out = (T *)targets[t] + from;                                                                                         \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[i] = STORE(acc[i]);                                              \
    }                                                                                                                          \
  }

#define SAME(x) (x)
#define ADD(A, a, b) ((A)((a) + (b)))
#define TIMES(A, a, b) ((A)((a) * (b)))
// If a is NaN, no comparison holds and a stays. If b is NaN, it replaces a.
#define LESS(A, a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define MORE(A, a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define AND(A, a, b) ((A)((a) & (b)))
#define OR(A, a, b) ((A)((a) | (b)))
#define XOR(A, a, b) ((A)((a) ^ (b)))

#define NOTHING(A) (void)divisor
#define QUOTIENT(A)                                                                                                            \
  do {                                                                                                                         \
    if (divisor != 0) {                                                                                                        \
      A by = (A)divisor;                                                                                                       \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) acc[i] = acc[i] / by;                                                \
    }                                                                                                                          \
  } while (0)

#define FLOATS(NAME, T, A, LOAD, STORE)                                                                                        \
  BLOCK_FN(sum_##NAME, T, A, LOAD, STORE, ADD, QUOTIENT)                                                                       \
  BLOCK_FN(product_##NAME, T, A, LOAD, STORE, TIMES, NOTHING)                                                                  \
  BLOCK_FN(min_##NAME, T, A, LOAD, STORE, LESS, NOTHING)                                                                       \
  BLOCK_FN(max_##NAME, T, A, LOAD, STORE, MORE, NOTHING)

FLOATS(f32, float, float, SAME, SAME)
FLOATS(f64, double, double, SAME, SAME)
FLOATS(f16, uint16_t, float, plait_f16_to_f32, plait_f32_to_f16)
FLOATS(bf16, uint16_t, float, plait_bf16_to_f32, plait_f32_to_bf16)

// Sums and products are unsigned, so that they wrap. The sign only matters to minimum and maximum.
#define INTEGERS(NAME, U, T)                                                                                                   \
  BLOCK_FN(sum_##NAME, U, U, SAME, SAME, ADD, NOTHING)                                                                         \
  BLOCK_FN(product_##NAME, U, U, SAME, SAME, TIMES, NOTHING)                                                                   \
  BLOCK_FN(min_##NAME, T, T, SAME, SAME, LESS, NOTHING)                                                                        \
  BLOCK_FN(max_##NAME, T, T, SAME, SAME, MORE, NOTHING)                                                                        \
  BLOCK_FN(and_##NAME, U, U, SAME, SAME, AND, NOTHING)                                                                         \
  BLOCK_FN(or_##NAME, U, U, SAME, SAME, OR, NOTHING)                                                                           \
  BLOCK_FN(xor_##NAME, U, U, SAME, SAME, XOR, NOTHING)

INTEGERS(u8, uint8_t, uint8_t)
INTEGERS(i8, uint8_t, int8_t)
INTEGERS(i16, uint16_t, int16_t)
INTEGERS(u16, uint16_t, uint16_t)
INTEGERS(u32, uint32_t, uint32_t)
INTEGERS(u64, uint64_t, uint64_t)
INTEGERS(i32, uint32_t, int32_t)
INTEGERS(i64, uint64_t, int64_t)

#define OF_INTS(NAME) {0, sum_##NAME, product_##NAME, min_##NAME, max_##NAME, and_##NAME, or_##NAME, xor_##NAME}
#define OF_FLOATS(NAME) {0, sum_##NAME, product_##NAME, min_##NAME, max_##NAME}

// The block functions by dtype and operation.
static const block_fn table[PLAIT_DTYPES][PLAITK_COMBINE_OPS] = {
    [PLAIT_BOOL] = {0, or_u8, and_u8, and_u8, or_u8, and_u8, or_u8, xor_u8},
    [PLAIT_U8] = OF_INTS(u8), [PLAIT_I32] = OF_INTS(i32), [PLAIT_I64] = OF_INTS(i64),
    [PLAIT_F16] = OF_FLOATS(f16), [PLAIT_BF16] = OF_FLOATS(bf16), [PLAIT_F32] = OF_FLOATS(f32), [PLAIT_F64] = OF_FLOATS(f64),
    [PLAIT_I8] = OF_INTS(i8), [PLAIT_I16] = OF_INTS(i16), [PLAIT_U16] = OF_INTS(u16), [PLAIT_U32] = OF_INTS(u32),
    [PLAIT_U64] = OF_INTS(u64),
};

void plaitk_combine(int64_t op, int64_t dtype, int64_t n, const void *const *sources, int64_t n_sources, void *const *targets,
                    int64_t n_targets, double divisor) {
  if (op == PLAITK_COPY) {
    for (int64_t t = 0; t < n_targets; t++) {
      if (targets[t] != sources[0]) memmove(targets[t], sources[0], (size_t)(n * plait_dtype_size(dtype)));
    }
    return;
  }
  block_fn join = table[dtype][op];
  for (int64_t from = 0; from < n; from += BLOCK) {
    join(sources, n_sources, targets, n_targets, from, n - from < BLOCK ? n - from : BLOCK, divisor);
  }
}

void plaitk_combine_rows(int64_t op, int64_t dtype, int64_t rows, int64_t n, const void **sources, const int64_t *source_strides,
                         int64_t n_sources, void **targets, const int64_t *target_strides, int64_t n_targets, double divisor) {
  for (int64_t r = 0;;) {
    plaitk_combine(op, dtype, n, sources, n_sources, targets, n_targets, divisor);
    if (++r == rows) return;
    for (int64_t i = 0; i < n_sources; i++) sources[i] = (const char *)sources[i] + source_strides[i];
    for (int64_t i = 0; i < n_targets; i++) targets[i] = (char *)targets[i] + target_strides[i];
  }
}
