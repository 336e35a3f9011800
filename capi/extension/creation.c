// New tensors of sizes and of Python's numbers, for the usual arguments. As in views.c, None leaves a call to Python.
#include "owner.h"

long long bind_Empty(long long, long long, long long, long long, char);
long long bind_Zeros(long long, long long, long long, long long, char);
long long bind_Ones(long long, long long, long long, long long, char);
long long bind_DtypeDefault(void);
long long bind_TensorFromMemory(long long, long long, long long, long long, long long, long long);

static PyObject *filled(PyObject *const *args, Py_ssize_t nargs, long long (*raw)(long long, long long, long long, long long, char)) {
  int64_t sizes[MAX_DIMS];
  Py_ssize_t n = nargs == 2 && !is_forked() ? sizes_of(args[0], args[1], sizes) : -1;
  if (n < 0) Py_RETURN_NONE;
  return made(raw(address_of(sizes), n, -1, -1, 0));
}

#define FILLED(name, raw) \
  static PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t nargs) { \
    (void)module; \
    return filled(args, nargs, raw); \
  }

FILLED(empty, bind_Empty)
FILLED(zeros, bind_Zeros)
FILLED(ones, bind_Ones)

enum { INT64 = 3, FLOAT32 = 6, FLOAT64 = 7, MOST = 512 };  // dtypes, as the engine numbers them, and numbers

// from_numbers(data): a tensor of a floating-point number or an integer, or of a list or tuple of such.
static PyObject *from_numbers(PyObject *module, PyObject *data) {
  (void)module;
  union {
    int64_t whole[MOST];
    double wide[MOST];
    float real[MOST];
  } room;
  int64_t n = 1, list = PyList_CheckExact(data), dims = list || PyTuple_CheckExact(data);
  if (dims) n = list ? PyList_Size(data) : PyTuple_Size(data);
  if (n < 1 || n > MOST || is_forked()) Py_RETURN_NONE;
  int64_t dtype = 0, size = sizeof *room.whole;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *v = !dims ? data : list ? PyList_GetItem(data, i) : PyTuple_GetItem(data, i);
    int whole = PyLong_CheckExact(v);
    if (!i) dtype = whole ? INT64 : PyFloat_CheckExact(v) ? bind_DtypeDefault() : 0;
    if (dtype == INT64) {
      if (!integer(v, room.whole + i)) Py_RETURN_NONE;
    } else if (!PyFloat_CheckExact(v) || (dtype != FLOAT32 && dtype != FLOAT64)) {
      Py_RETURN_NONE;
    } else if (dtype == FLOAT64) {
      room.wide[i] = PyFloat_AsDouble(v);
    } else {
      room.real[i] = (float)PyFloat_AsDouble(v);
      size = sizeof *room.real;
    }
  }
  return made(bind_TensorFromMemory(address_of(&room), n * size, dtype, address_of(&n), dims, -1));
}

PyMethodDef creation_functions[] = {
    {"empty", FAST(empty), "Returns a tensor of the default dtype, given the first size or all of them and a tuple of more, or None."},
    {"zeros", FAST(zeros), "Returns zeros, as empty does."},
    {"ones", FAST(ones), "Returns ones, as empty does."},
    {"from_numbers", from_numbers, METH_O, "Returns a tensor of a number or of the few numbers of a list or tuple, or None."},
    {NULL, NULL, 0, NULL},
};
