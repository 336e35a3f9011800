"""Modules and names that libraries import, with something behind them or an error for those who use them."""

import re
import typing

import numpy as np
import plait
import plait.nn.parallel
import plait.utils.data
import pytest
from plait import _dynamo, nn
from plait.distributions import constraints


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("hub", "download_url_to_file"), ("library", "Library"), ("overrides", "get_testing_overrides"),
        ("cuda", "CUDAGraph"),
    ],
)  # fmt: skip
def test_names_that_refuse_in_use(module, name):
    owner = getattr(plait, module)
    refused = getattr(owner, name)
    assert refused is getattr(owner, name) and not isinstance(1, refused) and (refused | None)

    class Heir(refused):
        pass

    for use in (refused, Heir, lambda: refused.anything):
        with pytest.raises(NotImplementedError, match=rf"plait\.{module}\.{name}: "):
            use()
    assert not hasattr(refused, "anything")
    with pytest.raises(AttributeError, match=f"plait.{module} has no attribute 'no_such_name'"):
        owner.no_such_name


def test_what_has_no_effect_returns_what_it_gets():
    assert plait.overrides.has_torch_function((1,)) is plait.onnx.is_in_onnx_export() is False
    assert plait.overrides.is_tensor_like(plait.ones(1)) and not plait.overrides.is_tensor_like(np.ones(1))
    _dynamo.config.cache_size_limit = 3
    assert _dynamo.disable(len) is len and not _dynamo.is_compiling()
    _dynamo.mark_dynamic(plait.ones(1), 0)


