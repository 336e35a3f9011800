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
// until the workers inside have left. So fn, arg and the members' chunks are those of one call while a worker uses them,
// however late it woke up. The generation tells a worker that it has been in this call already. When it wraps around, a
// worker may miss one call, which does no harm.
#define OPEN 1u
#define INSIDE_ONE 2u
#define INSIDE_MASK 0xfffeu
#define GENERATION_ONE 0x10000u
#define GENERATION_MASK 0xffff0000u
#define MAX_THREADS 1024

// An idle thread spins for SPIN_NS, as long as a Python program takes from one call to the next; then it yields the
// processor between polls, which on a busy machine may be the end of its turn, and sleeps after LINGER_NS. Waking a
// sleeping thread takes longer than many calls: WAKE_NS until it runs, and a good part of that is the caller's time.
#define SPIN_NS 50000
#define LINGER_NS 200000
#define WAKE_NS 50000
#define MANY 4  // chunks of each thread, of which one may be run before others wake
#define CACHE_LINE 128

// A thread of a pool, and the chunks of the current call that it begins with, if it has a part of them. A thread that has
// none or is done with its own takes chunks of others.
typedef struct {
  _Alignas(CACHE_LINE) atomic_int_fast64_t next;
  int64_t end;
  plait_pool *pool;
  pthread_t thread;
} member;

struct plait_pool {
  _Alignas(CACHE_LINE) atomic_uint state;
  atomic_bool stop;

  // The owner of the pool writes these, and the members' chunks, while no worker is inside.
  _Alignas(CACHE_LINE) plait_task fn;
  void *arg;
  int parts;  // members that have chunks, the first ones

