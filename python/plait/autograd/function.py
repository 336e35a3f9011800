"""Functions with a derivative of their own, written in Python."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from plait import _core, _ops
from plait._autograd import forward as _forward
from plait._autograd import function_batch as _batches
from plait._autograd.parts import gradient_forms, of_parts, parts_of
from plait._autograd.saved_tensors import Packed, stack
from plait._engine.callbacks import collect, keep
from plait._engine.runtime import address, check, own
from plait._modes import is_grad_enabled, no_grad
from plait._tensor import Tensor


class FunctionCtx:
    """What a `Function` passes from `forward` to `backward`: saved tensors, and any attributes."""

    needs_input_grad: tuple[bool, ...]

    def __init__(self) -> None:
        self._to_save: tuple[Tensor | None, ...] = ()
        self._for_forward: tuple[Tensor | None, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._plain: tuple[Tensor, ...] = ()
        self._materialize = True
        # What was saved, or what hooks made of it; its version, and which output it is, or -1.
        self._saved: list[tuple[Tensor | Packed | None, int, int]] | None = None
        self._run = 0
        self._outputs: dict[str, Any] = {}  # attributes that have outputs in them: see _Output
        self._made: list[tuple[ref[Tensor], int]] = []  # the outputs, once they are the node's, and their numbers

    def __setattr__(self, name: str, value: Any) -> None:
        if (made := self.__dict__.get("_made")) and name not in _OWN:
            at = {id(t): i for t, i in ((r(), i) for r, i in made) if t is not None}
            held = _without_place(value, at)
            self._outputs.pop(name, None)
            if held is not value:
                self._outputs[name] = held
                self.__dict__.pop(name, None)
                return
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__.get("_outputs", {})
        if name not in held:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return _mapped(held[name], lambda v: v.tensor(self._run) if isinstance(v, _Output) else v)

    def __delattr__(self, name: str) -> None:
        if self._outputs.pop(name, None) is None:
            super().__delattr__(name)

    def _let_go(self, at: dict[int, int], outputs: list[Any]) -> None:
        """Keeps attributes that have outputs in them without their place in the graph, which refers to the context: a
        cycle that Python's collector does not see. So are those that are set later."""
        for name, value in list(self.__dict__.items()):
            if name not in _OWN:
                held = _without_place(value, at)
                if held is not value:
                    self._outputs[name] = held
                    del self.__dict__[name]
        self._made = [(ref(o), i) for i, o in enumerate(outputs) if isinstance(o, Tensor)]

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for `backward`, which gets them as `saved_tensors`."""
        for i, t in enumerate(tensors):
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type {type(t).__name__}"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors for `jvp`, which gets them as `saved_tensors`."""
        self._for_forward = _want_tensors("save_for_forward", tuple(t for t in tensors if t is not None)) and tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Says which inputs `forward` has changed in place; it must return them."""
        self._dirty = _want_tensors("mark_dirty", args)

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Says which outputs have no gradient."""
        self._plain = _want_tensors("mark_non_differentiable", args)

    def set_materialize_grads(self, value: bool) -> None:
        """Says whether `backward` gets zeros, the default, or None for outputs that nothing depends on."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors that were saved, as they were.

        Raises:
            RuntimeError: if one was changed in place since, or a backward pass has freed them.
        """
        if self._saved is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time, or reading saved tensors after they have been "
                "freed; pass retain_graph=True to go through it again"
            )
        out: list[Tensor | None] = []
        for value, version, index in self._saved:
            t = value.tensor() if isinstance(value, Packed) else value
            if t is value and t is not None and t._version != version:
                raise RuntimeError(
                    f"one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"a saved tensor of shape {list(t.shape)} is at version {t._version}, expected version {version}"
                )
            if t is not None and index >= 0 and self._run and is_grad_enabled():
                t = own(check(_core.bind_BackwardOutput(self._run, t._h, index)))
            out.append(t)
        return tuple(out)


BackwardCFunction = FunctionCtx
_OWN = frozenset(vars(FunctionCtx()))  # the attributes that are not the program's


class _Output:
    """What a context keeps of an output of its function: its memory, and which output it is."""

    __slots__ = ("_index", "_tensor")

    def __init__(self, t: Tensor, index: int) -> None:
        self._tensor, self._index = _detached(t), index

    def tensor(self, run: int) -> Tensor:
        """Returns the output, in a backward pass that is itself recorded with its place in the graph."""
        if run and is_grad_enabled():
            return own(check(_core.bind_BackwardOutput(run, self._tensor._h, self._index)))
        return self._tensor


