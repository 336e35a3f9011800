"""Values that give their state and take it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """What saves and loads itself: modules, optimisers, schedulers, and classes of users."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Takes a state that `state_dict` returned."""
        ...
