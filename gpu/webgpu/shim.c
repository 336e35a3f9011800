#include "shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void fail(plaitk_gpu *g, const char *message) {
  if (g->failed++ == 0) snprintf(g->error, sizeof g->error, "%s", message ? message : "unknown error");
}

static void on_error(WGPUEnum type, const char *message, void *data) {
  (void)type;
  fail(data, message);
}

static void on_lost(WGPUEnum reason, const char *message, void *data) {
  (void)reason;
  plaitk_gpu *g = data;
  g->lost = 1;
  fail(g, message);
}

static void on_status(WGPUEnum status, void *data) {
  __atomic_store_n((plaitk_gpu_status *)data, status == 0 ? 1 : 2 + (int32_t)status, __ATOMIC_RELEASE);
}

plaitk_gpu_status plaitk_gpu_look(const plaitk_gpu_status *status) { return __atomic_load_n(status, __ATOMIC_ACQUIRE); }

// A driver compiles and computes on threads of its own, and crashes if exit() destroys its libraries' tables
// meanwhile. See plaitk_gpu_leave.
static struct {
  pthread_mutex_t mutex; // guards open; held by plaitk_gpu_leave too
  plaitk_gpu *open;      // list of open devices
  pid_t process;         // process that opened them: a fork has no driver
  int leaving;           // no thread may enter the driver any more
  int inside;            // number of threads in the driver
} driver = {.mutex = PTHREAD_MUTEX_INITIALIZER};

enum { LEAVE_SECONDS = 10, LEAVE_PAUSE = 200 }; // how long plaitk_gpu_leave waits, and microseconds between two checks

static void driver_leave(void) { __atomic_fetch_sub(&driver.inside, 1, __ATOMIC_SEQ_CST); }

// Enters the driver. Returns 0 if that is refused.
static int driver_enter(void) {
  __atomic_fetch_add(&driver.inside, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&driver.leaving, __ATOMIC_SEQ_CST)) return 1;
  driver_leave();
  return 0;
}

static const char leaving_text[] = "the process ends";

// Enters the driver for a device, which becomes lost if that is refused.
static int enter(plaitk_gpu *g) {
  if (driver_enter()) return 1;
  if (!g->lost) fail(g, leaving_text);
  g->lost = PLAITK_GPU_LEFT;
  return 0;
}

// Reports whether the driver has done all submitted work. It is called when no thread can be inside the driver any
// more, so no device is opened or closed at the same time.
static int driver_idle(void) {
  int idle = 1;
  for (plaitk_gpu *g = driver.open; g; g = g->next) {
    if (g->lost && g->lost != PLAITK_GPU_LEFT) continue;
    if (!g->leaving) wgpuQueueOnSubmittedWorkDone(g->queue, on_status, &g->drained);
    g->leaving = 1;
    wgpuDevicePoll(g->device, 0, NULL);
    idle &= plaitk_gpu_look(&g->drained) != 0;
  }
  return idle;
}

int plaitk_gpu_leave(void) {
  pid_t process = __atomic_load_n(&driver.process, __ATOMIC_SEQ_CST);
  if (process && process != getpid()) return 1;
  __atomic_store_n(&driver.leaving, 1, __ATOMIC_SEQ_CST);
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    pthread_mutex_lock(&driver.mutex);
    int idle = __atomic_load_n(&driver.inside, __ATOMIC_SEQ_CST) == 0 && driver_idle();
    pthread_mutex_unlock(&driver.mutex);
    if (idle) return 1;
    usleep(LEAVE_PAUSE);
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (now.tv_sec - begin.tv_sec < LEAVE_SECONDS);
  return 0;
}

static void at_exit(void) { plaitk_gpu_leave(); }

static void driver_add(plaitk_gpu *g) {
  pthread_mutex_lock(&driver.mutex);
  if (driver.process != getpid()) {
    __atomic_store_n(&driver.process, getpid(), __ATOMIC_SEQ_CST);
    atexit(at_exit);
  }
  g->next = driver.open;
  driver.open = g;
  pthread_mutex_unlock(&driver.mutex);
}

