// Copies one tile: rows, transposes, fills and everything else. The code depends on the size of an element, not on its
// dtype.
#include "copying.h"

#include "../../../include/plait_stream.h"
#include "../../../include/plait_transpose.h"

// Element types for copying bits. A row of small elements may be copied as one larger element, which need not be
// aligned.
typedef uint8_t bits1 __attribute__((may_alias));
typedef uint16_t bits2 __attribute__((may_alias, aligned(1)));
typedef uint32_t bits4 __attribute__((may_alias, aligned(1)));
typedef uint64_t bits8 __attribute__((may_alias, aligned(1)));
typedef struct {
  bits8 low, high;
} bits16;

enum {
  LINE = 64,
  CONFLICT = 512, // rows a multiple of this apart share few sets of the L1 cache
};

// The output is contiguous in dimension 0, the input in dimension 1. If the strides make cache lines evict each other,
// or if the output uses non-temporal stores, blocks are a cache line wide and go through a buffer. Then each line of
// either side is touched once.
#define TRANSPOSE(S, L)                                                                                              \
  static void transpose_part##S(char *restrict out, int64_t os, const char *restrict in, int64_t is, int64_t n0, int64_t n1) { \
    int64_t whole0 = n0 - n0 % L, whole1 = n1 - n1 % L;                                                              \
    for (int64_t j = 0; j < whole1; j += L)                                                                          \
      for (int64_t i = 0; i < whole0; i += L) plait_transpose_block##S(out + j * os + i * S, os, in + i * is + j * S, is); \
    for (int64_t j = 0; j < n1; j++)                                                                                 \
      for (int64_t i = j < whole1 ? whole0 : 0; i < n0; i++)                                                         \
        *(bits##S *)(out + j * os + i * S) = *(const bits##S *)(in + i * is + j * S);                                \
  }                                                                                                                  \
  static void transpose##S(char *restrict out, const char *restrict in, const plaitk_plane *p) {                     \
    enum { W = LINE / S };                                                                                           \
    int64_t n0 = p->n[0], n1 = p->n[1], os = p->out[1], is = p->in[0];                                               \
    int64_t whole0 = n0 - n0 % W, whole1 = n1 - n1 % W;                                                              \
    bool stream = p->stream && ((uintptr_t)out | (uintptr_t)os) % LINE == 0;                                         \
    if (!stream && os % CONFLICT && is % CONFLICT) return transpose_part##S(out, os, in, is, n0, n1);                \
    for (int64_t j = 0; j < whole1; j += W) {                                                                        \
      for (int64_t i = 0; i < whole0; i += W) {                                                                      \
        char block[W * LINE] __attribute__((aligned(LINE)));                                                         \
        char *o = out + j * os + i * S;                                                                              \
        const char *x = in + i * is + j * S;                                                                         \
        for (int64_t r = 0; r < W; r += L)                                                                           \
          for (int64_t c = 0; c < W; c += L) plait_transpose_block##S(block + c * LINE + r * S, LINE, x + r * is + c * S, is); \
        if (stream) {                                                                                                \
          for (int64_t c = 0; c < W; c++) plait_stream_line(o + c * os, block + c * LINE);                                 \
        } else {                                                                                                     \
          for (int64_t c = 0; c < W; c++) memcpy(o + c * os, block + c * LINE, LINE);                                \
        }                                                                                                            \
      }                                                                                                              \
    }                                                                                                                \
    transpose_part##S(out + whole0 * S, os, in + whole0 * is, is, n0 - whole0, whole1);                              \
    transpose_part##S(out + whole1 * os, os, in + whole1 * S, is, n0, n1 - whole1);                                  \
  }
TRANSPOSE(1, 16)
TRANSPOSE(2, 8)
TRANSPOSE(4, 4)
TRANSPOSE(8, 2)

