// Short lines side by side. A group of lines is copied to a block with a row for each position, so that vectors hold the
// same position of many lines, and back. The code depends on the size of an element, not on its dtype.
#ifndef PLAIT_ABREAST_H
#define PLAIT_ABREAST_H

#include "plait_kernel.h"
#include "plait_transpose.h"

enum {
  PLAIT_ABREAST = 128,       // lines in a group, at most
  PLAIT_ABREAST_PITCH = 144, // elements between rows of a block: powers of two would share few sets of the L1 cache
  PLAIT_ABREAST_N = 32,      // elements of a line, at most
  PLAIT_ABREAST_SET = 16,    // shorter runs of lines are copied several at a time
  PLAIT_ABREAST_BLOCK = PLAIT_ABREAST_N * PLAIT_ABREAST_PITCH, // elements of a block
};

// Lines of n elements that are `stride` apart. They start at the positions of nk dimensions. Strides are in elements.
struct plait_lines {
  int64_t n, stride;
  int nk;
  const int64_t *size, *step;
};

// A copy takes `sets` times `lines` lines to or from the columns of a block. The sets are `apart`, their lines `step` apart.
typedef void (*plait_abreast_copy)(void *block, void *p, int64_t sets, int64_t apart, int64_t lines, int64_t step, int64_t n,
                                   int64_t stride);

// A vector of a line shorter than a vector reaches into the lines behind it, if they are adjacent. Those have to be in the
// set, and are written later.
#define PLAIT_ABREAST_COPY(NAME, S, T, MOVE, BYTES, TURN)                                                          \
  PLAIT_CLONES static __attribute__((unused)) void plait_abreast_##NAME##S(                                        \
      void *block, void *p, int64_t sets, int64_t apart, int64_t lines, int64_t step, int64_t n, int64_t stride) { \
    enum { L = 16 / (S), P = PLAIT_ABREAST_PITCH };                                                                \
    T *restrict b = block, *restrict a = p;                                                                        \
    bool turn = stride == 1 && step != 1 && (n >= L || step == n);                                                 \
    for (int64_t o = 0; o < sets; o++, b += lines, a += apart) {                                                   \
      int64_t k = 0;                                                                                               \
      for (; turn && k + L <= lines && (n >= L || (k + L - 1) * n + L <= lines * n); k += L) {                     \
        for (int64_t i = 0; i < n; i += L) {                                                                       \
          if (i > 0 && i + L > n) i = n - L;                                                                       \
          TURN(S, (char *)(b + i * P + k), P * (S), (char *)(a + k * step + i), step * (S))                        \
        }                                                                                                          \
      }                                                                                                            \
      if (step == 1 && lines * (S) == 8) {                                                                         \
        for (int64_t i = 0; i < n; i++) BYTES(b + i * P, a + i * stride, 8);                                       \
      } else if (step == 1 && lines * (S) == 16) {                                                                 \
        for (int64_t i = 0; i < n; i++) BYTES(b + i * P, a + i * stride, 16);                                      \
      } else if (step == 1 && lines * (S) == 32) {                                                                 \
        for (int64_t i = 0; i < n; i++) BYTES(b + i * P, a + i * stride, 32);                                      \
      } else if (step == 1 && lines * (S) == 64) {                                                                 \
        for (int64_t i = 0; i < n; i++) BYTES(b + i * P, a + i * stride, 64);                                      \
      } else if (step == 1 && lines >= PLAIT_ABREAST_SET) {                                                        \
        for (int64_t i = 0; i < n; i++) BYTES(b + i * P, a + i * stride, (size_t)lines * (S));                     \
      } else {                                                                                                     \
        for (; k < lines; k++) {                                                                                   \
          for (int64_t i = 0; i < n; i++) MOVE(b[i * P + k], a[k * step + i * stride]);                            \
        }                                                                                                          \
      }                                                                                                            \
    }                                                                                                              \
  }

