"""The package's name in what programs print and compare: the text of dtypes, sizes and layouts."""

from __future__ import annotations

# "torch" where the program imports PyTorch: such programs compare `str(x.dtype)` with "torch.float32", or cut that off.
package = "plait"
