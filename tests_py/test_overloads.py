"""Overloads that one signature of Python cannot say: each is called in every style, and means the same in all."""

from fnmatch import fnmatchcase

import plait
import pytest
from test_signatures import bind

X = plait.tensor([[3.0, 1.0], [2.0, 4.0]])
CUBE = plait.arange(8.0).reshape(2, 2, 2)
AT = plait.tensor([[0], [1]])
NEW = {
    "out": None, "dtype": plait.float64, "layout": plait.strided, "device": "cpu", "pin_memory": False,
    "requires_grad": False, "memory_format": plait.preserve_format,
}  # fmt: skip


def seeded():
    return plait.Generator().manual_seed(5)


def drawn(low, high, shape, dtype):
    return plait.randint(low, high, shape, generator=seeded(), dtype=dtype)


def calls():
    """Yields a name, how the overloads begin, arguments by name (functions make one anew), and what they give."""
    yield "torch.arange", "(end, *", {"end": 3, **NEW}, plait.tensor([0, 1, 2])
    yield "torch.randint", "(high, size, *, out", {"high": 1, "size": (4,), **NEW}, plait.tensor([0] * 4)
    nine = {"input": X, "high": 9, "size": (4,), "generator": seeded, **NEW}
    yield "torch.randint", "(high, size, *, generator,", nine, drawn(0, 9, (4,), None)
    yield "torch.randint", "(high, size, *, generator=None", nine, None
    yield "torch.randint_like", "(input, high, *, generator", nine, drawn(0, 9, (2, 2), plait.float32)
    yield "torch.randint_like", "(input, high, *, memory", {"input": X, "high": 1, **NEW}, plait.zeros(2, 2)
    repeats = {"repeats": plait.tensor([2, 0, 1]), "output_size": 3}
    yield "torch.repeat_interleave", "(repeats, *", repeats, plait.tensor([0, 0, 2])
    yield "torch.Tensor.random_", "(to, *", {"to": 1, "generator": seeded}, plait.zeros(2, 2)
    yield "torch.Tensor.view", "(dtype)", {"dtype": plait.int32}, X.view(plait.int32)
    values = {"input": X, "dim": 1, "index": AT, "value": 5.0, "out": lambda: plait.empty(2, 2)}
    written, added = plait.tensor([[5.0, 1], [2, 5]]), plait.tensor([[8.0, 1], [2, 9]])
    yield "torch.scatter", "(input, dim, index, value, *, reduce", values | {"reduce": "add"}, added
    yield "torch.scatter", "(input, dim, index, value, *, out", values, written
    for name in ("torch.Tensor.scatter", "torch.Tensor.scatter_"):
        yield name, "(dim, index, value)", values, written
        yield name, "(dim, index, value, *, reduce", values | {"reduce": "add"}, added
    other = {"input": X, "other": X.t(), "out": lambda: plait.empty(2, 2)}
    for name, larger in (("max", plait.maximum(X, X.t())), ("min", plait.minimum(X, X.t()))):
        yield f"torch.{name}", "(input, other, *", other, larger
        yield f"torch.Tensor.{name}", "(other)", other, larger
    double = {"dtype": plait.float64, "non_blocking": True, "copy": True, "memory_format": plait.preserve_format}
    yield "torch.Tensor.to", "(dtype, non", double, X.double()
    yield "torch.Tensor.to", "(device=None", double | {"device": "cpu"}, X
    yield "torch.Tensor.to", "(other, non", double | {"other": X.double()}, X.double()
    yield "torch.Tensor.hsplit", "(*indices)", {"indices.0": 1, "indices.1": 2}, CUBE.tensor_split((1, 2), 1)
    for element in ("element", "elements"):
        values = {element: 3.0 if element == "element" else X, "assume_unique": True, "invert": True, "out": None}
        for test in ("test_element", "test_elements"):
            given = values | {test: 3.0 if test == "test_element" else X}
            yield "torch.isin", f"({element}, {test},", given, X.eq(3.0) if element[-1] != test[-1] == "t" else None
    yield "torch.result_type", "(tensor, other)", {"tensor": X, "other": 2}, plait.float32
    yield "torch.result_type", "(scalar, tensor)", {"scalar": 2, "tensor": X}, plait.float32
    yield "torch.result_type", "(scalar1, scalar2)", {"scalar1": 2, "scalar2": 3}, plait.int64
    for owner, head in (("torch.", "(input, "), ("torch.Tensor.", "(")):
        for name in ("std", "var", "std_mean", "var_mean"):
            if owner == "torch." or "mean" not in name:
                function = getattr(plait, name)
                given = {"input": X, "dim": 0, "unbiased": False, "keepdim": True, "out": None}
                yield owner + name, head + "unbiased=True)", given, function(X)
                yield owner + name, head + "dim, unbiased", given, function(X, 0)
        for name, dim in (("hsplit", 1), ("vsplit", 0), ("dsplit", 2)):
            halves = tuple(h.unsqueeze(dim) for h in CUBE.unbind(dim))
            yield owner + name, head + "sections)", {"input": CUBE, "sections": 2}, halves
            yield owner + name, head + "indices)", {"input": CUBE, "indices": (1,)}, halves
        for argument, at in (("sections", 2), ("indices", (1,)), ("tensor_indices_or_sections", plait.tensor(1))):
            given = {"input": X, argument: at, "dim": 1}
            yield owner + "tensor_split", head + f"{argument}, dim=0)", given, X.tensor_split(at)


def texts(name, start):
    """Returns PyTorch's overloads that begin so."""
    module = max((m for m in bind.golden() if name.startswith(m + ".")), key=len)
    return [t for t in bind.golden()[module][name[len(module) + 1 :]] if t.startswith(start)]