def _without_place(value: Any, at: dict[int, int]) -> Any:
    """Returns a value with outputs in it, whose numbers at has by their identity, as what a context keeps of them."""
    return _mapped(value, lambda v: _Output(v, at[id(v)]) if isinstance(v, Tensor) and id(v) in at else v)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a value, or what is in a list, tuple or dict, changed; the value itself where nothing is."""
    if type(value) in (list, tuple):
        new = [_mapped(v, change) for v in value]
        return value if all(a is b for a, b in zip(new, value, strict=True)) else type(value)(new)
    if type(value) is dict:
        changed = {k: _mapped(v, change) for k, v in value.items()}
        return value if all(changed[k] is v for k, v in value.items()) else changed
    return change(value)


def _want_tensors(name: str, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    for i, t in enumerate(args):
        if not isinstance(t, Tensor):
            raise RuntimeError(f"{name} can only accept variables, but argument {i} is of type {type(t).__name__}")
    return args


class Function:
    """An operation with a derivative of its own: a subclass has static methods, and is used by `apply`.

    Either `forward(ctx, *args)`, or `forward(*args)` and `setup_context(ctx, inputs, output)`; and
    `backward(ctx, *grads)`, which returns a gradient, or None, for each argument.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the outputs; gradients are off."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Saves what `backward` needs, where `forward` takes no context."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Returns the gradients of the arguments from those of the outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function"
        )

    vjp = backward  # the other name that a subclass may give it

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Returns the tangents of the outputs from those of the arguments."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    # Whether `vmap` calls the methods once for all parts of a batch, which must then be made of Plait's operations.
    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """Computes the outputs for all parts of a batch at once, inside `vmap`.

        Args:
            info: has the number of parts, `batch_size`, and the `randomness` that `vmap` got
            in_dims: for each argument the dimension of the batch, or None where it has none
            args: those of `forward`, with the dimension of the batch

        Returns:
            The outputs, and for each the dimension of its batch, or None if it is the same in all parts.
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Calls the function and records it. Inside `vmap` its method `vmap` is called instead, or with
        `generate_vmap_rule` the others with batched tensors, or all for each part of the batch, one by one."""
        if at := _batches.batched_at(cls, Function, args):
            return _batches.apply(cls, Function, args, at)
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        tangents = [(level, found) for level in _forward.levels() if (found := _tangents(args, level))]
        with no_grad(), _forward.Below(0):
            if cls.setup_context is Function.setup_context:
                output = cls.forward(ctx, *args)
            else:
                output = cls.forward(*args)
                cls.setup_context(ctx, args, output)
        recorded = is_grad_enabled() and any(ctx.needs_input_grad)
        if not (recorded or tangents):
            return output
        outputs = list(output) if isinstance(output, tuple | list) else [output]
        if recorded:
            cls._record(ctx, args, outputs)
        for level, found in tangents:
            cls._push(ctx, args, outputs, level, found)
        ctx._for_forward = ctx._dirty = ()
        return type(output)(outputs) if isinstance(output, tuple | list) else outputs[0]

    @classmethod
    def _push(cls, ctx: FunctionCtx, args: Any, outputs: list[Any], level: int, found: list[Tensor | None]) -> None:
        """Gives the outputs their tangents at a level from those of the arguments."""
        if ctx._materialize:
            found = [
                _ops.zeros_like(a) if t is None and isinstance(a, Tensor) else t
                for a, t in zip(args, found, strict=True)
            ]
        saved = ctx._saved
        ctx._saved = [(t, -1 if t is None else t._version, -1) for t in ctx._for_forward]
        try:
            with _forward.Below(level):
                made = cls.jvp(ctx, *found)
        finally:
            ctx._saved = saved
        given = list(made) if isinstance(made, tuple | list) else [made]
        if len(given) != len(outputs):
            raise RuntimeError(f"{cls.__name__}.jvp returned {len(given)} tangents, want {len(outputs)}")
        inputs = {id(a) for a in args if isinstance(a, Tensor)}
        for i, (o, t) in enumerate(zip(outputs, given, strict=True)):
            if t is None or not isinstance(o, Tensor):
                continue
            if not isinstance(t, Tensor) or t.shape != o.shape or t.dtype is not o.dtype:
                what = f"{t.dtype} {list(t.shape)}" if isinstance(t, Tensor) else type(t).__name__
                raise RuntimeError(f"{cls.__name__}.jvp: tangent {i} is {what}, want {o.dtype} {list(o.shape)}")
            if id(o) in inputs and all(o is not d for d in ctx._dirty):
                outputs[i] = _detached(o)
            _forward.give(outputs[i], t, level)

    @classmethod
    def _record(cls, ctx: FunctionCtx, args: Any, outputs: list[Any]) -> None:
        """Records the function: the outputs become those of its node, or are replaced by tensors that do."""
        collect()
        inputs = [a if isinstance(a, Tensor) else None for a in args]
        list_ = array("q", [0 if t is None else t._h for t in inputs])
        at = cls._attach(ctx, inputs, outputs, list_)
        ctx._saved = [_save(t, at) for t in ctx._to_save]
        ctx._to_save = ctx._plain = ()
        ctx._let_go(at, outputs)

    @classmethod
    def _attach(cls, ctx: FunctionCtx, inputs: list[Any], outputs: list[Any], list_: Any) -> dict[int, int]:
        """Makes the outputs those of a node; returns their numbers by identity."""
        dirty, plain = {id(t) for t in ctx._dirty}, {id(t) for t in ctx._plain}
        given = {id(t) for t in inputs if t is not None}
        memory = {_core.bind_TensorStorageId(t._h) for t in inputs if t is not None}
        if missing := dirty - {id(o) for o in outputs}:
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output: "
                f"{len(missing)} of the inputs that are modified inplace; all must be outputs of the Function"
            )
        backward = cls.backward if cls.vjp is Function.vjp else cls.vjp
        # What the derivative must know of each output and input; it must not refer to them, which would be a cycle.
        metas = [(o.shape, o.dtype, o.device) if isinstance(o, Tensor) else None for o in outputs]
        name = cls.__name__ + "Backward"
        forms = gradient_forms(outputs), gradient_forms(inputs)
        if dirty and forms != (None, None):
            raise NotImplementedError(
                f"{cls.__name__}: it changes a distributed tensor in place: return a new one, or change its local part"
            )
        wanted_of = [None if t is None else (t.dtype, t.shape) for t in inputs]
        key = keep(_Derivative(name, backward, ctx, metas, wanted_of, forms))
        node = check(_core.bind_NodeNew(name, key, address(list_), len(list_)))
        at = {}
        try:
            for i, o in enumerate(outputs):
                if not isinstance(o, Tensor):
                    continue
                wanted = (o.dtype.is_floating_point or o.dtype.is_complex) and id(o) not in plain
                out, how = o, _MADE
                if id(o) in dirty:
                    if o.is_leaf and o.requires_grad:
                        raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
                    how = _CHANGED
                elif id(o) in given or o.requires_grad:
                    out = outputs[i] = _detached(o)
                if how == _MADE and _core.bind_TensorStorageId(o._h) in memory:
                    how = _SHARES
                at[id(o)] = i
                check(_core.bind_NodeAttach(node, out._h, i, wanted, how))
        finally:
            _core.bind_ObjectRelease(node)
        return at


