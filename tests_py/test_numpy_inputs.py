"""Arrays of every kind become tensors, or are refused with a reason."""

import gc
import sys

import numpy as np
import plait
import pytest

BASE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

ARRAYS = {
    "transposed": BASE.transpose(2, 0, 1),
    "reversed": BASE[::-1, :, ::-1],
    "with gaps": BASE[:, ::2, 1::2],
    "broadcast": np.broadcast_to(BASE[0], (5, 3, 4)),
    "of Fortran": np.asfortranarray(BASE),
    "big-endian": BASE.astype(">f4"),
    "big-endian integers": np.arange(5, dtype=">i8"),
    "0-d": np.array(3.5),
    "scalar": np.float32(2.5),
    "empty": np.zeros((0, 3)),
    "half": BASE.astype(np.float16),
    "bool": BASE > 3,
    "a record's field": np.array([(1.0, 2), (3.0, 4)], dtype=[("a", "f4"), ("b", "i4")])["a"],
    "unaligned": np.frombuffer(b"x" + BASE.tobytes(), np.float32, offset=1),
    "masked": np.ma.masked_array(BASE[0], BASE[0] > 90),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_copies(name):
    a = ARRAYS[name]
    for made in (plait.tensor(a), plait.as_tensor(a)):
        assert tuple(made.shape) == a.shape
        np.testing.assert_array_equal(made.numpy(), np.asarray(a))
        assert made.dtype.itemsize == a.dtype.itemsize


@pytest.mark.parametrize(
    "array",
    [
        np.array([None, 1], dtype=object), np.array(["a"]), np.array([b"a"]),
        np.array(["2020-01-01"], dtype="M8[D]"), np.array([1], dtype="m8[s]"), np.zeros(2, dtype=[("a", "f4")]),
    ],
)  # fmt: skip
def test_what_is_no_number_is_refused(array):
    for make in (plait.tensor, plait.as_tensor, plait.from_numpy):
        with pytest.raises(TypeError):
            make(array)


def test_memory_is_shared_only_where_it_can_be():
    a = np.arange(6.0)
    t = plait.from_numpy(a[1::2])
    t += 1
    assert a.tolist() == [0, 2, 2, 4, 4, 6]
    a[1] = 9
    assert t.tolist() == [9, 4, 6]
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    with pytest.warns(UserWarning, match="read-only") as seen:
        copied = plait.from_numpy(frozen)
    assert seen[0].filename == __file__
    copied += 1
    with pytest.warns(UserWarning, match="read-only"):
        assert plait.from_numpy(np.frombuffer(b"\x01\x02", dtype=np.uint8)).tolist() == [1, 2]
    copied = plait.as_tensor(frozen)
    copied += 1
    assert frozen.tolist() == [0, 1, 2]
    shared = plait.as_tensor(a)
    shared += 1
    assert a.tolist() == [1, 10, 3, 5, 5, 7]
    assert plait.as_tensor(a.astype(">f8")).tolist() == a.tolist()
    empty = np.zeros((0, 3))
    assert plait.asarray(empty, copy=False).shape == (0, 3)


@pytest.mark.parametrize("code", "?bhilqBHILQefdFD")
def test_numbers_of_every_kind_are_shared(code):
    a = np.array([[1, 0, 1]], code)
    t = plait.from_numpy(a)
    assert t.tolist() == a.tolist()
    assert np.shares_memory(t.numpy(), a)
    a[0, 1] = 1
    assert t.tolist() == a.tolist()


def test_arrays_go_with_the_last_tensor_over_them():
    a = np.arange(6.0)
    count = sys.getrefcount(a)
    t = plait.from_numpy(a)
    view, other = t[2:], plait.from_numpy(a)
    assert sys.getrefcount(a) == count + 2
    del t, other
    assert sys.getrefcount(a) == count + 1
    assert (view + 1).tolist() == [3, 4, 5, 6]
    del view
    assert sys.getrefcount(a) == count
    for _ in range(100):
        plait.from_numpy(a)
        plait.ones(2, requires_grad=True).register_hook(lambda g: None)
    assert sys.getrefcount(a) == count
    with pytest.raises(TypeError):
        plait.from_numpy(a.astype("M8[s]"))


def test_arrays_keep_the_memory_of_tensors():
    for shape, dtype in (((2, 3), plait.float32), ((3,), plait.complex64), ((), plait.int64), ((0, 2), plait.float32)):
        t = plait.ones(*shape, dtype=dtype)
        a = t.numpy()
        t += 1
        assert a.tolist() == t.tolist()
        del t
        gc.collect()
        plait.full((4096,), 5.0)
        assert (a == 2).all()
    with pytest.raises(RuntimeError, match="requires a gradient"):
        plait.ones(2, requires_grad=True).numpy()
    with pytest.raises(TypeError, match="bfloat16"):
        plait.ones(2, dtype=plait.bfloat16).numpy()


def test_arrays_that_numpy_makes_share_memory():
    t = plait.arange(6.0).reshape(2, 3)
    a = np.asarray(t.t())
    assert a.strides == (4, 12)
    a[0, 1] = 9
    assert t.tolist() == [[0, 1, 2], [9, 4, 5]]
    t[0, 0] = 8
    assert a[0, 0] == 8
    for copied in (np.array(t), np.asarray(t, np.float64), np.asarray(t, copy=True)):
        copied[0, 0] = 7
        assert t[0, 0].item() == 8
    assert np.shares_memory(np.asarray(t, np.float32, copy=False), a)
    # Of what cannot be shared it is a copy.
    assert np.asarray(plait.ones(2, requires_grad=True)).tolist() == [1, 1]
    assert np.asarray(plait.ones(2, dtype=plait.bfloat16)).dtype == np.float32
    with pytest.raises(ValueError, match="copy=False forbids a copy, which float64 elements"):
        t.__array__(np.dtype("float64"), copy=False)


def test_operators_take_numpy_numbers_and_arrays_leave_them_to_tensors():
    t = plait.ones(2)
    for number in (np.float32(2), np.float64(2), np.int64(2), np.int8(2), np.bool_(True), np.array(2.0)):
        assert isinstance(t * number, plait.Tensor) and (t * number).dtype is plait.float32
        assert isinstance(number * t, plait.Tensor)


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 32, 1 << 32)])
def test_huge_arrays_without_memory(shape):
    if np.prod([float(n) for n in shape]) * 1 < 2**63:  # NumPy itself makes no larger ones
        huge = np.lib.stride_tricks.as_strided(np.zeros(1, dtype=bool), shape, (0,) * len(shape))
        with pytest.raises((MemoryError, ValueError)):
            plait.tensor(huge)
    with pytest.raises((MemoryError, ValueError)):
        plait.zeros(*shape)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (None, "NoneType"),
        ([1, None], "NoneType"),
        ({"a": 1}, "dict"),
        (["a", "b"], "str"),
        ([b"a"], "bytes"),
        (2**70, "int beyond 64 bits"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), r"datetime64\[D\]"),
    ],
)
def test_what_is_no_number_is_named(data, kind):
    with pytest.raises(TypeError, match=f"cannot make a tensor of {kind} elements"):
        plait.tensor(data)


def test_all_16_bit_floats_as_numbers_of_python():
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 1024)
    for row in bits:
        halves = row.view(np.float16).copy()
        np.testing.assert_array_equal(plait.from_numpy(halves).tolist(), halves.astype(np.float64))
        brains = plait.from_numpy(row.view(np.int16).copy()).view(plait.bfloat16)
        np.testing.assert_array_equal(brains.tolist(), brains.float().numpy())
    assert np.signbit(plait.tensor([-0.0], dtype=plait.float16).tolist()[0])
