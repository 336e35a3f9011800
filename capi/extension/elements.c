// The values of small tensors as Python's numbers, where they are known, and what tensors are: sizes, dtypes and devices. As in views.c, None
// leaves a call to Python.
#include "owner.h"

#include <math.h>
#include <string.h>

long long bind_TensorPeek(long long, long long, long long);
long long bind_TensorPeekAll(long long, long long, long long, long long);
long long bind_TensorDetach(long long);
long long bind_TensorDevice(long long);
long long bind_TensorDtype(long long);
long long bind_TensorShape(long long, long long);
long long bind_TensorStrides(long long, long long);

enum { ROOM = 4096 };  // bytes

// peek(tensor): the only element, or None if it takes more than a look: a wait, a copy, or an error.
static PyObject *peek(PyObject *module, PyObject *t) {
  (void)module;
  double parts[2];
  long long whole, h = tensor_handle(t);
  switch (h ? bind_TensorPeek(h, address_of(parts), address_of(&whole)) : 0) {
    case 1: return PyFloat_FromDouble(*parts);
    case 2: return PyLong_FromLongLong(whole);
    case 3: return PyBool_FromLong(whole != 0);
    case 4: return PyComplex_FromDoubles(parts[0], parts[1]);
  }
  Py_RETURN_NONE;
}

// The dtypes, as the engine numbers them.
enum { BOOL, UINT8, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64, INT8, INT16, UINT16, UINT32, UINT64, COMPLEX64, COMPLEX128 };

#define READ(type, make) \
  { \
    type v; \
    memcpy(&v, *at, sizeof v); \
    *at += sizeof v; \
    return make(v); \
  }

#define READ_COMPLEX(type) \
  { \
    type v[2]; \
    memcpy(v, *at, sizeof v); \
    *at += sizeof v; \
    return PyComplex_FromDoubles(v[0], v[1]); \
  }

static PyObject *from_half(uint16_t bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double v = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
  if (exponent == 31) v = mantissa ? NAN : INFINITY;
  return PyFloat_FromDouble(bits >> 15 ? -v : v);
}

static PyObject *from_brain(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float v;
  memcpy(&v, &wide, sizeof v);
  return PyFloat_FromDouble(v);
}

// Returns the next element, and moves on.
static PyObject *element(int64_t dtype, const char **at) {
  switch (dtype) {
    case BOOL: READ(char, PyBool_FromLong)
    case UINT8: READ(uint8_t, PyLong_FromLong)
    case INT8: READ(int8_t, PyLong_FromLong)
    case INT16: READ(int16_t, PyLong_FromLong)
    case UINT16: READ(uint16_t, PyLong_FromLong)
    case INT32: READ(int32_t, PyLong_FromLong)
    case UINT32: READ(uint32_t, PyLong_FromUnsignedLong)
    case INT64: READ(int64_t, PyLong_FromLongLong)
    case UINT64: READ(uint64_t, PyLong_FromUnsignedLongLong)
    case FLOAT16: READ(uint16_t, from_half)
    case BFLOAT16: READ(uint16_t, from_brain)
    case FLOAT32: READ(float, PyFloat_FromDouble)
    case COMPLEX64: READ_COMPLEX(float)
    case COMPLEX128: READ_COMPLEX(double)
  }
  READ(double, PyFloat_FromDouble)
}

static PyObject *nested(int64_t dtype, const int64_t *shape, int64_t dims, const char **at) {
  if (!dims) return element(dtype, at);
  PyObject *list = PyList_New((Py_ssize_t)*shape);
  for (Py_ssize_t i = 0; list && i < *shape; i++) {
    PyObject *part = nested(dtype, shape + 1, dims - 1, at);
    if (!part || PyList_SetItem(list, i, part) < 0) Py_CLEAR(list);
  }
  return list;
}

