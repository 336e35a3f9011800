#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Numbers of the library's interface.
enum {
  COMPUTE_F32 = 68,
  COMPUTE_F64 = 70,
  COMPUTE_TF32 = 77,

  DESC_TRANSPOSE_A = 3,
  DESC_TRANSPOSE_B = 4,
  DESC_EPILOGUE = 7,
  DESC_BIAS = 8,

  EPILOGUE_BIAS = 4,

  LAYOUT_COUNT = 5,
  LAYOUT_NEXT = 6,

  PREFER_WORKSPACE = 1,
  PREFER_REDUCTION = 3,
  PREFER_ALIGN_A = 5,
  PREFER_ALIGN_B = 6,
  PREFER_ALIGN_C = 7,
  PREFER_ALIGN_D = 8,
  PREFER_NUMERICS = 12,

  // How partial sums are added up. They are kept in the type of the result, or in the type of sums.
  REDUCE_SUMS = 2,
  REDUCE_ALL = 7,
};

// Properties of algorithms.
#define TENSOR_CORES UINT64_C(0xfe)
#define SUMS_F16 (UINT64_C(1) << 8)
#define INPUT_F16 (UINT64_C(1) << 16)
#define INPUT_BF16 (UINT64_C(2) << 16)
#define INPUT_TF32 (UINT64_C(4) << 16)

typedef struct {
  uint64_t words[8];
} algorithm;

typedef struct {
  algorithm algo;
  size_t workspace;
  int32_t status;
  float waves;
  int32_t reserved[4];
} heuristic;

_Static_assert(sizeof(heuristic) == 96, "as the library lays it out");

// The library's functions.
static struct {
  size_t (*version)(void);
  const char *(*status)(int status);
  int (*create)(void **handle);
  int (*destroy)(void *handle);
  int (*desc_create)(void **desc, int compute, int scale);
  int (*desc_destroy)(void *desc);
  int (*desc_set)(void *desc, int attribute, const void *value, size_t size);
  int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t step);
  int (*layout_destroy)(void *layout);
  int (*layout_set)(void *layout, int attribute, const void *value, size_t size);
  int (*prefer_create)(void **preference);
  int (*prefer_destroy)(void *preference);
  int (*prefer_set)(void *preference, int attribute, const void *value, size_t size);
  int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int most, heuristic *found, int *count);
  int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *layout_a, const void *b, void *layout_b, const void *beta,
                const void *c, void *layout_c, void *d, void *layout_d, const algorithm *algo, void *workspace, size_t size, void *stream);
} library;

static const struct {
  const char *name;
  void *at;
} symbols[] = {
    {"cublasLtGetVersion", &library.version},
    {"cublasLtGetStatusString", &library.status},
    {"cublasLtCreate", &library.create},
    {"cublasLtDestroy", &library.destroy},
    {"cublasLtMatmulDescCreate", &library.desc_create},
    {"cublasLtMatmulDescDestroy", &library.desc_destroy},
    {"cublasLtMatmulDescSetAttribute", &library.desc_set},
    {"cublasLtMatrixLayoutCreate", &library.layout_create},
    {"cublasLtMatrixLayoutDestroy", &library.layout_destroy},
    {"cublasLtMatrixLayoutSetAttribute", &library.layout_set},
    {"cublasLtMatmulPreferenceCreate", &library.prefer_create},
    {"cublasLtMatmulPreferenceDestroy", &library.prefer_destroy},
    {"cublasLtMatmulPreferenceSetAttribute", &library.prefer_set},
    {"cublasLtMatmulAlgoGetHeuristic", &library.heuristic},
    {"cublasLtMatmul", &library.matmul},
};

struct plaitk_lt {
  void *handle, *context;
  int (*push)(void *context), (*pop)(void **context);
};

struct plaitk_lt_plan {
  void *desc, *a, *b, *c;
  int is_double, bias;
  algorithm algo;
  size_t workspace;
};

