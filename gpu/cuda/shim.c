#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"

static const plaitk_cu_table *cu;

static void fail(plaitk_cu *g, const char *what, CUresult error) {
  if (error == CUDA_ERROR_DEINITIALIZED || error == CUDA_ERROR_ECC_UNCORRECTABLE ||
      (error >= CUDA_ERROR_ILLEGAL_ADDRESS && error <= CUDA_ERROR_LAUNCH_FAILED &&
       error != CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES && error != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)) {
    g->lost = g->lost ? g->lost : 1;
  }
  if (g->failed++) return;
  char text[512];
  plaitk_cu_describe(error, text, sizeof text);
  snprintf(g->error, sizeof g->error, "%s: %s", what, text);
}

void plaitk_cu_lose(plaitk_cu *g, const char *message) {
  g->lost = g->lost ? g->lost : 1;
  if (g->failed++ == 0) snprintf(g->error, sizeof g->error, "%s", message);
}

// Enters the driver for a device and makes its context current. Returns 0 if that is refused.
static int enter(plaitk_cu *g) {
  if (!plaitk_cu_guard_enter()) {
    if (!g->lost) plaitk_cu_lose(g, plaitk_cu_leaving);
    g->lost = PLAITK_CU_LEFT;
    return 0;
  }
  CUresult error = cu->context_push(g->context);
  if (!error) return 1;
  fail(g, "the context", error);
  plaitk_cu_guard_leave();
  return 0;
}

static void leave(void) {
  CUcontext old;
  cu->context_pop(&old);
  plaitk_cu_guard_leave();
}

static int attribute(CUdevice d, int which) {
  int v = 0;
  cu->device_attribute(&v, which, d);
  return v;
}

