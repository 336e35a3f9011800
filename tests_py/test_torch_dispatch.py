"""Classes and modes that take over operations below functions, as PyTorch 2.15 has them."""

import copy
import io
import pickle
import subprocess
import sys
import warnings

import plait
import plait.nn.functional as F
import pytest
from plait import nn
from plait._engine.arming import disabled_torch_function
from plait.ops import aten
from plait.utils._python_dispatch import (
    TorchDispatchMode,
    is_in_torch_dispatch_mode,
    is_traceable_wrapper_subclass,
    return_and_correct_aliasing,
    transform_subclass,
)
from plait.utils._pytree import tree_map


def shown(value):
    if isinstance(value, plait.Tensor):
        return ("W" if isinstance(value, Wrapped) else "T") + "x".join(map(str, value.shape))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(shown, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value).replace("plait.", "torch.").replace("cpu:0", "cpu")


def call(func, args, kwargs):
    return f"{func.__name__}({', '.join([*map(shown, args), *(f'{k}={shown(v)}' for k, v in kwargs.items())])})"


class Wrapped(plait.Tensor):
    """Has no elements, and notes what is called of it."""

    calls = []  # noqa: RUF012

    @staticmethod
    def __new__(cls, inner):
        made = plait.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )
        made.inner = inner
        return made

    def __tensor_flatten__(self):
        return ["inner"], "context"

    @staticmethod
    def __tensor_unflatten__(parts, context, size, stride):
        assert context == "context" and size == parts["inner"].size()
        return Wrapped(parts["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        cls.calls.append(call(func, args, kwargs))
        inner_args, inner_kwargs = (tree_map(lambda v: v.inner if isinstance(v, cls) else v, a) for a in (args, kwargs))
        out = func(*inner_args, **inner_kwargs)
        out = tree_map(lambda v: cls(v) if isinstance(v, plait.Tensor) else v, out)
        return return_and_correct_aliasing(func, args, kwargs, out)


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(call(func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def inputs():
    """x [3 4], y [3 4], w [5 4], b [2 3 4], img [2 3 6 6], k [4 3 3 3], n [2 3], i [2]."""
    x = plait.arange(12.0).reshape(3, 4) / 3 - 1
    return {
        "x": x,
        "y": plait.arange(12.0).reshape(3, 4) % 5 + 1,
        "w": plait.arange(20.0).reshape(5, 4) / 9,
        "b": plait.arange(24.0).reshape(2, 3, 4) / 7,
        "img": plait.arange(216.0).reshape(2, 3, 6, 6) / 50,
        "k": plait.arange(108.0).reshape(4, 3, 3, 3) / 40,
    }


# What PyTorch 2.15 calls for each of these.
CALLS = {
    "x+1": ["add.Tensor(W3x4, 1)"],
    "x-1": ["sub.Tensor(W3x4, 1)"],
    "1-x": ["rsub.Scalar(W3x4, 1)"],
    "2/x": ["reciprocal.default(W3x4)", "mul.Tensor(W3x4, 2)"],
    "x/y": ["div.Tensor(W3x4, W3x4)"],
    "-x": ["neg.default(W3x4)"],
    "x**2": ["pow.Tensor_Scalar(W3x4, 2)"],
    "x>0": ["gt.Scalar(W3x4, 0)"],
    "x==1": ["eq.Scalar(W3x4, 1)"],
    "x//2": ["floor_divide.default(W3x4, 2)"],
    "x%2": ["remainder.Scalar(W3x4, 2)"],
    "x@y.t()": ["t.default(W3x4)", "mm.default(W3x4, W4x3)"],
    "torch.add(x,y,alpha=2)": ["add.Tensor(W3x4, W3x4, alpha=2)"],
    "x.sum()": ["sum.default(W3x4)"],
    "x.sum(0)": ["sum.dim_IntList(W3x4, [0])"],
    "x.sum(dim=-1,keepdim=True)": ["sum.dim_IntList(W3x4, [-1], True)"],
    "x.mean(0)": ["mean.dim(W3x4, [0])"],
    "x.max()": ["max.default(W3x4)"],
    "x.max(0)": ["max.dim(W3x4, 0)"],
    "x.argmax(1)": ["argmax.default(W3x4, 1)"],
    "x.std()": ["std.correction(W3x4)"],
    "x.var(0)": ["var.correction(W3x4, [0], correction=1)"],
    "x.norm()": ["linalg_vector_norm.default(W3x4)"],
    "x.any(1)": ["any.dim(W3x4, 1)"],
    "x[0]": ["select.int(W3x4, 0, 0)"],
    "x[1:]": ["slice.Tensor(W3x4, 0, 1, 9223372036854775807)"],
    "x[:,1]": ["select.int(W3x4, 1, 1)"],
    "x[0,1]": ["select.int(W3x4, 0, 0)", "select.int(W4, 0, 1)"],
    "x[:,1:3]": ["slice.Tensor(W3x4, 1, 1, 3)"],
    "x[None]": ["unsqueeze.default(W3x4, 0)"],
    "x[...,0]": ["select.int(W3x4, 1, 0)"],
    "x[i]": ["index.Tensor(W3x4, [T2])"],
    "x[:,i]": ["index.Tensor(W3x4, [None, T2])"],
    "x[::2]": ["slice.Tensor(W3x4, 0, 0, 9223372036854775807, 2)"],
    "x[:]": ["slice.Tensor(W3x4, 0, 0, 9223372036854775807)"],
    "x[...]": ["alias.default(W3x4)"],
    "x[i,i]": ["index.Tensor(W3x4, [T2, T2])"],
    "x.view(-1)": ["view.default(W3x4, [-1])"],
    "x.reshape(2,6)": ["view.default(W3x4, [2, 6])"],
    "x.t().reshape(-1)": [
        "t.default(W3x4)",
        "clone.default(W4x3, memory_format=torch.contiguous_format)",
        "_unsafe_view.default(W4x3, [12])",
    ],
    "x.T": ["permute.default(W3x4, [1, 0])"],
    "x.mT": ["transpose.int(W3x4, -2, -1)"],
    "x.permute(1,0)": ["permute.default(W3x4, [1, 0])"],
    "b.flatten(1)": ["view.default(W2x3x4, [2, 12])"],
    "x.expand(2,3,4)": ["expand.default(W3x4, [2, 3, 4])"],
    "x.flip(0)": ["flip.default(W3x4, [0])"],
    "x.contiguous()": [],
    "x.t().contiguous()": ["t.default(W3x4)", "clone.default(W4x3, memory_format=torch.contiguous_format)"],
    "x.clone()": ["clone.default(W3x4)"],
    "x.chunk(2)": ["split.Tensor(W3x4, 2)"],
    "x.split([1,2])": ["split_with_sizes.default(W3x4, [1, 2])"],
    "x.unbind()": ["unbind.int(W3x4)"],
    "x.narrow(0,1,2)": ["slice.Tensor(W3x4, 0, 1, 3)"],
    "torch.cat([x,y],dim=-1)": ["cat.default([W3x4, W3x4], -1)"],
    "torch.stack([x,y])": ["stack.default([W3x4, W3x4])"],
    "b.movedim(0,1)": ["permute.default(W2x3x4, [1, 0, 2])"],
    "x.swapaxes(0,1)": ["transpose.int(W3x4, 0, 1)"],
    "x.to(torch.float64)": ["_to_copy.default(W3x4, dtype=torch.float64)"],
    "x.to(torch.float32)": [],
    "x.to(torch.float32,copy=True)": ["_to_copy.default(W3x4, dtype=torch.float32)"],
    "F.gelu(x,approximate='tanh')": ["gelu.default(W3x4, approximate=tanh)"],
    "x.clamp(min=0)": ["clamp.default(W3x4, 0)"],
    "x.softmax(-1)": ["_softmax.default(W3x4, -1, False)"],
    "F.log_softmax(x,dim=1)": ["_log_softmax.default(W3x4, 1, False)"],
    "torch.where(x>0,x,y)": ["gt.Scalar(W3x4, 0)", "where.self(W3x4, W3x4, W3x4)"],
    "x.masked_fill(x>0,0)": ["gt.Scalar(W3x4, 0)", "masked_fill.Scalar(W3x4, W3x4, 0)"],
    "x.sort(descending=True)": ["sort.default(W3x4, -1, True)"],
    "x.sort(stable=True)": ["sort.stable(W3x4, stable=True)"],
    "x.argsort()": ["sort.default(W3x4)"],
    "x.topk(2)": ["topk.default(W3x4, 2)"],
    "x.index_select(0,i)": ["index_select.default(W3x4, 0, T2)"],
    "torch.zeros_like(x)": ["zeros_like.default(W3x4, pin_memory=False)"],
    "x.new_zeros(2)": ["new_zeros.default(W3x4, [2], pin_memory=False)"],
    "x.square()": ["pow.Tensor_Scalar(W3x4, 2)"],
    "F.leaky_relu(x,0.2)": ["leaky_relu.default(W3x4, 0.2)"],
    "F.linear(x,w)": ["t.default(W5x4)", "mm.default(W3x4, W4x5)"],
    "F.linear(x,w,w[:,0])": ["select.int(W5x4, 1, 0)", "t.default(W5x4)", "addmm.default(W5, W3x4, W4x5)"],
    "F.linear(b,w)": [
        "t.default(W5x4)",
        "view.default(W2x3x4, [6, 4])",
        "mm.default(W6x4, W4x5)",
        "_unsafe_view.default(W6x5, [2, 3, 5])",
    ],
    "F.linear(b,w,w[:,0])": [
        "select.int(W5x4, 1, 0)",
        "t.default(W5x4)",
        "view.default(W2x3x4, [6, 4])",
        "mm.default(W6x4, W4x5)",
        "_unsafe_view.default(W6x5, [2, 3, 5])",
        "add.Tensor(W2x3x5, W5)",
    ],
    "b@b.transpose(1,2)": [
        "transpose.int(W2x3x4, 1, 2)",
        "expand.default(W2x3x4, [2, 3, 4])",
        "view.default(W2x3x4, [2, 3, 4])",
        "expand.default(W2x4x3, [2, 4, 3])",
        "view.default(W2x4x3, [2, 4, 3])",
        "bmm.default(W2x3x4, W2x4x3)",
        "_unsafe_view.default(W2x3x3, [2, 3, 3])",
    ],
    "b@x[0]": [
        "select.int(W3x4, 0, 0)",
        "view.default(W2x3x4, [6, 4])",
        "mv.default(W6x4, W4)",
        "_unsafe_view.default(W6, [2, 3])",
    ],
    "x@x[0]": ["select.int(W3x4, 0, 0)", "mv.default(W3x4, W4)"],
    "x[0]@x[0]": ["select.int(W3x4, 0, 0)", "select.int(W3x4, 0, 0)", "dot.default(W4, W4)"],
    "torch.outer(x[0],x[0])": [
        "select.int(W3x4, 0, 0)",
        "select.int(W3x4, 0, 0)",
        "view.default(W4, [4, 1])",
        "mul.Tensor(W4x1, W4)",
    ],
    "F.layer_norm(x,(4,),w[0],w[1])": [
        "select.int(W5x4, 0, 0)",
        "select.int(W5x4, 0, 1)",
        "native_layer_norm.default(W3x4, [4], W4, W4, 1e-05)",
    ],
    "F.mse_loss(x,y,reduction='sum')": ["mse_loss.default(W3x4, W3x4, 2)"],
    "F.l1_loss(x,y)": ["sub.Tensor(W3x4, W3x4)", "abs.default(W3x4)", "mean.default(W3x4)"],
    "F.conv2d(img,k,stride=2,padding=1)": [
        "convolution.default(W2x3x6x6, W4x3x3x3, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1)"
    ],
    "F.max_pool2d(img,2)": ["max_pool2d_with_indices.default(W2x3x6x6, [2, 2])"],
    "F.avg_pool2d(img,2)": ["avg_pool2d.default(W2x3x6x6, [2, 2])"],
    "F.adaptive_avg_pool2d(img,1)": ["mean.dim(W2x3x6x6, [-1, -2], True)"],
    "F.group_norm(img,3)": ["native_group_norm.default(W2x3x6x6, None, None, 2, 3, 36, 3, 1e-05)"],
    "F.pad(x,(1,1))": ["constant_pad_nd.default(W3x4, [1, 1], 0)"],
    "F.dropout(x,0.5,False)": [],
    "F.binary_cross_entropy_with_logits(x,y)": ["binary_cross_entropy_with_logits.default(W3x4, W3x4)"],
    "x.add_(1)": ["add_.Tensor(W3x4, 1)"],
    "x.clamp_(min=0)": ["clamp_.default(W3x4, 0)"],
    "x.sub_(y,alpha=2)": ["sub_.Tensor(W3x4, W3x4, alpha=2)"],
    "x.sum().item()": ["sum.default(W3x4)", "_local_scalar_dense.default(W)"],
    "float(x.sum())": ["sum.default(W3x4)", "_local_scalar_dense.default(W)"],
    "bool(x.sum()>0)": ["sum.default(W3x4)", "gt.Scalar(W, 0)", "_local_scalar_dense.default(W)"],
    "int(x[0,0])": ["select.int(W3x4, 0, 0)", "select.int(W4, 0, 0)", "_local_scalar_dense.default(W)"],
    "list(x)": ["unbind.int(W3x4)"],
    "x.numel()": [],
}
FIXED = {"n": plait.arange(6).reshape(2, 3), "i": plait.tensor([0, 2]), "F": F, "torch": plait}


@pytest.mark.parametrize("code", CALLS)
def test_functions_call_the_operations_of_pytorch(code):
    want = eval(code, {**inputs(), **FIXED})
    names = {k: Wrapped(v) for k, v in inputs().items()}
    Wrapped.calls = []
    got = eval(code, {**names, **FIXED})
    assert Wrapped.calls == CALLS[code]
    unwrapped = tree_map(lambda v: v.inner if isinstance(v, Wrapped) else v, got)
    for a, b in zip(*(v if isinstance(v, list | tuple) else [v] for v in (unwrapped, want)), strict=True):
        assert plait.allclose(a, b) if isinstance(b, plait.Tensor) else a == b


@pytest.mark.parametrize("code", CALLS)
def test_modes_see_them(code):
    want = eval(code, {**inputs(), **FIXED})
    names = {**inputs(), **FIXED}
    with Log() as log:
        got = eval(code, names)
    assert log.calls == [c.replace("W", "T") for c in CALLS[code]]
    for a, b in zip(*(v if isinstance(v, list | tuple) else [v] for v in (got, want)), strict=True):
        assert plait.equal(a, b) or plait.allclose(a, b) if isinstance(b, plait.Tensor) else a == b


def test_assignments():
    x, y = (Wrapped(v) for v in list(inputs().values())[:2])
    Wrapped.calls = []
    x[0] = 1
    x[1] = y[0]
    x[x.inner > 2] = 0.0
    x[FIXED["i"]] = y[:2]
    same = x
    x += 1
    assert x is same and x.add_(1) is x
    assert Wrapped.calls == [
        "select.int(W3x4, 0, 0)", "fill_.Scalar(W4, 1)", "select.int(W3x4, 0, 0)",
        "select.int(W3x4, 0, 1)", "copy_.default(W4, W4)", "masked_fill_.Scalar(W3x4, T3x4, 0)",
        "slice.Tensor(W3x4, 0, 0, 2)", "index_put_.default(W3x4, [T2], W2x4)", "add_.Tensor(W3x4, 1)",
        "add_.Tensor(W3x4, 1)",
    ]  # fmt: skip
    assert x.inner[1].tolist() == [3.0, 4.0, 2.0, 2.0] and x.inner[0].tolist() == [3.0, 4.0, 5.0, 6.0]


def test_operations_are_keys():
    add = aten.add.Tensor
    assert add is aten.add.Tensor and add.overloadpacket is aten.add and {add: 1}[aten.add.Tensor] == 1
    assert str(add) == "aten.add.Tensor" and repr(add) == "<OpOverload(op='aten.add', overload='Tensor')>"
    assert str(aten.add) == "aten.add" and repr(aten.add) == "<OpOverloadPacket(op='aten.add')>"
    assert add.name() == "aten::add.Tensor" and aten.mm.default.name() == "aten::mm" and add.namespace == "aten"
    schema = add._schema
    assert [a.name for a in schema.arguments] == ["self", "other", "alpha"] and schema.arguments[2].default_value == 1
    assert str(schema) == "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    assert aten.add_.Tensor._schema.is_mutable and not schema.is_mutable and aten.t.default.is_view
    assert add(plait.ones(2), 1, alpha=2).tolist() == [3.0, 3.0] and aten.add(plait.ones(2), 1).tolist() == [2.0, 2.0]
    assert aten.sum(plait.ones(2, 3), [0]).tolist() == [2.0] * 3 and aten.nothing.default in {aten.nothing.default}
    with pytest.raises(NotImplementedError, match=r"aten.nothing.default: there is no such operation"):
        aten.nothing.default(1)
    with pytest.raises(NotImplementedError, match="arguments of this operation are not listed"):
        aten.nothing.default._schema


def test_wrappers_say_what_they_are_given():
    w = Wrapped(plait.ones(2, 3, dtype=plait.float64).t())
    assert w.shape == (3, 2) and w.stride() == (1, 3) and w.dtype is plait.float64 and w.device == plait.device("cpu")
    assert repr(w) == "Wrapped(..., size=(3, 2), dtype=plait.float64)"
    assert not w.is_meta and w.is_cpu and not w.requires_grad and len(w) == 3 and w.numel() == 6
    at = plait.Tensor._make_wrapper_subclass(Wrapped, (2, 2), strides=(4, 1), storage_offset=3, requires_grad=True)
    assert at.storage_offset() == 3 and at.stride() == (4, 1) and at.requires_grad and at.dtype is plait.float32
    with pytest.raises(TypeError, match="has no __torch_dispatch__"):
        plait.Tensor._make_wrapper_subclass(plait.Tensor, (2,))
    with pytest.raises(NotImplementedError, match="define a property of the class"):
        plait.Tensor._make_wrapper_subclass(Wrapped, (2,), dispatch_device=True)


def test_wrappers_are_copied_pickled_and_saved():
    w = Wrapped(plait.arange(3.0))
    w.note = "x"
    for made in (copy.deepcopy(w), copy.copy(w), pickle.loads(pickle.dumps(w))):
        assert type(made) is Wrapped and made.inner.tolist() == [0.0, 1.0, 2.0] and made.device == w.device
    file = io.BytesIO()
    plait.save({"w": w}, file)
    file.seek(0)
    read = plait.load(file, weights_only=False)["w"]
    assert type(read) is Wrapped and read.inner.tolist() == [0.0, 1.0, 2.0] and read.note == "x"


def test_wrappers_are_parameters():
    model = nn.Linear(3, 2, bias=False).requires_grad_(False)
    p = nn.Parameter(Wrapped(plait.arange(6.0).reshape(2, 3)), requires_grad=False)
    assert isinstance(p, nn.Parameter) and type(p) is Wrapped and not isinstance(Wrapped(plait.ones(1)), nn.Parameter)
    model.weight = p
    assert dict(model.named_parameters()) == {"weight": p} and model(plait.ones(1, 3)).inner.tolist() == [[3.0, 12.0]]
    assert model.double().weight is p and p.dtype is p.inner.dtype is plait.float64
    assert type(model.state_dict()["weight"]) is Wrapped

    class Lost(Scaled):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return plait.ones(1)

    with pytest.raises(RuntimeError, match="must return one of its class"):
        nn.Parameter(Lost(plait.ones(1), plait.ones(1)))


def test_wrappers_are_taken_apart():
    w = Wrapped(plait.arange(3.0))
    assert is_traceable_wrapper_subclass(w) and not is_traceable_wrapper_subclass(plait.ones(1))
    made = transform_subclass(w, lambda name, t: t + 1)
    assert type(made) is Wrapped and made.inner.tolist() == [1.0, 2.0, 3.0]


def test_functions_of_classes_come_first():
    seen = []

    class Both(Wrapped):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    class Plain(Wrapped):
        __torch_function__ = disabled_torch_function

    Wrapped.calls = []
    assert type(F.linear(Both(plait.ones(1, 2)), plait.ones(3, 2))) is Both and seen == ["linear"]
    assert type(1 - Plain(plait.ones(2))) is Plain
    assert Wrapped.calls == ["mm.default(W1x2, T2x3)", "rsub.Scalar(W2, 1)"]


def test_modes_are_nested_and_left_while_they_run():
    assert not is_in_torch_dispatch_mode()
    with Log() as outer, Log() as inner:
        assert is_in_torch_dispatch_mode()
        Wrapped.calls = []
        Wrapped(plait.ones(2)) + 1
    assert inner.calls == outer.calls and inner.calls[-1] == "add.Tensor(W2, 1)"
    assert Wrapped.calls == ["add.Tensor(W2, 1)"] and not is_in_torch_dispatch_mode()
    with Log() as log:
        x = plait.ones(3, requires_grad=True)
        (x * x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3 and log.calls[-2:] == ["mul.Tensor(T3, T3)", "sum.default(T3)"]


class Scaled(plait.Tensor):
    """A weight that is kept as whole numbers, of which products are computed."""

    __torch_function__ = disabled_torch_function

    @staticmethod
    def __new__(cls, whole, scale):
        made = plait.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=scale.dtype)
        made.whole, made.scale = whole, scale
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (aten.t.default, aten.detach.default):
            whole = args[0].whole
            return cls(whole.t() if func is aten.t.default else whole, args[0].scale)
        if func in (aten.mm.default, aten.addmm.default):
            *bias, a, b = args
            out = a @ (b.whole * b.scale)
            return out + bias[0] if bias else out
        if func is aten.relu.default:
            return plait.relu(args[0].whole * args[0].scale).detach()
        return NotImplemented


def test_derivatives_are_those_of_what_the_class_calls():
    weight = Scaled(plait.tensor([[1, 2], [3, -4]]), plait.tensor(0.5))
    x = plait.tensor([[1.0, 2.0]], requires_grad=True)
    out = F.linear(x, weight, plait.zeros(2))
    out.sum().backward()
    assert out.tolist() == [[2.5, -2.5]] and x.grad.tolist() == [[2.0, -1.0]]
    with pytest.raises(TypeError, match=r"aten.exp.default: no class or mode implements it: Scaled"):
        weight.exp()
    held = plait.Tensor._make_wrapper_subclass(Wrapped, (2,), requires_grad=True)
    with pytest.raises(NotImplementedError, match="no derivatives with respect to a Wrapped"):
        held + 1
    wanted = Wrapped(plait.ones(2))
    with pytest.raises(NotImplementedError, match="returned has no derivative"):
        wanted * plait.ones(2, requires_grad=True)
    with plait.no_grad():
        assert (wanted * plait.ones(2, requires_grad=True)).inner.tolist() == [1.0, 1.0]


def test_programs_without_them_load_nothing():
    code = (
        "import sys, plait; plait.ones(2) + 1; assert not [m for m in sys.modules if m.startswith('plait._dispatch')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_products_of_sparse_matrices_that_reduce():
    class Rows(plait.Tensor):
        __torch_function__ = disabled_torch_function

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            assert func is aten._sparse_mm_reduce_impl.default and args[2] == "mean"
            return func(args[0].rows, *args[1:])

    rows = plait.Tensor._make_wrapper_subclass(Rows, (2, 2))
    rows.rows = plait.tensor([[1.0, 2.0], [0.0, 4.0]]).to_sparse_csr()
    assert plait.sparse.mm(rows, plait.ones(2, 1), "mean").tolist() == [[1.5], [4.0]]


class Plain(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_older_arguments_of_losses_and_changes_in_place_are_not_lost():
    x, y = plait.arange(6.0).reshape(2, 3), plait.tensor([0, 2])
    with Plain(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert F.cross_entropy(x, y, size_average=False).item() == pytest.approx(2 * F.cross_entropy(x, y).item())
        assert F.l1_loss(x, x + 1, reduce=False).shape == (2, 3)
        assert F.mse_loss(x, x + 1, size_average=False).item() == 6
        t = plait.ones(4)
        assert F.dropout(t, 1.0, True, inplace=True) is t
        assert not t.any()
        with pytest.raises(NotImplementedError, match="max_norm"):
            F.embedding(y, x.clone(), max_norm=1.0)


def test_an_operation_is_no_module_of_the_same_name():
    with pytest.raises(NotImplementedError, match="there is no such operation"):
        aten.random.default(plait.ones(2))
