// Scratch of the threads that run chunks. Which slot a chunk gets depends on timing, what it computes does not.
#ifndef PLAITK_CONV_SLOTS_H
#define PLAITK_CONV_SLOTS_H

#include <stdatomic.h>
#include <stdint.h>

enum { CONV_ALIGN = 64 };

typedef struct {
  atomic_flag busy;
  char pad[CONV_ALIGN - sizeof(atomic_flag)];
} plaitk_conv_slot;

typedef struct {
  plaitk_conv_slot *slots;  // as many as threads can run chunks at a time
  char *bytes;
  int64_t size;             // of one slot's scratch
} plaitk_conv_slots;

static inline __attribute__((unused)) int64_t plaitk_conv_take(const plaitk_conv_slots *s) {
  int64_t i = 0;
  while (atomic_flag_test_and_set_explicit(&s->slots[i].busy, memory_order_acquire)) i++;
  return i;
}

static inline __attribute__((unused)) void plaitk_conv_give(const plaitk_conv_slots *s, int64_t i) {
  atomic_flag_clear_explicit(&s->slots[i].busy, memory_order_release);
}

// plaitk_conv_carve takes bytes from a scratch area and leaves the rest aligned. Starting from NULL it just counts.
static inline __attribute__((unused)) void *plaitk_conv_carve(char **at, int64_t bytes) {
  void *p = *at;
  *at = (char *)((intptr_t)*at + (bytes + CONV_ALIGN - 1) / CONV_ALIGN * CONV_ALIGN);
  return p;
}

#endif
