"""Files of ONNX: they are not written. Names can be imported, and raise when they are used."""

from __future__ import annotations

from plait._engine.missing_names import refusing as _refusing

__all__ = ["is_in_onnx_export", "register_custom_op_symbolic"]


def is_in_onnx_export() -> bool:
    """Returns False: nothing is exported."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: object, opset_version: int) -> None:
    """Has no effect: nothing is exported."""


__getattr__ = _refusing(
    __name__,
    "ExportOptions ONNXProgram OnnxExporterError OperatorExportTypes TensorProtoDataType TrainingMode dynamo_export "
    "export operators symbolic_opset11 symbolic_opset12",
    "models are not exported; save a state_dict, which PyTorch reads, and export there",
)
