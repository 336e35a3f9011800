// Scratch memory for the threads that run the chunks of a parallel call. Which slot a chunk gets depends on timing,
// what it computes does not.
#ifndef PLAIT_SLOTS_H
#define PLAIT_SLOTS_H

#include <stdatomic.h>
#include <stdint.h>

enum { PLAIT_SLOT_ALIGN = 64 };

typedef struct {
  atomic_flag busy;
  char pad[PLAIT_SLOT_ALIGN - sizeof(atomic_flag)];
} plait_slot;

typedef struct {
  plait_slot *slots;  // as many as threads can run chunks at a time
  char *bytes;
  int64_t size;       // of one slot's scratch, a multiple of PLAIT_SLOT_ALIGN
} plait_slots;

static inline __attribute__((unused)) int64_t plait_take(const plait_slots *s) {
  int64_t i = 0;
  while (atomic_flag_test_and_set_explicit(&s->slots[i].busy, memory_order_acquire)) i++;
  return i;
}

static inline __attribute__((unused)) void plait_give(const plait_slots *s, int64_t i) {
  atomic_flag_clear_explicit(&s->slots[i].busy, memory_order_release);
}

// plait_carve takes bytes from a scratch area and leaves the rest aligned. Starting from NULL it just counts.
static inline __attribute__((unused)) void *plait_carve(char **at, int64_t bytes) {
  void *p = *at;
  *at = (char *)((intptr_t)*at + (bytes + PLAIT_SLOT_ALIGN - 1) / PLAIT_SLOT_ALIGN * PLAIT_SLOT_ALIGN);
  return p;
}

// plait_slots_plan carves slots of at least `size` bytes for `threads` threads. Call it once to count and once to lay out.
static inline __attribute__((unused)) void plait_slots_plan(plait_slots *s, char **at, int64_t threads, int64_t size,
                                                            int lay_out) {
  s->size = (size + PLAIT_SLOT_ALIGN - 1) / PLAIT_SLOT_ALIGN * PLAIT_SLOT_ALIGN;
  s->slots = plait_carve(at, threads * (int64_t)sizeof(plait_slot));
  s->bytes = plait_carve(at, threads * s->size);
  if (!lay_out) return;
  for (int64_t i = 0; i < threads; i++) atomic_flag_clear(&s->slots[i].busy);
}

#endif