static void driver_remove(plaitk_gpu *g) {
  pthread_mutex_lock(&driver.mutex);
  plaitk_gpu **at = &driver.open;
  while (*at && *at != g) at = &(*at)->next;
  if (*at) *at = g->next;
  pthread_mutex_unlock(&driver.mutex);
}

void plaitk_gpu_lose(plaitk_gpu *g, const char *message) { on_lost(0, message, g); }

int plaitk_gpu_loader(void) {
  void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library) dlclose(library);
  return library != NULL;
}

// Extras are zeroed, because the module's own bindings leave some fields uninitialised. OpenGL is left out, which
// would list each GPU once more.
static WGPUInstance instance(void) {
  wgpuSetLogLevel(0);
  WGPUInstanceExtras extras = {.chain = {.type = WGPU_STYPE_INSTANCE_EXTRAS},
                               .backends = WGPU_INSTANCE_VULKAN | WGPU_INSTANCE_METAL};
  WGPUInstanceDescriptor d = {.next = &extras.chain};
  return wgpuCreateInstance(&d);
}

static size_t enumerate(WGPUInstance in, WGPUAdapter **list) {
  WGPUEnumerateOptions o = {.backends = WGPU_INSTANCE_VULKAN | WGPU_INSTANCE_METAL};
  size_t n = wgpuInstanceEnumerateAdapters(in, &o, NULL);
  *list = calloc(n ? n : 1, sizeof **list);
  return wgpuInstanceEnumerateAdapters(in, &o, *list);
}

static int adapters(plaitk_gpu_adapter *out, int max) {
  WGPUInstance in = instance();
  if (!in) return 0;
  WGPUAdapter *list;
  int n = (int)enumerate(in, &list);
  for (int i = 0; i < n; i++) {
    if (i < max) {
      WGPUAdapterInfo info;
      memset(&info, 0, sizeof info);
      wgpuAdapterGetInfo(list[i], &info);
// The library has the device's id in hexadecimal as its name, and the name as its description.
      const char *name = info.description && *info.description ? info.description : "unnamed";
      snprintf(out[i].name, sizeof out[i].name, "%s", name);
      out[i].type = info.type, out[i].backend = info.backend;
      out[i].vendor = info.vendor_id, out[i].device = info.device_id;
      wgpuAdapterInfoFreeMembers(info);
    }
    wgpuAdapterRelease(list[i]);
  }
  free(list);
  wgpuInstanceRelease(in);
  return n;
}

int plaitk_gpu_adapters(plaitk_gpu_adapter *out, int max) {
  if (!driver_enter()) return 0;
  int n = adapters(out, max);
  driver_leave();
  return n;
}

int plaitk_gpu_describe(plaitk_gpu_vulkan *out, int max) {
  if (!driver_enter()) return 0;
  int n = plaitk_gpu_ask_vulkan(out, max);
  driver_leave();
  return n;
}

typedef struct {
  WGPUDevice device;
  char *error;
} opening;

static void on_device(WGPUEnum status, WGPUDevice device, const char *message, void *data) {
  opening *o = data;
  if (status == 0) {
    o->device = device;
  } else {
    snprintf(o->error, PLAITK_GPU_TEXT, "%s", message ? message : "the driver gives no reason");
  }
}

