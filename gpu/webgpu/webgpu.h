// The part of the C interface of wgpu-native (wgpu 0.19.4) that the shim calls: opaque objects, the structures with their
// fields in that version's order, and the functions. The library itself comes with the module cogentcore/webgpu.
#ifndef PLAIT_GPU_WEBGPU_H
#define PLAIT_GPU_WEBGPU_H

#include <stddef.h>
#include <stdint.h>

typedef struct WGPUInstanceImpl *WGPUInstance;
typedef struct WGPUAdapterImpl *WGPUAdapter;
typedef struct WGPUDeviceImpl *WGPUDevice;
typedef struct WGPUQueueImpl *WGPUQueue;
typedef struct WGPUBufferImpl *WGPUBuffer;
typedef struct WGPUShaderModuleImpl *WGPUShaderModule;
typedef struct WGPUBindGroupLayoutImpl *WGPUBindGroupLayout;
typedef struct WGPUPipelineLayoutImpl *WGPUPipelineLayout;
typedef struct WGPUComputePipelineImpl *WGPUComputePipeline;
typedef struct WGPUBindGroupImpl *WGPUBindGroup;
typedef struct WGPUCommandEncoderImpl *WGPUCommandEncoder;
typedef struct WGPUComputePassEncoderImpl *WGPUComputePassEncoder;
typedef struct WGPUCommandBufferImpl *WGPUCommandBuffer;

// Enumerations are 32 bits wide in every structure.
typedef uint32_t WGPUEnum;
typedef uint32_t WGPUBool;

enum {
  WGPU_ADAPTER_DISCRETE = 0,
  WGPU_ADAPTER_INTEGRATED = 1,
  WGPU_ADAPTER_CPU = 2,
  WGPU_BACKEND_METAL = 5,
  WGPU_BACKEND_VULKAN = 6,
  WGPU_STYPE_WGSL = 6,
  WGPU_STYPE_REQUIRED_LIMITS_EXTRAS = 0x00030002,
  WGPU_STYPE_INSTANCE_EXTRAS = 0x00030006,
  WGPU_FEATURE_MAPPABLE_PRIMARY_BUFFERS = 0x0003000E,
  WGPU_INSTANCE_VULKAN = 1 << 0,
  WGPU_INSTANCE_METAL = 1 << 2,
  WGPU_BINDING_UNIFORM = 1,
  WGPU_BINDING_STORAGE = 2,
  WGPU_STAGE_COMPUTE = 4,
};

typedef struct WGPUChain {
  const struct WGPUChain *next;
  WGPUEnum type;
} WGPUChain;

typedef struct {
  const WGPUChain *next;
} WGPUInstanceDescriptor;

typedef struct {
  WGPUChain chain;
  uint32_t backends, flags;
  WGPUEnum dx12_compiler, gles_minor;
  const char *dxil, *dxc;
} WGPUInstanceExtras;

typedef struct {
  const WGPUChain *next;
  uint32_t backends;
} WGPUEnumerateOptions;

typedef struct {
  WGPUChain *next;
  const char *vendor, *architecture, *device, *description;
  WGPUEnum backend, type;
  uint32_t vendor_id, device_id;
} WGPUAdapterInfo;

typedef struct {
  uint32_t texture_1d, texture_2d, texture_3d, texture_layers;
  uint32_t bind_groups, bind_groups_vertex_buffers, bindings_per_group;
  uint32_t dynamic_uniforms, dynamic_storages;
  uint32_t sampled_textures, samplers, storage_buffers, storage_textures, uniform_buffers;
  uint64_t uniform_binding, storage_binding;
  uint32_t uniform_alignment, storage_alignment;
  uint32_t vertex_buffers;
  uint64_t buffer;
  uint32_t vertex_attributes, vertex_stride;
  uint32_t stage_components, stage_variables, attachments, attachment_bytes;
  uint32_t workgroup_storage, workgroup_invocations, workgroup_x, workgroup_y, workgroup_z, workgroups;
} WGPULimits;

typedef struct {
  WGPUChain chain;
  uint32_t push_constants, bindings;
} WGPULimitsExtras;

