// A module that was built with a newer glibc also loads where glibc is older: setup.py's link sends calls of what is new there
// here.
#define _GNU_SOURCE
#include <features.h>

#ifdef __GLIBC__
#include <link.h>
#include <stddef.h>
#include <stdint.h>

// The new version of hypot differs in errno alone.
__asm__(".symver plait_old_hypot, hypot@GLIBC_2.2.5");
double plait_old_hypot(double x, double y);
double __wrap_hypot(double x, double y);

double __wrap_hypot(double x, double y) { return plait_old_hypot(x, y); }

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

int __wrap__dl_find_object(void *pc, struct found *found);

int __wrap__dl_find_object(void *pc, struct found *found) {
  struct search s = {.pc = (uintptr_t)pc, .found = found};
  found->flags = 0;
  found->map = found->eh_frame = NULL;
  return dl_iterate_phdr(look, &s) && found->eh_frame ? 0 : -1;
}
#endif
