"""Operations on elements."""

from __future__ import annotations

import math
from typing import Any

from plait import _dtype
from plait._dtype import finfo
from plait.onnx._build import FLOATS, Value
from plait.onnx._table import RULES, Node, each, expanded, no, operands, reshaped, row, tests


def _is(name: str) -> Any:
    return lambda x: x.make(name)


def _gelu(x: Value) -> Value:
    return x * (1 + (x * (1 / math.sqrt(2))).make("Erf")) * 0.5


def _gelu_tanh(x: Value) -> Value:
    return x * (1 + ((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)).make("Tanh")) * 0.5


def _fit(number: float, x: Value) -> Any:
    return number if x.dtype in FLOATS else int(number)


def softplus(x: Value) -> Value:
    """Returns log(1 + exp(x)), which does not overflow."""
    return x.make("Max", 0) + log1p((-x.make("Abs")).make("Exp"))


def log1p(x: Value) -> Value:
    """Returns log(1 + x), also of a small x: Kahan's way."""
    y = x + 1
    near = y.equals(1)
    return near.where(x, (y.equals(math.inf)).where(y, y.make("Log") * (x / near.where(1.0, y - 1))))


def expm1(x: Value) -> Value:
    """Returns exp(x) - 1, also of a small x: a Taylor polynomial there."""
    series = 1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6))))
    return (x.make("Abs") < 0.25).where(_series(x) if x.dtype == "float64" else x * series, x.make("Exp") - 1)


def _series(x: Value) -> Value:
    out: Any = 1.0
    for i in range(14, 1, -1):
        out = 1 + x / i * out
    return x * out


def isnan(x: Value) -> Value:
    return x.make("IsNaN", dtype="bool")


def _extreme(x: Value, y: Value, name: str) -> Value:
    if x.dtype == "bool":
        return x & y if name == "Min" else x | y
    if x.dtype not in FLOATS:
        return x.make(name, y)
    return isnan(x).where(x, isnan(y).where(y, x.make(name, y)))


def _logit(x: Value) -> Value:
    return (x / (1 - x)).make("Log")


def _logaddexp(x: Value, y: Value) -> Value:
    high, low = x.make("Max", y), x.make("Min", y)
    return x.equals(y).where(x + math.log(2), high + log1p((low - high).make("Exp")))


def _negative(x: Value) -> Value:
    """Returns whether the sign is negative, also of zero and infinity."""
    return (x < 0) | (x.equals(0) & (x.make("Reciprocal") < 0)) if x.dtype in FLOATS else x < 0


each(
    **{
        name: _is(kind)
        for name, kind in {
            "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
            "atanh": "Atanh", "cos": "Cos", "cosh": "Cosh", "sin": "Sin", "sinh": "Sinh", "tan": "Tan", "tanh": "Tanh",
            "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal", "neg": "Neg", "sign": "Sign",
            "sgn": "Sign", "erf": "Erf", "relu": "Relu", "sigmoid": "Sigmoid", "softsign": "Softsign", "mish": "Mish",
            "hardswish": "HardSwish",
        }.items()
    }
)  # fmt: skip


def _whole(kind_: str) -> Any:
    return lambda x: x.make(kind_) if x.dtype in FLOATS else x


