"""Profiles, where PyTorch's older programs have them; see `plait.profiler`."""

from plait.profiler import EventList, profile, record_function

__all__ = ["EventList", "profile", "record_function"]
