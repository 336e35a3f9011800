// Operations called with Python's objects, for the usual kinds of arguments: one call in the place of one for each argument and for the
// result. As in views.c, None leaves a call to Python: nothing has been done then.
#include "arguments.h"

#include <string.h>

long long bind_TensorReady(long long);
long long bind_ListLen(long long);
long long bind_ListTake(long long, long long);

static PyObject *settler;  // settle of plait._engine.runtime

long long settled(PyObject *module, const char *function, long long status, PyObject *args) {
  PyObject *raw = args ? PyObject_GetAttrString(module, function) : NULL, *result = NULL;
  PyObject *head = raw && settler ? Py_BuildValue("(LO)", status, raw) : NULL;
  PyObject *all = head ? PySequence_Concat(head, args) : NULL;
  if (all) result = PyObject_CallObject(settler, all);
  status = result ? PyLong_AsLongLong(result) : -1;
  if (!result && !PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "nothing deals with a status");
  Py_XDECREF(raw);
  Py_XDECREF(head);
  Py_XDECREF(all);
  Py_XDECREF(args);
  Py_XDECREF(result);
  return PyErr_Occurred() ? -1 : status;
}

// Lets Python deal with a negative status of an operation; see settled.
static long long settle(PyObject *module, const operation *op, const slot *s, int n, long long status) {
  char function[80];
  PyObject *args = PyTuple_New(n);
  int at = 0;
  for (int i = 0; args && i < op->count; i++) {
    for (int part = 0; part < width(op->parameters[i].kind); part++, at++) {
      PyTuple_SetItem(args, at, box(s[at], op->parameters[i].kind, part));
    }
  }
  if (args && at < n) PyTuple_SetItem(args, at, PyLong_FromLongLong(s[at].i));
  if (args && PyErr_Occurred()) Py_CLEAR(args);
  PyOS_snprintf(function, sizeof function, "bind_%s", op->name);
  return settled(module, function, status, args);
}

// Returns the tensors of n handles in a tuple.
static PyObject *tuple_of(const int64_t *handles, Py_ssize_t n) {
  PyObject *tuple = PyTuple_New(n);
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *t = own_handle(handles[i]);
    if (!tuple || !t) {
      Py_CLEAR(tuple);
      Py_XDECREF(t);
    } else {
      PyTuple_SetItem(tuple, i, t);
    }
  }
  return tuple;
}

static PyObject *list_of(long long status) {
  int64_t few[ROOM], *handles = few;
  long long n = bind_ListLen(status);
  if (n > ROOM && !(handles = PyMem_Malloc(n * sizeof *handles))) return PyErr_NoMemory();
  bind_ListTake(status, address_of(handles));
  PyObject *tuple = tuple_of(handles, n);
  if (handles != few) PyMem_Free(handles);
  return tuple;
}

// Whether the values of the tensors among the arguments are there: Python waits for others, and lets Ctrl-C through.
static int ready(const operation *op, const slot *s) {
  for (int i = 0; i < op->count; s += width(op->parameters[i++].kind)) {
    kind k = op->parameters[i].kind;
    if (k == TENSORS || (k == TENSOR && s->i && bind_TensorReady(s->i) != 1)) return 0;
  }
  return 1;
}

// A call of an operation whose arguments have been read.
typedef struct {
  PyObject *module;
  const operation *op;
  PyObject *const *values;
  slot s[MAX_SLOTS];
  int n;
} read_call;

static PyObject *run(void *what) {
  read_call *c = what;
  const operation *op = c->op;
  int64_t out[MAX_PARAMETERS];
  if (op->results > 1) c->s[c->n++].i = address_of(out);
  long long status = op->function(c->s);
  if (status < 0 && (status = settle(c->module, op, c->s, c->n, status)) < 0) return NULL;
  if (op->results == 1) return own_handle(status);
  if (op->results == LIST) return list_of(status);
  if (op->results > 1) return tuple_of(out, op->results);
  return Py_NewRef(c->values[CHANGED(op->results)]);  // CHANGED undoes itself
}

