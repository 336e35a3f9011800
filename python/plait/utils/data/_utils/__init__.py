"""`collate` and `pin_memory`, at PyTorch's path."""

from plait.utils.data._utils import collate as collate
from plait.utils.data._utils import pin_memory as pin_memory
