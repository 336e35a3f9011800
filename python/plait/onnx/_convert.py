"""Recorded graphs written as ONNX."""

from __future__ import annotations

from typing import Any

from plait._tensor import Tensor
from plait.onnx import (
    _rows_elements,
    _rows_images,
    _rows_indexing,
    _rows_layers,
    _rows_losses,
    _rows_products,
    _rows_reductions,
    _rows_views,
)
from plait.onnx._build import TYPES, Build, Number, Unmapped, Value, type_number
from plait.onnx._errors import OnnxExporterError
from plait.onnx._record import Dim, Merged, described
from plait.onnx._table import RULES, Node, reshaped

FIRST_OPSET, DEFAULT_OPSET = 18, 18


class Converter:
    """Makes an ONNX graph of a recorded one."""

    def __init__(self, onnx: Any, opset: int, merged: Merged) -> None:
        self.onnx, self.merged = onnx, merged
        self.b = Build(onnx, opset)
        self.values: dict[int, Value] = {}
        self.taken: set[str] = set()

    def convert(
        self, inputs: list[str], outputs: list[str], state: dict[str, Tensor], dims: dict[tuple[int, ...], str]
    ) -> Any:
        """Returns the model.

        Args:
            inputs: names of the arguments
            outputs: names of the results
            state: parameters and buffers by name
            dims: the names of dynamic sizes
        """
        b, merged = self.b, self.merged
        b.dims = dims
        for name, v in zip(inputs, merged.inputs, strict=True):
            self.values[v] = b.note(Value(b, name, *self._meta(v)))
        used = self._used()
        for name, v in merged.parameters.items():
            if v in used:
                self.values[v] = b.tensor(name, state[name])
        for v, elements in merged.constants.items():
            if v not in used:
                continue
            if isinstance(elements, Tensor):
                self.values[v] = b.tensor(f"lifted_{v}", elements)
                if elements.numel() <= 64 and not elements.dtype.is_floating_point:
                    self.values[v].elements = elements.flatten().tolist()
            else:
                dtype, shape = self._meta(v)
                self.values[v] = reshaped(b.ints(elements).to(dtype).known([len(elements)]), shape)
                self.values[v].elements = elements
        self._rows(used)
        ends = []
        for name, v in zip(outputs, merged.outputs, strict=True):
            b.scope = ""
            b.nodes.append(onnx_node(self.onnx, "Identity", [self.values[v].name], [name]))
            ends.append(self._info(name, *self._meta(v)))
        graph = self.onnx.helper.make_graph(
            b.nodes,
            "main_graph",
            [self._info(name, *self._meta(v)) for name, v in zip(inputs, merged.inputs, strict=True)],
            ends,
        )
        read = {name for node in b.nodes for name in node.input}
        graph.initializer.extend(t for name, t in b.initializers.items() if name in read)
        ir = self.onnx.helper.find_min_ir_version_for([self.onnx.helper.make_opsetid("", b.opset)])
        return self.onnx.helper.make_model(
            graph, opset_imports=[self.onnx.helper.make_opsetid("", b.opset)], ir_version=ir, producer_name="plait"
        )

    def _meta(self, v: int) -> tuple[str, list[Any]]:
        dtype, shape = self.merged.values[v]
        return dtype, list(shape)

    def _info(self, name: str, dtype: str, shape: list[Any]) -> Any:
        def named(d: int, n: Any) -> Any:
            return (self.b.dims.get(n.passes) or f"{name}_dim_{d}") if isinstance(n, Dim) else n

        sizes = [named(d, n) for d, n in enumerate(shape)]
        return self.onnx.helper.make_tensor_value_info(name, type_number(dtype), sizes)

    def _used(self) -> set[int]:
        """Returns the values that results depend on."""
        used = set(self.merged.outputs)
        for node in reversed(self.merged.nodes):
            if used.intersection(node["outs"]):
                for arg in node["args"].values():
                    for x in arg if isinstance(arg, list) else [arg]:
                        if isinstance(x, dict) and "id" in x:
                            used.add(x["id"])
        return used

    def _rows(self, used: set[int]) -> None:
        missing: dict[str, str] = {}
        for node in self.merged.nodes:
            if not used.intersection(node["outs"]):
                continue
            if not all(v in self.values for v in self._needed(node)):  # behind what is missing
                self._miss(node, None, missing)
                continue
            self.b.scope = node["scope"].replace(".", "/")
            try:
                made = self._row(node)
            except Unmapped as e:
                self._miss(node, e, missing)
                continue
            for v, value in zip(node["outs"], made, strict=True):
                dtype, shape = self._meta(v)
                if value.dtype != dtype:
                    raise OnnxExporterError(f"onnx: {described(node)} has become {value.dtype}, it is {dtype}")
                self.values[v] = self.b.note(Value(self.b, value.name, dtype, shape))
        if missing:
            raise OnnxExporterError("onnx: these operations have no form in ONNX here: " + "; ".join(missing.values()))

    def _miss(self, node: dict[str, Any], e: Unmapped | None, missing: dict[str, str]) -> None:
        name = node["op"].removesuffix("_")
        if e is None and name in RULES:
            return
        why = f" {e.why}" if e is not None and e.why else ""
        missing.setdefault(name + why, f"{node['op']}{why}" + (f" (in {node['scope']})" if node["scope"] else ""))

    @staticmethod
    def _needed(node: dict[str, Any]) -> list[int]:
        found = []
        for arg in node["args"].values():
            found += [x["id"] for x in (arg if isinstance(arg, list) else [arg]) if isinstance(x, dict) and "id" in x]
        return found

    def _argument(self, x: Any) -> Any:
        if isinstance(x, list):
            return [self._argument(v) for v in x]
        if isinstance(x, dict) and "id" in x:
            value = self.values[x["id"]]
            copied = Value(self.b, value.name, value.dtype, list(value.dims))
            copied.elements = value.elements
            return copied
        if isinstance(x, dict) and "number" in x:
            return Number(x["number"], x["dtype"])
        return x

    def _row(self, node: dict[str, Any]) -> list[Value]:
        outs = [self._meta(v) for v in node["outs"]]
        args = {name: self._argument(x) for name, x in node["args"].items()}
        op = node["op"].removesuffix("_") if node["op"].endswith("_") else node["op"]
        rule = RULES.get(op)
        for x in args.values():
            for v in x if isinstance(x, list) else [x]:
                if isinstance(v, Value) and v.dtype not in TYPES:
                    raise Unmapped(f"for {v.dtype}")
        if any(dtype not in TYPES for dtype, _ in outs):
            raise Unmapped(f"for {outs[0][0]}")
        if rule is None:
            raise Unmapped
        made = rule(Node(self.b, op, args, outs))
        made = made if isinstance(made, list) else [made]
        if node["op"].endswith("_"):
            made = [made[0].to(outs[0][0])]
        if len(made) > len(outs):
            made = made[: len(outs)]
        return made


def onnx_node(onnx: Any, kind: str, inputs: list[str], outputs: list[str]) -> Any:
    """Returns a node that is not made by a row."""
    return onnx.helper.make_node(kind, inputs, outputs, name=outputs[0] + "_end")


FAMILIES = (
    _rows_elements,
    _rows_images,
    _rows_indexing,
    _rows_layers,
    _rows_losses,
    _rows_products,
    _rows_reductions,
    _rows_views,
)
