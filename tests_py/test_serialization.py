import collections
import contextlib
import io
import json
import os
import pathlib
import pickle
import pickletools
import random
import warnings
import zipfile

import numpy as np
import plait
import pytest
from plait.serialization import CheckpointError, load, save

GOLDEN = pathlib.Path(__file__).parent / "golden"
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8"]


def through(value, **kwargs):
    file = io.BytesIO()
    save(value, file)
    file.seek(0)
    return load(file, **kwargs)


def rewritten(change, source=None):
    """Returns a checkpoint whose records `change` has been over: (name, bytes) to bytes, or None to drop one."""
    if source is None:
        source = io.BytesIO()
        save({"w": plait.tensor([1.0, 2.0, 3.0]), "b": plait.tensor([4.0])}, source)
    out = io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if (data := change(name.partition("/")[2], old.read(name))) is not None:
                new.writestr(name, data)
    out.seek(0)
    return out


def pickled(data):
    """Returns a checkpoint without tensors whose pickle is `data`."""
    return rewritten(lambda name, old: data if name == "data.pkl" else old)


def test_file_of_pytorch():
    s = load(GOLDEN / "checkpoint.pt")
    values = json.loads((GOLDEN / "checkpoint.json").read_text())
    assert {k: v.tolist() for k, v in s["model"].items()} == values["model"]
    assert s["optimiser"]["state"][0]["exp_avg"].tolist() == values["exp_avg"]
    assert s["optimiser"]["param_groups"][0]["lr"] == 0.01
    assert s["model"]._metadata["1"] == {"version": 2}
    assert (s["epoch"], s["big"], s["rate"], s["name"], s["raw"]) == (3, 1 << 70, 0.5, "käse", b"\0\xff")
    assert s["flags"] == [True, False, None] and s["set"] == {1, 2} and s["tuple"] == (1, (2, 3, 4, 5))
    assert s["size"] == plait.Size([2, 3]) and type(s["size"]) is plait.Size
    assert s["device"] == plait.device("cpu") and s["dtype"] is plait.bfloat16
    assert s["transposed"].tolist() == s["base"].transpose(0, 1).tolist() and not s["transposed"].is_contiguous()
    assert s["zero_d"].shape == () and s["zero_d"].item() == 2.5 and s["zero_d"].dtype is plait.float64
    assert s["empty"].shape == (0, 3)
    assert s["bfloat16"].dtype is plait.bfloat16 and s["bfloat16"].tolist() == [1.5, -2.0, float("inf")]
    assert s["half"].tolist() == [0.5, 65504.0] and s["long"].tolist() == [1 << 40, -1]
    assert s["bool"].tolist() == [True, False] and s["byte"].tolist() == [255] and s["int"].tolist() == [7]
    assert s["parameter"].requires_grad and s["parameter"].is_leaf
    assert list(s["ordered"]) == ["b", "a"] and s["counter"] == collections.Counter({3: 2})


def test_tensors_that_share_memory_share_it_when_loaded():
    s = load(GOLDEN / "checkpoint.pt")
    s["base"][1, 2] = 50.0
    assert s["row"][2].item() == 50.0 and s["transposed"][2, 1].item() == 50.0
    base = plait.zeros(4)
    out = through([base, base[1:], base])
    out[0][2] = 7.0
    assert out[1].tolist() == [0.0, 7.0, 0.0] and out[2] is out[0]


def instructions(path):
    with zipfile.ZipFile(path) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("/data.pkl"))
        return [(op.name, arg) for op, arg, _ in pickletools.genops(archive.read(name))]


def test_what_is_written_is_what_pytorch_writes():
    file = io.BytesIO()
    save(load(GOLDEN / "checkpoint.pt"), file)
    file.seek(0)
    ours, theirs = instructions(file), instructions(GOLDEN / "checkpoint.pt")
    names = {arg for op, arg in theirs if op == "GLOBAL"}
    # A parameter is a tensor where there is no class of parameters.
    assert {arg for op, arg in ours if op == "GLOBAL"} | {"torch._utils _rebuild_parameter"} == names
    assert {op for op, _ in ours} <= {op for op, _ in theirs}
    with zipfile.ZipFile(file) as archive:
        assert archive.read("archive/version") == b"3\n" and archive.read("archive/byteorder") == b"little"
        assert all(i.compress_type == zipfile.ZIP_STORED for i in archive.infolist())


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_and_layouts(name):
    dtype = getattr(plait, name)
    x = plait.tensor([[1, 2, 3], [4, 5, 6]], dtype=dtype)
    for t in (x, x.transpose(0, 1), x[1], x[:, ::2], x[1, 1], x[:0], plait.tensor([], dtype=dtype)):
        out = through({"t": t})["t"]
        assert out.dtype is dtype and out.shape == t.shape and out.tolist() == t.tolist()
        assert out.stride() == t.stride()


def test_gradients_stay_wanted():
    w = plait.tensor([1.0], requires_grad=True)
    assert through(w).requires_grad and not through(w.detach()).requires_grad


