// Running sums and products: floats in double, integers in int64.
#include "scan.h"

#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))

// Elements of type T are accumulated as C and stored as O.
#define SUM_LEAVES(NAME, T, C, O, LOAD, STORE, OP)                                                              \
  static void NAME##_rows(const struct scan_part *part) {                                                       \
    const struct scan_part p = *part;                                                                           \
    const T *in = p.in;                                                                                         \
    O *out = p.out;                                                                                             \
    C *state = p.s.a;                                                                                           \
    C acc[SCAN_LINES];                                                                                          \
    for (int64_t k = 0; k < p.lines; k++) acc[k] = state[k];                                                    \
    if (p.lines == SCAN_LINES && out != NULL) {                                                                 \
      for (int64_t i = 0; i < p.n; i++) {                                                                       \
        for (int k = 0; k < SCAN_LINES; k++) {                                                                  \
          acc[k] = OP(acc[k], (C)LOAD(in[k * p.in_line + i * p.in_stride]));                                    \
          out[k * p.out_line + i * p.out_stride] = (O)STORE(acc[k]);                                            \
        }                                                                                                       \
      }                                                                                                         \
    } else if (p.lines == SCAN_LINES) {                                                                         \
      for (int64_t i = 0; i < p.n; i++) {                                                                       \
        for (int k = 0; k < SCAN_LINES; k++) acc[k] = OP(acc[k], (C)LOAD(in[k * p.in_line + i * p.in_stride])); \
      }                                                                                                         \
    } else {                                                                                                    \
      for (int64_t k = 0; k < p.lines; k++) {                                                                   \
        C a = acc[k];                                                                                           \
        for (int64_t i = 0; i < p.n; i++) {                                                                     \
          a = OP(a, (C)LOAD(in[k * p.in_line + i * p.in_stride]));                                              \
          if (out != NULL) out[k * p.out_line + i * p.out_stride] = (O)STORE(a);                                \
        }                                                                                                       \
        acc[k] = a;                                                                                             \
      }                                                                                                         \
    }                                                                                                           \
    for (int64_t k = 0; k < p.lines; k++) state[k] = acc[k];                                                    \
  }                                                                                                             \
  static void NAME##_few(const struct scan_part *p) {                                                           \
    const T *in = p->in;                                                                                        \
    O *out = p->out;                                                                                            \
    C first = *(const C *)p->s.a;                                                                               \
    for (int64_t k = 0, n = p->n; k < p->lines; k++, in += p->in_line, out += p->out_line) {                    \
      C a = first;                                                                                              \
      for (int64_t i = 0; i < n; i++) {                                                                         \
        a = OP(a, (C)LOAD(in[i]));                                                                              \
        out[i] = (O)STORE(a);                                                                                   \
      }                                                                                                         \
    }                                                                                                           \
  }                                                                                                             \
  PLAIT_CLONES static void NAME##_columns(const struct scan_part *p) {                                          \
    C acc[SCAN_WIDTH];                                                                                          \
    memcpy(acc, p->s.a, (size_t)p->lines * sizeof(C));                                                          \
    int64_t lines = p->lines;                                                                                   \
    for (int64_t i = 0; i < p->n; i++) {                                                                        \
      const T *in = (const T *)p->in + i * p->in_stride;                                                        \
      if (p->out == NULL) {                                                                                     \
        SIMD for (int64_t j = 0; j < lines; j++) acc[j] = OP(acc[j], (C)LOAD(in[j]));                           \
        continue;                                                                                               \
      }                                                                                                         \
      O *out = (O *)p->out + i * p->out_stride;                                                                 \
      SIMD for (int64_t j = 0; j < lines; j++) {                                                                \
        C v = OP(acc[j], (C)LOAD(in[j]));                                                                       \
        acc[j] = v;                                                                                             \
        out[j] = (O)STORE(v);                                                                                   \
      }                                                                                                         \
    }                                                                                                           \
    memcpy(p->s.a, acc, (size_t)p->lines * sizeof(C));                                                          \
  }

#define BOTH(SUFFIX, T, C, O, LOAD, STORE)            \
  SUM_LEAVES(sum_##SUFFIX, T, C, O, LOAD, STORE, ADD) \
  SUM_LEAVES(prod_##SUFFIX, T, C, O, LOAD, STORE, MUL)

// Unsigned, so that integers wrap.
BOTH(u8, uint8_t, uint64_t, uint64_t, LOAD_SAME, STORE_SAME)
BOTH(i8, int8_t, uint64_t, uint64_t, LOAD_SAME, STORE_SAME)
BOTH(i16, int16_t, uint64_t, uint64_t, LOAD_SAME, STORE_SAME)
BOTH(u16, uint16_t, uint64_t, uint64_t, LOAD_SAME, STORE_SAME)
BOTH(u32, uint32_t, uint64_t, uint64_t, LOAD_SAME, STORE_SAME)
BOTH(u64, uint64_t, uint64_t, uint64_t, LOAD_SAME, STORE_SAME)
BOTH(i32, int32_t, uint64_t, uint64_t, LOAD_SAME, STORE_SAME)
BOTH(i64, int64_t, uint64_t, uint64_t, LOAD_SAME, STORE_SAME)
BOTH(f16, uint16_t, double, uint16_t, LOAD_F16, STORE_F16)
BOTH(bf16, uint16_t, double, uint16_t, LOAD_BF16, STORE_BF16)
BOTH(f32, float, double, float, LOAD_SAME, STORE_SAME)
BOTH(f64, double, double, double, LOAD_SAME, STORE_SAME)

#define LEAF(name) {name##_rows, name##_columns, name##_few}
const struct scan_leaves *plaitk_scan_sums(int op, int dtype) {
  static const struct scan_leaves sums[] = {PLAIT_BY_DTYPE(LEAF, sum)};
  static const struct scan_leaves prods[] = {PLAIT_BY_DTYPE(LEAF, prod)};
  return op == SCAN_SUM ? &sums[dtype] : &prods[dtype];
}