_MADE, _SHARES, _CHANGED = 0, 1, 2  # how an output came to be, for bind_NodeAttach


def _save(t: Tensor | None, at: dict[int, int]) -> tuple[Tensor | Packed | None, int, int]:
    """Returns what a context keeps of a tensor; at has the numbers of the outputs by their identity."""
    if t is None:
        return None, -1, -1
    if t.is_inference():
        raise RuntimeError("save_for_backward: Inference tensors cannot be saved for backward; clone them first")
    i = at.get(id(t), -1)
    if stack.hooks:
        return Packed(t if i < 0 else _detached(t), stack.hooks[-1][0]), -1, i
    return t if i < 0 else _detached(t), t._version, i


def _tangents(args: tuple[Any, ...], level: int) -> list[Tensor | None]:
    """Returns the tangents of arguments at a level, or an empty list where none has one."""
    found = [_forward.tangent_of(a, level) if isinstance(a, Tensor) else None for a in args]
    return found if any(t is not None for t in found) else []


def _detached(t: Tensor) -> Tensor:
    return own(check(_core.bind_TensorDetach(t._h)))


class _Derivative:
    """Runs a function's `backward` for passes. metas tell of the outputs, wanted of the inputs, and forms how gradients
    of outputs and of inputs lie that are distributed."""

    __slots__ = ("_backward", "_forms", "_metas", "_name", "_wanted", "ctx")

    def __init__(
        self,
        name: str,
        backward: Callable[..., Any],
        ctx: FunctionCtx,
        metas: Sequence[Any],
        wanted: Sequence[tuple[Any, Any] | None],
        forms: tuple[list[Any] | None, list[Any] | None],
    ) -> None:
        self._forms = forms
        self._name, self._backward, self.ctx, self._metas, self._wanted = name, backward, ctx, metas, wanted

    def __call__(self, run: int, retain: bool, grads: list[Tensor | None]) -> list[Tensor | None]:
        """Returns the gradients of the inputs from those of the outputs."""
        ctx = self.ctx
        given, taken = self._forms
        grads = of_parts(given, [*grads, *[None] * (len(self._metas) - len(grads))])
        if ctx._materialize:
            grads = [
                self._zeros(i, *m) if g is None and m is not None else g
                for i, (g, m) in enumerate(zip(grads, self._metas, strict=True))
            ]
        before, ctx._run = ctx._run, run
        try:
            answer = self._backward(ctx, *grads)
        finally:
            ctx._run = before
        if not retain:
            ctx._saved = None
        checked = self._checked(list(answer) if isinstance(answer, tuple | list) else [answer])
        return parts_of(taken, self._name, checked)

    def _zeros(self, i: int, shape: Any, dtype: Any, device: Any) -> Tensor:
        form = self._forms[0] and self._forms[0][i]
        made: Tensor = form.zeros(dtype, device) if form else _ops.zeros(shape, dtype=dtype, device=device)
        return made

    def _checked(self, out: list[Any]) -> list[Tensor | None]:
        n = len(self._wanted)
        if len(out) < n or any(g is not None for g in out[n:]):
            raise RuntimeError(
                f"function {self._name} returned an incorrect number of gradients (expected {n}, got {len(out)})"
            )
        return [self._fitted(i, g, want) for i, (g, want) in enumerate(zip(out[:n], self._wanted, strict=True))]

    def _fitted(self, i: int, g: Any, want: tuple[Any, Any] | None) -> Tensor | None:
        """Returns a gradient in the dtype of its input, and summed to the input's shape where that was broadcast."""
        if g is None:
            return None
        if want is None:
            raise RuntimeError(
                f"function {self._name} returned a gradient different than None at position {i + 1}, but the "
                "corresponding forward input was not a Variable"
            )
        if not isinstance(g, Tensor):
            raise RuntimeError(f"function {self._name}: expected Variable or None (got {type(g).__name__})")
        dtype, shape = want
        if g.shape != shape:
            lead = len(g.shape) - len(shape)
            if lead < 0 or any(w not in (1, h) for w, h in zip(shape, g.shape[lead:], strict=True)):
                raise RuntimeError(
                    f"Function {self._name} returned an invalid gradient at index {i} - got {list(g.shape)} but "
                    f"expected shape compatible with {list(shape)}"
                )
            g = g.sum_to_size(shape)
        return g if g.dtype is dtype else g.to(dtype)


def saved_by(*tensors: Tensor) -> FunctionCtx:
    """Returns a context that holds tensors as a function's saved ones are held, though nothing is recorded."""
    ctx = FunctionCtx()
    ctx._saved = [_save(t, {}) for t in tensors]
    return ctx


class _Once(Function):
    @staticmethod
    def forward(_ctx: Any, result: Tensor, *_from: Tensor) -> Tensor:
        """Returns the result as one that depends on the rest."""
        return result.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """Refuses."""
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a `backward` that cannot itself be differentiated: doing so is an error."""

    @functools.wraps(function)
    def wrapped(ctx: Any, *args: Any) -> Any:
        with no_grad():
            out = function(ctx, *args)
        sources = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
        if not (is_grad_enabled() and sources):
            return out
        results = out if isinstance(out, tuple | list) else (out,)
        return tuple(_Once.apply(r, *sources) if isinstance(r, Tensor) else r for r in results)

    return wrapped


__all__ = ["Function", "FunctionCtx", "once_differentiable"]
