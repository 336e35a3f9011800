"""Files that are damaged, hostile or cannot be written: a CheckpointError that names the file, and nothing lost."""

import errno
import io
import json
import pickle
import random
import struct
import zipfile
import zlib

import plait
import pytest
from plait import CheckpointError, nn
from plait._serialization.pickling import Pickler
from plait.distributed import checkpoint as dcp
from plait.safetensors import load_file, save_file
from plait.serialization import raw_bytes


class OldPickler(Pickler):
    """Writes storages as PyTorch did before 1.6."""

    def persistent_id(self, obj):
        found = super().persistent_id(obj)
        return None if found is None else (*found, None)


def old(obj, change=lambda i, part: part):
    """Returns an object in the format of PyTorch before 1.6, whose parts `change` has been over."""
    text = io.BytesIO()
    pickler = OldPickler(text)
    pickler.dump(obj)
    storages = list(pickler.storages.values())
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    parts = [pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, machine)]
    parts += [text.getvalue(), pickle.dumps([s.key for s in storages], 2)]
    for s in storages:
        parts.append(struct.pack("<q", s.elements.numel()) + raw_bytes(s.elements).tobytes())
    return b"".join(change(i, p) for i, p in enumerate(parts))


def sample():
    x = plait.arange(6.0).reshape(2, 3)
    return {
        "x": x,
        "row": x[1],
        "turned": x.transpose(0, 1),
        "half": plait.tensor([1.5, -2.0], dtype=plait.bfloat16),
        "flags": plait.tensor([True, False]),
        "weight": nn.Parameter(plait.ones(2, 2)),
        "empty": plait.zeros(0, 3),
        "rest": [1, (2.5, "text"), {3: None}],
    }


def test_files_from_before_1_6(tmp_path):
    path = tmp_path / "old.pt"
    path.write_bytes(old(sample()))
    want = sample()
    for source in (path, io.BytesIO(path.read_bytes())):
        got = plait.load(source)
        assert got.keys() == want.keys() and got["rest"] == want["rest"]
        for name, t in want.items():
            if name != "rest":
                assert got[name].dtype is t.dtype and got[name].tolist() == t.tolist(), name
                assert got[name].stride() == t.stride()
        assert isinstance(got["weight"], nn.Parameter) and got["weight"].requires_grad
        got["x"][1, 2] = 50.0
        assert got["row"][2].item() == 50.0 and got["turned"][2, 1].item() == 50.0
    both = io.BytesIO(old([1, plait.ones(2)]) + old(plait.zeros(3)))  # one behind the other
    assert plait.load(both)[1].tolist() == [1, 1] and plait.load(both).tolist() == [0, 0, 0]
    seen = []
    plait.load(path, map_location=lambda storage, where: seen.append((storage.numel(), where)))
    assert (6, "cpu") in seen
    assert plait.load(io.BytesIO(old({"w": plait.ones(2)})), weights_only=False)["w"].tolist() == [1, 1]


def test_what_is_wrong_with_files_from_before_1_6():
    def message(number, change, obj=None):
        with pytest.raises(CheckpointError) as info:
            plait.load(
                io.BytesIO(old(obj or {"w": plait.ones(3)}, lambda i, part: change(part) if i == number else part))
            )
        return str(info.value)

    assert "version 7" in message(1, lambda _: pickle.dumps(7, 2))
    assert "not in little order" in message(2, lambda _: pickle.dumps({"little_endian": False}, 2))
    assert "posix.system" in message(3, lambda _: b"cposix\nsystem\nX\x04\0\0\0true\x85R.")
    assert "its storages are ['x']" in message(4, lambda _: pickle.dumps(["x"], 2))
    assert "tensor 'w' (data/0): it has 2 elements, want 3" in message(5, lambda p: struct.pack("<q", 2) + p[8:])
    assert "tensor 'w' (data/0): it has 11 bytes, want 12" in message(5, lambda p: p[:-1])
    assert (
        "tensor 'w' (data/0): its 1152921504606846976 elements of plait.float32 are more than the file has"
        in message(3, lambda p: p.replace(b"K\x03N", b"\x8a\x08" + (1 << 60).to_bytes(8, "little") + b"N"))
    )
    assert "a byte other than 0 and 1" in message(5, lambda p: p[:-1] + b"\2", {"w": plait.tensor([True])})


