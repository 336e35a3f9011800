#include "kernels.h"
#include "../include/plait_gemm.h"

#if defined(__x86_64__) && defined(__GNUC__)

#define T float
#define LANES 16
#define MR 12
#define NV 2
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define NAME(x) x##_f32_avx512
#include "tile.h"

#define T double
#define LANES 8
#define MR 8
#define NV 3
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define NAME(x) x##_f64_avx512
#include "tile.h"

#define T float
#define LANES 8
#define MR 6
#define NV 2
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define NAME(x) x##_f32_avx2
#include "tile.h"

#define T double
#define LANES 4
#define MR 4
#define NV 3
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define NAME(x) x##_f64_avx2
#include "tile.h"

#endif

// The baseline has 16 vector registers on amd64, 32 on arm64.
#if defined(__aarch64__)
#define BASELINE_MR 8
#define BASELINE_NV 3
#else
#define BASELINE_MR 4
#define BASELINE_NV 2
#endif

#define T float
#define LANES 4
#define MR BASELINE_MR
#define NV BASELINE_NV
#define TARGET
#define NAME(x) x##_f32_baseline
#include "tile.h"

#define T double
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
