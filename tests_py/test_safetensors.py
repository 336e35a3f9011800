import contextlib
import json
import random
import struct

import plait
import pytest
from plait.safetensors import load, load_file, safe_open, save_file


def raw(header, data=b""):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return struct.pack("<Q", len(text)) + text + data


def test_there_and_back(tmp_path):
    path = tmp_path / "m.safetensors"
    x = plait.tensor([[1.0, 2.0], [3.0, 4.0]])
    tensors = {
        "x": x,
        "xT": x.transpose(0, 1),
        "käse": plait.tensor([1.5, float("-inf")], dtype=plait.bfloat16),
        "half": plait.tensor([0.5], dtype=plait.float16),
        "i": plait.tensor([1 << 40]),
        "flag": plait.tensor([True, False]),
        "zero_d": plait.tensor(2.5, dtype=plait.float64),
        "empty": plait.zeros(0, 3),
        "bytes": plait.tensor([1, 255], dtype=plait.uint8),
        "int": plait.tensor([7], dtype=plait.int32),
    }
    save_file(tensors, path, {"format": "pt", "note": "ü"})
    out = load_file(path)
    assert sorted(out) == sorted(tensors)
    for name, t in tensors.items():
        assert out[name].dtype is t.dtype and out[name].shape == t.shape and out[name].tolist() == t.tolist(), name
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_safe_open(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"b": plait.ones(2, 3), "a": plait.zeros(1)}, path, {"k": "v"})
    with safe_open(path, framework="pt") as f:
        assert f.keys() == ["a", "b"] and f.metadata() == {"k": "v"}
        assert f.get_shape("b") == (2, 3) and f.get_dtype("b") == "F32"
        b = f.get_tensor("b")
        with pytest.raises(ValueError, match='no tensor "c"'):
            f.get_tensor("c")
        with pytest.raises(KeyError):
            f.get_shape("c")
    assert b.sum().item() == 6.0  # the map outlives the file
    with pytest.raises(TypeError):
        f.get_tensor("b")
    f.close()


def test_what_is_loaded_can_change_without_the_file(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"a": plait.zeros(4)}, path)
    a = load_file(path)["a"]
    a.add_(1.0)
    assert a.tolist() == [1.0] * 4 and load_file(path)["a"].tolist() == [0.0] * 4
    save_file({"a": a}, path)  # over the file that it is mapped from
    assert a.tolist() == [1.0] * 4 and load_file(path)["a"].tolist() == [1.0] * 4


def test_devices(tmp_path):
    path = tmp_path / "m.safetensors"
    save_file({"a": plait.ones(2)}, path)
    assert load_file(path, device="cpu:1")["a"].device == plait.device("cpu:1")


def test_bytes_of_others():
    header = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {"a": "b"}}
    assert load(raw(header, struct.pack("<2f", 1, 2)))["w"].tolist() == [1.0, 2.0]
    assert plait.serialization.load(__import__("io").BytesIO(raw(header, struct.pack("<2f", 1, 2))))["w"].tolist() == [
        1.0,
        2.0,
    ]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "too short"),
        (struct.pack("<Q", 1 << 40), "header too long"),
        (raw({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}), '"w".*past the end'),
        (raw({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8)), '"w".*byte count'),
        (raw({"w": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)), '"w".*unknown dtype'),
        (raw({"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, bytes(8)), '"w".*integer'),
        (raw(b"{nonsense}"), "JSON"),
    ],
)
def test_damaged(tmp_path, data, match):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises((ValueError, OSError), match=match) as error:
        load_file(path)
    assert "bad.safetensors" in str(error.value)
    with pytest.raises((ValueError, OSError), match=match):
        load(data)


def test_dtype_that_tensors_do_not_have(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(raw({"w": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, b"\1"))
    with pytest.raises(TypeError, match=r'"w".*F8_E4M3'):
        load_file(path)


def test_random_damage(tmp_path):
    save_file({"a": plait.ones(3), "b": plait.zeros(2, 2)}, tmp_path / "m.safetensors", {"k": "v"})
    whole = (tmp_path / "m.safetensors").read_bytes()
    rng = random.Random(2)
    for _ in range(200):
        data = bytearray(whole[: rng.randint(0, len(whole))] if rng.random() < 0.3 else whole)
        for _ in range(rng.randint(0, 3)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(ValueError, TypeError, OSError):
            load(bytes(data))


def test_misuse(tmp_path):
    path = tmp_path / "m.safetensors"
    for bad in ([plait.ones(1)], {"a": 1}, {1: plait.ones(1)}):
        with pytest.raises(TypeError, match="save_file"):
            save_file(bad, path)
    with pytest.raises(TypeError, match="metadata"):
        save_file({}, path, {"a": 1})
    with pytest.raises(ValueError, match="reserved"):
        save_file({"__metadata__": plait.ones(1)}, path)
    assert list(tmp_path.iterdir()) == []
    save_file({}, path)
    assert load_file(path) == {}
    with pytest.raises(OSError, match="nowhere"):
        load_file(tmp_path / "nowhere.safetensors")
    with pytest.raises(OSError, match="nowhere"):
        save_file({}, tmp_path / "nowhere" / "m.safetensors")
