"""Modules: what they own, save, load, convert, print and call."""

import copy
import io
import pickle
from array import array

import numpy as np
import plait
import pytest
from plait import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.scale = nn.Parameter(plait.ones(2))
        self.register_buffer("steps", plait.zeros(1))
        self.register_buffer("scratch", plait.zeros(1), persistent=False)

    def forward(self, x):
        return self.rest(self.first(x)) * self.scale


NAMES = ["scale", "first.weight", "first.bias", "rest.1.weight", "rest.1.bias"]


def same(a, b):
    np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def test_names_of_what_a_module_owns():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == NAMES
    assert [n for n, _ in net.named_buffers()] == ["steps", "scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "first", "rest", "rest.0", "rest.1"]
    assert [n for n, _ in net.named_children()] == ["first", "rest"]
    assert list(net.state_dict()) == ["scale", "steps", *NAMES[1:]]
    assert [n for n, _ in net.named_parameters(prefix="net", recurse=False)] == ["net.scale"]


def test_a_shared_module_is_found_once():
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, layer)
    assert len(list(net.parameters())) == 2
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_registration_says_what_is_wrong():
    net = Net()
    with pytest.raises(KeyError, match="dot"):
        net.register_parameter("a.b", None)
    with pytest.raises(KeyError, match="already"):
        net.register_buffer("forward", plait.zeros(1))
    with pytest.raises(TypeError, match="Parameter"):
        net.register_parameter("p", plait.zeros(1))
    with pytest.raises(ValueError, match="leaf"):
        net.register_parameter("p", _not_a_leaf())
    with pytest.raises(TypeError, match=r"Net\.scale: want a Parameter"):
        net.scale = plait.zeros(2)
    with pytest.raises(TypeError, match=r"Net\.first: want a Module"):
        net.first = 3
    with pytest.raises(AttributeError, match="Net has no attribute 'missing'"):
        net.missing
    with pytest.raises(AttributeError, match="__init__"):
        _Early()


def _not_a_leaf():
    p = nn.Parameter(plait.ones(1))
    made = p * 2
    p._h, made._h = made._h, p._h
    return p


class _Early(nn.Module):
    def __init__(self):
        self.p = nn.Parameter(plait.ones(1))


def test_assignment_replaces_across_kinds():
    net = nn.Module()
    net.x = None
    net.x = nn.Parameter(plait.ones(1))
    assert list(net.state_dict()) == ["x"]
    net.x = nn.Linear(1, 1)
    assert list(net._parameters) == []
    assert list(net.state_dict()) == ["x.weight", "x.bias"]
    del net.x
    assert list(net.state_dict()) == []
    net.b = nn.Buffer(plait.ones(1), persistent=False)
    assert list(net.state_dict()) == []
    assert [n for n, _ in net.named_buffers()] == ["b"]


def test_lookup_by_dotted_name():
    net = Net()
    assert net.get_submodule("rest.1") is net.rest[1]
    assert net.get_parameter("rest.1.bias") is net.rest[1].bias
    assert net.get_buffer("steps") is net.steps
    with pytest.raises(AttributeError, match="no module 'nope'"):
        net.get_submodule("rest.nope")
    net.set_submodule("rest.0", nn.Tanh())
    assert isinstance(net.rest[0], nn.Tanh)


def test_load_state_dict_copies_and_reports():
    a, b = Net(), Net()
    kept = b.scale
    assert repr(b.load_state_dict(a.state_dict())) == "<All keys matched successfully>"
    assert b.scale is kept
    for name, value in a.state_dict().items():
        same(value, b.state_dict()[name])
    state = a.state_dict()
    del state["first.bias"]
    state["odd"] = plait.zeros(1)
    state["rest.0.odd"] = plait.zeros(1)
    with pytest.raises(RuntimeError) as error:
        b.load_state_dict(state)
    assert 'Missing key(s) in state_dict: "first.bias"' in str(error.value)
    assert 'Unexpected key(s) in state_dict: "odd", "rest.0.odd"' in str(error.value)
    found = b.load_state_dict(state, strict=False)
    assert found.missing_keys == ["first.bias"]
    assert sorted(found.unexpected_keys) == ["odd", "rest.0.odd"]
    state = a.state_dict()
    state["scale"] = plait.zeros(3)
    with pytest.raises(RuntimeError, match=r"size mismatch for scale: .*\[3\].*\[2\]"):
        b.load_state_dict(state, strict=False)
    with pytest.raises(TypeError, match="dict-like"):
        b.load_state_dict([1])


