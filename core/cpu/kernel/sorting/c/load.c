// Converts elements to entries.
#include "sorting.h"

// Contiguous elements have a loop of their own, which vectorises.
#define LOADER(NAME, T, E, K, WORD, ENTRY)                                                                      \
  PLAIT_CLONES static void NAME(const T *in, int64_t stride, int64_t at, int64_t count, int64_t n, WORD flip, E *restrict a) { \
    if (stride == 1) {                                                                                          \
      _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                                     \
        WORD key = K(in[i]) ^ flip;                                                                             \
        a[i] = ENTRY(key, (uint64_t)(at + (i & count)));                                                                  \
      }                                                                                                         \
    } else {                                                                                                    \
      for (int64_t i = 0; i < n; i++) {                                                                         \
        WORD key = K(in[i * stride]) ^ flip;                                                                    \
        a[i] = ENTRY(key, (uint64_t)(at + (i & count)));                                                                  \
      }                                                                                                         \
    }                                                                                                           \
  }

#define PACK(key, index) ((uint64_t)(key) << 32 | (index))
#define PAIR(key, index) (wide){(key), (index)}

LOADER(load_u8, uint8_t, packed, key_u8, uint32_t, PACK)
LOADER(load_i8, int8_t, packed, key_i8, uint32_t, PACK)
LOADER(load_i16, int16_t, packed, key_i16, uint32_t, PACK)
LOADER(load_u16, uint16_t, packed, key_u16, uint32_t, PACK)
LOADER(load_i32, int32_t, packed, key_i32, uint32_t, PACK)
LOADER(load_u32, uint32_t, packed, key_u32, uint32_t, PACK)
LOADER(load_f16, uint16_t, packed, key_f16, uint32_t, PACK)
LOADER(load_bf16, uint16_t, packed, key_bf16, uint32_t, PACK)
LOADER(load_f32, float, packed, key_f32, uint32_t, PACK)
LOADER(load_i64, int64_t, wide, key_i64, uint64_t, PAIR)
LOADER(load_u64, uint64_t, wide, key_u64, uint64_t, PAIR)
LOADER(load_f64, double, wide, key_f64, uint64_t, PAIR)

#define LOAD(NAME, T) load_##NAME(in, stride, at, count, n, flip, a); break;

void plaitk_sorting_load_packed(int dtype, const void *in, int64_t stride, int64_t at, int64_t count, int64_t n,
                                bool descending, packed *a) {
  uint32_t flip = descending ? UINT32_MAX : 0;
  switch (dtype) { KEY_EACH_PACKED(LOAD) }
}

void plaitk_sorting_load_wide(int dtype, const void *in, int64_t stride, int64_t at, int64_t count, int64_t n,
                              bool descending, wide *a) {
  uint64_t flip = descending ? UINT64_MAX : 0;
  switch (dtype) { KEY_EACH_WIDE(LOAD) }
}
