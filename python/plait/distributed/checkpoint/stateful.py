"""`Stateful`, the protocol of objects with a state dict."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """An object with a state dict: a module, an optimiser, a scheduler, or an object of a user's class."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the state."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Loads a state that `state_dict` returned."""
        ...
