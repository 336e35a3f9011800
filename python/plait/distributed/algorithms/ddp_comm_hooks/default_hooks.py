"""Hooks that average, as the gradients are or rounded to half the bytes."""

from __future__ import annotations

from typing import Any

from plait.distributed.algorithms.ddp_comm_hooks._names import Hook, engine_hook, refuse


@engine_hook("allreduce")
def allreduce_hook(process_group: Any, bucket: Any) -> Any:
    """Averages the gradients as they are."""
    return refuse()


@engine_hook("allreduce", "fp16")
def fp16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """Averages the gradients rounded to float16; sums are made in float32."""
    return refuse()


@engine_hook("allreduce", "bf16")
def bf16_compress_hook(process_group: Any, bucket: Any) -> Any:
    """Averages the gradients rounded to bfloat16; sums are made in float32."""
    return refuse()


@engine_hook("noop")
def noop_hook(_: Any, bucket: Any) -> Any:
    """Leaves each rank its own gradients, to measure what communication costs."""
    return refuse()


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Returns a hook that runs another one on gradients rounded to float16."""
    return _wrapped(hook, "fp16")


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Returns a hook that runs another one on gradients rounded to bfloat16."""
    return _wrapped(hook, "bf16")


def _wrapped(hook: Hook, compress: str) -> Hook:
    name, _ = getattr(hook, "_engine", ("", ""))
    if not name:
        raise NotImplementedError(
            "compress_wrapper: want one of the hooks of plait.distributed.algorithms.ddp_comm_hooks"
        )

    @engine_hook(name, compress)
    def wrapped(state: Any, bucket: Any) -> Any:
        return refuse()

    return wrapped
