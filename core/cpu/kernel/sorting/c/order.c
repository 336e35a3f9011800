#include "order.h"

enum {
  RUN = 16,    // entries in a run, which is sorted by insertion
  SHORT = 192, // entries up to which merge sort is faster than radix sort
};

#define E packed
#include "order_impl.h"

#define E wide
#include "order_impl.h"