static plaitk_gpu *open_gpu(int index, char *error) {
  plaitk_gpu *g = calloc(1, sizeof *g);
  if (!g || !(g->instance = instance())) {
    snprintf(error, PLAITK_GPU_TEXT, "no instance of WebGPU");
    free(g);
    return NULL;
  }
  WGPUAdapter *list;
  int n = (int)enumerate(g->instance, &list);
  opening o = {.error = error};
  snprintf(error, PLAITK_GPU_TEXT, "the adapter is gone");
  if (index < n) {
    WGPULimitsExtras extras = {.chain = {.type = WGPU_STYPE_REQUIRED_LIMITS_EXTRAS}, .push_constants = 0, .bindings = 1000000};
    WGPULimitsList have = {0}, want = {.next = &extras.chain};
    wgpuAdapterGetLimits(list[index], &have);
// Drivers report sizes near 2^64, which mean "undefined" in a request.
    if (have.limits.buffer > (uint64_t)1 << 37) have.limits.buffer = (uint64_t)1 << 37;
    want.limits = g->limits = have.limits;
    static const WGPUEnum both_ways = WGPU_FEATURE_MAPPABLE_PRIMARY_BUFFERS;
    g->both_ways = wgpuAdapterHasFeature(list[index], both_ways) != 0;
    WGPUDeviceDescriptor d = {.feature_count = (size_t)g->both_ways, .features = &both_ways, .limits = &want, .lost = on_lost, .lost_data = g, .error = {.call = on_error, .data = g}};
    wgpuAdapterRequestDevice(list[index], &d, on_device, &o);
  }
  for (int i = 0; i < n; i++) wgpuAdapterRelease(list[i]);
  free(list);
  if (!o.device) {
    wgpuInstanceRelease(g->instance);
    free(g);
    return NULL;
  }
  g->device = o.device;
  g->queue = wgpuDeviceGetQueue(g->device);
  driver_add(g);
  return g;
}

plaitk_gpu *plaitk_gpu_open(int index, char *error) {
  if (!driver_enter()) {
    snprintf(error, PLAITK_GPU_TEXT, "%s", leaving_text);
    return NULL;
  }
  plaitk_gpu *g = open_gpu(index, error);
  driver_leave();
  return g;
}

void plaitk_gpu_close(plaitk_gpu *g) {
  if (!driver_enter()) return; // plaitk_gpu_leave may be using the device
  driver_remove(g);
  wgpuQueueRelease(g->queue);
  wgpuDeviceRelease(g->device);
  wgpuInstanceRelease(g->instance);
  free(g);
  driver_leave();
}

WGPUBuffer plaitk_gpu_buffer(plaitk_gpu *g, uint32_t usage, uint64_t size, int mapped) {
  WGPUBufferDescriptor d = {.usage = usage, .size = size, .mapped = mapped != 0};
  int32_t before = g->failed;
  WGPUBuffer b = wgpuDeviceCreateBuffer(g->device, &d);
  if (g->failed == before) return b;
  if (b) wgpuBufferRelease(b);
  return NULL;
}

void plaitk_gpu_map(WGPUBuffer b, uint32_t mode, uint64_t size, plaitk_gpu_status *status) {
  wgpuBufferMapAsync(b, mode, 0, size, on_status, status);
}

WGPUBindGroupLayout plaitk_gpu_layout(plaitk_gpu *g, int n, uint64_t params, WGPUPipelineLayout *pipeline) {
  WGPULayoutEntry e[33];
  memset(e, 0, sizeof e);
  for (int i = 0; i <= n; i++) {
    e[i].binding = (uint32_t)i;
    e[i].visibility = WGPU_STAGE_COMPUTE;
    e[i].buffer.type = i ? WGPU_BINDING_STORAGE : WGPU_BINDING_UNIFORM;
    e[i].buffer.dynamic = i == 0;
    e[i].buffer.least = i ? 0 : params;
  }
  WGPULayoutDescriptor d = {.count = (size_t)n + 1, .entries = e};
  WGPUBindGroupLayout layout = wgpuDeviceCreateBindGroupLayout(g->device, &d);
  WGPUPipelineLayoutDescriptor p = {.count = 1, .layouts = &layout};
  *pipeline = wgpuDeviceCreatePipelineLayout(g->device, &p);
  return layout;
}

WGPUComputePipeline plaitk_gpu_pipeline(plaitk_gpu *g, WGPUPipelineLayout layout, const char *source) {
  int32_t before = g->failed;
  WGPUShaderSource text = {.chain = {.type = WGPU_STYPE_WGSL}, .code = source};
  WGPUShaderDescriptor d = {.next = &text.chain};
  if (!enter(g)) return NULL;
  WGPUShaderModule module = wgpuDeviceCreateShaderModule(g->device, &d);
  WGPUComputePipeline p = NULL;
  if (module && g->failed == before) {
    WGPUPipelineDescriptor pd = {.layout = layout, .compute = {.module = module, .entry = "main"}};
    p = wgpuDeviceCreateComputePipeline(g->device, &pd);
    if (g->failed != before && p) {
      wgpuComputePipelineRelease(p);
      p = NULL;
    }
  }
  if (module) wgpuShaderModuleRelease(module);
  driver_leave();
  return p;
}

