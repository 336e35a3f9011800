"""DataParallel: one thread, replicas of a module on many devices."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any

from plait import _core, _ops
from plait._device import device as Device
from plait._device import device_count, open_device
from plait._modes import no_grad
from plait._runtime import address, check, own, wait_devices
from plait._tensor import Tensor
from plait.nn.modules.module import Module
from plait.nn.parallel._inputs import join, samples_of, split, tensors_in
from plait.nn.parallel.modes import BoundedStaleness, Synchronous, SyncMode, as_mode


class DataParallel(Module):
    """Runs a module on several devices at once, each with a part of the batch, from one thread.

    Outputs are joined on one device, where the loss is taken, so the gradients of the replicas add up to the module's
    own, however the batch was cut. The replicas are made anew for each pass: what forward changes in them is lost, but
    for the buffers of the first device, which are the module's own.

    Args:
        module: its parameters and buffers must be on the first device
        device_ids: the devices; all GPUs by default, and without any the module runs as it is
        output_device: where outputs are joined; the first device by default
        dim: the dimension along which inputs are cut and outputs joined
        weights: the devices' shares of a batch, in any unit, or "auto" to measure their speed in the first pass; equal
            by default
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        *,
        weights: Sequence[float] | str | None = None,
    ) -> None:
        super().__init__()
        if device_ids is None:
            device_ids = [Device("gpu", i) for i in range(device_count("gpu"))]
        self.module, self.dim = module, dim
        self.device_ids = [Device(d) for d in device_ids]
        self._numbers = [open_device(d) for d in self.device_ids]
        self._replicas = 0
        self._known: tuple[int, ...] = ()
        self._mode: SyncMode = Synchronous()
        self._measure = isinstance(weights, str)
        if isinstance(weights, str) and weights != "auto":
            raise ValueError(f'DataParallel: weights must be numbers or "auto", got {weights!r}')
        self.weights: list[float] | None = None
        self.set_weights(None if weights is None or isinstance(weights, str) else weights)
        if not self.device_ids:
            return
        if len(set(self._numbers)) != len(self._numbers):
            raise ValueError(f"DataParallel: got a device twice, {[str(d) for d in self.device_ids]}")
        self.output_device = self.device_ids[0] if output_device is None else Device(output_device)
        self._refresh()

    def set_weights(self, weights: Sequence[float] | None) -> None:
        """Sets the devices' shares of a batch, in any unit; None makes them equal."""
        if weights is not None:
            weights = [float(w) for w in weights]
            if len(weights) != len(self.device_ids) or min(weights) < 0 or not 0 < sum(weights) < float("inf"):
                raise ValueError(
                    f"DataParallel: want {len(self.device_ids)} weights, not negative and not all 0, got {weights}"
                )
        self.weights = None if weights is None else list(weights)

    def _tensors(self) -> list[tuple[str, Tensor]]:
        return [*self.module.named_parameters(), *self.module.named_buffers()]

    def _refresh(self) -> None:
        """Makes what copies the tensors, again if the module has others now."""
        named = self._tensors()
        known = tuple(t._h for _, t in named)
        if self._replicas and known == self._known:
            return
        self._release()
        handles, devices = array("q", known), array("q", self._numbers)
        names = "\n".join(n for n, _ in named)
        self._replicas = check(
            _core.bind_ReplicasNew(address(handles), len(handles), names, address(devices), len(devices))
        )
        self._known = known
        if not isinstance(self._mode, Synchronous):
            self.set_sync_mode(self._mode)

    def sizes(self, samples: int) -> list[int]:
        """Returns how many of a batch's samples each device gets."""
        weights, out = array("d", self.weights or ()), array("q", bytes(8 * len(self._numbers)))
        check(_core.bind_BatchSizes(samples, len(out), address(weights), len(weights), address(out)))
        return list(out)

    def scatter(self, inputs: Any, kwargs: dict[str, Any], sizes: Sequence[int]) -> list[tuple[Any, dict[str, Any]]]:
        """Returns the arguments of each device that has samples: tensors cut, everything else the same."""
        used = [d for d, n in zip(self.device_ids, sizes, strict=True) if n]
        counts = [n for n in sizes if n]
        total = sum(counts)

        def cut(t: Tensor) -> list[Tensor]:
            if t.ndim == 0 or t.shape[self.dim] != total:
                # As chunks of their own size, for tensors that do not count the batch's samples.
                if t.ndim == 0:
                    return [t.to(d) for d in used]
                raise ValueError(
                    f"DataParallel: the batch has {total} samples, a tensor of shape {list(t.shape)} has another size "
                    f"in dimension {self.dim}"
                )
            return [p.to(d) for p, d in zip(t.split(counts, self.dim), used, strict=True)]

        pairs = split((tuple(inputs), dict(kwargs)), len(used), cut)
        return [(a, k) for a, k in pairs]

    def replicate(self, module: Module, n: int) -> list[Module]:
        """Returns the module's replicas on the first n devices; the first shares its tensors."""
        self._refresh()
        named = self._tensors()
        out = array("q", bytes(8 * n * len(named)))
        check(_core.bind_ReplicasMake(self._replicas, n, address(out)))
        copies = [own(h) for h in out]
        replicas = []
        for d in range(n):
            part = copies[d * len(named) : (d + 1) * len(named)]
            mapping = {id(t): c for (_, t), c in zip(named, part, strict=True)}
            if d == 0:  # what forward writes to buffers is the module's own
                mapping.update({id(b): b for b in module.buffers()})
            replicas.append(_copy(module, mapping, {}))
        return replicas

    def parallel_apply(self, replicas: Sequence[Module], inputs: Sequence[tuple[Any, dict[str, Any]]]) -> list[Any]:
        """Runs each replica on its part; the devices work at the same time, since calls only enqueue."""
        outputs = []
        for i, (replica, (args, kwargs)) in enumerate(zip(replicas, inputs, strict=True)):
            where = self._used[i]
            try:
                with where:
                    outputs.append(replica(*args, **kwargs))
            except Exception as error:
                error.add_note(f"raised in replica {i} on {where}")
                raise
        return outputs

    def gather(self, outputs: Sequence[Any], output_device: Any) -> Any:
        """Returns the replicas' outputs joined on a device; those without dimensions become a vector."""

        def merge(parts: Sequence[Tensor]) -> Tensor:
            moved = [p.to(output_device) for p in parts]
            return _ops.stack(moved) if moved[0].ndim == 0 else _ops.cat(moved, self.dim)

        return join(outputs, merge)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Runs the module on its devices and returns the joined outputs."""
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        if self._measure:
            self._measure = False
            self.measure(*inputs, **kwargs)
        self._check_devices()
        batch = next(tensors_in((*inputs, kwargs)), None)
        samples = samples_of(inputs, kwargs, self.dim)
        if batch is None or samples == 0:
            return self.module(*inputs, **kwargs)
        sizes = self.sizes(samples)
        self._used = [d for d, n in zip(self.device_ids, sizes, strict=True) if n]
        parts = self.scatter(inputs, kwargs, sizes)
        last = max(i for i, n in enumerate(sizes) if n) + 1
        replicas = [r for r, n in zip(self.replicate(self.module, last), sizes, strict=False) if n]
        return self.gather(self.parallel_apply(replicas, parts), self.output_device)

    def _check_devices(self) -> None:
        for name, t in self._tensors():
            if t.device != self.device_ids[0]:
                raise RuntimeError(
                    f"DataParallel: parameters and buffers must be on {self.device_ids[0]}, the first device, "
                    f"but {name} is on {t.device}"
                )

    def measure(self, *inputs: Any, **kwargs: Any) -> list[float]:
        """Sets the weights to the devices' speed, measured on equal parts of a batch, and returns them."""
        weights, self.weights = self.weights, None
        sizes = self.sizes(samples_of(inputs, kwargs, self.dim))
        if not all(sizes):
            self.weights = weights
            return weights or [1.0] * len(sizes)
        self._used = list(self.device_ids)
        parts = self.scatter(inputs, kwargs, sizes)
        speed = []
        state = [b.clone() for b in self.module.buffers()]
        with no_grad():
            replicas = self.replicate(self.module, len(sizes))
            for replica, (args, kw), where, number, n in zip(
                replicas, parts, self.device_ids, self._numbers, sizes, strict=True
            ):
                best = float("inf")
                for _ in range(3):
                    wait_devices([number])
                    start = time.perf_counter()
                    with where:
                        replica(*args, **kw)
                    wait_devices([number])
                    best = min(best, time.perf_counter() - start)
                speed.append(n / max(best, 1e-9))
            for b, saved in zip(self.module.buffers(), state, strict=True):
                b.copy_(saved)
        self.set_weights([s / sum(speed) for s in speed])
        return list(self.weights or ())

    def set_sync_mode(self, mode: SyncMode | str) -> None:
        """Sets whether gradients of devices that are not done may come with those of a later step, each exactly once.

        Args:
            mode: `synchronous`, `asynchronous` or `bounded_staleness(max)`
        """
        m = as_mode(mode)
        self._refresh()
        bound = m.max if isinstance(m, BoundedStaleness) else -1
        check(_core.bind_ReplicasSetMode(self._replicas, not isinstance(m, Synchronous), bound))
        self._mode = m

    def flush(self) -> None:
        """Adds the gradients that have not come yet, as the last step of training that is not synchronous."""
        check(_core.bind_ReplicasFlush(self._replicas))

    def clocks(self) -> list[int]:
        """Returns by device the steps whose gradients have all come."""
        out = array("q", bytes(8 * len(self._numbers)))
        check(_core.bind_ReplicasClocks(self._replicas, address(out), len(out)))
        return list(out)

    def staleness(self) -> int:
        """Returns the largest number of steps that a gradient has come late."""
        out = array("q", bytes(8 * len(self._numbers)))
        return check(_core.bind_ReplicasClocks(self._replicas, address(out), len(out)))

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Loads a state of this module, or of the one inside: names may begin with `module.` or not."""
        if state_dict and not any(k.startswith("module.") for k in state_dict):
            state_dict = {f"module.{k}": v for k, v in state_dict.items()}
        return super().load_state_dict(state_dict, strict, assign)

    def _release(self) -> None:
        if self.__dict__.get("_replicas"):
            _core.bind_ReplicasRelease(self._replicas)
            self._replicas = 0

    def __del__(self) -> None:
        self._release()


def _copy(module: Module, tensors: dict[int, Tensor], made: dict[int, Module]) -> Module:
    """Returns a shallow copy of a tree of modules with other tensors in it."""
    if id(module) in made:
        return made[id(module)]
    replica = module.__new__(type(module))
    replica.__dict__ = dict(module.__dict__)
    made[id(module)] = replica
    # Plain tensors in the place of parameters: they are results, through which gradients flow back.
    replica.__dict__["_parameters"] = {}
    replica.__dict__["_buffers"] = {k: None if b is None else tensors[id(b)] for k, b in module._buffers.items()}
    replica.__dict__["_modules"] = {
        k: None if m is None else _copy(m, tensors, made) for k, m in module._modules.items()
    }
    for k, p in module._parameters.items():
        replica.__dict__["_parameters"][k] = None if p is None else tensors[id(p)]
    return replica


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Runs a module once on several devices: see `DataParallel`."""
    args = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*args, **(module_kwargs or {}))
