"""Values that are not tensors, encoded as JSON, so that checkpoints contain no code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_TAG = "plait.kind"


def encode(value: Any) -> Any:
    """Encodes a value as JSON types.

    Raises:
        TypeError: unless the value is a number, text, bytes, None, or a list, tuple or dict of those.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value) if -(1 << 53) <= value <= 1 << 53 else {_TAG: "int", "value": str(int(value))}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_TAG: "float", "value": repr(float(value))}
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, bytes):
        return {_TAG: "bytes", "value": value.hex()}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, tuple):
        return {_TAG: "tuple", "value": [encode(v) for v in value]}
    if isinstance(value, dict):
        return {_TAG: "dict", "value": [[encode(k), encode(v)] for k, v in value.items()]}
    raise TypeError(
        f"cannot save a {type(value).__name__}; tensors, numbers, text, lists, tuples and dicts can be saved"
    )


def decode(value: Any) -> Any:
    """Decodes a result of `encode`."""
    if isinstance(value, list):
        return [decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    inner = value["value"]
    match value[_TAG]:
        case "int":
            return int(inner)
        case "float":
            return float(inner)
        case "bytes":
            return bytes.fromhex(inner)
        case "tuple":
            return tuple(decode(v) for v in inner)
        case "dict":
            return {decode(k): decode(v) for k, v in inner}
    raise ValueError(f"a value of the unknown kind {value[_TAG]!r}")
