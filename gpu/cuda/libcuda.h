// The functions and constants of NVIDIA's driver library that the shim uses, declared here, since the toolkit's headers
// are not needed to build. The library is opened when GPUs are first listed.
#ifndef PLAIT_CUDA_LIBCUDA_H
#define PLAIT_CUDA_LIBCUDA_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700, // from here on, errors of a running program end its context
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_LAUNCH_FAILED = 719,
};

enum {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
  CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS = 122, // such operations of 32 bits are older
};

enum {
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1,
  CU_STREAM_WAIT_VALUE_GEQ = 0,
  CU_STREAM_WRITE_VALUE_DEFAULT = 0,
};

typedef struct {
  unsigned char bytes[16];
} CUuuid;

typedef struct {
  char bytes[64];
} CUipcMemHandle;

// Each entry is the result, the name in the library, the name in the table, and the parameters.
#define PLAITK_CU_FUNCTIONS(F)                                                                                         \
  F(cuInit, init, (unsigned flags))                                                                                    \
  F(cuDriverGetVersion, version, (int *version))                                                                       \
  F(cuGetErrorName, error_name, (CUresult error, const char **name))                                                   \
  F(cuGetErrorString, error_string, (CUresult error, const char **text))                                               \
  F(cuDeviceGetCount, device_count, (int *count))                                                                      \
  F(cuDeviceGet, device_get, (CUdevice * device, int ordinal))                                                         \
  F(cuDeviceGetName, device_name, (char *name, int length, CUdevice device))                                           \
  F(cuDeviceGetUuid_v2, device_uuid, (CUuuid * uuid, CUdevice device))                                                 \
  F(cuDeviceGetAttribute, device_attribute, (int *value, int attribute, CUdevice device))                              \
  F(cuDeviceCanAccessPeer, can_access, (int *can, CUdevice device, CUdevice other))                                    \
  F(cuDeviceTotalMem_v2, device_memory, (size_t *bytes, CUdevice device))                                              \
  F(cuDevicePrimaryCtxRetain, context_retain, (CUcontext * context, CUdevice device))                                  \
  F(cuDevicePrimaryCtxRelease_v2, context_release, (CUdevice device))                                                  \
  F(cuCtxPushCurrent_v2, context_push, (CUcontext context))                                                            \
  F(cuCtxPopCurrent_v2, context_pop, (CUcontext * context))                                                            \
  F(cuCtxEnablePeerAccess, enable_access, (CUcontext other, unsigned flags))                                           \
  F(cuStreamCreateWithPriority, stream_create_first, (CUstream * stream, unsigned flags, int priority))                \
  F(cuStreamWaitEvent, stream_wait, (CUstream stream, CUevent event, unsigned flags))                                  \
  F(cuStreamCreate, stream_create, (CUstream * stream, unsigned flags))                                                \
  F(cuStreamDestroy_v2, stream_destroy, (CUstream stream))                                                             \
  F(cuStreamWaitValue32_v2, await, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                  \
  F(cuStreamWriteValue32_v2, signal, (CUstream stream, CUdeviceptr at, uint32_t value, unsigned flags))                \
  F(cuStreamQuery, stream_query, (CUstream stream))                                                                    \
  F(cuEventCreate, event_create, (CUevent * event, unsigned flags))                                                    \
  F(cuEventDestroy_v2, event_destroy, (CUevent event))                                                                 \
  F(cuEventRecord, event_record, (CUevent event, CUstream stream))                                                     \
  F(cuEventQuery, event_query, (CUevent event))                                                                        \
  F(cuMemAlloc_v2, alloc, (CUdeviceptr * at, size_t bytes))                                                            \
  F(cuMemFree_v2, free, (CUdeviceptr at))                                                                              \
  F(cuIpcGetMemHandle, share, (CUipcMemHandle * handle, CUdeviceptr at))                                               \
  F(cuIpcOpenMemHandle_v2, open_shared, (CUdeviceptr * at, CUipcMemHandle handle, unsigned flags))                     \
  F(cuIpcCloseMemHandle, close_shared, (CUdeviceptr at))                                                               \
  F(cuMemHostAlloc, alloc_host, (void **at, size_t bytes, unsigned flags))                                             \
  F(cuMemFreeHost, free_host, (void *at))                                                                              \
  F(cuMemcpyAsync, copy, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                            \
  F(cuMemsetD32Async, set, (CUdeviceptr to, unsigned value, size_t count, CUstream stream))                            \
  F(cuModuleLoadData, module_load, (CUmodule * module, const void *image))                                             \
  F(cuModuleUnload, module_unload, (CUmodule module))                                                                  \
  F(cuModuleGetFunction, module_function, (CUfunction * function, CUmodule module, const char *name))                  \
  F(cuFuncSetAttribute, function_set, (CUfunction function, int attribute, int value))                                 \
  F(cuLaunchKernel, launch,                                                                                            \
    (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,                \
     unsigned shared, CUstream stream, void **params, void **extra))                                                   \
  F(cuStreamBeginCapture_v2, capture_begin, (CUstream stream, int mode))                                               \
  F(cuStreamEndCapture, capture_end, (CUstream stream, CUgraph * graph))                                               \
  F(cuGraphInstantiateWithFlags, graph_instantiate, (CUgraphExec * exec, CUgraph graph, unsigned long long flags))     \
  F(cuGraphDestroy, graph_destroy, (CUgraph graph))                                                                    \
  F(cuGraphLaunch, graph_launch, (CUgraphExec exec, CUstream stream))                                                  \
  F(cuGraphExecDestroy, graph_exec_destroy, (CUgraphExec exec))

typedef struct {
#define PLAITK_CU_FIELD(symbol, name, params) CUresult(*name) params;
  PLAITK_CU_FUNCTIONS(PLAITK_CU_FIELD)
#undef PLAITK_CU_FIELD
} plaitk_cu_table;

// plaitk_cu_library opens the library and initialises it, once. If that fails, it returns NULL, and plaitk_cu_missing
// says why.
const plaitk_cu_table *plaitk_cu_library(void);
const char *plaitk_cu_missing(void);

// plaitk_cu_driver_version returns the version of CUDA that the driver supports, such as 13000 for 13.0.
int plaitk_cu_driver_version(void);

// plaitk_cu_open_instead names the library to open instead of libcuda.so.1. It is called before all others, by tests.
void plaitk_cu_open_instead(const char *path);

// plaitk_cu_describe writes what an error means.
void plaitk_cu_describe(CUresult error, char *text, size_t size);

#endif