@pytest.mark.parametrize(
    "hostile",
    [
        b"c__builtin__\nbytearray\n\x8a\x05\0\0\0\0\x10\x85R.",  # 64 GiB of zeros
        b"]q\0" + b"h\0h\0\x86q\0" * 60 + b"c__builtin__\nstr\nh\0\x85R.",  # as text it is 2^60 brackets
        b")q\0" + b"h\0h\0\x86q\0" * 60 + b"}h\0Ns.",  # a key that takes 2^60 steps to hash
        b")q\0" + b"h\0\x85q\0" * 60_000 + b"}h\0Ns.",  # one so deep that hashing it overflows the stack
        b")q\0" + b"h\0\x85q\0" * 60_000 + b"c__builtin__\nset\nh\0\x85\x85R.",
        b")q\0" + b"h\0h\0\x86q\0" * 60 + b"h\0R.",  # called, and so shown in the error
    ],
)
def test_small_files_that_ask_for_much(hostile):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02" + hostile)
    for source in (file, io.BytesIO(old({}, lambda i, part: b"\x80\x02" + hostile if i == 3 else part))):
        source.seek(0)
        with pytest.raises(CheckpointError):
            plait.load(source)


def test_records_that_overlap():
    """A record that lies in the bytes of another, with headers and checksums that fit."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("archive/data/1", bytes(4096))
    inner = inner.getvalue()[: 30 + len("archive/data/1") + 4096]  # its header and its bytes
    file = io.BytesIO()
    plait.save([plait.zeros(len(inner), dtype=plait.uint8), plait.zeros(4096, dtype=plait.uint8)], file)
    out = io.BytesIO()
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            if name != "archive/data/1":
                target.writestr(name, inner if name == "archive/data/0" else source.read(name))
        at = target.getinfo("archive/data/0")
        info = zipfile.ZipInfo("archive/data/1")
        info.header_offset = at.header_offset + 30 + len(at.filename)
        info.CRC, info.file_size, info.compress_size = zlib.crc32(bytes(4096)), 4096, 4096
        target.filelist.append(info)
        target.NameToInfo[info.filename] = info
    out.seek(0)
    with pytest.raises(CheckpointError, match=r"larger than the file|Overlapped"):
        plait.load(out)


def test_an_index_that_promises_much(tmp_path):
    m = nn.Linear(2, 2)
    optimizer = plait.optim.Adam(m.parameters())
    m(plait.ones(1, 2)).sum().backward()
    optimizer.step()
    dcp.save({"o": optimizer}, checkpoint_id=tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    huge = index["tensors"]["o.state.0.exp_avg"]
    huge["shape"] = huge["pieces"][0]["shape"] = [1 << 40]
    huge["pieces"][0]["offset"] = [0]
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r'"o\.state\.0\.exp_avg": .*the index says that it holds more') as info:
        dcp.load({"o": plait.optim.Adam(m.parameters())}, checkpoint_id=tmp_path)
    assert str(tmp_path) in str(info.value) and not isinstance(info.value, MemoryError)


def mutated(rng, data):
    """Returns bytes with a few of them changed, cut out, repeated, put elsewhere or made extreme."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        at, n = rng.randrange(len(data)), rng.choice([1, 1, 2, 4, 8, 64])
        kind = rng.randrange(7)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            data[at : at + n] = bytes([rng.choice([0, 0x7F, 0xFF])]) * n
        elif kind == 3:
            del data[at : at + n]
        elif kind == 4:
            data[at:at] = data[at : at + n]
        elif kind == 5:
            other = rng.randrange(len(data))
            data[at : at + n] = data[other : other + n]
        elif len(data) > 100:
            del data[at:]
        if not data:
            return b""
    return bytes(data)


def zipped(rng):
    file = io.BytesIO()
    plait.save(sample(), file)
    if rng.randrange(2):
        return mutated(rng, file.getvalue())
    out = io.BytesIO()  # one record is changed, and its checksum fits
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(out, "w") as target:
        changed = rng.choice(source.namelist())
        for name in source.namelist():
            data = source.read(name)
            target.writestr(name, mutated(rng, data) if name == changed and data else data)
    return out.getvalue()


