#include "fft.h"

#if defined(__x86_64__) && defined(__GNUC__)

#define T float
#define INT int32_t
#define LANES 16
#define TARGET __attribute__((target("arch=x86-64-v4,prefer-vector-width=512")))
#define OUTPUTS 4
#define NAME(x) x##_f32_avx512
#include "codelets.h"

#define T double
#define INT int64_t
#define LANES 8
#define TARGET __attribute__((target("arch=x86-64-v4,prefer-vector-width=512")))
#define OUTPUTS 4
#define NAME(x) x##_f64_avx512
#include "codelets.h"

#define T float
#define INT int32_t
#define LANES 8
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define OUTPUTS 2
#define NAME(x) x##_f32_avx2
#include "codelets.h"

#define T double
#define INT int64_t
#define LANES 4
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define OUTPUTS 2
#define NAME(x) x##_f64_avx2
#include "codelets.h"

#endif

#define T float
#define INT int32_t
#define LANES 4
#define TARGET
#define OUTPUTS 2
#define NAME(x) x##_f32_baseline
#include "codelets.h"

#define T double
#define INT int64_t
#define LANES 2
#define TARGET
#define OUTPUTS 2
#define NAME(x) x##_f64_baseline
#include "codelets.h"

const struct fft_kernels *fft_kernels_of(int dtype) {
  int wide = dtype == PLAIT_F64;
#if defined(__x86_64__) && defined(__GNUC__)
  if (__builtin_cpu_supports("x86-64-v4")) return wide ? &kernels_f64_avx512 : &kernels_f32_avx512;
  if (__builtin_cpu_supports("x86-64-v3")) return wide ? &kernels_f64_avx2 : &kernels_f32_avx2;
#endif
  return wide ? &kernels_f64_baseline : &kernels_f32_baseline;
}
