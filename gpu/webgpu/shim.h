// The shim between Go and wgpu-native. Callbacks write to memory that C owns, errors of a device go to one place
// instead of error scopes, a list of commands is encoded in one call, and no function waits inside the library. All
// functions of a device are called by one goroutine at a time.
#ifndef PLAIT_GPU_SHIM_H
#define PLAIT_GPU_SHIM_H

#include <stdint.h>

#include "webgpu.h"

#define PLAITK_GPU_TEXT 2048

typedef struct {
  char name[256];
  uint32_t type, backend, vendor, device;
} plaitk_gpu_adapter;

typedef struct plaitk_gpu {
  WGPUInstance instance;
  WGPUDevice device;
  WGPUQueue queue;
  WGPULimits limits;
  int32_t both_ways;           // the host can map a buffer for both reading and writing
  int32_t failed;              // number of errors since they were last read
  int32_t lost;                // 1 if the device is lost, PLAITK_GPU_LEFT after plaitk_gpu_leave
  char error[PLAITK_GPU_TEXT]; // the first of these errors
  struct plaitk_gpu *next;     // the next open device
  int32_t leaving, drained;    // used by plaitk_gpu_leave: the queue was asked, and its status
} plaitk_gpu;

enum { PLAITK_GPU_LEFT = 2 };

// A status word: 0 pending, 1 done, otherwise 2 plus the library's status.
typedef int32_t plaitk_gpu_status;

enum { PLAITK_GPU_DISPATCH, PLAITK_GPU_COPY, PLAITK_GPU_CLEAR };

// A command of a list. A dispatch binds group, with params as the dynamic offset of its parameters, and runs x * y *
// z workgroups. A copy has offsets and a size that are multiples of 4.
typedef struct {
  uint32_t kind, params, x, y, z;
  WGPUComputePipeline pipeline;
  WGPUBindGroup group;
  WGPUBuffer from, to;
  uint64_t from_offset, to_offset, size;
} plaitk_gpu_command;

// plaitk_gpu_adapters writes at most max adapters to out and returns how many there are.
int plaitk_gpu_adapters(plaitk_gpu_adapter *out, int max);

typedef struct {
  char name[256];
  uint32_t vendor, device;
  uint8_t uuid[16];
  uint64_t memory; // bytes of the largest heap on the device
} plaitk_gpu_vulkan;

// plaitk_gpu_describe writes what Vulkan says of its devices to out, of max at most, and returns how many these are. It
// returns 0 without Vulkan 1.1.
int plaitk_gpu_describe(plaitk_gpu_vulkan *out, int max);
int plaitk_gpu_ask_vulkan(plaitk_gpu_vulkan *out, int max); // the same, inside the driver

// plaitk_gpu_loader reports whether the Vulkan loader is installed.
int plaitk_gpu_loader(void);

// plaitk_gpu_open opens the adapter with an index in the order of plaitk_gpu_adapters. On failure it returns NULL
// with a message in error.
plaitk_gpu *plaitk_gpu_open(int index, char *error);
void plaitk_gpu_close(plaitk_gpu *g);

// plaitk_gpu_buffer returns NULL and sets g->error if there is no memory.
WGPUBuffer plaitk_gpu_buffer(plaitk_gpu *g, uint32_t usage, uint64_t size, int mapped);
void plaitk_gpu_map(WGPUBuffer b, uint32_t mode, uint64_t size, plaitk_gpu_status *status);

// plaitk_gpu_layout makes the layout of a uniform binding with a dynamic offset and n storage bindings.
WGPUBindGroupLayout plaitk_gpu_layout(plaitk_gpu *g, int n, uint64_t params, WGPUPipelineLayout *pipeline);
WGPUComputePipeline plaitk_gpu_pipeline(plaitk_gpu *g, WGPUPipelineLayout layout, const char *source);
WGPUBindGroup plaitk_gpu_group(plaitk_gpu *g, WGPUBindGroupLayout layout, WGPUBuffer params, uint64_t window, int n,
                               const WGPUBuffer *buffers, const uint64_t *sizes);

// plaitk_gpu_submit writes the parameters and submits the commands. status becomes nonzero when the GPU has run them.
void plaitk_gpu_submit(plaitk_gpu *g, const plaitk_gpu_command *list, int n, WGPUBuffer params, const void *data,
                       uint64_t size, plaitk_gpu_status *status);
void plaitk_gpu_poll(plaitk_gpu *g);

// plaitk_gpu_leave makes all open devices count as lost and refuses to open others. It waits up to ten seconds for
// submitted work and returns 1 if all of it has ended. exit() calls it too, but then tables that a driver registered
// after it was opened may be gone already, so callers should call it before exit(). It may be called from any thread.
int plaitk_gpu_leave(void);

// plaitk_gpu_lose makes the device count as lost.
void plaitk_gpu_lose(plaitk_gpu *g, const char *message);

plaitk_gpu_status plaitk_gpu_look(const plaitk_gpu_status *status);

#endif
