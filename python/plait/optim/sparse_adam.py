"""Adam for sparse gradients."""

from __future__ import annotations

from plait._tensor import Tensor
from plait.optim._engine import BETAS, EngineOptimizer, arguments, pairs
from plait.optim.optimizer import ParamsT


class SparseAdam(EngineOptimizer):
    """Adam (Kingma and Ba 2015) for sparse gradients: of a parameter and its means only the rows of a gradient change.

    Args:
        params: parameters or groups of them, such as the weight of `Embedding(sparse=True)`
        lr: the learning rate
        betas: of the running means of gradients and of their squares
        eps: added to the denominator
        maximize: go up, not down

    Raises:
        RuntimeError: in a step, for a gradient that is not sparse.
    """

    _algorithm = "sparse_adam"
    _hyper = pairs("lr", "eps", "maximize", **BETAS)
    _tensors = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, arguments(locals()))
