#include "order.h"

enum {
  RUN = 16,    // entries that are sorted by insertion
  SHORT = 192, // up to here merging beats distributing
};

#define E packed
#include "order_impl.h"

#define E wide
#include "order_impl.h"