def test_paths(tmp_path):
    path = tmp_path / "a.pt"
    save({"x": plait.tensor([1.0])}, path)
    os.chmod(path, 0o640)
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    save({"x": plait.tensor([2.0])}, str(link))
    assert load(path)["x"].tolist() == [2.0] and link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.pt", "link.pt"]


def test_a_failed_save_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "a.pt"
    save([1], path)
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        save([lambda: 0], path)
    assert load(path) == [1]
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]
    with pytest.raises(FileNotFoundError, match=rf"the folder does not exist.*{tmp_path}/nowhere.$"):
        save([1], tmp_path / "nowhere" / "a.pt")
    with pytest.raises(TypeError, match="save: want a path"):
        save([1], 3)


def test_records_are_aligned(tmp_path):
    save([plait.ones(3), plait.ones(5, dtype=plait.float64)], tmp_path / "a.pt")
    raw = (tmp_path / "a.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        for info in archive.infolist():
            name, extra = (
                int.from_bytes(raw[info.header_offset + i : info.header_offset + i + 2], "little") for i in (26, 28)
            )
            assert (info.header_offset + 30 + name + extra) % 64 == 0


def test_map_location():
    x = plait.tensor([1.0, 2.0])
    assert through(x, map_location="cpu:1").device == plait.device("cpu:1")
    assert through(x, map_location={"cpu": "cpu:1"}).device == plait.device("cpu:1")
    seen = []
    out = through(x, map_location=lambda storage, where: seen.append((storage.tolist(), where)))
    assert seen == [([1.0, 2.0], "cpu")] and out.tolist() == [1.0, 2.0]

    def elsewhere(name, data):
        return data.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:9") if name == "data.pkl" else data

    with pytest.raises(CheckpointError, match=r"saved on cuda:9.*map_location"):
        load(rewritten(elsewhere))
    for where in ("cpu", {"cuda:9": "cpu"}, {"gpu:9": "cpu"}):
        assert load(rewritten(elsewhere), map_location=where)["w"].tolist() == [1.0, 2.0, 3.0]


class Runs:
    def __reduce__(self):
        return os.system, ("touch /tmp/plait-was-here",)


def test_what_is_not_allowed_is_refused_by_name():
    with pytest.raises(pickle.UnpicklingError, match=r"posix\.system.*not allowed.*weights_only=False"):
        through([Runs()])
    for hostile in (
        b"c__builtin__\neval\n(X\x01\x00\x00\x001tR.",
        b"cos\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"ctorch\nload\n.",
        b"ctorch.serialization\nload\n.",
        b"cplait\nload\n.",
        b"(X\x01\x00\x00\x00xios\nsystem\n.",  # INST
        b"\x82\x01.",  # EXT1
    ):
        with pytest.raises(CheckpointError, match="not allowed"):
            load(pickled(hostile))


def test_a_file_changes_nothing_but_its_own_objects():
    before = plait.Size.numel
    state = b"(X\x05\x00\x00\x00numelK\x01d"
    for target in (
        b"ctorch\nSize\n",
        b"ctorch\nfloat32\n",
        b"ctorch._utils\n_rebuild_tensor_v2\n",
        b"ccollections\nOrderedDict\n",
    ):
        for built in (state + b"b", b"N" + state + b"\x86b"):
            with pytest.raises(CheckpointError, match=r"sets the state"):
                load(pickled(target + built + b"."))
    tensor = io.BytesIO()
    save(plait.tensor([1.0]), tensor)

    def forged(name, data):
        return data[:-1] + b"N(X\x02\x00\x00\x00_hK\x01d\x86b." if name == "data.pkl" else data

    with pytest.raises(CheckpointError, match="sets the state of a Tensor"):
        load(rewritten(forged, tensor))
    assert plait.Size.numel is before


def test_everything_with_weights_only_false():
    out = through(
        {"at": pathlib.PurePosixPath("a/b"), "x": plait.tensor([1.0]), "d": plait.float16}, weights_only=False
    )
    assert out["at"] == pathlib.PurePosixPath("a/b") and out["x"].tolist() == [1.0] and out["d"] is plait.float16


def test_numpy_values():
    value = {
        "s": np.float64(2.5),
        "i": np.int64(3),
        "a": np.arange(6.0).reshape(2, 3),
        "f": np.asfortranarray(np.eye(2)),
    }
    out = through(value)
    assert out["s"] == 2.5 and type(out["s"]) is np.float64 and out["i"] == 3
    assert np.array_equal(out["a"], value["a"]) and np.array_equal(out["f"], value["f"])
    with pytest.raises(CheckpointError, match="NumPy"):
        through(np.array([print], object))


def test_damaged_files_name_the_file_and_the_tensor(tmp_path):
    path = tmp_path / "a.pt"

    def case(change):
        path.write_bytes(rewritten(change).getvalue())
        with pytest.raises(CheckpointError) as error:
            load(path)
        assert str(path) in str(error.value)
        return str(error.value)

    assert "tensor 'b' (data/1)" in case(lambda name, data: data[:-1] if name == "data/1" else data)
    assert "tensor 'b' (data/1): it has no record" in case(lambda name, data: None if name == "data/1" else data)
    assert "tensor 'w' (data/0)" in case(
        lambda name, data: data.replace(b"K\x03\x85", b"K\x09\x85") if name == "data.pkl" else data
    )
    assert "data.pkl" in case(lambda name, data: None if name == "data.pkl" else data)
    assert "order" in case(lambda name, data: b"big" if name == "byteorder" else data)
    assert "damaged" in case(lambda name, data: data[:-1] if name == "data.pkl" else data)


def test_shapes_beyond_the_memory():
    def strides(n):
        return lambda name, data: data.replace(b"K\x01\x85", n + b"\x85") if name == "data.pkl" else data

    for n in (b"\x8a\x08" + (1 << 62).to_bytes(8, "little"), b"J\xff\xff\xff\xff", b"K\x02", b"G?\xf0\0\0\0\0\0\0"):
        with pytest.raises(CheckpointError, match="tensor 'w'"):
            load(rewritten(strides(n)))


def test_other_formats():
    with pytest.raises(CheckpointError, match="neither"):
        load(io.BytesIO(b"hello world, this is text"))
    with pytest.raises(CheckpointError, match="neither"):
        load(io.BytesIO(b""))
    with pytest.raises(CheckpointError, match="TorchScript"):
        out = rewritten(lambda name, data: data)
        with zipfile.ZipFile(out, "a") as archive:
            archive.writestr("archive/constants.pkl", b"")
        out.seek(0)
        load(out)
    compressed = io.BytesIO()
    with zipfile.ZipFile(compressed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickle.dumps([0] * 1000))
    compressed.seek(0)
    with pytest.raises(CheckpointError, match="compressed"):
        load(compressed)


def test_truncated_and_flipped_files_never_give_anything_but_an_error_or_an_object():
    whole = (GOLDEN / "checkpoint.pt").read_bytes()
    for n in (0, 1, 10, 100, 1000, len(whole) // 2, len(whole) - 10, len(whole) - 1):
        with pytest.raises(CheckpointError):
            load(io.BytesIO(whole[:n]))
    rng = random.Random(1)
    with zipfile.ZipFile(GOLDEN / "checkpoint.pt") as archive:
        data = archive.read("checkpoint/data.pkl")
    source = (GOLDEN / "checkpoint.pt").read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(150):
            changed = bytearray(data)
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(data))] = rng.randrange(256)
            file = rewritten(lambda name, old, c=bytes(changed): c if name == "data.pkl" else old, io.BytesIO(source))
            with contextlib.suppress(CheckpointError):
                load(file)


