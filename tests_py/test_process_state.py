"""What modules keep from call to call: ranks are threads, so each such name is a rank's own, or shared by intent."""

import ast
import importlib
import threading
from pathlib import Path

import plait

PACKAGE = Path(plait.__file__).parent
CHANGES = {"append", "add", "pop", "popitem", "clear", "update", "setdefault", "extend", "insert", "remove", "discard"}

# Names of modules that functions rebind or change, but thread-locals, with why all ranks may share them.
SHARED = {
    "_device._numbers": "devices are opened once for the process, under a lock",
    "_device._by_number": "a cache of what never changes: a device's name",
    "_errors._classes": "a cache of classes, which setdefault keeps one of each kind",
    "_device._drivers": "a cache of what never changes: the driver of an open GPU",
    "_device._first_word": "the program's first word for a GPU, which is the process's, as device says",
    "_serialization/allowed_classes._allowed": "what the process allows in checkpoints, as add_safe_globals says",
    "_engine/precision._fast": "a permission of the process, as set_float32_matmul_precision says",
    "_engine/callbacks._next_key": "an iterator over keys that are never given twice",
    "_engine/callbacks._shared": "what the one engine of the process refers to, by keys that are never given twice",
    "_autograd/node._class": "a cache of classes by name",
    "_autograd/node._metadata": "by the process-wide number of a node, made under a lock",
    "_autograd/node._nodes": "by the process-wide number of a node, made under a lock",
    "_engine/arming._arm": "functions of the process look from then on",
    "_engine/arming._bases": "a cache of what never changes: the classes that Tensor is made of",
    "_engine/arming._code": "a cache of code",
    "_engine/arming._slots": "a cache of what never changes: operators and properties of Tensor",
    "_engine/arming._modes": "how many modes of functions the threads of the process are in, under a lock",
    "_engine/overriding.OVERRIDING": "the process's classes that override functions; one that is missing is found",
    "_engine/overriding._LOOKING": "filled by importing, and by programs that define functions",
    "func/_rearrange._sides": "a cache of what patterns say",
    "fx/_pytree._flatten": "classes of containers of the process, as register_pytree_flatten_spec says",
    "fx/_codegen._sources": "an iterator over numbers that are never given twice",
    "fx/_names._found": "a cache of names of functions",
    "fx/proxy._made": "the proxies of the process, by weak references",
    "fx/_symbolic_trace._wrapped_names": "functions of the process, as wrap says",
    "fx/node._side_effectful_functions": "functions of the process, as has_side_effect says",
    "_engine/rank.running": "the ranks of the process",
    "_dispatch/operations._packets": "a cache of inner functions by name, of which setdefault keeps one",
    "_dispatch/schema._lines": "a cache of what never changes: a file of the package",
    "_dispatch/schema.overloads": "a cache of what never changes: the schemas of a name",
    "quasirandom._table": "a cache of what never changes: a file of the package",
    "_tensors/repr.OPTIONS": "how the process prints, as set_printoptions says",
    "cuda/_nvidia._cuda": "a library of the process, opened once",
    "cuda/_nvidia._nvml": "a library of the process, opened once",
    "cuda/nvtx._numbers": "an iterator over numbers that are never given twice",
    "cuda/nvtx._started": "ranges by numbers that are never given twice, which any thread may end, as range_end says",
    "hub._dir": "a folder of the process, as set_dir says",
    "library.OPERATIONS": "custom operations of the process, as custom_op says",
    "onnx/_table.RULES": "a table that importing fills",
    "optim/optimizer._hooks": "a cached property: each optimiser keeps its own",
    "_tensors/shared._memories": "shared memory by its name, of which the process has one each",
    "torch/__init__._finder": "the process's imports, as install says",
    "utils/_pytree.SUPPORTED_NODES": "containers of the process, as register_pytree_node says",
    "_engine/runtime._pack": "a function of the package, set once at import",
    "distributed/_processes._world": "the world of processes that this process stays in until its end",
    "distributed/_processes._open": "the worlds that this process is in, for its end",
    "distributed/_stores/_server._tenants": "servers of the process that its stores share, under a lock, as start says",
    "distributed/_threads.patch_threads": "threads of the process are patched once",
    "distributed/checkpoint/_saving._unreported": "saves of all ranks, for the process's end",
    "distributed/_swap._classes": "a cache of classes, which setdefault keeps one of each",
    "distributions/_kl._known": "a registry that importing fills, and register_kl",
    "profiler._active": "the engine collects one profile at a time, of all ranks, as profile says",
}


def changed_names(path: Path) -> set[str]:
    """Returns the names of a module that its functions change: rebind, or change what they name."""
    tree = ast.parse(path.read_text())
    assigned = set()
    for s in tree.body:
        targets = s.targets if isinstance(s, ast.Assign) else [s.target] if isinstance(s, ast.AnnAssign) else []
        assigned |= {t.id for t in targets if isinstance(t, ast.Name)}
    found = set()

    def change(target: ast.expr) -> None:
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
            if isinstance(target, ast.Name) and target.id in assigned:
                found.add(target.id)

    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        own = {a.arg for a in ast.walk(function) if isinstance(a, ast.arg)}
        rebound = {n for g in ast.walk(function) if isinstance(g, ast.Global) for n in g.names}
        found |= rebound
        own |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - rebound
        before = set(found)
        for n in ast.walk(function):
            if isinstance(n, ast.Assign | ast.Delete):
                for t in n.targets:
                    change(t)
            elif isinstance(n, ast.AugAssign | ast.AnnAssign):
                change(n.target)
            elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in CHANGES:
                change(n.func)
            elif isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "next":
                change(ast.Attribute(n.args[0], "next"))
        found = (found - own) | before
        for decorator in function.decorator_list:
            if "cache" in ast.unparse(decorator):
                found.add(function.name)
    return found


def test_what_modules_keep_is_a_ranks_own_or_shared_by_intent():
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).with_suffix("").as_posix()
        if name.startswith("_core/"):
            continue
        for n in changed_names(path):
            module = importlib.import_module(("plait." + name.replace("/", ".")).removesuffix(".__init__"))
            if not isinstance(getattr(module, n, None), threading.local):
                found.add(f"{name}.{n}")
    new = found - set(SHARED)
    assert not new, (
        f"{sorted(new)}: functions change what modules keep, which all ranks, being threads, would share; keep it in a "
        "threading.local or with the rank (plait._engine.rank), or say in SHARED why sharing is right, and in the "
        "docstring of what changes it that it is the process's"
    )
    assert not set(SHARED) - found, "no longer changed: take it off the list"
