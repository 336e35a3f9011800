"""The older place of names of `plait.hub`."""

from plait.hub import load_state_dict_from_url as load_url

try:
    from tqdm.auto import tqdm
except ImportError:
    from plait._engine.missing_names import refusing

    tqdm = refusing(__name__, "tqdm", "install the package tqdm")("tqdm")

__all__ = ["load_url", "tqdm"]