each(floor=_whole("Floor"), ceil=_whole("Ceil"))
each(
    trunc=lambda x: (x < 0).where(x.make("Ceil"), x.make("Floor")) if x.dtype in FLOATS else x,
    frac=lambda x: x - (x < 0).where(x.make("Ceil"), x.make("Floor")),
    square=lambda x: x * x,
    cube=lambda x: x * x * x,
    rsqrt=lambda x: x.make("Sqrt").make("Reciprocal"),
    exp2=lambda x: (x * math.log(2)).make("Exp"),
    log2=lambda x: x.make("Log") / math.log(2),
    log10=lambda x: x.make("Log") / math.log(10),
    deg2rad=lambda x: x * (math.pi / 180),
    rad2deg=lambda x: x * (180 / math.pi),
    erfc=lambda x: 1 - x.make("Erf"),
    silu=lambda x: x * x.make("Sigmoid"),
    logsigmoid=lambda x: -softplus(-x),
    relu6=lambda x: x.make("Min", 6).make("Max", 0),
    hardsigmoid=lambda x: x.make("HardSigmoid", alpha=1 / 6, beta=0.5),
    tanhshrink=lambda x: x - x.make("Tanh"),
    gelu=lambda x, approximate="none": _gelu_tanh(x) if approximate == "tanh" else _gelu(x),
    gelu_tanh=_gelu_tanh,
    leaky_relu=lambda x, slope: (x > 0).where(x, x * slope),
    elu=lambda x, alpha: (x > 0).where(x, expm1(x) * alpha),
    celu=lambda x, alpha: (x > 0).where(x, expm1(x / alpha) * alpha),
    selu=lambda x: (x > 0).where(x, expm1(x) * 1.6732632423543772) * 1.0507009873554805,
    hardtanh=lambda x, low, high: x.make("Max", low).make("Min", high),
    hardshrink=lambda x, lambd: (x.make("Abs") > lambd).where(x, 0.0),
    softshrink=lambda x, lambd: (x > lambd).where(x - lambd, (x < -lambd).where(x + lambd, 0.0)),
    threshold=lambda x, threshold, value: (x > threshold).where(x, value),
    softplus=lambda x, beta, threshold: (x * beta > threshold).where(x, softplus(x * beta) / beta),
    expm1=expm1,
    log1p=log1p,
    sinc=lambda x: x.equals(0).where(1.0, (x * math.pi).make("Sin") / (x * math.pi)),
    logit=lambda x, eps=-1.0: _logit(x if eps < 0 else x.make("Max", eps).make("Min", 1 - eps)),
    logit_eps=lambda x, eps: _logit(x.make("Max", eps).make("Min", 1 - eps)),
    entr=lambda x: x.equals(0).where(0.0, (x < 0).where(-math.inf, -x * x.make("Log"))),
    add=lambda x, y: x.to("uint8").make("Max", y.to("uint8")).to("bool") if x.dtype == "bool" else x + y,
    sub=lambda x, y: x - y,
    mul=lambda x, y: x & y if x.dtype == "bool" else x * y,
    div=lambda x, y: x / y,
    true_divide=lambda x, y: x / y,
    add_scaled=lambda x, y, alpha: x + y * _fit(alpha, x),
    addcmul=lambda x, y, z, value: x + y * z * _fit(value, x),
    addcdiv=lambda x, y, z, value: x + y / z * value,
    lerp=lambda x, y, w: x + (y - x) * w,
    maximum=lambda x, y: _extreme(x, y, "Max"),
    minimum=lambda x, y: _extreme(x, y, "Min"),
    fmax=lambda x, y: isnan(x).where(y, isnan(y).where(x, x.make("Max", y))) if x.dtype in FLOATS else x.make("Max", y),
    fmin=lambda x, y: isnan(x).where(y, isnan(y).where(x, x.make("Min", y))) if x.dtype in FLOATS else x.make("Min", y),
    clamp_max=lambda x, y: x.make("Min", y),
    clamp_min=lambda x, y: x.make("Max", y),
    clamp_max_number=lambda x, y: x.make("Min", y),
    clamp_min_number=lambda x, y: x.make("Max", y),
    clamp_numbers=lambda x, low, high: x.make("Max", low).make("Min", high),
    hypot=lambda x, y: (x * x + y * y).make("Sqrt"),
    xlogy=lambda x, y: (x.equals(0) & ~isnan(y)).where(0.0, x * y.make("Log")),
    special_xlog1py=lambda x, y: (x.equals(0) & ~isnan(y)).where(0.0, x * log1p(y)),
    heaviside=lambda x, y: x.equals(0).where(y, (x > 0).to(x.dtype)),
    copysign=lambda x, y: _negative(y).where(-x.make("Abs"), x.make("Abs")),
    logaddexp=_logaddexp,
    ldexp=lambda x, y: x * x.b.constant(2, x.dtype) ** y,
    special_ndtr=lambda x: (1 + (x * math.sqrt(0.5)).make("Erf")) * 0.5,
)


