"""`plait.torch`: programs that import PyTorch, in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import plait.torch
import pytest
from plait.torch._homes import HOMES
from plait.torch._top import VERSION, TorchVersion

ROOT = Path(__file__).parent.parent


def run(*arguments, **options):
    """Runs Python and returns what it printed."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], check=False, capture_output=True, text=True, timeout=120, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def behind(code, *arguments, **options):
    """Runs code behind the door."""
    return run("-m", "plait.torch", "-c", code, *arguments, **options)


def test_modules_are_the_same_objects():
    behind("""
import importlib, importlib.util, sys
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader
import torch, torch.backends.cudnn, torch.distributed as dist, plait, plait.nn
assert nn is plait.nn is torch.nn is sys.modules["torch.nn"] and F is plait.nn.functional and dist is plait.distributed
assert torch.add is plait.add and torch.Tensor is plait.Tensor and optim.AdamW is plait.optim.AdamW
assert torch.backends.cudnn is plait.backends.cudnn and torch.cuda is plait.cuda and torch.linalg is plait.linalg
assert plait.nn.__spec__.name == plait.nn.__package__ == plait.nn.__name__ == "plait.nn"
assert importlib.util.find_spec("torch.nn") and importlib.util.find_spec("torch.no_such_module") is None
""")


def test_names_are_where_pytorch_has_them():
    behind("""
import importlib, torch, plait
from plait.torch._homes import HOMES
from torch.nn.modules.activation import MultiheadAttention
from torch.optim.adamw import AdamW
assert MultiheadAttention is plait.nn.MultiheadAttention and AdamW is plait.optim.AdamW is torch.optim.adamw.AdamW
assert torch.nn.modules.instancenorm.InstanceNorm2d is plait.nn.InstanceNorm2d
lacking = object()
for home, row in HOMES.items():
    package, *names = row.split()
    owner = importlib.import_module(package)
    there = {n: getattr(owner, n) for n in names if hasattr(owner, n)}
    if there:
        module = importlib.import_module(home)
        assert all(getattr(module, n, lacking) is v for n, v in there.items()), home
""")


def test_versions():
    facts = json.loads((ROOT / "internal/coverage/signatures.json").read_text("utf-8"))
    assert facts["version"].partition("+")[0] == VERSION
    out = behind("""
import importlib.metadata
print(importlib.metadata.version("torch"))
import torch
print(torch.__version__, torch.version.__version__, torch.version.plait, torch.version.cuda)
""")
    assert out.split() == [VERSION, VERSION, VERSION, plait.__version__, "None"]


def test_versions_are_compared_by_their_numbers():
    v = TorchVersion("2.15.0")
    assert v > "2.9" and v >= "2.15" and v == "2.15.0+cpu" and v < "2.16.0a0" and not v < (2, 2) and v != (3,)
    assert v.split(".")[:2] == ["2", "15"] and hash(v) == hash("2.15.0") and isinstance(v, str) and v != "git"


def test_texts_have_pytorchs_name():
    print_them = "print(x.dtype, x.shape, x.layout, x.type(), plait.channels_last, x)"
    for name, code in (
        ("plait", f"import plait; x = plait.ones(2).half(); {print_them}"),
        ("torch", f"import plait.torch as p; p.install(); import torch, plait; x = torch.ones(2).half(); {print_them}"),
        ("plait", f"import plait.torch as p; p.install(); p.uninstall(); x = plait.ones(2).half(); {print_them}"),
    ):
        wanted = f"{name}.float16 {name}.Size([2]) {name}.strided {name}.HalfTensor {name}.channels_last "
        assert run("-c", f"import plait; {code}") == f"{wanted}tensor([1., 1.], dtype={name}.float16)\n"


def test_scripting_does_not_warn():
    behind("""
import pickle, warnings
warnings.simplefilter("error")
import torch
assert torch.jit.script(len) is len
assert pickle.loads(pickle.dumps(torch.float32)) is torch.float32
""")


def test_absent_names_are_said():
    out = behind("""
import torch, importlib
for name in ("torch.nn.nothing", "torch._core", "torch.safetensors"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        print(error, error.name == name)
for name in ("triangular", "safetensors", "_core"):
    try:
        getattr(torch, name)
    except AttributeError as error:
        print(error)
""")
    lines = out.splitlines()
    assert len(lines) == 6
    for name, line in zip(("torch.nn.nothing", "torch._core", "torch.safetensors"), lines, strict=False):
        assert line == f"{name}: Plait has no such module; docs/coverage.md lists what of PyTorch is there True"
    for name, line in zip(("triangular", "safetensors", "_core"), lines[3:], strict=True):
        assert f"has no attribute '{name}'" in line


