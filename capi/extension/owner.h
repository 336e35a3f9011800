// What the C files of the Python module share.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

// Returns the handle of an object that is a tensor; 0 for others, and in a forked child.
long long tensor_handle(PyObject *t);

// Whether this is a forked child.
int is_forked(void);

// Returns the tensor that owns a handle.
PyObject *own_handle(long long h);

// Returns the tensor whose memory the thread offers to an operation, which has its result there: see out.c.
PyObject *take_offered(void);

// Returns what a call makes, while the memory of the tensor out is offered to the operation of a name, given the handles of its inputs. If the
// operation's result is there, the result is out.
PyObject *offering(PyObject *out, const char *name, const int64_t *inputs, long long n, PyObject *(*run)(void *), void *what);

// Returns an object of a subclass of ObjectOwner that owns a handle; where that fails, gives it back.
PyObject *own_object(PyObject *cls, long long h);

// Returns the tensor of a status that is a handle. Of another it returns None, after which Python makes the call again. So it is not for
// functions that save values for derivatives, which Python may have to pack.
PyObject *made(long long status);

// Lets Python deal with a negative status of a function of the module, given its name and the arguments, whose reference it takes: to wait, to
// call again, to pack what derivatives save. Returns what comes of it, or -1 with an error set.
long long settled(PyObject *module, const char *function, long long status, PyObject *args);

// Whether an object is of the very class Tensor.
int is_plain(PyObject *t);

enum { MAX_DIMS = 12 };

#define EXACT (1LL << 53)  // up to which doubles have all integers

enum { A_FLOAT = -1, AN_INTEGER = -2, A_BOOL = -3 };  // what stands for a number of such a kind in the place of a tensor

// Writes sizes, an integer or a sequence and a tuple of those behind it, and returns their number; -1 for what is left to Python.
Py_ssize_t sizes_of(PyObject *first, PyObject *more, int64_t *sizes);

// Writes an integer of Python's; returns 0 where it is none, or too large.
static inline int integer(PyObject *value, int64_t *out) {
  int overflow = 1;
  if (PyLong_CheckExact(value)) *out = PyLong_AsLongLongAndOverflow(value, &overflow);
  return !overflow;
}

// Keeps an object for the engine, until it drops the key returned, which is even: those of Python's are odd.
static inline long long key_of(PyObject *value) {
  Py_INCREF(value);
  return (long long)(intptr_t)value;
}

// Lets go of an object that key_of has kept.
static inline void let_go(long long key) { Py_DECREF((PyObject *)(intptr_t)key); }

// The address of what a function of the engine reads or writes.
static inline long long address_of(const void *p) { return (long long)(intptr_t)p; }

#define FAST(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL

extern PyMethodDef view_functions[];      // views.c
extern PyMethodDef element_functions[];   // elements.c
extern PyMethodDef creation_functions[];  // creation.c
extern PyMethodDef array_functions[];     // arrays.c
extern PyMethodDef out_functions[];       // out.c
extern PyMethodDef call_functions[];      // calls.c
