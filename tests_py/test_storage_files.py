"""Storages over files, and their parts, as loaders of weights use them."""

import numpy as np
import plait
import pytest


def test_a_storage_over_a_file_is_shared_memory_that_leaves_the_file_alone(tmp_path):
    path = tmp_path / "numbers"
    np.arange(10, dtype=np.float32).tofile(path)
    storage = plait.UntypedStorage.from_file(path, False, 40)
    assert storage.nbytes() == len(storage) == 40
    assert storage.untyped() == storage
    part = plait.asarray(storage[8:24], dtype=plait.uint8).view(dtype=plait.float32)
    assert part.tolist() == [2, 3, 4, 5]
    part.add_(1)
    assert storage.elements(plait.float32).tolist() == [0, 1, 3, 4, 5, 6, 6, 7, 8, 9]
    assert plait.asarray(storage, dtype=plait.float32)[2] == 3
    whole = plait.tensor([], dtype=plait.float32).set_(storage)
    assert whole[:4].tolist() == [0, 1, 3, 4]
    assert np.fromfile(path, np.float32)[2] == 2


def test_a_shared_storage_writes_the_file(tmp_path):
    path = tmp_path / "new"
    storage = plait.UntypedStorage.from_file(str(path), shared=True, nbytes=16)
    plait.asarray(storage, dtype=plait.int32).fill_(7)
    assert np.fromfile(path, np.int32).tolist() == [7, 7, 7, 7]


def test_wrong_files_and_slices(tmp_path):
    path = tmp_path / "short"
    path.write_bytes(b"1234")
    with pytest.raises(ValueError, match="has 4 bytes, want 5"):
        plait.UntypedStorage.from_file(path, nbytes=5)
    with pytest.raises(FileNotFoundError):
        plait.UntypedStorage.from_file(tmp_path / "none", nbytes=5)
    with pytest.raises(ValueError, match="want a number of bytes, got -1"):
        plait.UntypedStorage.from_file(path, True, -1)
    storage = plait.UntypedStorage.from_file(path, nbytes=4)
    with pytest.raises(ValueError, match="slices of step 1, got 2"):
        storage[::2]
    assert storage[4:9].nbytes() == storage[3:1].nbytes() == 0
    assert storage[-2:].tolist() == [ord("3"), ord("4")]


def test_bytes_and_elements():
    x = plait.tensor([1.0, 2.0])
    assert x.untyped_storage().tolist() == [0, 0, 128, 63, 0, 0, 0, 64]
    assert x.untyped_storage()[3] == 63
    with pytest.raises(TypeError, match="want plait"):
        plait.tensor([], dtype=plait.int32).set_(x.storage())


@pytest.mark.parametrize("function", [plait.frombuffer, plait.asarray])
def test_buffers_of_bfloat16(function):
    bits = bytearray(plait.tensor([1.0, 2.0, 3.0], dtype=plait.bfloat16).view(plait.int16).numpy().tobytes())
    shared = function(bits, dtype=plait.bfloat16)
    shared[0] = 5
    assert function(bytes(bits), dtype=plait.bfloat16).tolist() == [5, 2, 3]


def test_a_copy_of_a_buffer_of_bfloat16_is_one():
    bits = bytearray(4)
    plait.asarray(bits, dtype=plait.bfloat16, copy=True).fill_(1)
    assert bits == bytes(4)
    with pytest.raises(ValueError, match="copy=False forbids"):
        plait.asarray(bytes(bits), dtype=plait.bfloat16, copy=False)


def test_a_tensor_does_not_contain_strings():
    with pytest.raises(TypeError, match="want a tensor or a number to look for, got str"):
        "a" in plait.ones(2)  # noqa: B015


def test_lists_by_device_and_dtype():
    from plait.utils._foreach_utils import _group_tensors_by_device_and_dtype as grouped

    a, b, c = plait.ones(1), plait.ones(2, dtype=plait.float64), plait.ones(3)
    cpu = a.device
    found = grouped([[a, b, c], [None, b, a], []], with_indices=True)
    assert found.keys() == {(cpu, plait.float32), (cpu, plait.float64)}
    (first, second, third), places = found[cpu, plait.float32]
    assert [x is y for x, y in zip(first, (a, c), strict=True)] == [True, True]
    assert second[0] is None
    assert second[1] is a
    assert third == []
    assert places == [0, 2]
