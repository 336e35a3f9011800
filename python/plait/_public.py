"""Lists of names that packages do not write a second time."""

from __future__ import annotations

import types
from typing import Any


def publish(names: dict[str, Any], *others: str) -> None:
    """Sets a package's `__all__` to what it has imported or defined, but no modules and nothing private.

    Type checkers do not see it: to them a package has what it imports by `*` or `as` the same name.

    Args:
        names: the package's `globals()`
        others: modules and private names that are public all the same
    """
    shown = (k for k, v in names.items() if k[0] != "_" and not isinstance(v, types.ModuleType))
    names["__all__"] = sorted({*shown, *others})