static PyObject *store;  // store of plait._functions._common

// Makes a call whose result goes to a tensor, in one way or the other.
static PyObject *run_into(PyObject *out, read_call *c) {
  int64_t inputs[MAX_SLOTS + ROOM];
  int n = 0, at = 0;
  for (int i = 0; i < c->op->count; at += width(c->op->parameters[i++].kind)) {
    const slot *s = c->s + at;
    kind k = c->op->parameters[i].kind;
    if ((k == TENSOR || k == OPERAND) && s->i > 0) inputs[n++] = s->i;
    for (int j = 0; k == TENSORS && j < s[1].i; j++) inputs[n++] = ((const int64_t *)(intptr_t)s->i)[j];
  }
  PyObject *result = offering(out, c->op->row, inputs, n, run, c);
  if (!result || result == out) return result;
  PyObject *stored = PyObject_CallFunctionObjArgs(store, out, result, NULL);
  Py_DECREF(result);
  return stored;
}

// Calls an operation with the objects of all its parameters; out is where the result goes, or null.
static PyObject *call(PyObject *module, const operation *op, PyObject *const *values, PyObject *out) {
  read_call c = {.module = module, .op = op, .values = values, .n = 0};
  room r;
  r.whole = r.real = 0;
  if (out && (op->results != 1 || !store || !tensor_handle(out))) Py_RETURN_NONE;
  for (int i = 0; i < op->count; i++) {
    int taken = read_argument(op->parameters + i, values[i], c.s + c.n, &r);
    if (!taken) {
      if (PyErr_Occurred()) PyErr_Clear();
      Py_RETURN_NONE;
    }
    c.n += taken;
  }
  if (op->waits && !ready(op, c.s)) Py_RETURN_NONE;
  return out ? run_into(out, &c) : run(&c);
}

// A function that has an operation's parameters among its own.
typedef struct signature {
  const operation *op;
  const struct signature *next;       // another operation that the function does, for other arguments
  PyTypeObject *cls;                  // of a tuple of results, may be null
  PyObject *module;
  int count, positional;              // parameters, and how many of them may go by position
  int sizes;                          // whether the only one of these may go in several parts
  PyObject *names[MAX_PARAMETERS];    // interned
  PyObject *defaults[MAX_PARAMETERS]; // null where there is none
  int out;                            // which of them is where the result goes, -1 for none
  int place[MAX_PARAMETERS];          // among the operation's parameters, -1 for none: such an argument must be the default
  PyObject *others[MAX_PARAMETERS];   // for the operation's parameters that the function has not
} signature;

static void forget(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, NULL)); }

// Puts an argument in its place; returns 0 where it is left to Python, as what is empty: that means various things.
static int put(const signature *f, int i, PyObject *v, PyObject **values, PyObject **out) {
  if (i == f->out) *out = v == Py_None ? NULL : v;
  if (f->place[i] < 0) return v == f->defaults[i] || i == f->out;
  if ((PyTuple_CheckExact(v) && !PyTuple_Size(v)) || (PyList_CheckExact(v) && !PyList_Size(v))) return 0;
  values[f->place[i]] = v;
  return 1;
}

// Returns a tuple as one of a class that is derived from tuples.
static PyObject *named_tuple(PyTypeObject *cls, PyObject *tuple) {
  static newfunc make;
  if (!make) make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
  PyObject *args = tuple ? PyTuple_Pack(1, tuple) : NULL, *out = args ? make(cls, args, NULL) : NULL;
  Py_XDECREF(args);
  Py_XDECREF(tuple);
  return out;
}

