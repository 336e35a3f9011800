"""The distributed tensor."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, cast

from plait import _core, _ops
from plait._autograd.hooks import RemovableHandle
from plait._engine.arming import disabled_torch_function
from plait._engine.pytree import tree_map
from plait._engine.runtime import address, check, own
from plait._modes import _Mode
from plait._tensor import Number, Tensor
from plait._tensors.elements import attributes, set_attributes
from plait._tensors.storage import deep_copied
from plait.distributed._default_group import init_process_group
from plait.distributed._groups import is_initialized, resolve_group
from plait.distributed.device_mesh import DeviceMesh, existing_mesh
from plait.distributed.tensor._placements import Placement, Replicate, of_numbers, packed, unpacked
from plait.nn.parameter import PARAMETER, Parameter

UNIT = "_of"  # the attribute by which a sharded parameter knows its unit


class DTensor(Tensor):
    """A tensor whose elements lie on the ranks of a mesh. `distribute_tensor` and `DTensor.from_local` make one.

    Ops, modules, losses and optimisers take it where they take a tensor, and gradients are distributed tensors too. Its
    shape is that of the whole tensor.
    """

    __slots__ = ()
    __torch_function__ = disabled_torch_function

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
    ) -> DTensor:
        """Returns the distributed tensor of which `local_tensor` is the calling rank's part, differentiably.

        Args:
            local_tensor: the part
            device_mesh: the mesh; None means all ranks in a row
            placements: one for each dimension of the mesh; None means replicated
            run_check: has no effect: the shape of the part is always checked against `shape`
            shape: of the whole; None means that all ranks' parts have the same shape
            stride: has no effect: a distributed tensor has no memory of its own

        Raises:
            ValueError: if the part has not the shape that the placements give it.
        """
        mesh = mesh_or_world(device_mesh)
        placed, n = packed(placements or [Replicate()] * mesh.ndim)
        sizes = array("q", shape or ())
        return own_distributed(
            check(
                _core.bind_DTensorFromLocal(
                    local_tensor._h,
                    mesh._h,
                    address(placed),
                    n,
                    address(sizes),
                    -1 if shape is None else len(sizes),
                )
            )
        )

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Returns the calling rank's part as an ordinary tensor, differentiably.

        The part of a sum, Partial(), has the gradient of the whole. The part of a mean, Partial("avg"), counts as one
        of n parts: a gradient g of it is n * g for the whole, as from_local gives a part the whole's divided by n.

        Args:
            grad_placements: how the part's gradient lies on the ranks; None means as the tensor does, so a replicated
                tensor's part must be used alike on all ranks
        """
        if grad_placements is None:
            return own(check(_core.bind_DTensorLocal(self._h, 0, -1)))
        placed, n = packed(grad_placements)
        return own(check(_core.bind_DTensorLocal(self._h, address(placed), n)))

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """Returns the whole tensor as an ordinary one, differentiably. Every rank of the mesh calls it."""
        if grad_placements is not None:
            whole = self.redistribute(placements=[Replicate()] * self.device_mesh.ndim)
            return whole.to_local(grad_placements=grad_placements)
        return own(check(_core.bind_DTensorFull(self._h)))

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """Returns the tensor with other placements, differentiably.

        Args:
            device_mesh: the mesh of the tensor, which cannot change
            placements: one for each dimension of the mesh
            async_op: has no effect: every call returns at once
            forward_dtype: refused
            backward_dtype: refused
        """
        if forward_dtype is not None or backward_dtype is not None:
            raise NotImplementedError("redistribute: a dtype for the exchange is not supported; convert the tensor")
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError("redistribute: from one mesh to another is not supported")
        placed, n = packed(placements or [Replicate()] * self.device_mesh.ndim)
        return own_distributed(check(_core.bind_DTensorRedistribute(self._h, address(placed), n)))

    def item(self) -> Number:
        """Waits for the only element, on whichever rank it is, and returns it as a Python number.

        Every rank of the mesh calls it, also as `float(t)`, `int(t)` or `bool(t)`.

        Raises:
            ValueError: if there is not exactly one element.
        """
        return self.full_tensor().item() if self.numel() == 1 else super().item()

    @property
    def placements(self) -> tuple[Placement, ...]:
        """How the tensor lies: a placement for each dimension of the mesh."""
        return unpacked(lambda to, most: _core.bind_DTensorPlacements(self._h, to, most))

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return DeviceMesh._from_handle(check(_core.bind_DTensorMesh(self._h)), self.device, None)

    @property
    def _local_tensor(self) -> Tensor:
        apart = self.detach()  # alive during the call
        return own(check(_core.bind_DTensorLocal(apart._h, 0, -1)))

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Calls `hook` in backward with the gradient, a distributed tensor. A result that is not None replaces it."""
        form = GradientForm(self)

        def run(local: Tensor) -> Tensor | None:
            made = hook(form.of_part(local))
            return None if made is None else form.part("register_hook", made)

        return super().register_hook(run)

    def _settle(self) -> None:
        """Makes a sharded parameter a distributed tensor, if it is not now."""

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        self._settle()
        if not is_distributed(self):
            return super().__reduce_ex__(protocol)
        return rebuilt, (*described(self), {k: v for k, v in attributes(self).items() if k != UNIT})

    def _deep_copied(self, memo: dict[int, Any]) -> Tensor:
        local = deep_copied(self._local_tensor, memo)
        return DTensor.from_local(local, self.device_mesh, self.placements, shape=self.shape)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        placed = ", ".join(repr(p) for p in self.placements)
        return f"DTensor(local_tensor={self._local_tensor!r}, device_mesh={self.device_mesh!r}, placements=({placed}))"


class GradientForm:
    """How the gradient of a distributed tensor lies. The engine has each rank's part of it."""

    __slots__ = ("mesh", "placements", "shape")

    def __init__(self, tensor: DTensor) -> None:
        self.mesh, self.shape = tensor.device_mesh, array("q", tensor.shape)
        self.placements = packed(tensor.placements)

    def of_part(self, local: Tensor) -> DTensor:
        """Returns the gradient of which a rank has a part."""
        placed, n = self.placements
        shape = self.shape
        return own_distributed(
            check(_core.bind_DTensorOfGradient(local._h, self.mesh._h, address(placed), n, address(shape), len(shape)))
        )

    def part(self, name: str, grad: Any) -> Tensor:
        """Returns a rank's part of a gradient that a function of a program has made."""
        if not isinstance(grad, Tensor) or not is_distributed(grad):
            raise TypeError(f"{name}: want a distributed tensor or None, got {type(grad).__name__}")
        placed, n = self.placements
        return own(check(_core.bind_DTensorPartOfGradient(grad._h, address(placed), n, name)))

    def zeros(self, dtype: Any, device: Any) -> DTensor:
        """Returns a gradient of zeros."""
        placed, n = self.placements
        shape, out = self.shape, array("q", bytes(16 * len(self.shape)))
        check(_core.bind_DTensorLocate(self.mesh._h, address(placed), n, address(shape), len(shape), address(out)))
        return self.of_part(_ops.zeros(tuple(out[: len(shape)]), dtype=dtype, device=device))


