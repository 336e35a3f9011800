"""What `import torch` finds first in the processes that a program started whose `torch` is Plait."""

import sys

del sys.modules[__name__]

from plait.torch import install  # noqa: E402

install()  # its module stands in the place of this one now