tests(
    eq=lambda x, y: x.equals(y),
    ne=lambda x, y: ~x.equals(y),
    lt=lambda x, y: _order(x) < _order(y),
    le=lambda x, y: _order(x) <= _order(y),
    gt=lambda x, y: _order(x) > _order(y),
    ge=lambda x, y: _order(x) >= _order(y),
    isnan=lambda x: isnan(_floating(x)),
    isinf=lambda x: (
        _floating(x).make("IsInf", dtype="bool")
        if x.dtype != "float16"
        else x.to("float32").make("IsInf", dtype="bool")
    ),
    isfinite=lambda x: ~((_floating(x) - _floating(x)).make("IsNaN", dtype="bool")),
    signbit=_negative,
    isclose=lambda x, y, rtol, atol, nan=False: close(x, y, rtol, atol, nan),
    isclose_nan=lambda x, y, rtol, atol: close(x, y, rtol, atol, True),
)


def _order(x: Value) -> Value:
    return x.to("int32") if x.dtype == "bool" else x


def _floating(x: Value) -> Value:
    return x if x.dtype in FLOATS else x.to("float32")


def close(x: Value, y: Value, rtol: float, atol: float, nan: bool = False) -> Value:
    if x.dtype not in FLOATS:
        x, y = x.to("float64"), y.to("float64")
    finite = ~(x - x).make("IsNaN", dtype="bool") & ~(y - y).make("IsNaN", dtype="bool")
    near = x.equals(y) | (finite & ((x - y).make("Abs") <= y.make("Abs") * rtol + atol))
    return near | (isnan(x) & isnan(y)) if nan else near


def _logic(name: str) -> Any:
    return lambda n: n.b.node(name, operands(n, "bool"), ["bool"])[0]


RULES["logical_not"] = lambda n: ~operands(n, "bool")[0]
RULES["logical_and"], RULES["logical_or"], RULES["logical_xor"] = _logic("And"), _logic("Or"), _logic("Xor")


def _bits(whole: str, logic: str) -> Any:
    return lambda x, *y: x.make(logic if x.dtype == "bool" else whole, *y)


each(
    bitwise_and=_bits("BitwiseAnd", "And"),
    bitwise_or=_bits("BitwiseOr", "Or"),
    bitwise_xor=_bits("BitwiseXor", "Xor"),
    bitwise_not=_bits("BitwiseNot", "Not"),
)


@row("pow float_power")
def _pow(n: Node, **args: Any) -> Value:
    x, y = operands(n, n.dtype)
    return x**y


@row("remainder")
def _remainder(n: Node, **args: Any) -> Value:
    x, y = operands(n, n.dtype)
    if x.dtype not in FLOATS:
        return x.make("Mod", y)
    r = x.make("Mod", y, fmod=1)
    return (~r.equals(0) & _xor(r < 0, y < 0)).where(r + y, r)


@row("fmod")
def _fmod(n: Node, **args: Any) -> Value:
    x, y = operands(n, n.dtype)
    return x.make("Mod", y, fmod=1)


@row("floor_divide")
def _floor_divide(n: Node, **args: Any) -> Value:
    x, y = operands(n, n.dtype)
    if x.dtype in FLOATS:
        r = x.make("Mod", y, fmod=1)
        q = (x - r) / y
        q = (~r.equals(0) & _xor(r < 0, y < 0)).where(q - 1, q)
        whole = q.make("Floor")
        whole = (q - whole > 0.5).where(whole + 1, whole)
        return y.equals(0).where(x / y, whole)
    r = x.make("Mod", y)  # with the sign of y
    return (x - r) / y


