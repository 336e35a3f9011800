"""DataParallel: one thread runs replicas of a module on many devices."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from plait import _core
from plait._device import DeviceLike, device_count, open_device
from plait._device import device as Device
from plait._engine.pytree import flatten
from plait._engine.runtime import address, check, own, wait_devices
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.nn.modules.module import Module
from plait.nn.parallel._inputs import tensors_in
from plait.nn.parallel.modes import BoundedStaleness, Synchronous, SyncMode, as_mode
from plait.nn.parallel.parallel_apply import parallel_apply
from plait.nn.parallel.replicate import Replicas
from plait.nn.parallel.scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


class DataParallel(Module):
    """Runs a module on several devices at once, each with a part of the batch, from one thread.

    Outputs are gathered on one device, which computes the loss, so the gradients of the replicas add up to the
    module's, however the batch was split. Replicas are created for every pass. Changes that forward makes to them are
    lost, except those of the first device's buffers, which are the module's own.

    Args:
        module: its parameters and buffers must be on the first device
        device_ids: the devices; all GPUs by default. Without any device the module runs as it is. A device may be
            listed several times
        output_device: the device that outputs are gathered on; the first device by default
        dim: the dimension along which inputs are split and outputs concatenated
        weights: the devices' relative shares of a batch, or "auto" to measure their speed in the first pass; equal by
            default
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
        *,
        weights: Sequence[float] | str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(module, Module):
            raise TypeError(f"DataParallel: want a module, got {type(module).__name__}")
        if isinstance(device_ids, str | int | Device):
            raise TypeError(f"DataParallel: want a list of devices, got {device_ids!r}")
        if device_ids is None:
            device_ids = [Device(i) for i in range(device_count("gpu"))]
        self.module, self.dim = module, dim
        self.device_ids = [Device(d) for d in device_ids]
        self._copies: Replicas | None = None
        self._mode: SyncMode = Synchronous()
        self._measure = isinstance(weights, str)
        if isinstance(weights, str) and weights != "auto":
            raise ValueError(f'DataParallel: weights must be numbers or "auto", got {weights!r}')
        self.weights: list[float] | None = None
        self.set_weights(None if weights is None or isinstance(weights, str) else weights)
        if not self.device_ids:
            return
        self.output_device = self.device_ids[0] if output_device is None else Device(output_device)
        for d in (*self.device_ids, self.output_device):
            open_device(d)

    def set_weights(self, weights: Sequence[float] | None) -> None:
        """Sets the devices' relative shares of a batch. None makes them equal."""
        if weights is not None:
            weights = [float(w) for w in weights]
            if len(weights) != len(self.device_ids) or min(weights) < 0 or not 0 < sum(weights) < float("inf"):
                raise ValueError(
                    f"DataParallel: want {len(self.device_ids)} weights, not negative and not all 0, got {weights}"
                )
        self.weights = None if weights is None else list(weights)

    def _replicas(self) -> Replicas:
        """Returns the engine's replicas, created again if the module's tensors or the devices have changed."""
        if self._copies is None or not self._copies.serves(self.module, self.device_ids):
            self._copies = Replicas(self.module, self.device_ids)
            self._apply_mode(self._copies)
        return self._copies

    def sizes(self, samples: int) -> list[int]:
        """Returns the number of samples that each device gets of a batch."""
        weights, out = array("d", self.weights or ()), array("q", bytes(8 * len(self.device_ids)))
        check(_core.bind_BatchSizes(samples, len(out), address(weights), len(weights), address(out)))
        return list(out)

    def scatter(self, inputs: Any, kwargs: dict[str, Any], device_ids: Sequence[Any]) -> tuple[Any, Any]:
        """Splits arguments and keyword arguments over the devices: see `nn.parallel.scatter`."""
        weights = self.weights if len(device_ids) == len(self.device_ids) else None
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim, weights=weights)

    def replicate(self, module: Module, device_ids: Sequence[Any]) -> list[Module]:
        """Returns replicas of the module. The first one shares the module's tensors."""
        return self._replicas().make(module, len(device_ids))

    def parallel_apply(self, replicas: Sequence[Module], inputs: Sequence[Any], kwargs: Sequence[Any]) -> list[Any]:
        """Runs each replica on its part of the inputs: see `nn.parallel.parallel_apply`."""
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Sequence[Any], output_device: DeviceLike) -> Any:
        """Concatenates the replicas' outputs on a device: see `nn.parallel.gather`."""
        return gather(outputs, output_device, self.dim)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Runs the module on its devices and returns the concatenated outputs."""
        if not self.device_ids or next(tensors_in((inputs, kwargs)), None) is None:
            return self.module(*inputs, **kwargs)
        if self._measure:
            self._measure = False
            self.measure(*inputs, **kwargs)
        args, named = self.scatter(inputs, kwargs, self.device_ids)
        replicas = self.replicate(self.module, self.device_ids[: len(args)])
        return self.gather(self.parallel_apply(replicas, args, named), self.output_device)

    def measure(self, *inputs: Any, **kwargs: Any) -> list[float]:
        """Measures the devices' speed on equal parts of a batch, sets the weights to it, and returns them."""
        leaves, build = flatten((inputs, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        handles = array("q", [leaves[i]._h for i in places])
        copies, numbers = self._replicas(), [open_device(d) for d in self.device_ids]
        run = _Measurement()
        run._h = check(_core.bind_MeasureNew(copies._h, address(handles), len(handles), self.dim))
        out, parts = array("q", bytes(8 * len(copies.known))), array("q", bytes(8 * len(places)))
        with no_grad():
            while (k := check(_core.bind_MeasureNext(run._h, address(out), address(parts)))) < len(numbers):
                replica = copies.replica(self.module, [own(h) for h in out])
                for i, h in zip(places, parts, strict=True):
                    leaves[i] = own(h)
                args, named = build(leaves)
                with self.device_ids[k]:
                    replica(*args, **named)
                wait_devices([numbers[k]])
        speed = array("d", bytes(8 * len(numbers)))
        check(_core.bind_MeasureWeights(run._h, address(speed)))
        self.set_weights(speed)
        return list(speed)

    def set_sync_mode(self, mode: SyncMode | str) -> None:
        """Sets whether a slow device's gradients may be added in a later step. Each is added exactly once.

        Args:
            mode: `synchronous`, `asynchronous` or `bounded_staleness(max)`
        """
        self._mode = as_mode(mode)
        self._apply_mode(self._replicas())

    def _apply_mode(self, copies: Replicas) -> None:
        m = self._mode
        bound = m.max if isinstance(m, BoundedStaleness) else -1
        check(_core.bind_ReplicasSetMode(copies._h, not isinstance(m, Synchronous), bound))

    def flush(self) -> None:
        """Adds outstanding gradients to the module's. Call it after the last step in an asynchronous mode."""
        check(_core.bind_ReplicasFlush(self._replicas()._h))

    def clocks(self) -> list[int]:
        """Returns, by device, the last step up to which all gradients were added."""
        return self._clocks()[0]

    def staleness(self) -> int:
        """Returns the largest number of steps that a gradient was late."""
        return self._clocks()[1]

    def _clocks(self) -> tuple[list[int], int]:
        out = array("q", bytes(8 * len(self.device_ids)))
        largest = check(_core.bind_ReplicasClocks(self._replicas()._h, address(out), len(out)))
        return list(out), largest

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Loads a state dict of this or of the wrapped module, with or without the prefix `module.` in its names."""
        if state_dict and not any(k.startswith("module.") for k in state_dict):
            state_dict = {f"module.{k}": v for k, v in state_dict.items()}
        return super().load_state_dict(state_dict, strict, assign)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copies": None}


class _Measurement(_core.ObjectOwner):
    """Owns the handle of a measurement."""


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Runs a module once on several devices: see `DataParallel`."""
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*args, **(module_kwargs or {}))
