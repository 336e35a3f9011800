"""Pipeline: one thread trains a model whose stages are on many devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plait._device import device as Device
from plait._modes import is_grad_enabled, no_grad
from plait._tensor import Tensor
from plait.amp.grad_scaler import GradScaler
from plait.distributed.pipelining._batch import merge_outputs, micro_batch_sizes, move_to, splitter
from plait.distributed.pipelining._executor import Executor
from plait.distributed.pipelining._loss import MicroLosses, place_loss
from plait.distributed.pipelining._model import balance, estimate, layers_of, measure, tensors_of, try_stages
from plait.distributed.pipelining._schedule import Picture, Schedule, Timeline, placement
from plait.distributed.pipelining._values import pack
from plait.nn.modules.container import Sequential
from plait.nn.modules.module import Module, _convert, _indent, describe
from plait.nn.parallel._inputs import batch_size, merge_nested, split_nested, tensors_in
from plait.nn.parallel.replicate import _copy


class Pipeline(Module):
    """Trains a model whose layers are on several devices, from one thread.

    A batch is split into micro-batches, so that the devices work on different micro-batches at the same time. The
    layers are moved to their devices. Parameters keep their names, so state dicts of the model can be loaded. A
    parameter that several stages share is on the device of the first, and gets the sum of all gradients.

    Args:
        model: a `Sequential`, or a list of modules
        devices: the devices, in the order of the stages
        chunks: the number of micro-batches that a batch is split into, along dimension 0
        schedule: the name of a schedule, a `Schedule`, or its text
        loss_fn: called with output and target, returns the scalar loss of a micro-batch; without it the model's output
            is the loss. The tensors of a loss module are moved to the last device
        split: "balanced", or the number of layers of each stage
        reduction: whether the loss is a "mean" over samples or a "sum"; `loss_fn.reduction` by default.
            `nn.CrossEntropyLoss`, `nn.NLLLoss` and their functions may ignore targets and have class weights. If
            another loss uses them, an error is raised when micro-batches differ in ignored targets or weights
        stages_per_device: for schedules that allow several stages per device
        max_live: the maximum number of activations on a device; one micro-batch in one stage counts as one
        example: an input for checking that the stages fit, and for measuring the layers for a balanced split; without
            it the split is by numbers of parameters

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: if there are fewer layers than stages, or fewer chunks than devices, or the schedule is for other
            sizes or exceeds `max_live`.
    """

    def __init__(
        self,
        model: Any,
        devices: Sequence[Any],
        chunks: int,
        schedule: str | Schedule = "1f1b",
        loss_fn: Callable[..., Tensor] | None = None,
        *,
        split: str | Sequence[int] = "balanced",
        reduction: str | None = None,
        stages_per_device: int | None = None,
        max_live: int | None = None,
        example: Any = None,
    ) -> None:
        super().__init__()
        if isinstance(devices, str | Device) or not devices:
            raise TypeError(f"Pipeline: want a list of devices, got {devices!r}")
        if not isinstance(chunks, int) or isinstance(chunks, bool):
            raise TypeError(f"Pipeline: want a whole number of chunks, got {chunks!r}")
        if not isinstance(schedule, str | Schedule):
            raise TypeError(f"Pipeline: want a schedule or its name, got {schedule!r}")
        if loss_fn is not None and not callable(loss_fn):
            raise TypeError(f"Pipeline: want a loss_fn that can be called, got {loss_fn!r}")
        layers = layers_of(model)
        self.__dict__["_modules"] = layers._modules  # keeps their names in the model
        self.__dict__["loss_fn"] = loss_fn  # a loss module must not become a child
        self.devices, self.chunks = [str(d) for d in devices], chunks
        if chunks < len(self.devices):
            raise ValueError(
                f"Pipeline: want at least as many micro-batches as devices, got {chunks} for {len(self.devices)}"
            )
        self.reduction: str = getattr(loss_fn, "reduction", "mean") if reduction is None else reduction
        if self.reduction not in ("mean", "sum"):
            raise ValueError(f'Pipeline: the loss must be a "mean" or a "sum" over samples, got {self.reduction!r}')
        place = self._plan(schedule, stages_per_device)
        if max_live is not None:
            self.schedule().check_memory(max_live)
        sizes = self._sizes(layers, split, len(place), example)
        self._made = (schedule if isinstance(schedule, str) else str(schedule), sizes, stages_per_device)
        modules = list(layers)
        self._stages: list[list[Module]] = []
        for n in sizes:
            self._stages.append(modules[sum(map(len, self._stages)) :][:n])
        if example is not None:
            try_stages([_Chain(stage) for stage in self._stages], example)
        self._executor = Executor(self.devices, place)
        self._copies: list[dict[int, Tensor]] = []
        self._place()

    def _plan(self, schedule: str | Schedule, stages_per_device: int | None) -> list[int]:
        """Prepares the schedule, and returns the device of each stage."""
        n = len(self.devices)
        custom = schedule if isinstance(schedule, Schedule) else None
        if isinstance(schedule, str) and any(c in schedule for c in ", \n"):
            custom = Schedule.parse(schedule)
        self._schedules: dict[int, Schedule] = {}
        if custom is None:
            self._chunked = (str(schedule), stages_per_device)
            return placement(str(schedule), n, stages_per_device)
        custom.validate()
        if custom.micro_batches != self.chunks or custom.devices != n:
            raise ValueError(
                f"Pipeline: the schedule is for {custom.micro_batches} micro-batches on {custom.devices} devices, got "
                f"{self.chunks} on {n}"
            )
        self._schedules[self.chunks] = custom
        self._custom = custom
        return custom.placement

    def _sizes(self, layers: Any, split: str | Sequence[int], stages: int, example: Any) -> list[int]:
        if not isinstance(split, str):
            if not isinstance(split, Sequence) or not all(isinstance(n, int) for n in split):
                raise TypeError(f'Pipeline: split must be "balanced" or numbers of layers, got {split!r}')
            sizes = [int(n) for n in split]
            if len(sizes) != stages or sum(sizes) != len(layers) or min(sizes) < 1:
                raise ValueError(
                    f"Pipeline: want {stages} stages that make up {len(layers)} layers, got a split of {sizes}"
                )
            return sizes
        if split != "balanced":
            raise ValueError(f'Pipeline: split must be "balanced" or numbers of layers, got {split!r}')
        if len(layers) < stages:
            raise ValueError(f"Pipeline: got {len(layers)} layers for {stages} stages: a stage needs at least one")
        return balance(estimate(layers) if example is None else measure(layers, example), stages)

    def _place(self) -> None:
        """Moves every tensor to the device of the first stage that has it, and creates copies for other stages."""
        owned: dict[int, int] = {}
        for s, stage in enumerate(self._stages):
            for t in tensors_of(stage):
                owned.setdefault(id(t), s)
        with no_grad():
            for s, stage in enumerate(self._stages):
                for module in (m for layer in stage for m in layer.modules()):
                    self._move(module, s, owned)
        for s, stage in enumerate(self._stages):
            copies = {id(t): self._executor.tie(t, s) for t in tensors_of(stage)}
            foreign = any(copies[id(t)] is not t for t in tensors_of(stage))
            self._copies.append(copies if foreign else {})
        place_loss(self.loss_fn, self._executor.device(len(self._stages) - 1), set(owned))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Pipeline:
        """Applies a function to parameters and buffers, such as a change of dtype. They stay on their devices."""
        super()._apply(fn, recurse)
        self._executor = Executor(self.devices, self._executor.placement)
        self._copies = []
        self._place()
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        # Contains the model and its split. Streams and copies of shared tensors are created again.
        schedule, sizes, stages_per_device = self._made
        layers = Sequential()
        layers.__dict__["_modules"] = self._modules
        arguments = (layers, self.devices, self.chunks, schedule, self.loss_fn, sizes, self.reduction)
        return _remade, (*arguments, stages_per_device, self.training)

    def _move(self, module: Module, stage: int, owned: dict[int, int]) -> None:
        """Moves the tensors of a module that the stage owns to the stage's device."""
        device = self._executor.device(stage)
        for p in module._parameters.values():
            if p is not None and owned[id(p)] == stage:
                _convert(p, lambda t: t.to(device))
        for name, b in module._buffers.items():
            if b is not None and owned[id(b)] == stage and b.device != Device(device):
                module._buffers[name] = made = b.to(device)
                owned[id(made)] = stage

    def schedule(self, micro_batches: int | None = None) -> Schedule:
        """Returns the schedule for a number of micro-batches, `chunks` by default."""
        m = self.chunks if micro_batches is None else micro_batches
        if m not in self._schedules:
            if hasattr(self, "_custom"):
                self._schedules[m] = self._custom.first(m)
            else:
                name, stages = self._chunked
                self._schedules[m] = Schedule(name, len(self.devices), m, stages)
        return self._schedules[m]

    def stage(self, index: int) -> list[Module]:
        """Returns the layers of a stage."""
        return list(self._stages[index])

    def step(
        self, x: Any, target: Any = None, *, return_outputs: bool = True, scaler: GradScaler | None = None
    ) -> tuple[Tensor, Any]:
        """Runs forward and backward on a batch, and accumulates the gradients.

        Args:
            x: the input, a tensor or nested tensors, all with the batch along dimension 0
            target: the target of `loss_fn`
            return_outputs: whether to return the output
            scaler: a `GradScaler`, by whose factor the gradients are multiplied; its `step` divides them again

        Returns:
            The loss of the batch, and the output, None without `loss_fn` or `return_outputs`. After an error, the
            gradients of some micro-batches may be accumulated already.

        Raises:
            RuntimeError: under no_grad, or if the loss is not a scalar.
            TypeError: if the input contains no tensor.
            ValueError: if the batch is empty.
        """
        if not is_grad_enabled():
            raise RuntimeError("Pipeline.step: gradients are not recorded (under no_grad); evaluate instead")
        if scaler is not None and not isinstance(scaler, GradScaler):
            raise TypeError(f"Pipeline.step: want a GradScaler, got {type(scaler).__name__}")
        scale = 1.0 if scaler is None else scaler.get_scale()
        loss, output = self._run(x, target, True, return_outputs and self.loss_fn is not None, scale)
        assert loss is not None
        return loss, output

    def evaluate(self, x: Any, target: Any = None) -> tuple[Tensor | None, Any]:
        """Runs forward without gradients. Returns the loss, None without a target, and the output."""
        return self._run(x, target, False, True)

    def forward(self, x: Any) -> Any:
        """Returns the model's output, without gradients. Use `step` for training."""
        return self.evaluate(x)[1]

    def _run(self, x: Any, target: Any, train: bool, keep: bool, scale: float = 1.0) -> tuple[Tensor | None, Any]:
        if not any(True for _ in tensors_in(x)):
            raise TypeError(f"Pipeline: want a tensor, or tensors in tuples, lists and dicts, got {type(x).__name__}")
        samples = batch_size((x,), {}, 0)
        if samples == 0:
            raise ValueError("Pipeline: got an input without samples along dimension 0")
        sizes = micro_batch_sizes(samples, self.chunks)
        # The whole target at once, since parts would wait for later work of the device.
        target = move_to(target, self.devices[self._executor.placement[-1]])
        parts = split_nested((x, target), len(sizes), splitter("Pipeline", sizes))
        packed = [pack(part[0]) for part in parts]
        stages = [self._stage(s) for s in range(len(self._stages))]
        # By micro-batch, a function that rebuilds the nested input of the next stage from tensors.
        rebuild = [fill for _, fill in packed]
        outputs: list[Any] = [None] * len(sizes)
        last = len(stages) - 1

        def forward(stage: int, micro: int, tensors: list[Tensor]) -> list[Tensor]:
            out = stages[stage](rebuild[micro](tensors))
            tensors, rebuild[micro] = pack(out)
            if stage == last and keep:
                outputs[micro] = rebuild[micro]([t.detach() for t in tensors])
            return tensors

        losses = MicroLosses("Pipeline", self.loss_fn, self.reduction, target, sizes)

        def loss(micro: int, tensors: list[Tensor]) -> Tensor:
            return losses(micro, rebuild[micro](tensors), parts[micro][1])[0]

        wanted = self.loss_fn is not None and (train or target is not None)
        total = self._executor.run(
            self.schedule(len(sizes)),
            [tensors for tensors, _ in packed],
            losses.weights,
            train,
            forward,
            loss if wanted else None,
            scale,
        )
        losses.check()
        return total, merge_nested(outputs, merge_outputs) if keep else None

    def _stage(self, index: int) -> Callable[[Any], Any]:
        """Returns a function that runs a stage, with copies of shared tensors that are on other devices."""
        copies = self._copies[index]
        if not copies:
            return _Chain(self._stages[index])
        made: dict[int, Module] = {}
        return _Chain([_copy(layer, copies, made) for layer in self._stages[index]])

    def timeline(self) -> Timeline | None:
        """Waits for the last step and returns the times of its passes; None before the first step."""
        return self._executor.measured()

    def plot(self) -> Picture:
        """Draws the last step as measured, below the schedule's prediction for the measured times of the stages."""
        measured = self.timeline()
        if measured is None:
            return self.schedule().plot()
        micro = 1 + max(s.micro for s in measured.spans)
        costs: dict[str, Any] = {**measured.costs()}
        predicted = self.schedule(micro).simulate(**costs)
        predicted._unit = "s"
        return predicted.plot(measured)

    def _repr_svg_(self) -> str:
        return self.plot().svg

    def extra_repr(self) -> str:
        """Returns the schedule, the number of micro-batches and the devices, for `print`."""
        return f"schedule={self.schedule().name}, chunks={self.chunks}, devices=[{', '.join(self.devices)}]"

    def __repr__(self) -> str:
        names = iter(self._modules)
        stages = []
        for s, stage in enumerate(self._stages):
            lines = [_indent(f"({next(names)}): {layer!r}") for layer in stage]
            stages.append(_indent(f"(stage {s}, {self._executor.device(s)}): {describe('', '', lines)}"))
        return describe(self._get_name(), self.extra_repr(), stages)


def _remade(
    layers: Any,
    devices: Any,
    chunks: int,
    schedule: str,
    loss_fn: Any,
    split: Any,
    reduction: str,
    stages_per_device: int | None,
    training: bool,
) -> Pipeline:
    """Creates the pipeline of a copy or a pickle."""
    made = Pipeline(
        layers,
        devices,
        chunks,
        schedule,
        loss_fn,
        split=split,
        reduction=reduction,
        stages_per_device=stages_per_device,
    )
    made.training = training
    return made


class _Chain(Module):
    """Calls layers one after the other. The layers are not its children."""

    def __init__(self, layers: Sequence[Module]) -> None:
        super().__init__()
        self.__dict__["layers"] = list(layers)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x
