"""Data loading, checkpointing and other helpers."""

from typing import Any

from plait._engine.missing_names import absent as _absent


def __getattr__(name: str) -> Any:
    """Imports a submodule at its first use, since PyTorch's submodules need no import of their own."""
    if name in ("_pytree", "checkpoint", "data", "dlpack", "hooks", "model_zoo"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise _absent("utils", "plait.utils", name)
