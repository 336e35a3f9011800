// Calls whose operands are complex numbers, rather than their real and imaginary parts.
#include "plan.h"

#include <string.h>

#define WIDEN(name, T)                                                                            \
  PLAIT_CLONES static void name(void *restrict to, const void *restrict from, int64_t n) {         \
    T *out = to;                                                                                  \
    const T *in = from;                                                                           \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) out[2 * i] = in[i], out[2 * i + 1] = 0; \
  }
WIDEN(widen_f32, float)
WIDEN(widen_f64, double)

plaitk_convert plaitk_elementwise_widen(int dtype) { return dtype == PLAIT_F64 ? widen_f64 : widen_f32; }

// Makes one operand of two that are the parts of complex numbers. The second part of real ones is the number 0.
static bool join_parts(const plaitk_elementwise_call *call, int type, const plaitk_elementwise_operand *re,
                       const plaitk_elementwise_operand *im, plaitk_elementwise_operand *to) {
  to->data = re->data;
  to->dtype = type == PLAIT_F64 ? PAIR_F64 : PAIR_F32;
  if (re->data == NULL) {
    to->value = re->value;
    to->imaginary = im->value.f;
    return im->data == NULL;
  }
  if (re->dtype != type) return false;
  if (im->data == NULL) {
    to->dtype = type;
    for (int64_t d = 0; d < call->ndim; d++) to->stride[d] = re->stride[d];
    return im->value.f == 0;
  }
  if (im->dtype != type || (char *)im->data != (char *)re->data + plait_dtype_size(type)) return false;
  for (int64_t d = 0; d < call->ndim; d++) {
    if (call->shape[d] != 1 && (re->stride[d] != im->stride[d] || re->stride[d] % 2 != 0)) return false;
    to->stride[d] = re->stride[d] / 2;
  }
  return true;
}

static void copy_operand(const plaitk_elementwise_call *call, const plaitk_elementwise_operand *from, plaitk_elementwise_operand *to) {
  to->data = from->data;
  to->value = from->value;
  to->dtype = from->dtype;
  for (int64_t d = 0; d < call->ndim; d++) to->stride[d] = from->stride[d];
}

bool plaitk_elementwise_join(const plaitk_elementwise_call *call, plaitk_elementwise_call *joined,
                             plaitk_elementwise_kernel *kernel) {
  const plaitk_elementwise_kernel *k = call->kernel;
  if (k->pairs == NULL) return false;
  *kernel = (plaitk_elementwise_kernel){.loop = k->pairs};
  int n = 0, all = k->nin + k->nout;
  for (int i = 0; i < all; n++) {
    int type = k->type[i];
    const plaitk_elementwise_operand *o = &call->operand[i];
    bool in = i < k->nin, pair = type != PLAIT_BOOL && (in || k->nout > 1);
    kernel->type[n] = (uint8_t)(!pair ? type : type == PLAIT_F64 ? PAIR_F64 : PAIR_F32);
    if (!pair) copy_operand(call, o, &joined->operand[n]);
    else if (!join_parts(call, type, o, o + 1, &joined->operand[n])) return false;
    if (in) kernel->nin++;
    else kernel->nout++;
    i += pair ? 2 : 1;
  }
  joined->kernel = kernel;
  joined->ndim = call->ndim;
  memcpy(joined->shape, call->shape, (size_t)call->ndim * sizeof call->shape[0]);
  memcpy(joined->attr, call->attr, sizeof call->attr);
  return true;
}

enum { WHOLE = 16 };  // elements that fill the vectors of any loop

// Reports whether an output is an input.
static bool in_place(const plaitk_elementwise_kernel *kernel, void *const *ptr) {
  for (int o = kernel->nin; o < kernel->nin + kernel->nout; o++) {
    for (int i = 0; i < kernel->nin; i++) {
      if (ptr[o] == ptr[i]) return true;
    }
  }
  return false;
}

// Runs the loop over n < WHOLE elements by way of blocks.
static int64_t run_rest(const plaitk_elementwise_kernel *kernel, void *const *ptr, const plaitk_scalar *attr, int64_t n) {
  int all = kernel->nin + kernel->nout;
  _Alignas(64) char block[PLAITK_ELEMENTWISE_MAX_OPERANDS][WHOLE * 16];
  void *at[PLAITK_ELEMENTWISE_MAX_OPERANDS];
  for (int k = 0; k < all; k++) {
    int64_t size = size_of(kernel->type[k]);
    at[k] = block[k];
    if (k >= kernel->nin) continue;
    memcpy(block[k], ptr[k], (size_t)(n * size));
    memset(block[k] + n * size, 0, (size_t)((WHOLE - n) * size));
  }
  int64_t status = kernel->loop(at, at + kernel->nin, attr, WHOLE);
  for (int k = kernel->nin; k < all; k++) memcpy(ptr[k], block[k], (size_t)(n * size_of(kernel->type[k])));
  return status;
}

// Which products compilers fuse with a sum differs between a loop's vectors and what is left of its elements. So the last
// elements are computed in a run that fills vectors, and results do not depend on an element's place.
int64_t plaitk_elementwise_run_pairs(const plaitk_elementwise_kernel *kernel, void *const *ptr, const plaitk_scalar *attr, int64_t n) {
  int64_t rest = n % WHOLE, whole = n - rest, status = 0;
  if (whole > 0) status = kernel->loop(ptr, ptr + kernel->nin, attr, whole);
  if (rest == 0) return status;
  bool again = whole > 0 && !in_place(kernel, ptr);  // earlier elements may be computed again
  void *at[PLAITK_ELEMENTWISE_MAX_OPERANDS];
  for (int k = 0; k < kernel->nin + kernel->nout; k++) {
    at[k] = (char *)ptr[k] + (again ? n - WHOLE : whole) * size_of(kernel->type[k]);
  }
  if (again) return status | kernel->loop(at, at + kernel->nin, attr, WHOLE);
  return status | run_rest(kernel, at, attr, rest);
}