uint64_t plaitk_lt_load(const char *path, char text[PLAITK_LT_TEXT]) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!handle) {
    const char *why = dlerror();
    snprintf(text, PLAITK_LT_TEXT, "%s", why ? why : "it is not loaded");
    return 0;
  }
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *symbol = dlsym(handle, symbols[i].name);
    if (!symbol) {
      snprintf(text, PLAITK_LT_TEXT, "%s: it has no function %s", path, symbols[i].name);
      dlclose(handle);
      return 0;
    }
    memcpy(symbols[i].at, &symbol, sizeof symbol);
  }
  return library.version();
}

const char *plaitk_lt_status(int status) { return library.status(status); }

// Makes the handle's context current. Without a context it does nothing.
static int enter(plaitk_lt *lt) { return lt->context ? lt->push(lt->context) : 0; }

static void leave(plaitk_lt *lt) {
  void *context;
  if (lt->context) lt->pop(&context);
}

enum { NOT_INITIALIZED = 1, NO_MEMORY = 3 };

plaitk_lt *plaitk_lt_open(void *context, int *status) {
  plaitk_lt *lt = calloc(1, sizeof *lt);
  *status = NO_MEMORY;
  if (!lt) return NULL;
  if (context) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *(void **)&lt->push = driver ? dlsym(driver, "cuCtxPushCurrent_v2") : NULL;
    *(void **)&lt->pop = driver ? dlsym(driver, "cuCtxPopCurrent_v2") : NULL;
    lt->context = lt->push && lt->pop ? context : NULL;
  }
  *status = context && !lt->context ? NOT_INITIALIZED : enter(lt);
  if (!*status) {
    *status = library.create(&lt->handle);
    leave(lt);
  }
  if (!*status) return lt;
  free(lt);
  return NULL;
}

void plaitk_lt_close(plaitk_lt *lt) {
  if (!enter(lt)) {
    library.destroy(lt->handle);
    leave(lt);
  }
  free(lt);
}

void plaitk_lt_free(plaitk_lt_plan *plan) {
  if (plan->desc) library.desc_destroy(plan->desc);
  if (plan->a) library.layout_destroy(plan->a);
  if (plan->b) library.layout_destroy(plan->b);
  if (plan->c) library.layout_destroy(plan->c);
  free(plan);
}

