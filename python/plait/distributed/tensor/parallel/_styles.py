"""How a layer is divided, and how its inputs and outputs lie."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import ref

from plait import _core
from plait._engine.rank import here
from plait._modes import is_grad_enabled
from plait._ops.joining import cat
from plait._ops.view import narrow
from plait._tensor import Tensor
from plait.distributed._swap import swap_class
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.tensor._dtensor import DTensor
from plait.distributed.tensor._modules import distribute_parameters
from plait.distributed.tensor._placements import Placement, Replicate, Shard
from plait.nn import Embedding, Linear, Module

Made = TypeVar("Made")


def described(value: Any) -> str:
    """Returns what a plan, or a part of one, says, as a text that is the same on ranks with the same plan."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {described(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "(" + ", ".join(map(described, value)) + ")"
    if isinstance(value, ParallelStyle):
        return type(value).__name__ + described(value.__dict__)
    return repr(value) if value is None or isinstance(value, Placement | bool | int | str) else type(value).__name__


class ParallelStyle(ABC):
    """A way to divide a module, for `parallelize_module`."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """Divides the module among the ranks of a mesh of one dimension, and returns it."""


def _distributed(x: Any, mesh: DeviceMesh, placement: Placement | None, features: int | None = None) -> Any:
    """Returns a tensor as a distributed one; an ordinary tensor is a rank's part.

    Args:
        x: the tensor; what is no tensor, or None, is returned as it is
        mesh: the mesh
        placement: how the tensor lies
        features: the size of the whole's last dimension, of which ranks may have parts of different sizes
    """
    if placement is None or not isinstance(x, Tensor) or isinstance(x, DTensor):
        return x
    shape = None
    if features is not None and isinstance(placement, Shard) and placement.dim in (-1, x.dim() - 1):
        shape = (*x.shape[:-1], features)
    return _once(x, (mesh, placement, shape), lambda: DTensor.from_local(x, mesh, [placement], shape=shape))


def _laid(x: Any, placement: Placement | None) -> Any:
    """Returns a distributed tensor with another placement."""
    if placement is None or not isinstance(x, DTensor) or x.placements == (placement,):
        return x
    return _once(x, placement, lambda: x.redistribute(placements=[placement]))


class _Made:
    """What styles have made of a tensor. Layers that get the same tensor share it, and so their exchanges."""

    def __init__(self, of: Tensor | None = None, state: Any = None) -> None:
        self.of, self.state = None if of is None else ref(of), state
        self.made: dict[Any, Any] = {}

    def __deepcopy__(self, memo: Any) -> _Made:
        return _Made()

    def __reduce__(self) -> Any:
        return _Made, ()


def _once(x: Tensor, what: Any, make: Callable[[], Made]) -> Made:
    """Returns what `make` makes of x, and the same again as long as x is as it was.

    That is in one pass of a model, or where x is what an operation has made. Other tensors, such as those over memory
    of NumPy's, may change unseen, and ranks may call their layers with one more often than with another.
    """
    rank = here()
    if x.is_inference() or (x.is_leaf and not rank.passing):
        return make()
    memory = _core.bind_TensorStorageId(x._h), x.shape, x.stride()
    state = memory, x._version, x.requires_grad, is_grad_enabled(), rank.passes
    seen = x.__dict__.get("_made")
    if not isinstance(seen, _Made) or seen.of is None or seen.of() is not x or seen.state != state:
        seen = x.__dict__["_made"] = _Made(x, state)
    if what not in seen.made:
        seen.made[what] = make()
    return seen.made[what]


def linear_dims(module: Module) -> tuple[int, int] | None:
    """Returns the dimensions of inputs and outputs in the weight of a linear layer; None for other modules.

    Besides `Linear` that is the `Conv1D` of transformers, whose weight is the transpose of a Linear's.
    """
    if isinstance(module, Linear):
        return 1, 0
    weight = module._parameters.get("weight")
    return (0, 1) if type(module).__name__ == "Conv1D" and weight is not None and weight.dim() == 2 else None


class _InPieces:
    """A layer that works on pieces of its input, so that the exchange of one runs beside the product of another."""

    _pieces: tuple[int, Placement, Placement]  # how many, and how the inputs and outputs of the product lie

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Returns what the layer makes of a tensor, which may be given by the name that the layer has for it."""
        pieces, takes, gives = self._pieces
        layer: Any = super()

        def run(x: Any) -> Any:
            return _laid(layer.forward(*((x,) if inputs else ()), **dict.fromkeys(named, x)), gives)

        if len(inputs) + len(named) != 1:
            return layer.forward(*inputs, **named)  # the layer says what it takes
        input = next(iter((*inputs, *named.values())))
        if (dim := _undivided(input, takes, gives)) is None:
            return run(_laid(input, takes))
        parts = _once(input, ("pieces", pieces, dim), lambda: _cut(input, pieces, dim))
        return cat([run(_laid(part, takes)) for part in parts], dim)


