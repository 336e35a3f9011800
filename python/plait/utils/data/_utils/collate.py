"""How samples become batches, at PyTorch's path."""

import re

from plait.utils.data._collate import (
    collate,
    collate_float_fn,
    collate_int_fn,
    collate_numpy_array_fn,
    collate_numpy_scalar_fn,
    collate_str_fn,
    collate_tensor_fn,
    default_collate,
    default_collate_fn_map,
    default_convert,
)

__all__ = [
    "collate", "collate_float_fn", "collate_int_fn", "collate_numpy_array_fn", "collate_numpy_scalar_fn",
    "collate_str_fn", "collate_tensor_fn", "default_collate", "default_collate_fn_map", "default_convert",
    "np_str_obj_array_pattern",
]  # fmt: skip

np_str_obj_array_pattern = re.compile("[SaUO]")  # in the name of a NumPy dtype: of text or objects
