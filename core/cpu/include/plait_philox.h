// Philox4x32-10, a counter-based random number generator (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy
// as 1, 2, 3; SC 2011). Every value is a pure function of a seed and a counter, so it does not depend on threads or on
// order.
//
// An operation that draws n 32-bit words uses the counters offset, ..., offset + ceil(n / 4) - 1 of its generator. Word
// i is word i mod 4 of block offset + i / 4. All devices do the same.
#ifndef PLAIT_PHILOX_H
#define PLAIT_PHILOX_H

#include "plait_vmath.h"

// Returns the four words of block `counter` under `seed`.
PLAIT_INLINE void plait_philox(uint64_t seed, uint64_t counter, uint32_t *w0, uint32_t *w1, uint32_t *w2, uint32_t *w3) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
#define PLAIT_PHILOX_ROUND                                            \
  {                                                                   \
    uint64_t p = (uint64_t)c0 * 0xD2511F53u;                          \
    uint64_t q = (uint64_t)c2 * 0xCD9E8D57u;                          \
    uint32_t a = (uint32_t)(q >> 32) ^ c1 ^ k0, b = (uint32_t)q;      \
    uint32_t c = (uint32_t)(p >> 32) ^ c3 ^ k1, d = (uint32_t)p;      \
    c0 = a, c1 = b, c2 = c, c3 = d;                                   \
    k0 += 0x9E3779B9u;                                                \
    k1 += 0xBB67AE85u;                                                \
  }
  PLAIT_PHILOX_ROUND PLAIT_PHILOX_ROUND PLAIT_PHILOX_ROUND PLAIT_PHILOX_ROUND PLAIT_PHILOX_ROUND
  PLAIT_PHILOX_ROUND PLAIT_PHILOX_ROUND PLAIT_PHILOX_ROUND PLAIT_PHILOX_ROUND PLAIT_PHILOX_ROUND
#undef PLAIT_PHILOX_ROUND
  *w0 = c0, *w1 = c1, *w2 = c2, *w3 = c3;
}

// Uniform in [0, 1): the top 24 bits of a word.
PLAIT_INLINE float plait_uniformf(uint32_t w) { return (float)(int32_t)(w >> 8) * 0x1p-24f; }

// Uniform in [0, 1): the top 53 bits of two words.
PLAIT_INLINE double plait_uniform(uint32_t high, uint32_t low) {
  return (double)(int64_t)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}

// Uniform in (0, 1], with more bits near 0, for a logarithm.
PLAIT_INLINE float plait_uniform_openf(uint32_t w) {
  return (float)(int32_t)(w >> 16) * 0x1p-16f + ((float)(int32_t)(w & 0xffffu) + 0.5f) * 0x1p-32f;
}

// Two independent standard normals from two words (Box and Muller): sqrt(-2 ln u) cos(2 pi v) and sqrt(-2 ln u) sin(2
// pi v), where u = plait_uniform_openf(w0) and v = plait_uniformf(w1).
PLAIT_INLINE void plait_normal_pairf(uint32_t w0, uint32_t w1, float *a, float *b) {
  float s, c;
  float radius = sqrtf(-2.0f * plait_vm_logf(plait_uniform_openf(w0)));
  plait_vm_sincos_turnsf(plait_uniformf(w1), &s, &c);
  *a = radius * c;
  *b = radius * s;
}

#endif
