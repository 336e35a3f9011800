"""Executes steps of pipelines: the engine runs the schedule, and calls back for forward passes, losses and hooks."""

from __future__ import annotations

import contextlib
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from plait import _core
from plait._autograd.backward import PartOfPass
from plait._device import open_device
from plait._engine.callbacks import collect
from plait._engine.runtime import Owner, address, call, check, own
from plait._errors import DistributedError, text_of
from plait._tensor import Tensor
from plait.distributed._stragglers import give_warnings
from plait.distributed.pipelining._schedule import Schedule, Timeline

_FORWARD, _LOSS, _END = 16, 17, 18  # requests of `bind_PipelineNext`; others belong to backward


class Executor(_core.ObjectOwner):
    """Executes steps: on all devices from the calling thread, or on the device of one rank."""

    def __init__(self, devices: Sequence[Any], placement: Sequence[int], group: Any = None) -> None:
        self._lock = threading.Lock()
        self._step: Owner | None = None
        self._pass: PartOfPass | None = None
        place = array("q", placement)
        self.devices = [str(d) for d in devices]
        if group is None:
            numbers = array("q", [open_device(d) for d in devices])
            self._h = check(_core.bind_PipelineNew(address(numbers), len(numbers), address(place), len(place)))
        else:
            device = open_device(devices[0])
            self._h = check(_core.bind_PipelineNewRank(group._h, device, address(place), len(place)))
        self.placement, self.group = list(placement), group

    def device(self, stage: int) -> str:
        """Returns the device of a stage."""
        return self.devices[0 if self.group is not None else self.placement[stage]]

    def tie(self, t: Tensor, stage: int) -> Tensor:
        """Returns the copy of a shared tensor on a stage's device; the tensor itself if it is there."""
        h = check(_core.bind_PipelineTie(self._h, t._h, stage))
        return own(h) if h else t

    def share(self, t: Tensor, stages: Sequence[int]) -> None:
        """Ties this rank's copy of a tensor to the copies of the other given stages, which other ranks run."""
        numbers = array("q", stages)
        check(_core.bind_PipelineShare(self._h, t._h, address(numbers), len(numbers)))

    def run(
        self,
        schedule: Schedule,
        inputs: Sequence[Sequence[Tensor]],
        weights: Sequence[float],
        train: bool,
        forward: Callable[[int, int, list[Tensor]], Sequence[Tensor]],
        loss: Callable[[int, list[Tensor]], Tensor] | None,
        scale: float = 1.0,
        finish: Callable[[], None] | None = None,
        touched: Callable[[], Sequence[Tensor]] = tuple,
    ) -> Tensor | None:
        """Runs a step and returns the weighted sum of the losses.

        If a step fails on one rank, it fails on all ranks, and every rank drops its gradients.

        Args:
            schedule: the order of the passes
            inputs: the first stage's inputs, by micro-batch
            weights: the weight of each micro-batch's loss
            train: whether to run backward
            forward: runs a stage on a micro-batch's tensors
            loss: returns the loss of the last stage's outputs
            scale: a factor for the gradients, not for the losses
            finish: called on ranks after all passes; an exception fails the step on all ranks
            touched: returns the parameters and buffers of a rank's stages that a step changes
        """
        give_warnings()
        with self._exclusive():
            return self._run(schedule, inputs, weights, train, forward, loss, scale, finish, touched)

    def refuse(self, error: BaseException) -> None:
        """Fails the next step on all ranks, because this rank cannot begin it."""
        check(_core.bind_PipelineRefuse(self._h, _reason(error), isinstance(error, MemoryError)))

    def forget(self, tensors: Sequence[Tensor]) -> None:
        """Drops the gradients of this rank's tensors after a failed step, as every rank does."""
        handles = array("q", [t._h for t in tensors])
        call(_core.bind_PipelineForget, address(handles), len(handles))

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Raises an error if another thread, or an outer step, is using the pipeline."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "pipeline: two threads use one pipeline at the same time, or a step is within another; end the step "
                "that is on its way before the next, or give each thread a pipeline of its own"
            )
        try:
            yield
        finally:
            self._lock.release()

    def _run(
        self,
        schedule: Schedule,
        inputs: Sequence[Sequence[Tensor]],
        weights: Sequence[float],
        train: bool,
        forward: Callable[[int, int, list[Tensor]], Sequence[Tensor]],
        loss: Callable[[int, list[Tensor]], Tensor] | None,
        scale: float,
        finish: Callable[[], None] | None,
        touched: Callable[[], Sequence[Tensor]],
    ) -> Tensor | None:
        self._end()
        each = len(inputs[0]) if inputs else 0
        handles = array("q", [t._h for tensors in inputs for t in tensors])
        counts = array("d", weights)
        try:
            step = check(
                _core.bind_PipelineBegin(
                    self._h,
                    schedule._h,
                    address(handles),
                    each,
                    len(inputs),
                    address(counts),
                    len(counts),
                    scale,
                    train,
                    loss is not None,
                )
            )
        except (MemoryError, DistributedError):  # other errors are found before any rank begins the step
            self.forget(touched())
            raise
        self._step = Owner(step)
        try:
            while wanted := call(_core.bind_PipelineNext, step):
                self._answer(step, wanted, forward, loss, finish)
            self._end_pass()
            total = call(_core.bind_PipelineLoss, step)
        except BaseException as error:
            call(_core.bind_PipelineFail, step, _reason(error), isinstance(error, MemoryError))
            self._end()
            self.forget(touched())
            raise
        finally:
            collect()
        return own(total) if total else None

    def _answer(
        self,
        step: int,
        wanted: int,
        forward: Callable[..., Any],
        loss: Callable[..., Any] | None,
        finish: Callable[[], None] | None,
    ) -> None:
        """Answers one request of the engine: a stage's forward, a loss, a part of backward, or the end of the step."""
        if wanted == _END:
            if finish is not None:
                finish()
            check(_core.bind_PipelineAnswer(step, 0, 0))
            return
        where = array("q", bytes(32))
        check(_core.bind_PipelineWhere(step, address(where)))
        stage, micro, mode, n = where
        before = _core.bind_ModeGet()
        try:
            try:
                _core.bind_ModeSet(mode)
                if wanted in (_FORWARD, _LOSS):
                    self._end_pass()
                    buffer = array("q", bytes(8 * n))
                    check(_core.bind_PipelineInputs(step, address(buffer)))
                    tensors = [own(h) for h in buffer]
                    if wanted == _FORWARD:
                        results = forward(stage, micro, tensors)
                    else:
                        assert loss is not None
                        results = [loss(micro, tensors)]
                else:
                    results = self._backward_part(check(_core.bind_PipelinePass(step))).answer(wanted)
            finally:
                _core.bind_ModeSet(before)
            out = array("q", [0 if t is None else t._h for t in results])
        except Exception as error:
            phase = {_FORWARD: "forward", _LOSS: "loss"}.get(wanted, "backward")
            error.add_note(f"raised in stage {stage} on {self.device(stage)}, {phase} of micro-batch {micro}")
            raise
        check(_core.bind_PipelineAnswer(step, address(out), len(out)))

    def _backward_part(self, run: int) -> PartOfPass:
        """Returns the Python side of a backward pass, which may pause between requests."""
        if self._pass is None or self._pass.run != run:
            self._end_pass()
            self._pass = PartOfPass(run)
        return self._pass

    def _end_pass(self) -> None:
        if self._pass is not None:
            ended, self._pass = self._pass, None
            ended.end()

    def measured(self) -> Timeline | None:
        """Waits for the last step and returns the times of its passes; None if they cannot be measured."""
        with self._exclusive():
            if self._step is None:
                return None
            h = check(_core.bind_PipelineMeasured(self._step._h))
        return Timeline(h, "s") if h else None

    def _end(self) -> None:
        self._end_pass()
        self._step = None


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of(error)}"