def test_load_state_dict_assign():
    a, b = Net(), Net()
    state = a.state_dict()
    b.load_state_dict(state, assign=True)
    assert b.first.weight.data_ptr() == a.first.weight.data_ptr()
    assert b.first.weight.requires_grad


def test_extra_state_and_state_hooks():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    a, b = nn.Sequential(Counter()), nn.Sequential(Counter())
    a[0].count = 5
    assert list(a.state_dict()) == ["0._extra_state"]
    b.load_state_dict(a.state_dict())
    assert b[0].count == 5
    a.register_state_dict_post_hook(lambda m, state, prefix, _: state.update(more=1))
    assert "more" in a.state_dict()
    b.register_load_state_dict_pre_hook(lambda m, state, *rest: state.pop("more"))
    b.load_state_dict(a.state_dict())
    handle = b.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    b.load_state_dict({"more": 1})
    handle.remove()
    with pytest.raises(RuntimeError, match="Missing"):
        b.load_state_dict({"more": 1})


def test_versions_of_states():
    class Renamed(nn.Module):
        _version = 3

        def __init__(self):
            super().__init__()
            self.new, self.seen = nn.Parameter(plait.zeros(1)), []

        def _load_from_state_dict(self, state, prefix, metadata, *rest):
            self.seen.append(metadata.get("version"))
            if metadata.get("version", 1) < 3:
                state[prefix + "new"] = state.pop(prefix + "old")
            super()._load_from_state_dict(state, prefix, metadata, *rest)

    net = nn.Sequential(nn.Linear(1, 1), Renamed(), nn.BatchNorm1d(1))
    state = net.state_dict()
    assert dict(state._metadata) == {"": {"version": 1}, "0": {"version": 1}, "1": {"version": 3}, "2": {"version": 2}}
    file = io.BytesIO()
    plait.save(state, file)
    file.seek(0)
    net.load_state_dict(plait.load(file))
    older = {k.replace("new", "old"): v + 1 for k, v in state.items()}
    net.load_state_dict(older)
    assert net[1].seen == [3, None] and net[1].new.item() == 1
    net[1].register_state_dict_post_hook(lambda m, state, prefix, metadata: metadata.update(more=prefix))
    assert net.state_dict()._metadata["1"] == {"version": 3, "more": "1."}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(copied):
    net = Net().eval()
    net(plait.ones(1, 3)).sum().backward()
    other = copied(net)
    assert not other.training
    assert [n for n, _ in other.named_parameters()] == NAMES
    assert all(isinstance(p, nn.Parameter) and p.requires_grad and p.grad is None for p in other.parameters())
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)
    x = plait.randn(2, 3)
    same(net(x), other(x))
    with plait.no_grad():
        other.scale.mul_(7.0)
    assert net.scale[0].item() == 1.0


def test_conversion_keeps_the_objects_and_moves_gradients():
    net = Net()
    before = list(net.parameters())
    net(plait.ones(2, 3)).sum().backward()
    assert net.double() is net
    assert all(p is q for p, q in zip(before, net.parameters(), strict=True))
    assert {p.dtype for p in net.parameters()} == {plait.float64}
    assert {p.grad.dtype for p in net.parameters()} == {plait.float64}
    assert net.steps.dtype is plait.float64
    assert net.first.weight.is_leaf
    out = net(plait.ones(2, 3, dtype=plait.float64)).sum()
    net.zero_grad()
    out.backward()
    assert net.first.weight.grad.dtype is plait.float64
    net.to(plait.bfloat16)
    assert net.scale.dtype is plait.bfloat16
    net.to("cpu:0", plait.float32)
    assert net.scale.dtype is plait.float32
    with pytest.raises(TypeError, match="floating-point"):
        net.to(plait.int64)
    with pytest.raises(TypeError, match="unknown"):
        net.to(nowhere=1)


def test_moving_to_another_device():
    net = Net().to("cpu:1")
    assert {str(p.device) for p in net.parameters()} == {"cpu:1"}
    net(plait.ones(2, 3, device="cpu:1")).sum().backward()
    assert str(net.scale.grad.device) == "cpu:1"
    net.to("cpu:0")
    assert str(net.scale.grad.device) == "cpu:0"


