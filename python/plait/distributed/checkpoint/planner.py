"""PyTorch's names for how a checkpoint is saved and loaded: the one way there is."""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner"]


def _check(name: str, options: dict[str, tuple[Any, Any]]) -> None:
    """Raises for options of a planner that are not the only ones there are."""
    for option, (given, only) in options.items():
        if given is not only and given != only:
            raise NotImplementedError(f"{name}: {option} must be {only}, got {given!r}")


class DefaultSavePlanner:
    """May be given to `save`: what is saved, and where, follows from the tensors.

    Args:
        flatten_state_dict: must be True
        flatten_sharded_tensors: must be True
        dedup_replicated_tensors: has no effect: what several ranks have is saved once
        dedup_save_to_lowest_rank: has no effect
        enable_plan_caching: has no effect
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        dedup_replicated_tensors: bool | None = None,
        dedup_save_to_lowest_rank: bool = False,
        enable_plan_caching: bool = False,
    ) -> None:
        options = {
            "flatten_state_dict": (flatten_state_dict, True),
            "flatten_sharded_tensors": (flatten_sharded_tensors, True),
        }
        _check("DefaultSavePlanner", options)


class DefaultLoadPlanner:
    """May be given to `load`: all that the state has is loaded.

    Args:
        flatten_state_dict: must be True
        flatten_sharded_tensors: must be True
        allow_partial_load: must be False: a state that lacks an entry raises
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
    ) -> None:
        options = {
            "flatten_state_dict": (flatten_state_dict, True),
            "flatten_sharded_tensors": (flatten_sharded_tensors, True),
            "allow_partial_load": (allow_partial_load, False),
        }
        _check("DefaultLoadPlanner", options)
