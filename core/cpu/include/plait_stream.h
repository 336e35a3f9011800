// Non-temporal stores, for results that are too large for the caches.
#ifndef PLAIT_STREAM_H
#define PLAIT_STREAM_H

#include "plait_kernel.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define PLAIT_STREAMS_X86
#include <immintrin.h>
#endif

// Outputs of at least this size bypass the caches.
#define PLAIT_STREAM_BYTES (INT64_C(32) << 20)
#define PLAIT_LINE 64
// A loop computes this many bytes, then stores them. Parts are smaller than the processor's store buffer, so computing
// and storing overlap.
#define PLAIT_STREAM_PART 1024

// Stores one line to a 64-byte boundary without reading it into the cache.
PLAIT_INLINE void plait_stream_line(char *restrict out, const char *restrict in) {
#ifdef PLAIT_STREAMS_X86
  for (int k = 0; k < PLAIT_LINE; k += 16) _mm_stream_si128((__m128i *)(out + k), _mm_loadu_si128((const __m128i *)(in + k)));
#else
  memcpy(out, in, PLAIT_LINE);
#endif
}

// Stores n bytes, a multiple of 64, to a 64-byte boundary in the same way. Wide stores matter: each one occupies an
// entry of the store buffer until memory takes it, and the processor stalls when the buffer is full.
#ifdef PLAIT_STREAMS_X86
__attribute__((target("avx512f"), unused)) static void plait_stream_lines_64(char *restrict out, const char *restrict in, int64_t n) {
  for (int64_t k = 0; k < n; k += 64) _mm512_stream_si512((void *)(out + k), _mm512_loadu_si512(in + k));
}
__attribute__((target("avx"), unused)) static void plait_stream_lines_32(char *restrict out, const char *restrict in, int64_t n) {
  for (int64_t k = 0; k < n; k += 32) _mm256_stream_si256((void *)(out + k), _mm256_loadu_si256((const void *)(in + k)));
}
#endif

PLAIT_INLINE void plait_stream_lines(char *restrict out, const char *restrict in, int64_t n) {
#ifdef PLAIT_STREAMS_X86
  if (__builtin_cpu_supports("avx512f")) return plait_stream_lines_64(out, in, n);
  if (__builtin_cpu_supports("avx")) return plait_stream_lines_32(out, in, n);
#endif
  for (int64_t k = 0; k < n; k += PLAIT_LINE) plait_stream_line(out + k, in + k);
}

// Copies n bytes past the caches. Only the ends, outside whole lines of the output, are ordinary stores.
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

// Returns the number of elements in the part that starts at out. A part ends at a line boundary or after `left`
// elements.
PLAIT_INLINE int64_t plait_stream_part(const void *out, int64_t left, int64_t size) {
  int64_t n = (PLAIT_STREAM_PART - (int64_t)((uintptr_t)out % PLAIT_LINE)) / size;
  return n < left ? n : left;
}

// Prefetches n bytes.
PLAIT_INLINE void plait_prefetch(const void *p, int64_t n) {
  for (int64_t k = 0; k < n; k += PLAIT_LINE) __builtin_prefetch((const char *)p + k);
}

// Ends a run of non-temporal stores, which are not ordered with other stores. It waits for memory, so call it at the
// end of a chunk.
PLAIT_INLINE void plait_stream_end(void) {
#ifdef PLAIT_STREAMS_X86
  _mm_sfence();
#endif
}

#endif
