// Copies between matrices of any strides: how elements get from tensors into blocks and back.
#include "simd.h"
#include "elementwise.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define SHUFFLE(V, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(V, a, b, ...) __builtin_shuffle(a, b, (V){__VA_ARGS__})
#endif

#define T uint8_t
#define N 16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#include "matrix.h"

#define T uint16_t
#define N 8
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#include "matrix.h"

#define T uint32_t
#define N 4
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#include "matrix.h"

#define T uint64_t
#define N 2
#define LOW 0, 2
#define HIGH 1, 3
#include "matrix.h"

void plaitk_elementwise_copy2d(int size, void *dst, int64_t dst_row, int64_t dst_col, const void *src, int64_t src_row,
                               int64_t src_col, int64_t rows, int64_t cols) {
  switch (size) {
    case 1: uint8_t_copy2d(dst, dst_row, dst_col, src, src_row, src_col, rows, cols); break;
    case 2: uint16_t_copy2d(dst, dst_row, dst_col, src, src_row, src_col, rows, cols); break;
    case 4: uint32_t_copy2d(dst, dst_row, dst_col, src, src_row, src_col, rows, cols); break;
    default: uint64_t_copy2d(dst, dst_row, dst_col, src, src_row, src_col, rows, cols);
  }
}

#if defined(__SSE2__)
void plaitk_elementwise_stream(void *dst, const void *src, int64_t bytes) {
  int64_t head = (int64_t)(-(uintptr_t)dst & 63u);
  if (bytes < head + 64) {
    memcpy(dst, src, (size_t)bytes);
    return;
  }
  memcpy(dst, src, (size_t)head);
  char *d = (char *)dst + head;
  const char *s = (const char *)src + head;
  bytes -= head;
  for (; bytes >= 64; bytes -= 64, d += 64, s += 64) {
    __m128i v[4];
    for (int i = 0; i < 4; i++) v[i] = _mm_loadu_si128((const __m128i *)s + i);
    for (int i = 0; i < 4; i++) _mm_stream_si128((__m128i *)d + i, v[i]);
  }
  memcpy(d, s, (size_t)bytes);
  _mm_sfence();
}
#else
void plaitk_elementwise_stream(void *dst, const void *src, int64_t bytes) { memcpy(dst, src, (size_t)bytes); }
#endif
