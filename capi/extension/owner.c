// The types of Python objects that own a handle of the engine and give it back when they go, and the operators of tensors.
//
// A finaliser written in Python is a call that Ctrl-C can interrupt, and what is raised inside is lost; here nothing can be
// raised. `a + b` is the most frequent thing that Python does with tensors, so its common cases need no call of Python's.
// In a forked child, to which the engine's threads did not come along, nothing is given back, and operators are Python's.
// setup.py compiles this file with the generated module, to which add_owners adds what is in it, for Python's stable interface.
#include "owner.h"

#include <pthread.h>
#include <stddef.h>
#include <structmember.h>

long long bind_TensorLetGo(long long);
long long bind_ObjectRelease(long long);
long long bind_Add(long long, long long, double);
long long bind_Sub(long long, long long, double);
long long bind_Mul(long long, long long, double);
long long bind_Div(long long, long long, double);
long long bind_HooksOutlive(long long);

extern PyType_Spec scope_spec;

typedef struct {
  PyObject_HEAD
  PyObject *handle;  // an int; null before there is one, and after it has gone to another object
} owner;

static int forked;

static void after_fork(void) { forked = 1; }

int is_forked(void) { return forked; }

// The handle of an owner; 0 if it has none, or something that is none.
static long long handle_of(PyObject *self) {
  PyObject *handle = ((owner *)self)->handle;
  int overflow;
  long long h = handle && PyLong_CheckExact(handle) ? PyLong_AsLongLongAndOverflow(handle, &overflow) : 0;
  return h > 0 ? h : 0;
}

// Frees an object and gives its handle back; returns what release does.
static long long give_back(PyObject *self, long long (*release)(long long)) {
  long long h = handle_of(self), released = h && !forked ? release(h) : 0;
  Py_XDECREF(((owner *)self)->handle);
  PyTypeObject *type = Py_TYPE(self);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
  return released;
}

// A tensor over an array's memory takes the array along.
static void tensor_dealloc(PyObject *self) {
  long long key = give_back(self, bind_TensorLetGo);
  if (key > 0) let_go(key);
}
static void object_dealloc(PyObject *self) { give_back(self, bind_ObjectRelease); }

// As a slot of Python's own the member is as fast to read as one that a class lists in __slots__.
static PyMemberDef members[] = {
    {"_h", T_OBJECT_EX, offsetof(owner, handle), 0, "The handle."},
    {NULL, 0, 0, 0, NULL},
};

#define DISTRIBUTED (1LL << 60)  // set in the handles of distributed tensors
#define SPARSE (1LL << 61)       // and of sparse ones

static PyTypeObject *tensor_owner, *object_owner;
static PyTypeObject *tensor_class;       // what own makes
static PyTypeObject *distributed_class;  // of distributed tensors
static PyTypeObject *sparse_class;       // and of sparse ones

long long tensor_handle(PyObject *t) { return PyObject_TypeCheck(t, tensor_owner) && !forked ? handle_of(t) : 0; }

int is_plain(PyObject *t) { return Py_TYPE(t) == tensor_class; }

#define IN_OUT 1  // in the place of a handle: the result is in memory that the thread has offered

// Returns the tensor that owns a handle, given its number as well.
static PyObject *owning(long long h, PyObject *handle) {
  if (h == IN_OUT) return take_offered();
  PyTypeObject *cls = tensor_class;
  if (h & (DISTRIBUTED | SPARSE)) cls = h & SPARSE ? sparse_class : distributed_class;
  PyObject *t = PyType_GenericAlloc(cls, 0);
  if (t) {
    Py_INCREF(handle);
    ((owner *)t)->handle = handle;
  }
  return t;
}

PyObject *own_handle(long long h) {
  PyObject *handle = PyLong_FromLongLong(h), *t = handle ? owning(h, handle) : NULL;
  Py_XDECREF(handle);
  return t;
}

PyObject *own_object(PyObject *cls, long long h) {
  PyObject *handle = PyLong_FromLongLong(h), *o = NULL;
  if (handle && PyType_Check(cls) && PyType_IsSubtype((PyTypeObject *)cls, object_owner)) o = PyType_GenericAlloc((PyTypeObject *)cls, 0);
  if (o) {
    ((owner *)o)->handle = handle;
  } else {
    Py_XDECREF(handle);
    bind_ObjectRelease(h);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "want a subclass of ObjectOwner");
  }
  return o;
}