int plaitk_cu_adapters(plaitk_cu_adapter *out, int max) {
  if (!plaitk_cu_guard_enter()) return 0;
  int count = 0;
  if ((cu = plaitk_cu_library())) cu->device_count(&count);
  for (int i = 0; i < count && i < max; i++) {
    CUdevice d;
    plaitk_cu_adapter *a = &out[i];
    memset(a, 0, sizeof *a);
    if (cu->device_get(&d, i)) continue;
    size_t memory = 0;
    cu->device_name(a->name, sizeof a->name, d);
    cu->device_uuid(&a->uuid, d);
    cu->device_memory(&memory, d);
    a->memory = memory;
    a->capability = 10 * attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                    attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    a->multiprocessors = attribute(d, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    a->integrated = attribute(d, CU_DEVICE_ATTRIBUTE_INTEGRATED);
    a->invocations = attribute(d, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  }
  plaitk_cu_guard_leave();
  return count;
}

static plaitk_cu *open_device(int number, char *error) {
  plaitk_cu *g = calloc(1, sizeof *g);
  CUresult e = g ? cu->device_get(&g->device, number) : CUDA_ERROR_OUT_OF_MEMORY;
  if (!e) e = cu->context_retain(&g->context, g->device);
  if (!e) {
    if (!(e = cu->context_push(g->context))) {
      CUcontext old;
      e = cu->stream_create(&g->stream, CU_STREAM_NON_BLOCKING);
      cu->context_pop(&old);
    }
    if (e) cu->context_release(g->device);
  }
  if (!e) g->signals = attribute(g->device, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  if (!e) return g;
  plaitk_cu_describe(e, error, PLAITK_CU_TEXT);
  free(g);
  return NULL;
}

plaitk_cu *plaitk_cu_open(int number, char *error) {
  if (!plaitk_cu_guard_enter()) {
    snprintf(error, PLAITK_CU_TEXT, "%s", plaitk_cu_leaving);
    return NULL;
  }
  plaitk_cu *g = NULL;
  if ((cu = plaitk_cu_library())) {
    g = open_device(number, error);
  } else {
    snprintf(error, PLAITK_CU_TEXT, "%s", plaitk_cu_missing());
  }
  if (g) plaitk_cu_guard_add(g);
  plaitk_cu_guard_leave();
  return g;
}

void plaitk_cu_close(plaitk_cu *g) {
  if (!enter(g)) return; // plaitk_cu_leave may be using the device
  plaitk_cu_guard_remove(g);
  while (g->spare) {
    plaitk_cu_event *e = g->spare;
    g->spare = e->next;
    cu->event_destroy(e->event);
    free(e);
  }
  while (g->queues) {
    plaitk_cu_queue *q = g->queues;
    g->queues = q->next;
    cu->stream_destroy(q->stream);
    free(q);
  }
  cu->stream_destroy(g->stream);
  CUcontext old;
  cu->context_pop(&old);
  cu->context_release(g->device);
  free(g);
  plaitk_cu_guard_leave();
}

CUdeviceptr plaitk_cu_alloc(plaitk_cu *g, uint64_t bytes, int host) {
  if (!enter(g)) return 0;
  CUdeviceptr at = 0;
  CUresult e;
  if (host) {
    void *p = NULL;
    e = cu->alloc_host(&p, bytes, CU_MEMHOSTALLOC_PORTABLE);
    at = (CUdeviceptr)(uintptr_t)p;
  } else {
    e = cu->alloc(&at, bytes + PLAITK_CU_PADDING);
  }
  char what[96];
  snprintf(what, sizeof what, "allocating %llu bytes%s", (unsigned long long)bytes, host ? " of pinned memory" : "");
  if (e) fail(g, what, e);
  leave();
  return e ? 0 : at;
}

void plaitk_cu_free(plaitk_cu *g, CUdeviceptr at, int host) {
  if (g->lost || !enter(g)) return;
  CUresult e = host ? cu->free_host((void *)(uintptr_t)at) : cu->free(at);
  if (e) fail(g, "releasing memory", e);
  leave();
}

CUresult plaitk_cu_share(plaitk_cu *g, CUdeviceptr at, CUipcMemHandle *handle) {
  if (!enter(g)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  CUresult e = cu->share(handle, at);
  leave();
  return e;
}

CUresult plaitk_cu_open_shared(plaitk_cu *g, const void *handle, CUdeviceptr *at) {
  if (!enter(g)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  CUipcMemHandle copy;
  memcpy(&copy, handle, sizeof copy);
  CUresult e = cu->open_shared(at, copy, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  leave();
  return e;
}

void plaitk_cu_close_shared(plaitk_cu *g, CUdeviceptr at) {
  if (g->lost || !enter(g)) return;
  CUresult e = cu->close_shared(at);
  if (e) fail(g, "closing memory of another process", e);
  leave();
}

plaitk_cu_program *plaitk_cu_load(plaitk_cu *g, const char *name, const void *image, uint32_t threads, uint32_t dynamic) {
  if (!enter(g)) return NULL;
  plaitk_cu_program *p = calloc(1, sizeof *p);
  CUresult e = p ? cu->module_load(&p->module, image) : CUDA_ERROR_OUT_OF_MEMORY;
  if (!e) {
    e = cu->module_function(&p->function, p->module, "plait_main");
    if (!e && dynamic) e = cu->function_set(p->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)dynamic);
    if (e) cu->module_unload(p->module);
  }
  if (e) {
    fail(g, "loading the program", e);
    free(p);
    p = NULL;
  } else {
    p->threads = threads, p->dynamic = dynamic;
    snprintf(p->name, sizeof p->name, "%s", name);
  }
  leave();
  return p;
}

void plaitk_cu_unload(plaitk_cu *g, plaitk_cu_program *p) {
  if (!g->lost && enter(g)) {
    cu->module_unload(p->module);
    leave();
  }
  free(p);
}

plaitk_cu_queue *plaitk_cu_new_queue(plaitk_cu *g) {
  enum { FIRST = -5 }; // the driver takes the nearest priority that there is
  plaitk_cu_queue *q = calloc(1, sizeof *q);
  if (!q) return NULL;
  if (!enter(g)) {
    free(q);
    return NULL;
  }
  CUresult e = cu->stream_create_first(&q->stream, CU_STREAM_NON_BLOCKING, FIRST);
  if (e) {
    fail(g, "making a stream", e);
    free(q);
    q = NULL;
  } else {
    q->next = g->queues;
    g->queues = q;
  }
  leave();
  return q;
}

void plaitk_cu_free_queue(plaitk_cu *g, plaitk_cu_queue *q) {
  if (g->lost || !enter(g)) return; // plaitk_cu_leave may be using it
  plaitk_cu_queue **at = &g->queues;
  while (*at && *at != q) at = &(*at)->next;
  if (*at) *at = q->next;
  cu->stream_destroy(q->stream);
  free(q);
  leave();
}

int plaitk_cu_reach(plaitk_cu *g, const plaitk_cu *other) {
  if (g == other) return 1;
  if (g->lost || other->lost || !enter(g)) return 0;
  int can = 0;
  CUresult e = cu->can_access(&can, g->device, other->device);
  if (!e && can) e = cu->enable_access(other->context, 0);
  leave();
  return can && (e == CUDA_SUCCESS || e == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}

static CUstream stream_of(const plaitk_cu *g, const plaitk_cu_queue *q) { return q ? q->stream : g->stream; }

static void dispatch(plaitk_cu *g, CUstream stream, const plaitk_cu_command *c, const char *data) {
  void *params[1 + PLAITK_CU_BUFFERS] = {(void *)(data + c->params)};
  for (int i = 0; i < c->group->count; i++) params[1 + i] = (void *)&c->group->buffers[i];
  const plaitk_cu_program *p = c->program;
  CUresult e = cu->launch(p->function, c->x, c->y, c->z, p->threads, 1, 1, p->dynamic, stream, params, NULL);
  if (!e) return;
  char what[160];
  snprintf(what, sizeof what, "program %s, a grid of %u x %u x %u workgroups of %u", p->name, c->x, c->y, c->z, p->threads);
  fail(g, what, e);
}

static void product(plaitk_cu *g, CUstream stream, const plaitk_lt_product *p) {
  int status = g->product(g->lt, p, stream);
  if (!status || g->failed++) return;
  snprintf(g->error, sizeof g->error, "a matrix product by cuBLASLt: %s (%d)", plaitk_lt_status(status), status);
}

static const char *name_of(const plaitk_cu_command *c) {
  switch (c->kind) {
  case PLAITK_CU_CLEAR:
    return "clearing memory";
  case PLAITK_CU_GRAPH:
    return "a graph";
  case PLAITK_CU_SIGNAL:
    return "a signal";
  case PLAITK_CU_AWAIT:
    return "waiting for a signal";
  default:
    return "copying memory";
  }
}

// Gives the commands to a stream, up to the first that fails. Returns 1 if none does.
static int give(plaitk_cu *g, CUstream stream, const plaitk_cu_command *list, int n, const plaitk_lt_product *products,
                 const char *data, const char *copied) {
  int32_t before = g->failed;
  for (int i = 0; i < n && g->failed == before; i++) {
    const plaitk_cu_command *c = &list[i];
    CUresult e = CUDA_SUCCESS;
    switch (c->kind) {
    case PLAITK_CU_DISPATCH:
      dispatch(g, stream, c, data);
      break;
    case PLAITK_CU_PRODUCT:
      product(g, stream, &products[c->x]);
      break;
    case PLAITK_CU_COPY:
      e = cu->copy(c->to, c->from, c->size, stream);
      break;
    case PLAITK_CU_COPY_PARAMS:
      e = cu->copy(c->to, (CUdeviceptr)(uintptr_t)(copied + c->from), c->size, stream);
      break;
    case PLAITK_CU_CLEAR:
      e = cu->set(c->to, 0, c->size / 4, stream);
      break;
    case PLAITK_CU_GRAPH:
      e = cu->graph_launch(c->graph, stream);
      break;
    case PLAITK_CU_SIGNAL:
      e = cu->signal(stream, c->to, c->x, CU_STREAM_WRITE_VALUE_DEFAULT);
      break;
    case PLAITK_CU_AWAIT:
      e = cu->await(stream, c->to, c->x, CU_STREAM_WAIT_VALUE_GEQ);
      break;
    }
    if (e) fail(g, name_of(c), e);
  }
  return g->failed == before;
}

int plaitk_cu_give(plaitk_cu *g, plaitk_cu_queue *q, const plaitk_cu_command *list, int n,
                   const plaitk_lt_product *products, const char *data, const char *copied) {
  if (g->lost || !enter(g)) return 0;
  int given = give(g, stream_of(g, q), list, n, products, data, copied);
  leave();
  return given;
}

CUgraphExec plaitk_cu_capture(plaitk_cu *g, const plaitk_cu_command *list, int n, const plaitk_lt_product *products,
                              const char *data, const char *copied) {
  if (g->lost || !enter(g)) return NULL;
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  CUresult e = cu->capture_begin(g->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  if (e) {
    fail(g, "beginning a graph", e);
  } else {
    int given = give(g, g->stream, list, n, products, data, copied);
    if ((e = cu->capture_end(g->stream, &graph))) fail(g, "ending a graph", e); // also after a command that failed
    if (given && !e && (e = cu->graph_instantiate(&exec, graph, 0))) {
      fail(g, "making a graph", e);
      exec = NULL;
    }
    if (graph) cu->graph_destroy(graph);
  }
  leave();
  return exec;
}

void plaitk_cu_free_graph(plaitk_cu *g, CUgraphExec graph) {
  if (g->lost || !enter(g)) return;
  CUresult e = cu->graph_exec_destroy(graph);
  if (e) fail(g, "releasing a graph", e);
  leave();
}

void plaitk_cu_after(plaitk_cu *g, plaitk_cu_queue *q, const plaitk_cu_event *e) {
  if (g->lost || !e->event || !enter(g)) return;
  CUresult error = cu->stream_wait(stream_of(g, q), e->event, 0);
  if (error) fail(g, "waiting for an event", error);
  leave();
}

plaitk_cu_event *plaitk_cu_new_event(plaitk_cu *g) {
  plaitk_cu_event *e = g->spare;
  if (e) {
    g->spare = e->next;
    e->state = PLAITK_CU_NEW;
    return e;
  }
  if (!(e = calloc(1, sizeof *e))) return NULL;
  if (!enter(g)) {
    e->state = PLAITK_CU_FAILED;
    return e;
  }
  CUresult error = cu->event_create(&e->event, CU_EVENT_DISABLE_TIMING);
  if (error) {
    fail(g, "making an event", error);
    e->event = NULL, e->state = PLAITK_CU_FAILED;
  }
  leave();
  return e;
}

void plaitk_cu_record(plaitk_cu *g, plaitk_cu_queue *q, plaitk_cu_event *e) {
  if (e->state == PLAITK_CU_FAILED) return;
  if (g->lost || !enter(g)) {
    e->state = PLAITK_CU_FAILED;
    return;
  }
  CUresult error = cu->event_record(e->event, stream_of(g, q));
  if (error) fail(g, "an event", error);
  e->state = error || g->lost ? PLAITK_CU_FAILED : PLAITK_CU_RECORDED;
  leave();
}

int plaitk_cu_look(plaitk_cu *g, plaitk_cu_event *e) {
  if (e->state != PLAITK_CU_RECORDED) return e->state;
  if (g->lost || !enter(g)) return e->state = PLAITK_CU_FAILED;
  CUresult error = cu->event_query(e->event);
  if (error && error != CUDA_ERROR_NOT_READY) {
    g->lost = 1;
    fail(g, "a program failed while it ran", error);
    e->state = PLAITK_CU_FAILED;
  } else if (!error) {
    e->state = PLAITK_CU_DONE;
  }
  leave();
  return e->state;
}

void plaitk_cu_free_event(plaitk_cu *g, plaitk_cu_event *e) {
  if (!e->event) {
    free(e);
    return;
  }
  e->next = g->spare;
  g->spare = e;
}
