#include "guard.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

const char plaitk_cu_leaving[] = "the process ends, or is a fork of the one that opened the GPU";

static struct {
  pthread_mutex_t mutex; // guards open; held by plaitk_cu_leave too
  plaitk_cu *open;       // list of open devices
  pid_t process;         // the process that opened the first
  int leaving;           // no thread may enter any more
  int inside;            // number of threads that have entered
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

enum { LEAVE_SECONDS = 10, LEAVE_PAUSE = 200 }; // how long plaitk_cu_leave waits, and microseconds between two checks

static int forked(void) {
  pid_t p = __atomic_load_n(&state.process, __ATOMIC_SEQ_CST);
  return p && p != getpid();
}

void plaitk_cu_guard_leave(void) { __atomic_fetch_sub(&state.inside, 1, __ATOMIC_SEQ_CST); }

int plaitk_cu_guard_enter(void) {
  __atomic_fetch_add(&state.inside, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&state.leaving, __ATOMIC_SEQ_CST) && !forked()) return 1;
  plaitk_cu_guard_leave();
  return 0;
}

static void at_exit(void) { plaitk_cu_leave(); }

void plaitk_cu_guard_add(plaitk_cu *g) {
  pthread_mutex_lock(&state.mutex);
  if (!state.process) {
    __atomic_store_n(&state.process, getpid(), __ATOMIC_SEQ_CST);
    atexit(at_exit);
  }
  g->next = state.open;
  state.open = g;
  pthread_mutex_unlock(&state.mutex);
}

void plaitk_cu_guard_remove(plaitk_cu *g) {
  pthread_mutex_lock(&state.mutex);
  plaitk_cu **at = &state.open;
  while (*at && *at != g) at = &(*at)->next;
  if (*at) *at = g->next;
  pthread_mutex_unlock(&state.mutex);
}

// Reports whether the GPUs have done all submitted work. It is called when no thread can be inside the driver any more.
static int idle(void) {
  const plaitk_cu_table *cu = plaitk_cu_library();
  int all = 1;
  for (plaitk_cu *g = state.open; g; g = g->next) {
    if (g->lost && g->lost != PLAITK_CU_LEFT) continue;
    if (cu->context_push(g->context)) continue;
    all &= cu->stream_query(g->stream) != CUDA_ERROR_NOT_READY;
    for (plaitk_cu_queue *q = g->queues; q; q = q->next) all &= cu->stream_query(q->stream) != CUDA_ERROR_NOT_READY;
    CUcontext old;
    cu->context_pop(&old);
  }
  return all;
}

int plaitk_cu_leave(void) {
  if (forked()) return 1;
  __atomic_store_n(&state.leaving, 1, __ATOMIC_SEQ_CST);
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    pthread_mutex_lock(&state.mutex);
    int done = __atomic_load_n(&state.inside, __ATOMIC_SEQ_CST) == 0 && idle();
    pthread_mutex_unlock(&state.mutex);
    if (done) return 1;
    usleep(LEAVE_PAUSE);
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (now.tv_sec - begin.tv_sec < LEAVE_SECONDS);
  return 0;
}
