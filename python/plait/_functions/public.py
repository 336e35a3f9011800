"""The functions at the top of the package, where they are not generated ones."""

# ruff: noqa: F403
from plait._functions.aliases import *
from plait._functions.arithmetic import *
from plait._functions.changing import *
from plait._functions.compiling import *
from plait._functions.config import *
from plait._functions.conversion import *
from plait._functions.creation import *
from plait._functions.drawing import *
from plait._functions.histograms import *
from plait._functions.indexing import *
from plait._functions.likes import *
from plait._functions.matrix import *
from plait._functions.order import *
from plait._functions.quantization import *
from plait._functions.reduction import *
from plait._functions.shape import *
from plait._functions.spectral import *
from plait._functions.splitting import *
from plait._functions.windows import *
from plait._ops.functions import *