def gradient_form(tensor: Any) -> GradientForm | None:
    """Returns how the gradient of a tensor lies; None unless it is a distributed one."""
    return GradientForm(tensor) if isinstance(tensor, DTensor) and is_distributed(tensor) else None


class DistributedParameter(DTensor, Parameter):
    """A distributed tensor that a module registers as one to be trained."""

    __slots__ = ()


def settle(tensor: Tensor) -> None:
    """Reshards a sharded parameter, of which a rank saves its part."""
    if isinstance(tensor, DTensor):
        tensor._settle()


def described(t: DTensor) -> tuple[Any, ...]:
    """Returns what `rebuilt` makes a rank's part of a distributed tensor of, without its attributes."""
    category = PARAMETER if isinstance(t, Parameter) else 0
    placed = tuple(packed(t.placements)[0])
    return t._local_tensor, t.device_mesh._described(), placed, tuple(t.shape), t.requires_grad, category


def rebuilt(
    local: Tensor,
    mesh: tuple[Any, ...],
    placed: tuple[int, ...],
    shape: tuple[int, ...],
    requires_grad: bool,
    category: int,
    more: dict[str, Any] | None = None,
) -> DTensor:
    """Returns the distributed tensor that a rank has saved, on a mesh that it has: see `existing_mesh`."""
    made = DTensor.from_local(local.detach(), existing_mesh(*mesh), of_numbers(placed), shape=shape)
    if category == PARAMETER:
        made = cast("DTensor", Parameter(made, requires_grad=requires_grad))
    elif requires_grad:
        made.requires_grad = True
    if more:
        set_attributes(made, more)
    return made


def is_distributed(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether a tensor is distributed now; a sharded parameter is not while it is gathered."""
    return isinstance(tensor, DTensor) and check(_core.bind_DTensorPlacements(tensor._h, 0, 0)) > 0


def whole(value: Any) -> Any:
    """Returns a nested value in which distributed tensors are whole, ordinary ones. All ranks of their mesh call it."""
    return tree_map(lambda v: v.full_tensor() if isinstance(v, Tensor) and is_distributed(v) else v, value)


def pass_outputs(value: Any, mesh: DeviceMesh) -> Any:
    """Returns a nested value whose tensors are outputs of the mesh's pass: backward fails on no rank, or on all."""
    return tree_map(
        lambda v: own(check(_core.bind_DTensorPassOutput(v._h, mesh._h))) if isinstance(v, Tensor) else v, value
    )


def watch_passes(mesh: DeviceMesh, leaves: list[Tensor]) -> None:
    """Makes parameters and buffers lose their gradients, and be as before, when a pass over the mesh has failed."""
    handles = array("q", [t._h for t in leaves])
    check(_core.bind_DTensorWatchPasses(mesh._h, address(handles), len(handles)))


def own_distributed(handle: int) -> DTensor:
    """Returns the distributed tensor of a handle."""
    return cast("DTensor", own(handle))


def mesh_or_world(mesh: DeviceMesh | None) -> DeviceMesh:
    """Returns the mesh, or all ranks in a row."""
    if mesh is not None:
        return mesh
    if not is_initialized():
        init_process_group()
    world = resolve_group(None, "device_mesh")
    return DeviceMesh._create("cpu", (world.size(),), None, None, groups=[world])


def gathered_bytes() -> int:
    """Returns how many bytes this process has gathered for ops that have no rule for distributed tensors."""
    return check(_core.bind_DTensorGathered())


class strict(_Mode):  # noqa: N801
    """An op inside without a rule for distributed tensors raises NotImplementedError instead of gathering its inputs.

    `with strict():` concerns the calling thread.
    """

    def __init__(self, on: bool = True) -> None:
        self._on = on

    def _begin(self) -> int:
        return _core.bind_DTensorStrict(self._on)


_core.set_distributed_class(DTensor)
