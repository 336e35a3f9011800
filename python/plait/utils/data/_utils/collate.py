"""`default_collate` and `default_convert`, at PyTorch's path."""

from plait.utils.data._collate import default_collate, default_convert

__all__ = ["default_collate", "default_convert"]