static PyObject *call_one(const signature *f, PyObject *by_position, PyObject *by_name) {
  PyObject *values[MAX_PARAMETERS] = {NULL}, *out = NULL;
  Py_ssize_t n = PyTuple_Size(by_position), named = PyDict_Size(by_name);
  if (n < 0 || named < 0) return NULL;
  if (f->sizes && n > 1) {
    values[f->place[0]] = by_position;
    n = 1;
  } else if (n > f->positional) {
    Py_RETURN_NONE;
  } else {
    for (int i = 0; i < n; i++) {
      if (!put(f, i, PyTuple_GetItem(by_position, i), values, &out)) Py_RETURN_NONE;
    }
  }
  for (int i = (int)n; i < f->count; i++) {
    PyObject *v = named ? PyDict_GetItemWithError(by_name, f->names[i]) : NULL;
    if (v) named--;
    if (!v) v = f->defaults[i];
    if (!v) {
      if (PyErr_Occurred()) PyErr_Clear();
      Py_RETURN_NONE;
    }
    if (!put(f, i, v, values, &out)) Py_RETURN_NONE;
  }
  if (named) Py_RETURN_NONE;  // one that the function has not, or NumPy's name of one
  for (int i = 0; i < f->op->count; i++) {
    if (!values[i]) values[i] = f->others[i];
  }
  PyObject *result = call(f->module, f->op, values, out);
  return f->cls && result != Py_None ? named_tuple(f->cls, result) : result;
}

static PyObject *call_named(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  if (!is_forked() && nargs == 2) {
    for (const signature *f = PyCapsule_GetPointer(self, NULL); f; f = f->next) {
      PyObject *result = call_one(f, args[0], args[1]);
      if (result != Py_None) return result;
      Py_DECREF(result);
    }
  }
  Py_RETURN_NONE;
}

static PyObject *call_direct(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  const signature *f = PyCapsule_GetPointer(self, NULL);
  if (is_forked() || nargs != f->op->count) Py_RETURN_NONE;
  return call(f->module, f->op, args, NULL);
}

static PyMethodDef named_call = {"named_call", FAST(call_named), NULL}, direct_call = {"direct_call", FAST(call_direct), NULL};

