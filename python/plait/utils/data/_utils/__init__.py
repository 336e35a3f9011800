"""`collate`, at PyTorch's path."""

from plait.utils.data._utils import collate as collate
