"""`export`: a model written as ONNX."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from plait import _ops
from plait._engine.pytree import children, flatten
from plait._engine.warnings import warn
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.nn.modules.module import Module
from plait.onnx._errors import OnnxExporterError
from plait.onnx._program import ONNXProgram


class TrainingMode(IntEnum):
    """Which mode a module is exported in."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class _Local(threading.local):
    exporting = 0


_local = _Local()


def is_in_onnx_export() -> bool:
    """Returns whether the calling thread exports a model."""
    return _local.exporting > 0


def _package() -> Any:
    try:
        import onnx
        import onnx.helper
    except ModuleNotFoundError as e:
        if e.name != "onnx":
            raise
        raise ModuleNotFoundError(
            "plait.onnx writes its files by the package onnx, which is not installed: pip install onnx", name="onnx"
        ) from None
    return onnx


def export(
    model: Callable[..., Any],
    args: Any = (),
    f: Any = None,
    *,
    kwargs: dict[str, Any] | None = None,
    verbose: bool | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    dynamo: bool = True,
    external_data: bool = True,
    dynamic_shapes: Any = None,
    report: bool = False,
    optimize: bool = True,
    verify: bool = False,
    export_params: bool = True,
    keep_initializers_as_inputs: bool = False,
    dynamic_axes: Mapping[str, Any] | None = None,
    training: TrainingMode = TrainingMode.EVAL,
    do_constant_folding: bool = True,
) -> ONNXProgram:
    """Returns a model as ONNX, and writes it to a file if one is given.

    The operations of a forward pass are recorded. With dynamic sizes there are two more passes, with other sizes: the
    numbers that differ must follow from the sizes, and what is done must not differ. What the model decides by elements
    of tensors cannot be recorded and raises.

    Args:
        model: a module, or a function of tensors
        args: the arguments, a tuple or one tensor; their tensors become inputs. A dict at the end is that of keyword
            arguments, where kwargs is not given
        f: a path, or a file that is open for writing bytes
        kwargs: keyword arguments
        verbose: print the graph
        input_names: names of the inputs, in order; by default those of forward
        output_names: names of the outputs, in order
        opset_version: of ONNX, 18 or later
        dynamo: without meaning: there is one way
        external_data: for a path, whether parameters may go to a file beside it, which they do if they are large
        dynamic_shapes: for each argument the sizes that are dynamic, `{dimension: name}`, in the form of the arguments
            or a dict by their names
        report: without meaning
        optimize: without meaning: what runs the model folds constants
        verify: compare the results with onnxruntime's
        export_params: without, parameters are inputs
        keep_initializers_as_inputs: parameters are inputs too
        dynamic_axes: the sizes that are dynamic by the name of the input, `{dimension: name}` or a list of dimensions
        training: the mode of the module: evaluation, as it is, or training
        do_constant_folding: without meaning: what runs the model folds constants

    Raises:
        OnnxExporterError: for operations without a form in ONNX, of which it names all; and if what the model does
            depends on sizes that are dynamic.
    """
    onnx = _package()
    from plait.onnx._convert import DEFAULT_OPSET, FIRST_OPSET, Converter
    from plait.onnx._record import Merged, Recording

    opset = DEFAULT_OPSET if opset_version is None else int(opset_version)
    newest = onnx.defs.onnx_opset_version()
    if not FIRST_OPSET <= opset <= newest:
        raise ValueError(f"onnx: got opset_version={opset}, want {FIRST_OPSET} to {newest}")
    if isinstance(args, Tensor):
        args = (args,)
    args = tuple(args)
    if not kwargs and args and isinstance(args[-1], dict):
        args, kwargs = args[:-1], args[-1]
    kwargs = dict(kwargs or {})
    leaves, build = flatten((args, kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    names = _names(model, args, kwargs, input_names)
    state: dict[str, Tensor] = {}
    if isinstance(model, Module):
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    sizes = _dynamic(model, args, kwargs, names, [leaves[i] for i in places], dynamic_axes, dynamic_shapes)
    dims: dict[tuple[int, ...], str] = {}

    def run(changed: Mapping[str, int]) -> Recording:
        given = list(leaves)
        for i, name in zip(places, names, strict=True):
            for d, size in sizes.get(name, {}).items():
                if size.name in changed:
                    given[i] = _resized(given[i], d, changed[size.name])
        return Recording(model, state, given, build)

    with _mode(model, training):
        recordings = [run({})]
        every = {s.name: s for by in sizes.values() for s in by.values()}
        if every:
            recordings += _others(every, run)
    merged = Merged(recordings)
    for v, name in zip(merged.inputs, names, strict=True):
        for d, size in sizes.get(name, {}).items():
            dims[merged.values[v][1][d].passes] = size.name
    outputs = list(output_names or [])[: len(merged.outputs)]
    if not output_names:
        count = len(merged.outputs)
        outputs = ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
    outputs += [f"output_{i}" for i in range(len(outputs), len(merged.outputs))]
    if clash := sorted(set(outputs) & {*names, *state} | {n for n in outputs if outputs.count(n) > 1}):
        raise ValueError(f"onnx: the names {clash} are given twice")
    proto = Converter(onnx, opset, merged).convert(names, outputs, state, dims)
    program = ONNXProgram(proto, names, places)
    if verbose:
        print(onnx.helper.printable_graph(proto.graph))
    if verify:
        _verify(program, model, args, kwargs, training)
    if f is not None:
        program.save(
            f,
            include_initializers=export_params,
            keep_initializers_as_inputs=keep_initializers_as_inputs or not export_params,
            external_data=None if external_data else False,
        )
    return program


def _signature(model: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(model.forward if isinstance(model, Module) else model)


@contextmanager
def _mode(model: Callable[..., Any], training: TrainingMode) -> Any:
    """Puts a module into a mode, and its parts back into theirs."""
    before = [(m, m.training) for m in model.modules()] if isinstance(model, Module) else []
    if isinstance(model, Module) and training != TrainingMode.PRESERVE:
        model.train(training == TrainingMode.TRAINING)
    _local.exporting += 1
    try:
        yield
    finally:
        _local.exporting -= 1
        for m, was in before:
            m.training = was


def _paths(tree: Any, name: str) -> list[tuple[str, Any]]:
    """Returns the leaves of a tree with names."""
    found = children(tree)
    if found is None:
        return [(name, tree)]
    keys = list(tree) if isinstance(tree, dict) else range(len(found[0]))
    return [leaf for k, part in zip(keys, found[0], strict=True) for leaf in _paths(part, f"{name}_{k}")]


def _arguments(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    """Returns the arguments with their names, positional ones first."""
    given = [p.name for p in _signature(model).parameters.values() if p.kind != p.VAR_POSITIONAL]
    rest = [p.name for p in _signature(model).parameters.values() if p.kind == p.VAR_POSITIONAL]
    names = given[: len(args)]
    names += [f"{rest[0] if rest else 'input'}_{i}" for i in range(len(args) - len(names))]
    return [*zip(names, args, strict=True), *kwargs.items()]


def _names(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], wanted: Sequence[str] | None
) -> list[str]:
    leaves = [leaf for name, x in _arguments(model, args, kwargs) for leaf in _paths(x, name)]
    names = [name for name, x in leaves if isinstance(x, Tensor)]
    wanted = list(wanted or [])
    if len(wanted) > len(names):
        raise ValueError(f"onnx: got {len(wanted)} input_names for {len(names)} tensors among the arguments")
    names[: len(wanted)] = wanted
    if len(set(names)) != len(names):
        raise ValueError(f"onnx: input names must differ, got {names}")
    return names


class _Size:
    """A dynamic size.

    Attributes:
        name: what it is called; sizes with the same name are equal
        now: what it is in the arguments
        least, most: what it may be
    """

    def __init__(self, name: str, now: int, least: int = 0, most: int | None = None) -> None:
        self.name, self.now, self.least, self.most = name, now, least, most


def _dynamic(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: list[str],
    inputs: list[Tensor],
    dynamic_axes: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> dict[str, dict[int, _Size]]:
    """Returns the dynamic sizes of each input by dimension."""
    found: dict[str, dict[int, _Size]] = {}
    by_name: dict[str, _Size] = {}

    def add(name: str, d: int, label: Any) -> None:
        t = inputs[names.index(name)]
        if not -t.ndim <= d < t.ndim:
            raise ValueError(f"onnx: {name} has {t.ndim} dimensions, got dimension {d} among the dynamic ones")
        d %= t.ndim
        if label is None or (isinstance(label, int) and not hasattr(label, "__name__")):
            return
        text = label if isinstance(label, str) else getattr(label, "__name__", "")
        if text in ("", "AUTO", "DYNAMIC") or ("Dim" in type(label).__name__ and text.startswith("_")):
            text = f"{name}_dim_{d}"
        if text == "STATIC":
            return
        now = int(t.shape[d])
        size = by_name.setdefault(text, _Size(text, now, getattr(label, "min", 0) or 0, getattr(label, "max", None)))
        if size.now != now:
            raise ValueError(f"onnx: {text} is {size.now} and, in {name}, {now}: sizes with one name must be equal")
        found.setdefault(name, {})[d] = size

    def each(name: str, what: Any) -> None:
        pairs = (
            what.items() if isinstance(what, Mapping) else enumerate(what) if isinstance(what, (tuple, list)) else ()
        )
        for d, label in pairs:
            add(name, d, label)

    if dynamic_axes and dynamic_shapes:
        raise ValueError("onnx: got dynamic_axes and dynamic_shapes, want one of them")
    for name, what in (dynamic_axes or {}).items():
        if name in names:
            each(name, {d: f"{name}_dim_{d}" for d in what} if isinstance(what, (list, tuple)) else what)
    if dynamic_shapes is not None:
        given = _arguments(model, args, kwargs)
        if isinstance(dynamic_shapes, Mapping):
            unknown = set(dynamic_shapes) - {n for n, _ in given}
            if unknown:
                raise ValueError(
                    f"onnx: dynamic_shapes has {sorted(unknown)}, the arguments are {[n for n, _ in given]}"
                )
            trees = [(x, dynamic_shapes.get(n)) for n, x in given]
        else:
            trees = [(x, s) for (_, x), s in zip(given, dynamic_shapes, strict=False)]
            trees += [(x, None) for _, x in given[len(trees) :]]
        shapes = [s for x, tree in trees for s in _below(tree, x)]
        for name, s in zip(names, shapes, strict=True):
            each(name, s or {})
    return found


def _below(shapes: Any, tree: Any) -> list[Any]:
    """Returns what shapes, in the form of an argument, says of each tensor of it."""
    if isinstance(tree, Tensor):
        return [shapes]
    found = children(tree)
    if found is None:
        return []
    parts = list(tree.items()) if isinstance(tree, dict) else list(enumerate(found[0]))
    if shapes is None:
        return [s for _, part in parts for s in _below(None, part)]
    get = shapes.get if isinstance(shapes, Mapping) else lambda k: shapes[k]
    return [s for k, part in parts for s in _below(get(k), part)]


def _others(sizes: dict[str, _Size], run: Callable[[dict[str, int]], Any]) -> list[Any]:
    """Returns recordings with other sizes: larger ones, or where the model refuses those, smaller ones or multiples."""
    ways: list[list[dict[str, int]]] = []
    for change in (
        lambda now, i, k: now + (i + 1) * (1 if k == 1 else i + 3),
        lambda now, i, k: now - (i + 1) * (1 if k == 1 else i + 2),
        lambda now, i, k: now * (k + 1) + (now * 2 * i),
        lambda now, i, k: now // (2**k),
    ):
        passes = [{s.name: change(s.now, i, k) for i, s in enumerate(sizes.values())} for k in (1, 2)]
        if all(
            max(s.least, 1) <= p[s.name] <= (s.most or p[s.name]) and p[s.name] != s.now
            for p in passes
            for s in sizes.values()
        ) and all(len({p[n] for p in passes}) == 2 for n in sizes):
            ways.append(passes)
    error: Exception | None = None
    for passes in ways:
        try:
            return [run(p) for p in passes]
        except Exception as e:
            error = error or e
    raise OnnxExporterError(
        f"onnx: the model does not work with other sizes than { ({s.name: s.now for s in sizes.values()}) }, tried "
        f"{ways}: {error}"
    ) from error


def _resized(t: Tensor, d: int, size: int) -> Tensor:
    """Returns a tensor with another size of a dimension, of the same elements again and again."""
    if t.shape[d] == 0:
        raise ValueError("onnx: a dynamic size must not be 0 in the arguments")
    index = _ops.remainder(_ops.arange(end=size, device=t.device), int(t.shape[d]))
    return t.index_select(d, index)


def _verify(program: ONNXProgram, model: Any, args: Any, kwargs: Any, training: TrainingMode) -> None:
    with _mode(model, training), no_grad():
        want = [t for t in flatten(model(*args, **kwargs))[0] if isinstance(t, Tensor)]
    for i, (w, g) in enumerate(zip(want, program(*args, **kwargs), strict=True)):
        if not w.allclose(g, rtol=1e-4, atol=1e-5, equal_nan=True):
            warn(f"onnx: result {i} of onnxruntime differs by up to {float((w - g).abs().max())}")
