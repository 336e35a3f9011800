"""Where programs keep weights of models. Nothing is downloaded."""

from __future__ import annotations

import os
import re
from urllib.parse import urlparse  # noqa: F401  # for those who import it from here

from plait._engine.missing_names import refusing as _refusing

__all__ = ["get_dir", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_dir: str | None = None


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Returns the folder that `set_dir` named, by default `hub` in that of the variable TORCH_HOME."""
    return _dir if _dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Names the folder that `get_dir` returns in this process."""
    global _dir
    _dir = os.path.expanduser(d)


__getattr__ = _refusing(
    __name__,
    "download_url_to_file help list load load_state_dict_from_url",
    "nothing is downloaded; fetch the file by other means, and read it with load",
)