static PyObject *own(PyObject *module, PyObject *handle) {
  (void)module;
  int overflow;
  return owning(PyLong_CheckExact(handle) ? PyLong_AsLongLongAndOverflow(handle, &overflow) : 0, handle);
}

enum { ADD, SUB, MUL, DIV, OPERATORS };
static PyObject *others[OPERATORS];  // what deals with the other cases in Python

// Applies an operator to two tensors, or to a tensor and a float. Other operands, and a status that is no handle, go to Python.
static PyObject *apply(PyObject *x, PyObject *y, int which, long long (*raw)(long long, long long, double)) {
  if ((which == ADD || which == MUL) && PyFloat_CheckExact(x)) {  // they commute
    PyObject *t = x;
    x = y;
    y = t;
  }
  long long status = 0, h = tensor_handle(x);
  if (h && PyFloat_CheckExact(y)) {
    status = raw(h, A_FLOAT, PyFloat_AsDouble(y));
  } else if (h && PyObject_TypeCheck(y, tensor_owner) && handle_of(y)) {
    status = raw(h, handle_of(y), 0);
  }
  if (status > 0) return own_handle(status);
  if (!others[which]) Py_RETURN_NOTIMPLEMENTED;
  return PyObject_CallFunction(others[which], "OOL", x, y, status);
}

static PyObject *add(PyObject *x, PyObject *y) { return apply(x, y, ADD, bind_Add); }
static PyObject *subtract(PyObject *x, PyObject *y) { return apply(x, y, SUB, bind_Sub); }
static PyObject *multiply(PyObject *x, PyObject *y) { return apply(x, y, MUL, bind_Mul); }
static PyObject *divide(PyObject *x, PyObject *y) { return apply(x, y, DIV, bind_Div); }

static PyType_Spec tensor_spec = {
    .name = "plait._core.TensorOwner",
    .basicsize = sizeof(owner),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = (PyType_Slot[]){
        {Py_tp_doc, "Owns the handle of a tensor."},
        {Py_tp_members, members},
        {Py_nb_add, add},
        {Py_nb_subtract, subtract},
        {Py_nb_multiply, multiply},
        {Py_nb_true_divide, divide},
        {Py_tp_dealloc, tensor_dealloc},
        {0, NULL},
    },
};

static PyType_Spec object_spec = {
    .name = "plait._core.ObjectOwner",
    .basicsize = sizeof(owner),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = (PyType_Slot[]){
        {Py_tp_doc, "Owns the handle of another object of the engine."},
        {Py_tp_members, members},
        {Py_tp_dealloc, object_dealloc},
        {0, NULL},
    },
};

static PyObject *set_class(PyTypeObject **which, PyObject *cls) {
  if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, tensor_owner)) {
    PyErr_SetString(PyExc_TypeError, "set_tensor_class: want a subclass of TensorOwner");
    return NULL;
  }
  Py_INCREF(cls);  // for good: the class lives as long as the module
  *which = (PyTypeObject *)cls;
  Py_RETURN_NONE;
}

static PyObject *set_tensor_class(PyObject *module, PyObject *cls) {
  (void)module;
  return set_class(&tensor_class, cls);
}

static PyObject *set_distributed_class(PyObject *module, PyObject *cls) {
  (void)module;
  return set_class(&distributed_class, cls);
}

static PyObject *set_sparse_class(PyObject *module, PyObject *cls) {
  (void)module;
  return set_class(&sparse_class, cls);
}

static PyObject *set_operators(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *f[OPERATORS];
  if (!PyArg_ParseTuple(args, "OOOO:set_operators", &f[ADD], &f[SUB], &f[MUL], &f[DIV])) return NULL;
  for (int i = 0; i < OPERATORS; i++) {
    PyObject *old = others[i];
    Py_INCREF(f[i]);
    others[i] = f[i];
    Py_XDECREF(old);
  }
  Py_RETURN_NONE;
}

// A value that a tensor's object holds for the engine, which calls it by a key of a dictionary. There, a weak reference stands for it. When the
// tensor's object goes and the engine may still call the value, the dictionary gets the value itself.
typedef struct {
  PyObject_HEAD
  PyObject *shared, *key, *value, *weak;
  long long handle;  // the tensor's
  int final;         // the engine has the value, or needs it no more
} held;

