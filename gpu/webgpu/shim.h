// The shim between Go and wgpu-native. It closes the holes of the module's own Go bindings: callbacks write into memory
// that C owns, errors go to one place per device instead of error scopes, a list of commands is encoded in one call, and
// nothing waits inside the library. All functions of a device are called from one goroutine.
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
  int32_t both_ways;           // the host may read and write a buffer that is copied to and from
  int32_t failed;              // errors since the last plaitk_gpu_clear
  int32_t lost;                // the device is gone, or PLAITK_GPU_LEFT
  char error[PLAITK_GPU_TEXT]; // the first of them
  struct plaitk_gpu *next;     // of the open ones
  int32_t leaving, drained;    // of plaitk_gpu_leave: the queue was asked, and it is empty, a status
} plaitk_gpu;

enum { PLAITK_GPU_LEFT = 2 };

// A status word of something that ends later: 0 pending, 1 done, otherwise 2 plus the library's status.
typedef int32_t plaitk_gpu_status;

enum { PLAITK_GPU_DISPATCH, PLAITK_GPU_COPY, PLAITK_GPU_CLEAR };

// A command of a list. A dispatch binds group with params as the dynamic offset of its parameters; x, y and z count
// workgroups. A copy moves size bytes, all multiples of 4.
typedef struct {
  uint32_t kind, params, x, y, z;
  WGPUComputePipeline pipeline;
  WGPUBindGroup group;
  WGPUBuffer from, to;
  uint64_t from_offset, to_offset, size;
} plaitk_gpu_command;

// plaitk_gpu_adapters writes at most max adapters to out and returns how many there are.
int plaitk_gpu_adapters(plaitk_gpu_adapter *out, int max);

// plaitk_gpu_loader reports whether there is a Vulkan loader.
int plaitk_gpu_loader(void);

// plaitk_gpu_open opens the adapter at index in the order of plaitk_gpu_adapters. NULL with a message in error if it cannot.
plaitk_gpu *plaitk_gpu_open(int index, char *error);
void plaitk_gpu_close(plaitk_gpu *g);

// plaitk_gpu_buffer returns NULL with g->error set if there is no memory.
WGPUBuffer plaitk_gpu_buffer(plaitk_gpu *g, uint32_t usage, uint64_t size, int mapped);
void plaitk_gpu_map(WGPUBuffer b, uint32_t mode, uint64_t size, plaitk_gpu_status *status);

// plaitk_gpu_layout makes the layout of a uniform binding with a dynamic offset and n storage bindings.
WGPUBindGroupLayout plaitk_gpu_layout(plaitk_gpu *g, int n, uint64_t params, WGPUPipelineLayout *pipeline);
WGPUComputePipeline plaitk_gpu_pipeline(plaitk_gpu *g, WGPUPipelineLayout layout, const char *source);
WGPUBindGroup plaitk_gpu_group(plaitk_gpu *g, WGPUBindGroupLayout layout, WGPUBuffer params, uint64_t window, int n,
                               const WGPUBuffer *buffers, const uint64_t *sizes);

// plaitk_gpu_submit writes the parameters, encodes and submits the commands; status becomes nonzero when they are done.
void plaitk_gpu_submit(plaitk_gpu *g, const plaitk_gpu_command *list, int n, WGPUBuffer params, const void *data,
                       uint64_t size, plaitk_gpu_status *status);
void plaitk_gpu_poll(plaitk_gpu *g);

// plaitk_gpu_leave lets nothing into the drivers any more, as if all devices were lost and none could be opened, and waits until
// they have done what they were given, ten seconds at most; 1 if they have. exit() calls it too, but then tables that a driver has
// made since it was opened may already be gone: who can calls it before. From any thread.
int plaitk_gpu_leave(void);

// plaitk_gpu_lose does what happens when the driver says that the device is lost.
void plaitk_gpu_lose(plaitk_gpu *g, const char *message);

plaitk_gpu_status plaitk_gpu_look(const plaitk_gpu_status *status);

#endif