CALLS = [(name, text, given, want) for name, start, given, want in calls() for text in texts(name, start)]
METHODS = {"hsplit": CUBE, "vsplit": CUBE, "dsplit": CUBE}


def plain(value):
    if isinstance(value, plait.Tensor):
        return value.dtype, value.tolist()
    return [plain(v) for v in value] if isinstance(value, tuple | list) else value


@pytest.mark.parametrize(("name", "text", "given", "want"), CALLS, ids=lambda v: v if isinstance(v, str) else "")
def test_every_style_of_an_overload(name, text, given, want):
    found = {}
    owner, _, last = name.rpartition(".")
    for call in bind.calls(bind.parse(text)):
        made = {n: v() if callable(v) and not isinstance(v, plait.dtype) else v for n, v in given.items()}
        function = getattr(plait if owner == "torch" else METHODS.get(last, X).clone(), last)
        out = function(*(made[n] for n in call.positional), **{n: made[n] for n in call.keywords})
        found[call.style] = plain(out)
        arguments = {*call.positional, *call.keywords}
        if "out" in arguments and isinstance(made["out"], plait.Tensor):
            assert out is made["out"]
        if "dtype" in arguments and last != "view":
            assert out.dtype is plait.float64
    if want is not None:
        assert found["required alone"] == plain(want)
    if "by keyword" in found:
        assert found["by position"] == found["by keyword"]


def test_every_overload_that_is_to_be_called_is():
    called = {(name, text) for name, text, _, _ in CALLS}
    rows = [(n, w) for n, w, reason in bind.known() if reason == "called"]
    for name, found in bind.compare().items():
        for difference in found:
            if any(fnmatchcase(name, n) and fnmatchcase(difference, w) for n, w in rows):
                text = difference[: difference.index("): ") + 1]
                assert (name, text) in called or name == "torch.set_autocast_enabled"


def test_the_old_form_of_set_autocast_enabled():
    before = plait.is_autocast_enabled("gpu")
    plait.set_autocast_enabled(not before)
    assert plait.is_autocast_enabled("gpu") is not before
    plait.set_autocast_enabled(before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (X.hsplit, "want sections or indices, got neither"),
        (lambda: X.hsplit(2, sections=2), "want sections or indices, got both"),
        (lambda: X.view(2, 2, dtype=plait.int32), "want a size or a dtype"),
        (lambda: X.to(plait.float64, plait.float32), "want a device"),
        (lambda: X.to("cpu", memory_format="channels_last"), "memory_format must be one of plait's"),
        (lambda: plait.cdist(X, X, compute_mode="fast"), "compute_mode must be one of"),
        (lambda: plait.zeros(2, layout="sparse"), "layout must be plait.strided"),
        (lambda: plait.zeros(2, names=("a",)), "unexpected keyword argument 'names'"),
        (lambda: plait.hann_window(3, colour="red"), "unexpected keyword argument 'colour'"),
        (lambda: plait.repeat_interleave(X, 2, 0, output_size=5), "output_size"),
        (lambda: plait.load("x", pickle_module=plait), "pickle_module"),
        (lambda: plait.load("x", colour="red"), "unexpected argument 'colour'"),
        (lambda: plait.save({}, "x", 2), "pickle_module"),
        (lambda: plait.frexp(X, out=plait.empty(2)), "out: want 2 tensors"),
    ],
)
def test_what_is_taken_has_effect_or_is_an_error(call, message):
    with pytest.raises((TypeError, ValueError, NotImplementedError), match=message):
        call()


def test_questions_about_the_layout():
    image = plait.zeros(2, 3, 4, 5)
    last = image.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert image.is_contiguous() and not image.is_contiguous(memory_format=plait.channels_last)
    assert last.is_contiguous(memory_format=plait.channels_last) and not last.is_contiguous()
    assert not X.is_contiguous(memory_format=plait.channels_last)
    assert last.dim_order(ambiguity_check=True) == (0, 2, 3, 1)
    with pytest.raises(RuntimeError, match="several orders"):
        plait.zeros(2, 1).dim_order(ambiguity_check=True)


def test_sizes_go_one_by_one_in_a_sequence_and_by_name():
    for make in (plait.zeros, plait.rand, X.new_zeros):
        assert make(2, 3).shape == make((2, 3)).shape == make(size=[2, 3]).shape == (2, 3)
    row = plait.arange(2.0)
    for big in (row.expand(3, 2), row.expand((3, 2)), row.expand(size=(3, 2)), row.repeat(repeats=(3, 1))):
        assert big.tolist() == [[0, 1]] * 3
    assert row.tile(dims=(2,)).tolist() == row.tile(2).tolist() == [0, 1, 0, 1]
    for turned in (X.flip(dims=(0, 1)), X.flip(0, 1), plait.flip(X, dims=[0, 1])):
        assert turned.tolist() == [[4, 2], [1, 3]]
    assert X.permute(dims=(1, 0)).tolist() == X.permute(1, 0).tolist() == X.t().tolist()
    assert X.reshape(shape=(4,)).tolist() == X.view(size=(4,)).tolist() == [3, 1, 2, 4]
    assert X.unflatten(1, sizes=(2, 1)).shape == X.unflatten(1, (2, 1)).shape == (2, 2, 1)
    assert plait.broadcast_to(row, size=(3, 2)).shape == (3, 2)
    assert X.squeeze(0, 1).shape == (2, 2) and plait.zeros(1, 2, 1).squeeze(0, 2).shape == (2,)
