"""Batches of samples."""

from plait.utils.data._collate import default_collate, default_convert

__all__ = ["default_collate", "default_convert"]
