"""Which functions that make a tensor of something share its memory, as PyTorch's do."""

import array

import numpy as np
import plait
import pytest


class Exporter:
    """An array of another library, which knows DLPack alone."""

    def __init__(self):
        self.values = np.ones(4, np.float32)

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


# How to make each, and the address of its elements.
SOURCES = {
    "tensor": (lambda: plait.ones(4), plait.Tensor.data_ptr),
    "numpy": (lambda: np.ones(4, np.float32), lambda s: s.ctypes.data),
    "read-only": (lambda: np.frombuffer(np.ones(4, np.float32).tobytes(), np.float32), lambda s: s.ctypes.data),
    "list": (lambda: [1.0] * 4, id),
    "dlpack": (Exporter, lambda s: s.values.ctypes.data),
    "buffer": (lambda: array.array("f", [1] * 4), lambda s: s.buffer_info()[0]),
}
CPU = plait.ones(1).device

COPIES = {
    "tensor": plait.tensor,
    "new_tensor": lambda s, **options: plait.zeros(1).new_tensor(s, **options),
    "new": lambda s, **options: plait.zeros(1).new(s, **options),
    "FloatTensor": plait.FloatTensor,
    "asarray": lambda s, **options: plait.asarray(s, copy=True, **options),
    "array_api": lambda s, **options: plait.array_api.asarray(s, copy=True, **options),
}
SHARERS = {
    "Tensor": (plait.Tensor, ("tensor",)),
    "as_tensor": (plait.as_tensor, ("tensor", "numpy", "dlpack")),
    "asarray": (plait.asarray, ("tensor", "numpy", "dlpack", "buffer")),
    "array_api": (plait.array_api.asarray, ("tensor", "numpy", "dlpack", "buffer")),
}


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, {"device": CPU}, {"device": plait.device("cpu")}], ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_sharing(source, options):
    make, address = SOURCES[source]
    for name, function in COPIES.items():
        given = make()
        out = function(given, **options)
        assert out.tolist() == [1.0] * 4 and out.dtype is plait.float32
        assert out.data_ptr() != address(given), name
    for name, (function, shared) in SHARERS.items():
        given = make()
        out = function(given, **options)
        assert out.tolist() == [1.0] * 4 and out.dtype is plait.float32
        assert (out.data_ptr() == address(given)) == (source in shared), name


@pytest.mark.parametrize("source", SOURCES)
def test_memory_that_cannot_be_shared(source):
    make, _ = SOURCES[source]
    for function in (plait.asarray, plait.array_api.asarray):
        if source in ("list", "read-only"):
            with pytest.raises(ValueError, match="copy=False"):
                function(make(), copy=False)
        else:
            assert function(make(), copy=False).tolist() == [1.0] * 4
        if function is plait.array_api.asarray or source != "buffer":  # PyTorch takes its bytes as they are
            with pytest.raises(ValueError, match="copy=False"):
                function(make(), dtype=plait.float64, copy=False)
            assert function(make(), dtype=plait.float64).tolist() == [1.0] * 4


def test_gradients_of_what_is_shared():
    leaf = plait.ones(2, requires_grad=True)
    assert plait.asarray(leaf) is leaf and plait.as_tensor(leaf) is leaf
    assert plait.asarray(leaf, copy=True).grad_fn is not None
    assert not plait.asarray(leaf, requires_grad=False).requires_grad
    assert plait.asarray([1.0], requires_grad=True).requires_grad
    assert not plait.tensor(leaf, device=leaf.device).requires_grad


def test_bytes_as_numbers():
    held = bytearray(np.array([1.5, 2.5], np.float32).tobytes())
    x = plait.asarray(held, dtype=plait.float32)
    assert x.tolist() == [1.5, 2.5]
    x[0] = 0.5
    assert np.frombuffer(held, np.float32)[0] == 0.5
    with pytest.raises(ValueError, match="size"):
        plait.asarray(bytearray(5), dtype=plait.float32)
    assert plait.tensor(bytearray(b"ab")).tolist() == [97, 98] and plait.tensor(bytearray(b"ab")).dtype is plait.int64
