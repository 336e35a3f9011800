// Dtypes, 16-bit floats and attributes shared by all CPU kernels.
#ifndef PLAIT_KERNEL_H
#define PLAIT_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

// The dtype codes of core.DType.
enum plait_dtype {
  PLAIT_BOOL = 0,
  PLAIT_U8 = 1,
  PLAIT_I32 = 2,
  PLAIT_I64 = 3,
  PLAIT_F16 = 4,
  PLAIT_BF16 = 5,
  PLAIT_F32 = 6,
  PLAIT_F64 = 7,
};

// The largest rank of a tensor.
#define PLAIT_MAX_DIMS 12

// PLAIT_CLONES compiles a leaf function for AVX-512, AVX2 and the baseline. The loader picks one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define PLAIT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PLAIT_CLONES
#endif

// PLAIT_INLINE inlines a helper into the cloned loop that calls it, so that it is vectorised in each clone.
#define PLAIT_INLINE static inline __attribute__((always_inline, unused))

PLAIT_INLINE uint32_t plait_f32_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

PLAIT_INLINE float plait_bits_f32(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

PLAIT_INLINE float plait_bf16_to_f32(uint16_t h) { return plait_bits_f32((uint32_t)h << 16); }

// Rounds to nearest even; a NaN stays a (quiet) NaN.
PLAIT_INLINE uint16_t plait_f32_to_bf16(float x) {
  uint32_t u = plait_f32_bits(x);
  uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  uint32_t nan = (u >> 16) | 0x40u;
  return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// It has no conditional, which the compiler may turn into a branch that prevents vectorisation. It does no arithmetic
// on subnormal floats, which is slow: a subnormal half is a difference of two normal floats.
PLAIT_INLINE float plait_f16_to_f32(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13, exponent = h & 0x7c00u;
  uint32_t special = -(uint32_t)(exponent == 0x7c00u) & 0x38000000u; // infinity and NaN: raise the exponent to 255
  uint32_t subnormal = -(uint32_t)(exponent == 0);
  uint32_t difference = plait_f32_bits(plait_bits_f32(magnitude + 0x38800000u) - 0x1p-14f);
  uint32_t bits = ((magnitude + 0x38000000u + special) & ~subnormal) | (difference & subnormal);
  return plait_bits_f32(bits | ((uint32_t)(h & 0x8000u) << 16));
}

// Rounds to nearest even, overflows to infinity, keeps subnormals; a NaN stays a (quiet) NaN.
PLAIT_INLINE uint16_t plait_f32_to_f16(float x) {
  uint32_t u = plait_f32_bits(x);
  uint32_t sign = (u >> 16) & 0x8000u;
  uint32_t a = u & 0x7fffffffu;
  // Normal range: change the exponent's bias and round off 13 bits.
  uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  // Subnormal range: adding 0.5 aligns the mantissa so that the addition itself rounds.
  uint32_t subnormal = plait_f32_bits(plait_bits_f32(a) + 0.5f) - 0x3f000000u;
  uint32_t r = a < 0x38800000u ? subnormal : normal;
  r = a >= 0x477ff000u ? 0x7c00u : r;
  r = a > 0x7f800000u ? 0x7e00u : r;
  return (uint16_t)(sign | r);
}

#endif
