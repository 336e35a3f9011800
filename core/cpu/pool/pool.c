#define _GNU_SOURCE
#include "../include/plait_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>


// The atomic `state` describes the current call: an open bit, the number of workers inside, and a generation. A worker
// enters with a compare-and-swap that succeeds only while the open bit is set. The caller clears the bit, then waits
// until the workers inside have left. So fn, arg, chunks and next never change while a worker reads them, however late
// it woke up. The generation tells a worker that it has been in this call already. When it wraps around, a worker may
// miss one call, which does no harm.
#define OPEN 1u
#define INSIDE_ONE 2u
#define INSIDE_MASK 0xfffeu
#define GENERATION_ONE 0x10000u
#define GENERATION_MASK 0xffff0000u
#define MAX_THREADS 1024

// An idle thread spins for SPIN_NS, then yields the processor between polls, and sleeps after LINGER_NS. Waking a
// sleeping thread takes longer than many calls.
#define SPIN_NS 20000
#define LINGER_NS 200000
#define CACHE_LINE 128

struct plait_pool {
  _Alignas(CACHE_LINE) atomic_uint state;
  atomic_bool stop;

  _Alignas(CACHE_LINE) atomic_int_fast64_t next;

  // The owner of the pool writes these while no worker is inside.
  _Alignas(CACHE_LINE) plait_task fn;
  void *arg;
  int64_t chunks;

  _Alignas(CACHE_LINE) atomic_bool busy;
  atomic_int sleepers;    // workers that sleep, or are about to
  atomic_bool waiting;    // the caller sleeps, or is about to
  bool spins;
  pthread_mutex_t mutex;
  pthread_cond_t wake;    // idle workers wait here
  pthread_cond_t done;    // the caller waits here
  int workers;
  pthread_t threads[];
};

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int usable_cpus(void) {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : (int)n;
}

static void take_chunks(plait_pool *p) {
  for (;;) {
    int64_t chunk = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
    if (chunk >= p->chunks) return;
    p->fn(p->arg, chunk);
  }
}

// Called between polls. Yields after SPIN_NS; returns false when the thread should sleep.
static bool keep_polling(const plait_pool *p, int64_t since) {
  if (!p->spins) return false;
  int64_t spent = now_ns() - since;
  if (spent > SPIN_NS) sched_yield();
  return spent < LINGER_NS;
}

// Reports whether there is an open call of another generation, or the pool is to stop.
static bool has_work(plait_pool *p, unsigned seen) {
  unsigned s = atomic_load(&p->state);
  return ((s & OPEN) && (s & GENERATION_MASK) != seen) || atomic_load(&p->stop);
}

// Returns when there is a call that this worker has not been in, or the pool is to stop.
static void wait_for_work(plait_pool *p, unsigned seen) {
  int64_t since = now_ns();
  do {
    for (int i = 0; i < 32; i++) {
      if (has_work(p, seen)) return;
      relax();
    }
  } while (keep_polling(p, since));
  pthread_mutex_lock(&p->mutex);
  // The worker raises `sleepers` before it polls `state` a last time. The caller opens `state` before it reads
  // `sleepers`. So at least one of them sees the other.
  atomic_fetch_add(&p->sleepers, 1);
  while (!has_work(p, seen)) pthread_cond_wait(&p->wake, &p->mutex);
  atomic_fetch_sub(&p->sleepers, 1);
  pthread_mutex_unlock(&p->mutex);
}

static void *worker(void *arg) {
  plait_pool *p = arg;
  unsigned seen = 0;
  for (;;) {
    wait_for_work(p, seen);
    if (atomic_load(&p->stop)) return NULL;
    unsigned s = atomic_load(&p->state);
    if (!(s & OPEN)) continue;
    if (!atomic_compare_exchange_strong(&p->state, &s, s + INSIDE_ONE)) continue;
    seen = s & GENERATION_MASK;
    take_chunks(p);
    s = atomic_fetch_sub(&p->state, INSIDE_ONE) - INSIDE_ONE;
    if ((s & (OPEN | INSIDE_MASK)) == 0 && atomic_load(&p->waiting)) {
      pthread_mutex_lock(&p->mutex);
      pthread_cond_signal(&p->done);
      pthread_mutex_unlock(&p->mutex);
    }
  }
}

