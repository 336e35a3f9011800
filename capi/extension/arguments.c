// Arguments of operations: Python's objects as the engine takes them, and back.
#include "arguments.h"

#include <string.h>

static int real(PyObject *v, double *out) {
  int64_t whole;
  if (PyFloat_CheckExact(v)) {
    *out = PyFloat_AsDouble(v);
    return 1;
  }
  if (!integer(v, &whole) || whole < -EXACT || whole > EXACT) return 0;
  *out = (double)whole;
  return 1;
}

static int flag(PyObject *v, slot *s) {
  s->i = v == Py_True;
  return v == Py_True || v == Py_False;
}

// Writes what stands for a tensor or a number; returns 0 for something else.
static int operand(PyObject *v, slot *s) {
  s[1].d = 0;
  if ((s->i = tensor_handle(v)) != 0) return 1;
  s->i = PyFloat_CheckExact(v) ? A_FLOAT : PyLong_CheckExact(v) ? AN_INTEGER : A_BOOL;
  if (s->i != A_BOOL) return real(v, &s[1].d);
  s[1].d = v == Py_True;
  return v == Py_True || v == Py_False;
}

// Writes the address and the number of the elements of a list, or of one element; returns 0 for something else.
static int list(PyObject *v, kind k, slot *s, room *r) {
  int is_list = PyList_CheckExact(v), many = is_list || PyTuple_CheckExact(v);
  Py_ssize_t n = is_list ? PyList_Size(v) : many ? PyTuple_Size(v) : 1;
  int *taken = k == FLOATS ? &r->real : &r->whole;
  if (n < (k == INTS ? 0 : 1) || n > ROOM - *taken || (k == TENSORS && !many)) return 0;
  s[0].i = k == FLOATS ? address_of(r->reals + *taken) : address_of(r->ints + *taken);
  s[1].i = n;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *x = !many ? v : is_list ? PyList_GetItem(v, i) : PyTuple_GetItem(v, i);
    int64_t *at = r->ints + *taken;
    if (k == FLOATS ? !real(x, r->reals + *taken) : k == INTS ? !integer(x, at) : !(*at = tensor_handle(x))) return 0;
    ++*taken;
  }
  return 1;
}

// Writes the engine's number of a dtype or a device, which its object has; returns 0 for something else, and for devices whose number depends on
// the thread.
static int numbered(PyObject *v, kind k, slot *s) {
  static PyObject *names[2];  // for good
  PyObject **name = names + (k == DEVICE);
  if (!*name && !(*name = PyUnicode_InternFromString(k == DEVICE ? "_ordinal" : "_number"))) return 0;
  PyObject *number = PyObject_GetAttr(v, *name);
  int64_t n;
  int ok = number && integer(number, &n);
  Py_XDECREF(number);
  if (ok) s->i = n;
  return ok;
}

// Writes the characters of a string; returns 0 for something else, and for one that has a zero in it.
static int text(PyObject *v, slot *s) {
  Py_ssize_t size;
  s->s = PyUnicode_CheckExact(v) ? PyUnicode_AsUTF8AndSize(v, &size) : NULL;
  return s->s && strlen(s->s) == (size_t)size;
}

int read_argument(const parameter *p, PyObject *v, slot *s, room *r) {
  int none = p->optional && v == Py_None;
  s[0].i = s[1].i = 0;
  switch (p->kind) {
    case TENSOR: return none || (s->i = tensor_handle(v));
    case OPERAND: return none || operand(v, s) ? 2 : 0;
    case TENSORS:
    case INTS:
    case FLOATS:
      if (none) s[1].i = -1;
      return none || list(v, p->kind, s, r) ? 2 : 0;
    case INT: return none || integer(v, (int64_t *)&s->i);
    case INT_SET:
      s[1].i = !none;
      return none || integer(v, (int64_t *)&s->i) ? 2 : 0;
    case REAL:
      if (none) s->d = 0;
      return none || real(v, &s->d);
    case REAL_SET:
      if (none) s->d = 0;
      s[1].i = !none;
      return none || real(v, &s->d) ? 2 : 0;
    case FLAG: return none || flag(v, s);
    case FLAG_SET:
      s[1].i = !none;
      return none || flag(v, s) ? 2 : 0;
    case TEXT: return text(v, s);
    case DTYPE:
    case DEVICE:
      s->i = -1;
      return none || numbered(v, p->kind, s);
    case GENERATOR: return none;
  }
  return 0;
}

PyObject *box(slot s, kind k, int second) {
  switch (k) {
    case OPERAND: return second ? PyFloat_FromDouble(s.d) : PyLong_FromLongLong(s.i);
    case REAL:
    case REAL_SET: return second ? PyBool_FromLong(s.i != 0) : PyFloat_FromDouble(s.d);
    case FLAG:
    case FLAG_SET: return PyBool_FromLong(s.i != 0);
    case INT_SET: return second ? PyBool_FromLong(s.i != 0) : PyLong_FromLongLong(s.i);
    case TEXT: return PyUnicode_FromString(s.s);
    default: return PyLong_FromLongLong(s.i);
  }
}

int width(kind k) {
  switch (k) {
    case OPERAND:
    case TENSORS:
    case INTS:
    case FLOATS:
    case INT_SET:
    case REAL_SET:
    case FLAG_SET: return 2;
    default: return 1;
  }
}
