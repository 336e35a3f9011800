"""Our signatures are PyTorch's: every call that binds there binds here, to the parameter of the same name."""

import importlib.util
import inspect
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"internal/coverage/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bind = load("bind")


@pytest.fixture(scope="module")
def compared():
    return bind.compare()


def test_differences_have_reasons(compared):
    reasons = bind.known()
    for name, found in compared.items():
        for difference in found:
            assert any(fnmatchcase(name, n) and fnmatchcase(difference, w) for n, w, _ in reasons), (name, difference)


def test_reasons_are_needed(compared):
    for pattern, what, _ in bind.known():
        assert any(
            fnmatchcase(name, pattern) and any(fnmatchcase(d, what) for d in found) for name, found in compared.items()
        ), (pattern, what)


def test_most_of_the_list_is_compared(compared):
    assert len(compared) > 1300


@pytest.mark.parametrize(
    ("ours", "found"),
    [
        ("(input, dim=-1, keepdim=False)", []),
        ("(input, axis=-1, keepdim=False)", ["lacks dim", "has axis by position"]),
        ("(input, keepdim=False, dim=-1)", ["*dim does not arrive", "*keepdim does not arrive"]),
        ("(input, dim=None, keepdim=False)", ["default of dim is None"]),
        ("(input, dim=-1, keepdim=0)", ["default of keepdim is 0"]),
        ("(input, dim=-1, *, keepdim=False)", ["* by position: too many positional arguments"]),
        ("(input, dim=-1, keepdim=False, flag=True)", ["has flag by position"]),
        ("(input, dim=-1, keepdim=False, *, flag=True)", []),
        ("(*args, **kwargs)", ["lacks input", "lacks dim", "lacks keepdim"]),
    ],
)  # fmt: skip
def test_a_difference_is_found(ours, found):
    differences = bind.differences(["(input, dim=-1, keepdim=False)"], inspect.Signature(bind.parse(ours)))
    assert len(differences) == len(found)
    assert all(fnmatchcase(d, f) for d, f in zip(differences, found, strict=True))
