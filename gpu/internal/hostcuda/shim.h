// How compiled programs are run.
#ifndef PLAIT_HOSTCUDA_SHIM_H
#define PLAIT_HOSTCUDA_SHIM_H

#include <stdint.h>

// PLAITK_HOST_STALE fills memory that nothing has written: in each floating-point dtype it is NaN.
enum { PLAITK_HOST_TEXT = 512, PLAITK_HOST_THREADS = 1024, PLAITK_HOST_STALE = 0x7ff9 };

typedef struct {
  uint32_t x, y, z;
} plaitk_host_size;

// Where the running invocation is: plait_place of cuda.h.
typedef struct {
  plaitk_host_size thread, block, grid;
  void (*barrier)(void);
} plaitk_host_place;

// A buffer as programs see it.
typedef struct {
  void *at;
  uint64_t bytes;
} plaitk_host_buffer;

// A compiled program: the function of an invocation, and its workgroup memory. A library of programs has one for each.
typedef struct {
  void (*run)(const void *params, const plaitk_host_buffer *buffers);
  uint16_t *shared, *shared_end;
  plaitk_host_place **here;
} plaitk_host_program;

// plaitk_host_run runs a grid of workgroups of threads invocations. Unless barriers, the program has none. backward runs the last
// workgroup first, and its last invocation. On failure it returns 0, with the reason in error. One call runs at a time.
int plaitk_host_run(const plaitk_host_program *p, const void *params, const plaitk_host_buffer *buffers, uint32_t threads,
                    plaitk_host_size grid, int barriers, int backward, char error[PLAITK_HOST_TEXT]);

#endif
