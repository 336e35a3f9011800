#define _GNU_SOURCE
#include "dlpack.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

extern void plaitkDlpackEnd(int64_t export);

typedef struct dl_tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;

typedef struct managed {
  dl_tensor tensor;
  void *context;
  void (*deleter)(void *);
} managed;

typedef struct managed_versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(void *);
  uint64_t flags;
  dl_tensor tensor;
} managed_versioned;

// A managed tensor, first, and what belongs to it.
typedef struct holder {
  union {
    managed old;
    managed_versioned now;
  } managed;
  int64_t export;
  pid_t process;
  int64_t dims[];
} holder;

static void delete(void *p) {
  holder *h = p;
  // In a forked child nothing of the engine runs that could take the export back.
  if (h->process == getpid()) plaitkDlpackEnd(h->export);
  free(h);
}

void *plaitk_dlpack_new(void *data, int32_t ndim, int32_t code, int32_t bits, const int64_t *shape, const int64_t *strides,
                        int32_t versioned, uint64_t flags, int64_t export) {
  holder *h = calloc(1, sizeof *h + 2 * sizeof(int64_t) * (size_t)ndim);
  if (h == NULL) return NULL;
  for (int32_t i = 0; i < ndim; i++) {
    h->dims[i] = shape[i];
    h->dims[ndim + i] = strides[i];
  }
  h->export = export;
  h->process = getpid();
  dl_tensor t = {.data = data,
                 .device_type = 1,
                 .ndim = ndim,
                 .code = (uint8_t)code,
                 .bits = (uint8_t)bits,
                 .lanes = 1,
                 .shape = h->dims,
                 .strides = h->dims + ndim};
  if (versioned) {
    h->managed.now = (managed_versioned){.major = 1, .deleter = delete, .flags = flags, .tensor = t};
  } else {
    h->managed.old = (managed){.deleter = delete, .tensor = t};
  }
  return h;
}

void plaitk_dlpack_destroy(void *capsule) {
  int (*valid)(void *, const char *) = (int (*)(void *, const char *))dlsym(RTLD_DEFAULT, "PyCapsule_IsValid");
  void *(*pointer)(void *, const char *) = (void *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "PyCapsule_GetPointer");
  if (valid == NULL || pointer == NULL) return;
  // A capsule that somebody took has another name.
  const char *names[] = {"dltensor", "dltensor_versioned"};
  for (size_t i = 0; i < 2; i++) {
    if (valid(capsule, names[i])) delete (pointer(capsule, names[i]));
  }
}

void plaitk_dlpack_delete(int64_t managed, int64_t deleter) { ((void (*)(void *))(intptr_t)deleter)((void *)(intptr_t)managed); }
