// Transposes of small blocks of elements, in vectors of 16 bytes. The code depends on the size of an element, not on its dtype.
#ifndef PLAIT_TRANSPOSE_H
#define PLAIT_TRANSPOSE_H

#include "plait_kernel.h"

typedef uint8_t plait_vec1 __attribute__((vector_size(16), may_alias, aligned(1)));
typedef uint16_t plait_vec2 __attribute__((vector_size(16), may_alias, aligned(1)));
typedef uint32_t plait_vec4 __attribute__((vector_size(16), may_alias, aligned(1)));
typedef uint64_t plait_vec8 __attribute__((vector_size(16), may_alias, aligned(1)));

// Interleaves the low or high halves of two vectors.
#define PLAIT_ZIP_LOW1(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PLAIT_ZIP_HIGH1(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define PLAIT_ZIP_LOW2(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define PLAIT_ZIP_HIGH2(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define PLAIT_ZIP_LOW4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define PLAIT_ZIP_HIGH4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define PLAIT_ZIP_LOW8(a, b) __builtin_shufflevector(a, b, 0, 2)
#define PLAIT_ZIP_HIGH8(a, b) __builtin_shufflevector(a, b, 1, 3)

// Transposes a block of L x L elements, L per vector. Each stage interleaves row i with row i + L/2. After log2(L)
// stages element (i, j) is at (j, i).
#define PLAIT_STAGE(S, L, to, from)                              \
  for (int i = 0; i < L / 2; i++) {                              \
    to[2 * i] = PLAIT_ZIP_LOW##S(from[i], from[i + L / 2]);      \
    to[2 * i + 1] = PLAIT_ZIP_HIGH##S(from[i], from[i + L / 2]); \
  }
#define PLAIT_STAGES1 PLAIT_STAGE(1, 16, b, a) PLAIT_STAGE(1, 16, a, b) PLAIT_STAGE(1, 16, b, a) PLAIT_STAGE(1, 16, a, b)
#define PLAIT_STAGES2 PLAIT_STAGE(2, 8, b, a) PLAIT_STAGE(2, 8, a, b) PLAIT_STAGE(2, 8, b, a)
#define PLAIT_STAGES4 PLAIT_STAGE(4, 4, b, a) PLAIT_STAGE(4, 4, a, b)
#define PLAIT_STAGES8 PLAIT_STAGE(8, 2, b, a)

#define PLAIT_TRANSPOSE_BLOCK(S, L, result)                                                                         \
  PLAIT_INLINE void plait_transpose_block##S(char *restrict out, int64_t os, const char *restrict in, int64_t is) { \
    plait_vec##S a[L], b[L];                                                                                        \
    for (int i = 0; i < L; i++) a[i] = *(const plait_vec##S *)(in + i * is);                                        \
    PLAIT_STAGES##S for (int i = 0; i < L; i++) *(plait_vec##S *)(out + i * os) = result[i];                        \
  }
PLAIT_TRANSPOSE_BLOCK(1, 16, a)
PLAIT_TRANSPOSE_BLOCK(2, 8, b)
PLAIT_TRANSPOSE_BLOCK(4, 4, a)
PLAIT_TRANSPOSE_BLOCK(8, 2, b)

#endif
