"""The functions that layers are made of."""

from plait._engine.missing_names import absent as _absent
from plait._public import publish as _publish
from plait.nn.functional.activation import *
from plait.nn.functional.attention import *
from plait.nn.functional.conv import *
from plait.nn.functional.distance import *
from plait.nn.functional.dropout import *
from plait.nn.functional.fractional import *
from plait.nn.functional.loss import *
from plait.nn.functional.normalization import *
from plait.nn.functional.pooling import *
from plait.nn.functional.sparse import *
from plait.nn.functional.vision import *

_publish(globals())


def __getattr__(name: str) -> object:
    raise _absent("functional", "plait.nn.functional", name)