// peek_all(tensor): the elements as nested lists, or None where there are many, or as for peek.
static PyObject *peek_all(PyObject *module, PyObject *t) {
  (void)module;
  char room[ROOM];
  int64_t layout[2 + MAX_DIMS];
  long long h = tensor_handle(t);
  if (!h || bind_TensorPeekAll(h, address_of(layout), address_of(room), ROOM) != 1) Py_RETURN_NONE;
  const char *at = room;
  return nested(layout[0], layout + 2, layout[1], &at);
}

// Returns the integers that a function says of a tensor in a tuple, or its status, which names an error.
static PyObject *integers(PyObject *t, long long (*raw)(long long, long long)) {
  int64_t values[MAX_DIMS];
  long long n = is_forked() ? -1 : raw(tensor_handle(t), address_of(values));
  if (n < 0) return PyLong_FromLongLong(n);
  PyObject *tuple = PyTuple_New((Py_ssize_t)n);
  for (Py_ssize_t i = 0; tuple && i < n; i++) {
    PyObject *v = PyLong_FromLongLong(values[i]);
    if (!v || PyTuple_SetItem(tuple, i, v) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *get_sizes(PyObject *module, PyObject *t) {
  (void)module;
  return integers(t, bind_TensorShape);
}

static PyObject *get_strides(PyObject *module, PyObject *t) {
  (void)module;
  return integers(t, bind_TensorStrides);
}

static PyObject *dtypes, *devices;  // by number: a list and a dictionary

// set_facts(dtypes, devices): takes the objects that stand for the engine's numbers.
static PyObject *set_facts(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  (void)module;
  if (nargs != 2 || !PyList_CheckExact(args[0]) || !PyDict_CheckExact(args[1])) {
    PyErr_SetString(PyExc_TypeError, "set_facts: want a list of dtypes and a dictionary of devices");
    return NULL;
  }
  dtypes = Py_NewRef(args[0]);  // for good
  devices = Py_NewRef(args[1]);
  Py_RETURN_NONE;
}

static PyObject *get_dtype(PyObject *module, PyObject *t) {
  (void)module;
  long long h = tensor_handle(t), number = h ? bind_TensorDtype(h) : -1;
  PyObject *found = number >= 0 && dtypes ? PyList_GetItem(dtypes, (Py_ssize_t)number) : Py_None;
  return Py_XNewRef(found);
}

static PyObject *get_device(PyObject *module, PyObject *t) {
  (void)module;
  long long h = tensor_handle(t), number = h ? bind_TensorDevice(h) : -1;
  PyObject *key = number >= 0 && devices ? PyLong_FromLongLong(number) : NULL;
  PyObject *found = key ? PyDict_GetItemWithError(devices, key) : NULL;
  Py_XDECREF(key);
  if (!found && PyErr_Occurred()) return NULL;
  return Py_NewRef(found ? found : Py_None);
}

static PyObject *get_detached(PyObject *module, PyObject *t) {
  (void)module;
  long long h = tensor_handle(t);
  if (!h) Py_RETURN_NONE;
  return made(bind_TensorDetach(h));
}

PyMethodDef element_functions[] = {
    {"set_facts", FAST(set_facts), "Takes the dtypes in the order of their numbers, and the devices by number."},
    {"dtype", get_dtype, METH_O, "Returns the dtype of a tensor, or None."},
    {"device", get_device, METH_O, "Returns the device of a tensor, or None."},
    {"detached", get_detached, METH_O, "Returns a tensor without its history, or None."},
    {"peek", peek, METH_O, "Returns the only element of a tensor, or None where that takes more than a look."},
    {"peek_all", peek_all, METH_O, "Returns the elements of a tensor as nested lists, or None where they are many or take more than a look."},
    {"sizes", get_sizes, METH_O, "Returns the sizes of a tensor's dimensions, or a status that names an error."},
    {"strides", get_strides, METH_O, "Returns the strides of a tensor in elements, or a status that names an error."},
    {NULL, NULL, 0, NULL},
};