def test_folders_of_weights(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert plait.hub.get_dir() == str(tmp_path / "hub")
    monkeypatch.setattr(plait.hub, "_dir", None)
    plait.hub.set_dir(tmp_path)
    assert plait.hub.get_dir() == str(tmp_path)


def test_weights_that_have_been_fetched_are_loaded(monkeypatch, tmp_path):
    monkeypatch.setattr(plait.hub, "_dir", str(tmp_path))
    url = "https://weights.example/models/net-0a1b2c3d.pth?download=1"
    with pytest.raises(NotImplementedError, match=rf"fetch {re.escape(url)} .* keep it as .*net-0a1b2c3d\.pth"):
        plait.hub.load_state_dict_from_url(url)
    (tmp_path / "checkpoints").mkdir()
    layer, other = nn.Linear(2, 3), nn.Linear(2, 3)
    plait.save(layer.state_dict(), tmp_path / "checkpoints" / "net-0a1b2c3d.pth")
    other.load_state_dict(plait.hub.load_state_dict_from_url(url, progress=False, check_hash=True))
    assert other.weight.tolist() == layer.weight.tolist()
    plait.save({"bias": layer.bias}, tmp_path / "mine.pth")
    got = plait.hub.load_state_dict_from_url(url, tmp_path, "cpu", file_name="mine.pth", weights_only=True)
    assert got["bias"].tolist() == layer.bias.tolist()


def test_dtypes_that_are_not_there():
    assert plait.qint8 is plait.qint8 is not plait.int8 and repr(plait.quint8) == "plait.quint8"
    assert plait.cfloat is plait.complex64 and plait.complex64.is_complex and not plait.complex64.is_floating_point
    assert plait.float8_e5m2.is_floating_point and not plait.uint16.is_signed and plait.int8.is_signed
    assert (plait.int8.itemsize, plait.complex128.itemsize) == (1, 16)
    x = plait.ones(2)
    for use in (
        lambda: plait.ones(2, dtype=plait.qint8),
        lambda: x.to(plait.complex32),
        lambda: plait.tensor([1], dtype=plait.complex32),
        lambda: plait.promote_types(plait.complex32, plait.int32),
        lambda: plait.set_default_dtype(plait.float8_e5m2),
    ):
        with pytest.raises(NotImplementedError, match=r"there are no tensors of this dtype, but of bool, uint8"):
            use()
    assert (plait.iinfo(plait.int8).max, plait.iinfo(plait.uint16).max) == (127, 65535)
    limits = plait.finfo(plait.float8_e4m3fn)
    assert (limits.max, limits.min, limits.eps, limits.tiny, limits.bits) == (448.0, -448.0, 0.125, 0.015625, 8)
    assert [plait.finfo(d).resolution for d in (plait.float16, plait.float32, plait.float64)] == [1e-3, 1e-6, 1e-15]
    numbers = "min=-65504, max=65504, eps=0.000976562, smallest_normal=6.10352e-05, tiny=6.10352e-05"
    assert str(plait.finfo(plait.float16)) == f"finfo(resolution=0.001, {numbers}, dtype=float16)"
    with pytest.raises(TypeError, match="want an integer dtype"):
        plait.iinfo(plait.complex64)
    with pytest.raises(TypeError, match="want a floating-point dtype"):
        plait.finfo(plait.int8)


def test_conditions():
    plait._assert(True, "")
    plait._check(True)
    with pytest.raises(AssertionError, match=r"^why$"):
        plait._assert(False, "why")
    for check, error in (
        (plait._check, RuntimeError), (plait._check_value, ValueError), (plait._check_type, TypeError),
        (plait._check_index, IndexError), (plait._check_not_implemented, NotImplementedError),
    ):  # fmt: skip
        with pytest.raises(error, match=r"^why$"):
            check(False, lambda: "why")
        with pytest.raises(error, match="the condition does not hold"):
            check(False)
        with pytest.raises(TypeError, match="want a bool, got int"):
            check(1)


def test_operations_of_functions():
    @plait.library.custom_op("tests::scaled", mutates_args=())
    def scaled(x: plait.Tensor, factor: float = 2.0, *, shift: float = 0.0) -> plait.Tensor:
        return x * factor + shift

    x = plait.tensor([1.0, 2.0], requires_grad=True)
    assert scaled(x).tolist() == plait.ops.tests.scaled(x).tolist() == plait.ops.tests.scaled.default(x, 2).tolist()
    assert scaled(x, shift=1.0).tolist() == [3, 5]
    with pytest.raises(NotImplementedError, match="tests::scaled: no derivative"):
        scaled(x).sum().backward()

    def keep(ctx, inputs, output):
        ctx.factor = inputs[1]

    def backward(ctx, grad):
        assert ctx.needs_input_grad == (True, False, False)
        return grad * ctx.factor, None, None

    plait.library.register_autograd("tests::scaled", backward, setup_context=keep)
    plait.library.register_fake("tests::scaled", lambda x, factor: x)
    scaled(x, 3.0).sum().backward()
    assert x.grad.tolist() == [3, 3]

    @scaled.register_kernel("cpu")
    def on_cpu(x, factor=2.0, *, shift=0.0):
        return x * 0

    assert scaled(x).tolist() == [0, 0]
    with pytest.raises(NotImplementedError, match=r"plait\.ops\.tests\.other: there is no such operation"):
        plait.ops.tests.other(x)
    with pytest.raises(ValueError, match="want a name like namespace::name"):
        plait.library.custom_op("name", len)
    with pytest.raises(OSError, match="does not run on Plait"):
        plait.ops.load_library("lib.so")


def test_operations_are_checked():
    checks = {"test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"}

    def operation(name, fn, mutates=()):
        return plait.library.custom_op(f"tests::{name}", fn, mutates_args=mutates)

    def add_one(x: plait.Tensor) -> plait.Tensor:
        x += 1
        return x.clone()

    opcheck, x = plait.library.opcheck, plait.tensor([1.0, float("nan")])
    good = operation("twice", lambda x, *, y=None: [x * 2, x + 1])
    assert opcheck(good, (x,), {"y": x}) == dict.fromkeys(checks, "SUCCESS")
    assert opcheck("tests::twice", (x,), test_utils="test_schema") == {"test_schema": "SUCCESS"}
    with pytest.raises(RuntimeError, match=r"tests::changes: test_schema: the argument x was changed"):
        opcheck(operation("changes", add_one), (plait.zeros(2),))
    assert opcheck(operation("says", add_one, ["x"]), (plait.zeros(2),))["test_schema"] == "SUCCESS"
    assert opcheck(operation("says_little", add_one, "unknown"), (plait.zeros(2),))["test_schema"] == "SUCCESS"
    by_numpy = operation("by_numpy", lambda x: plait.tensor(x.numpy().__iadd__(1)))
    with pytest.raises(RuntimeError, match="the argument x was changed"):
        opcheck(by_numpy, (plait.zeros(2),))
    with pytest.raises(RuntimeError, match="a result has the memory of the argument x; return a copy"):
        opcheck(operation("same", lambda x: x[:1]), (plait.zeros(2),))

    leaf = plait.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"test_autograd_registration: tests::twice: no derivative"):
        opcheck(good, (leaf,))
    found = opcheck(good, (leaf,), raise_exception=False)
    assert isinstance(found.pop("test_autograd_registration"), NotImplementedError)
    assert set(found.values()) == {"SUCCESS"}
    good.register_autograd(lambda ctx, a, b: (2 * a + b, None))
    assert opcheck(good, (leaf,)) == dict.fromkeys(checks, "SUCCESS")
    assert leaf.grad is None

    with pytest.raises(ValueError, match=r"opcheck: no check test_nothing, want some of test_schema"):
        opcheck(good, (x,), test_utils="test_nothing")
    with pytest.raises(ValueError, match=r"opcheck: there is no operation tests::nothing"):
        opcheck("tests::nothing", (x,))


