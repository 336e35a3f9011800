"""Traces of what runs below functions, which are not there."""

from plait._engine.missing_names import refusing as _refusing

__all__ = ["get_proxy_mode"]


def get_proxy_mode() -> None:
    """Returns None: nothing is traced below functions."""


__getattr__ = _refusing(
    __name__,
    "make_fx maybe_disable_fake_tensor_mode",
    "there is no dispatch below functions to trace; fx.symbolic_trace traces functions",
)
