"""Event files for TensorBoard, by the package `tensorboard`: `pip install plait[tensorboard]`."""

try:
    import tensorboard as _tensorboard
except ModuleNotFoundError as _missing:
    if _missing.name != "tensorboard":
        raise
    raise ModuleNotFoundError(
        "plait.utils.tensorboard writes its files by the package tensorboard, which is not installed: "
        "pip install tensorboard",
        name="tensorboard",
    ) from None

from plait._public import publish as _publish
from plait.utils.tensorboard.writer import FileWriter as FileWriter
from plait.utils.tensorboard.writer import SummaryWriter as SummaryWriter

_publish(globals())
