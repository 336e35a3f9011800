// Scratch memory for the threads that run the chunks of a parallel call. A chunk takes any free slot while it runs; its
// result must not depend on which.
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
  plait_slot *slots;  // one for each thread that can run chunks
  char *bytes;        // scratch memory of all slots
  int64_t size;       // bytes of one slot, a multiple of PLAIT_SLOT_ALIGN
} plait_slots;

// Takes a free slot for a chunk and returns its number.
static inline __attribute__((unused)) int64_t plait_slot_acquire(const plait_slots *s) {
  int64_t i = 0;
  while (atomic_flag_test_and_set_explicit(&s->slots[i].busy, memory_order_acquire)) i++;
  return i;
}

// Frees a slot.
static inline __attribute__((unused)) void plait_slot_release(const plait_slots *s, int64_t i) {
  atomic_flag_clear_explicit(&s->slots[i].busy, memory_order_release);
}

// plait_carve takes bytes from a scratch area and keeps the rest aligned. With *at starting at NULL, it only counts
// bytes.
static inline __attribute__((unused)) void *plait_carve(char **at, int64_t bytes) {
  void *p = *at;
  *at = (char *)((intptr_t)*at + (bytes + PLAIT_SLOT_ALIGN - 1) / PLAIT_SLOT_ALIGN * PLAIT_SLOT_ALIGN);
  return p;
}

// plait_slots_plan carves slots of at least `size` bytes for `threads` threads. Call it once without lay_out to count,
// and once with it.
static inline __attribute__((unused)) void plait_slots_plan(plait_slots *s, char **at, int64_t threads, int64_t size,
                                                            int lay_out) {
  s->size = (size + PLAIT_SLOT_ALIGN - 1) / PLAIT_SLOT_ALIGN * PLAIT_SLOT_ALIGN;
  s->slots = plait_carve(at, threads * (int64_t)sizeof(plait_slot));
  s->bytes = plait_carve(at, threads * s->size);
  if (!lay_out) return;
  for (int64_t i = 0; i < threads; i++) atomic_flag_clear(&s->slots[i].busy);
}

#endif
