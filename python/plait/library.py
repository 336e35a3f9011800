"""Operations of a program's own: `custom_op` makes one of a function, and `plait.ops` has it by its name.

What is said to PyTorch's compiler about an operation has no effect: there is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from plait._engine.missing_names import refusing as _refusing
from plait._engine.runtime import is_tensor
from plait._modes import no_grad
from plait.autograd import grad
from plait.autograd.function import Function
from plait.testing import assert_close

__all__ = [
    "CustomOpDef", "custom_op", "impl_abstract", "opcheck", "register_autocast", "register_autograd", "register_fake",
    "register_kernel", "register_vmap",
]  # fmt: skip

# Operations by namespace and name, which `plait.ops` has.
OPERATIONS: dict[tuple[str, str], CustomOpDef] = {}


class CustomOpDef:
    """An operation made of a function, which computes without gradients. `register_autograd` gives it a derivative."""

    def __init__(self, name: str, fn: Callable[..., Any], mutates: str | Iterable[str] = ()) -> None:
        self._name, self._signature = name, inspect.signature(fn)
        self._kernels: dict[str | None, Callable[..., Any]] = {None: fn}
        self._mutates = {mutates} if isinstance(mutates, str) else set(mutates)
        self.__name__, self.__doc__ = fn.__name__, fn.__doc__
        self._rule: Callable[..., Any] | None = None
        self.register_autograd(self._no_derivative)

    def _no_derivative(self, ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(f"{self._name}: no derivative: give one to register_autograd")

    @property
    def default(self) -> CustomOpDef:
        """The operation: it has one overload."""
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the operation."""
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self._function.apply(*bound.args, *bound.kwargs.values())

    def _named(self, values: tuple[Any, ...]) -> dict[str, Any]:
        """Returns those of the arguments that are given by name, which are the last."""
        parameters = self._signature.parameters.values()
        return {p.name: v for p, v in zip(parameters, values, strict=True) if p.kind is p.KEYWORD_ONLY}

    def _run(self, values: tuple[Any, ...]) -> Any:
        named = self._named(values)
        device = next((v.device.type for v in values if hasattr(v, "device")), None)
        kernel = self._kernels.get(device, self._kernels[None])
        return kernel(*values[: len(values) - len(named)], **named)

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., None] | None = None
    ) -> None:
        """Gives the operation a derivative.

        Args:
            backward: `backward(ctx, *grads)` returns a gradient, or None, for each argument
            setup_context: `setup_context(ctx, inputs, output)` keeps in ctx what backward needs
        """

        def forward(ctx: Any, *args: Any) -> Any:
            out = self._run(args)
            if setup_context is not None:
                setup_context(ctx, args, out)
            return out

        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        self._function: Any = type(self._name, (Function,), methods)
        if self._rule is not None:
            self.register_vmap(self._rule)

    def register_vmap(self, fn: Callable[..., Any] | None = None, /) -> Any:
        """Has another function compute inside `vmap`, for all parts of a batch at once; also a decorator.

        Args:
            fn: `fn(info, in_dims, *args)`, as the method `vmap` of `autograd.Function`
        """

        def rule(info: Any, in_dims: Any, *values: Any) -> Any:
            n = len(values) - len(self._named(values))
            return self._rule(info, in_dims[:n], *values[:n], **self._named(values))  # type: ignore[misc]

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._rule, self._function.vmap = function, staticmethod(rule)
            return function

        return register if fn is None else register(fn)

    def register_kernel(self, device_types: str | Iterable[str] | None, fn: Callable[..., Any] | None = None) -> Any:
        """Has another function compute on devices of some types; also a decorator."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            for d in [device_types] if device_types is None or isinstance(device_types, str) else device_types:
                self._kernels[d] = function
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: Any = None, /) -> Any:
        """Returns a function as it is, or a decorator that does."""
        return fn if fn is not None else lambda function: function

    register_torch_dispatch = register_fake


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Makes an operation of a function, for the whole process; also a decorator.

    Args:
        name: "namespace::name", by which `plait.ops` has it
        fn: the function, which is run without gradients
        mutates_args: the arguments that the function changes, as `opcheck` checks, or "unknown"
        device_types: has no effect: the function runs on any device
        schema: has no effect
        tags: has no effect
    """
    space, found, last = name.partition("::")
    if not found:
        raise ValueError(f"custom_op: want a name like namespace::name, got {name!r}")

    def make(function: Callable[..., Any]) -> CustomOpDef:
        operation = OPERATIONS[space, last] = CustomOpDef(name, function, mutates_args)
        return operation

    return make if fn is None else make(fn)


