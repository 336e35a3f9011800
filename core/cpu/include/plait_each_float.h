// Includes the file PLAIT_TEMPLATE (a path relative to this folder) once for every floating dtype. The template names
// its functions FN(name), stores T, computes in ACC (float32 for the 16-bit types), and converts with LOAD and STORE.
// WIDE is 1 if T and ACC are one type, so that an array of T can hold intermediate values. EXP takes arguments up to 0.
#include <math.h>

#include "plait_kernel.h"
#include "plait_exp_below.h"
#include "plait_vmath.h"

#ifndef FN
#define PLAIT_PASTE_(a, b) a##_##b
#define PLAIT_PASTE(a, b) PLAIT_PASTE_(a, b)
#define FN(name) PLAIT_PASTE(name, SUFFIX)
#endif

#ifdef PLAIT_TEMPLATE

#define SUFFIX f32
#define T float
#define ACC float
#define ACC_INFINITY INFINITY
#define LOAD(v) (v)
#define STORE(v) (v)
#define EXP(v) plait_exp_belowf(v)
#define LOG(v) plait_vm_logf(v)
#define WIDE 1
#include PLAIT_TEMPLATE
#undef SUFFIX
#undef T
#undef LOAD
#undef STORE
#undef WIDE

#define WIDE 0
#define T uint16_t

#define SUFFIX f16
#define LOAD(v) plait_f16_to_f32(v)
#define STORE(v) plait_f32_to_f16(v)
#include PLAIT_TEMPLATE
#undef SUFFIX
#undef LOAD
#undef STORE

#define SUFFIX bf16
#define LOAD(v) plait_bf16_to_f32(v)
#define STORE(v) plait_f32_to_bf16(v)
#include PLAIT_TEMPLATE
#undef SUFFIX
#undef LOAD
#undef STORE
#undef WIDE
#undef T
#undef ACC
#undef EXP
#undef LOG

#define SUFFIX f64
#define T double
#define ACC double
#define LOAD(v) (v)
#define STORE(v) (v)
#define EXP(v) plait_vm_exp(v)
#define LOG(v) plait_vm_log(v)
#define WIDE 1
#include PLAIT_TEMPLATE
#undef SUFFIX
#undef T
#undef ACC
#undef ACC_INFINITY
#undef LOAD
#undef STORE
#undef EXP
#undef LOG
#undef WIDE
#undef PLAIT_TEMPLATE

#endif
