#include "micro.h"

#include <stdatomic.h>

#include "conv.h"

// Baseline: 16-byte vectors, which all amd64 and arm64 processors have.
#if defined(__aarch64__)
#define BASE_WIDE 1
#else
#define BASE_WIDE 0
#endif
#define T float
#define TSIZE 4
#define VB 16
#define WIDE BASE_WIDE
#define ATTR
#define NAME(x) x##_f32_base
#include "tiles.h"

#define T double
#define TSIZE 8
#define VB 16
#define WIDE BASE_WIDE
#define ATTR
#define NAME(x) x##_f64_base
#include "tiles.h"

#if defined(__x86_64__)
#define T float
#define TSIZE 4
#define VB 32
#define WIDE 0
#define ATTR __attribute__((target("avx2,fma")))
#define NAME(x) x##_f32_avx2
#include "tiles.h"

#define T double
#define TSIZE 8
#define VB 32
#define WIDE 0
#define ATTR __attribute__((target("avx2,fma")))
#define NAME(x) x##_f64_avx2
#include "tiles.h"

#define T float
#define TSIZE 4
#define VB 64
#define WIDE 1
#define ATTR __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#define NAME(x) x##_f32_avx512
#include "tiles.h"

#define T double
#define TSIZE 8
#define VB 64
#define WIDE 1
#define ATTR __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")))
#define NAME(x) x##_f64_avx512
#include "tiles.h"
#endif

static int detect(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    return 2;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
  return 0;
}

static atomic_int level = -1;

static int isa(void) {
  int l = atomic_load_explicit(&level, memory_order_relaxed);
  if (l < 0) {
    l = detect();
    atomic_store_explicit(&level, l, memory_order_relaxed);
  }
  return l;
}

int64_t plaitk_conv_isa(int64_t limit) {
  int l = detect();
  atomic_store(&level, (int)(limit < l ? limit : l));
  return isa();
}

const plaitk_conv_micro *plaitk_conv_micro_for(int is_double) {
#if defined(__x86_64__)
  switch (isa()) {
    case 2: return is_double ? &micro_f64_avx512 : &micro_f32_avx512;
    case 1: return is_double ? &micro_f64_avx2 : &micro_f32_avx2;
  }
#endif
  return is_double ? &micro_f64_base : &micro_f32_base;
}
