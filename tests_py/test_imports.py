"""Which module of the package imports which: the lowest know nothing of the others, and imports stand at the top."""

import ast
from pathlib import Path

import plait

ROOT = Path(plait.__file__).parent.parent
FILES = {
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
    for p in (ROOT / "plait").rglob("*.py")
}

# The lowest modules, and all that they import of the package.
LOWEST = {
    "plait._engine.rank": {"plait._core"},
    "plait._errors": {"plait._core", "plait._engine.rank"},
    "plait._engine.overriding": {"plait._core", "plait._engine.warnings"},
    "plait._engine.runtime": {"plait._core", "plait._engine.overriding", "plait._errors"},
    "plait._engine.arguments": {"plait._engine.overriding", "plait._engine.runtime", "plait._engine.warnings"},
}

# Imports inside functions: by the importing module, what it imports, and why not at the top.
INSIDE = {
    "plait": {
        "plait._functions.checks": "few programs use them",
        "plait._functions.foreach": "few programs use them",
        "plait._functions.sparse_indices": "few programs use them",
        "plait.distributions._samplers": "few programs draw such variables",
        "plait.futures": "few programs use the class",
        "plait.storage": "few programs use the classes",
        "plait._tensors.legacy_types": "few programs use the old types",
        "plait.distributed.fsdp": "most programs use no ranks",
        "plait.distributed.parallel": "most programs use no ranks",
        "plait.distributed.pipelining": "most programs use no ranks",
        "plait.nn.parallel": "most programs use no ranks",
    },
    "plait.autograd.gradcheck": {"plait.func": "it is made of what checks gradients"},
    "plait.nn.init": {
        "plait.distributed.tensor._alike": "most programs use no ranks",
        "plait.distributed.tensor._dtensor": "most programs use no ranks",
    },
    "plait.nn.parameter": {"plait.distributed.tensor._dtensor": "most programs use no ranks"},
    "plait.nn.utils.convert_parameters": {
        "plait.distributed.tensor._alike": "most programs use no ranks",
        "plait.distributed.tensor._dtensor": "most programs use no ranks",
    },
    "plait.cuda": {"plait._tensors.legacy_types": "few programs use the old types"},
    "plait._functions.config": {"plait": "it returns plait.cpu or plait.cuda, which import it"},
    "plait.overrides": {"plait.fx._names": "few programs ask for names of functions"},
    "plait.autograd.functional": {"plait.func._jacobians": "which imports the package"},
    "plait._engine.missing_names": {"plait._names": "a long text that only errors need"},
    "plait._serialization.pickling": {"plait.nn": "the package above: only a checkpoint with parameters needs it"},
    "plait._tensors.beside": {
        "plait.distributed.tensor._alike": "most programs use no ranks",
        "plait.distributed.tensor._dtensor": "most programs use no ranks",
    },
    "plait._tensors.storage": {"plait._tensors.arrays": "it takes storages, and storages of files are made with it"},
    "plait._tensors.operators": {"plait._tensor": "the class that gets these operators, and so imports them"},
    "plait._dispatch.operations": {"plait._dispatch.kernels": "which computes by functions that call operations"},
    "plait._engine.arming": {"plait._dispatch.lowering": "most programs have no class that takes operations over"},
    "plait._tensor": {
        "plait._dispatch.wrappers": "most programs have no tensors without elements",
        "plait.array_api": "the package above, of which tensors say that it is theirs",
    },
    "plait.ops": {"plait._dispatch.operations": "most programs name no operation"},
    "plait.sparse": {"plait._dispatch.operations": "most programs name no operation"},
    "plait._tensors.sparse_class": {"plait._tensors.sparse_columns": "which derives from the class"},
    "plait.torch._top": {"plait._dispatch.operations": "most programs name no operation"},
    "plait.amp.grad_scaler": {"plait.distributed": "most programs use no ranks"},
    "plait.nn.modules.syncbatchnorm": {"plait.distributed._groups": "most programs use no ranks"},
    "plait.onnx._export": dict.fromkeys(("plait.onnx._convert", "plait.onnx._record"), "only exports need the table"),
    "plait.optim.optimizer": {"plait.distributed.tensor._alike": "most programs use no ranks"},
    "plait.nn.utils.clip_grad": {"plait.distributed.fsdp._unit": "most programs use no ranks"},
    "plait.nn.utils.parametrizations": {"plait.nn.modules.conv": "the layers use these functions"},
    "plait.plot._communication": {"plait.distributed.flight_records": "most programs use no ranks"},
    "plait.plot._timeline": {
        "plait.distributed.flight_records": "most programs use no ranks",
        "plait.distributed.pipelining": "most programs use no ranks",
    },
    "plait.serialization": {"plait.safetensors": "only files of that kind need it"},
    "plait.utils.data.dataloader": {"plait.utils.data._process": "most programs have no workers that are processes"},
    "plait.utils.data.sampler": {"plait.distributed": "most programs use no ranks"},
}


def imports(path: Path, inside: bool) -> set[str]:
    """Returns the modules of the package that a file imports in functions, or outside."""
    found = set()

    def visit(node: ast.AST, in_function: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            names = []
            if isinstance(child, ast.Import):
                names = [a.name for a in child.names]
            elif isinstance(child, ast.ImportFrom):
                names = [f"{child.module}.{a.name}" for a in child.names]
                names = [n if n in FILES or n == "plait._core" else str(child.module) for n in names]
            if in_function == inside:
                found.update(n for n in names if n.partition(".")[0] == "plait")
            visit(child, in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    visit(ast.parse(path.read_text("utf-8")), False)
    return found


def test_lowest_modules():
    for module, allowed in LOWEST.items():
        assert imports(FILES[module], False) | imports(FILES[module], True) == allowed, module


def test_imports_inside_functions():
    found = {m: imports(p, True) for m, p in FILES.items()}
    assert {m: f for m, f in found.items() if f} == {m: set(reasons) for m, reasons in INSIDE.items()}
