"""Where scripts import `default_collate` from."""

from plait.utils.data._utils import collate as collate
