"""How replicas of a model wait for each other."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Asynchronous", "BoundedStaleness", "Synchronous", "asynchronous", "bounded_staleness", "synchronous"]


@dataclass(frozen=True)
class Synchronous:
    """Every step has the gradients of all."""


@dataclass(frozen=True)
class BoundedStaleness:
    """A rank may be ahead of the slowest by `max` steps (Ho et al. 2013); 0 gives the synchronous bits."""

    max: int


@dataclass(frozen=True)
class Asynchronous:
    """A rank may be ahead by any number of steps."""


SyncMode = Synchronous | BoundedStaleness | Asynchronous

synchronous = Synchronous()
asynchronous = Asynchronous()


def bounded_staleness(max: int) -> BoundedStaleness:
    """Returns the mode in which a rank may be ahead of the slowest by `max` steps."""
    if max < 0:
        raise ValueError(f"bounded_staleness: want 0 or more steps, got {max}")
    return BoundedStaleness(max)


def as_mode(mode: SyncMode | str) -> SyncMode:
    """Returns a mode, which may be given by the name "synchronous" or "asynchronous"."""
    named: dict[object, SyncMode] = {"synchronous": synchronous, "asynchronous": asynchronous}
    if isinstance(mode, Synchronous | BoundedStaleness | Asynchronous):
        return mode
    if mode not in named:
        raise ValueError(f"set_sync_mode: want synchronous, asynchronous or bounded_staleness(max), got {mode!r}")
    return named[mode]