def fuzz(make, path, load, rounds, seed):
    rng = random.Random(seed)
    loaded = 0
    for i in range(rounds):
        path.write_bytes(make(rng))
        try:
            load()
            loaded += 1
        except CheckpointError as error:
            assert str(path.parent) in str(error), (i, error)
    assert loaded < rounds


ROUNDS = [pytest.param(40, id="some"), pytest.param(3000, marks=pytest.mark.slow, id="many")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("form", ["zip", "old", "safetensors"])
def test_mutated_files(tmp_path, form, rounds):
    path = tmp_path / f"a.{form}"
    if form == "zip":
        fuzz(zipped, path, lambda: plait.load(path), rounds, 1)
    elif form == "old":
        whole = old(sample())
        fuzz(lambda rng: mutated(rng, whole), path, lambda: plait.load(path), rounds, 2)
    else:
        save_file({k: v for k, v in sample().items() if isinstance(v, plait.Tensor)}, path, {"a": "b"})
        whole = path.read_bytes()
        fuzz(lambda rng: mutated(rng, whole), path, lambda: load_file(path), rounds, 3)
        fuzz(lambda rng: mutated(rng, whole), path, lambda: plait.load(path), rounds // 4, 4)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_mutated_checkpoints(tmp_path, rounds):
    def state():
        return {"model": nn.Linear(2, 3), "n": 1, "big": 1 << 70, "list": [1, (2, 3)], "keys": [{1: 2}]}

    dcp.save(state(), checkpoint_id=tmp_path)
    for path in list(tmp_path.iterdir()):
        whole = path.read_bytes()
        fuzz(
            lambda rng, whole=whole: mutated(rng, whole),
            path,
            lambda: (dcp.load(state(), checkpoint_id=tmp_path), dcp.FileSystemReader(tmp_path).read_metadata()),
            rounds,
            5,
        )
        path.write_bytes(whole)
    dcp.load(state(), checkpoint_id=tmp_path)


def test_a_damaged_value_changes_nothing(tmp_path):
    dcp.save({"w": plait.ones(2), "n": 1 << 70}, checkpoint_id=tmp_path)
    index = tmp_path / "index.json"
    text = index.read_text().replace(str(1 << 70), "seven")
    index.write_text(text.replace('\n "crc32c"', ' "crc32c"'))  # which is how a program that knows no checksum writes
    w = plait.zeros(2)
    with pytest.raises(CheckpointError, match="value 'n' is damaged"):
        dcp.load({"w": w, "n": 0}, checkpoint_id=tmp_path)
    assert w.tolist() == [0, 0]


def test_dtypes_that_tensors_do_not_have(tmp_path):
    path = tmp_path / "a.safetensors"
    header = b'{"f8":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}}     '
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"ab")
    for load in (plait.load, load_file):
        with pytest.raises(CheckpointError, match=r'tensor "f8".*F8_E4M3') as info:
            load(path)
        assert str(path) in str(info.value) and isinstance(info.value, TypeError)


def test_there_is_one_class():
    from plait import serialization
    from plait.utils import checkpoint

    assert plait.CheckpointError is serialization.CheckpointError is checkpoint.CheckpointError


def test_an_error_of_the_callers_own_function_stays_its_own():
    file = io.BytesIO()
    plait.save(plait.ones(1), file)
    file.seek(0)

    def where(storage, location):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        plait.load(file, map_location=where)


@pytest.mark.parametrize("error", [MemoryError("no memory"), OSError(errno.EIO, "the disk fails")])
@pytest.mark.parametrize("part", ["zipfile.ZipFile.read", "pickletools.genops"])
def test_failure_to_read_is_no_damage(tmp_path, monkeypatch, part, error):
    def fail(*args, **kwargs):
        raise error

    file = tmp_path / "a.pt"
    plait.save({"w": plait.ones(3)}, file)
    with monkeypatch.context() as patch:
        patch.setattr(part, fail)
        with pytest.raises(type(error), match=r"no memory|the disk fails") as info:
            plait.load(file)
    assert "damaged" not in str(info.value)
    assert plait.load(file)["w"].tolist() == [1, 1, 1]
