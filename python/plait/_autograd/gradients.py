"""A tensor's place in the graph: its gradient, its node, its hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from plait import _core
from plait._autograd.backward import backward
from plait._autograd.hooks import RemovableHandle, register_hook, register_post_accumulate_grad_hook
from plait._autograd.node import node_of
from plait._engine.runtime import check, is_tensor, own
from plait._engine.warnings import warn
from plait._functions._common import adopt

if TYPE_CHECKING:
    from plait._tensor import Tensor


class TensorGradients:
    """The methods and properties of tensors that have to do with derivatives."""

    __slots__ = ()
    if TYPE_CHECKING:
        _h: int

    @property
    def grad_fn(self) -> Any:
        """The recorded operation that made the tensor, or None for a leaf."""
        return node_of(_core.bind_GradNode(self._h))

    @property
    def retains_grad(self) -> bool:
        """Whether the tensor, the result of an operation, keeps its gradient."""
        return bool(check(_core.bind_RetainsGrad(self._h)))

    @property
    def output_nr(self) -> int:
        """The number of the result among those of the operation that made the tensor."""
        return check(_core.bind_GradIndex(self._h))

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to the tensor."""
        status = _core.bind_RequiresGrad(self._h)
        return status == 1 if status >= 0 else bool(check(status))

    @requires_grad.setter
    def requires_grad(self, on: bool) -> None:
        check(_core.bind_RequiresGradSet(self._h, bool(on)))

    def requires_grad_(self: Any, requires_grad: bool = True) -> Tensor:
        """Makes a leaf collect its gradient, or not, and returns self."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward has collected, or None."""
        h = check(_core.bind_GradGet(self._h))
        if h:
            return own(h)
        if not self.is_leaf and not self.retains_grad:
            warn(
                "grad: backward fills that of a leaf, and this tensor is the result of an operation: "
                "call its retain_grad() before backward, or ask the leaf"
            )
        return None

    @grad.setter
    def grad(self: Any, value: Tensor | None) -> None:
        if value is not None and not is_tensor(value):
            raise TypeError(f"grad: want a tensor or None, got {type(value).__name__}")
        if value is not None and value.shape != self.shape:
            raise ValueError(f"grad: got shape {list(value.shape)}, want {list(self.shape)}")
        check(_core.bind_GradReplace(self._h, 0 if value is None else value._h))

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    _grad = grad  # the name by which programs give a shared parameter the gradient of a copy

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded operation made the tensor."""
        return bool(check(_core.bind_IsLeaf(self._h)))

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Adds the gradient of this tensor to those of the leaves it depends on.

        Args:
            gradient: of this tensor; may be left out if it has one element
            retain_graph: keep the graph for another pass; what create_graph says by default
            create_graph: record the pass, so that gradients can be differentiated
            inputs: the tensors that collect gradients; all leaves by default
        """
        backward((self,), None if gradient is None else (gradient,), retain_graph, create_graph, inputs)

    def detach(self) -> Tensor:
        """Returns a tensor with the same memory and no gradient."""
        if (made := _core.detached(self)) is not None:
            return made  # type: ignore[no-any-return]
        return own(check(_core.bind_TensorDetach(self._h)))

    @property
    def data(self) -> Tensor:
        """The tensor without its gradient, sharing its memory.

        What backward passes have saved does not notice changes in place that are made through it.
        """
        status = _core.bind_TensorData(self._h)
        return own(status if status > 0 else check(status))

    @data.setter
    def data(self: Any, value: Tensor) -> None:
        if not is_tensor(value):
            raise TypeError(f"data: want a tensor, got {type(value).__name__}")
        adopt(self, value)

    def register_hook(self: Any, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Calls `hook` with the gradient of this tensor in backward; what it returns, if not None, replaces it."""
        return register_hook(self, hook)

    def register_post_accumulate_grad_hook(self: Any, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Calls `hook` with this leaf as soon as its gradient of a backward pass is final."""
        return register_post_accumulate_grad_hook(self, hook)

    def retain_grad(self) -> None:
        """Makes the tensor, the result of an operation, keep its gradient."""
        check(_core.bind_RetainGrad(self._h))
