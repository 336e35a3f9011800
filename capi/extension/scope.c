// The base type of context managers that change what belongs to the calling thread, and put it back.
//
// Ctrl-C may be raised as Python begins a function, so before the first line of an __exit__ that is written in Python:
// what it would have restored would stay. Here nothing can be raised before the end has begun, and an end that is
// interrupted is run again.
#include "owner.h"

#include <stddef.h>

long long bind_ModeGet(void);
long long bind_ModeSet(long long);

enum { TRIES = 3 };  // more interrupts than that within one end are too many

// One use of a scope, which may be in use several times: again inside itself, and in several threads.
typedef struct entry {
  unsigned long thread;
  PyObject *before;  // what _begin returned
  struct entry *outer;
} entry;

typedef struct {
  PyObject_HEAD
  entry *innermost;
} scope;

static PyObject *enter(PyObject *self, PyObject *none) {
  (void)none;
  entry *e = PyMem_Malloc(sizeof *e);
  if (!e) return PyErr_NoMemory();
  int engine = !is_forked();  // without its threads it may wait forever; _begin raises the error
  long long mode = engine ? bind_ModeGet() : 0;
  e->before = PyObject_CallMethod(self, "_begin", NULL);
  if (!e->before) {  // the block does not run, and so does not end
    if (engine) bind_ModeSet(mode);
    PyMem_Free(e);
    return NULL;
  }
  e->thread = PyThread_get_thread_ident();
  e->outer = ((scope *)self)->innermost;
  ((scope *)self)->innermost = e;
  Py_INCREF(self);
  return self;
}

static PyObject *leave(PyObject *self, PyObject *args) {
  (void)args;
  unsigned long thread = PyThread_get_thread_ident();
  entry **place = &((scope *)self)->innermost;
  while (*place && (*place)->thread != thread) place = &(*place)->outer;
  entry *e = *place;
  if (!e) {
    PyObject *name = PyType_GetName(Py_TYPE(self));
    if (name) PyErr_Format(PyExc_RuntimeError, "%U: the calling thread leaves what it has not entered", name);
    Py_XDECREF(name);
    return NULL;
  }
  *place = e->outer;
  PyObject *type = NULL, *value = NULL, *trace = NULL, *done = NULL;
  for (int i = 0; i < TRIES && !done; i++) {
    done = PyObject_CallMethod(self, "_end", "(O)", e->before);
    if (!done && !type) {
      PyErr_Fetch(&type, &value, &trace);
    } else if (!done) {
      PyErr_Clear();
    }
  }
  Py_XDECREF(done);
  Py_DECREF(e->before);
  PyMem_Free(e);
  if (type) {
    PyErr_Restore(type, value, trace);
    return NULL;
  }
  Py_RETURN_NONE;
}

static void scope_dealloc(PyObject *self) {
  entry *e = ((scope *)self)->innermost;
  while (e) {
    entry *outer = e->outer;
    Py_DECREF(e->before);
    PyMem_Free(e);
    e = outer;
  }
  PyTypeObject *type = Py_TYPE(self);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, "__enter__($self, /)\n--\n\nBegins the scope."},
    {"__exit__", leave, METH_VARARGS, "__exit__($self, /, *args)\n--\n\nPuts back what the scope has changed."},
    {NULL, NULL, 0, NULL},
};

PyType_Spec scope_spec = {
    .name = "plait._core.Scope",
    .basicsize = sizeof(scope),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = (PyType_Slot[]){
        {Py_tp_doc, "A context manager whose _begin changes something and returns what _end needs to put it back."},
        {Py_tp_methods, methods},
        {Py_tp_dealloc, scope_dealloc},
        {0, NULL},
    },
};
