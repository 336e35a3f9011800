"""Imports and names of ported scripts that have little behind them here."""

import subprocess
import sys

import plait
import pytest
from plait import nn
from plait.nn.modules.utils import _pair, _single, consume_prefix_in_state_dict_if_present
from plait.utils.checkpoint import get_device_states, set_device_states

IMPORTS = """
import plait.backends.cudnn as cudnn
import plait.backends.cuda, plait.backends.mps
from plait.backends import cudnn as again
from plait.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard
from plait.distributed._tensor import DTensor, Shard
from plait.distributed._tensor.device_mesh import init_device_mesh
from plait.distributed._tensor.placement_types import Replicate
from plait.nn.modules.utils import _ntuple, _pair
from plait.utils.data._utils.collate import default_collate
from plait.utils.hooks import RemovableHandle
import plait
cudnn.benchmark = False
cudnn.deterministic = True
plait.backends.cuda.matmul.allow_tf32 = True
assert cudnn is again is plait.backends.cudnn and plait.nn.utils.__name__ == "plait.nn.utils"
assert default_collate is plait.utils.data.default_collate is plait.utils.data._utils.collate.default_collate
assert isinstance(plait.ones(1, requires_grad=True).register_hook(print), RemovableHandle)
assert plait.utils.hooks.RemovableHandle is RemovableHandle
"""


def test_imports():
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, timeout=120)


def test_sizes_of_layers():
    assert _pair(3) == (3, 3) and _pair([1, 2]) == (1, 2) and _single(4) == (4,)


def test_a_prefix_is_taken_off():
    inner = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    state = nn.DataParallel(inner, []).state_dict()
    assert all(name.startswith("module.") for name in state)
    consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == list(inner.state_dict())
    assert dict(state._metadata) == dict(inner.state_dict()._metadata)
    plain = {"module.a": 1, "b": 2}
    consume_prefix_in_state_dict_if_present(plain, "module.")
    assert plain == {"a": 1, "b": 2}


def test_compilers_return_what_they_get():
    @plait.jit.ignore
    def ignored(x):
        return x + 1

    @plait.jit.ignore(drop=True)
    def dropped(x):
        return x + 2

    @plait.compiler.disable(recursive=False)
    @plait.compiler.disable
    @plait.jit.unused
    def plain(x):
        return x + 3

    assert [f(1) for f in (ignored, dropped, plain)] == [2, 3, 4]
    with pytest.warns(UserWarning, match="no compiler") as seen:
        assert plait.jit.script(plain) is plain
    assert seen[0].filename == __file__
    assert not plait.jit.is_scripting() and not plait.jit.is_tracing() and not plait.compiler.is_compiling()
    with pytest.raises(NotImplementedError, match=r"jit\.trace.*state_dict"):
        plait.jit.trace(plain, plait.ones(1))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = plait.jit.nothing


def test_tensors_made_like_others():
    x = plait.ones(2, dtype=plait.float64)
    assert x.new(2, 3).shape == x.new(plait.Size([2, 3])).shape == (2, 3)
    assert x.new().shape == (0,) and x.new([1, 2]).tolist() == [1, 2]
    assert x.new(2).dtype is x.new([1]).dtype is plait.float64


def test_memory_that_ran_out_has_the_name_that_scripts_catch():
    with pytest.raises(plait.cuda.OutOfMemoryError):
        plait.empty(1 << 40)
    assert plait.cuda.memory_summary() == "" or plait.cuda.is_available()
    plait.cuda.ipc_collect()


def test_instructions_of_the_processor():
    assert plait.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = file.read().split()
    assert (plait.backends.cpu.get_cpu_capability() != "DEFAULT") == ("avx2" in flags and "fma" in flags)


def test_conditions_of_tensors():
    for held in (plait.tensor(True), plait.tensor([3]), plait.tensor(float("nan")), plait.empty((), device="meta")):
        assert plait._assert_async(held) is None
    with pytest.raises(RuntimeError, match="single nonzero value, but got zero"):
        plait._assert_async(plait.tensor(0.0))
    with pytest.raises(RuntimeError, match="too small"):
        plait._assert_async(plait.tensor(False), "too small")
    for many in (plait.ones(2), plait.empty(0)):
        with pytest.raises(RuntimeError, match="ambiguous"):
            plait._assert_async(many)


def test_states_of_devices():
    assert get_device_states(plait.ones(2), [plait.ones(1, device="meta"), "text"]) == ([], [])
    set_device_states([], [])
    before = plait.get_rng_state()
    first = plait.rand(3)
    set_device_states([0], [before], device_type="cpu")
    assert plait.equal(plait.rand(3), first)
    if plait.cuda.is_available():
        ids, states = get_device_states({"x": plait.ones(2, device="cuda")})
        first = plait.rand(3, device="cuda")
        set_device_states(ids, states)
        assert plait.equal(plait.rand(3, device="cuda"), first)


def test_interfaces_stay_classes():
    @plait.jit.interface
    class Cell(nn.Module):
        pass

    assert issubclass(Cell, nn.Module) and plait.Stream is plait.cuda.Stream


def test_types_of_items():
    for obj, kind in (
        ([1, 2], list[int]), ([], list[int]), ({"a": 1.0}, dict[str, float]), ((1, "a"), tuple[int, str]),
        ((1, 2, 3), tuple[int, ...]), (None, int | None), ([[1]], list[list[int]]),
        (plait.ones(1), plait.Tensor), ([plait.ones(1)], list[plait.Tensor]), (3, (str, int)), (None, None),
    ):  # fmt: skip
        assert plait.jit.isinstance(obj, kind), (obj, kind)
    for obj, kind in (
        ([1, "a"], list[int]), ((1, 2), list[int]), ({"a": 1}, dict[str, float]), ((1,), tuple[int, str]),
        ((1, 2, "a"), tuple[int, ...]), ("a", int | None), ([[1], ["a"]], list[list[int]]), (3, (str, float)),
    ):  # fmt: skip
        assert not plait.jit.isinstance(obj, kind), (obj, kind)
