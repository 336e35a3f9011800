// Conversions between dtypes, over contiguous elements.
#include "simd.h"
#include "elementwise.h"

const uint8_t plaitk_elementwise_size[8] = {1, 1, 4, 8, 2, 2, 4, 8};

PLAIT_INLINE int64_t truncated(double x) {
  bool fits = x >= -0x1p63 && x < 0x1p63;
  int64_t n = (int64_t)(fits ? x : 0.0);
  int64_t limit = x >= 0x1p63 ? INT64_MAX : x < 0.0 ? INT64_MIN : 0;
  return fits ? n : limit;
}

// Halves are rounded from float32, through which all their arithmetic goes.
#define CONVERT(from, S, to, D, value)                                           \
  PLAIT_CLONES static void from##_to_##to(const void *src, void *dst, int64_t n) { \
    const S *s = src;                                                            \
    D *d = dst;                                                                  \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                         \
      const S v = s[i];                                                          \
      d[i] = value;                                                              \
    }                                                                            \
  }

CONVERT(b8, uint8_t, u8, uint8_t, (v != 0))
CONVERT(b8, uint8_t, i32, int32_t, (v != 0))
CONVERT(b8, uint8_t, i64, int64_t, (v != 0))
CONVERT(b8, uint8_t, f16, uint16_t, v != 0 ? 0x3c00 : 0)
CONVERT(b8, uint8_t, bf16, uint16_t, v != 0 ? 0x3f80 : 0)
CONVERT(b8, uint8_t, f32, float, (float)(v != 0))
CONVERT(b8, uint8_t, f64, double, (double)(v != 0))
CONVERT(u8, uint8_t, b8, uint8_t, v != 0)
CONVERT(u8, uint8_t, i64, int64_t, v)
CONVERT(u8, uint8_t, f32, float, (float)v)
CONVERT(u8, uint8_t, f64, double, (double)v)
CONVERT(i32, int32_t, b8, uint8_t, v != 0)
CONVERT(i32, int32_t, i64, int64_t, v)
CONVERT(i32, int32_t, f32, float, (float)v)
CONVERT(i32, int32_t, f64, double, (double)v)
CONVERT(i64, int64_t, b8, uint8_t, v != 0)
CONVERT(i64, int64_t, u8, uint8_t, (uint8_t)v)
CONVERT(i64, int64_t, i32, int32_t, (int32_t)v)
CONVERT(i64, int64_t, f16, uint16_t, plait_f32_to_f16((float)v))
CONVERT(i64, int64_t, bf16, uint16_t, plait_f32_to_bf16((float)v))
CONVERT(i64, int64_t, f32, float, (float)v)
CONVERT(i64, int64_t, f64, double, (double)v)
CONVERT(f16, uint16_t, b8, uint8_t, (v & 0x7fff) != 0)
CONVERT(f16, uint16_t, i64, int64_t, truncated(plait_f16_to_f32(v)))
CONVERT(f16, uint16_t, f32, float, plait_f16_to_f32(v))
CONVERT(f16, uint16_t, f64, double, (double)plait_f16_to_f32(v))
CONVERT(bf16, uint16_t, b8, uint8_t, (v & 0x7fff) != 0)
CONVERT(bf16, uint16_t, i64, int64_t, truncated(plait_bf16_to_f32(v)))
CONVERT(bf16, uint16_t, f32, float, plait_bf16_to_f32(v))
CONVERT(bf16, uint16_t, f64, double, (double)plait_bf16_to_f32(v))
CONVERT(f32, float, b8, uint8_t, v != 0)
CONVERT(f32, float, u8, uint8_t, (uint8_t)truncated(v))
CONVERT(f32, float, i32, int32_t, (int32_t)truncated(v))
CONVERT(f32, float, i64, int64_t, truncated(v))
CONVERT(f32, float, f16, uint16_t, plait_f32_to_f16(v))
CONVERT(f32, float, bf16, uint16_t, plait_f32_to_bf16(v))
CONVERT(f32, float, f64, double, (double)v)
CONVERT(f64, double, b8, uint8_t, v != 0)
CONVERT(f64, double, u8, uint8_t, (uint8_t)truncated(v))
CONVERT(f64, double, i32, int32_t, (int32_t)truncated(v))
CONVERT(f64, double, i64, int64_t, truncated(v))
CONVERT(f64, double, f16, uint16_t, plait_f32_to_f16((float)v))
CONVERT(f64, double, bf16, uint16_t, plait_f32_to_bf16((float)v))
CONVERT(f64, double, f32, float, (float)v)

plaitk_elementwise_convert plaitk_elementwise_converter(int from, int to) {
  static const plaitk_elementwise_convert table[8][8] = {
    {NULL, b8_to_u8, b8_to_i32, b8_to_i64, b8_to_f16, b8_to_bf16, b8_to_f32, b8_to_f64},
    {u8_to_b8, NULL, NULL, u8_to_i64, NULL, NULL, u8_to_f32, u8_to_f64},
    {i32_to_b8, NULL, NULL, i32_to_i64, NULL, NULL, i32_to_f32, i32_to_f64},
    {i64_to_b8, i64_to_u8, i64_to_i32, NULL, i64_to_f16, i64_to_bf16, i64_to_f32, i64_to_f64},
    {f16_to_b8, NULL, NULL, f16_to_i64, NULL, NULL, f16_to_f32, f16_to_f64},
    {bf16_to_b8, NULL, NULL, bf16_to_i64, NULL, NULL, bf16_to_f32, bf16_to_f64},
    {f32_to_b8, f32_to_u8, f32_to_i32, f32_to_i64, f32_to_f16, f32_to_bf16, NULL, f32_to_f64},
    {f64_to_b8, f64_to_u8, f64_to_i32, f64_to_i64, f64_to_f16, f64_to_bf16, f64_to_f32, NULL},
  };
  return table[from][to];
}
