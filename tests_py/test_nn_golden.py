"""Layers and functions against PyTorch's results: outputs, gradients, states, representations."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import plait
import pytest
from plait import nn

GOLDEN = Path(__file__).parent / "golden"
sys.path.insert(0, str(GOLDEN))
from nn_cases import FUNCTIONS, LAYERS, make_input  # noqa: E402

SAVED = np.load(GOLDEN / "nn.npz")
NAMES = set(SAVED.files)
REPRS = json.loads(str(SAVED["reprs"]))


@pytest.fixture(autouse=True)
def _float64():
    plait.set_default_dtype(plait.float64)
    yield
    plait.set_default_dtype(plait.float32)


def tensors(value):
    if isinstance(value, plait.Tensor):
        return [value]
    if isinstance(value, tuple | list):
        return [t for v in value for t in tensors(v)]
    return []


def to_tensor(a, grad):
    t = plait.tensor(np.asarray(a))
    t.requires_grad = grad
    return t


def check(key, function, inputs, parameters):
    out = [t for t in tensors(function(*inputs)) if t.numel()]
    assert f"{key}.out.{len(out)}" not in NAMES
    for k, t in enumerate(out):
        wanted = SAVED[f"{key}.out.{k}"]
        assert list(t.shape) == list(wanted.shape)
        assert t.dtype.is_floating_point == (wanted.dtype.kind == "f")
        np.testing.assert_allclose(t.detach().numpy(), wanted, rtol=1e-7, atol=1e-9)
    total = 0
    for t in out:
        if t.dtype.is_floating_point and t.requires_grad:
            total = total + (t * plait.tensor(np.cos(np.arange(t.numel(), dtype=np.float64)).reshape(t.shape))).sum()
    leaves = [t for t in [*inputs, *parameters] if t.requires_grad]
    assert f"{key}.grad.{len(leaves)}" not in NAMES
    if not isinstance(total, plait.Tensor):
        return
    total.backward()
    for k, t in enumerate(leaves):
        if f"{key}.grad.{k}" in NAMES:
            wanted = SAVED[f"{key}.grad.{k}"]
            got = np.zeros(wanted.shape) if t.grad is None else t.grad.numpy()
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-8, err_msg=f"gradient {k}")


@pytest.mark.parametrize("n", range(len(LAYERS)), ids=[f"{n}-{c['name']}" for n, c in enumerate(LAYERS)])
@pytest.mark.filterwarnings("ignore")
def test_layer(n):
    case = LAYERS[n]
    rng = np.random.default_rng(n)
    made = [make_input(s, rng) for s in case["inputs"]]
    inputs = [to_tensor(a, g) for a, g in made]
    if case["name"] == "MultiheadAttention" and case["inputs"].count(case["inputs"][0]) == 3:
        inputs = [inputs[0]] * 3
    module = getattr(nn, case["name"])(*case["args"], **case["kwargs"])
    assert repr(module) == REPRS[str(n)]
    prefix = f"{n}.state."
    state = {k[len(prefix) :]: plait.tensor(SAVED[k]) for k in SAVED.files if k.startswith(prefix)}
    assert list(module.state_dict()) == list(state)
    for name, t in module.state_dict().items():
        assert (t.shape, t.dtype) == (state[name].shape, state[name].dtype), name
    module.load_state_dict(state)
    module.train(not case["eval"])
    parameters = list(module.parameters())
    leaves = list({id(t): t for t in inputs}.values())
    if len(leaves) < len(inputs):  # self-attention: one gradient here, three equal ones there
        check_shared(n, module, inputs[0], parameters)
    else:
        check(str(n), lambda *a: module(*a, **case["call"]), inputs, parameters)
    for name, t in module.state_dict().items():
        if f"{n}.after.{name}" in NAMES:
            np.testing.assert_allclose(t.numpy(), SAVED[f"{n}.after.{name}"], rtol=1e-7)


def check_shared(n, module, x, parameters):
    out, weights = module(x, x, x)
    np.testing.assert_allclose(out.detach().numpy(), SAVED[f"{n}.out.0"], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(weights.detach().numpy(), SAVED[f"{n}.out.1"], rtol=1e-7, atol=1e-9)
    total = 0
    for t in (out, weights):
        total = total + (t * plait.tensor(np.cos(np.arange(t.numel(), dtype=np.float64)).reshape(t.shape))).sum()
    total.backward()
    grads = sum(SAVED[f"{n}.grad.{k}"] for k in range(3))
    np.testing.assert_allclose(x.grad.numpy(), grads, rtol=1e-6, atol=1e-8)
    for k, p in enumerate(parameters):
        np.testing.assert_allclose(p.grad.numpy(), SAVED[f"{n}.grad.{k + 3}"], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n", range(len(FUNCTIONS)), ids=[f"{n}-{c[0]}" for n, c in enumerate(FUNCTIONS)])
@pytest.mark.filterwarnings("ignore")
def test_function(n):
    name, specs, kwargs = FUNCTIONS[n]
    kwargs = dict(kwargs)
    rng = np.random.default_rng(1000 + n)
    inputs = [to_tensor(a, g) for a, g in (make_input(s, rng) for s in specs)]
    third = kwargs.pop("_third", None)
    function = getattr(nn.functional, name)
    with warnings.catch_warnings():
        if third:
            check(f"f{n}", lambda x, y, z: function(x, y, **{third: z}, **kwargs), inputs, [])
        else:
            check(f"f{n}", lambda *a: function(*a, **kwargs), inputs, [])
