"""The result of an export."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from plait._engine.pytree import flatten
from plait._tensor import Tensor
from plait._tensors.arrays import from_numpy

# Above this many bytes the parameters go to a file of their own: one message holds at most 2 GiB.
LARGE = 1_800_000_000


class ONNXProgram:
    """A model as ONNX.

    Attributes:
        model_proto: the model, an `onnx.ModelProto`
    """

    def __init__(self, model_proto: Any, input_names: list[str], places: list[int]) -> None:
        self.model_proto = model_proto
        self._input_names, self._places = input_names, places
        self._session: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> list[Tensor]:
        """Returns the results for arguments like those of the export, computed by onnxruntime."""
        leaves = flatten((args, kwargs))[0]
        given = [leaves[i] for i in self._places]
        feed = {name: x.detach().cpu().numpy() for name, x in zip(self._input_names, given, strict=True)}
        if self._session is None:
            self._session = _session(self.model_proto)
        return [from_numpy(np.array(y)) for y in self._session.run(None, feed)]

    def save(
        self,
        destination: Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Writes the model to a path or a file that is open for writing bytes.

        Args:
            destination: the path or file
            include_initializers: whether the parameters are written
            keep_initializers_as_inputs: whether they are inputs of the model too, of which they are the defaults
            external_data: whether the parameters go to a file beside it, with ".data" behind the name; by default if
                they are large
        """
        import onnx

        model = onnx.ModelProto()
        model.CopyFrom(self.model_proto)
        if keep_initializers_as_inputs:
            model.graph.input.extend(
                onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in model.graph.initializer
            )
        if not include_initializers:
            del model.graph.initializer[:]
        if hasattr(destination, "write"):
            if external_data:
                raise TypeError("onnx: external_data needs a path, got an open file")
            destination.write(model.SerializeToString())
            return
        path = Path(os.fspath(destination))
        size = sum(len(t.raw_data) for t in model.graph.initializer)
        if (external_data is None and size > LARGE) or external_data:
            data = path.with_name(path.name + ".data")
            data.unlink(missing_ok=True)  # onnx would add to it
            onnx.save_model(
                model, str(path), save_as_external_data=True, all_tensors_to_one_file=True, location=data.name,
                size_threshold=1024,
            )  # fmt: skip
            return
        path.write_bytes(model.SerializeToString())

    def __repr__(self) -> str:
        graph = self.model_proto.graph
        inputs, outputs = (", ".join(v.name for v in group) for group in (graph.input, graph.output))
        return f"ONNXProgram(({inputs}) -> ({outputs}), {len(graph.node)} nodes)"


def _session(model: Any) -> Any:
    try:
        import onnxruntime
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError(
            "ONNXProgram: calling it needs the package onnxruntime, which is not installed: pip install onnxruntime",
            name="onnxruntime",
        ) from e
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