def _undivided(x: Tensor, *placements: Placement) -> int | None:
    """Returns the first dimension with several elements, but the last, that a tensor has whole; None without one."""
    divided = {p.dim % x.dim() for p in (*getattr(x, "placements", ()), *placements) if isinstance(p, Shard)}
    return next((d for d in range(x.dim() - 1) if d not in divided and x.shape[d] > 1), None)


def _cut(x: Tensor, pieces: int, dim: int) -> list[Tensor]:
    """Returns a tensor in pieces along a dimension, of sizes that differ by at most one."""
    n = x.shape[dim]
    ends = [n * i // pieces for i in range(pieces + 1)]
    return [narrow(x, dim, a, b - a) for a, b in itertools.pairwise(ends) if b > a]


class _Layer(ParallelStyle):
    """A layer with one input and one output."""

    def __init__(self, takes: Placement | None, gives: Placement, local_output: bool, pieces: int = 1) -> None:
        if isinstance(pieces, bool) or not isinstance(pieces, int) or pieces < 1:
            raise ValueError(f"{type(self).__name__}: want at least one piece, got pieces={pieces!r}")
        self._takes, self._gives, self._local_output, self._pieces = takes, gives, local_output, pieces

    def _hook(self, module: Module, mesh: DeviceMesh, works_on: Placement) -> Module:
        takes = self._takes or works_on
        dims, weight = linear_dims(module), module._parameters.get("weight")
        features = None if dims is None or weight is None else weight.shape[dims[0]]
        in_pieces = self._pieces > 1 and dims is not None
        if in_pieces:
            module.__dict__["_pieces"] = self._pieces, works_on, self._gives
            swap_class(module, _InPieces)

        def before(module: Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
            def laid(x: Any) -> Any:
                return _laid(_distributed(x, mesh, takes, features), None if in_pieces else works_on)

            if inputs:
                return (laid(inputs[0]), *inputs[1:]), named
            first = next(iter(named), None)
            return inputs, {k: laid(v) if k == first else v for k, v in named.items()}

        def after(module: Module, inputs: Any, output: Any) -> Any:
            output = _laid(output, self._gives)
            return output.to_local() if self._local_output and isinstance(output, DTensor) else output

        module.register_forward_pre_hook(before, with_kwargs=True)
        module.register_forward_hook(after)
        return module


class ColwiseParallel(_Layer):
    """Divides the output features of a Linear, or the columns of an Embedding.

    Args:
        input_layouts: how an ordinary input lies; replicated by default
        output_layouts: how the output lies; divided along the last dimension by default
        use_local_output: give the calling rank's part as an ordinary tensor
        pieces: a Linear works on this many pieces of its input, so that the exchange of one runs beside the product of
            another. They are cut along the first dimension that is whole on each rank, but not the last
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
        pieces: int = 1,
    ) -> None:
        super().__init__(input_layouts, output_layouts or Shard(-1), use_local_output, pieces)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        dims = linear_dims(module)
        if dims is None and not isinstance(module, Embedding):
            raise NotImplementedError(f"ColwiseParallel: want Linear or Embedding, got {type(module).__name__}")
        columns = 1 if dims is None else dims[1]
        distribute_parameters(module, device_mesh, lambda name: [Shard(columns if name == "weight" else 0)])
        return self._hook(module, device_mesh, Replicate())


class RowwiseParallel(_Layer):
    """Divides the input features of a Linear, or the rows of an Embedding.

    Args:
        input_layouts: how an ordinary input lies; along the last dimension by default, an Embedding's replicated
        output_layouts: how the output lies; replicated by default. `Shard(1)` reduces and scatters a sequence
        use_local_output: give the calling rank's part as an ordinary tensor
        pieces: a Linear works on this many pieces of its input, so that the exchange of one runs beside the product of
            another. They are cut along the first dimension that is whole on each rank, but not the last
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
        pieces: int = 1,
    ) -> None:
        super().__init__(input_layouts, output_layouts or Replicate(), use_local_output, pieces)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        if isinstance(module, Embedding):
            distribute_parameters(module, device_mesh, lambda _: [Shard(0)])
            return self._hook(module, device_mesh, Replicate())
        if (dims := linear_dims(module)) is not None:
            rows = Shard(dims[0])
            distribute_parameters(module, device_mesh, lambda name: [rows if name == "weight" else Replicate()])
            return self._hook(module, device_mesh, Shard(-1))
        raise NotImplementedError(f"RowwiseParallel: want Linear or Embedding, got {type(module).__name__}")


class SequenceParallel(_Layer):
    """Replicates the parameters of a norm or a dropout, which works on a divided sequence.

    Args:
        sequence_dim: the dimension of the input that is divided
        use_local_output: give the calling rank's part as an ordinary tensor
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self._divided = Shard(sequence_dim)
        super().__init__(None, self._divided, use_local_output)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        distribute_parameters(module, device_mesh, lambda _: [Replicate()])
        return self._hook(module, device_mesh, self._divided)


def _each(layouts: Placement | Sequence[Placement | None] | None) -> tuple[Placement | None, ...]:
    if layouts is None:
        return ()
    return (layouts,) if isinstance(layouts, Placement) else tuple(layouts)


class PrepareModuleInput(ParallelStyle):
    """Lays the inputs of a module.

    Args:
        input_layouts: how each ordinary input lies; None leaves one as it is
        desired_input_layouts: how each input shall lie
        input_kwarg_layouts: the same for inputs by name
        desired_input_kwarg_layouts: the same for inputs by name
        use_local_output: give the module the calling rank's parts as ordinary tensors
    """

    def __init__(
        self,
        *,
        input_layouts: Placement | Sequence[Placement | None] | None = None,
        desired_input_layouts: Placement | Sequence[Placement | None] | None = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self._inputs, self._wanted = _each(input_layouts), _each(desired_input_layouts)
        if len(self._inputs) != len(self._wanted):
            raise ValueError("PrepareModuleInput: want as many desired_input_layouts as input_layouts")
        self._named, self._named_wanted = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        self._local = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def lay(x: Any, given: Placement | None, wanted: Placement | None) -> Any:
            x = _laid(_distributed(x, device_mesh, given), wanted)
            return x.to_local() if self._local and isinstance(x, DTensor) else x

        def before(module: Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], Any]:
            if self._inputs and len(inputs) != len(self._inputs):
                raise ValueError(f"PrepareModuleInput: got {len(inputs)} inputs and {len(self._inputs)} layouts")
            if self._inputs:
                inputs = tuple(map(lay, inputs, self._inputs, self._wanted))
            return inputs, {k: lay(v, self._named.get(k), self._named_wanted.get(k)) for k, v in named.items()}

        module.register_forward_pre_hook(before, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Lays the outputs of a module.

    Args:
        output_layouts: how each ordinary output lies; None leaves one as it is
        desired_output_layouts: how each output shall lie
        use_local_output: give the calling rank's parts as ordinary tensors
    """

    def __init__(
        self,
        *,
        output_layouts: Placement | Sequence[Placement | None],
        desired_output_layouts: Placement | Sequence[Placement | None],
        use_local_output: bool = True,
    ) -> None:
        self._outputs, self._wanted, self._local = (
            _each(output_layouts),
            _each(desired_output_layouts),
            use_local_output,
        )
        if len(self._outputs) != len(self._wanted):
            raise ValueError("PrepareModuleOutput: want as many desired_output_layouts as output_layouts")

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def lay(x: Any, given: Placement | None, wanted: Placement | None) -> Any:
            x = _laid(_distributed(x, device_mesh, given), wanted)
            return x.to_local() if self._local and isinstance(x, DTensor) else x

        def after(module: Module, inputs: Any, output: Any) -> Any:
            if not isinstance(output, tuple):
                return lay(output, self._outputs[0], self._wanted[0])
            if len(output) != len(self._outputs):
                raise ValueError(f"PrepareModuleOutput: got {len(output)} outputs and {len(self._outputs)} layouts")
            return tuple(map(lay, output, self._outputs, self._wanted))

        module.register_forward_hook(after)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """Lays the inputs and the outputs of a module: the arguments of `PrepareModuleInput` and `PrepareModuleOutput`."""

    def __init__(
        self,
        *,
        input_layouts: Placement | Sequence[Placement | None] | None = None,
        desired_input_layouts: Placement | Sequence[Placement | None] | None = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Placement | Sequence[Placement | None],
        desired_output_layouts: Placement | Sequence[Placement | None],
        use_local_output: bool = True,
    ) -> None:
        self._before = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self._after = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        return self._after._apply(self._before._apply(module, device_mesh), device_mesh)