typedef struct {
  const WGPUChain *next;
  WGPULimits limits;
} WGPULimitsList;

typedef void (*WGPULostCallback)(WGPUEnum reason, const char *message, void *data);
typedef void (*WGPUErrorCallback)(WGPUEnum type, const char *message, void *data);
typedef void (*WGPUDeviceCallback)(WGPUEnum status, WGPUDevice device, const char *message, void *data);
typedef void (*WGPUStatusCallback)(WGPUEnum status, void *data);

typedef struct {
  const WGPUChain *next;
  const char *label;
} WGPULabelled;

typedef struct {
  const WGPUChain *next;
  const char *label;
  size_t feature_count;
  const WGPUEnum *features;
  const WGPULimitsList *limits;
  WGPULabelled queue;
  WGPULostCallback lost;
  void *lost_data;
  struct {
    const WGPUChain *next;
    WGPUErrorCallback call;
    void *data;
  } error;
} WGPUDeviceDescriptor;

typedef struct {
  const WGPUChain *next;
  const char *label;
  uint32_t usage;
  uint64_t size;
  WGPUBool mapped;
} WGPUBufferDescriptor;

typedef struct {
  const WGPUChain *next;
  const char *label;
  size_t hint_count;
  const void *hints;
} WGPUShaderDescriptor;

typedef struct {
  WGPUChain chain;
  const char *code;
} WGPUShaderSource;

typedef struct {
  const WGPUChain *next;
  uint32_t binding, visibility;
  struct {
    const WGPUChain *next;
    WGPUEnum type;
    WGPUBool dynamic;
    uint64_t least;
  } buffer;
  struct {
    const WGPUChain *next;
    WGPUEnum type;
  } sampler;
  struct {
    const WGPUChain *next;
    WGPUEnum sample, view;
    WGPUBool multisampled;
  } texture;
  struct {
    const WGPUChain *next;
    WGPUEnum access, format, view;
  } storage_texture;
} WGPULayoutEntry;

typedef struct {
  const WGPUChain *next;
  const char *label;
  size_t count;
  const WGPULayoutEntry *entries;
} WGPULayoutDescriptor;

typedef struct {
  const WGPUChain *next;
  const char *label;
  size_t count;
  const WGPUBindGroupLayout *layouts;
} WGPUPipelineLayoutDescriptor;

typedef struct {
  const WGPUChain *next;
  const char *label;
  WGPUPipelineLayout layout;
  struct {
    const WGPUChain *next;
    WGPUShaderModule module;
    const char *entry;
    size_t constant_count;
    const void *constants;
  } compute;
} WGPUPipelineDescriptor;

typedef struct {
  const WGPUChain *next;
  uint32_t binding;
  WGPUBuffer buffer;
  uint64_t offset, size;
  const void *sampler, *texture;
} WGPUGroupEntry;

typedef struct {
  const WGPUChain *next;
  const char *label;
  WGPUBindGroupLayout layout;
  size_t count;
  const WGPUGroupEntry *entries;
} WGPUGroupDescriptor;

void wgpuSetLogLevel(WGPUEnum level);
WGPUInstance wgpuCreateInstance(const WGPUInstanceDescriptor *descriptor);
void wgpuInstanceRelease(WGPUInstance instance);
size_t wgpuInstanceEnumerateAdapters(WGPUInstance instance, const WGPUEnumerateOptions *options, WGPUAdapter *adapters);
void wgpuAdapterGetInfo(WGPUAdapter adapter, WGPUAdapterInfo *info);
void wgpuAdapterInfoFreeMembers(WGPUAdapterInfo info);
WGPUBool wgpuAdapterHasFeature(WGPUAdapter adapter, WGPUEnum feature);
WGPUBool wgpuAdapterGetLimits(WGPUAdapter adapter, WGPULimitsList *limits);
void wgpuAdapterRequestDevice(WGPUAdapter adapter, const WGPUDeviceDescriptor *descriptor, WGPUDeviceCallback callback,
                              void *data);
