"""Communication hooks that average gradients, uncompressed or in a 16-bit dtype.

If they are registered themselves, they run inside the engine. A user's hook may also call them.
"""

from __future__ import annotations

from typing import Any

from plait._dtype import bfloat16, dtype, float16
from plait.distributed._collectives import all_reduce
from plait.distributed._work import Future, ReduceOp
from plait.distributed.algorithms.ddp_comm_hooks._names import Hook, engine_hook


@engine_hook("allreduce")
def allreduce_hook(process_group: Any, bucket: Any) -> Any:
    """Averages the gradients, as DDP does without a hook."""
    work = all_reduce(bucket.buffer(), op=ReduceOp.AVG, group=process_group, async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


@engine_hook("allreduce", "fp16")
def fp16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """Averages the gradients in float16. Sums are computed in float32."""
    return _compressed(allreduce_hook, process_group, bucket, float16)


@engine_hook("allreduce", "bf16")
def bf16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """Averages the gradients in bfloat16. Sums are computed in float32."""
    return _compressed(allreduce_hook, process_group, bucket, bfloat16)


@engine_hook("noop")
def noop_hook(_: Any, bucket: Any) -> Any:
    """Does not communicate, so each rank keeps its own gradients. Use it to measure the cost of communication."""
    return bucket.buffer()


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Returns a hook that runs another hook on gradients cast to float16."""
    return _wrapped(hook, "fp16", float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Returns a hook that runs another hook on gradients cast to bfloat16."""
    return _wrapped(hook, "bf16", bfloat16)


def _compressed(hook: Hook, state: Any, bucket: Any, to: dtype) -> Any:
    """Casts a bucket to a smaller dtype, runs a hook on it, and casts the result back."""
    full = bucket.buffer()
    bucket.set_buffer(full.to(to))
    result = hook(state, bucket)
    bucket.set_buffer(full)
    if not isinstance(result, Future):
        return full.copy_(result)
    return result.then(lambda done: full.copy_(_only(done.value())))


def _only(value: Any) -> Any:
    """Returns the only element of a list, or the value itself."""
    return value[0] if isinstance(value, list | tuple) else value


def _wrapped(hook: Hook, compress: str, to: dtype) -> Hook:
    """Returns a hook on cast gradients, which runs inside the engine if `hook` does."""

    def wrapped(state: Any, bucket: Any) -> Any:
        return _compressed(hook, state, bucket, to)

    name, inner = getattr(hook, "_engine", ("", ""))
    return engine_hook(name, compress)(wrapped) if name and not inner else wrapped
