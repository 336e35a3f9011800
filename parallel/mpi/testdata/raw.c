// Times MPI itself between two processes: messages back and forth, non-blocking and polled as the transport does, and
// MPI_Allreduce. It prints a value and a unit on each line. ABI is a header of this package, LIBRARY the library.
#include <stddef.h>

#include ABI
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void *handle; // a handle of any ABI in a register

#if defined MPICH
#define FLOAT ((handle)0x4c00040a)
#define SUM ((handle)0x58000003)
#elif defined STANDARD
#define FLOAT ((handle)0x210)
#define SUM ((handle)0x21)
#else
#define FLOAT dlsym(library, "ompi_mpi_float")
#define SUM dlsym(library, "ompi_mpi_op_sum")
#endif
#ifdef ABI_SYMBOLS
#define TEXT(symbol) #symbol
#define NAME(symbol) TEXT(symbol)
#define HANDLE(name) dlsym(library, NAME(name))
#else
#define HANDLE(name) ((handle)(ptrdiff_t)(name))
#endif

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return 1e6 * t.tv_sec + 1e-3 * t.tv_nsec;
}

int main(void) {
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
#define GET(type, name, params) type(*name) params = (type(*) params)dlsym(library, "MPI_" #name)
  GET(int, Init, (int *, char ***));
  GET(int, Finalize, (void));
  GET(int, Comm_rank, (handle, int *));
  GET(int, Isend, (void *, int, handle, int, int, handle, abi_request *));
  GET(int, Irecv, (void *, int, handle, int, int, handle, abi_request *));
  GET(int, Testall, (int, abi_request *, int *, void *));
  GET(int, Allreduce, (void *, void *, int, handle, handle, handle));
  Init(NULL, NULL);
  handle world = HANDLE(ABI_COMM_WORLD), byte = HANDLE(ABI_BYTE), number = FLOAT, sum = SUM;
  int rank;
  Comm_rank(world, &rank);
  static abi_status statuses[2];
  const int most = 32 << 20;
  char *a = calloc(1, most), *b = calloc(1, most);

  const int sizes[] = {4, 65536, 4 << 20}, rounds[] = {2000, 200, 10};
  for (int s = 0; s < 3; s++) {
    double best = 1e30;
    for (int k = 0; k < 20; k++) {
      double begin = now();
      for (int i = 0; i < rounds[s]; i++)
        for (int way = 0; way < 2; way++) {
          abi_request r;
          int done = 0;
          if (way == rank) Isend(a, sizes[s], byte, 1 - rank, 1, world, &r);
          else Irecv(b, sizes[s], byte, 1 - rank, 1, world, &r);
          while (!done) Testall(1, &r, &done, statuses);
        }
      double t = (now() - begin) / rounds[s] / 2;
      if (t < best) best = t;
    }
    if (!rank) printf("%g raw-us/%dB\n", best, sizes[s]);
  }
  const int lengths[] = {4, 256 << 10, 4 << 20, 32 << 20}, times[] = {2000, 100, 10, 2};
  for (int s = 0; s < 4; s++) {
    double best = 1e30;
    for (int k = 0; k < 20; k++) {
      double begin = now();
      for (int i = 0; i < times[s]; i++) Allreduce(a, b, lengths[s] / 4, number, sum, world);
      double t = (now() - begin) / times[s];
      if (t < best) best = t;
    }
    if (!rank) printf("%g allreduce-us/%dB\n", best, lengths[s]);
  }
  Finalize();
  return 0;
}
