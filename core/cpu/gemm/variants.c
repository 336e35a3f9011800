#include "kernels.h"
#include "../include/plait_gemm.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define T float
#define LOAD_PART(p, n) (V)_mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p)
#define STORE_PART(p, n, x) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), (__m512)(x))
#define LANES 16
#define MR 12
#define NV 2
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define NAME(x) x##_f32_avx512
#include "tile.h"

#define T double
#define LOAD_PART(p, n) (V)_mm512_maskz_loadu_pd((__mmask8)((1u << (n)) - 1), p)
#define STORE_PART(p, n, x) _mm512_mask_storeu_pd(p, (__mmask8)((1u << (n)) - 1), (__m512d)(x))
#define LANES 8
#define MR 8
#define NV 3
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define NAME(x) x##_f64_avx512
#include "tile.h"

// A mask of the first n elements is eight adjacent numbers of this table.
static const int32_t first_of_8[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
#define MASK(p, n) _mm256_loadu_si256((const __m256i *)(first_of_8 + 8 - (n) * (int64_t)(sizeof *(p) / 4)))

#define T float
#define LOAD_PART(p, n) (V)_mm256_maskload_ps(p, MASK(p, n))
#define STORE_PART(p, n, x) _mm256_maskstore_ps(p, MASK(p, n), (__m256)(x))
#define LANES 8
#define MR 6
#define NV 2
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define NAME(x) x##_f32_avx2
#include "tile.h"

#define T double
#define LOAD_PART(p, n) (V)_mm256_maskload_pd(p, MASK(p, n))
#define STORE_PART(p, n, x) _mm256_maskstore_pd(p, MASK(p, n), (__m256d)(x))
#define LANES 4
#define MR 4
#define NV 3
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define NAME(x) x##_f64_avx2
#include "tile.h"

#endif

// Tile of the baseline: amd64 has 16 vector registers, arm64 has 32.
#if defined(__aarch64__)
#define BASELINE_MR 8
#define BASELINE_NV 3
#else
#define BASELINE_MR 4
#define BASELINE_NV 2
#endif

#define PART(p, n, x, to, from)                     \
  ({                                                \
    V part = x;                                     \
    memcpy(to, from, (size_t)(n) * sizeof *(p));    \
    part;                                           \
  })

#define T float
#define LOAD_PART(p, n) PART(p, n, (V){0}, &part, p)
#define STORE_PART(p, n, x) (void)PART(p, n, x, p, &part)
#define LANES 4
#define MR BASELINE_MR
#define NV BASELINE_NV
#define TARGET
#define NAME(x) x##_f32_baseline
#include "tile.h"

#define T double
#define LOAD_PART(p, n) PART(p, n, (V){0}, &part, p)
#define STORE_PART(p, n, x) (void)PART(p, n, x, p, &part)
#define LANES 2
#define MR BASELINE_MR
#define NV BASELINE_NV
#define TARGET
#define NAME(x) x##_f64_baseline
#include "tile.h"

const gemm_kernels *gemm_kernels_of(int variant, int dtype) {
  int wide = dtype == PLAIT_F64;
  switch (variant) {
    case PLAITK_GEMM_BASELINE: return wide ? &kernels_f64_baseline : &kernels_f32_baseline;
#if defined(__x86_64__) && defined(__GNUC__)
    case PLAITK_GEMM_AVX2:
      if (!__builtin_cpu_supports("x86-64-v3")) return NULL;
      return wide ? &kernels_f64_avx2 : &kernels_f32_avx2;
    case PLAITK_GEMM_AVX512:
      if (!__builtin_cpu_supports("x86-64-v4")) return NULL;
      return wide ? &kernels_f64_avx512 : &kernels_f32_avx512;
#endif
    default: return NULL;
  }
}
