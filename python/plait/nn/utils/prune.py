"""Pruning: parameters of which some elements are kept at zero.

A pruned parameter `weight` is computed, before each forward pass, as `weight_orig * weight_mask`; `weight_orig` is the
parameter that is trained. `remove` makes the product the parameter again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import plait
from plait._tensor import Tensor
from plait.nn.modules.module import Module

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned",
    "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]  # fmt: skip


class BasePruningMethod:
    """A way to choose elements. A subclass says by `PRUNING_TYPE` among what, and by `compute_mask` which are kept."""

    PRUNING_TYPE = "unstructured"
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        """Computes the parameter anew, before a forward pass."""
        setattr(module, self._tensor_name, self.apply_mask(module))

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns a mask of ones and zeros for the elements that are not pruned already."""
        raise NotImplementedError(f"{type(self).__name__}.compute_mask")

    def apply_mask(self, module: Module) -> Tensor:
        """Returns the product of the parameter and the mask."""
        mask, original = (getattr(module, f"{self._tensor_name}_{kind}") for kind in ("mask", "orig"))
        return mask.to(original.dtype) * original

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """Returns a tensor with the elements that this method chooses set to zero."""
        mask = plait.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(t if importance_scores is None else importance_scores, mask)

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> BasePruningMethod:
        """Prunes a parameter of a module, further if it is pruned already, and returns the method."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        before = _hooks(module, name)
        original = getattr(module, f"{name}_orig" if before else name)
        scores = getattr(module, name) if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise ValueError(f"{cls.__name__}: got scores {list(scores.shape)} for a tensor {list(original.shape)}")
        default = getattr(module, f"{name}_mask") if before else plait.ones_like(original)
        if before:
            key, hook = before[0]
            container = PruningContainer(*(hook if isinstance(hook, PruningContainer) else (hook,)), method)
            del module._forward_pre_hooks[key]
            mask = container.compute_mask(scores.detach(), default)
            method = container
        else:
            mask = method.compute_mask(scores.detach(), default)
            del module._parameters[name]
            module.register_parameter(f"{name}_orig", original)
        module.register_buffer(f"{name}_mask", mask.detach())
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def remove(self, module: Module) -> None:
        """Makes the pruned tensor the parameter again."""
        name = self._tensor_name
        value = self.apply_mask(module).detach()
        original = module._parameters.pop(f"{name}_orig")
        assert original is not None
        original.data = value
        del module._buffers[f"{name}_mask"]
        delattr(module, name)
        module.register_parameter(name, original)


def _hooks(module: Module, name: str | None = None) -> list[tuple[int, BasePruningMethod]]:
    """Returns what prunes a parameter of a module, or any, by the number of its hook."""
    table = [(k, hook) for k, hook in module._forward_pre_hooks.items()]
    return [(k, h) for k, h in table if isinstance(h, BasePruningMethod) and name in (None, h._tensor_name)]


class PruningContainer(BasePruningMethod):
    """Methods that were applied to one parameter, one after another."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._methods: tuple[BasePruningMethod, ...] = ()
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Adds a method for the same parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._methods and method._tensor_name != self._tensor_name:
            raise ValueError(f"the methods prune {self._tensor_name}, got one for {method._tensor_name}")
        self._methods = (*self._methods, method)
        self._tensor_name = method._tensor_name

    def __len__(self) -> int:
        return len(self._methods)

    def __iter__(self) -> Any:
        return iter(self._methods)

    def __getitem__(self, i: int) -> BasePruningMethod:
        return self._methods[i]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns the mask of the last method among what the others have left, together with theirs."""
        method = self._methods[-1]
        mask = default_mask.clone()
        if method.PRUNING_TYPE == "global":
            return method.compute_mask(t, default_mask)
        if method.PRUNING_TYPE == "unstructured":
            left = default_mask == 1
            mask[left] = method.compute_mask(t[left], default_mask[left]).to(mask.dtype)
            return mask
        dim = getattr(method, "dim", -1) % t.dim()
        kept = default_mask.transpose(0, dim).flatten(1).sum(1).nonzero().flatten()
        part = method.compute_mask(t.index_select(dim, kept), default_mask.index_select(dim, kept))
        return mask.index_copy(dim, kept, part.to(mask.dtype))


class Identity(BasePruningMethod):
    """Prunes nothing, but makes the names of a pruned parameter."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns the mask that is there."""
        return default_mask


