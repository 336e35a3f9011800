// The bodies of the micro-kernels. micro.c includes this file for each element type and instruction set, with
//   T       the element type
//   VB      bytes in a vector
//   WIDE    1 with 32 vector registers, 0 with 16
//   ATTR    the function attribute that selects the instruction set
//   NAME(x) the name of x in this instance
// A tile keeps all its accumulators in registers. For example, 8 x 3 accumulators, 3 vectors of positions and a
// broadcast value fit 32 registers.

typedef T NAME(vec) __attribute__((vector_size(VB), aligned(sizeof(T)), may_alias));

#define LANES ((int)(VB / sizeof(T)))
#define EACH(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)

#define TAPS(MR, NV)                                                                                                  \
  ATTR static void NAME(taps_##MR##x##NV)(int64_t kc, const void *va, const int64_t *koff, const void *vx,            \
                                          const int64_t *base, void *vacc, int64_t ld, int add, int64_t chain) {      \
    const T *a = va, *x = vx;                                                                                         \
    T *acc = vacc;                                                                                                    \
    NAME(vec) s[MR][NV];                                                                                              \
    const T *b[NV];                                                                                                   \
    EACH(v, NV) b[v] = x + base[v];                                                                                   \
    do {                                                                                                              \
      int64_t steps = kc < chain ? kc : chain;                                                                        \
      EACH(i, MR) EACH(v, NV) s[i][v] = (NAME(vec)){0};                                                               \
      for (int64_t k = 0; k < steps; k++, a += MR) {                                                                  \
        int64_t o = koff[k];                                                                                          \
        NAME(vec) xv[NV];                                                                                             \
        EACH(v, NV) xv[v] = *(const NAME(vec) *)(b[v] + o);                                                           \
        EACH(i, MR) EACH(v, NV) s[i][v] += a[i] * xv[v];                                                              \
      }                                                                                                               \
      EACH(i, MR) EACH(v, NV) {                                                                                       \
        NAME(vec) *to = (NAME(vec) *)(acc + i * ld + v * LANES);                                                      \
        if (add) s[i][v] += *to;                                                                                      \
        *to = s[i][v];                                                                                                \
      }                                                                                                               \
      add = 1;                                                                                                        \
      koff += steps;                                                                                                  \
      kc -= steps;                                                                                                    \
    } while (kc > 0);                                                                                                 \
  }

#if VB == 64
#define EVEN4 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD4 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define EVEN8 0, 2, 4, 6, 8, 10, 12, 14
#define ODD8 1, 3, 5, 7, 9, 11, 13, 15
#elif VB == 32
#define EVEN4 0, 2, 4, 6, 8, 10, 12, 14
#define ODD4 1, 3, 5, 7, 9, 11, 13, 15
#define EVEN8 0, 2, 4, 6
#define ODD8 1, 3, 5, 7
#else
#define EVEN4 0, 2, 4, 6
#define ODD4 1, 3, 5, 7
#define EVEN8 0, 2
#define ODD8 1, 3
#endif
#define PAIR_(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define PAIR(a, b, ...) PAIR_(a, b, __VA_ARGS__)
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

// Sums the lanes of n vectors, n <= LANES. Lane j of the result is the sum of s[j], added in a balanced tree.
ATTR static inline __attribute__((always_inline)) void NAME(sum_lanes)(const NAME(vec) *s, int n, T *out) {
  NAME(vec) t[LANES];
  EACH(i, LANES) t[i] = i < n ? s[i] : (NAME(vec)){0};
  EACH(level, 4) {
    int w = LANES >> (level + 1);
    EACH(i, LANES / 2) if (i < w) {
      t[i] = PAIR(t[2 * i], t[2 * i + 1], CAT(EVEN, TSIZE)) + PAIR(t[2 * i], t[2 * i + 1], CAT(ODD, TSIZE));
    }
  }
  *(NAME(vec) *)out = t[0];
}

