"""Synchronisation modes of data-parallel training."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Asynchronous", "BoundedStaleness", "Synchronous", "asynchronous", "bounded_staleness", "synchronous"]


@dataclass(frozen=True)
class Synchronous:
    """Every step uses the gradients of all ranks or devices."""


@dataclass(frozen=True)
class BoundedStaleness:
    """A rank may be `max` steps ahead of the slowest (Ho et al. 2013). 0 matches synchronous training bitwise."""

    max: int


@dataclass(frozen=True)
class Asynchronous:
    """A rank may be any number of steps ahead."""


SyncMode = Synchronous | BoundedStaleness | Asynchronous

synchronous = Synchronous()
asynchronous = Asynchronous()


def bounded_staleness(max: int) -> BoundedStaleness:
    """Returns the mode in which a rank may be `max` steps ahead of the slowest."""
    if max < 0:
        raise ValueError(f"bounded_staleness: want 0 or more steps, got {max}")
    return BoundedStaleness(max)


def as_mode(mode: SyncMode | str) -> SyncMode:
    """Returns a mode, given as such or by the name "synchronous" or "asynchronous"."""
    named: dict[object, SyncMode] = {"synchronous": synchronous, "asynchronous": asynchronous}
    if isinstance(mode, Synchronous | BoundedStaleness | Asynchronous):
        return mode
    if mode not in named:
        raise ValueError(f"set_sync_mode: want synchronous, asynchronous or bounded_staleness(max), got {mode!r}")
    return named[mode]
