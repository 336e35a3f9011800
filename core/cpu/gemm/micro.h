// Micro kernels: part of tile.h.

// The prefetch distance in a packed panel of B. The next panel follows a panel, so the prefetch may run past its end.
#define PREFETCH_BYTES 12288

// Steps of K that one accumulator sums before the partial sum is added to out. The rounding error grows with the length
// of a sum, so short partial sums keep it small.
#define CHAIN 96

// Each element sums over K in order, CHAIN steps at a time, and adds the partial sums in order. So its bits do not
// depend on the tile that it is in.
LOCAL void NAME(multiply)(const int mr, const int nv, int64_t k, const T *restrict a, int64_t a_row, int64_t a_col,
                          const T *restrict b, int64_t b_row, const int packed, T *restrict out, int64_t out_row,
                          int add) {
  V acc[MR][NV];
  T *row = out;
#pragma GCC unroll 16
  for (int i = 0; i < mr; i++, row += out_row) __builtin_prefetch(row, 1);
  // One pointer serves three rows: an x86 address can add one or two row strides to it.
  const T *rows[(MR + 2) / 3];
#pragma GCC unroll 4
  for (int i = 0; i < (mr + 2) / 3; i++) rows[i] = a + 3 * i * a_row;
#pragma GCC unroll 1
  do {
    int64_t steps = k < CHAIN ? k : CHAIN;
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++) {
#pragma GCC unroll 4
      for (int j = 0; j < nv; j++) acc[i][j] = (V){0};
    }
#pragma GCC unroll 1
    for (int64_t p = 0; p < steps; p++) {
      if (packed) {
#pragma GCC unroll 4
        for (int j = 0; j < nv * LANES * (int)sizeof(T); j += 64) __builtin_prefetch((const char *)b + PREFETCH_BYTES + j);
      }
      V y[NV];
#pragma GCC unroll 4
      for (int j = 0; j < nv; j++) y[j] = *(const V *)(b + j * LANES);
#pragma GCC unroll 16
      for (int i = 0; i < mr; i++) {
        V x = rows[i / 3][i % 3 * a_row] - (V){0};  // broadcast to every lane
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++) acc[i][j] += x * y[j];
      }
#pragma GCC unroll 4
      for (int i = 0; i < (mr + 2) / 3; i++) rows[i] += a_col;
      b += b_row;
    }
    row = out;
#pragma GCC unroll 16
    for (int i = 0; i < mr; i++, row += out_row) {
#pragma GCC unroll 4
      for (int j = 0; j < nv; j++) {
        V *to = (V *)(row + j * LANES);
        if (add) acc[i][j] += *to;
        *to = acc[i][j];
      }
    }
    add = 1;
    k -= steps;
  } while (k > 0);
}

#define MICRO(mr, nv) \
  TARGET static void NAME(micro_##mr##_##nv)(int64_t k, const void *a, const void *b, void *out, \
                                             int64_t out_row, int add) { \
    NAME(multiply)(mr, nv, k, a, 1, mr, b, nv * LANES, 1, out, out_row, add); \
  } \
  TARGET static void NAME(unpacked_##mr##_##nv)(int64_t k, const void *a, int64_t a_row, int64_t a_col, \
                                              const void *b, int64_t b_row, void *out, int64_t out_row, \
                                              int add) { \
    NAME(multiply)(mr, nv, k, a, a_row, a_col, b, b_row, 0, out, out_row, add); \
  }
#define MICROS(nv) \
  MICRO(1, nv) \
  MICRO(2, nv) \
  MICRO(3, nv) \
  MICRO(4, nv) \
  MICROS_5(nv) \
  MICROS_7(nv) \
  MICROS_9(nv)
#define NAMES(kind, nv) \
  {NAME(kind##_1_##nv), NAME(kind##_2_##nv), NAME(kind##_3_##nv), NAME(kind##_4_##nv) NAMES_5(kind, nv) \
       NAMES_7(kind, nv) NAMES_9(kind, nv)}
#if MR > 4
#define MICROS_5(nv) MICRO(5, nv) MICRO(6, nv)
#define NAMES_5(kind, nv) , NAME(kind##_5_##nv), NAME(kind##_6_##nv)
#else
#define MICROS_5(nv)
#define NAMES_5(kind, nv)
#endif
#if MR > 6
#define MICROS_7(nv) MICRO(7, nv) MICRO(8, nv)
#define NAMES_7(kind, nv) , NAME(kind##_7_##nv), NAME(kind##_8_##nv)
#else
#define MICROS_7(nv)
#define NAMES_7(kind, nv)
#endif
#if MR > 8
#define MICROS_9(nv) MICRO(9, nv) MICRO(10, nv) MICRO(11, nv) MICRO(12, nv)
#define NAMES_9(kind, nv) , NAME(kind##_9_##nv), NAME(kind##_10_##nv), NAME(kind##_11_##nv), NAME(kind##_12_##nv)
#else
#define MICROS_9(nv)
#define NAMES_9(kind, nv)
#endif

MICROS(1)
MICROS(2)
#if NV > 2
MICROS(3)
#endif


#undef PREFETCH_BYTES
#undef CHAIN
#undef MICRO
#undef MICROS
#undef MICROS_5
#undef MICROS_7
#undef MICROS_9
