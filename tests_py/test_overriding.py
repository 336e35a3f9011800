"""Classes that are no tensors and override functions by `__torch_function__`."""

import operator

import plait
import plait.nn.functional as F
import pytest


class Measured:
    """A value in a unit."""

    def __init__(self, value):
        self.value = value

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function not in (plait.add, plait.cat, F.softmax, plait.mean, plait.exp, plait.linalg.norm):
            return NotImplemented
        return function.__name__, types, args, kwargs


class Precise(Measured):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return "precise", types


def test_classes_override_functions():
    a, t = Measured(1), plait.ones(2)
    assert F.softmax(a, dim=1) == ("softmax", (Measured,), (a,), {"dim": 1})  # the first call of all, from inside
    assert plait.add(a, 1) == ("add", (Measured,), (a, 1), {})
    assert plait.add(t, a, alpha=2)[3] == {"alpha": 2}
    assert plait.cat([t, a], dim=1) == ("cat", (Measured,), ([t, a],), {"dim": 1})
    assert plait.mean(a)[0] == "mean" and plait.exp(input=a)[3] == {"input": a} and plait.linalg.norm(a)[0] == "norm"
    assert plait.add(a, Precise(1)) == ("precise", (Precise, Measured))  # derived classes first
    with pytest.raises(TypeError, match="relu: no class among its arguments implements it: Measured"):
        plait.relu(a)
    with pytest.raises(TypeError, match="input must be Tensor, got str"):
        plait.relu("text")


OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift", "eq": "eq", "ne": "ne", "lt": "lt", "gt": "gt",
    "le": "le", "ge": "ge", "iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_",
    "ifloordiv": "floor_divide_", "imod": "remainder_", "ipow": "pow_", "iand": "bitwise_and_", "ior": "bitwise_or_",
    "ixor": "bitwise_xor_", "ilshift": "bitwise_left_shift_", "irshift": "bitwise_right_shift_",
}  # fmt: skip
REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor")


@pytest.mark.parametrize("name", OPERATORS)
def test_classes_override_operators_of_tensors(name):
    class Other:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function, types, args, kwargs

        def __radd__(self, other):
            raise AssertionError("tensors ask for __torch_function__ first")

    a, t = Other(), plait.ones(2)
    method = getattr(plait.Tensor, OPERATORS[name])
    assert getattr(operator, name)(t, a) == (method, (Other,), (t, a), {})
    if name in REFLECTED:
        function, _, args, _ = getattr(operator, name)(a, t)
        assert function is method and {id(x) for x in args} == {id(a), id(t)}
        assert name in ("add", "mul") or args[0] is a


def test_methods_of_tensors_are_overridden_where_they_take_a_tensor():
    class Other:
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function, args

    a, t = Other(), plait.ones(2)
    assert t.copy_(a) == (plait.Tensor.copy_, (t, a))
    assert t.copy_(a, True) == (plait.Tensor.copy_, (t, a, True))
    assert t.to(a) == (plait.Tensor.to, (t, a))
    assert t.type_as(a) == (plait.Tensor.type_as, (t, a))


def test_functions_of_a_program_can_be_overridden():
    from plait import overrides

    def mine(a, b=1):
        if overrides.has_torch_function((a,)):
            return overrides.handle_torch_function(mine, (a,), a, b=b)
        return a + b

    assert mine(2) == 3 and mine(Precise(1))[0] == "precise"
    assert overrides.has_torch_function_unary(Measured(1)) and not overrides.has_torch_function_unary(plait.ones(1))
    assert overrides.has_torch_function_variadic(1, Measured(1)) and not overrides.has_torch_function_variadic(1)
    assert overrides.is_tensor_like(Measured(1)) and overrides.is_tensor_like(plait.ones(1))
    assert not overrides.is_tensor_like(3) and overrides.resolve_name(F.relu) == "plait.nn.functional.relu"
    wrapped = overrides.wrap_torch_function(lambda a: (a,))(lambda a: a * 2)
    assert wrapped(3) == 6 and wrapped(Precise(1))[0] == "precise"
    with pytest.raises(TypeError, match="no class among"):
        mine(Measured(1))
