"""`GradBucket`, the argument of communication hooks in Python, and the function that runs them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from plait import _core
from plait._engine.runtime import address, check, own
from plait._tensor import Tensor
from plait.distributed._groups import ProcessGroup, use_pass_group
from plait.distributed._work import Future


class GradBucket(_core.ObjectOwner):
    """A bucket: gradients of one dtype that are reduced together. A communication hook gets it as its argument."""

    def __init__(self, handle: int, parameters: Sequence[Tensor]) -> None:
        self._h = handle
        count = check(_core.bind_BucketParameters(handle, 0, 0, 0))
        numbers, views = array("q", bytes(8 * count)), array("q", bytes(8 * count))
        check(_core.bind_BucketParameters(handle, address(numbers), address(views), count))
        self._gradients = [own(h) for h in views]
        self._parameters = [parameters[i] for i in numbers]
        self._place = check(_core.bind_BucketPlace(handle))  # 2 * index, + 1 for the last bucket
        self._buffer: Tensor = own(check(_core.bind_BucketBuffer(handle)))

    def index(self) -> int:
        """Returns the bucket's index in the order of reduction."""
        return self._place // 2

    def is_last(self) -> bool:
        """Returns whether the bucket is the last to be reduced."""
        return bool(self._place % 2)

    def buffer(self) -> Tensor:
        """Returns the flat tensor that holds all gradients one after the other."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replaces the tensor that `buffer` returns."""
        if not isinstance(buffer, Tensor):
            raise TypeError(f"set_buffer: want a tensor, got {type(buffer).__name__}")
        self._buffer = buffer

    def gradients(self) -> list[Tensor]:
        """Returns views of the bucket's own buffer, one for each parameter and of its shape."""
        return list(self._gradients)

    def parameters(self) -> list[Tensor]:
        """Returns the parameters whose gradients the bucket holds."""
        return list(self._parameters)


def hook_runner(
    hook: Callable[[Any, GradBucket], Any], state: object, parameters: Sequence[Tensor], group: ProcessGroup
) -> Callable[[int], tuple[Tensor]]:
    """Returns a function for the engine, which runs a communication hook on the bucket with a given handle."""

    def run(handle: int) -> tuple[Tensor]:
        bucket = GradBucket(check(handle), parameters)
        before = _core.bind_ModeGet()
        try:
            check(_core.bind_ModeSet(_core.bind_BucketMode(bucket._h)))
            with use_pass_group(group._ranks, _core.bind_BucketGroup(bucket._h)):
                result = hook(state, bucket)
                if isinstance(result, Future):
                    result = result.ordered()
        finally:
            _core.bind_ModeSet(before)
        if isinstance(result, list | tuple) and len(result) == 1:
            result = result[0]
        if not isinstance(result, Tensor):
            raise TypeError(
                f"the communication hook {getattr(hook, '__name__', hook)!r} must return a future of a tensor, "
                f"got {type(result).__name__}"
            )
        return (result,)

    return run