// Copies a row of elements with any strides. Unit strides on either side have their own loops.
#define ROW(S)                                                                                              \
  PLAIT_CLONES static void row##S(char *restrict out, int64_t os, const char *restrict in, int64_t is, int64_t n) { \
    if (os == S && is == 0) {                                                                               \
      bits##S v = *(const bits##S *)in, *o = (bits##S *)out;                                                \
      for (int64_t i = 0; i < n; i++) o[i] = v;                                                             \
    } else if (os == S && is == -S) {                                                                       \
      bits##S *o = (bits##S *)out;                                                                          \
      const bits##S *x = (const bits##S *)in;                                                               \
      for (int64_t i = 0; i < n; i++) o[i] = x[-i];                                                         \
    } else if (os == S) {                                                                                   \
      bits##S *o = (bits##S *)out;                                                                          \
      for (int64_t i = 0; i < n; i++) o[i] = *(const bits##S *)(in + i * is);                               \
    } else if (is == S) {                                                                                   \
      const bits##S *x = (const bits##S *)in;                                                               \
      for (int64_t i = 0; i < n; i++) *(bits##S *)(out + i * os) = x[i];                                    \
    } else {                                                                                                \
      for (int64_t i = 0; i < n; i++) *(bits##S *)(out + i * os) = *(const bits##S *)(in + i * is);         \
    }                                                                                                       \
  }                                                                                                         \
  static void rows##S(char *restrict out, const char *restrict in, const plaitk_plane *p) {                 \
    int64_t n0 = p->n[0], n1 = p->n[1];                                                                     \
    int64_t o0 = p->out[0], o1 = p->out[1], i0 = p->in[0], i1 = p->in[1];                                   \
    if (n0 < 8 && n1 > n0) { /* short rows: go along the other dimension */                                 \
      int64_t t;                                                                                            \
      t = n0, n0 = n1, n1 = t, t = o0, o0 = o1, o1 = t, t = i0, i0 = i1, i1 = t;                            \
    }                                                                                                       \
    for (int64_t j = 0; j < n1; j++) row##S(out + j * o1, o0, in + j * i1, i0, n0);                         \
  }
ROW(1)
ROW(2)
ROW(4)
ROW(8)
ROW(16)

// Copies n < 64 bytes by two moves, which overlap if n is not a power of two.
PLAIT_INLINE void copy_short(char *restrict out, const char *restrict in, int64_t n) {
  if (n >= 32) {
    memcpy(out, in, 32);
    char tail[32];
    memcpy(tail, in + n - 32, 32);
    memcpy(out + n - 32, tail, 32);
  } else if (n >= 16) {
    bits16 a = *(const bits16 *)in, b = *(const bits16 *)(in + n - 16);
    *(bits16 *)out = a, *(bits16 *)(out + n - 16) = b;
  } else if (n >= 8) {
    bits8 a = *(const bits8 *)in, b = *(const bits8 *)(in + n - 8);
    *(bits8 *)out = a, *(bits8 *)(out + n - 8) = b;
  } else if (n >= 4) {
    bits4 a = *(const bits4 *)in, b = *(const bits4 *)(in + n - 4);
    *(bits4 *)out = a, *(bits4 *)(out + n - 4) = b;
  } else {
    for (int64_t i = 0; i < n; i++) out[i] = in[i];
  }
}

static void copy_rows(int64_t bytes, char *restrict out, const char *restrict in, const plaitk_plane *p) {
  if (p->stream && bytes >= 4 * LINE) {
    for (int64_t j = 0; j < p->n[1]; j++) plait_stream(out + j * p->out[1], in + j * p->in[1], bytes);
  } else if (bytes < 64) {
    for (int64_t j = 0; j < p->n[1]; j++) copy_short(out + j * p->out[1], in + j * p->in[1], bytes);
  } else {
    for (int64_t j = 0; j < p->n[1]; j++) memcpy(out + j * p->out[1], in + j * p->in[1], (size_t)bytes);
  }
}

void plaitk_copying_plane(int64_t size, char *restrict out, const char *restrict in, const plaitk_plane *p) {
  bool run = p->out[0] == size;
  bool transpose = run && p->in[1] == size && p->in[0] != 0 && p->n[0] * size >= 16 && p->n[1] * size >= 16;
  switch (run && p->in[0] == size ? 0 : size) {
  case 0: copy_rows(p->n[0] * size, out, in, p); break;
  case 1: transpose ? transpose1(out, in, p) : rows1(out, in, p); break;
  case 2: transpose ? transpose2(out, in, p) : rows2(out, in, p); break;
  case 4: transpose ? transpose4(out, in, p) : rows4(out, in, p); break;
  case 8: transpose ? transpose8(out, in, p) : rows8(out, in, p); break;
  default: rows16(out, in, p); break;
  }
  if (p->stream) plait_stream_end();
}
