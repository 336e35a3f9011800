// Coordinates of the nonzero elements. A first pass counts them in each chunk, so that each chunk knows where to write.
#include "indexing.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define IS_X86
#include <immintrin.h>
#endif

struct job {
  const void *in;
  int32_t dtype, ndim;
  int64_t n;
  const int64_t *shape;
  int64_t *offsets, *out;
};

#define EACH_DTYPE(DO)                     \
  switch (j->dtype) {                      \
  case PLAIT_BOOL:                         \
  case PLAIT_U8:                           \
  case PLAIT_I8:                           \
    DO(uint8_t, x != 0) break;             \
  case PLAIT_I16:                          \
  case PLAIT_U16:                          \
    DO(uint16_t, x != 0) break;            \
  case PLAIT_I32:                          \
  case PLAIT_U32:                          \
    DO(int32_t, x != 0) break;             \
  case PLAIT_I64:                          \
  case PLAIT_U64:                          \
    DO(int64_t, x != 0) break;             \
  case PLAIT_F16:                          \
  case PLAIT_BF16:                         \
    DO(uint16_t, (x & 0x7fff) != 0) break; \
  case PLAIT_F32:                          \
    DO(float, x != 0) break;               \
  default:                                 \
    DO(double, x != 0) break;              \
  }

PLAIT_CLONES static int64_t count_range(const struct job *j, int64_t lo, int64_t hi) {
  int32_t count = 0; // at most NONZERO_CHUNK
#define COUNT(T, TEST)                                                         \
  {                                                                            \
    const T *p = j->in;                                                        \
    _Pragma("omp simd reduction(+:count)") for (int64_t i = lo; i < hi; i++) { \
      T x = p[i];                                                              \
      count += TEST;                                                           \
    }                                                                          \
  }
  EACH_DTYPE(COUNT)
#undef COUNT
  return count;
}

#define BLOCK 512

// Writes the positions of the nonzero elements from lo to hi, at most BLOCK, and returns how many there are. It has no branch,
// which would be as unpredictable as the elements.
static int64_t find_any(const struct job *j, int64_t lo, int64_t hi, int64_t *found) {
  int64_t n = 0;
#define FIND(T, TEST)                      \
  {                                        \
    const T *p = j->in;                    \
    for (int64_t i = lo; i < hi; i++) {    \
      T x = p[i];                          \
      found[n] = i;                        \
      n += TEST;                           \
    }                                      \
  }
  EACH_DTYPE(FIND)
#undef FIND
  return n;
}

#ifdef IS_X86
// The same with vectors of positions, which an instruction compresses. It writes eight positions at a time.
__attribute__((target("avx512f,avx512bw,popcnt"))) static int64_t find_avx512(const struct job *j, int64_t lo, int64_t hi, int64_t *found) {
  const __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), half = _mm512_set1_epi16(0x7fff);
  int64_t n = 0;
  for (; lo < hi; lo += 64) {
    uint64_t there = hi - lo < 64 ? (UINT64_C(1) << (hi - lo)) - 1 : UINT64_MAX, some = 0;
    const char *p = (const char *)j->in + lo * plait_dtype_size(j->dtype);
    switch (j->dtype) {
    case PLAIT_BOOL:
    case PLAIT_U8:
    case PLAIT_I8: {
      __m512i x = _mm512_maskz_loadu_epi8(there, p);
      some = _mm512_test_epi8_mask(x, x);
      break;
    }
    case PLAIT_I16:
    case PLAIT_U16:
    case PLAIT_F16:
    case PLAIT_BF16: {
      bool whole = j->dtype == PLAIT_I16 || j->dtype == PLAIT_U16;
      for (int i = 0; i < 64; i += 32) {
        __m512i x = _mm512_maskz_loadu_epi16((__mmask32)(there >> i), p + 2 * i);
        some |= (uint64_t)_mm512_test_epi16_mask(x, whole ? x : half) << i;
      }
      break;
    }
    case PLAIT_I32:
    case PLAIT_U32:
      for (int i = 0; i < 64; i += 16) {
        __m512i x = _mm512_maskz_loadu_epi32((__mmask16)(there >> i), p + 4 * i);
        some |= (uint64_t)_mm512_test_epi32_mask(x, x) << i;
      }
      break;
    case PLAIT_F32: // compared as numbers, which may take denormal ones for 0
      for (int i = 0; i < 64; i += 16) {
        __m512 x = _mm512_maskz_loadu_ps((__mmask16)(there >> i), p + 4 * i);
        some |= (uint64_t)_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ) << i;
      }
      break;
    case PLAIT_I64:
    case PLAIT_U64:
      for (int i = 0; i < 64; i += 8) {
        __m512i x = _mm512_maskz_loadu_epi64((__mmask8)(there >> i), p + 8 * i);
        some |= (uint64_t)_mm512_test_epi64_mask(x, x) << i;
      }
      break;
    default:
      for (int i = 0; i < 64; i += 8) {
        __m512d x = _mm512_maskz_loadu_pd((__mmask8)(there >> i), p + 8 * i);
        some |= (uint64_t)_mm512_cmp_pd_mask(x, _mm512_setzero_pd(), _CMP_NEQ_UQ) << i;
      }
    }
    for (int i = 0; some != 0; i += 8, some >>= 8) {
      __m512i at = _mm512_add_epi64(_mm512_set1_epi64(lo + i), lane);
      _mm512_storeu_si512(found + n, _mm512_maskz_compress_epi64((__mmask8)some, at));
      n += __builtin_popcount((unsigned)(some & 0xff));
    }
  }
  return n;
}
#endif