static int describe_operation(plaitk_lt_plan *plan, const plaitk_lt_shape *shape) {
  int compute = COMPUTE_F32;
  if (plan->is_double) compute = COMPUTE_F64;
  if (shape->factors == PLAITK_LT_F32 && shape->reduced) compute = COMPUTE_TF32;
  int status = library.desc_create(&plan->desc, compute, plan->is_double ? PLAITK_LT_F64 : PLAITK_LT_F32);
  if (!status) status = library.desc_set(plan->desc, DESC_TRANSPOSE_A, &shape->ta, sizeof shape->ta);
  if (!status) status = library.desc_set(plan->desc, DESC_TRANSPOSE_B, &shape->tb, sizeof shape->tb);
  if (!status && shape->bias) {
    int32_t epilogue = EPILOGUE_BIAS;
    void *pointer = (void *)(uintptr_t)shape->align_bias; // the library looks at its alignment
    status = library.desc_set(plan->desc, DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (!status) status = library.desc_set(plan->desc, DESC_BIAS, &pointer, sizeof pointer);
  }
  return status;
}

static int describe_matrix(void **layout, int type, uint64_t rows, uint64_t columns, int64_t step, int32_t count, int64_t next) {
  int status = library.layout_create(layout, type, rows, columns, step);
  if (!status && count > 1) status = library.layout_set(*layout, LAYOUT_COUNT, &count, sizeof count);
  if (!status && count > 1) status = library.layout_set(*layout, LAYOUT_NEXT, &next, sizeof next);
  return status;
}

plaitk_lt_plan *plaitk_lt_describe(const plaitk_lt_shape *shape, int *status) {
  plaitk_lt_plan *plan = calloc(1, sizeof *plan);
  *status = NO_MEMORY;
  if (!plan) return NULL;
  const plaitk_lt_shape *s = shape;
  plan->is_double = s->factors == PLAITK_LT_F64;
  plan->bias = s->bias;
  *status = describe_operation(plan, s);
  if (!*status) {
    *status = describe_matrix(&plan->a, s->factors, s->ta ? s->k : s->m, s->ta ? s->m : s->k, s->lda, s->count, s->next_a);
  }
  if (!*status) {
    *status = describe_matrix(&plan->b, s->factors, s->tb ? s->n : s->k, s->tb ? s->k : s->n, s->ldb, s->count, s->next_b);
  }
  if (!*status) *status = describe_matrix(&plan->c, s->result, s->m, s->n, s->ldc, s->count, s->next_c);
  if (!*status) return plan;
  plaitk_lt_free(plan);
  return NULL;
}

// Sets what an algorithm may do. Sums are added in an order that only the shape decides, and in their own type unless
// the shape is reduced. Factors are not rounded to a smaller type than its numerics say.
static int prefer(void *preference, const plaitk_lt_shape *shape) {
  uint32_t reduction = shape->reduced && shape->factors != PLAITK_LT_F32 ? REDUCE_ALL : REDUCE_SUMS;
  uint64_t forbidden = 0;
  if (shape->factors != PLAITK_LT_F64) forbidden = SUMS_F16;
  if (shape->factors == PLAITK_LT_F32) {
    forbidden |= INPUT_F16 | INPUT_BF16 | (shape->reduced ? 0 : TENSOR_CORES | INPUT_TF32);
  }
  uint64_t allowed = ~forbidden;
  const struct {
    int attribute;
    const void *value;
    size_t size;
  } list[] = {
      {PREFER_WORKSPACE, &shape->workspace, sizeof shape->workspace},
      {PREFER_REDUCTION, &reduction, sizeof reduction},
      {PREFER_ALIGN_A, &shape->align_a, sizeof shape->align_a},
      {PREFER_ALIGN_B, &shape->align_b, sizeof shape->align_b},
      {PREFER_ALIGN_C, &shape->align_c, sizeof shape->align_c},
      {PREFER_ALIGN_D, &shape->align_c, sizeof shape->align_c},
      {PREFER_NUMERICS, &allowed, sizeof allowed},
  };
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    int status = library.prefer_set(preference, list[i].attribute, list[i].value, list[i].size);
    if (status) return status;
  }
  return 0;
}

int plaitk_lt_choose(plaitk_lt *lt, plaitk_lt_plan *plan, const plaitk_lt_shape *shape) {
  void *preference;
  int status = library.prefer_create(&preference);
  if (status) return status;
  status = prefer(preference, shape);
  heuristic found = {0};
  int count = 0;
  if (!status && lt) {
    if (!(status = enter(lt))) {
      status = library.heuristic(lt->handle, plan->desc, plan->a, plan->b, plan->c, plan->c, preference, 1, &found, &count);
      leave(lt);
    }
    if (!status && (count == 0 || found.status)) status = PLAITK_LT_UNSUPPORTED;
  }
  library.prefer_destroy(preference);
  plan->algo = found.algo;
  plan->workspace = found.workspace;
  return status;
}

int plaitk_lt_run(plaitk_lt *lt, const plaitk_lt_product *p, void *stream) {
  plaitk_lt_plan *plan = p->plan;
  if (plan->bias) {
    int status = library.desc_set(plan->desc, DESC_BIAS, &p->bias, sizeof p->bias);
    if (status) return status;
  }
  float alpha = (float)p->alpha, beta = (float)p->beta;
  const void *by = plan->is_double ? (const void *)&p->alpha : &alpha;
  const void *old = plan->is_double ? (const void *)&p->beta : &beta;
  void *c = (void *)(uintptr_t)p->c;
  return library.matmul(lt->handle, plan->desc, by, (const void *)(uintptr_t)p->a, plan->a, (const void *)(uintptr_t)p->b, plan->b, old, c,
                        plan->c, c, plan->c, &plan->algo, (void *)(uintptr_t)p->workspace, plan->workspace, stream);
}
