// The words of many Philox blocks in a row, in the processor's vectors.
#ifndef PLAIT_PHILOX_WORDS_H
#define PLAIT_PHILOX_WORDS_H

#include "plait_kernel.h"
#include "plait_philox.h"

#if !defined(PLAIT_BASELINE) && defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PLAIT_PHILOX_VECTORS
#include <immintrin.h>

// A lane of 64 bits holds a word in its low half, as the factors of a product of words do. What is above it is never looked at.
// Each function returns how many blocks it has made: as many as fill its vectors.

__attribute__((target("avx512f"), unused)) static int64_t plait_philox_words_64(uint32_t *w, int64_t blocks, uint64_t seed, uint64_t counter) {
  const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
  const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), high = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  int64_t b = 0;
  for (; b + 8 <= blocks; b += 8) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    __m512i c0 = _mm512_add_epi64(_mm512_set1_epi64((int64_t)(counter + (uint64_t)b)), lane), c1 = _mm512_srli_epi64(c0, 32);
    __m512i c2 = _mm512_setzero_si512(), c3 = c2;
    for (int round = 0; round < 10; round++) {
      enum { XOR_OF_THREE = 0x96 };
      __m512i p = _mm512_mul_epu32(c0, m0), q = _mm512_mul_epu32(c2, m1);
      c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(q, 32), c1, _mm512_set1_epi64(k0), XOR_OF_THREE);
      c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p, 32), c3, _mm512_set1_epi64(k1), XOR_OF_THREE);
      c1 = q, c3 = p;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    __m512i first = _mm512_mask_blend_epi32(0xaaaa, c0, _mm512_slli_epi64(c1, 32));
    __m512i second = _mm512_mask_blend_epi32(0xaaaa, c2, _mm512_slli_epi64(c3, 32));
    _mm512_storeu_si512(w + 4 * b, _mm512_permutex2var_epi64(first, low, second));
    _mm512_storeu_si512(w + 4 * b + 16, _mm512_permutex2var_epi64(first, high, second));
  }
  return b;
}

__attribute__((target("avx2"), unused)) static int64_t plait_philox_words_32(uint32_t *w, int64_t blocks, uint64_t seed, uint64_t counter) {
  const __m256i m0 = _mm256_set1_epi64x(0xD2511F53), m1 = _mm256_set1_epi64x(0xCD9E8D57), lane = _mm256_setr_epi64x(0, 1, 2, 3);
  int64_t b = 0;
  for (; b + 4 <= blocks; b += 4) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    __m256i c0 = _mm256_add_epi64(_mm256_set1_epi64x((int64_t)(counter + (uint64_t)b)), lane), c1 = _mm256_srli_epi64(c0, 32);
    __m256i c2 = _mm256_setzero_si256(), c3 = c2;
    for (int round = 0; round < 10; round++) {
      __m256i p = _mm256_mul_epu32(c0, m0), q = _mm256_mul_epu32(c2, m1);
      c0 = _mm256_xor_si256(_mm256_srli_epi64(q, 32), _mm256_xor_si256(c1, _mm256_set1_epi64x(k0)));
      c2 = _mm256_xor_si256(_mm256_srli_epi64(p, 32), _mm256_xor_si256(c3, _mm256_set1_epi64x(k1)));
      c1 = q, c3 = p;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    __m256i first = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xaa), second = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xaa);
    __m256i even = _mm256_unpacklo_epi64(first, second), odd = _mm256_unpackhi_epi64(first, second); // blocks 0, 2 and 1, 3
    _mm256_storeu_si256((void *)(w + 4 * b), _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((void *)(w + 4 * b + 8), _mm256_permute2x128_si256(even, odd, 0x31));
  }
  return b;
}
#endif

// Writes the 4 blocks words of the blocks counter, counter + 1, ..., in order, with vectors of at most `bytes` bytes.
__attribute__((unused)) static void plait_philox_words_by(int bytes, uint32_t *w, int64_t blocks, uint64_t seed, uint64_t counter) {
  int64_t b = 0;
#ifdef PLAIT_PHILOX_VECTORS
  if (bytes >= 64 && __builtin_cpu_supports("avx512f")) {
    b = plait_philox_words_64(w, blocks, seed, counter);
  } else if (bytes >= 32 && __builtin_cpu_supports("avx2")) {
    b = plait_philox_words_32(w, blocks, seed, counter);
  }
#else
  (void)bytes;
#endif
  for (; b < blocks; b++) plait_philox(seed, counter + (uint64_t)b, &w[4 * b], &w[4 * b + 1], &w[4 * b + 2], &w[4 * b + 3]);
}

// The same with the widest vectors.
PLAIT_INLINE void plait_philox_words(uint32_t *w, int64_t blocks, uint64_t seed, uint64_t counter) {
  plait_philox_words_by(64, w, blocks, seed, counter);
}

#endif
