"""What passes are made of."""

from plait.fx.passes.utils import matcher_utils as matcher_utils

__all__ = ["matcher_utils"]
