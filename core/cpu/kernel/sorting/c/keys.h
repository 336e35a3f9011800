// Order-preserving unsigned keys: comparing keys as integers compares elements. Both zeros are equal. All NaNs are
// equal, and larger than all numbers.
#ifndef PLAITK_SORTING_KEYS_H
#define PLAITK_SORTING_KEYS_H

#include "../../../include/plait_kernel.h"

#define KEY_NAN32 UINT32_MAX
#define KEY_NAN64 UINT64_MAX

PLAIT_INLINE uint32_t key_f32(float x) {
  uint32_t u = plait_f32_bits(x + 0.0f); // -0 becomes +0
  uint32_t k = u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
  return (u & 0x7fffffffu) > 0x7f800000u ? KEY_NAN32 : k;
}

PLAIT_INLINE uint64_t key_f64(double x) {
  uint64_t u;
  x += 0.0;
  memcpy(&u, &x, sizeof u);
  uint64_t k = u ^ ((uint64_t)((int64_t)u >> 63) | 0x8000000000000000u);
  return (u & INT64_MAX) > 0x7ff0000000000000u ? KEY_NAN64 : k;
}

PLAIT_INLINE uint32_t key_u8(uint8_t x) { return x; }
PLAIT_INLINE uint32_t key_u16(uint16_t x) { return x; }
PLAIT_INLINE uint32_t key_u32(uint32_t x) { return x; }
PLAIT_INLINE uint64_t key_u64(uint64_t x) { return x; }
PLAIT_INLINE uint32_t key_i32(int32_t x) { return (uint32_t)x ^ 0x80000000u; }
PLAIT_INLINE uint32_t key_i8(int8_t x) { return key_i32(x); }
PLAIT_INLINE uint32_t key_i16(int16_t x) { return key_i32(x); }
PLAIT_INLINE uint64_t key_i64(int64_t x) { return (uint64_t)x ^ 0x8000000000000000u; }
PLAIT_INLINE uint32_t key_f16(uint16_t x) { return key_f32(plait_f16_to_f32(x)); }
PLAIT_INLINE uint32_t key_bf16(uint16_t x) { return key_f32(plait_bf16_to_f32(x)); }

PLAIT_INLINE bool key_is_wide(int dtype) { return plait_dtype_size(dtype) == 8; }

// key_nan returns the key of NaN in a dtype. Keys of integers are smaller, or belong to dtypes without NaN.
PLAIT_INLINE uint64_t key_nan(int dtype) { return dtype == PLAIT_F64 ? KEY_NAN64 : KEY_NAN32; }

// KEY_EACH is DO(name, type) by dtype, with key_NAME(type) among the functions above.
#define KEY_EACH_PACKED(DO)            \
  case PLAIT_BOOL:                     \
  case PLAIT_U8: DO(u8, uint8_t)       \
  case PLAIT_I8: DO(i8, int8_t)        \
  case PLAIT_I16: DO(i16, int16_t)     \
  case PLAIT_U16: DO(u16, uint16_t)    \
  case PLAIT_I32: DO(i32, int32_t)     \
  case PLAIT_U32: DO(u32, uint32_t)    \
  case PLAIT_F16: DO(f16, uint16_t)    \
  case PLAIT_BF16: DO(bf16, uint16_t)  \
  case PLAIT_F32: DO(f32, float)
#define KEY_EACH_WIDE(DO)              \
  case PLAIT_I64: DO(i64, int64_t)     \
  case PLAIT_U64: DO(u64, uint64_t)    \
  default: DO(f64, double)

// key_at returns the key of element i of an array.
PLAIT_INLINE uint64_t key_at(int dtype, const void *p, int64_t i) {
#define RETURN(NAME, T) return key_##NAME(((const T *)p)[i]);
  switch (dtype) {
    KEY_EACH_PACKED(RETURN)
    KEY_EACH_WIDE(RETURN)
  }
#undef RETURN
}

#endif
