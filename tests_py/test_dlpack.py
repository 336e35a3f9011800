import ctypes
import gc
import weakref

import numpy as np
import plait
import pytest
from plait import _core
from plait._engine.callbacks import collect
from plait._tensors.dlpack import _Managed, _pointer, _Versioned
from plait.utils.dlpack import from_dlpack, to_dlpack

DTYPES = ["float32", "float64", "float16", "int64", "int32", "int16", "int8", "bool"]
DTYPES += ["uint8", "uint16", "uint32", "uint64"]


class Older:
    """An array of a library that knows no versions."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_reads_ours(name):
    dtype = getattr(plait, name)
    x = plait.tensor([[1, 0, 3], [0, 5, 6]], dtype=dtype)
    for t in (x, x.transpose(0, 1), x[1], x[:, ::2], x[1, 1], x[:0]):
        a = np.from_dlpack(t)
        assert a.dtype == np.dtype(name) and a.shape == tuple(t.shape) and a.tolist() == t.tolist()


@pytest.mark.parametrize("name", DTYPES)
def test_we_read_numpy(name):
    a = np.array([[1, 0, 3], [0, 5, 6]], name)
    for b in (a, a.T, a[1], a[:, ::2], a[::-1], a[1, 1:2], a[:0]):
        t = plait.from_dlpack(b)
        assert t.dtype is getattr(plait, name) and t.shape == b.shape and t.tolist() == b.tolist()
        assert plait.from_dlpack(Older(b)).tolist() == b.tolist()


def test_memory_is_shared_both_ways():
    t = plait.zeros(4)
    a = np.from_dlpack(t)
    t.add_(1.0)
    assert a.tolist() == [1.0] * 4
    b = np.zeros(4, np.float32)
    u = from_dlpack(b)
    u.add_(2.0)
    assert b.tolist() == [2.0] * 4
    b[0] = 7.0
    assert u[0].item() == 7.0


def test_bfloat16_between_tensors():
    t = plait.tensor([1.5, -2.0], dtype=plait.bfloat16)
    u = from_dlpack(t)
    assert u.dtype is plait.bfloat16 and u.tolist() == [1.5, -2.0] and u.data_ptr() == t.data_ptr()
    with pytest.raises((RuntimeError, BufferError)):
        np.from_dlpack(t)


def test_versions_and_structures():
    t = plait.tensor([[1.0, 2.0], [3.0, 4.0]])
    capsule = t.__dlpack__(max_version=(1, 0))
    new = _Versioned.from_address(_pointer(id(capsule), b"dltensor_versioned"))
    assert (new.version.major, new.version.minor, new.flags) == (1, 0, 0)
    assert (new.tensor.ndim, new.tensor.dtype.code, new.tensor.dtype.bits, new.tensor.dtype.lanes) == (2, 2, 32, 1)
    assert new.tensor.shape[:2] == [2, 2] and new.tensor.strides[:2] == [2, 1] and new.tensor.data == t.data_ptr()
    copied = t.__dlpack__(max_version=(2, 1), copy=True)
    other = _Versioned.from_address(_pointer(id(copied), b"dltensor_versioned"))
    assert other.flags == 2 and other.tensor.data != t.data_ptr()
    old = _Managed.from_address(_pointer(id(c := t.__dlpack__(max_version=(0, 8))), b"dltensor"))
    assert old.tensor.data == t.data_ptr() and c is not None


def test_a_tensor_lives_as_long_as_what_others_hold():
    gc.collect()
    collect()
    before, objects = _core.bind_TensorCount(), _core.bind_ObjectCount()
    t = plait.tensor([1.0, 2.0])
    a = np.from_dlpack(t)
    del t
    gc.collect()
    assert a.tolist() == [1.0, 2.0] and _core.bind_ObjectCount() == objects + 1
    del a
    gc.collect()
    assert _core.bind_ObjectCount() == objects and _core.bind_TensorCount() == before


def test_an_array_lives_as_long_as_the_tensor():
    a = np.arange(3.0)
    gone = weakref.ref(a)
    t = from_dlpack(a)
    del a
    gc.collect()
    assert gone() is not None and t.tolist() == [0.0, 1.0, 2.0]
    view = t[1:]
    del t
    collect()
    gc.collect()
    assert gone() is not None and view.tolist() == [1.0, 2.0]
    del view
    for _ in range(1000):
        collect()
        gc.collect()
        if gone() is None:
            break
    assert gone() is None


def test_capsules():
    gc.collect()
    objects = _core.bind_ObjectCount()
    capsule = to_dlpack(plait.ones(2))
    assert from_dlpack(capsule).tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="unused capsule"):
        from_dlpack(capsule)
    unused = to_dlpack(plait.ones(2))
    del unused, capsule
    for _ in range(1000):
        collect()
        gc.collect()
        if _core.bind_ObjectCount() == objects:
            break
    assert _core.bind_ObjectCount() == objects
    with pytest.raises(TypeError, match="want an array"):
        from_dlpack(3)
    with pytest.raises(TypeError, match="want an array"):
        from_dlpack(ctypes.py_object(3))


def test_read_only_memory_is_copied():
    a = np.arange(3.0)
    a.flags.writeable = False
    t = from_dlpack(a)
    t.add_(1.0)
    assert a.tolist() == [0.0, 1.0, 2.0] and t.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(BufferError, match="read-only"):
        from_dlpack(a, copy=False)


def test_copies_and_devices():
    a = np.arange(3.0)
    assert from_dlpack(a, copy=True).data_ptr() != a.ctypes.data
    assert from_dlpack(a, copy=False).data_ptr() == a.ctypes.data
    assert from_dlpack(a, device="cpu:1").device == plait.device("cpu:1")
    t = plait.ones(2, device="cpu:1")
    assert t.__dlpack_device__() == (1, 0) and np.from_dlpack(t).tolist() == [1.0, 1.0]
    assert np.from_dlpack(plait.ones(2), device="cpu", copy=True).tolist() == [1.0, 1.0]


def test_refusals():
    with pytest.raises(BufferError, match="requires a gradient"):
        plait.ones(2).requires_grad_().__dlpack__()
    with pytest.raises(BufferError, match="kind 1"):
        plait.ones(2).__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="streams"):
        plait.ones(2).__dlpack__(stream=7)
