// Conversion of contiguous elements between any two dtypes.
#include "copying.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAS_F16C 1
#include <immintrin.h>
#endif

// Truncates towards zero. NaN and numbers out of range become the smallest integer, on every processor.
PLAIT_INLINE int32_t f32_to_i32(float x) {
  bool fits = x >= -0x1p31f && x < 0x1p31f;
  int32_t r = (int32_t)(fits ? x : 0.0f);
  return fits ? r : INT32_MIN;
}
PLAIT_INLINE int64_t f32_to_i64(float x) {
  bool fits = x >= -0x1p63f && x < 0x1p63f;
  int64_t r = (int64_t)(fits ? x : 0.0f);
  return fits ? r : INT64_MIN;
}
PLAIT_INLINE int32_t f64_to_i32(double x) {
  bool fits = x > -0x1p31 - 1 && x < 0x1p31;
  int32_t r = (int32_t)(fits ? x : 0.0);
  return fits ? r : INT32_MIN;
}
PLAIT_INLINE int64_t f64_to_i64(double x) {
  bool fits = x >= -0x1p63 && x < 0x1p63;
  int64_t r = (int64_t)(fits ? x : 0.0);
  return fits ? r : INT64_MIN;
}
// Negative numbers wrap around.
PLAIT_INLINE uint64_t f64_to_u64(double x) {
  return x >= 0x1p63 && x < 0x1p64 ? (uint64_t)f64_to_i64(x - 0x1p63) ^ 0x8000000000000000u : (uint64_t)f64_to_i64(x);
}
PLAIT_INLINE int32_t int_to_i32(int64_t x) { return (int32_t)x; }
PLAIT_INLINE int64_t int_to_i64(int64_t x) { return x; }

// A float becomes an integer of fewer bits by truncating to a wider one and keeping its low bits. A float32 past 2^31 has
// no low 8 bits, so int32 is wide enough for it.
#define TO_I32(v) _Generic((v), float: f32_to_i32, double: f64_to_i32, default: int_to_i32)(v)
#define TO_I64(v) _Generic((v), float: f32_to_i64, double: f64_to_i64, default: int_to_i64)(v)
#define TO_8(v) _Generic((v), float: f32_to_i32, double: f64_to_i64, default: int_to_i64)(v)

#define LOAD_BOOL(x) ((uint8_t)((x) != 0))
#define LOAD_SAME(x) (x)

#define STORE_BOOL(v) ((uint8_t)((v) != 0))
#define STORE_8(v) ((uint8_t)TO_8(v))
#define STORE_16(v) ((uint16_t)TO_I64(v))
#define STORE_U32(v) ((uint32_t)TO_I64(v))
#define STORE_U64(v) f64_to_u64((double)(v))
#define STORE_F16(v) plait_f32_to_f16((float)(v))
#define STORE_BF16(v) plait_f32_to_bf16((float)(v))
#define STORE_F32(v) ((float)(v))
#define STORE_F64(v) ((double)(v))

#define CONVERT(from, S, LOAD, to, D, STORE)                                                        \
  PLAIT_CLONES static void convert_##from##_##to(void *restrict out, const void *restrict in, int64_t n) { \
    D *restrict o = out;                                                                            \
    const S *restrict x = in;                                                                       \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) o[i] = STORE(LOAD(x[i]));                   \
  }

#define CONVERT_FROM(from, S, LOAD)                      \
  CONVERT(from, S, LOAD, b8, uint8_t, STORE_BOOL)      \
  CONVERT(from, S, LOAD, u8, uint8_t, STORE_8)           \
  CONVERT(from, S, LOAD, u16, uint16_t, STORE_16)        \
  CONVERT(from, S, LOAD, i32, int32_t, TO_I32)           \
  CONVERT(from, S, LOAD, i64, int64_t, TO_I64)           \
  CONVERT(from, S, LOAD, f16, uint16_t, STORE_F16)       \
  CONVERT(from, S, LOAD, bf16, uint16_t, STORE_BF16)     \
  CONVERT(from, S, LOAD, f32, float, STORE_F32)          \
  CONVERT(from, S, LOAD, f64, double, STORE_F64)

