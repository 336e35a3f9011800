// Another part of the program that uses MPI, as mpi4py does: it is preloaded, initialises MPI before the program starts, and
// finalises it when the program ends, or FOREIGN_FINALIZE milliseconds after the file FOREIGN_SIGN appears. LIBRARY is the
// library, and LEVEL the level of threads.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *library;

// The end of the program waits for one that has begun.
static void finalize(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static int done;
  pthread_mutex_lock(&lock);
  if (!done) ((int (*)(void))dlsym(library, "MPI_Finalize"))();
  done = 1;
  pthread_mutex_unlock(&lock);
}

static void *later(void *sign) {
  while (access(sign, F_OK)) usleep(1000);
  usleep(1000 * atoi(getenv("FOREIGN_FINALIZE")));
  finalize();
  return NULL;
}

__attribute__((constructor)) static void begin(void) {
  if (!getenv("FOREIGN")) return; // the launcher itself
  library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    _exit(1);
  }
  int level;
  ((int (*)(int *, char ***, int, int *))dlsym(library, "MPI_Init_thread"))(NULL, NULL, LEVEL, &level);
  atexit(finalize);
  pthread_t thread;
  if (getenv("FOREIGN_FINALIZE")) pthread_create(&thread, NULL, later, getenv("FOREIGN_SIGN"));
}
