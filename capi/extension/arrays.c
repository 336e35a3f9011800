// NumPy's arrays over the memory of tensors, and tensors over that of arrays.
#include "owner.h"

#include <string.h>

long long bind_Dropped(long long, long long);
long long bind_ErrorRelease(long long);
long long bind_TensorLayout(long long, long long);
long long bind_TensorLend(long long, long long);
long long bind_TensorWrap(long long, long long, long long, long long, long long, long long, long long, long long, long long);

// NumPy's array interface in C: https://numpy.org/doc/stable/reference/arrays.interface.html#c-struct-access
typedef struct {
  int two, nd;
  char typekind;
  int itemsize, flags;
  Py_ssize_t *shape, *strides;
  void *data;
  PyObject *descr;
} array_interface;

enum { ALIGNED = 0x100, NOT_SWAPPED = 0x200, WRITEABLE = 0x400 };

// The dtypes, as the engine numbers them: NumPy's letters for their kinds, and the bytes of an element. It has no bfloat16.
static const char kinds[] = {'b', 'u', 'i', 'i', 'f', 0, 'f', 'f', 'i', 'i', 'u', 'u', 'u', 'c', 'c'};
static const char sizes[] = {1, 1, 4, 8, 2, 2, 4, 8, 1, 2, 2, 4, 8, 8, 16};

static void free_array_struct(PyObject *capsule) { PyMem_Free(PyCapsule_GetPointer(capsule, NULL)); }

// Room for what bind_TensorLayout and bind_TensorLend write: an address, the number of a dtype, whether gradients flow, and the number of
// dimensions, their sizes and strides.
enum { ADDRESS, DTYPE, GRADIENTS, DIMS, SIZES, LAYOUT = SIZES + 2 * MAX_DIMS };

// Returns the value of __array_struct__; None where NumPy has no such dtype or there are no elements.
static PyObject *struct_of(const int64_t *layout) {
  int dtype = (int)layout[DTYPE], nd = (int)layout[DIMS], some = kinds[dtype];
  for (int i = 0; i < nd; i++) some = some && layout[SIZES + i];
  if (!some) Py_RETURN_NONE;
  array_interface *a = PyMem_Malloc(sizeof *a + 2 * (size_t)nd * sizeof(Py_ssize_t));
  if (!a) return PyErr_NoMemory();
  Py_ssize_t *shape = (Py_ssize_t *)(a + 1), *strides = shape + nd;
  for (int i = 0; i < nd; i++) {
    shape[i] = (Py_ssize_t)layout[SIZES + i];
    strides[i] = (Py_ssize_t)layout[SIZES + nd + i] * sizes[dtype];
  }
  *a = (array_interface){
      2, nd, kinds[dtype], sizes[dtype], ALIGNED | NOT_SWAPPED | WRITEABLE, shape, strides, (void *)(intptr_t)layout[ADDRESS], NULL};
  PyObject *capsule = PyCapsule_New(a, NULL, free_array_struct);
  if (!capsule) PyMem_Free(a);
  return capsule;
}

// array_struct(tensor): the number of its dtype, whether gradients flow to it, and the value of __array_struct__, or None.
static PyObject *array_struct(PyObject *module, PyObject *t) {
  (void)module;
  int64_t layout[LAYOUT];
  long long h = tensor_handle(t), status = h ? bind_TensorLayout(h, address_of(layout)) : -1;
  if (status < 0) {
    if (h) bind_ErrorRelease(status);
    PyErr_SetString(PyExc_TypeError, "numpy: want a tensor that has memory");
    return NULL;
  }
  PyObject *value = struct_of(layout);
  return value ? Py_BuildValue("iiN", (int)layout[DTYPE], (int)layout[GRADIENTS], value) : NULL;
}

// lend(tensor, class): an object of the class, which owns the handle that keeps the tensor's memory, with its __array_struct__; None for what
// is left to Python.
static PyObject *lend(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  (void)module;
  int64_t layout[LAYOUT];
  long long h = nargs == 2 ? tensor_handle(args[0]) : 0, status = h ? bind_TensorLend(h, address_of(layout)) : 0;
  if (status < 0) bind_ErrorRelease(status);
  if (status <= 0) Py_RETURN_NONE;
  PyObject *keeper = own_object(args[1], status), *value = keeper ? struct_of(layout) : NULL;
  if (value == Py_None) {
    Py_DECREF(keeper);
    return value;
  }
  if (!value || PyObject_SetAttrString(keeper, "__array_struct__", value) < 0) Py_CLEAR(keeper);
  Py_XDECREF(value);
  return keeper;
}

