// What gen_calls.c says of the operations, and calls.c reads.
#include <stdint.h>

// One argument as the engine takes it.
typedef union {
  long long i;
  double d;
  const char *s;
} slot;

// What an argument is, and so how many slots it has.
typedef enum {
  TENSOR,    // a handle; 0 for none
  OPERAND,   // a handle or a kind of number, and the number
  TENSORS,   // the address of handles, and how many there are
  INTS,      // the same of integers; 0 and -1 for none
  FLOATS,    // and of numbers
  INT,       // an integer; 0 for none
  INT_SET,   // an integer, and whether there is one
  REAL,      // a number; 0 for none
  REAL_SET,  // a number, and whether there is one
  FLAG,      // whether
  FLAG_SET,  // whether, and whether that is said
  TEXT,      // characters up to a zero
  DTYPE,     // a number; -1 for none
  DEVICE,    // the same
  GENERATOR  // a handle; 0 for none
} kind;

typedef struct {
  const char *name;  // in Python
  kind kind;
  int optional;  // None stands for none
} parameter;

enum { MAX_PARAMETERS = 16, MAX_SLOTS = 33 };  // of an operation

// What an operation returns, where it is not a number of tensors: a list of them, or the argument that it has changed.
#define LIST (-1)
#define CHANGED(argument) (-2 - (argument))

typedef struct {
  const char *name;  // in Go
  const char *row;   // of the operation
  long long (*function)(const slot *);
  int results;  // tensors, or one of the above; a function of several takes the address of handles last
  int waits;    // for the values of its tensors
  int count;    // of parameters
  parameter parameters[MAX_PARAMETERS];
} operation;

extern const operation operations[];  // by name
extern const int operation_count;