#define DOTS(MO, NK)                                                                                                  \
  ATTR static void NAME(dots_##MO##x##NK)(int64_t nv, const void *vdy, int64_t ldy, const void *vx,                   \
                                          const int64_t *base, const int64_t *koff, void *vout, int64_t ld,           \
                                          int64_t rows, int64_t cols) {                                               \
    const T *dy = vdy, *x = vx;                                                                                       \
    T *out = vout;                                                                                                    \
    NAME(vec) s[MO * NK];                                                                                             \
    const T *b[NK];                                                                                                   \
    EACH(j, NK) b[j] = x + koff[j];                                                                                   \
    _Pragma("GCC unroll 32") for (int i = 0; i < MO * NK; i++) s[i] = (NAME(vec)){0};                                 \
    for (int64_t v = 0; v < nv; v++) {                                                                                \
      int64_t o = base[v];                                                                                            \
      NAME(vec) d[MO];                                                                                                \
      EACH(i, MO) d[i] = *(const NAME(vec) *)(dy + i * ldy + v * LANES);                                              \
      EACH(j, NK) {                                                                                                   \
        NAME(vec) xv = *(const NAME(vec) *)(b[j] + o);                                                                \
        EACH(i, MO) s[i * NK + j] += d[i] * xv;                                                                       \
      }                                                                                                               \
    }                                                                                                                 \
    T sums[(MO * NK + LANES - 1) / LANES * LANES];                                                                    \
    _Pragma("GCC unroll 16") for (int i = 0; i < MO * NK; i += LANES) {                                               \
      NAME(sum_lanes)(s + i, MO * NK - i < LANES ? MO * NK - i : LANES, sums + i);                                    \
    }                                                                                                                 \
    if (rows == MO && cols == NK) {                                                                                   \
      EACH(i, MO) EACH(j, NK) out[i * ld + j] += sums[i * NK + j];                                                    \
      return;                                                                                                         \
    }                                                                                                                 \
    for (int64_t i = 0; i < rows; i++) {                                                                              \
      for (int64_t j = 0; j < cols; j++) out[i * ld + j] += sums[i * NK + j];                                         \
    }                                                                                                                 \
  }

#if WIDE
TAPS(8, 3)
TAPS(8, 2)
TAPS(8, 1)
TAPS(4, 6)
TAPS(4, 2)
TAPS(4, 1)
TAPS(1, 8)
TAPS(1, 4)
TAPS(1, 1)
DOTS(4, 6)
DOTS(1, 9)
static const plaitk_conv_micro NAME(micro) = {
    .lanes = LANES,
    .heights = 3,
    .taps = {{8, {3, 2, 1}, {NAME(taps_8x3), NAME(taps_8x2), NAME(taps_8x1)}},
             {4, {6, 2, 1}, {NAME(taps_4x6), NAME(taps_4x2), NAME(taps_4x1)}},
             {1, {8, 4, 1}, {NAME(taps_1x8), NAME(taps_1x4), NAME(taps_1x1)}}},
    .dots = {{4, 6, NAME(dots_4x6)}, {1, 9, NAME(dots_1x9)}},
};
#else
TAPS(4, 3)
TAPS(4, 2)
TAPS(4, 1)
TAPS(1, 8)
TAPS(1, 4)
TAPS(1, 1)
DOTS(2, 6)
DOTS(1, 9)
static const plaitk_conv_micro NAME(micro) = {
    .lanes = LANES,
    .heights = 2,
    .taps = {{4, {3, 2, 1}, {NAME(taps_4x3), NAME(taps_4x2), NAME(taps_4x1)}},
             {1, {8, 4, 1}, {NAME(taps_1x8), NAME(taps_1x4), NAME(taps_1x1)}}},
    .dots = {{2, 6, NAME(dots_2x6)}, {1, 9, NAME(dots_1x9)}},
};
#endif

#undef LANES
#undef EACH
#undef TAPS
#undef DOTS
#undef EVEN4
#undef ODD4
#undef EVEN8
#undef ODD8
#undef PAIR_
#undef PAIR
#undef CAT_
#undef CAT
#undef T
#undef TSIZE
#undef VB
#undef WIDE
#undef ATTR
#undef NAME
