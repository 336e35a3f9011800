// Package exercise runs C work on a pool for the pool's tests, which cannot use cgo themselves.
package exercise

/*
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "../../../include/plait_pool.h"

struct counts {
  atomic_int *seen;
  int64_t chunks;
  int work;
  atomic_int_fast64_t bad;
};

static void count(void *arg, int64_t chunk) {
  struct counts *c = arg;
  if (chunk < 0 || chunk >= c->chunks) {
    atomic_fetch_add(&c->bad, 1);
    return;
  }
  for (volatile int i = 0; i < c->work; i++) {}
  atomic_fetch_add(&c->seen[chunk], 1);
}

// Each call has its own counters on the heap and frees them at once. So a worker that is late, or that reads another
// call's work, shows up as a wrong count or as an access to freed memory.
static int64_t repeat(void *pool, int64_t calls, int64_t chunks, int work) {
  int64_t wrong = 0;
  for (int64_t i = 0; i < calls; i++) {
    int64_t n = 1 + (chunks + i) % (chunks > 0 ? chunks : 1);
    struct counts c = {.seen = calloc((size_t)n, sizeof(atomic_int)), .chunks = n, .work = work};
    plait_parallel(pool, n, count, &c);
    for (int64_t k = 0; k < n; k++) wrong += atomic_load(&c.seen[k]) != 1;
    wrong += atomic_load(&c.bad);
    free(c.seen);
  }
  return wrong;
}

struct nested {
  void *pool;
  atomic_int_fast64_t wrong;
};

static void nest(void *arg, int64_t chunk) {
  struct nested *n = arg;
  atomic_fetch_add(&n->wrong, repeat(n->pool, 3, 5 + chunk % 3, 10));
}

static int64_t run_nested(void *pool, int64_t chunks) {
  struct nested n = {.pool = pool};
  plait_parallel(pool, chunks, nest, &n);
  return atomic_load(&n.wrong);
}

struct threads {
  pthread_t caller;
  atomic_int others, unblocked;
  atomic_int_fast64_t first;
  int want;
};

static void check_thread(void *arg, int64_t chunk) {
  struct threads *t = arg;
  if (pthread_equal(pthread_self(), t->caller)) {
    if (chunk == 0) {
      for (volatile int i = 0; i < 1000000; i++) {}
    } else {
      while (t->want > 0 && atomic_load(&t->others) == 0) {}
    }
    return;
  }
  if (atomic_fetch_add(&t->others, 1) == 0) atomic_store(&t->first, chunk);
  sigset_t set;
  pthread_sigmask(SIG_SETMASK, NULL, &set);
  if (!sigismember(&set, SIGINT) || !sigismember(&set, SIGURG) || !sigismember(&set, SIGPROF)) {
    atomic_fetch_add(&t->unblocked, 1);
  }
}

// Returns the number of chunks that workers ran. *unblocked gets the number of those whose thread could have received a
// signal, and *first the first of those chunks. The caller's first chunk takes so long that workers that sleep are woken,
// and its next waits until a worker has run one.
static int64_t run_check_thread(void *pool, int64_t chunks, int64_t *unblocked, int64_t *first) {
  struct threads t = {.caller = pthread_self(), .want = pool != NULL};
  plait_parallel_parts(pool, chunks, check_thread, &t);
  *unblocked = atomic_load(&t.unblocked);
  *first = atomic_load(&t.first);
  return atomic_load(&t.others);
}

static void nothing(void *arg, int64_t chunk) { (void)arg; (void)chunk; }

static void run_nothing(void *pool, int64_t calls, int64_t chunks) {
  for (int64_t i = 0; i < calls; i++) plait_parallel(pool, chunks, nothing, NULL);
}
*/
import "C"

import "unsafe"

// Repeat makes calls of up to chunks chunks back to back. It returns how many chunks did not run exactly once.
func Repeat(pool unsafe.Pointer, calls, chunks, work int) int {
	return int(C.repeat(pool, C.int64_t(calls), C.int64_t(chunks), C.int(work)))
}

// Nested makes a call whose chunks make calls on the same pool. It returns how many chunks did not run exactly once.
func Nested(pool unsafe.Pointer, chunks int) int {
	return int(C.run_nested(pool, C.int64_t(chunks)))
}

// Workers makes one call. It returns how many chunks ran on worker threads, how many of those ran with a signal
// unblocked, and the first of them.
func Workers(pool unsafe.Pointer, chunks int) (others, unblocked, first int) {
	var u, f C.int64_t
	n := C.run_check_thread(pool, C.int64_t(chunks), &u, &f)
	return int(n), int(u), int(f)
}

// Nothing makes calls of chunks chunks that do no work.
func Nothing(pool unsafe.Pointer, calls, chunks int) {
	C.run_nothing(pool, C.int64_t(calls), C.int64_t(chunks))
}
