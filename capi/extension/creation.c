// New tensors of Python's numbers, for the usual ones. As in views.c, None leaves a call to Python.
#include "owner.h"

long long bind_DtypeDefault(void);
long long bind_TensorFromMemory(long long, long long, long long, long long, long long, long long);

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
    {"from_numbers", from_numbers, METH_O, "Returns a tensor of a number or of the few numbers of a list or tuple, or None."},
    {NULL, NULL, 0, NULL},
};