void wgpuAdapterRelease(WGPUAdapter adapter);
WGPUQueue wgpuDeviceGetQueue(WGPUDevice device);
WGPUBuffer wgpuDeviceCreateBuffer(WGPUDevice device, const WGPUBufferDescriptor *descriptor);
WGPUShaderModule wgpuDeviceCreateShaderModule(WGPUDevice device, const WGPUShaderDescriptor *descriptor);
WGPUBindGroupLayout wgpuDeviceCreateBindGroupLayout(WGPUDevice device, const WGPULayoutDescriptor *descriptor);
WGPUPipelineLayout wgpuDeviceCreatePipelineLayout(WGPUDevice device, const WGPUPipelineLayoutDescriptor *descriptor);
WGPUComputePipeline wgpuDeviceCreateComputePipeline(WGPUDevice device, const WGPUPipelineDescriptor *descriptor);
WGPUBindGroup wgpuDeviceCreateBindGroup(WGPUDevice device, const WGPUGroupDescriptor *descriptor);
WGPUCommandEncoder wgpuDeviceCreateCommandEncoder(WGPUDevice device, const WGPULabelled *descriptor);
WGPUBool wgpuDevicePoll(WGPUDevice device, WGPUBool wait, const void *submission);
void wgpuDeviceRelease(WGPUDevice device);
void wgpuBufferMapAsync(WGPUBuffer buffer, uint32_t mode, size_t offset, size_t size, WGPUStatusCallback callback,
                        void *data);
void *wgpuBufferGetMappedRange(WGPUBuffer buffer, size_t offset, size_t size);
void wgpuBufferUnmap(WGPUBuffer buffer);
void wgpuBufferDestroy(WGPUBuffer buffer);
void wgpuBufferRelease(WGPUBuffer buffer);
void wgpuShaderModuleRelease(WGPUShaderModule module);
void wgpuBindGroupLayoutRelease(WGPUBindGroupLayout layout);
void wgpuPipelineLayoutRelease(WGPUPipelineLayout layout);
void wgpuComputePipelineRelease(WGPUComputePipeline pipeline);
void wgpuBindGroupRelease(WGPUBindGroup group);
WGPUComputePassEncoder wgpuCommandEncoderBeginComputePass(WGPUCommandEncoder encoder, const void *descriptor);
void wgpuCommandEncoderCopyBufferToBuffer(WGPUCommandEncoder encoder, WGPUBuffer from, uint64_t from_offset,
                                          WGPUBuffer to, uint64_t to_offset, uint64_t size);
void wgpuCommandEncoderClearBuffer(WGPUCommandEncoder encoder, WGPUBuffer buffer, uint64_t offset, uint64_t size);
WGPUCommandBuffer wgpuCommandEncoderFinish(WGPUCommandEncoder encoder, const WGPULabelled *descriptor);
void wgpuCommandEncoderRelease(WGPUCommandEncoder encoder);
void wgpuCommandBufferRelease(WGPUCommandBuffer buffer);
void wgpuComputePassEncoderSetPipeline(WGPUComputePassEncoder pass, WGPUComputePipeline pipeline);
void wgpuComputePassEncoderSetBindGroup(WGPUComputePassEncoder pass, uint32_t index, WGPUBindGroup group,
                                        size_t offset_count, const uint32_t *offsets);
void wgpuComputePassEncoderDispatchWorkgroups(WGPUComputePassEncoder pass, uint32_t x, uint32_t y, uint32_t z);
void wgpuComputePassEncoderEnd(WGPUComputePassEncoder pass);
void wgpuComputePassEncoderRelease(WGPUComputePassEncoder pass);
void wgpuQueueWriteBuffer(WGPUQueue queue, WGPUBuffer buffer, uint64_t offset, const void *data, size_t size);
void wgpuQueueSubmit(WGPUQueue queue, size_t count, const WGPUCommandBuffer *commands);
void wgpuQueueOnSubmittedWorkDone(WGPUQueue queue, WGPUStatusCallback callback, void *data);
void wgpuQueueRelease(WGPUQueue queue);

#endif
