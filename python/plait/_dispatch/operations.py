"""Operations by PyTorch's inner names, `aten.add.Tensor`: each asks modes and classes for a call, or computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from plait import _core
from plait._dispatch.schema import FunctionSchema, overloads
from plait._engine.overriding import DISPATCHING, in_order, state, with_parts
from plait._errors import MissingFeatureError
from plait._modes import is_grad_enabled

_Tensor = _core.TensorOwner
_packets: dict[str, OpOverloadPacket] = {}

# Whose overloads for tensors take numbers; those for numbers are not called.
_NUMBERS_TOO = ("add", "div", "floor_divide", "mul", "sub")

# Whose results have no derivative, whatever the arguments.
_NO_DERIVATIVE = ("detach", "new_", "zeros_like", "ones_like", "empty_like", "full_like", "rand", "lift_fresh")


class OpOverloadPacket:
    """An inner function, `aten.add`. Its attributes are its overloads; a call chooses the one that fits."""

    def __init__(self, name: str, function: Callable[..., Any] | None = None) -> None:
        self.__name__ = self._name = name
        self._qualified_op_name = f"aten::{name}"
        self._function = function  # that computes, where it is found under no name

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("__"):
            raise AttributeError(f"plait.ops.{self} has no attribute {name!r}")
        found = self.__dict__[name] = OpOverload(self, name)
        return found

    def overloads(self) -> list[str]:
        """Returns the names of the overloads."""
        return list(overloads(self._name)) or ["default"]

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self._name}')>"

    def __str__(self) -> str:
        return f"aten.{self._name}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Computes, or asks classes and modes."""
        if "out" in kwargs:
            return self.out(*args, **kwargs)
        return self.fitting(args, kwargs)(*args, **kwargs)

    def fitting(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload:
        """Returns the overload that arguments fit; "default" if none does."""
        listed = overloads(self._name)
        if self._name.rstrip("_") in _NUMBERS_TOO:
            listed = {k: s for k, s in listed.items() if not k.startswith("Scalar")}
        for exact in (True, False):
            for name, schema in listed.items():
                if schema.bind(args, kwargs, exact=exact) is not None:
                    return getattr(self, name)  # type: ignore[no-any-return]
        return self.default


class OpOverload:
    """An overload of an inner function, `aten.add.Tensor`: a key of tables, and a function."""

    namespace = "aten"
    tags: tuple[Any, ...] = ()

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self.overloadpacket, self._overloadname, self._opname = packet, overload, packet._name
        self.__name__ = f"{packet._name}.{overload}"

    @property
    def _schema(self) -> FunctionSchema:
        schema = overloads(self._opname).get(self._overloadname)
        if schema is None:
            raise MissingFeatureError(f"plait.ops.{self}: the arguments of this operation are not listed")
        return schema

    @property
    def is_view(self) -> bool:
        """Whether a result shares an argument's memory, which is not written to."""
        infos = [a.alias_info for a in self._schema.arguments if a.alias_info is not None]
        return bool(infos) and not any(i.is_write for i in infos)

    def name(self) -> str:
        """Returns the name, "aten::add.Tensor"."""
        return f"aten::{self._opname}" + (f".{self._overloadname}" if self._overloadname != "default" else "")

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self._opname}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Computes, or asks the innermost mode of the thread, and then the classes of the arguments."""
        relevant = [v for v in with_parts((*args, *kwargs.values())) if type(v) in DISPATCHING]
        if not relevant and not state.dispatch_modes:
            return self._compute(args, kwargs)
        if (schema := overloads(self._opname).get(self._overloadname)) is not None:
            args, kwargs = schema.bind(args, kwargs, exact=False) or (args, kwargs)
        out = self._asked(relevant, args, kwargs)
        if schema is not None and schema.is_mutable and schema.returns and args and schema.returns[0].alias_info:
            return args[0]  # as functions that change an argument return it
        return out

    def _asked(self, relevant: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        derived = is_grad_enabled() and not self._opname.startswith(_NO_DERIVATIVE)
        if derived and any(v.requires_grad for v in relevant):
            raise NotImplementedError(
                f"{self}: no derivatives with respect to a {type(relevant[0]).__name__}, whose class has a "
                "__torch_dispatch__; call it in no_grad or inference_mode, give it requires_grad=False, or have an "
                "autograd.Function compute"
            )
        asked = in_order(relevant)
        types = tuple(type(v) for v in asked)
        for taker in (*state.dispatch_modes[-1:], *asked):
            if isinstance(taker, _Tensor):
                out = type(taker).__torch_dispatch__(self, types, args, kwargs)  # type: ignore[attr-defined]
            else:
                out = _in_mode(taker, self, types, args, kwargs)
            if out is not NotImplemented:
                if derived and relevant:
                    self._check_derived(args, kwargs, out)
                return out
        names = ", ".join(t.__qualname__ for t in types)
        raise TypeError(f"{self}: no class or mode implements it: {names}")

    def _check_derived(self, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Raises where PyTorch would derive and the class did not: it computed by what has no derivative here."""
        given: list[Any] = [v for v in with_parts((*args, *kwargs.values())) if isinstance(v, _Tensor)]
        results: list[Any] = [v for v in with_parts((out,)) if isinstance(v, _Tensor)]
        if any(v.requires_grad for v in given) and any(
            v.dtype.is_floating_point and not v.requires_grad for v in results
        ):
            raise NotImplementedError(
                f"{self}: what __torch_dispatch__ returned has no derivative, and an argument requires a gradient: "
                "derivatives are those of the operations that it calls; call it in no_grad, or have an "
                "autograd.Function compute"
            )

    def _compute(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from plait._dispatch.kernels import kernel

        return kernel(self)(*args, **kwargs)


def _in_mode(mode: Any, op: OpOverload, types: Iterable[type], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Asks a mode, which is left while it runs."""
    state.dispatch_modes.remove(mode)
    place = len(state.dispatch_modes)
    try:
        return mode.__torch_dispatch__(op, types, args, kwargs)
    finally:
        state.dispatch_modes.insert(place, mode)


def packet(name: str, function: Callable[..., Any] | None = None) -> OpOverloadPacket:
    """Returns the inner function of a name, one object for each in the process."""
    found = _packets.get(name)
    if found is None:
        found = _packets.setdefault(name, OpOverloadPacket(name, function))
    if found._function is None:
        found._function = function
    return found


class _Aten:
    """The namespace of inner functions."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"plait.ops.aten has no attribute {name!r}")
        return packet(name)


aten = _Aten()
