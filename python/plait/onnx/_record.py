"""Forward passes recorded as graphs, and graphs of several sizes compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from plait import _core
from plait._engine.pytree import flatten
from plait._engine.runtime import check, own
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.nn.modules.module import Module
from plait.nn.parameter import Parameter
from plait.nn.utils.stateless import functional_call
from plait.onnx._errors import OnnxExporterError


class Recording:
    """What one forward pass does.

    Attributes:
        values: the dtype and the shape of each value
        nodes: the operations, in order
        constants: tensors by value
        inputs: the values of the arguments that are tensors
        parameters: the value of each parameter and buffer, by its name
        outputs: the values of the results that are tensors
    """

    def __init__(
        self,
        model: Callable[..., Any],
        state: dict[str, Tensor],
        leaves: Sequence[Any],
        call: Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]],
    ) -> None:
        """Runs the model.

        Args:
            model: a module, or a function
            state: parameters and buffers by name
            leaves: the arguments, taken apart
            call: what puts leaves together again as arguments
        """
        self.handle: int = check(_core.bind_GraphBegin())
        self.scopes: list[str] = []
        hooks = []
        try:
            with no_grad():
                given = [self._stand(x) if isinstance(x, Tensor) else x for x in leaves]
                named = {name: self._stand(t, isinstance(t, Parameter)) for name, t in state.items()}
                self.inputs = [self._value(x) for x in given if isinstance(x, Tensor)]
                self.parameters = {name: self._value(t) for name, t in named.items()}
                args, kwargs = call(given)
                if isinstance(model, Module):
                    hooks = self._watch(model)
                    out = functional_call(model, named, args, kwargs)
                else:
                    out = model(*args, **kwargs)
            self.outputs = []
            for leaf in flatten(out)[0]:
                if isinstance(leaf, Tensor):
                    self.outputs.append(self._value(leaf))
                elif leaf is not None:
                    raise OnnxExporterError(f"onnx: the model returns {leaf!r:.60}; results must be tensors")
            text = json.loads(_core.bind_GraphText(self.handle))
            self.values, self.nodes = text["values"], text["nodes"]
            self.constants = {
                v: own(check(_core.bind_GraphConstant(self.handle, i))) for i, v in enumerate(text["constants"])
            }
        finally:
            for hook in hooks:
                hook.remove()
            _core.bind_GraphEnd(self.handle)
            _core.bind_ObjectRelease(self.handle)

    def _stand(self, t: Tensor, fixed: bool = False) -> Tensor:
        made: Tensor = own(check(_core.bind_GraphInput(self.handle, t._h, fixed)))
        return made

    def _value(self, t: Tensor) -> int:
        found: int = check(_core.bind_GraphValue(self.handle, t._h))
        return found

    def _watch(self, model: Module) -> list[Any]:
        """Tells the graph in which module each operation is."""

        def enter(name: str) -> Callable[..., None]:
            def hook(*_: Any) -> None:
                self.scopes.append(name)
                check(_core.bind_GraphScope(self.handle, name))

            return hook

        def leave(*_: Any) -> None:
            self.scopes.pop()
            check(_core.bind_GraphScope(self.handle, self.scopes[-1] if self.scopes else ""))

        hooks: list[Any] = []
        for name, module in model.named_modules():
            hooks += [module.register_forward_pre_hook(enter(name)), module.register_forward_hook(leave)]
        return hooks


class Dim:
    """A whole number that follows from the sizes of the arguments: what it is in each pass."""

    def __init__(self, passes: Sequence[int]) -> None:
        self.passes = tuple(passes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and other.passes == self.passes

    def __hash__(self) -> int:
        return hash(self.passes)

    def __repr__(self) -> str:
        return f"a size that is {', then '.join(map(str, self.passes))}"


def _whole(values: Sequence[Any]) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) and float(v).is_integer() for v in values)


class Merged:
    """The graph that recordings with different sizes have in common. What differs in them are numbers made of sizes.

    Attributes:
        values: the dtype and the shape of each value, sizes as ints or [Dim]s
        nodes: the operations, with ints or [Dim]s among their arguments
        constants: tensors by value, or arrays of ints and [Dim]s where they differ
    """

    def __init__(self, recordings: Sequence[Recording]) -> None:
        first = recordings[0]
        self.inputs, self.parameters, self.outputs = first.inputs, first.parameters, first.outputs
        for r in recordings:
            self._same_operations(first, r)
        self.values = []
        for several in zip(*(r.values for r in recordings), strict=True):
            shapes = [v["shape"] for v in several]
            if len({(len(s), v["dtype"]) for s, v in zip(shapes, several, strict=True)}) > 1:
                raise OnnxExporterError(f"onnx: the number of dimensions depends on sizes: {shapes}")
            dims = [self._number(list(sizes), "a shape") for sizes in zip(*shapes, strict=True)]
            self.values.append((several[0]["dtype"], dims))
        self.nodes = []
        for several in zip(*(r.nodes for r in recordings), strict=True):
            node = dict(several[0])
            where = described(node)
            node["args"] = {
                several[0]["args"][i]["name"]: self._merge([n["args"][i]["value"] for n in several], where)
                for i in range(len(node["args"]))
            }
            self.nodes.append(node)
        self.constants: dict[int, Any] = {}
        for v in first.constants:
            self.constants[v] = self._constant(v, [r.constants[v] for r in recordings])

    @staticmethod
    def _same_operations(first: Recording, other: Recording) -> None:
        def form(r: Recording) -> Any:
            operations = [(n["op"], n["outs"], [a["name"] for a in n["args"]]) for n in r.nodes]
            return operations, len(r.values), list(r.constants), r.outputs

        if form(first) == form(other):
            return
        for a, b in zip(first.nodes, other.nodes, strict=False):
            if a["op"] != b["op"] or a["outs"] != b["outs"]:
                raise OnnxExporterError(
                    f"onnx: with other sizes the model does {described(b)} where it did {described(a)}: what it does "
                    "must not depend on sizes that are dynamic"
                )
        raise OnnxExporterError(
            f"onnx: with other sizes the model does {len(other.nodes)} operations where it did {len(first.nodes)}: "
            "what it does, such as the number of steps of a loop, must not depend on sizes that are dynamic"
        )

    @staticmethod
    def _number(values: list[int], where: str) -> Any:
        return values[0] if len(set(values)) == 1 else Dim(values)

    def _merge(self, values: list[Any], where: str) -> Any:
        """Returns an argument that was `values` in the passes."""
        first = values[0]
        if all(v == first for v in values):
            return first
        if any(isinstance(v, dict) and "id" in v for v in values):
            raise OnnxExporterError(f"onnx: with other sizes {where} takes another tensor")
        if all(isinstance(v, dict) and v.keys() == first.keys() for v in values):
            return {k: self._merge([v[k] for v in values], where) for k in first}
        if all(isinstance(v, list) and len(v) == len(first) for v in values):
            return [self._merge([v[i] for v in values], where) for i in range(len(first))]
        if _whole(values):
            return Dim([int(v) for v in values])
        raise OnnxExporterError(
            f"onnx: {where} takes {values[0]!r:.60}, which with other sizes is {values[-1]!r:.60}: only whole numbers "
            "can follow from sizes that are dynamic"
        )

    def _constant(self, value: int, tensors: list[Tensor]) -> Any:
        if len({t.shape for t in tensors}) == 1 and self.values[value][0] != "bfloat16":
            arrays = [t.numpy() for t in tensors]
            if all(np.array_equal(a, arrays[0], equal_nan=a.dtype.kind == "f") for a in arrays):
                return tensors[0]
            if arrays[0].size <= 64 and all(_whole(a.ravel().tolist()) for a in arrays):
                columns = zip(*(a.ravel().tolist() for a in arrays), strict=True)
                return [self._number([int(x) for x in c], "a constant") for c in columns]
        elif all(t.shape == tensors[0].shape and bool((t == tensors[0]).all()) for t in tensors):
            return tensors[0]
        users = [
            described(n)
            for n in self.nodes
            if any(v == {"id": value} or (isinstance(v, list) and {"id": value} in v) for v in n["args"].values())
        ]
        shapes = " and ".join(str(tuple(t.shape)) for t in tensors[:2])
        raise OnnxExporterError(
            f"onnx: a constant that {users[0] if users else 'the model returns'} takes differs with the sizes (shapes "
            f"{shapes}): make it by operations, such as arange, inside of forward"
        )


def described(node: dict[str, Any]) -> str:
    """Returns how errors name an operation."""
    return f"{node['op']} in {node['scope']}" if node["scope"] else str(node["op"])
