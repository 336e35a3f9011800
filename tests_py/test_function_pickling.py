"""Public functions, and methods of tensors, are pickled by their names: a pool of processes can be given them."""

import importlib
import pickle
import types

import plait
import pytest

MODULES = [
    "plait", "plait.accelerator", "plait.amp", "plait.array_api", "plait.array_api.linalg", "plait.autograd",
    "plait.autograd.functional", "plait.autograd.graph", "plait.compiler", "plait.cpu", "plait.cuda",
    "plait.distributed", "plait.distributed.checkpoint", "plait.distributed.fsdp", "plait.distributions", "plait.func",
    "plait.jit", "plait.linalg", "plait.nn", "plait.nn.functional", "plait.nn.init", "plait.nn.utils",
    "plait.nn.utils.parametrize", "plait.nn.utils.rnn", "plait.profiler", "plait.random", "plait.return_types",
    "plait.safetensors", "plait.serialization", "plait.special", "plait.testing", "plait.utils.checkpoint",
    "plait.utils.data", "plait.utils.dlpack",
]  # fmt: skip


def not_pickled(owner):
    found = []
    for name in dir(owner):
        value = getattr(owner, name)
        ours = str(getattr(value, "__module__", "")).startswith("plait")
        if name[0] == "_" or not ours or not isinstance(value, types.FunctionType | type):
            continue
        try:
            same = pickle.loads(pickle.dumps(value)) is value
        except (pickle.PicklingError, AttributeError):
            same = False
        if not same:
            found.append(name)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_public_functions_are_pickled_by_name(module):
    assert not_pickled(importlib.import_module(module)) == []


def test_methods_are_pickled_by_name():
    assert not_pickled(plait.Tensor) == []


def test_methods_have_one_home():
    homes = {}
    for base in plait.Tensor.__mro__:
        if base.__module__.startswith("plait."):
            for name in vars(base):
                if not name.startswith("__"):
                    homes.setdefault(name, []).append(base.__name__)
    assert {n: h for n, h in homes.items() if len(h) > 1} == {}


def test_functions_of_linear_algebra_are_of_the_module_that_people_import():
    assert {
        f.__module__ for n in plait.linalg.__all__ if isinstance(f := getattr(plait.linalg, n), types.FunctionType)
    } == {"plait.linalg"}