static PyTypeObject *held_type;

static void held_finalize(PyObject *self) {
  held *h = (held *)self;
  PyObject *type, *value, *trace;
  if (forked || h->final || !h->value) return;
  h->final = 1;
  PyErr_Fetch(&type, &value, &trace);
  if (PyDict_Contains(h->shared, h->key) == 1 && bind_HooksOutlive(h->handle) > 0 &&
      PyDict_SetItem(h->shared, h->key, h->value) < 0)
    PyErr_WriteUnraisable(h->key);  // self may be on its way out
  PyErr_Restore(type, value, trace);
}

static int held_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((held *)self)->value);
  return 0;
}

static int held_clear(PyObject *self) {
  Py_CLEAR(((held *)self)->value);
  return 0;
}

static void held_dealloc(PyObject *self) {
  held *h = (held *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  held_finalize(self);  // which lets nobody have the object again
  if (h->weak) PyObject_ClearWeakRefs(self);
  Py_CLEAR(h->value);
  Py_CLEAR(h->key);
  Py_CLEAR(h->shared);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

static PyMemberDef held_members[] = {
    {"value", T_OBJECT_EX, offsetof(held, value), READONLY, "The value."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(held, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Spec held_spec = {
    .name = "plait._core.Held",
    .basicsize = sizeof(held),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = (PyType_Slot[]){
        {Py_tp_doc, "A value that a tensor's object holds for the engine."},
        {Py_tp_members, held_members},
        {Py_tp_traverse, held_traverse},
        {Py_tp_clear, held_clear},
        {Py_tp_finalize, held_finalize},
        {Py_tp_dealloc, held_dealloc},
        {0, NULL},
    },
};

static PyObject *hold(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *shared, *key, *value;
  long long handle;
  if (!PyArg_ParseTuple(args, "O!OOL:hold", &PyDict_Type, &shared, &key, &value, &handle)) return NULL;
  held *h = PyObject_GC_New(held, held_type);
  if (!h) return NULL;
  Py_INCREF(shared);
  Py_INCREF(key);
  Py_INCREF(value);
  h->shared = shared, h->key = key, h->value = value, h->weak = NULL, h->handle = handle, h->final = 0;
  PyObject_GC_Track(h);
  return (PyObject *)h;
}

static PyMethodDef functions[] = {
    {"hold", hold, METH_VARARGS, "Returns what holds a value for the engine, given the dictionary, the key, the value and a tensor's handle."},
    {"set_tensor_class", set_tensor_class, METH_O, "Says of which class `own` makes tensors."},
    {"set_sparse_class", set_sparse_class, METH_O, "Says of which class `own` makes sparse tensors."},
    {"set_distributed_class", set_distributed_class, METH_O, "Says of which class `own` makes distributed tensors."},
    {"set_operators", set_operators, METH_VARARGS,
     "Takes the functions of x, y and a status for what `+`, `-`, `*` and `/` do not do themselves."},
    {"own", own, METH_O, "Returns a tensor that owns a handle."},
    {NULL, NULL, 0, NULL},
};

// Makes a type and adds it to the module; returns NULL and sets the error where that fails. The type lives as long as the process.
static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec) {
  PyTypeObject *type = (PyTypeObject *)PyType_FromSpec(spec);
  if (type && PyModule_AddType(module, type) < 0) Py_CLEAR(type);
  return type;
}

int add_owners(PyObject *module);

// Adds the types and functions to the module; returns a negative number and sets the error where that fails.
int add_owners(PyObject *module) {
  if (pthread_atfork(NULL, NULL, after_fork) != 0) {
    PyErr_NoMemory();
    return -1;
  }
  tensor_owner = tensor_class = distributed_class = sparse_class = add_type(module, &tensor_spec);
  object_owner = add_type(module, &object_spec);
  held_type = add_type(module, &held_spec);
  if (!tensor_owner || !object_owner || !held_type || !add_type(module, &scope_spec)) return -1;
  PyMethodDef *all[] = {functions, view_functions, element_functions, creation_functions, array_functions, out_functions, call_functions};
  for (int i = 0; i < (int)(sizeof all / sizeof *all); i++) {
    if (PyModule_AddFunctions(module, all[i]) < 0) return -1;
  }
  return 0;
}
