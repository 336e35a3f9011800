// Writing results that are too large to stay in the caches.
#ifndef PLAIT_STREAM_H
#define PLAIT_STREAM_H

#include "plait.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

// Outputs from this size on are written past the caches.
#define PLAIT_STREAM_BYTES (INT64_C(32) << 20)
#define PLAIT_LINE 64

// Writes n bytes, a multiple of 16, to a 16-byte boundary without reading their lines into the cache.
PLAIT_INLINE void plait_stream_lines(char *restrict out, const char *restrict in, int64_t n) {
#if defined(__SSE2__)
  for (int64_t k = 0; k < n; k += 16) _mm_stream_si128((__m128i *)(out + k), _mm_loadu_si128((const __m128i *)(in + k)));
#else
  memcpy(out, in, (size_t)n);
#endif
}

// Copies n bytes past the caches, but for what lies outside whole lines of the output.
PLAIT_INLINE void plait_stream(void *restrict out, const void *restrict in, int64_t n) {
  char *o = out;
  const char *x = in;
  int64_t head = (int64_t)(-(uintptr_t)o % PLAIT_LINE);
  head = head < n ? head : n;
  int64_t body = (n - head) & -(int64_t)PLAIT_LINE;
  memcpy(o, x, (size_t)head);
  plait_stream_lines(o + head, x + head, body);
  memcpy(o + head + body, x + head + body, (size_t)(n - head - body));
}

// Asks for n bytes ahead of their use: while a block of results is written, nothing else would read memory.
PLAIT_INLINE void plait_fetch(const void *p, int64_t n) {
  for (int64_t k = 0; k < n; k += PLAIT_LINE) __builtin_prefetch((const char *)p + k);
}

// Ends a run of such writes, which are not ordered with others. It waits for memory, so it belongs at the end of a chunk.
PLAIT_INLINE void plait_stream_end(void) {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

#endif
