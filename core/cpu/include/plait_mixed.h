// Parameters, whose dtype may differ from that of the data, and the type that both are accumulated in.
#ifndef PLAIT_MIXED_H
#define PLAIT_MIXED_H

#include "plait_view.h"

PLAIT_INLINE double plait_load(const void *p, int dtype, int64_t i) {
  switch (dtype) {
    case PLAIT_F16: return plait_f16_to_f32(((const uint16_t *)p)[i]);
    case PLAIT_BF16: return plait_bf16_to_f32(((const uint16_t *)p)[i]);
    case PLAIT_F32: return ((const float *)p)[i];
    default: return ((const double *)p)[i];
  }
}

PLAIT_INLINE void plait_store(void *p, int dtype, int64_t i, double v) {
  switch (dtype) {
    case PLAIT_F16: ((uint16_t *)p)[i] = plait_f32_to_f16((float)v); break;
    case PLAIT_BF16: ((uint16_t *)p)[i] = plait_f32_to_bf16((float)v); break;
    case PLAIT_F32: ((float *)p)[i] = (float)v; break;
    default: ((double *)p)[i] = v;
  }
}

// The accumulator type for data of a dtype.
PLAIT_INLINE int plait_acc_dtype(int dtype) { return dtype == PLAIT_F64 ? PLAIT_F64 : PLAIT_F32; }

#endif
