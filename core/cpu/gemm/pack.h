// Packing: part of tile.h.

#if LANES == 16
#define LOW(x, y) __builtin_shufflevector(x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(x, y) __builtin_shufflevector(x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif LANES == 8
#define LOW(x, y) __builtin_shufflevector(x, y, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH(x, y) __builtin_shufflevector(x, y, 4, 12, 5, 13, 6, 14, 7, 15)
#elif LANES == 4
#define LOW(x, y) __builtin_shufflevector(x, y, 0, 4, 1, 5)
#define HIGH(x, y) __builtin_shufflevector(x, y, 2, 6, 3, 7)
#else
#define LOW(x, y) __builtin_shufflevector(x, y, 0, 2)
#define HIGH(x, y) __builtin_shufflevector(x, y, 1, 3)
#endif

// Transposes a LANES x LANES square in log2(LANES) rounds of perfect shuffles.
LOCAL void NAME(transpose)(V *r) {
#pragma GCC unroll 4
  for (int round = 1; round < LANES; round *= 2) {
    V s[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES / 2; i++) {
      s[2 * i] = LOW(r[i], r[i + LANES / 2]);
      s[2 * i + 1] = HIGH(r[i], r[i + LANES / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) r[i] = s[i];
  }
}

// Packs up to LANES lines, contiguous along K, into columns of dst that are `panel` elements apart. It stores whole
// vectors even where a column is narrower: the next store overwrites the excess.
LOCAL void NAME(pack_lines)(T *dst, int64_t panel, const T *src, int64_t lines, int64_t line_step, int64_t depth) {
  if (panel == 1) {  // a single line: what went past its last elements would stay
    memcpy(dst, src, (size_t)depth * sizeof *dst);
    return;
  }
  int64_t width = panel < LANES ? panel : LANES;
  int64_t p = 0;
  for (; p + LANES <= depth; p += LANES) {
    V r[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
      __builtin_prefetch(src + i * line_step + p + GEMM_PACK_AHEAD / (int)sizeof(T), 0, 2);
      r[i] = i < lines ? *(const V *)(src + i * line_step + p) : (V){0};
    }
    NAME(transpose)(r);
#pragma GCC unroll 16
    for (int i = 0; i < LANES - 1; i++) *(V *)(dst + (p + i) * panel) = r[i];
    T *last = dst + (p + LANES - 1) * panel;
    if (width == LANES || p + LANES < depth) {
      *(V *)last = r[LANES - 1];
    } else {
      for (int64_t i = 0; i < width; i++) last[i] = r[LANES - 1][i];
    }
  }
  for (; p < depth; p++) {
    for (int64_t i = 0; i < width; i++) dst[p * panel + i] = i < lines ? src[i * line_step + p] : (T)0;
  }
}

// Packs lines that are adjacent in memory, so that each step of K is a contiguous copy.
LOCAL void NAME(pack_steps)(T *restrict dst, int64_t panel, const T *restrict src, int64_t width, int64_t depth,
                            int64_t depth_step) {
  if (width == panel && width == MR) {
    for (int64_t p = 0; p < depth; p++) memcpy(dst + p * MR, src + p * depth_step, MR * sizeof(T));
    return;
  }
  if (width == panel && width == NV * LANES) {
    for (int64_t p = 0; p < depth; p++) {
      memcpy(dst + p * NV * LANES, src + p * depth_step, NV * LANES * sizeof(T));
    }
    return;
  }
  if (panel % LANES == 0) {
    for (int64_t p = 0; p < depth; p++) {
      for (int64_t i = 0; i < panel; i += LANES) {
        int64_t n = width - i < LANES ? width - i : LANES;
        *(V *)(dst + p * panel + i) = NAME(load_part)(src + p * depth_step + i, n < 0 ? 0 : n);
      }
    }
    return;
  }
  for (int64_t p = 0; p < depth; p++) {
    int64_t i = 0;
    for (; i < width; i++) dst[p * panel + i] = src[p * depth_step + i];
    for (; i < panel; i++) dst[p * panel + i] = 0;
  }
}

// Packs a source of the accumulator type.
LOCAL void NAME(pack_same_type)(T *dst, int64_t panel, const T *src, int64_t width, int64_t line_step, int64_t depth,
                          int64_t depth_step) {
  if (line_step == 1) {
    NAME(pack_steps)(dst, panel, src, width, depth, depth_step);
  } else if (depth_step == 1 && (panel <= LANES || panel % LANES == 0)) {
    for (int64_t i = 0; i < panel; i += LANES) {
      NAME(pack_lines)(dst + i, panel, src + i * line_step, width - i, line_step, depth);
    }
  } else {
    for (int64_t p = 0; p < depth; p++) {
      for (int64_t i = 0; i < panel; i++) {
        dst[p * panel + i] = i < width ? src[i * line_step + p * depth_step] : (T)0;
      }
    }
  }
}

// Converts n 16-bit floats, or rounds as many of float32.
LOCAL void NAME(widen)(T *restrict dst, const void *restrict src, int dtype, int64_t n) {
  const uint16_t *half = src;
  if (dtype == PLAIT_F16) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dst[i] = (T)plait_f16_to_f32(half[i]);
  } else if (dtype == PLAIT_BF16) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dst[i] = (T)plait_bf16_to_f32(half[i]);
  } else {
    const float *full = src;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) dst[i] = (T)plait_bf16_to_f32(plait_f32_to_bf16(full[i]));
  }
}