def _operation(op: Any) -> CustomOpDef | None:
    """Returns an operation by its name; None for one that is not of this program."""
    return op if isinstance(op, CustomOpDef) else OPERATIONS.get(tuple(str(op).split("::", 1)))  # type: ignore[arg-type]


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., None] | None = None, lib: Any = None
) -> None:
    """Gives an operation a derivative; see `CustomOpDef.register_autograd`. No effect for one that is not there."""
    operation = _operation(op)
    if operation is not None:
        operation.register_autograd(backward, setup_context=setup_context)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Has another function compute an operation on devices of some types; also a decorator."""
    operation = _operation(op)
    if operation is None:
        raise ValueError(f"register_kernel: there is no operation {op}")
    return operation.register_kernel(device_types, func)


def register_fake(op: Any, func: Any = None, /, **kwargs: Any) -> Any:
    """Returns a function as it is, or a decorator that does."""
    return func if func is not None else lambda function: function


impl_abstract = register_fake


def register_vmap(op: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Has another function compute an operation inside `vmap`; see `CustomOpDef.register_vmap`."""
    operation = _operation(op)
    if operation is None:
        raise ValueError(f"register_vmap: there is no operation {op}")
    return operation.register_vmap(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, **kwargs: Any) -> None:
    """Has no effect: the operations that a function is made of are cast."""


def _tensors(value: Any) -> list[Any]:
    """Returns the tensors of an argument or a result, which may be a list of them."""
    return [t for t in (value if isinstance(value, list | tuple) else [value]) if is_tensor(t)]


def _check_schema(operation: CustomOpDef, args: Any, kwargs: Any) -> None:
    given = {n: _tensors(v) for n, v in operation._signature.bind(*args, **kwargs).arguments.items()}
    given |= {n: _tensors(v) for n, v in kwargs.items() if n not in given}
    before = {name: [t.detach().clone() for t in tensors] for name, tensors in given.items()}
    with no_grad():
        results = _tensors(operation(*args, **kwargs))
    for name, tensors in given.items():
        if name not in operation._mutates and "unknown" not in operation._mutates:
            try:
                assert_close([t.detach() for t in tensors], before[name], rtol=0, atol=0, equal_nan=True)
            except AssertionError:
                raise RuntimeError(f"the argument {name} was changed; mutates_args must name it") from None
        homes = {t.untyped_storage().data_ptr() for t in tensors} - {0}  # 0 is memory that the host cannot address
        if homes & {t.untyped_storage().data_ptr() for t in results}:
            raise RuntimeError(f"a result has the memory of the argument {name}; return a copy")


def _check_derivative(operation: CustomOpDef, args: Any, kwargs: Any) -> None:
    wanted = [t for v in (*args, *kwargs.values()) for t in _tensors(v) if t.requires_grad]
    results = [t for t in _tensors(operation(*args, **kwargs)) if t.requires_grad] if wanted else []
    if results:
        grad([t.sum() for t in results], wanted, allow_unused=True)


_CHECKS: dict[str, Callable[..., None]] = {
    "test_schema": _check_schema,
    "test_autograd_registration": _check_derivative,
    # Of PyTorch's compiler: nothing can be wrong where there is none.
    **dict.fromkeys(("test_faketensor", "test_aot_dispatch_static", "test_aot_dispatch_dynamic"), lambda *_: None),
}
_ASKED = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(
    op: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: str | Iterable[str] = _ASKED,
    raise_exception: bool = True,
    atol: float | None = None,
    rtol: float | None = None,
) -> dict[str, Any]:
    """Checks an operation by calls with some arguments. That its derivative is right, `autograd.gradcheck` says.

    Args:
        op: the operation, or its name
        args: arguments to call it with
        kwargs: and those by name
        test_utils: the checks. "test_schema": it changes no argument that `mutates_args` does not name, and no result
            has the memory of one. "test_autograd_registration": it has a derivative if an argument requires a
            gradient. Those of PyTorch's compiler have nothing to check
        raise_exception: whether to raise at the first check that fails
        atol: has no effect
        rtol: has no effect

    Returns:
        A dict with "SUCCESS", or the exception, for each check.

    Raises:
        RuntimeError: if a check fails; it says which, and why.
        ValueError: for an unknown check or operation.
    """
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if unknown := [n for n in names if n not in _CHECKS]:
        raise ValueError(f"opcheck: no check {', '.join(unknown)}, want some of {', '.join(_CHECKS)}")
    operation = _operation(op)
    if operation is None:
        raise ValueError(f"opcheck: there is no operation {op}")
    found: dict[str, Any] = {}
    for name in names:
        try:
            _CHECKS[name](operation, args, kwargs or {})
            found[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise RuntimeError(f"opcheck: {operation._name}: {name}: {error}") from error
            found[name] = error
    return found


__getattr__ = _refusing(
    __name__,
    "Library define impl infer_schema triton_op wrap_triton",
    "operations are made by custom_op alone, of functions in Python",
)