def test_install_and_uninstall():
    run("-c", """
import os, sys
before = sys.path[:], sys.meta_path[:], dict(os.environ)
import plait.nn, plait.torch
names = set(dir(plait.nn.modules)), set(dir(plait.optim)), set(dir(plait.nn.modules.activation))
plait.torch.install()
plait.torch.install()
assert plait.torch.installed()
import torch, torch.nn, torch.optim.adamw
assert torch.nn.modules.instancenorm
plait.torch.uninstall()
plait.torch.uninstall()
assert not plait.torch.installed() and not [m for m in sys.modules if m.partition(".")[0] == "torch"]
assert before == (sys.path, sys.meta_path, dict(os.environ))
assert names == (set(dir(plait.nn.modules)), set(dir(plait.optim)), set(dir(plait.nn.modules.activation)))
try:
    import torch
except ModuleNotFoundError as error:
    assert str(error) == "No module named 'torch'"
plait.torch.install()
import torch.nn as again
assert again is plait.nn
""")  # fmt: skip


def test_another_torch_is_refused(tmp_path):
    (tmp_path / "torch.py").write_text("")
    run("-c", """
import torch, plait.torch
try:
    plait.torch.install()
except RuntimeError as error:
    assert "torch is imported already, from" in str(error) and torch.__file__ in str(error), error
else:
    raise SystemExit("no error")
""", env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip


def test_scripts_modules_and_code(tmp_path):
    (tmp_path / "helper.py").write_text("import torch\nvalue = float(torch.ones(2).sum())\n")
    script = tmp_path / "script.py"
    script.write_text("import sys, helper\nassert __name__ == '__main__'\nprint(__file__, sys.argv, helper.value)\n")
    assert run("-m", "plait.torch", script, "a", "-m", cwd="/") == f"{script} {[str(script), 'a', '-m']} 2.0\n"
    assert run("-m", "plait.torch", "-m", "script", "-c", cwd=tmp_path) == f"{script} {[str(script), '-c']} 2.0\n"
    assert behind("import sys; print(sys.argv, __name__)", "x") == "['-c', 'x'] __main__\n"
    for wrong in ([], ["-m"], ["--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "plait.torch", *wrong], check=False, capture_output=True, text=True
        )
        assert done.returncode == 1 and done.stderr.startswith("usage: python -m plait.torch")


CHILDREN = """
import multiprocessing, subprocess, sys
import torch

def work(queue):
    import torch.nn
    queue.put((torch.version.plait, torch.nn.__name__))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    assert queue.get(timeout=100) == (torch.version.plait, "plait.nn")
    child.join()
    code = "import importlib.metadata as m; assert m.version('torch'); from torch.nn import Linear; import torch; "
    subprocess.run([sys.executable, "-c", code + "assert torch.version.plait"], check=True)
"""


def test_children_have_it_too(tmp_path):
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    run("-m", "plait.torch", script)


def test_it_does_not_come_by_itself():
    run("-c", """
import plait, plait.torch, sys
assert "torch" not in sys.modules and not plait.torch.installed()
""")  # fmt: skip


@pytest.mark.parametrize("home", sorted(HOMES))
def test_homes_name_a_package_above(home):
    package, *names = HOMES[home].split()
    assert names and (home.startswith(f"{package}."))


def test_names_that_are_not_there_yet_can_be_imported():
    out = behind("""
from torch.cuda.green_contexts import GreenContext
from torch.nn.attention.flex_attention import flex_attention
import torch, torch.cuda
class Own(GreenContext):
    pass
def reads(file: torch.PyTorchFileReader) -> None:
    pass
for call in (lambda: GreenContext(1), flex_attention, lambda: Own(2), torch.PyTorchFileReader):
    try:
        call()
    except NotImplementedError as error:
        print(error)
""")
    lines = out.splitlines()
    context = "torch.cuda.green_contexts.GreenContext: docs/coverage.md lists what is there, and this is not yet"
    flexible = (
        "torch.nn.attention.flex_attention.flex_attention: there is no flexible attention; give "
        "scaled_dot_product_attention a mask"
    )
    reader = "torch.PyTorchFileReader: a file's records are not read one by one; use torch.load"
    assert lines == [context, flexible, context, reader]


def test_names_that_libraries_compare_with_or_keep():
    behind("""
import torch, torch.distributed, torch.futures
from torch.distributed import rpc
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.serialization import MAP_LOCATION
from torch.autograd.profiler import EventList
assert issubclass(torch.nn.InstanceNorm2d, _InstanceNorm)
assert torch.ones(1).layout not in (torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
assert not isinstance(torch.nn.Linear(1, 1), torch.jit.ScriptModule) and issubclass(torch.jit.TracerWarning, Warning)
assert "USE_MKL=OFF" not in torch.__config__.show() and "threads" in torch.__config__.parallel_info()
aten = torch.ops.aten
assert {aten.add.Tensor: 1}[aten.add.Tensor] and str(aten.add.Tensor) == "aten.add.Tensor" and aten.add is aten.add
assert aten.add.Tensor(torch.ones(2), 1).tolist() == aten.add(torch.ones(2), 1).tolist() == [2, 2]
assert aten.add_.Tensor(torch.ones(2), 1).tolist() == [2, 2]
for refused in (aten._no_such.default, torch.jit.trace, torch.jit.load, rpc.init_rpc):
    try:
        refused(torch.ones(1))
        raise SystemExit("no error")
    except NotImplementedError:
        pass
rows = torch.tensor([0, 0, 2, 3])
starts = torch._convert_indices_from_coo_to_csr(rows, 5)
assert starts.tolist() == [0, 2, 2, 3, 4, 4]
both = torch._convert_indices_from_csr_to_coo(starts, rows + 1, transpose=True, out_int32=True)
assert both.tolist() == [[1, 1, 3, 4], [0, 0, 2, 3]] and both.dtype is torch.int32
assert torch.dsmm(torch.eye(2).to_sparse(), torch.ones(2, 1)).tolist() == [[1], [1]]
x = torch.ones(2)
assert x._cdata != torch.ones(2)._cdata
m = torch.nn.Linear(1, 1)
with torch.nn.utils.stateless._reparametrize_module(m, {"weight": torch.full((1, 1), 3.0), "bias": torch.zeros(1)}):
    assert m(torch.ones(1, 1)).item() == 3
""")


def test_names_of_pytorchs_own_that_libraries_ask_for():
    behind("""
import torch
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor
from torch._subclasses.fake_tensor import is_fake
from torch.autograd import forward_ad
from torch.autograd.profiler import EventList, emit_nvtx, kineto_available
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.serialization import DEFAULT_PROTOCOL
from torch.utils._pytree import SUPPORTED_NODES, _get_node_type

x = torch.ones(3)
assert torch.torch.Tensor is torch.Tensor and DEFAULT_PROTOCOL == 2 and kineto_available()
for name in ("SymBool", "SymFloat", "SymInt", "TensorType", "ScriptModule", "ScriptFunction"):
    assert not isinstance(x, getattr(torch, name))
assert torch.jit.ScriptModule is torch.ScriptModule and issubclass(EventList, list)
assert not is_fake(x) and get_proxy_mode() is None and not is_legacy_batchedtensor(x)
assert _get_node_type([x]) in SUPPORTED_NODES and _get_node_type(x) not in SUPPORTED_NODES

active, seen = torch._C._are_functorch_transforms_active, []
def look(x):
    seen.append((active(), is_batchedtensor(x)))
    return x.sum()
look(x), torch.func.grad(look)(x), torch.func.vmap(look)(x), torch.func.jvp(look, (x,), (x,))
assert seen == [(False, False), (True, False), (True, True), (True, False)] and not active(), seen

parse = torch._C._nn._parse_to
assert parse("cpu", torch.float64) == (torch.device("cpu"), torch.float64, False, None)
assert parse(x, True) == (x.device, torch.float32, True, None)
assert parse(dtype=torch.float16, memory_format=torch.channels_last)[1:] == (torch.float16, False, torch.channels_last)
for call in (lambda: torch.TensorType.get(), emit_nvtx):
    try:
        call()
    except NotImplementedError as error:
        assert str(error)
    else:
        raise AssertionError(call)
""")
