// A stand-in for libcuda that has no GPU: it copies bytes, computes nothing, and writes each call to a file. What is given
// to a stream runs when somebody asks for an event behind it for the second time, so that memory that is reused too early
// shows. It says what is still held when the context is released. The environment tells it what to fail:
//   FAKE_LOG      the file
//   FAKE_INIT     the result of cuInit
//   FAKE_VERSION  the driver's version, 13000 if unset
//   FAKE_DEVICES  the number of GPUs, 1 if unset
//   FAKE_CAPABILITY  their compute capability times ten, 90 if unset
//   FAKE_PEERS    whether they reach each other, 1 if unset
//   FAKE_SIGNALS  whether their streams can write and await words, 1 if unset
//   FAKE_FAIL     function:error
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../libcuda.h"

enum { INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };

struct CUctx_st {
  int depth;
};
struct CUevent_st {
  int recorded, asked, done; // recorded is the number of commands before it
};
struct CUstream_st {
  int unused;
};
struct CUmod_st {
  int unused;
};
struct CUfunc_st {
  int unused;
};
struct CUgraph_st {
  int from, count; // of the kept commands
};
struct CUgraphExec_st {
  struct CUgraph_st graph;
};

typedef struct {
  int kind; // 0 copy, 1 set, 2 launch
  CUdeviceptr to, from;
  size_t bytes;
} command;

static struct CUctx_st context;
static struct CUstream_st stream;
static struct CUmod_st module;
static struct CUfunc_st function;
static command commands[1 << 16];
static int given, run;
static command kept[1 << 16]; // of graphs
static int keeping = -1, keptCount; // keeping is the first command of the graph that is captured
static int memory, host, events, modules, streams, graphs; // held

static int number(const char *name, int otherwise) {
  const char *v = getenv(name);
  return v && *v ? atoi(v) : otherwise;
}

static void note(const char *format, ...) {
  const char *path = getenv("FAKE_LOG");
  FILE *f = path ? fopen(path, "a") : NULL;
  if (!f) return;
  va_list args;
  va_start(args, format);
  vfprintf(f, format, args);
  va_end(args);
  fputc('\n', f);
  fclose(f);
}

static CUresult result(const char *name) {
  const char *fail = getenv("FAKE_FAIL");
  size_t n = strlen(name);
  if (fail && !strncmp(fail, name, n) && fail[n] == ':') return atoi(fail + n + 1);
  return CUDA_SUCCESS;
}

#define CHECK(name)                                                                                                    \
  if (result(#name)) return result(#name);                                                                             \
  if (!context.depth) return INVALID_CONTEXT

CUresult cuInit(unsigned flags) { return flags ? 1 : number("FAKE_INIT", 0); }
CUresult cuDriverGetVersion(int *version) { return *version = number("FAKE_VERSION", 13000), 0; }
CUresult cuGetErrorName(CUresult error, const char **name) {
  static char text[32];
  snprintf(text, sizeof text, "ERROR_%d", error);
  return *name = text, 0;
}
CUresult cuGetErrorString(CUresult error, const char **text) {
  return *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "failed", 0;
}
CUresult cuDeviceGetCount(int *count) { return *count = number("FAKE_DEVICES", 1), 0; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  return *device = ordinal, ordinal < number("FAKE_DEVICES", 1) ? 0 : INVALID_DEVICE;
}
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  return snprintf(name, (size_t)length, "GPU %d", device), 0;
}
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  memset(uuid, 0x40, sizeof *uuid);
  return uuid->bytes[15] = (unsigned char)device, 0;
}
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  (void)device;
  int capability = number("FAKE_CAPABILITY", 90);
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return *value = capability / 10, 0;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return *value = capability % 10, 0;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return *value = 132, 0;
  case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return *value = 1024, 0;
  case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: return *value = number("FAKE_SIGNALS", 1), 0;
  default: return *value = 0, 0;
  }
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) { return (void)device, *bytes = (size_t)1 << 36, 0; }

CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice device) {
  if (result("cuDevicePrimaryCtxRetain")) return result("cuDevicePrimaryCtxRetain");
  note("retain %d", device);
  return *c = &context, 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  note("release %d: held %d memory, %d host, %d events, %d modules, %d streams", device, memory, host, events, modules, streams);
  if (graphs) note("held %d graphs", graphs);
  return 0;
}
CUresult cuCtxPushCurrent_v2(CUcontext c) { return c->depth++, 0; }
CUresult cuCtxPopCurrent_v2(CUcontext *c) { return *c = &context, context.depth-- > 0 ? 0 : INVALID_CONTEXT; }

CUresult cuStreamCreate(CUstream *s, unsigned flags) {
  CHECK(cuStreamCreate);
  note("stream %u", flags);
  return streams++, *s = &stream, 0;
}
CUresult cuStreamCreateWithPriority(CUstream *s, unsigned flags, int priority) {
  CHECK(cuStreamCreateWithPriority);
  note("stream %u of priority %d", flags, priority);
  return streams++, *s = &stream, 0;
}
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) {
  (void)s, (void)e;
  CHECK(cuStreamWaitEvent);
  note("wait %u", flags);
  return 0;
}
CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr at, uint32_t value, unsigned flags) {
  (void)s;
  CHECK(cuStreamWaitValue32_v2);
  note("await %u at %llu %u", value, at % 8, flags);
  return 0;
}
CUresult cuStreamWriteValue32_v2(CUstream s, CUdeviceptr at, uint32_t value, unsigned flags) {
  (void)s;
  CHECK(cuStreamWriteValue32_v2);
  note("signal %u at %llu %u", value, at % 8, flags);
  return 0;
}
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other) {
  return (void)device, (void)other, *can = number("FAKE_PEERS", 1), 0;
}
CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned flags) {
  (void)other;
  CHECK(cuCtxEnablePeerAccess);
  note("access %u", flags);
  return 0;
}
CUresult cuStreamDestroy_v2(CUstream s) { return (void)s, streams--, 0; }