// Unsigned integers have the bits of the signed ones where they come from integers.
#define CONVERT_FROM_FLOAT(from, S, LOAD)            \
  CONVERT_FROM(from, S, LOAD)                        \
  CONVERT(from, S, LOAD, u32, uint32_t, STORE_U32)   \
  CONVERT(from, S, LOAD, u64, uint64_t, STORE_U64)

CONVERT_FROM(b8, uint8_t, LOAD_BOOL)
CONVERT_FROM(u8, uint8_t, LOAD_SAME)
CONVERT_FROM(i8, int8_t, LOAD_SAME)
CONVERT_FROM(i16, int16_t, LOAD_SAME)
CONVERT_FROM(u16, uint16_t, LOAD_SAME)
CONVERT_FROM(i32, int32_t, LOAD_SAME)
CONVERT_FROM(u32, uint32_t, LOAD_SAME)
CONVERT_FROM(i64, int64_t, LOAD_SAME)
CONVERT_FROM(u64, uint64_t, LOAD_SAME)
CONVERT_FROM_FLOAT(f16, uint16_t, plait_f16_to_f32)
CONVERT_FROM_FLOAT(bf16, uint16_t, plait_bf16_to_f32)
CONVERT_FROM_FLOAT(f32, float, LOAD_SAME)
CONVERT_FROM_FLOAT(f64, double, LOAD_SAME)

#define ROW(from, u32, u64)                                                                                      \
  {convert_##from##_b8, convert_##from##_u8,   convert_##from##_i32, convert_##from##_i64, convert_##from##_f16, \
   convert_##from##_bf16, convert_##from##_f32, convert_##from##_f64, convert_##from##_u8, convert_##from##_u16, \
   convert_##from##_u16, convert_##from##_##u32, convert_##from##_##u64}
#define INTS(from) ROW(from, i32, i64)
#define FLOATS(from) ROW(from, u32, u64)

static const plaitk_convert table[PLAIT_DTYPES][PLAIT_DTYPES] = {
    INTS(b8),    INTS(u8), INTS(i32), INTS(i64), FLOATS(f16), FLOATS(bf16), FLOATS(f32),
    FLOATS(f64), INTS(i8), INTS(i16), INTS(u16), INTS(u32),   INTS(u64)};

#ifdef HAS_F16C
// Conversions between float16 and float32 by the processor's instructions: three times as fast as the loops above. The
// results are the same, except that a signalling NaN becomes quiet. With AVX2, since compilers may split a selection
// between vectors of eight without it.

__attribute__((target("avx2,f16c"))) static void f16c_f16_f32(void *restrict out, const void *restrict in, int64_t n) {
  float *o = out;
  const uint16_t *x = in;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(o + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
  for (; i < n; i++) o[i] = plait_f16_to_f32(x[i]);
}

__attribute__((target("avx2,f16c"))) static void f16c_f32_f16(void *restrict out, const void *restrict in, int64_t n) {
  uint16_t *o = out;
  const float *x = in;
  const __m256 sign = _mm256_set1_ps(-0.0f), nan = _mm256_set1_ps(plait_bits_f32(0x7fc00000u));
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 v = _mm256_loadu_ps(x + i);
    // All NaNs become one NaN with the sign kept.
    v = _mm256_blendv_ps(v, _mm256_or_ps(_mm256_and_ps(v, sign), nan), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    _mm_storeu_si128((void *)(o + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; i++) o[i] = plait_f32_to_f16(x[i]);
}

// Conversions that AVX2 has instructions for when compilers do not see it. AVX-512 has them for the loops above.

__attribute__((target("avx2"))) static void avx2_f32_bf16(void *restrict out, const void *restrict in, int64_t n) {
  uint16_t *o = out;
  const float *x = in;
  const __m256i half = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1), quiet = _mm256_set1_epi32(0x40);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m256i r[2];
    for (int k = 0; k < 2; k++) {
      __m256 v = _mm256_loadu_ps(x + i + 8 * k);
      __m256i u = _mm256_castps_si256(v), top = _mm256_srli_epi32(u, 16);
      __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, half), _mm256_and_si256(top, one)), 16);
      r[k] = _mm256_blendv_epi8(rounded, _mm256_or_si256(top, quiet), _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    }
    _mm256_storeu_si256((void *)(o + i), _mm256_permute4x64_epi64(_mm256_packus_epi32(r[0], r[1]), 0xd8));
  }
  for (; i < n; i++) o[i] = plait_f32_to_bf16(x[i]);
}