static bool empty(plait_pool *p) { return (atomic_load(&p->state) & INSIDE_MASK) == 0; }

// Returns when no worker is inside the closed call.
static void wait_for_workers(plait_pool *p) {
  if (empty(p)) return;
  int64_t since = now_ns();
  do {
    for (int i = 0; i < 32; i++) {
      if (empty(p)) return;
      relax();
    }
  } while (keep_polling(p, since));
  pthread_mutex_lock(&p->mutex);
  atomic_store(&p->waiting, true);
  while (!empty(p)) pthread_cond_wait(&p->done, &p->mutex);
  atomic_store(&p->waiting, false);
  pthread_mutex_unlock(&p->mutex);
}

void plait_parallel(plait_pool *p, int64_t chunks, plait_task fn, void *arg) {
  if (p == NULL || chunks <= 1 || atomic_exchange_explicit(&p->busy, true, memory_order_acquire)) {
    for (int64_t i = 0; i < chunks; i++) fn(arg, i);
    return;
  }
  p->fn = fn;
  p->arg = arg;
  p->chunks = chunks;
  atomic_store_explicit(&p->next, 0, memory_order_relaxed);
  // No worker is inside and the call is closed, so only the owner changes `state` here.
  unsigned s = atomic_load_explicit(&p->state, memory_order_relaxed);
  unsigned generation = (s & GENERATION_MASK) + GENERATION_ONE;
  if (generation == 0) generation = GENERATION_ONE;  // a new worker has generation 0
  atomic_store(&p->state, generation | OPEN);
  if (atomic_load(&p->sleepers) > 0) {
    pthread_mutex_lock(&p->mutex);
    int wanted = atomic_load(&p->sleepers);
    if (chunks - 1 < wanted) wanted = (int)(chunks - 1);
    for (int i = 0; i < wanted; i++) pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->mutex);
  }
  take_chunks(p);
  atomic_fetch_and(&p->state, ~OPEN);
  wait_for_workers(p);
  atomic_store_explicit(&p->busy, false, memory_order_release);
}

static void stop_workers(plait_pool *p) {
  pthread_mutex_lock(&p->mutex);
  atomic_store(&p->stop, true);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->mutex);
  for (int i = 0; i < p->workers; i++) pthread_join(p->threads[i], NULL);
}

plait_pool *plait_pool_new(int threads) {
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  if (threads <= 1) return NULL;
  size_t size = sizeof(plait_pool) + (size_t)(threads - 1) * sizeof(pthread_t);
  size = (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
  plait_pool *p = aligned_alloc(CACHE_LINE, size);
  if (p == NULL) return NULL;
  atomic_init(&p->state, 0);
  atomic_init(&p->stop, false);
  atomic_init(&p->next, 0);
  atomic_init(&p->busy, false);
  atomic_init(&p->sleepers, 0);
  atomic_init(&p->waiting, false);
  // With more threads than processors, a spinning thread would take time from a working one.
  p->spins = threads <= usable_cpus();
  p->workers = 0;
  pthread_mutex_init(&p->mutex, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);

  // Signals are for the language runtimes of the process. A worker has none of their state, so it blocks all signals.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (int i = 0; i < threads - 1; i++) {
    if (pthread_create(&p->threads[i], NULL, worker, p) != 0) break;
    p->workers++;
#if defined(__linux__)
    pthread_setname_np(p->threads[i], "plait-cpu");
#endif
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (p->workers == 0) {
    plait_pool_free(p);
    return NULL;
  }
  return p;
}

int plait_pool_threads(const plait_pool *pool) { return pool == NULL ? 1 : pool->workers + 1; }

void plait_pool_free(plait_pool *p) {
  if (p == NULL) return;
  stop_workers(p);
  pthread_cond_destroy(&p->done);
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->mutex);
  free(p);
}
