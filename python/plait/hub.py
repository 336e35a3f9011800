"""Where programs keep weights of models. Nothing is downloaded."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlparse

from plait._engine.missing_names import refusing as _refusing
from plait._errors import MissingFeatureError as _MissingFeatureError
from plait._serialization.archives import MapLocation as _MapLocation
from plait.serialization import load as _load

__all__ = ["get_dir", "load_state_dict_from_url", "set_dir"]

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


def load_state_dict_from_url(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    map_location: _MapLocation = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> dict[str, Any]:
    """Returns the state dict of a file that has been fetched before, as `load` does.

    Args:
        url: where the file was fetched from; the end of its path names the file
        model_dir: the folder of the file, by default `checkpoints` in `get_dir()`
        map_location: where tensors go, as `load` says
        progress: has no effect
        check_hash: has no effect on a file that is there
        file_name: the file's name, if it is another one
        weights_only: as `load` says; with False the file can run any code

    Raises:
        NotImplementedError: if the file is not there. The message names it.
    """
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    path = os.path.join(folder, file_name or os.path.basename(urlparse(url).path))
    if not os.path.exists(path):
        raise _MissingFeatureError(
            f"plait.hub.load_state_dict_from_url: nothing is downloaded; fetch {url} by other means, "
            f"and keep it as {path}"
        )
    state: dict[str, Any] = _load(path, map_location, weights_only=weights_only)
    return state


__getattr__ = _refusing(
    __name__,
    "download_url_to_file help list load",
    "nothing is downloaded; fetch the file by other means, and read it with load",
)
