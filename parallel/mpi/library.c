//go:build linux

#define _GNU_SOURCE
#include "common.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

void plaitk_mpi_hold_signals(plaitk_mpi_signals *s) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &s->mask);
  for (int i = 1; i < 65; i++) sigaction(i, NULL, &s->actions[i]);
}

void plaitk_mpi_restore_signals(const plaitk_mpi_signals *s) {
  for (int i = 1; i < 65; i++) {
    struct sigaction now;
    if (sigaction(i, NULL, &now) || now.sa_sigaction == s->actions[i].sa_sigaction) continue;
    if (s->actions[i].sa_handler != SIG_DFL) {
      sigaction(i, &s->actions[i], NULL);
      continue;
    }
    now.sa_flags |= SA_ONSTACK; // Go's threads have small stacks
    sigaction(i, &now, NULL);
  }
  pthread_sigmask(SIG_SETMASK, &s->mask, NULL);
}

enum { LEAST_VERSION = 3 };

// Asks a library what it is, before MPI is initialised.
static int ask(void *library, plaitk_mpi_about *about) {
  int (*get_version)(int *, int *) = (int (*)(int *, int *))dlsym(library, "MPI_Get_version");
  int (*initialized)(int *) = (int (*)(int *))dlsym(library, "MPI_Initialized");
  if (!get_version || !initialized) {
    snprintf(about->error, sizeof about->error, "it is not a library of MPI");
    return 0;
  }
  get_version(&about->version, &about->subversion);
  int (*name)(char *, int *) = (int (*)(char *, int *))dlsym(library, "MPI_Get_library_version");
  if (about->version < LEAST_VERSION || !name) {
    snprintf(about->error, sizeof about->error, "it implements MPI %d.%d, and %d.0 or newer is needed", about->version,
             about->subversion, LEAST_VERSION);
    return 0;
  }
  int size = 0, major = 0, minor = 0;
  name(about->library, &size);
  initialized(&about->initialized);
  int (*abi)(int *, int *) = (int (*)(int *, int *))dlsym(library, "MPI_Abi_get_version");
  if (abi && abi(&major, &minor) == 0 && major > 0) {
    about->abi = &plaitk_mpi_standard;
  } else if (dlsym(library, "ompi_mpi_comm_world")) {
    about->abi = &plaitk_mpi_openmpi;
  } else if (strcasestr(about->library, "mpich") || strcasestr(about->library, "mvapich") ||
             strstr(about->library, "Intel(R) MPI") || strcasestr(about->library, "cray")) {
    about->abi = &plaitk_mpi_mpich;
  } else {
    snprintf(about->error, sizeof about->error, "its ABI is none of those of MPICH, Open MPI and MPI 5: %.300s",
             about->library);
    return 0;
  }
  return 1;
}

void *plaitk_mpi_open(const char *name, int loaded, plaitk_mpi_about *about) {
  plaitk_mpi_signals signals;
  plaitk_mpi_hold_signals(&signals);
  memset(about, 0, sizeof *about);
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | (loaded ? RTLD_NOLOAD : 0));
  if (!library) {
    const char *error = dlerror();
    snprintf(about->error, sizeof about->error, "%s", error ? error : "it is not loaded");
  } else {
    // The functions may be those of a library that this one needs.
    Dl_info info;
    void *symbol = dlsym(library, "MPI_Initialized");
    snprintf(about->path, sizeof about->path, "%s", symbol && dladdr(symbol, &info) ? info.dli_fname : name);
    if (!ask(library, about)) {
      dlclose(library);
      library = NULL;
    }
  }
  plaitk_mpi_restore_signals(&signals);
  return library;
}

void plaitk_mpi_close(void *library) { dlclose(library); }

typedef struct {
  char *text;
  int size, used;
} paths;

static int add_path(struct dl_phdr_info *info, size_t size, void *data) {
  (void)size;
  paths *p = data;
  const char *base = strrchr(info->dlpi_name, '/');
  base = base ? base + 1 : info->dlpi_name;
  int n = strlen(info->dlpi_name);
  if (strncmp(base, "libmpi", 6) || p->used + n + 2 > p->size) return 0;
  p->used += snprintf(p->text + p->used, p->size - p->used, "%s\n", info->dlpi_name);
  return 0;
}

void plaitk_mpi_loaded(char *text, int size) {
  paths p = {text, size, 0};
  text[0] = 0;
  dl_iterate_phdr(add_path, &p);
}
