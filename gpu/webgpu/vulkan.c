// wgpu-native says neither the UUID of a GPU nor the size of its memory, so Vulkan is asked once more. These are the few
// declarations of Vulkan 1.1 that this takes.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"

enum {
  application_info = 0,
  instance_info = 1,
  properties_2 = 1000059001,
  id_properties = 1000071004,
  version_1_1 = 1 << 22 | 1 << 12,
  device_local = 1,
  max_devices = 64,
};

typedef void (*function)(void);
typedef struct {
  uint32_t type;
  const void *next;
  const char *application;
  uint32_t application_version;
  const char *engine;
  uint32_t engine_version, version;
} application;
typedef struct {
  uint32_t type;
  const void *next;
  uint32_t flags;
  const application *about;
  uint32_t layer_count;
  const char *const *layers;
  uint32_t extension_count;
  const char *const *extensions;
} instance;
typedef struct {
  uint32_t type;
  void *next;
  uint8_t device[16], driver[16], luid[8];
  uint32_t nodes, luid_valid;
} identity;
typedef struct {
  uint32_t type;
  void *next;
  union {
    struct {
      uint32_t version, driver, vendor, device, type;
      char name[256];
    } is;
    uint64_t room[128]; // limits follow, 824 bytes in all
  };
} properties;
typedef struct {
  uint32_t type_count, types[32][2], heap_count;
  struct {
    uint64_t size;
    uint32_t flags;
  } heaps[16];
} memory;

typedef function (*find_function)(void *instance, const char *name);
typedef int32_t (*create_function)(const instance *info, const void *allocator, void **made);
typedef void (*destroy_function)(void *instance, const void *allocator);
typedef int32_t (*enumerate_function)(void *instance, uint32_t *count, void **devices);
typedef void (*properties_function)(void *device, properties *p);
typedef void (*memory_function)(void *device, memory *m);

static int describe(find_function find, void *in, plaitk_gpu_vulkan *out, int max) {
  enumerate_function enumerate = (enumerate_function)find(in, "vkEnumeratePhysicalDevices");
  properties_function look = (properties_function)find(in, "vkGetPhysicalDeviceProperties2");
  memory_function measure = (memory_function)find(in, "vkGetPhysicalDeviceMemoryProperties");
  void *devices[max_devices];
  uint32_t n = max_devices;
  if (!enumerate || !look || !measure || enumerate(in, &n, devices) < 0) return 0;
  if ((int)n > max) n = (uint32_t)max;
  for (uint32_t i = 0; i < n; i++) {
    identity id = {.type = id_properties};
    properties p = {.type = properties_2, .next = &id};
    memory m = {0};
    look(devices[i], &p);
    measure(devices[i], &m);
    memcpy(out[i].name, p.is.name, sizeof out[i].name);
    memcpy(out[i].uuid, id.device, sizeof out[i].uuid);
    out[i].vendor = p.is.vendor, out[i].device = p.is.device, out[i].memory = 0;
    for (uint32_t h = 0; h < m.heap_count && h < 16; h++) {
      if (m.heaps[h].flags & device_local && m.heaps[h].size > out[i].memory) out[i].memory = m.heaps[h].size;
    }
  }
  return (int)n;
}

int plaitk_gpu_ask_vulkan(plaitk_gpu_vulkan *out, int max) {
  void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return 0;
  int n = 0;
  find_function find = (find_function)dlsym(library, "vkGetInstanceProcAddr");
  create_function create = find ? (create_function)find(NULL, "vkCreateInstance") : NULL;
  application about = {.type = application_info, .version = version_1_1};
  instance info = {.type = instance_info, .about = &about};
  void *in = NULL;
  if (create && create(&info, NULL, &in) == 0) {
    n = describe(find, in, out, max);
    destroy_function destroy = (destroy_function)find(in, "vkDestroyInstance");
    if (destroy) destroy(in, NULL);
  }
  dlclose(library);
  return n;
}
