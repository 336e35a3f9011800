"""Schedules for ranks, with PyTorch's names: each rank has one or more stages and calls `step`."""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from plait import _ops
from plait._dtype import float32, float64
from plait._modes import is_grad_enabled, no_grad
from plait._tensor import Tensor
from plait.distributed._collectives import all_reduce
from plait.distributed._groups import resolve_group
from plait.distributed._work import ReduceOp
from plait.distributed.fsdp._module import one_step, units_in
from plait.distributed.pipelining._batch import merge_outputs, micro_batch_sizes, move_to, splitter
from plait.distributed.pipelining._executor import Executor
from plait.distributed.pipelining._loss import MicroLosses, place_loss
from plait.distributed.pipelining._schedule import Schedule, Timeline, placement
from plait.distributed.pipelining._values import pack
from plait.distributed.pipelining.stage import PipelineStage
from plait.distributed.tensor._dtensor import is_distributed, whole
from plait.nn.parallel._inputs import batch_size, merge_nested, split_nested
from plait.nn.utils.clip_grad import clip_grads_with_norm_, norm_of_gradients

__all__ = [
    "Schedule1F1B",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "get_schedule_class",
]


class _Schedule:
    """The base class of schedules.

    Args:
        stage: this rank's stage, or list of stages
        n_microbatches: the number of micro-batches that a batch is split into, along dimension 0
        loss_fn: called with output and target, returns the scalar loss of a micro-batch
        args_chunk_spec: must be None
        kwargs_chunk_spec: must be None
        output_merge_spec: must be None
        scale_grads: whether the loss is the mean of the micro-batches' losses, weighted by samples, or their sum

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: if there are fewer micro-batches than ranks, or this rank has the wrong stages for the schedule.
    """

    _name = ""

    def __init__(
        self,
        stage: PipelineStage | Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ) -> None:
        if not (args_chunk_spec is None and kwargs_chunk_spec is None and output_merge_spec is None):
            raise NotImplementedError(f"{type(self).__name__}: batches are cut and joined along dimension 0 only")
        given = [stage] if isinstance(stage, PipelineStage) else stage
        if not isinstance(given, list | tuple) or not given or not all(isinstance(s, PipelineStage) for s in given):
            raise TypeError(f"{type(self).__name__}: want a PipelineStage, or a list of some, got {stage!r}")
        if not isinstance(n_microbatches, int):
            raise TypeError(f"{type(self).__name__}: want a whole number of microbatches, got {n_microbatches!r}")
        if loss_fn is not None and not callable(loss_fn):
            raise TypeError(f"{type(self).__name__}: want a loss_fn that can be called, got {loss_fn!r}")
        stages = sorted(given, key=lambda s: s.stage_index)
        first = stages[0]
        ranks, rank = first.group.size(), first.group.rank()
        if n_microbatches < ranks:
            raise ValueError(
                f"{type(self).__name__}: the number of microbatches ({n_microbatches}) must be greater than or equal "
                f"to the number of ranks ({ranks})"
            )
        self._stages = {s.stage_index: s for s in stages}
        place = placement(self._name, ranks, len(stages))
        mine = [i for i, r in enumerate(place) if r == rank]
        if mine != list(self._stages) or len(place) != first.num_stages:
            raise ValueError(
                f"{type(self).__name__}: rank {rank} of {ranks} must have the stages {mine} of {len(place)}, got "
                f"{list(self._stages)} of {first.num_stages}"
            )
        _check_fit(stages)
        self.n_microbatches, self.loss_fn, self.scale_grads = n_microbatches, loss_fn, scale_grads
        self._has_backward = loss_fn is not None
        self.schedule = Schedule(self._name, ranks, self.n_microbatches, len(stages))
        self._place = place
        self._executor = Executor([first.device], place, first.group)
        self._share(stages)
        if stages[-1].is_last:
            place_loss(
                loss_fn, first.device, {id(t) for s in stages for t in (*s.submod.parameters(), *s.submod.buffers())}
            )

    def _share(self, stages: Sequence[PipelineStage]) -> None:
        """Ties shared parameters to their copies on other ranks."""
        shared: dict[int, tuple[Tensor, list[int]]] = {}
        for s in stages:
            for p, users in s.tied:
                shared.setdefault(id(p), (p, users))
        mine = {tuple(users): 0 for _, users in shared.values()}
        for p, users in shared.values():
            mine[tuple(users)] += 1
            self._executor.share(p, users)
        for s in stages:
            for sharing, n in mine.items():
                if s.stage_index in sharing and sum(tuple(users) == sharing for _, users in s.tied) != n:
                    raise ValueError(
                        f"{type(self).__name__}: stages of this rank have different tensors that are tied between the "
                        f"stages {list(sharing)}, want one that they share"
                    )
        self._copies = {id(p) for p, users in shared.values() if self._place[users[0]] != self._executor.group.rank()}

    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Runs forward and backward on a batch. Every rank of the pipeline calls it.

        If it fails on one rank, for example because memory runs out, it raises on every rank. All gradients of the
        stages' parameters are then dropped, also those accumulated before. The next step is not affected.

        Args:
            args: the batch, on the rank with the first stage
            target: the target of `loss_fn`, on the rank with the last stage
            losses: a list that is replaced by the micro-batches' losses, on the rank with the last stage
            return_outputs: whether the rank with the last stage returns the output
            kwargs: keyword arguments of this rank's stages, split like the batch

        Returns:
            The output on the rank with the last stage, None on the others.

        Raises:
            RuntimeError: under no_grad; use `eval`.
            TypeError: if losses is not a list.
            ValueError: if arguments are on the wrong rank, or the batch has fewer samples than micro-batches.
        """
        if not is_grad_enabled():
            raise RuntimeError(
                f"{type(self).__name__}.step() requires gradients to be enabled, use eval() under no_grad"
            )
        return self._run(args, kwargs, target, losses, True, return_outputs)[0]

    def eval(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Runs forward on a batch, without gradients. The arguments are those of `step`."""
        with no_grad():
            return self._run(args, kwargs, target, losses, False, return_outputs)[0]

    @no_grad()
    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
        """Scales the gradients of all ranks so that their norm is at most max_norm, and returns the norm before.

        Every rank calls it after a step. A parameter that several stages share counts once.
        """
        p = float(norm_type)
        seen = {id(q): q for s in self._stages.values() for q in s.submod.parameters() if q.grad is not None}
        own = [q for i, q in seen.items() if i not in self._copies]
        total = norm_of_gradients(own, p)
        if not own:
            first = next((q for s in self._stages.values() for q in s.submod.parameters()), total)
            nothing = math.inf if p == -math.inf else 0.0
            total = _ops.full((), fill_value=nothing, dtype=first.dtype, device=self._executor.devices[0])
        # Stages may have other dtypes.
        total = total if total.dtype is float64 else total.to(float32)
        op = {math.inf: ReduceOp.MAX, -math.inf: ReduceOp.MIN}.get(p, ReduceOp.SUM)
        powers = op is ReduceOp.SUM and p != 0
        total = total**p if powers else total
        all_reduce(
            total,
            op,
            resolve_group(self._executor.group, "clip_grad_norm_")._for("the norm of the gradients of a pipeline"),
        )
        total = total ** (1 / p) if powers else total
        if error_if_nonfinite and not math.isfinite(total.item()):
            raise RuntimeError(f"clip_grad_norm_: the norm of order {p} is {total.item()}")
        clip_grads_with_norm_(list(seen.values()), max_norm, total)
        return total

    def timeline(self) -> Timeline | None:
        """Waits for the last step and returns the times of this rank's passes."""
        return self._executor.measured()

    def __repr__(self) -> str:
        mine = ", ".join(map(str, self._stages))
        return (
            f"<{type(self).__name__}: {len(self._place)} stages, of them here {mine}, "
            f"{self.n_microbatches} micro-batches>"
        )

    def _run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        losses: Any,
        train: bool,
        keep: bool,
        scale: float = 1.0,
    ) -> tuple[Any, Tensor | None]:
        """Returns the output and the loss of the batch, on the rank with the last stage, and elsewhere None."""
        name, m = type(self).__name__, self.n_microbatches
        if losses is not None and not isinstance(losses, list):
            raise TypeError(f"{name}: losses must be a list but got a {type(losses).__name__}")
        first, last = 0 in self._stages, len(self._place) - 1 in self._stages
        if bool(args) != first:
            raise ValueError(
                f"{name}: the batch goes to the rank with the first stage, "
                + ("which got none" if first else "this one has the stages " + str(list(self._stages)))
            )
        if target is not None and not last:
            raise ValueError(
                f"{name}: the target goes to the rank with the last stage, this one has {list(self._stages)}"
            )
        if train and last and self.loss_fn is None:
            raise ValueError(f"{name}: a step needs a loss_fn; use eval() for the output alone")
        wanted = last and self.loss_fn is not None and (train or target is not None)
        if wanted and target is None:
            raise ValueError(f"{name}: the rank with the last stage needs a target")
        samples = batch_size((args, target), kwargs, 0)
        sizes = micro_batch_sizes(samples, m) if samples else [1] * m
        if len(sizes) < m:
            raise ValueError(f"{name}: got {samples} samples for {m} microbatches")
        device = next(iter(self._stages.values())).device
        try:
            # The whole target at once, since parts would wait for later work of the device.
            target = move_to(target, device)
            cuts = split_nested((args, target, move_to(kwargs, device)), m, splitter(name, sizes))
            packed = [pack(c[0]) for c in cuts]
            micro_losses = MicroLosses(name, self.loss_fn, "mean" if self.scale_grads else "sum", target, sizes)
        except MemoryError as error:
            self._executor.refuse(error)
            self._executor.forget(self._touched(train))
            raise
        outputs: list[Any] = [None] * m
        found: list[Any] = [None] * m
        merged: list[Any] = []

        def forward(stage: int, micro: int, tensors: list[Tensor]) -> list[Tensor]:
            here = self._stages[stage]
            values = packed[micro][1](tensors) if stage == 0 else tensors
            out = here(*values, **cuts[micro][2])
            if not here.is_last:
                return pack(out)[0]
            outputs[micro] = out
            return [t._local_tensor if is_distributed(t) else t for t in pack(out)[0]]

        def loss(micro: int, _tensors: list[Tensor]) -> Tensor:
            value, found[micro] = whole(micro_losses(micro, outputs[micro], cuts[micro][1]))
            outputs[micro] = merge_nested([outputs[micro]], lambda ts: ts[0].detach()) if keep else None
            return value

        def finish() -> None:
            micro_losses.check()
            if last and keep:
                merged.append(merge_nested(outputs, merge_outputs))

        with one_step(units_in(s.submod for s in self._stages.values()) if train else ()):
            total = self._executor.run(
                self.schedule,
                [t for t, _ in packed] if first else [],
                micro_losses.weights,
                train,
                forward,
                loss if wanted else None,
                scale,
                finish,
                touched=functools.partial(self._touched, train),
            )
        if losses is not None and last:
            losses[:] = [v for v in found if v is not None]
        return (merged[0] if merged else None), total

    def _cut_into(self, micro_batches: int) -> _Schedule:
        """Returns the schedule for another number of micro-batches of the same stages."""
        other = copy.copy(self)
        other.n_microbatches = micro_batches
        other.schedule = Schedule(self._name, self._executor.group.size(), micro_batches, len(self._stages))
        return other

    def _touched(self, train: bool) -> list[Tensor]:
        """Returns the tensors of this rank's stages that a step changes: buffers and, in training, gradients."""
        stages = [s.submod for s in self._stages.values()]
        return [t for m in stages for t in (*m.buffers(), *(m.parameters() if train else ()))]