def test_deep_nesting_does_not_crash():
    deep = b"]" * 50_000 + b"a" * 49_999 + b"."
    value = load(pickled(deep))
    for _ in range(10):
        (value,) = value


def test_safetensors_by_name(tmp_path):
    save({"x": plait.tensor([1.0])}, tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors")["x"].tolist() == [1.0]
    with open(tmp_path / "m.safetensors", "rb") as f:
        assert load(f)["x"].tolist() == [1.0]


def test_modules_of_pytorch_go_into_ours():
    s = load(GOLDEN / "checkpoint.pt")
    model = plait.nn.Sequential(plait.nn.Linear(3, 4), plait.nn.Identity(), plait.nn.Linear(4, 2))
    state = {k: v for k, v in s["model"].items() if not k.startswith("1.")}
    model.load_state_dict(state)
    values = json.loads((GOLDEN / "checkpoint.json").read_text())
    assert model[0].weight.tolist() == values["model"]["0.weight"]
    again = through(model.state_dict())
    assert list(again) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert again["2.bias"].tolist() == values["model"]["2.bias"]


def test_what_pytorch_alone_can_make_is_said():
    whole = pickled(b"ctorch.nn.modules.container\nSequential\n)\x81.")
    with pytest.raises(CheckpointError, match=r"container\.Sequential, which PyTorch alone can make.*state_dict"):
        load(whole, weights_only=False)


def test_parameters_stay_parameters():
    p = through({"p": plait.nn.Parameter(plait.ones(2), requires_grad=False)})["p"]
    assert isinstance(p, plait.nn.Parameter) and not p.requires_grad and p.tolist() == [1.0, 1.0]
    assert isinstance(load(GOLDEN / "checkpoint.pt")["parameter"], plait.nn.Parameter)


def test_whole_modules_need_trust():
    model = plait.nn.Linear(2, 2)
    with pytest.raises(CheckpointError, match=r"plait\.nn.*not allowed"):
        through(model)
    again = through(model, weights_only=False)
    x = plait.ones(1, 2)
    assert again(x).tolist() == model(x).tolist()
