#include "gemm.h"

#include <stdatomic.h>

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

#include "dots_bf16.h"

#if defined(__linux__) && defined(__has_include)
#if __has_include(<amxbf16intrin.h>) || __has_include(<amxintrin.h>)
#define AMX 1
#include "amx.h"
#endif
#endif

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

#ifdef AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

// Asks the system for the tile registers, which a process may use only then.
static bool allows_tiles(void) {
  const long request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request, tile_data) == 0;
}

static bool finds_tiles(void) {
  const unsigned tiles = 1u << 22 | 1u << 24;  // AMX-BF16, AMX-TILE
  unsigned a, b, c, d;
  return __builtin_cpu_supports("x86-64-v4") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tiles) == tiles &&
         allows_tiles();
}

static bool has_tiles(void) {
  static atomic_int known = -1;
  if (atomic_load_explicit(&known, memory_order_relaxed) < 0) atomic_store(&known, finds_tiles());
  return atomic_load_explicit(&known, memory_order_relaxed);
}
#endif

#if defined(__x86_64__) && defined(__GNUC__)
static bool has_dots(void) { return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16"); }
#endif

const gemm_kernels *gemm_pair_kernels_of(int variant, int dtype) {
#ifdef AMX
  if (variant == PLAITK_GEMM_AMX && dtype == PLAIT_BF16 && has_tiles()) return &kernels_amx;
#endif
#if defined(__x86_64__) && defined(__GNUC__)
  if (variant == PLAITK_GEMM_AVX512_BF16 && dtype == PLAIT_BF16 && has_dots()) return &kernels_bf16;
#endif
  (void)variant, (void)dtype;
  return NULL;
}

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
    case PLAITK_GEMM_AVX512_BF16:
      if (!has_dots()) return NULL;
      return wide ? &kernels_f64_avx512 : &kernels_f32_avx512;
#endif
#ifdef AMX
    case PLAITK_GEMM_AMX:
      if (!has_tiles()) return NULL;
      return wide ? &kernels_f64_avx512 : &kernels_f32_avx512;
#endif
    default: return NULL;
  }
}
