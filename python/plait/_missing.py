"""Names of PyTorch's that are not there: an error that says so, where another name is just unknown."""

from __future__ import annotations

from plait._errors import MissingFeatureError


def absent(area: str, where: str, name: str) -> AttributeError:
    """Returns the error for a name that is not there.

    Args:
        area: the list of names to look it up in
        where: the module or class, for the message
        name: what was asked for
    """
    from plait._names import NAMES

    if name.startswith("__") or name not in NAMES.get(area, "").split():
        return AttributeError(f"{where} has no attribute {name!r}")
    return MissingFeatureError(
        f"{where}.{name}: this name of PyTorch's is not there yet; docs/coverage.md lists what is"
    )
