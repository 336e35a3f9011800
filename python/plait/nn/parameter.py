"""Tensors that a module owns: parameters, which are trained, and buffers, which are not."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from plait import _core, _ops
from plait._engine.arming import disabled_torch_function
from plait._engine.overriding import DISPATCHING
from plait._engine.runtime import check
from plait._tensor import Tensor
from plait._tensors.elements import attributes, set_attributes

if TYPE_CHECKING:
    from plait._device import DeviceLike
    from plait._dtype import dtype as DType

PARAMETER, BUFFER = 1, 5  # the engine's categories of memory


def adopt(t: Any, value: Tensor) -> None:
    """Gives `t` the memory, shape, dtype and device of `value`; it stays the same object and leaf."""
    t.data = value.detach()


def become(t: Any, value: Any) -> None:
    """Gives `t`, a tensor without elements, the shape and what is set on `value`; it stays the same object."""
    del t._h
    t._h = check(_core.bind_TensorDetach(value._h))
    vars(t).update(vars(value))


def set_category(t: Tensor, category: int) -> None:
    """Counts the tensor's memory under a category."""
    check(_core.bind_TensorSetCategory(t._h, category))


class _Meta(type(Tensor)):  # type: ignore[misc]
    """Has a parameter that is of a class with a `__torch_dispatch__`, and stays of it, count as one."""

    def __instancecheck__(cls, value: object) -> bool:
        kind = type(value)
        if cls in kind.__mro__:
            return True
        return cls is Parameter and kind in DISPATCHING and vars(value).get("_is_param", False)


class Parameter(Tensor, metaclass=_Meta):
    """A tensor that a module which it is assigned to registers as one to be trained.

    Args:
        data: the first values; the memory is shared
        requires_grad: whether it collects its gradient
    """

    __slots__ = ()
    __torch_function__ = disabled_torch_function

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        """Returns a leaf that shares the memory of `data`, of its class where that has a `__torch_dispatch__`."""
        if type(data) in DISPATCHING:
            return _taken_over(data, requires_grad)
        made = _shared(_class_for(cls, data), data, PARAMETER)
        if requires_grad:
            made.requires_grad = True
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        # As in PyTorch, memory of its own and no gradient, to which the first backward of a copied model would add.
        copy = self._like(_ops.clone(self.detach()))
        copy.requires_grad = self.requires_grad
        set_category(copy, PARAMETER)
        memo[id(self)] = copy
        set_attributes(copy, deepcopy(attributes(self), memo))
        return copy

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (PARAMETER, *super().__reduce_ex__(protocol))


class Buffer(Tensor):
    """A tensor that a module which it is assigned to registers as part of its state that is not trained.

    Args:
        data: the first values; the memory is shared
        persistent: whether it is part of the module's `state_dict`
    """

    __slots__ = ()
    __torch_function__ = disabled_torch_function
    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        """Returns a tensor that shares the memory of `data`."""
        made = _shared(cls, data, BUFFER)
        made.persistent = persistent
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (BUFFER, *super().__reduce_ex__(protocol))


def _class_for(cls: type, data: Any) -> type:
    """Returns the class of a parameter with such values."""
    if cls is Parameter and type(data) not in (Tensor, Parameter):
        from plait.distributed.tensor._dtensor import DistributedParameter, DTensor

        if isinstance(data, DTensor):
            return DistributedParameter
    return cls


def _taken_over(data: Any, requires_grad: bool) -> Any:
    made = data.detach()
    if type(made) is not type(data):
        raise RuntimeError(
            f"Parameter: detach of a {type(data).__name__} returns a {type(made).__name__}: its __torch_dispatch__ "
            "must return one of its class for aten.detach.default"
        )
    if requires_grad:
        made.requires_grad = True
    made._is_param = True
    return made


def _shared(cls: type, data: Tensor | None, category: int) -> Any:
    if data is None:
        data = _ops.empty(0)
    if not isinstance(data, Tensor):
        raise TypeError(f"{cls.__name__}: want a tensor, got {type(data).__name__}")
    if data.is_sparse or data.is_sparse_csr:
        raise NotImplementedError(f"{cls.__name__}: a sparse tensor is none: make its values one")
    made: Any = object.__new__(cls)
    made._h = check(_core.bind_TensorDetach(data._h))
    set_category(made, category)
    return made


def _rebuild(category: int, rebuild: Any, arguments: tuple[Any, ...]) -> Any:
    made = rebuild(*arguments)
    set_category(made, category)
    return made


class UninitializedTensor:
    """What parameters and buffers without a shape yet have in common."""

    __slots__ = ()

    def materialize(self: Any, shape: Any, device: DeviceLike | None = None, dtype: DType | None = None) -> None:
        """Gives the tensor its shape, with undefined values, and makes it an ordinary one."""
        made: Tensor = _ops.empty(tuple(shape), device=device or self.device, dtype=dtype or self.dtype)
        adopt(self, made)
        self.__class__ = self.cls_to_become
        set_category(self, PARAMETER if isinstance(self, Parameter) else BUFFER)

    @property
    def shape(self) -> Any:
        """Not known yet."""
        raise RuntimeError(
            f"{type(self).__name__}: the shape is not known before the module's first forward; run one first"
        )

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return f"<{type(self).__name__}>"

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = self._like(_ops.empty(0, dtype=self.dtype, device=self.device))
            memo[id(self)].requires_grad = self.requires_grad
        return memo[id(self)]


class UninitializedParameter(UninitializedTensor, Parameter):  # type: ignore[misc]
    """A parameter whose shape the first input of a lazy module decides."""

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: DeviceLike | None = None, dtype: DType | None = None) -> Any:
        """Returns a parameter without elements."""
        made = _shared(cls, _ops.empty(0, device=device, dtype=dtype), PARAMETER)
        made.requires_grad = requires_grad
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return UninitializedParameter, (self.requires_grad, str(self.device), self.dtype)


class UninitializedBuffer(UninitializedTensor, Buffer):  # type: ignore[misc]
    """A buffer whose shape the first input of a lazy module decides."""

    __slots__ = ()
    cls_to_become = Buffer

    def __new__(
        cls,
        requires_grad: bool = False,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
        persistent: bool = True,
    ) -> Any:
        """Returns a buffer without elements."""
        made = _shared(cls, _ops.empty(0, device=device, dtype=dtype), BUFFER)
        made.persistent = persistent
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return UninitializedBuffer, (False, str(self.device), self.dtype, self.persistent)


def is_lazy(value: Any) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(value, UninitializedTensor)