@row("trunc_divide trunc_divide_float")
def _trunc_divide(n: Node, **args: Any) -> Value:
    x, y = operands(n, n.dtype)
    q = x / y
    return q if x.dtype not in FLOATS else (q < 0).where(q.make("Ceil"), q.make("Floor"))


def _xor(x: Value, y: Value) -> Value:
    return x.make("Xor", y)


@row("round")
def _round(n: Node, input: Value, decimals: int = 0, **args: Any) -> Value:
    if input.dtype not in FLOATS:
        return input
    if not decimals:
        return input.make("Round")
    scale = 10.0 ** abs(decimals)
    return (input * scale).make("Round") / scale if decimals > 0 else (input / scale).make("Round") * scale


@row("atan2")
def _atan2(n: Node, **args: Any) -> Value:
    y, x = operands(n, n.dtype)
    base = (y / x).make("Atan")
    turned = (x < 0).where(base + _negative(y).where(-math.pi, x.equals(x).where(math.pi, base)), base)
    axis = _negative(y).where(-math.pi / 2, y.equals(y).where(math.pi / 2, y))
    flat = _negative(x).where(_negative(y).where(-math.pi, y.equals(y).where(math.pi, y)), y)
    return y.equals(0).where(flat, x.equals(0).where(axis, turned))


@row("where")
def _where(n: Node, condition: Value, input: Any, other: Any) -> Value:
    return condition.to("bool").where(n.b.like(input, n.dtype), n.b.like(other, n.dtype))


@row("masked_fill")
def _masked_fill(n: Node, input: Value, mask: Value, value: Any) -> Value:
    return mask.to("bool").where(n.b.like(value, n.dtype), input.to(n.dtype))


@row("clamp")
def _clamp(n: Node, input: Value, min: Any = None, max: Any = None, **args: Any) -> Value:
    x = input.to(n.dtype)
    x = x if min is None else _extreme(x, n.b.like(min, n.dtype), "Max")
    return x if max is None else _extreme(x, n.b.like(max, n.dtype), "Min")


@row("nan_to_num")
def _nan_to_num(n: Node, input: Value, nan: float, posinf: Any, neginf: Any) -> Value:
    if input.dtype not in FLOATS:
        return input
    info = finfo(getattr(_dtype, input.dtype))
    high = info.max if posinf is None else posinf.value
    low = info.min if neginf is None else neginf.value
    x = isnan(input).where(nan, input)
    return x.equals(math.inf).where(high, x.equals(-math.inf).where(low, x))


@row("to clone contiguous copy fill zero")
def _to(n: Node, **args: Any) -> Value:
    given = list(n.args.values())
    if n.op == "zero":
        return expanded(n.b.constant(0, n.dtype), n.shape)
    source = given[1] if n.op in ("copy", "fill") else given[0]
    x = n.b.like(source, n.dtype)
    x = expanded(x.known(source.shape if isinstance(source, Value) else []), n.shape)
    return x.make("Identity") if x is source else x


@row("dropout alpha_dropout dropout1d dropout2d dropout3d feature_alpha_dropout")
def _dropout(n: Node, input: Value, p: float, training: bool) -> Value:
    if training and p:
        raise no("in training")
    return input.make("Identity")


@row("prelu")
def _prelu(n: Node, input: Value, weight: Value) -> Value:
    w = weight.to(n.dtype).known(weight.shape)
    if w.dims != [1] and w.rank:
        w = reshaped(w, [w.dims[0], *[1] * (input.rank - 2)])
    elif w.rank and not input.rank:
        w = reshaped(w, [])
    return (input > 0).where(input, input * w)


@row("glu")
def _glu(n: Node, input: Value, dim: int) -> Value:
    a, b = n.b.node("Split", [input], [n.dtype] * 2, axis=dim, num_outputs=2)
    return a * b.make("Sigmoid")