def test_modes_and_gradients():
    net = Net()
    net.eval()
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    with pytest.raises(ValueError, match="train"):
        net.train("yes")
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    net.requires_grad_(True)
    net(plait.ones(2, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.tolist() == [0.0, 0.0]
    net.zero_grad()
    assert net.scale.grad is None
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]


def test_repr():
    assert repr(Net()) == (
        "Net(\n"
        "  (first): Linear(in_features=3, out_features=4, bias=True)\n"
        "  (rest): Sequential(\n"
        "    (0): ReLU()\n"
        "    (1): Linear(in_features=4, out_features=2, bias=True)\n"
        "  )\n"
        ")"
    )
    layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU()])
    assert repr(layers) == (
        "ModuleList(\n  (0-1): 2 x Linear(in_features=2, out_features=2, bias=True)\n  (2): ReLU()\n)"
    )
    assert repr(nn.Sequential()) == "Sequential()"
    assert repr(nn.Parameter(plait.ones(1))).startswith("Parameter containing:\ntensor([1.]")


def test_parameters_count_as_such():
    from plait import _core

    used = array("q", (0, 0))

    def current(category):
        at = used.buffer_info()[0]
        assert _core.bind_MemoryUsed(0, -1, category, at, at + 8) >= 0
        return used[0]

    parameters, buffers = current(1), current(5)
    net = nn.Module()
    net.p = nn.Parameter(plait.empty(1 << 16))
    net.register_buffer("b", plait.empty(1 << 15))
    assert current(1) - parameters >= 4 << 16
    assert current(5) - buffers >= 4 << 15


def test_missing_names_say_so():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        nn.Nonsense
    assert not hasattr(nn, "Nonsense")


def test_forward_is_required():
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)


def test_an_optimiser_made_before_a_move_goes_on():
    layer = nn.Linear(3, 2)
    optimizer = plait.optim.SGD(layer.parameters(), lr=0.1)
    layer.double()
    before = layer.weight.detach().clone()
    layer(plait.ones(4, 3, dtype=plait.float64)).sum().backward()
    optimizer.step()
    assert layer.weight.dtype is plait.float64
    assert plait.allclose(layer.weight, before - 0.1 * layer.weight.grad)


def test_functions_of_the_package_make_no_methods():
    def own(self, x):
        return x + self.by

    class Applied(nn.Module):
        by, squash, product, convolve, method = 2, plait.tanh, plait.matmul, nn.functional.conv1d, own

        def forward(self, x):
            return self.convolve(self.squash(x)[None], weight=plait.ones(1, 1, 1)), self.product(x, x.T), self.method(x)

    x = plait.ones(1, 3)
    for module in (Applied(), type("Heir", (Applied,), {})()):
        convolved, product, added = module(x)
        assert plait.equal(convolved[0], x.tanh()) and product.item() == 3 and added.tolist() == [[3, 3, 3]]
    assert Applied.squash is plait.tanh


def test_errors_of_loading_are_those_of_pytorch():
    with pytest.raises(RuntimeError) as caught:
        nn.Linear(2, 2).load_state_dict({"weight": plait.ones(2, 3), "x": plait.ones(1)})
    assert str(caught.value) == (
        "Error(s) in loading state_dict for Linear:\n\t"
        'Missing key(s) in state_dict: "bias". \n\t'
        'Unexpected key(s) in state_dict: "x". \n\t'
        "size mismatch for weight: copying a param with shape plait.Size([2, 3]) from checkpoint, "
        "the shape in current model is plait.Size([2, 2])."
    )
    with pytest.raises(RuntimeError, match=r'While copying the parameter named "weight", expected plait\.Tensor'):
        nn.Linear(2, 2).load_state_dict({"weight": 1, "bias": plait.ones(2)})
    with pytest.raises(TypeError, match=r"^Expected state_dict to be dict-like, got <class 'list'>\."):
        nn.Linear(2, 2).load_state_dict([1])
    kept = nn.Linear(2, 2).load_state_dict({"bias": plait.ones(2)}, strict=False)
    assert repr(kept) == "_IncompatibleKeys(missing_keys=['weight'], unexpected_keys=[])"
