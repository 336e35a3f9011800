// wgpu-native asks Vulkan for every window-system extension that it knows. If Wayland's is asked for, a layer of Mesa
// connects to the display each time that GPUs are listed, and prints an error if there is none. Nothing is drawn
// here, so these extensions are hidden. wgpu-native finds Vulkan's functions by dlsym, whose calls are redirected to
// __wrap_dlsym.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*function)(void);
typedef struct {
  char name[256];
  uint32_t version;
} extension;
typedef int32_t (*extensions)(const char *layer, uint32_t *count, extension *list);

enum { incomplete = 5, no_memory = -1 };

static function (*find)(void *instance, const char *name);
static extensions every;

static int is_window(const char *name) {
  size_t n = strlen(name), end = strlen("_surface");
  return n > end && !strcmp(name + n - end, "_surface") && strcmp(name, "VK_KHR_surface");
}

static int32_t without_windows(const char *layer, uint32_t *count, extension *list) {
  uint32_t n = 0, kept = 0;
  int32_t status = every(layer, &n, NULL);
  extension *all = status < 0 ? NULL : calloc(n ? n : 1, sizeof *all);
  if (status < 0 || !all) return status < 0 ? status : no_memory;
  status = every(layer, &n, all);
  for (uint32_t i = 0; status >= 0 && i < n; i++) {
    if (is_window(all[i].name)) continue;
    if (list && kept < *count) list[kept] = all[i];
    kept++;
  }
  free(all);
  if (status < 0) return status;
  if (list && kept > *count) return incomplete;
  *count = kept;
  return status;
}

static function found(void *instance, const char *name) {
  function f = find(instance, name);
  if (!f || strcmp(name, "vkEnumerateInstanceExtensionProperties")) return f;
  __atomic_store_n(&every, (extensions)f, __ATOMIC_SEQ_CST);
  return (function)without_windows;
}

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
#ifdef __GLIBC__
__asm__(".symver __real_dlsym, dlsym@GLIBC_2.2.5");  // which a glibc older than 2.34 has too
#endif

void *__wrap_dlsym(void *library, const char *name) {
  void *f = __real_dlsym(library, name);
  if (!f || strcmp(name, "vkGetInstanceProcAddr")) return f;
  __atomic_store_n((void **)&find, f, __ATOMIC_SEQ_CST);
  return (void *)found;
}