// Numbers that fit int32 are converted to it first.
__attribute__((target("avx2"))) static void avx2_f32_i64(void *restrict out, const void *restrict in, int64_t n) {
  int64_t *o = out;
  const float *x = in;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 v = _mm256_loadu_ps(x + i), size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
    if (_mm256_movemask_ps(_mm256_cmp_ps(size, _mm256_set1_ps(0x1p31f), _CMP_LT_OQ)) == 0xff) {
      __m256i r = _mm256_cvttps_epi32(v);
      _mm256_storeu_si256((void *)(o + i), _mm256_cvtepi32_epi64(_mm256_castsi256_si128(r)));
      _mm256_storeu_si256((void *)(o + i + 4), _mm256_cvtepi32_epi64(_mm256_extracti128_si256(r, 1)));
    } else {
      for (int64_t k = i; k < i + 8; k++) o[k] = f32_to_i64(x[k]);
    }
  }
  for (; i < n; i++) o[i] = f32_to_i64(x[i]);
}

__attribute__((target("avx2"))) static void avx2_f64_i64(void *restrict out, const void *restrict in, int64_t n) {
  int64_t *o = out;
  const double *x = in;
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    __m256d v = _mm256_loadu_pd(x + i), size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), v);
    if (_mm256_movemask_pd(_mm256_cmp_pd(size, _mm256_set1_pd(0x1p31), _CMP_LT_OQ)) == 0xf) {
      _mm256_storeu_si256((void *)(o + i), _mm256_cvtepi32_epi64(_mm256_cvttpd_epi32(v)));
    } else {
      for (int64_t k = i; k < i + 4; k++) o[k] = f64_to_i64(x[k]);
    }
  }
  for (; i < n; i++) o[i] = f64_to_i64(x[i]);
}

// Conversions of halves for vectors of 16.
__attribute__((target("avx512f"))) static void avx512_f16_f32(void *restrict out, const void *restrict in, int64_t n) {
  float *o = out;
  const uint16_t *x = in;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(o + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(x + i))));
  for (; i < n; i++) o[i] = plait_f16_to_f32(x[i]);
}

__attribute__((target("avx512f"))) static void avx512_f32_f16(void *restrict out, const void *restrict in, int64_t n) {
  uint16_t *o = out;
  const float *x = in;
  const __m512i sign = _mm512_set1_epi32(INT32_MIN), nan = _mm512_set1_epi32(0x7fc00000);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    __m512 v = _mm512_loadu_ps(x + i);
    enum { AND_THEN_OR = 0xea };
    __m512i bits = _mm512_mask_ternarylogic_epi32(_mm512_castps_si512(v), _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), sign, nan, AND_THEN_OR);
    _mm256_storeu_si256((void *)(o + i), _mm512_cvtps_ph(_mm512_castsi512_ps(bits), _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; i++) o[i] = plait_f32_to_f16(x[i]);
}
#endif

static bool without_avx512;

void plaitk_copying_without_avx512(bool without) { without_avx512 = without; }

plaitk_convert plaitk_copying_converter(int64_t to, int64_t from) {
#ifdef HAS_F16C
  bool avx2 = __builtin_cpu_supports("avx2"), avx512 = !without_avx512 && __builtin_cpu_supports("x86-64-v4");
  if (avx512) {
    if (from == PLAIT_F16 && to == PLAIT_F32) return avx512_f16_f32;
    if (from == PLAIT_F32 && to == PLAIT_F16) return avx512_f32_f16;
  }
  if (avx2 && __builtin_cpu_supports("f16c")) {
    if (from == PLAIT_F16 && to == PLAIT_F32) return f16c_f16_f32;
    if (from == PLAIT_F32 && to == PLAIT_F16) return f16c_f32_f16;
  }
  if (avx2 && !avx512) {
    if (from == PLAIT_F32 && to == PLAIT_BF16) return avx2_f32_bf16;
    if (from == PLAIT_F32 && to == PLAIT_I64) return avx2_f32_i64;
    if (from == PLAIT_F64 && to == PLAIT_I64) return avx2_f64_i64;
  }
#endif
  return table[from][to];
}