static void advance(int to) {
  for (; run < to; run++) {
    command *c = &commands[run];
    if (c->kind == 0) memmove((void *)(size_t)c->to, (void *)(size_t)c->from, c->bytes);
    if (c->kind == 1) memset((void *)(size_t)c->to, 0, c->bytes);
  }
}

CUresult cuStreamQuery(CUstream s) {
  (void)s;
  CHECK(cuStreamQuery);
  advance(given);
  return 0;
}

CUresult cuEventCreate(CUevent *e, unsigned flags) {
  CHECK(cuEventCreate);
  note("event %u", flags);
  return events++, *e = calloc(1, sizeof **e), 0;
}
CUresult cuEventDestroy_v2(CUevent e) { return events--, free(e), 0; }
CUresult cuEventRecord(CUevent e, CUstream s) {
  (void)s;
  CHECK(cuEventRecord);
  note("record");
  *e = (struct CUevent_st){.recorded = given};
  return 0;
}
CUresult cuEventQuery(CUevent e) {
  CHECK(cuEventQuery);
  if (!e->asked++) return CUDA_ERROR_NOT_READY;
  advance(e->recorded);
  return 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
  CHECK(cuMemAlloc_v2);
  note("alloc %zu", bytes);
  return memory++, *at = (CUdeviceptr)(size_t)malloc(bytes), 0;
}
CUresult cuMemFree_v2(CUdeviceptr at) {
  CHECK(cuMemFree_v2);
  advance(given); // the library waits for what uses the memory
  note("free");
  return memory--, free((void *)(size_t)at), 0;
}
// A handle is the address: other processes are parts of this one.
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at) {
  CHECK(cuIpcGetMemHandle);
  note("share");
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &at, sizeof at);
  return 0;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle handle, unsigned flags) {
  CHECK(cuIpcOpenMemHandle_v2);
  note("open shared %u", flags);
  memcpy(at, &handle, sizeof *at);
  return memory++, 0;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr at) {
  (void)at;
  CHECK(cuIpcCloseMemHandle);
  note("close shared");
  return memory--, 0;
}
CUresult cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
  CHECK(cuMemHostAlloc);
  note("alloc host %zu %u", bytes, flags);
  return host++, *at = malloc(bytes), 0;
}
CUresult cuMemFreeHost(void *at) {
  CHECK(cuMemFreeHost);
  advance(given);
  note("free host");
  return host--, free(at), 0;
}

static CUresult give(command c) {
  if (keeping >= 0) return kept[keptCount++] = c, 0;
  commands[given++] = c;
  return 0;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
  (void)s;
  CHECK(cuMemcpyAsync);
  note("copy %zu", bytes);
  return give((command){0, to, from, bytes});
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream s) {
  (void)s;
  CHECK(cuMemsetD32Async);
  note("set %u x %zu", value, count);
  return give((command){1, to, 0, 4 * count});
}

CUresult cuModuleLoadData(CUmodule *m, const void *image) {
  CHECK(cuModuleLoadData);
  note("load %s", memcmp(image, "\x7f" "ELF", 4) ? "something" : "cubin");
  return modules++, *m = &module, 0;
}
CUresult cuModuleUnload(CUmodule m) { return (void)m, modules--, 0; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
  (void)m;
  CHECK(cuModuleGetFunction);
  note("function %s", name);
  return *f = &function, 0;
}
CUresult cuFuncSetAttribute(CUfunction f, int attribute, int value) {
  (void)f;
  CHECK(cuFuncSetAttribute);
  note("attribute %d = %d", attribute, value);
  return 0;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream s, void **params, void **extra) {
  (void)f, (void)s, (void)extra;
  CHECK(cuLaunchKernel);
  const unsigned *words = params[0];
  struct {
    CUdeviceptr at;
    uint64_t bytes;
  } *first = params[1];
  note("launch %u x %u x %u of %u x %u x %u, %u dynamic, first word %u, first buffer %llu bytes", gx, gy, gz, bx, by, bz,
       shared, words[0], (unsigned long long)first->bytes);
  return give((command){2, 0, 0, 0});
}

CUresult cuStreamBeginCapture_v2(CUstream s, int mode) {
  (void)s;
  CHECK(cuStreamBeginCapture_v2);
  note("capture %d", mode);
  return keeping = keptCount, 0;
}
CUresult cuStreamEndCapture(CUstream s, CUgraph *graph) {
  (void)s;
  struct CUgraph_st g = {keeping, keptCount - keeping};
  keeping = -1;
  *graph = NULL;
  CHECK(cuStreamEndCapture);
  note("captured %d", g.count);
  *graph = malloc(sizeof g), **graph = g;
  return graphs++, 0;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  CHECK(cuGraphInstantiateWithFlags);
  note("instantiate %llu", flags);
  *exec = malloc(sizeof **exec), (*exec)->graph = *graph;
  return graphs++, 0;
}
CUresult cuGraphDestroy(CUgraph graph) { return graphs--, free(graph), 0; }
CUresult cuGraphLaunch(CUgraphExec exec, CUstream s) {
  (void)s;
  CHECK(cuGraphLaunch);
  note("graph of %d", exec->graph.count);
  for (int i = 0; i < exec->graph.count; i++) give(kept[exec->graph.from + i]);
  return 0;
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
  CHECK(cuGraphExecDestroy);
  note("free graph");
  return graphs--, free(exec), 0;
}