#if LANES == 16
#define LOW_PAIRS(x, y) __builtin_shufflevector(x, y, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23)
#define HIGH_PAIRS(x, y) __builtin_shufflevector(x, y, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31)
#define TURNED(x) __builtin_shufflevector(x, -(x), 17, 0, 19, 2, 21, 4, 23, 6, 25, 8, 27, 10, 29, 12, 31, 14)
#elif LANES == 8
#define LOW_PAIRS(x, y) __builtin_shufflevector(x, y, 0, 1, 8, 9, 2, 3, 10, 11)
#define HIGH_PAIRS(x, y) __builtin_shufflevector(x, y, 4, 5, 12, 13, 6, 7, 14, 15)
#define TURNED(x) __builtin_shufflevector(x, -(x), 9, 0, 11, 2, 13, 4, 15, 6)
#elif LANES == 4
#define LOW_PAIRS(x, y) __builtin_shufflevector(x, y, 0, 1, 4, 5)
#define HIGH_PAIRS(x, y) __builtin_shufflevector(x, y, 2, 3, 6, 7)
#define TURNED(x) __builtin_shufflevector(x, -(x), 5, 0, 7, 2)
#else
#define LOW_PAIRS(x, y) (x)
#define HIGH_PAIRS(x, y) (x)
#define TURNED(x) __builtin_shufflevector(x, -(x), 3, 0)
#endif

// Packs turned numbers of LANES lines that are contiguous along K. depth is a multiple of LANES.
LOCAL void NAME(turn_lines)(T *restrict dst, int64_t panel, const T *restrict src, int64_t line_step, int64_t depth) {
  for (int64_t p = 0; p < depth; p += LANES) {
    V r[LANES / 2];
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) r[i] = *(const V *)(src + 2 * i * line_step + p);
#pragma GCC unroll 4
    for (int round = 1; round < LANES / 2; round *= 2) {
      V s[LANES / 2];
#pragma GCC unroll 8
      for (int i = 0; i < LANES / 4; i++) {
        s[2 * i] = LOW_PAIRS(r[i], r[i + LANES / 4]);
        s[2 * i + 1] = HIGH_PAIRS(r[i], r[i + LANES / 4]);
      }
#pragma GCC unroll 8
      for (int i = 0; i < LANES / 2; i++) r[i] = s[i];
    }
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) {
      *(V *)(dst + (p + 2 * i) * panel) = r[i];
      *(V *)(dst + (p + 2 * i + 1) * panel) = TURNED(r[i]);
    }
  }
}

