"""Top-k compression of gradients (Aji and Heafield 2017; Stich, Cordonnier and Jaggi 2018)."""

from __future__ import annotations

from typing import Any

from plait.distributed.algorithms.ddp_comm_hooks._names import engine_hook, engine_only


class TopKState:
    """The configuration of top-k compression.

    Args:
        ratio: the fraction of a bucket's elements to send
        use_error_feedback: add the other elements to the next step's gradients
    """

    def __init__(self, ratio: float = 0.01, use_error_feedback: bool = True) -> None:
        if not 0 < ratio <= 1:
            raise ValueError(f"TopKState: want a ratio above 0 and up to 1, got {ratio}")
        self._values = (float(ratio), float(use_error_feedback))

    def _numbers(self) -> tuple[float, ...]:
        return self._values


@engine_hook("topk")
def topk_hook(state: TopKState, bucket: Any) -> Any:
    """Sends only the elements with the largest absolute values."""
    return engine_only()
