"""Traces of what runs below functions, which are not there."""

from plait._engine.missing_names import refusing as _refusing

__all__: list[str] = []

__getattr__ = _refusing(
    __name__,
    "get_proxy_mode make_fx maybe_disable_fake_tensor_mode",
    "there is no dispatch below functions to trace; fx.symbolic_trace traces functions",
)