// Packs turned numbers step by step, into the first lines of a panel.
LOCAL void NAME(turn_steps)(T *restrict dst, int64_t panel, int64_t lines, const T *restrict src, int64_t width,
                            int64_t line_step, int64_t depth, int64_t depth_step) {
  for (int64_t p = 0; p < depth; p += 2, src += 2 * depth_step) {
    T *even = dst + p * panel, *odd = even + panel;
    if (line_step == 1) {
#pragma omp simd
      for (int64_t i = 0; i < width; i += 2) {
        T u = src[i], v = src[i + 1];
        even[i] = u, even[i + 1] = v, odd[i] = -v, odd[i + 1] = u;
      }
    } else {
      for (int64_t i = 0; i < width; i += 2) {
        T u = src[i * line_step], v = src[i * line_step + 1];
        even[i] = u, even[i + 1] = v, odd[i] = -v, odd[i + 1] = u;
      }
    }
    for (int64_t i = width; i < lines; i++) even[i] = odd[i] = 0;
  }
}

// Packs turned numbers. In src there is one for two lines and two steps.
LOCAL void NAME(pack_turned)(T *dst, int64_t panel, const T *src, int64_t width, int64_t line_step, int64_t depth,
                             int64_t depth_step) {
  int64_t whole = 0, steps = 0;
  if (depth_step == 1 && line_step != 1) {
    whole = width - width % LANES, steps = depth - depth % LANES;
    for (int64_t i = 0; i < whole; i += LANES) NAME(turn_lines)(dst + i, panel, src + i * line_step, line_step, steps);
    if (whole < panel) {
      NAME(turn_steps)(dst + whole, panel, panel - whole, src + whole * line_step, width - whole, line_step, steps, 1);
    }
  }
  NAME(turn_steps)(dst + steps * panel, panel, panel, src + steps * depth_step, width, line_step, depth - steps, depth_step);
}

#define STRIP 64  // steps of K that are converted at a time

TARGET static void NAME(pack)(void *dst, int64_t panel, const void *src, int dtype, int64_t width, int64_t line_step,
                              int64_t depth, int64_t depth_step) {
  if (dtype == (sizeof(T) == 4 ? PLAIT_F32 : PLAIT_F64)) {
    NAME(pack_same_type)(dst, panel, src, width, line_step, depth, depth_step);
    return;
  }
  if (dtype == GEMM_TURNED) {
    NAME(pack_turned)(dst, panel, src, width, line_step, depth, depth_step);
    return;
  }
  int64_t size = dtype == GEMM_ROUNDED ? 4 : 2;
  T wide[NV * LANES > MR ? NV * LANES : MR][STRIP];
  for (int64_t p = 0; p < depth; p += STRIP) {
    int64_t steps = depth - p < STRIP ? depth - p : STRIP;
    T *to = (T *)dst + p * panel;
    if (line_step == 1) {
      for (int64_t q = 0; q < steps; q++) {
        NAME(widen)(to + q * panel, (const char *)src + (p + q) * depth_step * size, dtype, width);
        for (int64_t i = width; i < panel; i++) to[q * panel + i] = 0;
      }
      continue;
    }
    for (int64_t i = 0; i < width; i++) {
      const char *line = (const char *)src + (i * line_step + p * depth_step) * size;
      if (depth_step == 1) {
        NAME(widen)(wide[i], line, dtype, steps);
      } else {
        for (int64_t q = 0; q < steps; q++) NAME(widen)(&wide[i][q], line + q * depth_step * size, dtype, 1);
      }
    }
    NAME(pack_same_type)(to, panel, wide[0], width, STRIP, steps, 1);
  }
}

#undef LOW
#undef HIGH
#undef LOW_PAIRS
#undef HIGH_PAIRS
#undef TURNED
#undef STRIP