static const operation *find(PyObject *name) {
  const char *wanted = PyUnicode_AsUTF8AndSize(name, NULL);
  int low = 0, high = operation_count;
  if (!wanted) return NULL;
  while (low < high) {
    int middle = (low + high) / 2, order = strcmp(wanted, operations[middle].name);
    if (!order) return operations + middle;
    if (order < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  PyErr_Format(PyExc_LookupError, "no operation is called %U", name);
  return NULL;
}

static PyObject *function_of(signature *f, PyMethodDef *def) {
  PyObject *capsule = PyCapsule_New(f, NULL, forget);
  if (!capsule) {
    PyMem_Free(f);
    return NULL;
  }
  PyObject *out = PyCFunction_NewEx(def, capsule, NULL);
  Py_DECREF(capsule);
  return out;
}

// fast_call(name): a function of the values of all the operation's parameters.
static PyObject *fast_call(PyObject *module, PyObject *name) {
  const operation *op = find(name);
  signature *f = op ? PyMem_Calloc(1, sizeof *f) : NULL;
  if (!f) return op ? PyErr_NoMemory() : NULL;
  f->op = op;
  f->module = module;
  return function_of(f, &direct_call);
}

// fast_named_call(direct, names, places, positional, sizes, defaults, others, cls, next): a function of the arguments by position and of those by
// name that does what fast_call's result does. Given are the names of its parameters, the operation's names of them, or None; how many may go by
// position, and whether the first of them may go in parts; the values where there is none: of its own parameters, and of the operation's other
// ones; the class of a tuple of results, and what else does it for other arguments, or None.
static PyObject *fast_named_call(PyObject *module, PyObject *args) {
  PyObject *direct, *names, *places, *defaults, *others, *cls, *next;
  int positional, sizes;
  if (!PyArg_ParseTuple(args, "O!O!O!ipO!O!OO", &PyCFunction_Type, &direct, &PyTuple_Type, &names, &PyTuple_Type, &places, &positional, &sizes,
                        &PyDict_Type, &defaults, &PyDict_Type, &others, &cls, &next))
    return NULL;
  Py_ssize_t n = PyTuple_Size(names);
  if (PyCFunction_GetFunction(direct) != direct_call.ml_meth || n > MAX_PARAMETERS || PyTuple_Size(places) != n ||
      (cls != Py_None && !PyType_Check(cls)) ||
      (next != Py_None && (!PyCFunction_Check(next) || PyCFunction_GetFunction(next) != named_call.ml_meth))) {
    PyErr_SetString(PyExc_TypeError, "fast_named_call: want a result of fast_call and few names");
    return NULL;
  }
  signature *f = PyMem_Calloc(1, sizeof *f);
  if (!f) return PyErr_NoMemory();
  const operation *op = f->op = ((const signature *)PyCapsule_GetPointer(PyCFunction_GetSelf(direct), NULL))->op;
  f->module = module;
  f->count = (int)n;
  f->positional = positional;
  f->sizes = sizes;
  f->out = -1;
  // The references that are taken here are kept for good, as the function is.
  if (cls != Py_None) f->cls = (PyTypeObject *)Py_NewRef(cls);
  if (next != Py_None) f->next = PyCapsule_GetPointer(PyCFunction_GetSelf(Py_NewRef(next)), NULL);
  int known[MAX_PARAMETERS] = {0};
  for (int i = 0; i < n; i++) {
    PyObject *wanted = PyTuple_GetItem(places, i);
    if (!PyUnicode_Check(PyTuple_GetItem(names, i)) || (wanted != Py_None && !PyUnicode_Check(wanted))) {
      PyErr_SetString(PyExc_TypeError, "fast_named_call: want names that are strings");
      PyMem_Free(f);
      return NULL;
    }
    f->names[i] = Py_NewRef(PyTuple_GetItem(names, i));
    f->defaults[i] = Py_XNewRef(PyDict_GetItemWithError(defaults, f->names[i]));
    f->place[i] = -1;
    if (!PyUnicode_CompareWithASCIIString(f->names[i], "out")) f->out = i;
    for (int p = 0; wanted != Py_None && p < op->count; p++) {
      if (!PyUnicode_CompareWithASCIIString(wanted, op->parameters[p].name)) f->place[i] = p;
    }
    if (f->place[i] >= 0) known[f->place[i]] = 1;
  }
  for (int p = 0; p < op->count; p++) {
    if (known[p] || (f->others[p] = Py_XNewRef(PyDict_GetItemString(others, op->parameters[p].name)))) continue;
    PyErr_Format(PyExc_ValueError, "fast_named_call: %s has no value for %s", op->name, op->parameters[p].name);
    PyMem_Free(f);
    return NULL;
  }
  return function_of(f, &named_call);
}

static PyObject *set_function(PyObject **which, PyObject *function) {
  if (!PyCallable_Check(function)) {
    PyErr_SetString(PyExc_TypeError, "want a function");
    return NULL;
  }
  Py_XDECREF(*which);
  *which = Py_NewRef(function);
  Py_RETURN_NONE;
}

static PyObject *set_settler(PyObject *module, PyObject *function) {
  (void)module;
  return set_function(&settler, function);
}

static PyObject *set_store(PyObject *module, PyObject *function) {
  (void)module;
  return set_function(&store, function);
}

PyMethodDef call_functions[] = {
    {"fast_call", fast_call, METH_O, "Returns a function of an operation's arguments, by the operation's name; see calls.c."},
    {"fast_named_call", fast_named_call, METH_VARARGS, "Returns a function of a tuple and a dictionary of arguments; see calls.c."},
    {"set_settler", set_settler, METH_O, "Takes the function that deals with a negative status of another, given that and its arguments."},
    {"set_store", set_store, METH_O, "Takes the function that writes a result to the tensor that is given for it."},
    {NULL, NULL, 0, NULL},
};
