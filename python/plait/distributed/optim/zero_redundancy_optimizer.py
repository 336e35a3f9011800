"""ZeRO's first stage (Rajbhandari et al. 2020): each rank keeps the states of its share of the parameters."""

from __future__ import annotations

from typing import Any

from plait import _ops
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.distributed._collectives import broadcast
from plait.distributed._groups import ProcessGroup, get_global_rank, resolve_group
from plait.distributed._objects import gather_object
from plait.distributed.tensor._dtensor import DTensor
from plait.optim.optimizer import Closure, Optimizer, ParamsT

__all__ = ["ZeroRedundancyOptimizer"]

_NAMES = ("params", "param_names")  # of a group: they differ between a rank's share and the whole


class ZeroRedundancyOptimizer(Optimizer):
    """Wraps an optimiser so that each rank updates a share of the parameters and sends it to the others.

    Every rank gives the same parameters, in the same order, with gradients that are the same everywhere, as
    `DistributedDataParallel` leaves them. A rank keeps the states of its share alone. The parameters after a step are
    those of the optimiser by itself. A parameter is never split: of a group the largest goes first, each to the rank
    that has least.

    Args:
        params: parameters or groups of them, of dense tensors
        optimizer_class: the class of the optimiser
        process_group: the ranks; by default all
        parameters_as_bucket_view: has no effect; a rank's parameters of a dtype and device are sent together
        overlap_with_ddp: not there
        defaults: arguments of `optimizer_class`, such as `lr`

    Raises:
        NotImplementedError: if it shall overlap with DDP.
        TypeError: for distributed parameters, whose states are distributed already.
    """

    def __init__(
        self,
        params: ParamsT,
        optimizer_class: type[Optimizer],
        process_group: ProcessGroup | None = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer: overlap_with_ddp is not there; call step() after backward"
            )
        self.process_group = resolve_group(process_group, "ZeroRedundancyOptimizer")
        self.world_size, self.rank = self.process_group.size(), self.process_group.rank()
        self._consolidated: list[dict[Any, Any]] | None = None  # the ranks' states, on the rank that asked for them
        self._sizes = [0] * self.world_size
        self._shares: list[list[list[Tensor]]] = [[] for _ in range(self.world_size)]  # by rank and group
        super().__init__(params, defaults)
        #: the rank's own optimiser
        self.optim = optimizer_class([self._own(i) for i in range(len(self.param_groups))], **defaults)
        self.defaults = self.optim.defaults
        self.state = self.optim.state
        self._hand(self.optim, self)

    def _own(self, group: int) -> dict[str, Any]:
        """Returns this rank's share of a group."""
        share, whole = self._shares[self.rank][group], self.param_groups[group]
        out = {k: v for k, v in whole.items() if k not in _NAMES} | {"params": share}
        if "param_names" in whole:
            name = {id(p): n for p, n in zip(whole["params"], whole["param_names"], strict=True)}
            out["param_names"] = [name[id(p)] for p in share]
        return out

    @staticmethod
    def _hand(source: Optimizer, target: Optimizer) -> None:
        """Hands hyperparameters from one optimiser's groups to another's, where schedules and steps change them."""
        for a, b in zip(source.param_groups, target.param_groups, strict=True):
            b.update({k: v for k, v in a.items() if k not in _NAMES})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters with hyperparameters of their own, on every rank; see `Optimizer.add_param_group`."""
        super().add_param_group(param_group)
        params = self.param_groups[-1]["params"]
        if any(isinstance(p, DTensor) for p in params):
            self.param_groups.pop()
            raise TypeError("ZeroRedundancyOptimizer: got distributed parameters; their states are distributed already")
        for share in self._shares:
            share.append([])
        for p in sorted(params, key=Tensor.numel, reverse=True):
            rank = self._sizes.index(min(self._sizes))
            self._sizes[rank] += p.numel()
            self._shares[rank][-1].append(p)
        if hasattr(self, "optim"):
            self.optim.add_param_group(self._own(-1))
            self._hand(self.optim, self)

    @no_grad()
    def step(self, closure: Closure | None = None, **kwargs: Any) -> Any:
        """Updates the parameters by their gradients, on every rank.

        Args:
            closure: clears the gradients, computes the loss and its gradients, and returns it
            kwargs: other arguments of the optimiser's `step`
        """
        self._consolidated = None
        self._hand(self, self.optim)
        loss = self.optim.step(**({} if closure is None else {"closure": closure}), **kwargs)
        self._hand(self.optim, self)
        self._send()
        return loss

    def _send(self) -> None:
        """Sends each rank's parameters to the others: those of a dtype on a device at once."""
        sent, group = [], self.process_group._for("parameters that a rank has stepped")
        for rank, groups in enumerate(self._shares):
            alike: dict[tuple[Any, Any], list[Tensor]] = {}
            for p in (p for group in groups for p in group):
                alike.setdefault((p.dtype, p.device), []).append(p)
            for params in alike.values():
                flat = _ops.cat([p.detach().reshape(-1) for p in params])
                root = get_global_rank(self.process_group, rank)
                sent.append((rank, params, flat, broadcast(flat, root, group, async_op=True)))
        for rank, params, flat, work in sent:
            assert work is not None  # this rank is in the group
            work.wait()
            if rank != self.rank:
                for p, value in zip(params, flat.split([p.numel() for p in params]), strict=True):
                    p.copy_(value.reshape(p.shape))

    # --- saved states ---

    def _numbers(self) -> dict[int, int]:
        """Returns the numbers of the parameters in a whole state, by identity."""
        return {id(p): i for i, p in enumerate(p for g in self.param_groups for p in g["params"])}

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Collects the states on one rank, where `state_dict` then returns them; every rank calls it.

        Args:
            to: the rank, within the group
        """
        self._hand(self, self.optim)
        every: list[Any] | None = [None] * self.world_size if self.rank == to else None
        group = self.process_group._for("the states of optimisers")
        gather_object(self._on_cpu(self.optim.state_dict()["state"]), every, group=group, group_dst=to)
        self._consolidated = every

    @staticmethod
    def _on_cpu(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().cpu()
        if isinstance(value, dict):
            return {k: ZeroRedundancyOptimizer._on_cpu(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(ZeroRedundancyOptimizer._on_cpu(v) for v in value)
        return value

    def state_dict(self) -> dict[str, Any]:
        """Returns the whole state, as the optimiser by itself has it, with its tensors on the CPU.

        Raises:
            RuntimeError: on a rank that has not collected it since the last step, by `consolidate_state_dict`.
        """
        if self._consolidated is None:
            raise RuntimeError(
                f"ZeroRedundancyOptimizer: rank {self.rank} has not collected the state since the last step; "
                f"call consolidate_state_dict(to={self.rank}) on all ranks"
            )
        out, numbers = super().state_dict(), self._numbers()
        state: dict[Any, Any] = {}
        for groups, kept in zip(self._shares, self._consolidated, strict=True):
            params = [p for group in groups for p in group]
            state.update({numbers[id(params[k])] if isinstance(k, int) else k: v for k, v in kept.items()})
        return {**out, "state": dict(sorted(state.items(), key=lambda item: (isinstance(item[0], str), item[0])))}

    def _load(self, state: dict[Any, Any], groups: list[dict[str, Any]]) -> None:
        self.param_groups = groups  # the rank's optimiser has the states

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a whole state, on every rank, of which each keeps its share.

        Args:
            state_dict: of this class or of the optimiser by itself

        Raises:
            ValueError: if the groups do not fit.
        """
        super().load_state_dict({**state_dict, "state": {}})
        self._consolidated = None
        numbers = self._numbers()
        params = [p for group in self._shares[self.rank] for p in group]
        state = {
            i: state_dict["state"][n] for i, p in enumerate(params) if (n := numbers[id(p)]) in state_dict["state"]
        }
        self._hand(self, self.optim)
        self.optim.load_state_dict({**self.optim.state_dict(), "state": state})
        self.state = self.optim.state