def test_constraints():
    def holds(constraint, values):
        return constraint.check(plait.tensor(values)).tolist()

    nan = float("nan")
    assert holds(constraints.real, [1.0, nan]) == [True, False]
    assert holds(constraints.positive, [1.0, 0.0, -1.0]) == [True, False, False]
    assert holds(constraints.nonnegative, [1.0, 0.0, -1.0]) == [True, True, False]
    assert holds(constraints.unit_interval, [0.0, 1.0, 1.5]) == [True, True, False]
    assert holds(constraints.half_open_interval(0, 1), [0.0, 1.0]) == [True, False]
    assert holds(constraints.less_than(2), [1.0, 2.0]) == [True, False]
    assert holds(constraints.boolean, [0.0, 1.0, 0.5]) == [True, True, False]
    assert holds(constraints.positive_integer, [0.0, 1.0, 1.5]) == [False, True, False]
    assert holds(constraints.integer_interval(1, 2), [0, 1, 2, 3]) == [False, True, True, False]
    assert holds(constraints.simplex, [[0.5, 0.5], [0.5, 0.6]]) == [True, False]
    matrices = [[[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]], [[2.0, 0.0], [1.0, 2.0]]]
    assert holds(constraints.symmetric, matrices) == [True, True, False]
    assert holds(constraints.positive_definite, matrices) == [True, False, False]
    assert holds(constraints.positive_semidefinite, matrices) == [True, False, False]
    assert holds(constraints.lower_cholesky, matrices) == [False, False, True]
    assert holds(constraints.lower_triangular, matrices) == [False, False, True]
    assert repr(constraints.unit_interval) == "Interval(lower_bound=0.0, upper_bound=1.0)"


def test_annotations_of_classes_can_be_read():
    for module in (nn, plait.optim, plait.optim.lr_scheduler, plait.utils.data, plait.nn.parallel, plait):
        for name in dir(module):
            if isinstance(found := getattr(module, name), type):
                typing.get_type_hints(found)


def test_older_places():
    from plait.distributed.tensor import Shard
    from plait.distributed.tensor.placement_types import Shard as Again
    from plait.jit.annotations import BroadcastingList2, List
    from plait.nn.modules.module import _IncompatibleKeys
    from plait.onnx.symbolic_helper import parse_args
    from plait.storage import UntypedStorage
    from plait.types import Device, Number
    from plait.utils.model_zoo import load_url, tqdm

    assert Again is Shard
    assert BroadcastingList2[int] and List[int] and Device and issubclass(bool, Number) and tqdm
    assert isinstance(plait.ones(1).untyped_storage(), UntypedStorage) and plait.UntypedStorage is UntypedStorage
    assert type(nn.Linear(1, 1).load_state_dict({}, strict=False)) is _IncompatibleKeys
    assert parse_args("v", "i")(len) is len
    with pytest.raises(NotImplementedError, match="nothing is downloaded"):
        load_url("http://localhost/x.pth")
