// The vectors of pairs.c: elements of bfloat16 in pairs, whose products are summed in float32.
#ifndef PLAITK_CONV_PAIRS_H
#define PLAITK_CONV_PAIRS_H

#include <immintrin.h>
#include <stdbool.h>

#define VECTORS __attribute__((target("arch=x86-64-v4,avx512bf16")))
#define LOCAL VECTORS static inline __attribute__((always_inline))

#define LANES 16
#define AHEAD 768  // bytes of a row of weights after those that are being packed, which memory is asked for
#define ROWS 8     // whose sums are in registers at a time, two vectors for each

// Adds the products of ROWS rows by adjacent columns. At a step, a pair of channels and a tap, there is a pair of
// elements for each row in a, and for each column in b, `offset` elements from it, but where the masks leave it out.
LOCAL void multiply_rows(const int vectors, int64_t pairs, int64_t taps, const int32_t *a, const int32_t *b,
                         int64_t plane, const int64_t *offset, const uint16_t *masks, __m512 sums[ROWS][2]) {
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; i++) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
#pragma GCC unroll 1
  for (; pairs > 0; pairs--, b += plane) {
#pragma GCC unroll 1
    for (int64_t u = 0; u < taps; u++, a += ROWS) {
      const int32_t *from = b + offset[u];
      __m512bh first = (__m512bh)_mm512_maskz_loadu_epi32(masks[u], from), second = first;
      if (vectors > 1) second = (__m512bh)_mm512_maskz_loadu_epi32(masks[taps + u], from + LANES);
#pragma GCC unroll 8
      for (int i = 0; i < ROWS; i++) {
        __m512bh row = (__m512bh)_mm512_set1_epi32(a[i]);
        sums[i][0] = _mm512_dpbf16_ps(sums[i][0], first, row);
        if (vectors > 1) sums[i][1] = _mm512_dpbf16_ps(sums[i][1], second, row);
      }
    }
  }
}

// Rounds sums to bfloat16.
LOCAL __m256i round_sums(__m512 x) {
  __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
  __m512i even = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), _mm512_and_si512(high, _mm512_set1_epi32(1)));
  __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, even), 16);
  rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(rounded);
}

// Joins elements of a and b, `step` apart, to pairs. Those of b are zeros if it is NULL.
LOCAL void join(int32_t *to, const uint16_t *a, const uint16_t *b, int64_t step, int64_t n) {
  for (int64_t i = 0; step <= 2 && i < n; i += LANES) {
    int64_t count = n - i < LANES ? n - i : LANES;
    __mmask16 some = (__mmask16)((1u << count) - 1), both = b != NULL ? some : 0;
    const uint16_t *second = b != NULL ? b : a;
    __m512i low, high;
    if (step == 1) {
      low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, a + i));
      high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(both, second + i));
    } else {  // the elements between are in the upper halves; the last one has none
      __mmask32 elements = (1u << (2 * count - 1)) - 1;
      low = _mm512_and_si512(_mm512_maskz_loadu_epi16(elements, a + 2 * i), _mm512_set1_epi32(0xffff));
      high = _mm512_maskz_loadu_epi16(both != 0 ? elements : 0, second + 2 * i);
    }
    _mm512_mask_storeu_epi32(to + i, some, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
  for (int64_t i = 0; step > 2 && i < n; i++) {
    to[i] = (int32_t)(a[i * step] | (b != NULL ? (uint32_t)b[i * step] << 16 : 0));
  }
}

// Transposes 16 rows of 16 elements in rounds of perfect shuffles.
LOCAL void transpose(__m512i r[LANES]) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
#pragma GCC unroll 4
  for (int round = 0; round < 4; round++) {
    __m512i s[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) {
      s[2 * i] = _mm512_permutex2var_epi32(r[i], low, r[i + LANES / 2]);
      s[2 * i + 1] = _mm512_permutex2var_epi32(r[i], high, r[i + LANES / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) r[i] = s[i];
  }
}

// Loads up to 32 elements that are adjacent.
LOCAL __m512i load_elements(const char *from, const bool rounds, __mmask32 some) {
  if (!rounds) return _mm512_maskz_loadu_epi16(some, from);
  __m512 first = _mm512_maskz_loadu_ps((__mmask16)some, from);
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps((__mmask16)(some >> LANES), from + 64), first);
}

// Packs up to LANES rows of the weights into panels of ROWS rows, `panel` elements apart: for each pair of channels and
// tap a pair of elements for each row. The elements of a row and channel, one for each tap of the kernel, are adjacent.
// They are float32 if `rounds`.
LOCAL void pack_rows(int32_t *panels, int64_t panel, const char *w, const bool rounds, int64_t rows, int64_t m_stride,
                     int64_t channels, int64_t c_stride, int64_t taps, const int64_t *tap, int64_t used) {
  const int64_t size = rounds ? 4 : 2;
  __mmask32 elements = taps < 32 ? (1u << taps) - 1 : ~0u;
  for (int64_t u0 = 0; u0 < used; u0 += LANES) {
    int64_t count = used - u0 < LANES ? used - u0 : LANES;
    uint16_t order[2 * LANES] = {0};
    for (int64_t u = 0; u < count; u++) {
      order[2 * u] = (uint16_t)tap[u0 + u];
      order[2 * u + 1] = (uint16_t)(tap[u0 + u] + 2 * LANES);
    }
    __m512i in_pairs = _mm512_loadu_si512(order);
    for (int64_t c = 0; c < channels; c += 2) {
      __mmask32 odd = c + 1 < channels ? elements : 0;
      __m512i r[LANES];
#pragma GCC unroll 16
      for (int i = 0; i < LANES; i++) {
        const char *from = w + ((i < rows ? i : 0) * m_stride + c * c_stride) * size;
        __builtin_prefetch(from + AHEAD, 0, 2);
        __m512i first = load_elements(from, rounds, elements);
        __m512i second = load_elements(from + c_stride * size, rounds, odd);
        r[i] = i < rows ? _mm512_permutex2var_epi16(first, in_pairs, second) : _mm512_setzero_si512();
      }
      transpose(r);
      int32_t *to = panels + (c / 2 * used + u0) * ROWS;
#pragma GCC unroll 16
      for (int u = 0; u < LANES; u++) {
        if (u >= count) break;
        _mm256_storeu_si256((void *)(to + u * ROWS), _mm512_castsi512_si256(r[u]));
        if (rows > ROWS) _mm256_storeu_si256((void *)(to + panel + u * ROWS), _mm512_extracti64x4_epi64(r[u], 1));
      }
    }
  }
}

#endif