def _check_fit(stages: Sequence[PipelineStage]) -> None:
    """Compares the example outputs and inputs of consecutive stages on this rank."""
    for a, b in itertools.pairwise(stages):
        if b.stage_index != a.stage_index + 1 or a.output_args is None or b.input_args is None:
            continue
        gives = [list(t.shape) for t in pack(a.output_args)[0]]
        takes = [list(t.shape) for t in pack(b.input_args)[0]]
        if gives != takes:
            raise ValueError(
                f"stage {b.stage_index} takes tensors of shapes {takes}, but stage {a.stage_index} gives {gives}"
            )


class ScheduleGPipe(_Schedule):
    """All forward passes, then all backward passes."""

    _name = "gpipe"


class Schedule1F1B(_Schedule):
    """Alternates one forward and one backward pass, after as many forward passes as there are later stages."""

    _name = "1f1b"


class _MultiStageSchedule(_Schedule):
    """The base class of schedules with several stages on each rank.

    Args:
        stages: this rank's stages
        n_microbatches: the number of micro-batches; the arguments up to `scale_grads` are as in the other schedules
        backward_requires_autograd: must be True, and the arguments after it must have their defaults
    """

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
        max_active_stages: int = 3,
        unshard_lookahead: int | str = "full",
        *,
        defer_reduce_grad_wait: bool = False,
        max_outstanding_sends: int | None = None,
    ) -> None:
        others = defer_pp_recv, max_active_stages, unshard_lookahead, defer_reduce_grad_wait, max_outstanding_sends
        if not backward_requires_autograd or others != (False, 3, "full", False, None):
            raise NotImplementedError(f"{type(self).__name__}: the arguments behind scale_grads cannot be changed")
        super().__init__(
            stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads
        )


