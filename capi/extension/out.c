// Results in memory that a program names: the argument `out` of functions.
#include "owner.h"

long long bind_OutOffer(char *, long long, long long, long long);
long long bind_OutEnd(long long);

enum { MOST = 32 };  // inputs

// Adds the handles of the tensors among some arguments, and in lists of them; returns 0 where there may be more.
static int add_handles(PyObject *values, int64_t *out, long long *n, int depth) {
  int list = PyList_CheckExact(values);
  Py_ssize_t size = list ? PyList_Size(values) : PyTuple_Size(values);
  for (Py_ssize_t i = 0; i < size; i++) {
    PyObject *v = list ? PyList_GetItem(values, i) : PyTuple_GetItem(values, i);
    long long h = tensor_handle(v);
    if (h) {
      if (*n == MOST) return 0;
      out[(*n)++] = h;
    } else if (PyList_CheckExact(v) || PyTuple_CheckExact(v)) {
      if (!depth || !add_handles(v, out, n, depth - 1)) return 0;
    }
  }
  return 1;
}

// What the calling thread offers, and whether an operation has taken it.
static _Thread_local struct {
  PyObject *out;
  int taken;
} offered;

PyObject *take_offered(void) {
  if (!offered.out) {
    PyErr_SetString(PyExc_SystemError, "a result is in memory that nobody offered");
    return NULL;
  }
  offered.taken = 1;
  Py_INCREF(offered.out);
  return offered.out;
}

PyObject *offering(PyObject *out, const char *name, const int64_t *inputs, long long n, PyObject *(*run)(void *), void *what) {
  long long offer = bind_OutOffer((char *)name, tensor_handle(out), address_of(inputs), n);
  PyObject *outer = offered.out;
  int outer_taken = offered.taken;
  if (offer > 0) {
    offered.out = out;
    offered.taken = 0;
  }
  PyObject *result = run(what);
  if (offer > 0) {
    if (!offered.taken) bind_OutEnd(offer);
    offered.out = outer;
    offered.taken = outer_taken;
  }
  return result;
}

// A call of a Python function.
typedef struct {
  PyObject *function, *args, *kwargs;
} python_call;

static PyObject *run_python(void *what) {
  python_call *c = what;
  return PyObject_Call(c->function, c->args, c->kwargs);
}

// call_into(out, name, function, args[, kwargs]): calls a function of the engine's operation of that name, to whose result the memory of the
// tensor out is offered. Returns out if the result is in it, else the result.
static PyObject *call_into(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  (void)module;
  int64_t inputs[MOST];
  long long n = 0;
  PyObject *kwargs = nargs == 5 ? args[4] : NULL;
  if (nargs < 4 || nargs > 5 || !PyTuple_CheckExact(args[3]) || (kwargs && !PyDict_CheckExact(kwargs))) {
    PyErr_SetString(PyExc_TypeError, "call_into: want a tensor, a name, a function and its arguments");
    return NULL;
  }
  const char *name = PyUnicode_AsUTF8AndSize(args[1], NULL);
  PyObject *named = kwargs && PyDict_Size(kwargs) ? PyDict_Values(kwargs) : NULL;
  if (!name || PyErr_Occurred()) return NULL;
  python_call call = {args[2], args[3], named ? kwargs : NULL};
  int may = tensor_handle(args[0]) && add_handles(args[3], inputs, &n, 1) && (!named || add_handles(named, inputs, &n, 1));
  PyObject *result = may ? offering(args[0], name, inputs, n, run_python, &call) : run_python(&call);
  Py_XDECREF(named);
  return result;
}

PyMethodDef out_functions[] = {
    {"call_into", FAST(call_into),
     "Calls a function and offers a tensor to the operation of a name in it: returns that tensor, or another result."},
    {NULL, NULL, 0, NULL},
};
