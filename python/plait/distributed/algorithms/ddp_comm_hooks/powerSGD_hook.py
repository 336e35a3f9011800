"""PowerSGD: gradients sent as matrices of low rank (Vogels, Karimireddy and Jaggi 2019)."""  # noqa: N999

from __future__ import annotations

from typing import Any

from plait.distributed.algorithms.ddp_comm_hooks._names import engine_hook, refuse


class PowerSGDState:
    """How PowerSGD compresses.

    Args:
        process_group: has no effect; the module's is used
        matrix_approximation_rank: the rank of the approximation
        start_powerSGD_iter: the number of steps before compression begins
        min_compression_rate: how many times fewer elements a matrix must take to be compressed
        use_error_feedback: add what compression loses to the next step's gradients
        warm_start: begin each step's power method where the last one ended
        orthogonalization_epsilon: the part of its norm that a column must keep when those before it are taken out
        random_seed: that of the random matrices, the same on every rank
        compression_stats_logging_frequency: has no effect
        batch_tensors_with_same_shape: has no effect
    """

    def __init__(
        self,
        process_group: Any = None,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
        compression_stats_logging_frequency: int = 10_000,
        batch_tensors_with_same_shape: bool = False,
    ) -> None:
        if matrix_approximation_rank < 1:
            raise ValueError(f"PowerSGDState: want a rank of at least 1, got {matrix_approximation_rank}")
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError("PowerSGDState: start_powerSGD_iter must be above 1 with error feedback or warm start")
        self._given = (
            float(matrix_approximation_rank),
            float(start_powerSGD_iter),
            float(min_compression_rate),
            float(use_error_feedback),
            float(warm_start),
            float(orthogonalization_epsilon),
            float(random_seed),
        )

    def _numbers(self) -> tuple[float, ...]:
        return self._given


@engine_hook("powersgd")
def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:  # noqa: N802
    """Sends each matrix of a bucket compressed."""
    return refuse()


@engine_hook("batched_powersgd")
def batched_powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:  # noqa: N802
    """Sends a bucket as one square matrix, compressed: faster and less exact."""
    return refuse()
