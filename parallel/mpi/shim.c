//go:build linux

#define _GNU_SOURCE
#include "common.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// How often a cancelled receive is looked for when somebody else finalises MPI.
enum { LAST_POLLS = 100 };

plaitk_mpi *plaitk_mpi_new(void *library, plaitk_mpi_about *about) {
  plaitk_mpi *m = calloc(1, sizeof *m);
  if (!m) {
    snprintf(about->error, sizeof about->error, "no memory");
    return NULL;
  }
  m->abi = about->abi;
  m->library = library;
  pthread_mutex_init(&m->lock, NULL);
  if (m->abi->load(m)) {
    snprintf(about->error, sizeof about->error, "%s", m->error);
    plaitk_mpi_free(m);
    return NULL;
  }
  return m;
}

void plaitk_mpi_free(plaitk_mpi *m) {
  // What MPI has not given back, and a handle of MPI's to m, must stay.
  if (m->pending || (m->processes && !m->ended)) return;
  m->abi->release(m);
  free(m->ids);
  free(m->results);
  free(m);
}

int plaitk_mpi_room(plaitk_mpi *m) {
  if (m->pending < m->capacity) return 1;
  int capacity = m->capacity ? 2 * m->capacity : 64;
  uint64_t *ids = realloc(m->ids, capacity * sizeof *ids);
  if (ids) m->ids = ids;
  plaitk_mpi_result *results = realloc(m->results, capacity * sizeof *results);
  if (results) m->results = results;
  if (!ids || !results) return 0;
  m->capacity = capacity;
  return 1;
}

int plaitk_mpi_join(plaitk_mpi *m, int given, int communicator) { return m->abi->join(m, given, communicator); }

// Between enter and pthread_mutex_unlock MPI may be called.
static int enter(plaitk_mpi *m) {
  pthread_mutex_lock(&m->lock);
  if (!m->ended) return 1;
  pthread_mutex_unlock(&m->lock);
  return 0;
}

int plaitk_mpi_start(plaitk_mpi *m, uint64_t id, int send, uintptr_t data, int bytes, int peer, int tag) {
  if (!enter(m)) return PLAITK_MPI_ENDED;
  int code = m->abi->start(m, id, send, (void *)data, bytes, peer, tag);
  pthread_mutex_unlock(&m->lock);
  return code;
}

int plaitk_mpi_barrier(plaitk_mpi *m, uint64_t id) {
  if (!enter(m)) return PLAITK_MPI_ENDED;
  int code = m->abi->barrier(m, id);
  pthread_mutex_unlock(&m->lock);
  return code;
}

int plaitk_mpi_poll(plaitk_mpi *m) {
  if (!enter(m)) return PLAITK_MPI_ENDED;
  int n = m->abi->poll(m);
  pthread_mutex_unlock(&m->lock);
  return n;
}

void plaitk_mpi_cancel(plaitk_mpi *m, uint64_t id) {
  if (!enter(m)) return;
  m->abi->cancel(m, id);
  pthread_mutex_unlock(&m->lock);
}

void plaitk_mpi_describe(plaitk_mpi *m, int code, char text[PLAITK_MPI_TEXT]) {
  if (!enter(m)) {
    snprintf(text, PLAITK_MPI_TEXT, "MPI has ended");
    return;
  }
  m->abi->describe(m, code, text);
  pthread_mutex_unlock(&m->lock);
}

// Ends the operations of m as far as they can be.
static void cancel_all(plaitk_mpi *m) {
  for (int i = 0; i < m->pending; i++) m->abi->cancel(m, m->ids[i]);
  for (int i = 0; i < LAST_POLLS && m->pending && m->abi->poll(m) >= 0; i++) {}
}

void plaitk_mpi_finalized(plaitk_mpi *m) {
  if (!enter(m)) return;
  cancel_all(m);
  m->ended = 1;
  pthread_mutex_unlock(&m->lock);
}

void plaitk_mpi_leave(plaitk_mpi *m, int everyone) {
  if (!enter(m)) return;
  m->ended = 1; // also for plaitk_mpi_finalized, which MPI calls from here
  pthread_mutex_unlock(&m->lock);
  m->abi->leave(m, everyone);
}

void *plaitk_mpi_memory(uint64_t bytes) { return malloc(bytes); }

int plaitk_mpi_thread(void) { return syscall(SYS_gettid); }

static void sleep_for(uint32_t *word, uint32_t seen, int64_t nanoseconds) {
  struct timespec t = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &t, NULL, 0);
}

int plaitk_mpi_watch(plaitk_mpi *m, uint32_t *lock, uint32_t *word, uint32_t seen, uint32_t *polls, int64_t pause,
                     int64_t most, int64_t limit) {
  uint32_t others = __atomic_load_n(polls, __ATOMIC_RELAXED);
  for (int64_t slept = 0; slept < limit;) {
    sleep_for(word, seen, pause);
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != seen) return 0;
    slept += pause;
    pause = pause * 5 / 4 < most ? pause * 5 / 4 : most;
    uint32_t now = __atomic_load_n(polls, __ATOMIC_RELAXED), unlocked = 0;
    if (now != others) {
      others = now; // they poll, and there is no need to do it here
      pause = most;
      continue;
    }
    if (!__atomic_compare_exchange_n(lock, &unlocked, PLAITK_MPI_WATCHING, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      continue;
    int n = plaitk_mpi_poll(m);
    if (n) return n;
    __atomic_store_n(lock, 0, __ATOMIC_RELEASE);
  }
  return 0;
}

void plaitk_mpi_wake(uint32_t *word) {
  __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

int plaitk_mpi_yield(void) { return sched_yield(); }

void plaitk_mpi_punctual(int64_t nanoseconds) { prctl(PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0); }
