"""DistributedDataParallel: each rank trains a replica of the model on its part of the batch."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait import _core
from plait._device import DeviceLike
from plait._device import device as Device
from plait._dtype import dtype, dtype_number
from plait._engine.callbacks import keep, kept
from plait._engine.pytree import tree_map
from plait._engine.runtime import Owner, address, check, is_tensor, own
from plait._errors import DistributedError, text_of
from plait._modes import is_grad_enabled
from plait.distributed._bucket import GradBucket, hook_runner
from plait.distributed._groups import ProcessGroup, resolve_group
from plait.distributed._stragglers import give_warnings
from plait.distributed._work import raise_at_rank_end
from plait.nn.modules.module import Module
from plait.nn.modules.syncbatchnorm import SyncBatchNorm
from plait.nn.parallel._inputs import batch_size, to_device
from plait.nn.parallel.modes import BoundedStaleness, Synchronous, SyncMode, as_mode
from plait.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter
from plait.nn.utils.stateless import functional_call
from plait.optim._engine import EngineOptimizer

if TYPE_CHECKING:
    from plait.distributed.device_mesh import DeviceMesh

_MIB = 1 << 20


@dataclass(frozen=True)
class _MixedPrecision:
    """The dtypes in which `DistributedDataParallel` computes and reduces. Parameters and gradients keep their dtypes.

    Only floating-point tensors are cast. None means no change.

    Attributes:
        param_dtype: dtype of parameters in forward and backward
        reduce_dtype: dtype in which gradients are averaged; param_dtype by default
        buffer_dtype: dtype of buffers, which are cast once, at construction
        cast_forward_inputs: cast the inputs to param_dtype
    """

    param_dtype: dtype | None = None
    reduce_dtype: dtype | None = None
    buffer_dtype: dtype | None = None
    cast_forward_inputs: bool = True


class DistributedDataParallel(Module):
    """Averages the gradients of a module over ranks while backward runs.

    Each rank wraps its own replica. Parameters and buffers are broadcast from rank 0. Gradients are all-reduced in
    buckets, as soon as they are final. A gradient that a rank lacks counts as zero. If the ranks' batches differ in
    size, the result is the mean of the ranks' gradients, or with `weighted` the gradient of the global batch.

    Args:
        module: the rank's replica, on one device
        device_ids: a list with the module's device; inputs are moved there. None leaves inputs where they are
        output_device: the device that outputs are moved to, if `device_ids` is given; the module's device by default
        dim: the batch dimension of inputs, for `weighted`
        broadcast_buffers: broadcast rank 0's buffers at construction, and before each forward pass whose backward pass
            averages gradients; None means True
        init_sync: at construction, verify that the ranks' modules agree, and broadcast parameters and buffers
        process_group: the group of ranks; the default group by default
        bucket_cap_mb: the bucket size in MiB; by default 1 for the first bucket and 25 for the others
        find_unused_parameters: allow parameters without a gradient, which may differ between ranks and steps
        check_reduction: has no effect
        gradient_as_bucket_view: make gradients views of the buckets, which saves one copy of all gradients
        static_graph: every step uses the same parameters; the first step finds the unused ones
        delay_all_reduce_named_params: pairs of a name and a parameter that may get gradients in several backward passes
            of a step; they are averaged last, once `param_to_hook_all_reduce` has its gradient
        param_to_hook_all_reduce: a parameter of this or another module
        mixed_precision: a `_MixedPrecision` with the dtypes of computation and reduction
        device_mesh: a mesh with one axis, whose group is used instead of `process_group`
        skip_all_reduce_unused_params: with `find_unused_parameters`, do not send buckets without a gradient; all ranks
            must have the same unused parameters
        forward_sync_buffers: used instead of `broadcast_buffers` if given; False still broadcasts them at construction
        delay_all_reduce: reduce all buckets at the end of backward
        weighted: weight the ranks' gradients by their numbers of samples

    Raises:
        ValueError: if the devices, or the delayed parameters, are invalid.
        RuntimeError: if no parameter requires a gradient, or some have no shape yet.
        plait.DistributedError: on every rank, if the ranks' modules differ.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: ProcessGroup | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Sequence[tuple[str, Parameter]] | None = None,
        param_to_hook_all_reduce: Parameter | None = None,
        mixed_precision: _MixedPrecision | None = None,
        device_mesh: DeviceMesh | None = None,
        skip_all_reduce_unused_params: bool = False,
        *,
        forward_sync_buffers: bool | None = None,
        delay_all_reduce: bool = False,
        weighted: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(module, Module):
            raise TypeError(f"DistributedDataParallel: want a module, got {type(module).__name__}")
        if isinstance(device_ids, str | int | Device):
            raise TypeError(f"DistributedDataParallel: want a list of one device, got device_ids={device_ids!r}")
        delay = list(delay_all_reduce_named_params or ())
        if not all(
            isinstance(d, tuple) and [isinstance(d[0], str), *map(is_tensor, d[1:])] == [True, True] for d in delay
        ):
            raise TypeError(
                "DistributedDataParallel: delay_all_reduce_named_params wants pairs of a name and a parameter"
            )
        if mixed_precision is not None and not isinstance(mixed_precision, _MixedPrecision):
            raise TypeError(
                f"DistributedDataParallel: want mixed_precision=_MixedPrecision(...), got {mixed_precision!r}"
            )
        if device_mesh is not None:
            if process_group is not None:
                raise RuntimeError("DistributedDataParallel: want process_group or device_mesh, got both")
            if device_mesh.ndim != 1:
                raise RuntimeError(f"DistributedDataParallel: want a mesh of one axis, got {device_mesh!r}; slice it")
            process_group = device_mesh.get_group()
        group = resolve_group(process_group, "DistributedDataParallel")
        named = list(module.named_parameters())
        if any(
            isinstance(t, UninitializedParameter | UninitializedBuffer)
            for t in (*module.parameters(), *module.buffers())
        ):
            raise RuntimeError(
                "DistributedDataParallel: some parameters have no shape yet; run a batch through the module first"
            )
        if not any(p.requires_grad for _, p in named):
            raise RuntimeError("DistributedDataParallel: no parameter of the module requires a gradient")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(f"DistributedDataParallel: want one device for each rank, got device_ids={device_ids}")
        devices = {str(p.device) for _, p in named}
        if device_ids and {str(Device(device_ids[0]))} != devices:
            raise ValueError(
                f"DistributedDataParallel: the module is on {sorted(devices)}, not on device_ids={list(device_ids)}"
            )
        if len(devices) > 1:
            raise ValueError(f"DistributedDataParallel: want all parameters on one device, got {sorted(devices)}")
        if bucket_cap_mb is not None and not isinstance(bucket_cap_mb, int | float):
            raise TypeError(f"DistributedDataParallel: want bucket_cap_mb in MiB, got {bucket_cap_mb!r}")
        if bucket_cap_mb is not None and bucket_cap_mb <= 0:
            raise ValueError(f"DistributedDataParallel: want a positive bucket_cap_mb, got {bucket_cap_mb}")
        self.module = module
        self.device_ids = [Device(d) for d in device_ids] if device_ids else None
        self.output_device = None if output_device is None else Device(output_device)
        self.mixed_precision = mixed_precision
        self.process_group, self.dim, self.device = group, dim, next(iter(named))[1].device
        local_buffers = broadcast_buffers is not None and not broadcast_buffers and forward_sync_buffers is None
        self.forward_sync_buffers = not local_buffers if forward_sync_buffers is None else forward_sync_buffers
        self.find_unused_parameters = find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = True
        self._weighted = weighted
        self._optimizer: Any = None
        self._hook_key = 0  # of a communication hook in Python
        buffers = list(module.named_buffers())
        keep_inputs = mixed_precision is not None and not mixed_precision.cast_forward_inputs
        flags = (
            not self.forward_sync_buffers,
            not init_sync,
            find_unused_parameters,
            static_graph,
            gradient_as_bucket_view,
            delay_all_reduce,
            weighted,
            skip_all_reduce_unused_params,
            keep_inputs,
            local_buffers,
        )
        options = sum(1 << i for i, on in enumerate(flags) if on)
        delayed = array("q", [p._h for _, p in delay])
        precision = mixed_precision or _MixedPrecision()
        size = 0 if bucket_cap_mb is None else max(1, int(bucket_cap_mb * _MIB))
        p, b = array("q", [t._h for _, t in named]), array("q", [t._h for _, t in buffers])
        self._reducer = check(
            _core.bind_ReducerNew(
                group._h,
                address(p),
                len(p),
                "\n".join(n for n, _ in named),
                address(b),
                len(b),
                "\n".join(n for n, _ in buffers),
                size,
                size,
                options,
                address(delayed),
                len(delayed),
                0 if param_to_hook_all_reduce is None else param_to_hook_all_reduce._h,
                *map(dtype_number, (precision.param_dtype, precision.reduce_dtype, precision.buffer_dtype)),
            )
        )
        self._owner = Owner(self._reducer)
        raise_at_rank_end(self, self._reducer, _core.bind_ReducerWait)
        for name, m in module.named_modules():
            if isinstance(m, SyncBatchNorm):
                m.label = name

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Runs the module. The backward pass that follows averages the gradients.

        If one rank runs out of memory, here or in backward, the step fails on all ranks, and they drop their gradients.
        The next forward pass starts the step again.
        """
        begins = is_grad_enabled()
        if begins:
            samples = batch_size(inputs, kwargs, self.dim) if self._weighted else 0
            if self._weighted:
                for m in self.module.modules():
                    if isinstance(m, SyncBatchNorm):
                        m.samples = float(samples)
            check(_core.bind_ReducerForward(self._reducer, samples))
            give_warnings()
        try:
            return self._run_module(inputs, kwargs)
        except (MemoryError, DistributedError) as error:
            if begins:
                why = f"{type(error).__name__}: {text_of(error)}"
                check(_core.bind_ReducerForwardFailed(self._reducer, why, isinstance(error, MemoryError)))
            raise

    def _run_module(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.device_ids:
            inputs, kwargs = to_device((inputs, kwargs), self.device_ids[0])
        out = self._forward_mixed_precision(inputs, kwargs) if self.mixed_precision else self.module(*inputs, **kwargs)
        return out if not self.device_ids or self.output_device is None else to_device(out, self.output_device)

    def _forward_mixed_precision(self, inputs: Any, kwargs: Any) -> Any:
        """Runs the module with parameters and inputs cast to `param_dtype`."""
        assert self.mixed_precision is not None
        wanted = self.mixed_precision.param_dtype
        if wanted is None:
            return self.module(*inputs, **kwargs)
        names = [n for n, _ in self.module.named_parameters()]
        out = array("q", bytes(8 * len(names)))
        check(_core.bind_ReducerLowered(self._reducer, address(out)))
        values = dict(zip(names, map(own, out), strict=True))
        if self.mixed_precision.cast_forward_inputs:
            inputs, kwargs = tree_map(
                lambda v: v.to(wanted) if is_tensor(v) and v.is_floating_point() else v, (inputs, kwargs)
            )
        return functional_call(self.module, values, inputs, kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulates gradients without communication. The next pass outside averages the accumulated gradients."""
        before = check(_core.bind_ReducerSetSync(self._reducer, False))
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            _core.bind_ReducerSetSync(self._reducer, bool(before))
            self.require_backward_grad_sync = bool(before)

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """Allows different numbers of batches per rank. A rank without a batch shadows the others' steps with zeros.

        Args:
            divide_by_initial_world_size: divide sums by the number of all ranks, instead of those with a batch
            enable: whether to do anything
            throw_on_early_termination: raise on every rank as soon as one rank has no more batches
        """
        if not enable:
            yield
            return
        check(_core.bind_ReducerJoinBegin(self._reducer, not divide_by_initial_world_size, throw_on_early_termination))
        try:
            yield
        except BaseException:
            _core.bind_ReducerJoinAbandon(self._reducer)
            raise
        answer: Any = ()
        while True:
            out = array("q", [t._h for t in answer])
            bucket = check(_core.bind_ReducerJoinEnd(self._reducer, address(out), len(out)))
            if not bucket:
                return
            try:
                answer = kept(self._hook_key)(bucket)
            except BaseException:
                _core.bind_ReducerJoinAbandon(self._reducer)
                raise

    def register_comm_hook(self, state: object, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Registers a communication hook, which replaces the all-reduce of a bucket. All ranks register the same hook.

        The hook is called with `state` and a `GradBucket` as soon as the bucket's gradients are final. It returns a
        future of the tensor that replaces the bucket's buffer, such as that of an asynchronous `all_reduce`. It runs on
        a communication stream beside backward, which orders operations on a collective's result after the collective.
        The hooks of `plait.distributed.algorithms.ddp_comm_hooks` run inside the engine.

        Raises:
            TypeError: if the hook is not callable.
            RuntimeError: if a hook is registered already, or a step was made.
        """
        if not callable(hook):
            raise TypeError(f"register_comm_hook: want a function, got {type(hook).__name__}")
        engine = getattr(hook, "_engine", None)
        if engine is None:
            parameters = [p for _, p in self.module.named_parameters()]
            self._hook_key = keep(hook_runner(hook, state, parameters, self.process_group))
            check(_core.bind_ReducerHookCaller(self._reducer, self._hook_key))
            return
        name, compress = engine
        numbers = array("d", state._numbers() if hasattr(state, "_numbers") else ())
        check(_core.bind_ReducerHook(self._reducer, name, compress, address(numbers), len(numbers)))

    def set_sync_mode(self, mode: SyncMode | str, optimizer: Any = None) -> None:
        """Sets the synchronisation mode. Every rank calls it, and then makes its steps with `step`.

        The asynchronous modes use a parameter server on every rank. Each parameter has an owner, the rank whose server
        applies the updates of all ranks, each exactly once.

        Args:
            mode: `synchronous`, `asynchronous` or `bounded_staleness(max)`
            optimizer: the rank's optimiser for the module's parameters
        """
        m = as_mode(mode)
        kind = 0 if isinstance(m, Synchronous) else 1 if isinstance(m, BoundedStaleness) else 2
        handle = 0
        if optimizer is not None:
            if not isinstance(optimizer, EngineOptimizer):
                raise TypeError(f"set_sync_mode: want one of Plait's own optimisers, got {type(optimizer).__name__}")
            optimizer._sync()
            handle = optimizer._handle
        bound = m.max if isinstance(m, BoundedStaleness) else 0
        check(_core.bind_ReducerSetMode(self._reducer, kind, bound, handle))
        self._optimizer = optimizer

    def step(self) -> None:
        """Makes a step with the optimiser that was given to `set_sync_mode`."""
        if self._optimizer is not None:
            self._optimizer._sync()  # a schedule may have changed hyperparameters
        check(_core.bind_ReducerStep(self._reducer))

    def clocks(self) -> list[int]:
        """Returns the number of steps each rank has made since `set_sync_mode`, as far as this rank knows."""
        out = array("q", bytes(8 * self.process_group.size()))
        check(_core.bind_ReducerClocks(self._reducer, address(out), len(out)))
        return list(out)

    def staleness(self) -> int:
        """Returns the largest number of steps that this rank was ahead of the slowest."""
        out = array("q", bytes(8 * self.process_group.size()))
        return check(_core.bind_ReducerClocks(self._reducer, address(out), len(out)))

    def statistics(self) -> dict[str, int]:
        """Returns counts of reduced passes, buckets, bytes, and more."""
        out = array("q", bytes(8 * 7))
        check(_core.bind_ReducerStats(self._reducer, address(out)))
        names = ("passes", "buckets", "bytes", "buffer_bytes", "rebuilds", "unused", "last_bytes")
        return dict(zip(names, out, strict=True))

    def close(self) -> None:
        """Removes the reducer's hooks. The wrapped module can be used without DDP afterwards."""
        check(_core.bind_ReducerClose(self._reducer))

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Loads a state dict of this or of the wrapped module, with or without the prefix `module.` in its names."""
        if state_dict and not any(k.startswith("module.") for k in state_dict):
            state_dict = {f"module.{k}": v for k, v in state_dict.items()}
        return super().load_state_dict(state_dict, strict, assign)

    def __reduce__(self) -> Any:
        raise TypeError("DistributedDataParallel belongs to its rank and cannot be pickled; pickle its module")
