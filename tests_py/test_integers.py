"""Integers of every width: results, conversions, promotion, files and arrays."""

import numpy as np
import plait
import pytest
from plait import safetensors

SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
WIDTHS = SIGNED + UNSIGNED
COMPUTED = tuple(n for n in WIDTHS if n != "uint64")


def ends(name):
    """Returns numbers of a dtype: its limits and a few between."""
    limits = np.iinfo(name)
    return np.array([limits.max, limits.min, 5, 1, limits.max - 3, 7], dtype=name)


@pytest.mark.parametrize("name", WIDTHS)
def test_arrays_and_files(name, tmp_path):
    a = ends(name)
    t = plait.tensor(a)
    dtype = getattr(plait, name)
    assert t.dtype is dtype and t.tolist() == a.tolist() and [x.item() for x in t] == a.tolist()
    assert t.numpy().dtype == a.dtype and plait.from_numpy(a).data_ptr() == a.ctypes.data
    assert plait.tensor(a.tolist(), dtype=dtype).tolist() == a.tolist()
    assert plait.equal(plait.from_dlpack(np.from_dlpack(t)), t) and np.from_dlpack(t).dtype == a.dtype
    assert plait.iinfo(dtype).max == np.iinfo(name).max and dtype.is_signed == (name in SIGNED)
    safetensors.save_file({"w": t}, tmp_path / "w.safetensors")
    assert plait.equal(safetensors.load_file(tmp_path / "w.safetensors")["w"], t)
    plait.save({"w": t.view(2, 3).t()}, tmp_path / "w.pt")
    back = plait.load(tmp_path / "w.pt")["w"]
    assert back.dtype is dtype and back.tolist() == a.reshape(2, 3).T.tolist()


@pytest.mark.parametrize("name", COMPUTED)
def test_results_are_those_of_numpy(name):
    a, b = ends(name), np.array([3, 5, 2, 4, 6, 2], dtype=name)
    x, y = plait.tensor(a), plait.tensor(b)
    with np.errstate(over="ignore"):
        for op in ("add", "subtract", "multiply", "floor_divide", "remainder", "bitwise_xor", "maximum", "gcd"):
            want = getattr(np, op)(a, b)
            got = getattr(plait, op)(x, y)
            if op == "gcd" and name in SIGNED:
                want, got = want[2:], got[2:]  # the least number has no absolute value
            assert got.dtype is x.dtype and got.tolist() == want.tolist(), op
        assert plait.neg(x).tolist() == (-a).tolist() and plait.abs(x).tolist() == np.abs(a).tolist()
        assert (x @ y).item() == (a * b).sum(dtype=a.dtype)
    for op in ("less", "equal", "logical_and"):
        assert getattr(plait, op if op != "equal" else "eq")(x, y).tolist() == getattr(np, op)(a, b).tolist()
    assert x.sum().dtype is plait.int64 and x.sum().item() == a.sum(dtype="int64")
    assert x.cumsum(0).tolist() == a.cumsum(dtype="int64").tolist()
    assert plait.div(x, y).dtype is plait.float32


@pytest.mark.parametrize("name", WIDTHS)
def test_order_is_that_of_numpy(name):
    a = np.tile(ends(name), (7, 3))
    x = plait.tensor(a)
    for dim in (0, 1):
        assert x.amax(dim).tolist() == a.max(dim).tolist() and x.amin(dim).tolist() == a.min(dim).tolist()
        assert x.argmax(dim).tolist() == a.argmax(dim).tolist() and x.argmin(dim).tolist() == a.argmin(dim).tolist()
        assert x.cummax(dim)[0].tolist() == np.maximum.accumulate(a, dim).tolist()
        assert x.sort(dim)[0].tolist() == np.sort(a, dim).tolist()
    assert x.unique().tolist() == np.unique(a).tolist()
    assert x.count_nonzero().item() == np.count_nonzero(a)
    pooled = plait.nn.functional.max_pool2d(x[None], 2)
    assert pooled.tolist() == [a[:6].reshape(3, 2, 9, 2).max((1, 3)).tolist()]


@pytest.mark.parametrize("source", WIDTHS)
def test_conversions_wrap_around(source):
    a = ends(source)
    for target in (*WIDTHS, "bool", "float32", "float64"):
        assert plait.tensor(a).to(getattr(plait, target)).tolist() == a.astype(target).tolist(), target


def test_promotion():
    assert plait.promote_types(plait.uint8, plait.int8) is plait.int16
    assert plait.promote_types(plait.uint8, plait.int16) is plait.int16
    assert plait.promote_types(plait.uint16, plait.float16) is plait.float16
    for one in ("uint16", "uint32", "uint64"):
        small = plait.ones(2, dtype=getattr(plait, one))
        assert (small * 2).dtype is small.dtype and (small * plait.tensor(3)).dtype is small.dtype
        for other in ("bool", "uint8", "int8", "int64"):
            with pytest.raises(RuntimeError, match="no common dtype"):
                plait.promote_types(small.dtype, getattr(plait, other))
            with pytest.raises(RuntimeError, match=f"{one} {other}. have no common dtype"):
                small + plait.ones(2).to(getattr(plait, other))
            with pytest.raises(RuntimeError, match="no common dtype"):
                plait.cat([small, plait.ones(2).to(getattr(plait, other))])


def test_numbers_that_do_not_fit():
    for name in COMPUTED:
        most = np.iinfo(name).max
        with pytest.raises(ValueError, match="cannot hold"):
            plait.tensor([most + 1, 0], dtype=getattr(plait, name))
    for name in ("int8", "int16", "uint16", "uint32"):
        with pytest.raises(ValueError, match="cannot hold"):
            plait.zeros(2, dtype=getattr(plait, name)).fill_(np.iinfo(name).max + 1)


def test_uint64_is_for_storage():
    x = plait.tensor(ends("uint64"))
    assert (x == x).all() and (x * 3).tolist() == (ends("uint64") * np.uint64(3)).tolist()
    assert x[plait.tensor([0, 4])].tolist() == ends("uint64")[[0, 4]].tolist()
    for op in (plait.lt, plait.maximum, plait.floor_divide, plait.remainder):
        with pytest.raises(RuntimeError, match="not defined for uint64"):
            op(x, x)
