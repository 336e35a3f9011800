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
  PLAIT_I8 = 8,
  PLAIT_I16 = 9,
  PLAIT_U16 = 10,
  PLAIT_U32 = 11,
  PLAIT_U64 = 12,
  PLAIT_DTYPES,
};

// The int64 that is ordered as a uint64 is, and back.
#define PLAIT_ORDERED(x) ((int64_t)((uint64_t)(x) ^ 0x8000000000000000u))

// The entries of a table by dtype, ENTRY(NAME_u8), ENTRY(NAME_i32) and so on. Bools are bytes.
#define PLAIT_BY_DTYPE(ENTRY, NAME)                                                             \
  ENTRY(NAME##_u8), ENTRY(NAME##_u8), ENTRY(NAME##_i32), ENTRY(NAME##_i64), ENTRY(NAME##_f16),  \
  ENTRY(NAME##_bf16), ENTRY(NAME##_f32), ENTRY(NAME##_f64), ENTRY(NAME##_i8), ENTRY(NAME##_i16), \
  ENTRY(NAME##_u16), ENTRY(NAME##_u32), ENTRY(NAME##_u64)

// The largest rank of a tensor.
#define PLAIT_MAX_DIMS 12

// PLAIT_CLONES compiles a leaf function for AVX-512, AVX2 and the baseline. The loader picks one. PLAIT_BASELINE compiles the
// baseline alone, in a third of the time.
#if !defined(PLAIT_BASELINE) && defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define PLAIT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PLAIT_CLONES
#endif

// PLAIT_INLINE inlines a helper into the cloned loop that calls it, so that it is vectorised in each clone.
#define PLAIT_INLINE static inline __attribute__((always_inline, unused))

PLAIT_INLINE bool plait_is_float(int64_t dtype) { return dtype >= PLAIT_F16 && dtype <= PLAIT_F64; }

PLAIT_INLINE int64_t plait_dtype_size(int64_t dtype) {
  static const int8_t sizes[PLAIT_DTYPES] = {1, 1, 4, 8, 2, 2, 4, 8, 1, 2, 2, 4, 8};
  return sizes[dtype];
}

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