WGPUBindGroup plaitk_gpu_group(plaitk_gpu *g, WGPUBindGroupLayout layout, WGPUBuffer params, uint64_t window, int n,
                               const WGPUBuffer *buffers, const uint64_t *sizes) {
  WGPUGroupEntry e[33];
  memset(e, 0, sizeof e);
  e[0].buffer = params, e[0].size = window;
  for (int i = 0; i < n; i++) {
    e[i + 1].binding = (uint32_t)i + 1;
    e[i + 1].buffer = buffers[i], e[i + 1].size = sizes[i];
  }
  WGPUGroupDescriptor d = {.layout = layout, .count = (size_t)n + 1, .entries = e};
  int32_t before = g->failed;
  WGPUBindGroup group = wgpuDeviceCreateBindGroup(g->device, &d);
  if (g->failed == before) return group;
  if (group) wgpuBindGroupRelease(group);
  return NULL;
}

void plaitk_gpu_submit(plaitk_gpu *g, const plaitk_gpu_command *list, int n, WGPUBuffer params, const void *data,
                       uint64_t size, plaitk_gpu_status *status) {
  if (g->lost || !enter(g)) { // submitting to a lost device aborts the process
    on_status(1, status);
    return;
  }
  int32_t before = g->failed;
  if (size) wgpuQueueWriteBuffer(g->queue, params, 0, data, size);
  WGPUCommandEncoder e = wgpuDeviceCreateCommandEncoder(g->device, NULL);
  WGPUComputePassEncoder pass = NULL;
  WGPUComputePipeline pipeline = NULL;
  for (int i = 0; i < n; i++) {
    const plaitk_gpu_command *c = &list[i];
    if (c->kind != PLAITK_GPU_DISPATCH && pass) {
      wgpuComputePassEncoderEnd(pass);
      wgpuComputePassEncoderRelease(pass);
      pass = NULL;
    }
    if (c->kind == PLAITK_GPU_COPY) {
      wgpuCommandEncoderCopyBufferToBuffer(e, c->from, c->from_offset, c->to, c->to_offset, c->size);
      continue;
    }
    if (c->kind == PLAITK_GPU_CLEAR) {
      wgpuCommandEncoderClearBuffer(e, c->to, c->to_offset, c->size);
      continue;
    }
    if (!pass) {
      pass = wgpuCommandEncoderBeginComputePass(e, NULL);
      pipeline = NULL;
    }
    if (c->pipeline != pipeline) wgpuComputePassEncoderSetPipeline(pass, pipeline = c->pipeline);
    wgpuComputePassEncoderSetBindGroup(pass, 0, c->group, 1, &c->params);
    wgpuComputePassEncoderDispatchWorkgroups(pass, c->x, c->y, c->z);
  }
  if (pass) {
    wgpuComputePassEncoderEnd(pass);
    wgpuComputePassEncoderRelease(pass);
  }
  WGPUCommandBuffer b = g->failed == before ? wgpuCommandEncoderFinish(e, NULL) : NULL;
  wgpuCommandEncoderRelease(e);
  if (b && g->failed == before) {
    wgpuQueueSubmit(g->queue, 1, &b); // takes the command buffer
  }
  if (b) wgpuCommandBufferRelease(b);
  if (g->failed != before) {
    on_status(1, status);
  } else {
    wgpuQueueOnSubmittedWorkDone(g->queue, on_status, status);
  }
  driver_leave();
}

void plaitk_gpu_poll(plaitk_gpu *g) {
  if (g->lost || !enter(g)) return;
  wgpuDevicePoll(g->device, 0, NULL);
  driver_leave();
}
