"""Names that are not there: PyTorch's are said to be missing, others to be unknown."""

import importlib
import importlib.util
import traceback
from pathlib import Path

import plait
import pytest

ROOT = Path(__file__).parent.parent


def areas():
    spec = importlib.util.spec_from_file_location("coverage_page", ROOT / "internal/coverage/coverage.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [pytest.param(module, *a, id=a[0]) for a in module.AREAS]


@pytest.mark.parametrize(("coverage", "area", "title", "path"), areas())
def test_every_name_of_pytorch_is_there_or_said_to_be_missing(coverage, area, title, path):
    owner = coverage.resolve(path)
    asked = plait.ones(1) if area == "tensor" else owner
    for name in coverage.names(area):
        if not coverage.has(owner, name):
            with pytest.raises(NotImplementedError, match=f"{name}: this name of PyTorch's is not there yet"):
                getattr(asked, name)
    with pytest.raises(AttributeError) as caught:
        asked.no_such_name
    assert not isinstance(caught.value, NotImplementedError)
    assert not hasattr(asked, "__no_such_name__")


@pytest.mark.parametrize(
    ("owner", "name", "meant"),
    [
        ("plait.nn", "Liner", "Linear"), ("plait.nn.functional", "relue", "relu"), ("plait.func", "vmapp", "vmap"),
        ("plait.linalg", "choleski", "cholesky"), ("plait.nn.init", "xavier_unifor_", "xavier_uniform_"),
        ("plait", "tensr", "tensor"), ("plait.optim", "Adan", "Adam"), ("plait.cuda", "is_availabel", "is_available"),
        ("plait.optim", "Adamw", "AdamW"), ("plait.nn", "linear", "Linear"), ("plait", "Tensr", "Tensor"),
    ],
)  # fmt: skip
def test_what_was_meant(owner, name, meant):
    with pytest.raises(AttributeError, match=f"{owner} has no attribute '{name}'; did you mean '{meant}'") as caught:
        getattr(importlib.import_module(owner), name)
    shown = "".join(traceback.format_exception_only(caught.value))
    assert shown.lower().count("did you mean") == 1, shown


def test_nothing_is_guessed_of_what_is_hardly_alike():
    with pytest.raises(AttributeError, match=r"plait has no attribute 'foo'$"):
        plait.foo
    with pytest.raises(AttributeError, match=r"plait has no attribute 'xyz'$"):
        plait.xyz


def test_what_was_meant_of_a_tensor():
    with pytest.raises(AttributeError, match="did you mean 'reshape'"):
        plait.ones(1).reshpe
    with pytest.raises(AttributeError, match=r"no attribute 'qqqqqq'$"):
        plait.ones(1).qqqqqq