class ScheduleInterleaved1F1B(_MultiStageSchedule):
    """1F1B with several stages on each rank: stages `rank`, `rank + ranks`, and so on."""

    _name = "interleaved"


class ScheduleLoopedBFS(_MultiStageSchedule):
    """Several stages on each rank. Each stage runs all micro-batches before the next stage begins."""

    _name = "looped-bfs"

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
        backward_requires_autograd: bool = True,
        defer_pp_recv: bool = False,
        max_active_stages: int = 3,
        unshard_lookahead: int | str = "full",
        *,
        defer_reduce_grad_wait: bool = False,
        max_outstanding_sends: int | None = None,
    ) -> None:
        super().__init__(
            stages, n_microbatches, loss_fn, None, None, output_merge_spec, scale_grads, backward_requires_autograd,
            defer_pp_recv, max_active_stages, unshard_lookahead, defer_reduce_grad_wait=defer_reduce_grad_wait,
            max_outstanding_sends=max_outstanding_sends,
        )  # fmt: skip


class ScheduleInterleavedZeroBubble(_MultiStageSchedule):
    """1F1B, interleaved if ranks have several stages, where the gradients of weights fill bubbles."""

    _name = "zb-h1"


class ScheduleZBVZeroBubble(_MultiStageSchedule):
    """Two stages on each rank, `rank` and `2 * ranks - 1 - rank`, with almost no bubbles."""

    _name = "zb-v"


def get_schedule_class(schedule_name: str) -> type[_Schedule]:
    """Returns the schedule class with a name, ignoring case: "1F1B", "GPipe", "Interleaved1F1B", ...

    Raises:
        ValueError: for an unknown name.
    """
    if not isinstance(schedule_name, str):
        raise TypeError(f"get_schedule_class: want a name, got {schedule_name!r}")
    classes = (
        ScheduleGPipe,
        Schedule1F1B,
        ScheduleInterleaved1F1B,
        ScheduleLoopedBFS,
        ScheduleInterleavedZeroBubble,
        ScheduleZBVZeroBubble,
    )
    for c in classes:
        if c.__name__.lower() in (schedule_name.lower(), "schedule" + schedule_name.lower()):
            return c
    names = ", ".join(c.__name__.removeprefix("Schedule") for c in classes)
    raise ValueError(f"get_schedule_class: unknown schedule name {schedule_name!r}, want one of {names}")