  _Alignas(CACHE_LINE) atomic_bool busy;
  int64_t alone_ns;       // how long calls have run without the workers that slept; the owner's
  atomic_int sleepers;    // workers that sleep, or are about to
  atomic_bool waiting;    // the caller sleeps, or is about to
  bool spins;
  pthread_mutex_t mutex;
  pthread_cond_t wake;    // idle workers wait here
  pthread_cond_t done;    // the caller waits here
  int workers;
  member members[];       // the owner, then the workers
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

// Runs the next of a member's chunks. Returns false if there is none.
static bool take_chunk(plait_pool *p, member *m) {
  if (atomic_load_explicit(&m->next, memory_order_relaxed) >= m->end) return false;
  int64_t chunk = atomic_fetch_add_explicit(&m->next, 1, memory_order_relaxed);
  if (chunk >= m->end) return false;
  p->fn(p->arg, chunk);
  return true;
}

// Runs chunks until all have been taken, those of member `first` before the others'.
static void take_chunks(plait_pool *p, int first) {
  for (int i = first; i < p->parts; i++) {
    while (take_chunk(p, &p->members[i])) {}
  }
  for (int i = 0; i < first && i < p->parts; i++) {
    while (take_chunk(p, &p->members[i])) {}
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
  const member *m = arg;
  plait_pool *p = m->pool;
  int first = (int)(m - p->members);
  unsigned seen = 0;
  for (;;) {
    wait_for_work(p, seen);
    if (atomic_load(&p->stop)) return NULL;
    unsigned s = atomic_load(&p->state);
    if (!(s & OPEN)) continue;
    if (!atomic_compare_exchange_strong(&p->state, &s, s + INSIDE_ONE)) continue;
    seen = s & GENERATION_MASK;
    take_chunks(p, first);
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

static void wake_workers(plait_pool *p, int64_t most) {
  pthread_mutex_lock(&p->mutex);
  int64_t wanted = atomic_load(&p->sleepers);
  if (most < wanted) wanted = most;
  for (int64_t i = 0; i < wanted; i++) pthread_cond_signal(&p->wake);
  pthread_mutex_unlock(&p->mutex);
}

// Runs a chunk while some workers sleep, and wakes them if the others will take long enough, by its time. Calls that are
// short but many wake them as well.
static void take_first_chunk(plait_pool *p, int64_t chunks) {
  int64_t start = now_ns();
  if (!take_chunk(p, &p->members[0])) return;
  p->alone_ns += (now_ns() - start) * (chunks - 1);
  if (p->alone_ns < WAKE_NS) return;
  p->alone_ns = 0;
  wake_workers(p, chunks - 1);
}

// Runs chunks in one or several parts.
static void run(plait_pool *p, int64_t chunks, int parts, plait_task fn, void *arg) {
  p->fn = fn;
  p->arg = arg;
  p->parts = parts;
  int64_t each = chunks / parts, more = chunks % parts, at = 0;
  for (int i = 0; i < parts; i++) {
    atomic_store_explicit(&p->members[i].next, at, memory_order_relaxed);
    p->members[i].end = at += each + (i < more);
  }
  // No worker is inside and the call is closed, so only the owner changes `state` here.
  unsigned s = atomic_load_explicit(&p->state, memory_order_relaxed);
  unsigned generation = (s & GENERATION_MASK) + GENERATION_ONE;
  if (generation == 0) generation = GENERATION_ONE;  // a new worker has generation 0
  atomic_store(&p->state, generation | OPEN);
  if (atomic_load(&p->sleepers) > 0) {
    if (parts > 1 && each >= MANY) {
      take_first_chunk(p, chunks);
    } else {
      wake_workers(p, chunks - 1);
    }
  }
  take_chunks(p, 0);
  atomic_fetch_and(&p->state, ~OPEN);
  wait_for_workers(p);
  atomic_store_explicit(&p->busy, false, memory_order_release);
}

// Runs everything on the calling thread, if there are no workers for it.
static bool run_alone(plait_pool *p, int64_t chunks, plait_task fn, void *arg) {
  if (p != NULL && chunks > 1 && !atomic_exchange_explicit(&p->busy, true, memory_order_acquire)) return false;
  for (int64_t i = 0; i < chunks; i++) fn(arg, i);
  return true;
}

void plait_parallel(plait_pool *p, int64_t chunks, plait_task fn, void *arg) {
  if (!run_alone(p, chunks, fn, arg)) run(p, chunks, 1, fn, arg);
}

void plait_parallel_parts(plait_pool *p, int64_t chunks, plait_task fn, void *arg) {
  if (!run_alone(p, chunks, fn, arg)) run(p, chunks, (int)(chunks <= p->workers ? chunks : p->workers + 1), fn, arg);
}

static void stop_workers(plait_pool *p) {
  pthread_mutex_lock(&p->mutex);
  atomic_store(&p->stop, true);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->mutex);
  for (int i = 0; i < p->workers; i++) pthread_join(p->members[i + 1].thread, NULL);
}

plait_pool *plait_pool_new(int threads) {
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  if (threads <= 1) return NULL;
  plait_pool *p = aligned_alloc(CACHE_LINE, sizeof(plait_pool) + (size_t)threads * sizeof(member));
  if (p == NULL) return NULL;
  atomic_init(&p->state, 0);
  atomic_init(&p->stop, false);
  atomic_init(&p->busy, false);
  atomic_init(&p->sleepers, 0);
  atomic_init(&p->waiting, false);
  // With more threads than processors, a spinning thread would take time from a working one.
  p->spins = threads <= usable_cpus();
  p->workers = 0;
  p->alone_ns = 0;
  pthread_mutex_init(&p->mutex, NULL);
  pthread_cond_init(&p->wake, NULL);
  pthread_cond_init(&p->done, NULL);

  // Signals are for the language runtimes of the process. A worker has none of their state, so it blocks all signals.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (int i = 0; i < threads - 1; i++) {
    member *m = &p->members[i + 1];
    m->pool = p;
    if (pthread_create(&m->thread, NULL, worker, m) != 0) break;
    p->workers++;
#if defined(__linux__)
    pthread_setname_np(m->thread, "plait-cpu");
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
