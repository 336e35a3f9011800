"""Scaling of the loss, so that gradients in float16 do not vanish."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, ClassVar

from plait import _core, _ops
from plait._device import device_count, parse
from plait._dtype import float32
from plait._engine.runtime import address, call, check, handles, own
from plait._engine.warnings import warn
from plait._tensor import Tensor

if TYPE_CHECKING:
    from plait.optim.optimizer import Optimizer


class GradScaler(_core.ObjectOwner):
    """Multiplies losses by a factor, and divides gradients by it before the step.

    A step whose gradients are not all finite is left out, and the factor becomes smaller; after `growth_interval` good
    ones it becomes larger. Ranks that have parts of parameters (`plait.FSDP`, distributed tensors) decide together::

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    Args:
        device: where the model is: on "cuda", without a GPU, the scaler warns and is not enabled
        init_scale: the factor at first
        growth_factor: multiplies it after good steps; more than 1
        backoff_factor: multiplies it after a bad one; less than 1
        growth_interval: how many good steps
        enabled: False makes `scale` and `step` do nothing of this
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = bool(enabled)
        if growth_factor <= 1.0:
            raise ValueError(f"GradScaler: want a growth_factor of more than 1, got {growth_factor}")
        if backoff_factor >= 1.0:
            raise ValueError(f"GradScaler: want a backoff_factor of less than 1, got {backoff_factor}")
        if self._enabled and parse(device)[0] == "gpu" and device_count("gpu") == 0:
            warn(f"{type(self).__name__}: there is no GPU, so the scaler is not enabled; on CPUs device='cpu' scales")
            self._enabled = False
        self._growth_factor, self._backoff_factor = float(growth_factor), float(backoff_factor)
        self._growth_interval = int(growth_interval)
        self._agreed: set[int] = set()  # ids of optimisers for which the ranks know what was found
        self._pipelines: list[Any] = []  # groups of the ranks of pipelines, which have gradients of other stages
        self._h = check(
            _core.bind_ScalerNew(float(init_scale), self._growth_factor, self._backoff_factor, self._growth_interval, 0)
        )

    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._enabled

    def get_scale(self) -> float:
        """Returns the factor, 1 if the scaler is not enabled."""
        return _core.bind_ScalerScale(self._h) if self._enabled else 1.0

    def scale(self, outputs: Any) -> Any:
        """Returns a tensor, or the tensors in a list or another iterable, multiplied by the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self.get_scale()
        if hasattr(outputs, "__iter__"):
            scaled = [self.scale(v) for v in outputs]
            return tuple(scaled) if isinstance(outputs, tuple) else scaled
        raise ValueError(f"scale: want a tensor or an iterable of tensors, got {type(outputs).__name__}")

    @staticmethod
    def _params(optimizer: Optimizer) -> Any:
        return handles([[p for group in optimizer.param_groups for p in group["params"]]])

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients of an optimiser's parameters by the factor, for code that looks at them before `step`.

        Raises:
            RuntimeError: if it was called since the last `update`, or after `step`.
            ValueError: for gradients in float16.
        """
        if self._enabled:
            params = self._params(optimizer)
            call(_core.bind_ScalerUnscale, self._h, id(optimizer), address(params), len(params))
            self._agree(optimizer)

    def _groups(self, optimizer: Optimizer) -> list[Any]:
        """Returns groups of ranks that decide together, beside those of the meshes of distributed gradients."""
        return self._pipelines

    def _agree(self, optimizer: Optimizer) -> None:
        """Tells the ranks that have the rest of the parameters what was found, and hears what they found."""
        self._agreed.add(id(optimizer))
        groups = self._groups(optimizer)
        if not groups:
            return
        from plait.distributed import ReduceOp, all_reduce

        out = array("q")
        while (n := check(_core.bind_ScalerFound(self._h, id(optimizer), address(out), len(out)))) > len(out):
            out = array("q", bytes(8 * n))
        # Whether anything is not finite, and whether there is a gradient at all: of every rank, whatever it has.
        both = _ops.zeros(2, dtype=float32)
        for found in [own(h) for h in out]:
            both[0] = _ops.maximum(both[0], found.to(both.device))
            both[1] = 1.0
        for group in groups:
            all_reduce(both, op=ReduceOp.MAX, group=group._for("whether a GradScaler steps"))
        if len(out) or both[1].item():
            anywhere = both[0]
            check(_core.bind_ScalerFoundElsewhere(self._h, id(optimizer), anywhere._h))

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Unscales the gradients, unless `unscale_` has, and returns `optimizer.step(...)` if all are finite.

        Raises:
            RuntimeError: if it was called since the last `update`, no parameter has a gradient, or with a closure.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if args or "closure" in kwargs:
            raise RuntimeError("step: closures do not work with a GradScaler that is enabled")
        if id(optimizer) not in self._agreed and self._groups(optimizer):
            self.unscale_(optimizer)
        params = self._params(optimizer)
        if call(_core.bind_ScalerCheck, self._h, id(optimizer), address(params), len(params)):
            return optimizer.step(**kwargs)
        return None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Makes the factor smaller if a gradient was not finite, and larger after enough good steps.

        Args:
            new_scale: sets the factor instead
        """
        if not self._enabled:
            return
        self._agreed.clear()
        if new_scale is None:
            call(_core.bind_ScalerUpdate, self._h)
        else:
            check(_core.bind_ScalerSetScale(self._h, float(new_scale)))

    def get_growth_factor(self) -> float:
        """Returns what multiplies the factor after good steps."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets what multiplies the factor after good steps."""
        self._growth_factor = float(new_factor)
        self._send(self._get_growth_tracker())

    def get_backoff_factor(self) -> float:
        """Returns what multiplies the factor after a bad step."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets what multiplies the factor after a bad step."""
        self._backoff_factor = float(new_factor)
        self._send(self._get_growth_tracker())

    def get_growth_interval(self) -> int:
        """Returns after how many good steps the factor becomes larger."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets after how many good steps the factor becomes larger."""
        self._growth_interval = int(new_interval)
        self._send(self._get_growth_tracker())

    def _get_growth_tracker(self) -> int:
        return _core.bind_ScalerGood(self._h) if self._enabled else 0

    def _send(self, good: int) -> None:
        check(
            _core.bind_ScalerSet(self._h, self._growth_factor, self._backoff_factor, self._growth_interval, int(good))
        )

    def state_dict(self) -> dict[str, Any]:
        """Returns the scaler's state, empty if it is not enabled. Call it after `update`."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Sets the scaler's state to one that `state_dict` returned.

        Raises:
            RuntimeError: if it is empty, as that of a scaler that is not enabled.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("load_state_dict: the state is empty, perhaps that of a scaler that was not enabled")
        check(_core.bind_ScalerSetScale(self._h, float(state_dict["scale"])))
        self._growth_factor = float(state_dict["growth_factor"])
        self._backoff_factor = float(state_dict["backoff_factor"])
        self._growth_interval = int(state_dict["growth_interval"])
        self._send(state_dict["_growth_tracker"])

    def __getstate__(self) -> dict[str, Any]:
        return {"device": self._device, "enabled": self._enabled, "state": self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["device"], enabled=state["enabled"])  # type: ignore[misc]
        if state["enabled"]:
            self.load_state_dict(state["state"])


class DeviceGradScaler(GradScaler):
    """What the scalers in the modules of devices have in common: the device is no argument."""

    _kind: ClassVar[str]

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(self._kind, init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(enabled=state["enabled"])  # type: ignore[misc]
        if state["enabled"]:
            self.load_state_dict(state["state"])
