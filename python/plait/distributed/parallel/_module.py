"""Models that `parallelize` has laid over the ranks of a mesh."""

from __future__ import annotations

import contextlib
import json
from array import array
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from plait import _core
from plait._engine.runtime import address, check
from plait._errors import DistributedError, text_of
from plait._modes import is_grad_enabled, no_grad
from plait._tensor import Tensor
from plait.amp.grad_scaler import GradScaler
from plait.distributed._collectives import broadcast
from plait.distributed._form import Form
from plait.distributed._groups import ProcessGroup
from plait.distributed._objects import all_gather_object, exchange
from plait.distributed.device_mesh import DeviceMesh
from plait.distributed.fsdp._module import FSDPModule, one_step, unit_of, units_in
from plait.distributed.parallel._options import Axes, Loss
from plait.distributed.pipelining._loss import only_loss
from plait.distributed.pipelining._values import pack
from plait.distributed.tensor._dtensor import pass_outputs, whole
from plait.distributed.tensor.experimental import implicit_replication
from plait.nn.modules.module import Module
from plait.nn.parallel._inputs import _like, batch_size, tensors_in
from plait.nn.utils.clip_grad import clip_grad_norm_

_NO_TARGET = object()


class Layout:
    """How a model lies on the ranks, and what a step of it does.

    Args:
        mesh: the mesh
        axes: what happens along its axes
        loss_fn: called with the output and the target, returns the loss
        units: the outermost modules whose parameters are sharded or copied
        dividing: the mesh along which layers are divided; None without one
    """

    def __init__(
        self,
        mesh: DeviceMesh,
        axes: Axes,
        loss_fn: Loss | None,
        units: list[FSDPModule],
        dividing: DeviceMesh | None,
    ) -> None:
        self.mesh, self.axes, self.loss_fn, self.units, self.dividing = mesh, axes, loss_fn, units, dividing
        self.first_names: dict[str, str] = {}
        self.sync = True  # whether backward reduces gradients

    @contextlib.contextmanager
    def running(self, ends: bool = False) -> Iterator[None]:
        """Inside, the model computes; `ends` says that at the end all ranks have done so, backward included."""
        if self.dividing is None:
            yield
            return
        trains = is_grad_enabled()
        with self.dividing._pass(ends), implicit_replication():
            try:
                yield
            except BaseException as error:
                if trains:  # what the units do not see: that exchanges between them have failed
                    for unit in filter(None, map(unit_of, self.units)):
                        unit.fail_step(error)
                raise

    def call(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the model's output as whole tensors."""
        with self.running():
            out = whole(model(*args, **kwargs))
            return out if self.dividing is None else pass_outputs(out, self.dividing)

    def step(
        self,
        model: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        scaler: GradScaler | None,
    ) -> Tensor:
        """Runs forward and backward, and returns the loss of this rank's part of the batch."""
        assert self.loss_fn is not None
        with one_step(units_in(self.units)), self.running():
            loss: Tensor = whole(only_loss("step", self.loss_fn(model(*args, **kwargs), target)))
            if self.dividing is not None:
                loss = pass_outputs(loss, self.dividing)
            (loss if scaler is None else scaler.scale(loss)).backward()
        return loss.detach()

    def clip(self, model: Module, max_norm: float, norm_type: float, error_if_nonfinite: bool) -> Tensor:
        """Scales the gradients, and returns their norm before."""
        return clip_grad_norm_(model.parameters(), max_norm, norm_type, error_if_nonfinite)


def _made(value: Any, device: Any) -> Any:
    """Returns a nested value with new tensors in place of their forms."""
    if isinstance(value, Form):
        return value.empty(device)
    if isinstance(value, dict):
        return type(value)((k, _made(v, device)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return _like(value, [_made(v, device) for v in value])
    return value


def _reason(error: Exception | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {text_of(error)}"


class StagedLayout(Layout):
    """A layout with a pipeline. The arguments are those of `Layout`.

    Args:
        schedule: the schedule, with this rank's stages
        group: the ranks of the pipeline
        last: the rank among them that has the last stage
        device: of this rank
        first_names: of parameters that the model has in several places, the first name by each other one
        copies: the ranks that have copies of this one's stages; None if there are none
    """

    def __init__(
        self,
        mesh: DeviceMesh,
        axes: Axes,
        loss_fn: Loss | None,
        units: list[FSDPModule],
        dividing: DeviceMesh | None,
        schedule: Any,
        group: ProcessGroup,
        last: int,
        device: Any,
        first_names: dict[str, str],
        copies: ProcessGroup | None,
    ) -> None:
        super().__init__(mesh, axes, loss_fn, units, dividing)
        self.first_names, self.copies = first_names, copies
        self.schedule, self.group, self.last, self.device = schedule, group, last, device
        self.first = 0 in schedule._stages

    def call(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the model's output, without gradients, on every rank of the pipeline."""
        schedule = self._schedule_for("forward", model, args, kwargs)
        with no_grad(), self.running():
            out = whole(schedule.eval(*(args if self.first else ())))
        return self._handed_out(out)

    def step(
        self,
        model: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        scaler: GradScaler | None,
    ) -> Tensor:
        """Runs the passes of a batch, and returns its loss on every rank of the pipeline."""
        if scaler is not None and self.group not in scaler._pipelines:
            scaler._pipelines.append(self.group)
        try:
            with self.running(ends=True):
                schedule = self._schedule_for("step", model, args, kwargs, target)
                _, loss = schedule._run(
                    args if self.first else (),
                    {},
                    target if self.group.rank() == self.last else None,
                    None,
                    True,
                    False,
                    scale=1.0 if scaler is None else scaler.get_scale(),
                )
        except Exception as error:
            with contextlib.suppress(Exception):
                self._average(_reason(error))
            raise
        self._average()
        with no_grad():
            found = self._handed_out(loss.detach() if loss is not None else None)
        assert isinstance(found, Tensor)
        return found

    def _average(self, problem: str = "") -> None:
        """Averages gradients over the copies. `problem` is why there are none: then all copies raise an error."""
        if self.copies is None or not self.sync:
            return
        stages = self.schedule._stages.values()
        parameters = dict.fromkeys(p for s in stages for p in s.submod.parameters())
        handles = array("q", [p._h for p in parameters])
        try:
            check(_core.bind_ParallelAverage(self.copies._h, address(handles), len(handles), problem))
        except Exception:
            self.schedule._executor.forget(self.schedule._touched(True))
            raise

    def clip(self, model: Module, max_norm: float, norm_type: float, error_if_nonfinite: bool) -> Tensor:
        """Scales the gradients, and returns their norm before, which is that of all stages."""
        total: Tensor = self.schedule.clip_grad_norm_(max_norm, norm_type, error_if_nonfinite)
        return total

    def _schedule_for(
        self, name: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any = _NO_TARGET
    ) -> Any:
        """Returns the schedule for a batch, of which a small one has fewer micro-batches. All ranks call it.

        Raises:
            ValueError: if the batch is missing, has no samples, or not as many as the target.
            TypeError: for values by names.
            plait.DistributedError: on the other ranks; on every rank, if batches have different numbers of samples.
        """
        samples = batch_size((args,), {}, 0) or (0 if target is _NO_TARGET else batch_size((target,), {}, 0))
        problem: Exception | None = None
        try:
            self._check(name, model.__self__, args, kwargs, target)
        except (ValueError, TypeError, RuntimeError) as error:
            problem = error
        try:
            self._compare(name, samples, problem)
        except (ValueError, TypeError, RuntimeError) as error:
            problem = error
        if self.axes.fsdp is not None:  # pipelines that share their parameters begin together, or not at all
            self._begin_together(name, problem)
        if problem is not None:
            raise problem
        if not samples or samples >= self.schedule.n_microbatches:
            return self.schedule
        return self.schedule._cut_into(samples)

    def _compare(self, name: str, samples: int, problem: Exception | None) -> None:
        """Compares the samples that the ranks of the pipeline got. `problem` is why this one cannot begin."""
        said = [json.loads(p) for p in exchange(self.group, name, json.dumps([samples, _reason(problem)]).encode())]
        if problem is not None:
            raise problem
        counts: dict[int, int] = {}
        for rank, (n, text) in zip(self.group._ranks, said, strict=True):
            if text:
                raise DistributedError(f"{name}: rank {rank} cannot begin: {text}")
            if n:
                counts.setdefault(n, rank)
        if len(counts) > 1:
            (a, first), (b, second) = list(counts.items())[:2]
            raise DistributedError(
                f"{name}: ranks of a pipeline gave different batches: rank {first} {a} samples, rank {second} {b}; all "
                "want the same part of the batch"
            )

    def _begin_together(self, name: str, problem: Exception | None) -> None:
        """Raises an error if another pipeline with the same parameters cannot begin."""
        group = self.mesh.get_group(self.axes.fsdp)
        said = exchange(group, name, _reason(problem).encode())
        for rank, text in zip(group._ranks, said, strict=True):
            if problem is None and text:
                raise DistributedError(f"{name}: the pipeline of rank {rank} cannot begin: {text.decode()}")

    def _check(self, name: str, model: Module, args: tuple[Any, ...], kwargs: dict[str, Any], target: Any) -> None:
        """Raises an error if this rank's part of a batch, or its model, is not one for a pipeline."""
        if model._forward_hooks or model._forward_pre_hooks:
            raise RuntimeError(
                f"parallelize: hooks of {type(model).__name__} itself do not run in a pipeline: give them to its layers"
            )
        if kwargs:
            raise TypeError(
                f"parallelize: the stages of a pipeline pass positional values on, got also {', '.join(kwargs)}"
            )
        if self.first and not args:
            raise ValueError(f"{name}: the rank with the first stage of a pipeline wants the batch, got none")
        samples = batch_size((args,), {}, 0)
        if not samples and any(t.ndim for t in tensors_in(args)):
            raise ValueError("parallelize: a pipeline got a batch without samples, want at least one")
        if target is _NO_TARGET:
            return
        if target is None and self.group.rank() == self.last:
            raise ValueError(f"{name}: the rank with the last stage of a pipeline wants the target, got None")
        targets = batch_size((target,), {}, 0)
        if samples and targets and samples != targets:
            raise ValueError(f"{name}: got {samples} samples and targets of {targets}; both are cut into micro-batches")

    def _handed_out(self, value: Any) -> Any:
        """Returns the value of the rank with the last stage, which may have tensors within, on every rank."""
        tensors, fill = pack(value)
        here = self.group.rank() == self.last
        # In place of each tensor, its dtype and shape.
        forms: list[Any] = [Form.of(t) for t in tensors]
        group = self.group._for("what the last stage of a pipeline has made")
        said: list[Any] = [None] * group.size()
        all_gather_object(said, fill(forms) if here else None, group=group)
        if not here:
            value = _made(said[self.last], self.device)
        for t in tensors_in(value):
            broadcast(t, group=group, group_src=self.last)
        return value


class ParallelModule(Module):
    """The class that `parallelize` adds to a model's class.

    Its parameters, buffers and states have the names of the whole model. In a pipeline a rank has those of its stages.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the model's output, as whole tensors, for this rank's part of a batch.

        Ranks along the axes of the pipeline and of tensor parallelism give the same part. With a pipeline the output
        comes to all its ranks, without gradients: `step` trains.
        """
        return self._layout.call(super().__call__, args, kwargs)

    def step(self, *args: Any, target: Any, scaler: GradScaler | None = None, **kwargs: Any) -> Tensor:
        """Runs forward and backward on this rank's part of a batch, and returns its loss.

        Gradients are averaged over the ranks along the axes of data. The scores of a vocabulary that is divided are
        never gathered.

        Args:
            args: the model's inputs, the same on ranks along the axes of the pipeline and of tensor parallelism
            target: of the loss function
            scaler: a `GradScaler`, by whose factor the gradients are multiplied; its `step` divides them again
            kwargs: the model's named inputs; none with a pipeline

        Raises:
            RuntimeError: if `parallelize` got no loss function.
        """
        layout = self._layout
        if layout.loss_fn is None:
            raise RuntimeError("step: there is no loss: give loss_fn to parallelize")
        if scaler is not None and not isinstance(scaler, GradScaler):
            raise TypeError(f"step: want a GradScaler, got {type(scaler).__name__}")
        return layout.step(super().__call__, args, kwargs, target, scaler)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> Tensor:
        """Scales the gradients so that the norm of the whole model's is at most max_norm, and returns what it was.

        Every rank calls it. The arguments are those of `nn.utils.clip_grad_norm_`.
        """
        return self._layout.clip(self, max_norm, norm_type, error_if_nonfinite)

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Sets whether backward reduces gradients. If not, full gradients accumulate until the next reduction."""
        self._layout.sync = requires_gradient_sync
        for unit in self._layout.units:
            FSDPModule.set_requires_gradient_sync(unit, requires_gradient_sync, recurse=recurse)

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._layout.mesh

    @property
    def data_parallel_size(self) -> int:
        """The number of parts of a batch."""
        return self._data()[1]

    @property
    def data_parallel_rank(self) -> int:
        """The number of this rank's part of a batch."""
        return self._data()[0]

    def _data(self) -> tuple[int, int]:
        mesh, rank, size = self._layout.mesh, 0, 1
        for axis in self._layout.axes.data:
            group = mesh.get_group(axis)
            rank, size = rank * group.size() + group.rank(), size * group.size()
        return rank, size

    @property
    def _stage_group(self) -> ProcessGroup | None:
        return getattr(self._layout, "group", None)

    @property
    def _first_names(self) -> dict[str, str]:
        return self._layout.first_names

    @property
    def _layout(self) -> Layout:
        layout: Layout = self.__dict__["_parallel"]
        return layout

    def __deepcopy__(self, memo: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} belongs to its rank and cannot be copied; copy the model before")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} belongs to its rank and cannot be pickled; save its state dict")
