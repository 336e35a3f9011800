"""Profiles, where PyTorch's older programs have them; see `plait.profiler`."""

from plait.profiler import profile, record_function

__all__ = ["profile", "record_function"]
