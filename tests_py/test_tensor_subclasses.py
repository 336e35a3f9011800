"""Classes derived from Tensor that override functions, and modes, as PyTorch 2.15 has them."""

import copy
import io
import pickle
import threading

import plait
import plait.nn.functional as F
import pytest
from plait import nn, overrides
from plait._engine.arming import disabled_torch_function
from plait.overrides import DisableTorchFunctionSubclass, TorchFunctionMode


class Kept(plait.Tensor):
    """Overrides nothing: the default keeps the class."""


class Named(plait.Tensor):
    """Notes what it was made by."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs)
        if isinstance(out, cls):
            out.made_by = func, types, args, kwargs
        return out


class Unwrapped(plait.Tensor):
    """Calls functions with plain tensors."""

    calls = ()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls += (func,)
        args = [a.as_subclass(plait.Tensor) if isinstance(a, cls) else a for a in args]
        return func(*args, **(kwargs or {}))


class Log(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


RESULTS = {
    "operators": lambda k, t: [k + 1, 1 + k, t + k, k - t, t - k, 2 / k, t @ k, k**2, 2**k, k > t, -k, abs(k), k // 2],
    "functions": lambda k, t: [
        plait.relu(k),
        plait.cat([t, k]),
        F.softmax(k, 0),
        plait.where(t > 0, k, t),
        F.mse_loss(k, t),
    ],
    "methods": lambda k, t: [
        k.sum(),
        k.view(1, 3),
        k.clone(),
        k.detach(),
        t.add(k),
        k.to(plait.float64),
        k.new_zeros(2),
    ],
    "parts": lambda k, t: [k[0], k[:, None], *k.split(1), k.max(0).values, k.max(0).indices, *k.unbind(), k.T, k.data],
    "copies": lambda k, t: [copy.copy(k), copy.deepcopy(k), pickle.loads(pickle.dumps(k))],
    "layers": lambda k, t: [
        nn.Linear(3, 2)(k),
        nn.Sequential(nn.LayerNorm(3), nn.ReLU())(k),
        nn.LSTM(3, 2)(k[None])[0],
    ],
}


@pytest.mark.parametrize("what", RESULTS)
def test_results_keep_the_class(what):
    def made(k, t):
        plait.manual_seed(0)
        return RESULTS[what](k, t)

    t = plait.tensor([1.0, -2.0, 3.0])
    kept, plain = made(t.clone().as_subclass(Kept), t), made(t.clone(), t)
    assert [type(r) for r in kept] == [Kept] * len(plain)
    assert all(plait.equal(a.as_subclass(plait.Tensor), b) for a, b in zip(kept, plain, strict=True))
    assert all(type(r) is plait.Tensor for r in plain)


def test_in_place_operations_return_the_object():
    k, t = Kept([1.0, 2.0]), plait.ones(2)
    same = k
    k += 1
    assert k is same and k.add_(t) is same and k.tolist() == [3.0, 4.0]
    k[0] = 7.0
    t += k
    assert k.tolist() == [7.0, 4.0] and type(t) is Kept and t.tolist() == [8.0, 5.0]


def test_functions_get_their_arguments():
    n, t = Named([1.0, 2.0]), plait.ones(2)
    assert (n + t).made_by == (plait.Tensor.add, (Named,), (n, t), {})
    assert plait.softmax(n, dim=0).made_by == (plait.softmax, (Named,), (n,), {"dim": 0})
    assert plait.relu(input=n).made_by == (plait.relu, (Named,), (), {"input": n})
    assert n.data.made_by[0] == plait.Tensor.data.__get__ and n[0].made_by[0] is plait.Tensor.__getitem__
    assert n.shape == (2,) and type(n.shape) is plait.Size and n.tolist() == [1.0, 2.0] and bool(n[0])
    assert repr(n) == "Named([1., 2.])" and str(Kept([3.0])) == "Kept([3.])"


def test_classes_that_call_with_plain_tensors():
    u = plait.ones(2, 3).as_subclass(Unwrapped)
    assert type(u + 1) is plait.Tensor and (u @ u.T).tolist() == [[3.0, 3.0], [3.0, 3.0]]
    Unwrapped.calls = ()
    F.gelu(u)
    u.mT
    u.requires_grad = False
    assert Unwrapped.calls == (F.gelu, plait.Tensor.mT.__get__, plait.Tensor.requires_grad.__set__)


def test_gradients_flow():
    x = plait.tensor([1.0, 2.0], requires_grad=True)
    for cls in (Kept, Named, Unwrapped):
        x.grad = None
        k = x.as_subclass(cls)
        (k * k).sum().backward()
        assert x.grad.tolist() == [2.0, 4.0]
    leaf = plait.Tensor._make_subclass(Kept, plait.ones(2), True)
    assert leaf.is_leaf and leaf.requires_grad
    (leaf * 3).sum().backward()
    assert leaf.grad.tolist() == [3.0, 3.0] and type(leaf.grad) is plait.Tensor
    (grad,) = plait.autograd.grad((leaf * 3).sum(), [leaf])
    assert type(grad) is Kept
    model = nn.Linear(2, 1)
    optimizer = plait.optim.SGD(model.parameters(), lr=0.1)
    model(leaf).sum().backward()
    optimizer.step()


def test_derived_classes_come_first():
    class More(Kept):
        pass

    k, m = Kept([1.0]), More([2.0])
    assert type(k + m) is More and type(m + k) is More
    with pytest.raises(TypeError, match="add: no class among its arguments implements it: Kept, Named"):
        k + Named([1.0])


def test_operators_of_other_classes():
    class Right:
        def __radd__(self, other):
            return "right"

    assert Kept([1.0]) + Right() == "right"
    with pytest.raises(TypeError, match="unsupported operand"):
        Kept([1.0]) + object()


def test_classes_that_do_not_override():
    class Not(plait.Tensor):
        __torch_function__ = disabled_torch_function

    for made in (Not([1.0]), nn.Parameter(plait.ones(1)), nn.Buffer(plait.ones(1))):
        assert type(made + 1) is plait.Tensor and not overrides.has_torch_function((made,))
    k = Kept([1.0])
    with DisableTorchFunctionSubclass():
        assert type(k + 1) is type(plait.relu(k)) is type(k.T) is plait.Tensor
        assert not overrides.has_torch_function((k,))
    assert overrides.has_torch_function((k,)) and overrides.is_tensor_like(k)

    with pytest.raises(TypeError, match="derived from Tensor"):
        plait.ones(1).as_subclass(int)


def test_modes_see_functions():
    t = plait.ones(2, 2)
    with Log() as log:
        plait.zeros(2)
        t + t
        1 - t
        F.relu(t).sum().item()
        t.shape
        t[0] = 1.0
    assert log.names == ["zeros", "add", "__rsub__", "relu", "sum", "item", "__get__", "__setitem__"]
    t + t
    assert len(log.names) == 8 and type(plait.Tensor.shape) is property and "__add__" not in vars(plait.Tensor)


def test_modes_are_nested_and_left_while_they_run():
    with Log() as outer, Log() as inner:
        Kept([1.0]) * 2
    assert [n for n in outer.names if n == "mul"] == [n for n in inner.names if n == "mul"] == ["mul"]

    class Ones(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return (plait.ones if func is plait.zeros else func)(*args, **(kwargs or {}))

    with Ones(), pytest.raises(ZeroDivisionError):
        assert plait.zeros(2).tolist() == [1.0, 1.0]
        1 / 0
    assert plait.zeros(2).tolist() == [0.0, 0.0]
    with TorchFunctionMode(), pytest.raises(NotImplementedError, match="define __torch_function__"):
        plait.ones(1)


def test_modes_belong_to_threads():
    found = []
    with Log() as log:
        thread = threading.Thread(target=lambda: found.append((plait.ones(2) + 1).tolist()))
        thread.start()
        thread.join()
    assert found == [[2.0, 2.0]] and not log.names


def test_modes_are_left_where_they_were_entered():
    mode = TorchFunctionMode()
    with pytest.raises(RuntimeError, match=r"TorchFunctionMode\.__exit__: the thread has not entered this mode"):
        mode.__exit__(None, None, None)
    with mode:
        pass
    assert plait.ones(2).sum().item() == 2


@pytest.mark.parametrize("cls", [None, 3, int, "Tensor"])
def test_only_classes_of_tensors_are_derived(cls):
    with pytest.raises(TypeError, match="as_subclass: want a class derived from Tensor, got"):
        plait.ones(2).as_subclass(cls)


def test_functions_stay_what_they_are():
    """Armed, they have their names and signatures, explain what is wrong, and are found by pickle."""
    import inspect

    Kept([1.0])
    assert (
        str(inspect.signature(plait.relu)).startswith("(input") and pickle.loads(pickle.dumps(plait.relu)) is plait.relu
    )
    with pytest.raises(TypeError, match="relu: input must be Tensor, got str"):
        plait.relu("text")
    with pytest.raises(TypeError, match="inpt"):
        plait.relu(inpt=plait.ones(1))
    listed = overrides.get_overridable_functions()
    assert plait.add in listed[plait] and F.gelu in listed[F] and plait.Tensor.view in listed[plait.Tensor]
    assert overrides.is_tensor_method_or_property(plait.Tensor.view)
    assert overrides.is_tensor_method_or_property(plait.Tensor.shape.__get__)
    assert not overrides.is_tensor_method_or_property(F.gelu)


class Slotted(Kept):
    """Has a slot."""

    __slots__ = ("unit",)


class Further(Slotted):
    __slots__ = ("__private",)

    def private(self, *value):
        if value:
            (self.__private,) = value
        return self.__private


COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda t: pickle.loads(pickle.dumps(t))}


@pytest.mark.parametrize("way", COPIES)
def test_copies_have_what_slots_hold(way):
    x = plait.ones(2).as_subclass(Further)
    x.unit, x.note = ["m"], "n"
    x.private(3)
    x.shape, x.grad  # which the engine keeps in slots of its own
    made = COPIES[way](x)
    assert type(made) is Further and made.tolist() == [1, 1]
    assert (made.unit, made.note, made.private()) == (["m"], "n", 3)
    assert (made.unit is x.unit) == (way == "copy")
    assert made.__dict__ == {"note": "n"}
    assert not hasattr(COPIES[way](plait.ones(2).as_subclass(Slotted)), "unit")


def test_files_hold_the_values():
    file = io.BytesIO()
    plait.save(Kept([1.0, 2.0]), file)
    file.seek(0)
    assert plait.load(file).tolist() == [1.0, 2.0]
