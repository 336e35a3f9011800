// Arguments of operations; see arguments.c.
#include "owner.h"

#include "calls.h"

enum { ROOM = 96 };  // elements of all lists of a call

// The room for the elements of lists.
typedef struct {
  int64_t ints[ROOM];
  double reals[ROOM];
  int whole, real;  // taken of each
} room;

// Writes an argument's slots and returns how many it has; 0 for what is left to Python.
int read_argument(const parameter *p, PyObject *v, slot *s, room *r);

// Returns how many slots an argument has.
int width(kind k);

// Returns what a slot of an argument, the first or the second, holds.
PyObject *box(slot s, kind k, int second);