def _count(amount: float, size: int, what: str) -> int:
    """Returns how many of a number of things to prune: a count, or a share if it is a float."""
    if isinstance(amount, bool) or not isinstance(amount, int | float) or amount < 0:
        raise ValueError(f"amount: want a number that is not negative, got {amount!r}")
    if isinstance(amount, float):
        if amount > 1:
            raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")
        return round(amount * size)
    if amount > size:
        raise ValueError(f"amount={amount} should be smaller than the number of {what} to prune={size}")
    return amount


class RandomUnstructured(BasePruningMethod):
    """Prunes elements at random."""

    def __init__(self, amount: float) -> None:
        _count(amount, 2**62, "parameters")
        self.amount = amount

    def _scores(self, t: Tensor) -> Tensor:
        return plait.rand_like(t)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns a mask without the elements of the least scores."""
        mask = default_mask.clone()
        if n := _count(self.amount, t.numel(), "parameters"):
            mask.view(-1)[self._scores(t).reshape(-1).topk(n, largest=False).indices] = 0
        return mask


class L1Unstructured(RandomUnstructured):
    """Prunes the elements that are least in size."""

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()


class RandomStructured(BasePruningMethod):
    """Prunes whole slices along a dimension at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        _count(amount, 2**62, "channels")
        self.amount, self.dim = amount, dim

    def _scores(self, slices: Tensor) -> Tensor:
        return plait.rand(slices.shape[0], device=slices.device)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns a mask without the slices of the least scores."""
        if t.dim() < 2:
            raise ValueError("structured pruning can only be applied to multidimensional tensors")
        n = _count(self.amount, t.shape[self.dim], "channels")
        mask = default_mask.clone()
        if n:
            scores = self._scores(t.transpose(0, self.dim).flatten(1))
            mask = mask.index_fill(self.dim, scores.topk(n, largest=False).indices, 0)
        return mask


class LnStructured(RandomStructured):
    """Prunes the slices along a dimension whose norms are least."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, slices: Tensor) -> Tensor:
        return plait.norm(slices, p=self.n, dim=1)


class CustomFromMask(BasePruningMethod):
    """Prunes what a mask has zeros for."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns the product of both masks."""
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Makes the names of a pruned parameter and prunes nothing."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prunes elements of a parameter at random: a number, or a share if `amount` is a float."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prunes the elements of a parameter that are least in size, or in scores."""
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prunes slices of a parameter along a dimension at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prunes the slices of a parameter along a dimension whose norms are least."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prunes what a mask has zeros for."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prunes elements among those of several parameters together.

    Args:
        parameters: pairs of a module and the name of a parameter
        pruning_method: a class of unstructured pruning
        importance_scores: tensors to choose by, in place of the parameters
        kwargs: the arguments of the class
    """
    pairs: Sequence[tuple[Module, str]] = list(parameters)
    if pruning_method.PRUNING_TYPE != "unstructured":
        raise TypeError(f"global_unstructured: want an unstructured method, got {pruning_method.__name__}")
    given = importance_scores or {}
    tensors = [getattr(m, n) for m, n in pairs]
    scores = [given.get(pair, t).detach().reshape(-1) for pair, t in zip(pairs, tensors, strict=True)]
    masks = [getattr(m, f"{n}_mask", plait.ones_like(t)).reshape(-1) for (m, n), t in zip(pairs, tensors, strict=True)]
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    final = container.compute_mask(plait.cat(scores), plait.cat(masks))
    for (m, n), t, mask in zip(pairs, tensors, final.split([t.numel() for t in tensors]), strict=True):
        custom_from_mask(m, n, mask.reshape(t.shape))


def is_pruned(module: Module) -> bool:
    """Whether a parameter of a module, or of one below it, is pruned."""
    return any(_hooks(m) for m in module.modules())


def remove(module: Module, name: str) -> Module:
    """Makes a pruned tensor the parameter again; its zeros are trained from then on."""
    for key, method in _hooks(module, name):
        method.remove(module)
        del module._forward_pre_hooks[key]
        return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