static int64_t find(const struct job *j, int64_t lo, int64_t hi, int64_t *found) {
#ifdef IS_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return find_avx512(j, lo, hi, found);
#endif
  return find_any(j, lo, hi, found);
}

static void count_chunk(void *arg, int64_t chunk) {
  struct job *j = arg;
  int64_t lo = chunk * NONZERO_CHUNK, hi = lo + NONZERO_CHUNK < j->n ? lo + NONZERO_CHUNK : j->n;
  j->offsets[chunk] = count_range(j, lo, hi);
}

static void fill_chunk(void *arg, int64_t chunk) {
  struct job *j = arg;
  int64_t lo = chunk * NONZERO_CHUNK, hi = lo + NONZERO_CHUNK < j->n ? lo + NONZERO_CHUNK : j->n;
  int64_t *out = j->out + j->offsets[chunk] * j->ndim, at[PLAIT_MAX_DIMS] = {0}, found[BLOCK + 8];
  int last = j->ndim - 1;
  int64_t width = last < 0 ? 1 : j->shape[last], row = lo / width * width, rest = lo / width;
  for (int d = last - 1; d >= 0; d--) {
    at[d] = rest % j->shape[d];
    rest /= j->shape[d];
  }
  for (; lo < hi; lo += BLOCK) {
    int64_t n = find(j, lo, lo + BLOCK < hi ? lo + BLOCK : hi, found);
    if (last == 0) {
      memcpy(out, found, (size_t)n * sizeof *out);
      out += n;
      continue;
    }
    for (int64_t i = 0; i < n; i++) {
      for (; found[i] - row >= width; row += width) {
        for (int d = last - 1; d >= 0 && ++at[d] == j->shape[d]; d--) at[d] = 0;
      }
      for (int d = 0; d < last; d++) *out++ = at[d];
      if (last >= 0) *out++ = found[i] - row;
    }
  }
}

void plaitk_indexing_nonzero(plait_pool *pool, const void *in, int32_t dtype, int64_t n, int32_t ndim, const int64_t *shape,
                             int64_t *offsets, int64_t *out) {
  struct job j = {in, dtype, ndim, n, shape, offsets, out};
  int64_t chunks = (n + NONZERO_CHUNK - 1) / NONZERO_CHUNK, total = 0;
  plait_parallel_parts(pool, chunks, count_chunk, &j);
  for (int64_t i = 0; i < chunks; i++) {
    int64_t count = offsets[i];
    offsets[i] = total;
    total += count;
  }
  plait_parallel_parts(pool, chunks, fill_chunk, &j);
}
