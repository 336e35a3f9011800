"""Drawings of what a training run does, as SVG: losses, what runs when, memory and communication.

Each function returns a `Picture`, which a notebook shows, and `save` writes. No other package is needed.
"""

from plait.plot._communication import communication
from plait.plot._draw import Picture
from plait.plot._losses import losses
from plait.plot._memory import MemoryLog, memory
from plait.plot._timeline import timeline

__all__ = ["MemoryLog", "Picture", "communication", "losses", "memory", "timeline"]