#define PLAIT_ABREAST_IN(b, a) (b) = (a)
#define PLAIT_ABREAST_OUT(b, a) (a) = (b)
#define PLAIT_ABREAST_BYTES_IN(b, a, n) memcpy(b, a, n)
#define PLAIT_ABREAST_BYTES_OUT(b, a, n) memcpy(a, b, n)
#define PLAIT_ABREAST_TURN_IN(S, b, bs, a, as) plait_transpose_block##S(b, bs, a, as);
#define PLAIT_ABREAST_TURN_OUT(S, b, bs, a, as) plait_transpose_block##S(a, as, b, bs);

#define PLAIT_ABREAST_COPIES(S, T)                                                                                 \
  PLAIT_ABREAST_COPY(load, S, T, PLAIT_ABREAST_IN, PLAIT_ABREAST_BYTES_IN, PLAIT_ABREAST_TURN_IN)                  \
  PLAIT_ABREAST_COPY(store, S, T, PLAIT_ABREAST_OUT, PLAIT_ABREAST_BYTES_OUT, PLAIT_ABREAST_TURN_OUT)
PLAIT_ABREAST_COPIES(1, uint8_t)
PLAIT_ABREAST_COPIES(2, uint16_t)
PLAIT_ABREAST_COPIES(4, uint32_t)
PLAIT_ABREAST_COPIES(8, uint64_t)

// offset returns the element offset of a line.
static inline int64_t plait_lines_offset(const struct plait_lines *l, int64_t line) {
  int64_t offset = 0;
  for (int d = l->nk - 1; d >= 0 && line > 0; d--) {
    offset += line % l->size[d] * l->step[d];
    line /= l->size[d];
  }
  return offset;
}

// walk copies the lines [first, first + count) by runs that lie in the last dimension, or by several short runs.
static inline __attribute__((unused)) void plait_abreast_walk(plait_abreast_copy copy, char *block, char *p,
                                                              const struct plait_lines *l, int64_t first, int64_t count,
                                                              int64_t size) {
  int64_t run = l->nk > 0 ? l->size[l->nk - 1] : 1, step = l->nk > 0 ? l->step[l->nk - 1] : 0;
  for (int64_t at = 0; at < count;) {
    int64_t line = first + at, left = count - at, sets = 1, apart = 0, part = run - line % run;
    if (part == run && left >= run && run < PLAIT_ABREAST_SET && l->nk > 1) {
      int64_t outer = l->size[l->nk - 2];
      sets = outer - line / run % outer;
      sets = sets < left / run ? sets : left / run;
      apart = l->step[l->nk - 2];
    } else {
      part = part < left ? part : left;
    }
    copy(block + at * size, p + plait_lines_offset(l, line) * size, sets, apart, part, step, l->n, l->stride);
    at += sets * part;
  }
}

// load copies lines of `from` to the columns of a block of PLAIT_ABREAST_BLOCK elements of `size` bytes.
static __attribute__((unused)) void plait_abreast_load(void *block, const void *from, const struct plait_lines *l,
                                                       int64_t first, int64_t count, int64_t size) {
  static const plait_abreast_copy by_size[] = {plait_abreast_load1, plait_abreast_load2, plait_abreast_load4,
                                               plait_abreast_load8};
  plait_abreast_walk(by_size[__builtin_ctzll((uint64_t)size)], block, (char *)from, l, first, count, size);
}

// store copies the columns of a block to lines of `to`.
static __attribute__((unused)) void plait_abreast_store(const void *block, void *to, const struct plait_lines *l,
                                                        int64_t first, int64_t count, int64_t size) {
  static const plait_abreast_copy by_size[] = {plait_abreast_store1, plait_abreast_store2, plait_abreast_store4,
                                               plait_abreast_store8};
  plait_abreast_walk(by_size[__builtin_ctzll((uint64_t)size)], (char *)block, to, l, first, count, size);
}

#endif
