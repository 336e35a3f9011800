"""Tools for training and for changing modules."""

from plait._engine.missing_names import absent as _absent
from plait._public import publish as _publish
from plait.nn.utils import parametrizations as parametrizations
from plait.nn.utils import parametrize as parametrize
from plait.nn.utils import rnn as rnn
from plait.nn.utils import stateless as stateless
from plait.nn.utils.clip_grad import *
from plait.nn.utils.convert_parameters import *
from plait.nn.utils.fusion import *
from plait.nn.utils.init import *
from plait.nn.utils.memory_format import *
from plait.nn.utils.spectral_norm import *
from plait.nn.utils.weight_norm import *

_publish(globals(), "parametrizations", "parametrize", "rnn", "stateless")


def __getattr__(name: str) -> object:
    raise _absent("nn_utils", "plait.nn.utils", name)
