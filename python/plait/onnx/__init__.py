"""Models written as ONNX, by the package `onnx`: `pip install plait[onnx]`."""

from __future__ import annotations

from plait._engine.missing_names import refusing as _refusing
from plait.onnx._errors import OnnxExporterError
from plait.onnx._export import TrainingMode, export, is_in_onnx_export
from plait.onnx._program import ONNXProgram

__all__ = [
    "ONNXProgram",
    "OnnxExporterError",
    "TrainingMode",
    "export",
    "is_in_onnx_export",
    "register_custom_op_symbolic",
]


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: object, opset_version: int) -> None:
    """Has no effect: operations are those of Plait's registry."""


__getattr__ = _refusing(
    __name__,
    "ExportOptions OperatorExportTypes TensorProtoDataType dynamo_export operators symbolic_opset11 symbolic_opset12",
    "plait.onnx.export writes models as ONNX; what else PyTorch's module has is not there",
)
