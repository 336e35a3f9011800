// The shim between Go and NVIDIA's driver library. A list of commands is given to the driver in one call, errors of a
// device are collected in one place, and no function waits for the GPU. All functions of a device are called by one
// goroutine at a time, on any thread: each makes the device's context current while it runs.
#ifndef PLAIT_CUDA_SHIM_H
#define PLAIT_CUDA_SHIM_H

#include "cublaslt/shim.h"
#include "libcuda.h"

enum { PLAITK_CU_TEXT = 2048, PLAITK_CU_BUFFERS = 16, PLAITK_CU_LEFT = 2 };

// Behind each buffer lie bytes that programs may read and write, at most PLAITK_CU_PADDING. Indices out of bounds lead
// there.
enum { PLAITK_CU_PADDING = 16 };

typedef struct {
  char name[256];
  CUuuid uuid;
  uint64_t memory;
  int32_t capability, multiprocessors, integrated, invocations;
} plaitk_cu_adapter;

typedef struct plaitk_cu_event {
  CUevent event;
  int32_t state; // PLAITK_CU_NEW and so on
  struct plaitk_cu_event *next;
} plaitk_cu_event;

enum { PLAITK_CU_NEW, PLAITK_CU_RECORDED, PLAITK_CU_DONE, PLAITK_CU_FAILED };

// A queue beside the device's first stream.
typedef struct plaitk_cu_queue {
  CUstream stream;
  struct plaitk_cu_queue *next;
} plaitk_cu_queue;

typedef struct plaitk_cu {
  CUdevice device;
  CUcontext context;
  CUstream stream;
  int32_t failed;             // number of errors since they were last read
  int32_t lost;               // 1 if the device is lost, PLAITK_CU_LEFT after plaitk_cu_leave
  int32_t signals;            // 1 if it takes PLAITK_CU_SIGNAL and PLAITK_CU_AWAIT
  char error[PLAITK_CU_TEXT]; // the first of these errors
  plaitk_cu_event *spare;     // events for reuse
  plaitk_lt *lt;              // the library of matrix products, NULL for none
  int (*product)(plaitk_lt *lt, const plaitk_lt_product *product, void *stream);
  plaitk_cu_queue *queues;    // queues beside the stream
  struct plaitk_cu *next;     // the next open device
} plaitk_cu;

// A buffer as programs see it.
typedef struct {
  CUdeviceptr at;
  uint64_t bytes; // with PLAITK_CU_PADDING
} plaitk_cu_buffer;

// The buffers that a program binds.
typedef struct {
  int32_t count;
  plaitk_cu_buffer buffers[PLAITK_CU_BUFFERS];
} plaitk_cu_group;

typedef struct {
  CUmodule module;
  CUfunction function;
  uint32_t threads, dynamic;
  char name[64];
} plaitk_cu_program;

enum {
  PLAITK_CU_DISPATCH,
  PLAITK_CU_COPY,
  PLAITK_CU_COPY_PARAMS,
  PLAITK_CU_CLEAR,
  PLAITK_CU_PRODUCT,
  PLAITK_CU_GRAPH,
  PLAITK_CU_SIGNAL,
  PLAITK_CU_AWAIT,
};

// A command of a list. A dispatch runs x * y * z workgroups of a program; its parameters are at the offset params of the
// data of the list. A copy from the parameters has its source there too, at from. A product is number x of a list of its
// own. A signal writes x to the word at to, also in memory of another device, and an await holds back the queue until
// that word is at least x.
typedef struct {
  uint32_t kind, params, x, y, z;
  const plaitk_cu_program *program;
  const plaitk_cu_group *group;
  CUgraphExec graph;
  uint64_t to, from, size;
} plaitk_cu_command;

// plaitk_cu_adapters writes at most max adapters to out and returns how many there are.
int plaitk_cu_adapters(plaitk_cu_adapter *out, int max);

