"""PowerSGD: low-rank gradient compression (Vogels, Karimireddy and Jaggi 2019)."""  # noqa: N999

from __future__ import annotations

from typing import Any

from plait.distributed.algorithms.ddp_comm_hooks._names import engine_hook, engine_only


class PowerSGDState:
    """The configuration of PowerSGD.

    Args:
        process_group: has no effect; the module's group is used
        matrix_approximation_rank: the rank of the approximation
        start_powerSGD_iter: the number of first steps without compression
        min_compression_rate: the compression rate below which a matrix is not compressed
        use_error_feedback: add the error of the approximation to the next step's gradients
        warm_start: start each step's power method from the last step's Q
        orthogonalization_epsilon: the fraction of its norm below which the orthogonal part of a column becomes zero; 0
            means a default for the dtype
        random_seed: the seed of the random matrices, the same on every rank
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
        self._values = (
            float(matrix_approximation_rank),
            float(start_powerSGD_iter),
            float(min_compression_rate),
            float(use_error_feedback),
            float(warm_start),
            float(orthogonalization_epsilon),
            float(random_seed),
        )

    def _numbers(self) -> tuple[float, ...]:
        return self._values


@engine_hook("powersgd")
def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:  # noqa: N802
    """Compresses each gradient of a bucket as a matrix."""
    return engine_only()


@engine_hook("batched_powersgd")
def batched_powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:  # noqa: N802
    """Compresses a bucket as one square matrix, which is faster and less accurate."""
    return engine_only()