// Returns the number of the dtype of a buffer's elements; -1 for what tensors do not have. Numbers in the machine's order of bytes alone have
// such a format.
static int dtype_of(const Py_buffer *b) {
  const char *f = b->format;
  int complex = f && f[0] == 'Z';
  if (!f || !f[0] || f[complex + 1 - !f[complex]]) return -1;
  char kind = complex ? 'c' : f[0] == '?' ? 'b' : strchr("bhilq", f[0]) ? 'i' : strchr("BHILQ", f[0]) ? 'u' : strchr("efd", f[0]) ? 'f' : 0;
  for (int i = 0; kind && i < (int)sizeof kinds; i++) {
    if (kinds[i] == kind && sizes[i] == b->itemsize) return i;
  }
  return -1;
}

// wrap_array(array, device): a tensor over the memory of an array; None for one that cannot be written to, has no elements, elements that
// tensors do not have, or strides that are no multiples of theirs; a negative status.
static PyObject *wrap_array(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
  (void)module;
  int64_t device = 0, shape[MAX_DIMS], strides[MAX_DIMS], low = 0, high = 0;
  long long status = 0;
  Py_buffer b;
  if (is_forked()) return PyLong_FromLong(-1);
  if (nargs != 2 || !integer(args[1], &device) || PyObject_GetBuffer(args[0], &b, PyBUF_STRIDES | PyBUF_WRITABLE | PyBUF_FORMAT) < 0) {
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  int dtype = dtype_of(&b), fits = dtype >= 0 && b.ndim <= MAX_DIMS && b.len > 0 && !((uintptr_t)b.buf % (size_t)b.itemsize);
  for (int i = 0; fits && i < b.ndim; i++) {
    int64_t span = (b.shape[i] - 1) * b.strides[i];
    fits = !(b.strides[i] % b.itemsize);
    shape[i] = b.shape[i];
    strides[i] = b.strides[i] / b.itemsize;
    *(span < 0 ? &low : &high) += span;
  }
  if (fits) {
    long long key = key_of(args[0]);
    status = bind_TensorWrap(address_of(b.buf) + low, high - low + b.itemsize, dtype, address_of(shape), address_of(strides), b.ndim,
                             -low / b.itemsize, key, device);
    if (status <= 0) let_go(key);
  }
  PyBuffer_Release(&b);
  if (status > 0) return own_handle(status);
  if (status < 0) return PyLong_FromLongLong(status);
  Py_RETURN_NONE;
}

// dropped(): the keys of some values that the engine refers to no more and Python has kept. Lets go of others.
static PyObject *dropped(PyObject *module, PyObject *none) {
  (void)module, (void)none;
  int64_t keys[64];
  Py_ssize_t n, odd = 0;
  do {
    n = is_forked() ? 0 : (Py_ssize_t)bind_Dropped(address_of(keys), sizeof keys / sizeof *keys);
    for (Py_ssize_t i = 0; i < n; i++) {
      if (keys[i] & 1) {
        keys[odd++] = keys[i];
      } else {
        let_go(keys[i]);
      }
    }
  } while (n && !odd);
  PyObject *tuple = PyTuple_New(odd);
  for (Py_ssize_t i = 0; tuple && i < odd; i++) {
    PyObject *key = PyLong_FromLongLong(keys[i]);
    if (!key || PyTuple_SetItem(tuple, i, key) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

PyMethodDef array_functions[] = {
    {"array_struct", array_struct, METH_O, "Returns a tensor's dtype, whether gradients flow to it, and NumPy's __array_struct__ or None."},
    {"lend", FAST(lend), "Returns what keeps a tensor's memory for an array, of a class, with NumPy's __array_struct__; None for what is left to Python."},
    {"wrap_array", FAST(wrap_array), "Returns a tensor over an array's memory, given the number of a device; None for what is left to Python."},
    {"dropped", dropped, METH_NOARGS, "Returns the keys of some values that the engine refers to no more."},
    {NULL, NULL, 0, NULL},
};
