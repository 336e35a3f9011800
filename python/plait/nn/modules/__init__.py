"""Layers, losses and containers."""

import plait.nn.modules.utils as _utils
from plait._public import publish as _publish
from plait.nn.modules._parameters import *
from plait.nn.modules.activation import *
from plait.nn.modules.adaptive import *
from plait.nn.modules.attention import *
from plait.nn.modules.batchnorm import *
from plait.nn.modules.container import *
from plait.nn.modules.conv import *
from plait.nn.modules.dropout import *
from plait.nn.modules.flatten import *
from plait.nn.modules.instancenorm import *
from plait.nn.modules.lazy import *
from plait.nn.modules.linear import *
from plait.nn.modules.loss import *
from plait.nn.modules.module import Module as Module
from plait.nn.modules.normalization import *
from plait.nn.modules.padding import *
from plait.nn.modules.pooling import *
from plait.nn.modules.rnn import *
from plait.nn.modules.sparse import *
from plait.nn.modules.syncbatchnorm import *
from plait.nn.modules.transformer import *
from plait.nn.modules.vision import *

_publish(globals())
