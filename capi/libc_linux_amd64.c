// The libraries that make wheel and make library link also load where glibc is older, down to 2.28: the linker, by the options that
// ldflags prints, sends calls of what glibc has since changed, moved or added here, and this file asks for what was there before.
#define _GNU_SOURCE
#include <features.h>

#ifdef __GLIBC__
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

// OLD sends calls of a function to an old version of it.
#define OLD(name, version)                                            \
  __asm__(".symver plait_old_" #name ", " #name "@GLIBC_" version "\n" \
          ".pushsection .text\n"                                      \
          ".globl __wrap_" #name "\n"                                 \
          ".hidden __wrap_" #name "\n"                                \
          ".type __wrap_" #name ", @function\n"                       \
          "__wrap_" #name ":\n"                                       \
          "jmp *plait_old_" #name "@GOTPCREL(%rip)\n"                 \
          ".size __wrap_" #name ", . - __wrap_" #name "\n"            \
          ".popsection")

// The new versions differ in errno alone.
OLD(exp, "2.2.5");
OLD(exp2, "2.2.5");
OLD(hypot, "2.2.5");
OLD(log, "2.2.5");
OLD(log2, "2.2.5");
OLD(pow, "2.2.5");

// These were in libpthread and libdl before they moved into libc. So was dlsym, whose calls gpu/webgpu sees.
OLD(__pthread_key_create, "2.2.5");
OLD(dladdr, "2.2.5");
OLD(dlclose, "2.2.5");
OLD(dlerror, "2.2.5");
OLD(dlinfo, "2.3.3");
OLD(dlopen, "2.2.5");
OLD(pthread_attr_getguardsize, "2.2.5");
OLD(pthread_attr_getstack, "2.2.5");
OLD(pthread_attr_getstacksize, "2.2.5");
OLD(pthread_attr_setstacksize, "2.2.5");
OLD(pthread_create, "2.2.5");
OLD(pthread_detach, "2.2.5");
OLD(pthread_getattr_np, "2.2.5");
OLD(pthread_getspecific, "2.2.5");
OLD(pthread_join, "2.2.5");
OLD(pthread_key_create, "2.2.5");
OLD(pthread_key_delete, "2.2.5");
OLD(pthread_once, "2.2.5");
OLD(pthread_setname_np, "2.12");
OLD(pthread_setspecific, "2.2.5");
OLD(pthread_sigmask, "2.2.5");

// NEW marks a function that no old glibc has.
#define NEW(result, name, ...) \
  result __wrap_##name(__VA_ARGS__); \
  result __wrap_##name(__VA_ARGS__)

// Before these were functions, the header's inline ones called others with the version of the struct.
enum { STAT_VERSION = 1 };
int __xstat64(int version, const char *path, struct stat64 *s);
int __lxstat64(int version, const char *path, struct stat64 *s);
int __fxstat64(int version, int file, struct stat64 *s);
int __fxstatat64(int version, int folder, const char *path, struct stat64 *s, int flags);
__asm__(".symver __xstat64, __xstat64@GLIBC_2.2.5");
__asm__(".symver __lxstat64, __lxstat64@GLIBC_2.2.5");
__asm__(".symver __fxstat64, __fxstat64@GLIBC_2.2.5");
__asm__(".symver __fxstatat64, __fxstatat64@GLIBC_2.4");

NEW(int, stat64, const char *path, struct stat64 *s) { return __xstat64(STAT_VERSION, path, s); }
NEW(int, lstat64, const char *path, struct stat64 *s) { return __lxstat64(STAT_VERSION, path, s); }
NEW(int, fstat64, int file, struct stat64 *s) { return __fxstat64(STAT_VERSION, file, s); }
NEW(int, fstatat64, int folder, const char *path, struct stat64 *s, int flags) {
  return __fxstatat64(STAT_VERSION, folder, path, s, flags);
}

// The resolver's function had another name.
int plait_old_res_search(const char *name, int class, int type, unsigned char *answer, int size);
__asm__(".symver plait_old_res_search, __res_search@GLIBC_2.2.5");

NEW(int, res_search, const char *name, int class, int type, unsigned char *answer, int size) {
  return plait_old_res_search(name, class, type, answer, size);
}

// Rust's standard library asks whether this function is there, and does without.
NEW(int, posix_spawn_file_actions_addchdir_np, void *actions, const char *path);

// What libgcc's unwinder, which is linked in, asks of _dl_find_object: where the library around a place in its code has its table
// of unwinding.
struct found {
  unsigned long long flags;
  void *start, *end, *map, *eh_frame;
};

struct search {
  uintptr_t pc;
  struct found *found;
};

static int look(struct dl_phdr_info *info, size_t size, void *arg) {
  (void)size;
  struct search *s = arg;
  void *table = NULL;
  int inside = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    uintptr_t start = info->dlpi_addr + p->p_vaddr;
    if (p->p_type == PT_GNU_EH_FRAME) table = (void *)start;
    if (p->p_type == PT_LOAD && s->pc - start < p->p_memsz) {
      inside = 1;
      s->found->start = (void *)start;
      s->found->end = (void *)(start + p->p_memsz);
    }
  }
  if (inside) s->found->eh_frame = table;
  return inside;
}

NEW(int, _dl_find_object, void *pc, struct found *found) {
  struct search s = {.pc = (uintptr_t)pc, .found = found};
  found->flags = 0;
  found->map = found->eh_frame = NULL;
  return dl_iterate_phdr(look, &s) && found->eh_frame ? 0 : -1;
}
#endif
