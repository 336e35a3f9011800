"""Replicas of a module on several devices."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from plait import _core
from plait._device import open_device
from plait._engine.runtime import address, check, own
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.nn.modules.module import Module


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """Returns replicas of a module, one for each device. The first one shares the module's tensors.

    The gradients of the replicas are summed into the module's. Changes to a replica are lost, except those of the first
    one's buffers.

    Args:
        network: its parameters and buffers must be on the first device
        devices: the devices; one may be listed several times
        detach: whether gradients do not flow back to the module
    """
    replicas = Replicas(network, devices)
    if not detach:
        return replicas.make(network, len(devices))
    with no_grad():
        return replicas.make(network, len(devices))


class Replicas(_core.ObjectOwner):
    """Copies the tensors of a module to devices, and sums the gradients of the copies."""

    def __init__(self, module: Module, devices: Sequence[Any]) -> None:
        named = named_tensors(module)
        self.known, self.devices = [t._h for _, t in named], list(devices)
        handles, numbers = array("q", self.known), array("q", [open_device(d) for d in devices])
        self._h = check(
            _core.bind_ReplicasNew(
                address(handles), len(handles), "\n".join(n for n, _ in named), address(numbers), len(numbers)
            )
        )

    def serves(self, module: Module, devices: Sequence[Any]) -> bool:
        """Whether the module's tensors and the devices are still the same."""
        return self.devices == list(devices) and self.known == [t._h for _, t in named_tensors(module)]

    def make(self, module: Module, n: int) -> list[Module]:
        """Returns replicas of the module on the first n devices."""
        count = len(self.known)
        out = array("q", bytes(8 * n * count))
        check(_core.bind_ReplicasMake(self._h, n, address(out)))
        copies = [own(h) for h in out]
        return [self.replica(module, copies[d * count : (d + 1) * count]) for d in range(n)]

    def replica(self, module: Module, tensors: Sequence[Tensor]) -> Module:
        """Returns a replica of the module that has the given tensors."""
        mapping = {id(t): c for (_, t), c in zip(named_tensors(module), tensors, strict=True)}
        return _copy(module, mapping, {})


def named_tensors(module: Module) -> list[tuple[str, Tensor]]:
    """Returns the parameters and buffers of a module with their names."""
    return [*module.named_parameters(), *module.named_buffers()]


def _copy(module: Module, tensors: dict[int, Tensor], made: dict[int, Module]) -> Module:
    """Returns a copy of a module tree with other tensors. `tensors` maps the id of each tensor to its copy."""
    if id(module) in made:
        return made[id(module)]
    replica = object.__new__(type(module))
    replica.__dict__ = dict(module.__dict__)
    made[id(module)] = replica
    # Plain tensors instead of parameters: they are results of operations, through which gradients flow back.
    replica.__dict__["_parameters"] = {}
    replica.__dict__["_buffers"] = {k: None if b is None else tensors[id(b)] for k, b in module._buffers.items()}
    replica.__dict__["_modules"] = {
        k: None if m is None else _copy(m, tensors, made) for k, m in module._modules.items()
    }
    for k, p in module._parameters.items():
        replica.__dict__["_parameters"][k] = None if p is None else tensors[id(p)]
    return replica
