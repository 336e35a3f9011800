"""The limited-memory BFGS method."""

from __future__ import annotations

from typing import Any

from plait import _core
from plait._engine.runtime import check
from plait._modes import enable_grad
from plait._tensor import Tensor
from plait._tensors.arrays import as_tensor, tensor
from plait.optim._engine import EngineOptimizer
from plait.optim.optimizer import Closure, ParamsT


class LBFGS(EngineOptimizer):
    """The limited-memory BFGS method (Liu and Nocedal 1989) over all parameters as one vector.

    A step evaluates the closure several times. Parameters are one group, on one device and of one dtype. Distributed
    parameters are on one mesh, whose ranks keep parts of the vectors, and the closure returns equal losses there. The
    state has whole vectors, which are gathered: all ranks call `state_dict`.

    Args:
        params: parameters
        lr: the learning rate
        max_iter: iterations in a step
        max_eval: after how many evaluations of the closure a step ends; 5/4 of max_iter by default. A line search makes
            one more to end with
        tolerance_grad: a step ends where no element of the gradient is larger
        tolerance_change: a step ends where loss or parameters change less
        history_size: how many moves are remembered
        line_search_fn: "strong_wolfe", or None for moves of lr
        maximize: not there
    """

    _algorithm = "lbfgs"
    _count = "n_iter"
    _hyper = tuple(
        (n, n, None) for n in ("lr", "max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size")
    )

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        if maximize:
            raise NotImplementedError("lbfgs: maximize is not there; return the negative loss")
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
                "maximize": maximize,
            },
        )

    def _prepare(self) -> None:
        super()._prepare()
        self._names += ",strong_wolfe"

    def _values(self, group: dict[str, Any]) -> tuple[float, ...]:
        search = group["line_search_fn"]
        if search not in (None, "strong_wolfe"):
            raise RuntimeError(f'lbfgs: line_search_fn must be "strong_wolfe" or None, got {search!r}')
        return (*super()._values(group), float(search is not None))

    def step(self, closure: Closure | None = None) -> Any:
        """Makes a step and returns the loss it started from; if the closure raises, nothing has changed.

        Args:
            closure: clears the gradients, computes the loss and its gradients, and returns it
        """
        if closure is None:
            raise TypeError("lbfgs: step wants a closure, which it evaluates several times")
        self._sync()
        run = check(_core.bind_OptimStepBegin(self._handle))
        first: Any = None
        try:
            while check(_core.bind_OptimStepNext(run)):
                try:
                    with enable_grad():
                        loss = closure()
                    value = loss if isinstance(loss, Tensor) else tensor(float(loss))
                    check(_core.bind_OptimStepLoss(run, value._h))
                except BaseException:
                    _core.bind_OptimStepLoss(run, 0)
                    status = _core.bind_OptimStepNext(run)
                    if status < 0:
                        _core.bind_ErrorRelease(status)
                    raise
                first = loss if first is None else first
        finally:
            _core.bind_ObjectRelease(run)
        return first

    # The engine's state is numbered lists of vectors; PyTorch's are lists.

    def _kept(self, p: Any) -> dict[str, Any]:
        raw = super()._kept(p)
        if not raw:
            return {}
        n = int(raw["history"])
        out: dict[str, Any] = {"func_evals": int(raw["func_evals"]), "n_iter": int(raw["step"])}
        if "d" in raw:
            out |= {
                "d": raw["d"],
                "t": float(raw["t"]),
                "old_dirs": [raw[f"old_dirs.{i}"] for i in range(n)],
                "old_stps": [raw[f"old_stps.{i}"] for i in range(n)],
                "ro": [raw[f"ro.{i}"] for i in range(n)],
                "H_diag": raw["H_diag"],
                "prev_flat_grad": raw["prev_flat_grad"],
                "prev_loss": float(raw["prev_loss"]),
            }
        return out

    def _split(self, state: dict[str, Any]) -> tuple[dict[str, float], dict[str, Tensor]]:
        if "n_iter" not in state:
            return {}, {}
        n = len(state.get("old_dirs") or ())
        scale = state.get("H_diag")
        numbers = {
            "func_evals": state.get("func_evals", 0),
            "t": state.get("t", 0),
            "prev_loss": state.get("prev_loss") or 0,
            "H_diag": 1 if scale is None else scale,
            "history": n,
            **{f"ro.{i}": state["ro"][i] for i in range(n)},
        }
        tensors = {k: state[k] for k in ("d", "prev_flat_grad") if state.get(k) is not None}
        for key in ("old_dirs", "old_stps"):
            tensors |= {f"{key}.{i}": v for i, v in enumerate(state.get(key) or ())}
        return {k: float(v) for k, v in numbers.items()}, {k: as_tensor(v).detach() for k, v in tensors.items()}

    def _cast(self, p: Tensor, key: str, value: Any) -> Any:
        return value
