"""Distributed tensors in functions and hooks of a program: the engine's nodes have each rank's part of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any


def gradient_forms(values: Sequence[Any]) -> list[Any] | None:
    """Returns for each value how its gradient lies, or None; None for all if no value is a distributed tensor."""
    module = sys.modules.get("plait.distributed.tensor._dtensor")
    if module is None:
        return None
    forms = [module.gradient_form(v) for v in values]
    return forms if any(forms) else None


def of_parts(forms: Sequence[Any] | None, grads: Sequence[Any]) -> list[Any]:
    """Returns gradients as distributed tensors, where they are."""
    if forms is None:
        return list(grads)
    return [g if f is None or g is None else f.of_part(g) for f, g in zip(forms, grads, strict=True)]


def parts_of(forms: Sequence[Any] | None, name: str, grads: Sequence[Any]) -> list[Any]:
    """Returns the parts of gradients that a function of a program has made."""
    if forms is None:
        return list(grads)
    return [g if f is None or g is None else f.part(name, g) for f, g in zip(forms, grads, strict=True)]
