// Views that Python's programs take most often: parts by an index in square brackets, and tensors of other sizes.
//
// Each of the functions returns None for what it does not do itself: arguments of other types, and what ends in an error.
// Then Python does it, in a way that finds the words for the error, or that waits.
#include "owner.h"

long long bind_ErrorRelease(long long);
long long bind_IndexGetKnown(long long, long long, long long);
long long bind_IndexSetKnown(long long, long long, double, long long, long long);
long long bind_Reshape(long long, long long, long long);
long long bind_View(long long, long long, long long);
long long bind_Permute(long long, long long, long long);
long long bind_Expand(long long, long long, long long);

enum { BUSY = -1, MAX_PARTS = 16 };

PyObject *made(long long status) {
  if (status > 0) return own_handle(status);
  if (status < BUSY) bind_ErrorRelease(status);
  Py_RETURN_NONE;
}

enum { SLICE, INTEGER, TENSOR, NEW_AXIS, ELLIPSIS };  // the parts of an index, as the engine numbers them

// Writes a part of an index as the engine takes it; returns 0 for one that is left to Python.
static int index_part(PyObject *part, int64_t *out) {
  if (part == Py_None) {
    out[0] = NEW_AXIS;
  } else if (part == Py_Ellipsis) {
    out[0] = ELLIPSIS;
  } else if (Py_TYPE(part) == &PySlice_Type) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(part, &start, &stop, &step) < 0) {
      PyErr_Clear();
      return 0;
    }
    if (step <= 0) return 0;
    out[0] = SLICE;
    out[1] = start < -PY_SSIZE_T_MAX ? -PY_SSIZE_T_MAX : start;
    out[2] = stop < -PY_SSIZE_T_MAX ? -PY_SSIZE_T_MAX : stop;
    out[3] = step;
  } else {
    out[0] = (out[1] = is_plain(part) ? tensor_handle(part) : 0) ? TENSOR : INTEGER;
    return out[1] || integer(part, &out[1]);
  }
  return 1;
}

// Writes an index as the engine takes it and returns the number of its parts; -1 for one that is left to Python.
static Py_ssize_t index_parts(PyObject *index, int64_t *parts) {
  if (!PyTuple_CheckExact(index)) return index_part(index, parts) ? 1 : -1;
  Py_ssize_t n = PyTuple_Size(index);
  if (n > MAX_PARTS) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!index_part(PyTuple_GetItem(index, i), parts + 4 * i)) return -1;
  }
  return n;
}

// index(tensor, index): the part of a tensor that integers, slices, new dimensions and tensors say.
static PyObject *get_part(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  int64_t parts[4 * MAX_PARTS];
  long long h = nargs == 2 ? tensor_handle(args[0]) : 0;
  Py_ssize_t n = h ? index_parts(args[1], parts) : -1;
  if (n < 0) Py_RETURN_NONE;
  long long status = bind_IndexGetKnown(h, address_of(parts), n);
  if (status < 0) status = settled(module, "bind_IndexGetKnown", status, Py_BuildValue("(LLn)", h, address_of(parts), n));
  if (status < 0) return NULL;
  return made(status);
}

// set_index(tensor, index, value): writes a tensor or a number to such a part; returns whether it did.
static PyObject *set_part(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  int64_t parts[4 * MAX_PARTS];
  long long h = nargs == 3 ? tensor_handle(args[0]) : 0, value = 0;
  double number = 0;
  int64_t whole = 0;
  if (h && PyFloat_CheckExact(args[2])) {
    value = A_FLOAT;
    number = PyFloat_AsDouble(args[2]);
  } else if (h && integer(args[2], &whole)) {
    value = whole >= -EXACT && whole <= EXACT ? AN_INTEGER : 0;
    number = (double)whole;
  } else if (h) {
    value = tensor_handle(args[2]);
  }
  Py_ssize_t n = value ? index_parts(args[1], parts) : -1;
  if (n < 0) Py_RETURN_FALSE;
  long long status = bind_IndexSetKnown(h, value, number, address_of(parts), n);
  if (status < 0) {
    PyObject *given = Py_BuildValue("(LLdLn)", h, value, number, address_of(parts), n);
    status = settled(module, "bind_IndexSetKnown", status, given);
  }
  return status < 0 ? NULL : PyBool_FromLong(!status);
}

Py_ssize_t sizes_of(PyObject *first, PyObject *more, int64_t *sizes) {
  if (!PyTuple_CheckExact(more)) return -1;
  Py_ssize_t n = 0, others = PyTuple_Size(more);
  if (integer(first, sizes)) {
    if (others >= MAX_DIMS) return -1;
    for (n = 1; n <= others; n++) {
      if (!integer(PyTuple_GetItem(more, n - 1), sizes + n)) return -1;
    }
    return n;
  }
  int list = PyList_CheckExact(first);
  if (others || (!list && !PyTuple_Check(first))) return -1;
  n = list ? PyList_Size(first) : PyTuple_Size(first);
  if (n > MAX_DIMS) return -1;
  for (Py_ssize_t i = 0; i < n; i++) {
    if (!integer(list ? PyList_GetItem(first, i) : PyTuple_GetItem(first, i), sizes + i)) return -1;
  }
  return n;
}

// Applies a function of a tensor and sizes, which are args[1] and, behind it, those in the tuple args[2].
static PyObject *of_sizes(PyObject *const *args, Py_ssize_t nargs, long long (*raw)(long long, long long, long long)) {
  int64_t sizes[MAX_DIMS];
  long long h = nargs == 3 ? tensor_handle(args[0]) : 0;
  Py_ssize_t n = h ? sizes_of(args[1], args[2], sizes) : -1;
  if (n < 0) Py_RETURN_NONE;
  return made(raw(h, address_of(sizes), n));
}

#define OF_SIZES(name, raw) \
  static PyObject *name(PyObject *module, PyObject *const *args, Py_ssize_t nargs) { \
    (void)module; \
    return of_sizes(args, nargs, raw); \
  }

OF_SIZES(reshape, bind_Reshape)
OF_SIZES(view, bind_View)
OF_SIZES(permute, bind_Permute)
OF_SIZES(expand, bind_Expand)

PyMethodDef view_functions[] = {
    {"index", FAST(get_part), "Returns the part of a tensor that an index says, or None."},
    {"set_index", FAST(set_part), "Writes a value to the part of a tensor that an index says, and returns whether it did."},
    {"reshape", FAST(reshape), "Returns a tensor in other sizes, given the first or all of them and a tuple of more, or None."},
    {"view", FAST(view), "Does what reshape does, as a view."},
    {"permute", FAST(permute), "Returns a view with the dimensions in another order, which is given as sizes are, or None."},
    {"expand", FAST(expand), "Returns a view repeated along dimensions, given sizes, or None."},
    {NULL, NULL, 0, NULL},
};
