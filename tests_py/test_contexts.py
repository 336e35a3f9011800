"""Context managers change what the calling thread sees, and no other: ranks are threads."""

import ast
import threading
import warnings
from pathlib import Path

import plait
import pytest
from plait.distributed.fsdp.wrap import enable_wrap, wrap
from plait.nn.utils import parametrize
from plait.utils.checkpoint import checkpoint, set_checkpoint_early_stop

ROOT = Path(plait.__file__).parent


def elsewhere(function):
    """Returns what a function returns in another thread."""
    out = []
    thread = threading.Thread(target=lambda: out.append(function()))
    thread.start()
    thread.join()
    return out[0]


class Count(plait.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2

    def right_inverse(self, x):
        return x / 2


def test_cached_tensors_are_the_threads_own():
    module, count = plait.nn.Linear(2, 2), Count()
    parametrize.register_parametrization(module, "weight", count)
    count.calls = 0
    with parametrize.cached():
        first = module.weight
        assert module.weight is first and count.calls == 1
        assert elsewhere(lambda: module.weight is module.weight) is False
        assert count.calls == 3, "another thread is not in the context"

        def inside():
            with parametrize.cached():
                return module.weight is module.weight and module.weight is not first

        assert elsewhere(inside)
        assert module.weight is first, "the end of another thread's context leaves this one's tensors"
        module.weight = plait.ones(2, 2)
        assert module.weight.tolist() == plait.ones(2, 2).tolist(), "assigned, not cached"


def test_units_are_made_in_the_thread_that_asks():
    module = plait.nn.Linear(1, 1)
    with enable_wrap(wrapper_cls=plait.nn.Sequential):
        assert isinstance(wrap(module), plait.nn.Sequential)
        assert elsewhere(lambda: wrap(module)) is module


def test_checkpoints_end_as_the_thread_says():
    def passes():
        runs = []

        def f(x):
            y = x.sin()
            runs.append(len(runs))
            y = y.cos()
            runs.append(len(runs))
            return y + 1

        checkpoint(f, plait.ones(1, requires_grad=True), use_reentrant=False).sum().backward()
        return len(runs)

    short = passes()
    with set_checkpoint_early_stop(False):
        assert passes() == 4
        assert elsewhere(passes) == short


def context_managers(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = {n.id for d in node.decorator_list for n in ast.walk(d) if isinstance(n, ast.Name)}
            names |= {n.attr for d in node.decorator_list for n in ast.walk(d) if isinstance(n, ast.Attribute)}
            if "contextmanager" in names or node.name in ("__enter__", "__exit__"):
                yield node


def test_no_context_manager_changes_what_a_module_holds():
    """What a module holds, all threads see."""
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        holders = set()
        for node in tree.body:
            value = getattr(node, "value", None)
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(value, ast.List | ast.Dict | ast.Set):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                holders |= {t.id for t in targets if isinstance(t, ast.Name)}
        for function in context_managers(tree):
            for node in ast.walk(function):
                assert not isinstance(node, ast.Global), f"{path}:{node.lineno}"
                assert not (isinstance(node, ast.Name) and node.id in holders), f"{path}:{node.lineno}: {node.id}"


@pytest.mark.parametrize("beside", ["_x/script.py", "x.py"])
def test_warnings_name_files_beside_the_package(beside):
    name = f"{ROOT}{beside}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exec(compile("plait.jit.script(len)", name, "exec"), {"plait": plait})
    assert caught[0].filename == name
