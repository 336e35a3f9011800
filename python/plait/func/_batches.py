"""Functions applied to all parts of a batch at once, and modules stacked for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plait import _ops
from plait._autograd import batch as _batch
from plait._device import device
from plait._engine.pytree import flatten, spread
from plait._random import Position
from plait._tensor import Tensor
from plait.func._transform import Func, local, tensors_of
from plait.nn.modules.batchnorm import _BatchNorm


def check_randomness(name: str, randomness: str) -> None:
    """Raises unless `randomness` is one of the three words that `vmap` knows."""
    if randomness not in ("error", "different", "same"):
        raise ValueError(f'{name}: randomness must be "error", "different" or "same", got {randomness!r}')


class Draws:
    """Around each call of a mapped function: what becomes of the random numbers that it draws."""

    def __init__(self, name: str, randomness: str, places: set[device]) -> None:
        self.name, self.randomness, self.places = name, randomness, places | {device("cpu")}
        self.first: Position | None = None

    def __enter__(self) -> None:
        if self.first is None:
            self.first = Position(self.places)
        elif self.randomness == "same":
            self.first.back()

    def restart(self) -> None:
        """Takes back what the calls so far have drawn."""
        if self.first is not None:
            self.first.back()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.randomness == "error" and self.first is not None and self.first.left():
            raise RuntimeError(
                f'{self.name}: the function draws random numbers; say randomness="different", or "same" for equal ones'
            )


def vmap(
    func: Func, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Func:
    """Returns a function that applies `func` to each part of its arguments along a dimension, to all at once.

    Inside, tensors have no such dimension. Their values cannot be read there, and shapes cannot depend on them. An
    operation without a rule for batches is applied to the parts one by one, and a `UserWarning` names it once.

    Args:
        func: takes and returns tensors
        in_dims: the dimension of each argument, or of what is in it; None for what every part gets whole, as it does
            arguments by name
        out_dims: the dimension of each result; None for one that is the same for all parts
        randomness: whether func may draw random numbers: "error", "different" ones for each part, or the "same"
        chunk_size: how many parts, at most, one call of func gets; None for all
    """
    return map_parts("vmap", func, in_dims, out_dims, randomness, chunk_size)


def map_parts(name: str, func: Func, in_dims: Any, out_dims: Any, randomness: str, chunk_size: int | None) -> Func:
    """Returns what `vmap` does; a function that draws random numbers is told so by `name`."""
    check_randomness(name, randomness)
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"vmap: chunk_size must be at least 1, got {chunk_size}")

    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, build = flatten((list(args), kwargs))
        whole = in_dims is None or isinstance(in_dims, int)
        dims = spread(([in_dims] * len(args) if whole else list(in_dims), None), (list(args), kwargs), "vmap: in_dims")
        for leaf, d in zip(leaves, dims, strict=True):
            if d is not None and (not isinstance(leaf, Tensor) or not leaf.shape):
                what = "a tensor without dimensions" if isinstance(leaf, Tensor) else type(leaf).__name__
                raise ValueError(f"vmap: in_dims has dimension {d} for {what}; want None")
        rows = [leaf if d is None else _ops.movedim(leaf, d, 0) for leaf, d in zip(leaves, dims, strict=True)]
        sizes = {r.shape[0] for r, d in zip(rows, dims, strict=True) if d is not None}
        if len(sizes) != 1:
            found = f"dimensions of different sizes {sorted(sizes)}" if sizes else "no dimension"
            raise ValueError(f"vmap: got {found} to take parts along")
        size = sizes.pop()
        if not size:
            raise ValueError("vmap: got a dimension of size 0, of which no result can be made")
        step = size if chunk_size is None else chunk_size
        draws = Draws(name, randomness, {t.device for t in leaves if isinstance(t, Tensor)})

        def calls(step: int, randomness: str) -> list[Any]:
            made = []
            for start in range(0, size, step):
                count = min(step, size - start)
                own = [
                    r if d is None or count == size else _ops.narrow(r, 0, start, count)
                    for r, d in zip(rows, dims, strict=True)
                ]
                with draws:
                    made.append(_together(func, own, dims, build, out_dims, _batch.Level(count, randomness)))
            return made

        try:
            made = calls(step, randomness)
        except NotImplementedError:
            if randomness != "different":
                raise
            draws.restart()  # numbers that are drawn in ways without a rule
            made = calls(1, "error")
        _batch.report()
        join = made[0][1]
        ends = made[0][2]
        return join([joined(list(c), d) for c, d in zip(zip(*(m[0] for m in made), strict=True), ends, strict=True)])

    return mapped


def _together(
    func: Func, rows: Sequence[Any], dims: Sequence[Any], build: Any, out_dims: Any, level: _batch.Level
) -> tuple[list[Tensor], Any, list[Any]]:
    """Returns the results of a function for the parts of a level, which lie along dimension 0 of rows; that of the
    results is the batch too, but for those with the dimension None."""
    with level:
        args, kwargs = build([r if d is None else level.wrap(r) for r, d in zip(rows, dims, strict=True)])
        found, join = flatten(func(*args, **kwargs))
        made = []
        ends = spread(out_dims, join(found), "vmap: out_dims")
        for y, d in zip(tensors_of("vmap", found), ends, strict=True):
            if d is None and level.unwrap(y) is not None:
                raise ValueError("vmap: out_dims is None for a result that differs from part to part; want a dimension")
            made.append(y if d is None else level.whole(y))
    return made, join, ends


def joined(parts: Sequence[Tensor], dim: int | None) -> Tensor:
    """Returns the results of several calls as one, whose batch is its dimension `dim`."""
    if dim is None:
        return parts[0]
    whole = parts[0] if len(parts) == 1 else _ops.cat(list(parts))
    return whole if dim == 0 else _ops.movedim(whole, 0, dim)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the parameters and the buffers of modules of one class by name, stacked, for `vmap`."""
    if not models:
        raise RuntimeError("stack_module_state: want at least one module, got none")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: the modules must be of one class")
    params = {
        name: _ops.stack([dict(m.named_parameters())[name].detach() for m in models]).requires_grad_()
        for name, _ in models[0].named_parameters()
    }
    buffers = {
        name: _ops.stack([dict(m.named_buffers())[name] for m in models]) for name, _ in models[0].named_buffers()
    }
    return params, buffers


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Makes all batch norms of a module go without running statistics, in place, and returns the module.

    They use those of each batch then, in evaluation too, and change nothing, as `vmap` and `grad` want it.
    """
    for module in root.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None  # type: ignore[assignment]
            module.track_running_stats = False
    return root


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """Returns the tensor that stands behind one inside a transform, to look at: all parts of a batch of `vmap`, and of
    an argument of `grad` its elements alone. A tensor behind which there is none is returned as it is.

    Args:
        tensor: the tensor
        recurse: whether to go through all transforms around it, and not the innermost alone
    """
    out = tensor
    while True:
        inner = _batch.inside(out)
        if inner is None and local.depth and out.requires_grad:
            inner = out.detach()
        if inner is None:
            return out
        out = inner
        if not recurse:
            return out
