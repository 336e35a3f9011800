"""What export raises."""

from __future__ import annotations


class OnnxExporterError(RuntimeError):
    """A model that cannot be written as ONNX."""