// plaitk_cu_open opens a device by its number in the order of plaitk_cu_adapters. On failure it returns NULL with a
// message in error.
plaitk_cu *plaitk_cu_open(int number, char *error);
void plaitk_cu_close(plaitk_cu *g);

// plaitk_cu_alloc returns 0 and sets g->error if there is no memory. With host, the memory is the host's, pinned.
CUdeviceptr plaitk_cu_alloc(plaitk_cu *g, uint64_t bytes, int host);
void plaitk_cu_free(plaitk_cu *g, CUdeviceptr at, int host);

// plaitk_cu_share writes a handle by which other processes can open memory of plaitk_cu_alloc. plaitk_cu_open_shared opens
// memory of another process on this device, and sets at. Both return the driver's error, which does not count as one of
// the device.
CUresult plaitk_cu_share(plaitk_cu *g, CUdeviceptr at, CUipcMemHandle *handle);
CUresult plaitk_cu_open_shared(plaitk_cu *g, const void *handle, CUdeviceptr *at);
void plaitk_cu_close_shared(plaitk_cu *g, CUdeviceptr at);

// plaitk_cu_load loads a compiled program; NULL on failure.
plaitk_cu_program *plaitk_cu_load(plaitk_cu *g, const char *name, const void *image, uint32_t threads, uint32_t dynamic);
void plaitk_cu_unload(plaitk_cu *g, plaitk_cu_program *p);

// plaitk_cu_new_queue returns a queue whose commands take precedence over those of the device's stream; NULL on failure.
plaitk_cu_queue *plaitk_cu_new_queue(plaitk_cu *g);
void plaitk_cu_free_queue(plaitk_cu *g, plaitk_cu_queue *q);

// plaitk_cu_reach makes the memory of another device usable on this one. Returns 1 if it is.
int plaitk_cu_reach(plaitk_cu *g, const plaitk_cu *other);

// plaitk_cu_give gives commands with the data of their parameters to a queue, or to the device's stream if q is NULL.
// copied is pinned memory that holds the data for copies from the parameters; it may be NULL if there are none. Returns 0
// if a command failed. Those behind it are not given.
int plaitk_cu_give(plaitk_cu *g, plaitk_cu_queue *q, const plaitk_cu_command *list, int n,
                   const plaitk_lt_product *products, const char *data, const char *copied);

// plaitk_cu_after makes what is submitted to the queue later wait for an event, which another device may have recorded.
void plaitk_cu_after(plaitk_cu *g, plaitk_cu_queue *q, const plaitk_cu_event *e);

// plaitk_cu_capture makes a graph of commands. copied is pinned memory, which must live as long as the graph. It returns
// NULL and sets g->error on failure.
CUgraphExec plaitk_cu_capture(plaitk_cu *g, const plaitk_cu_command *list, int n, const plaitk_lt_product *products,
                              const char *data, const char *copied);
void plaitk_cu_free_graph(plaitk_cu *g, CUgraphExec graph);

// plaitk_cu_new_event returns an event that is done when what was given to the queue, or the device's stream if q is NULL,
// before plaitk_cu_record has ended.
plaitk_cu_event *plaitk_cu_new_event(plaitk_cu *g);
void plaitk_cu_record(plaitk_cu *g, plaitk_cu_queue *q, plaitk_cu_event *e);
// plaitk_cu_look returns the state of an event. An event that fails makes the device count as lost.
int plaitk_cu_look(plaitk_cu *g, plaitk_cu_event *e);
void plaitk_cu_free_event(plaitk_cu *g, plaitk_cu_event *e);

// plaitk_cu_lose makes the device count as lost.
void plaitk_cu_lose(plaitk_cu *g, const char *message);

// plaitk_cu_leave makes all open devices count as lost and refuses to open others. It waits up to ten seconds for
// submitted work and returns 1 if all of it has ended. exit() calls it too. It may be called from any thread.
int plaitk_cu_leave(void);

#endif
