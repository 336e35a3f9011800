//go:build cgo && linux && amd64

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>

void *plaitk_library_open(const char *name, int loaded, char text[PLAITK_LIBRARY_TEXT]) {
  // The library's own threads must not receive signals, which belong to the language runtimes of the process.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | (loaded ? RTLD_NOLOAD : 0));
  const char *error = library == NULL ? dlerror() : NULL;
  snprintf(text, PLAITK_LIBRARY_TEXT, "%s", error == NULL ? name : error);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  struct link_map *map = NULL;
  if (library != NULL && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != 0)
    snprintf(text, PLAITK_LIBRARY_TEXT, "%s", map->l_name);
  return library;
}

void *plaitk_library_symbol(void *library, const char *name) { return dlsym(library, name); }
