"""Profiles, where PyTorch's older programs have them; see `plait.profiler`."""

from plait._engine.missing_names import refusing as _refusing
from plait.profiler import EventList, kineto_available, profile, record_function

__all__ = ["EventList", "kineto_available", "profile", "record_function"]

__getattr__ = _refusing(__name__, "emit_itt emit_nvtx", "operations do not annotate other tools' profiles")
