"""The import hook: which module of Plait's is meant by a name of PyTorch's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from plait._engine.missing_names import refusing
from plait.torch._homes import HOMES
from plait.torch._refused import REFUSED
from plait.torch._top import modules

# Modules that PyTorch does not have, and those under a private name that it does.
OURS = {"array_api", "flight_records", "info", "safetensors", "torch"}
PRIVATE = {
    "_C",
    "_checkpoint",
    "_comm_hooks",
    "_composable",
    "_dynamo",
    "_foreach_utils",
    "_functorch",
    "_functional_collectives",
    "_nn",
    "_python_dispatch",
    "_pytree",
    "_subclasses",
    "_symbolic_trace",
    "_tensor",
    "_tensor_str",
    "_trace_wrapped_higher_order_op",
    "_utils",
}


def import_if_there(name: str) -> ModuleType | None:
    """Returns a module; None if there is none of that name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not (error.name and f"{name}.".startswith(f"{error.name}.")):
            raise
        return None


class Loader:
    """Hands out a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._before = {k: getattr(module, k, None) for k in ("__spec__", "__loader__", "__package__")}

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the module."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Puts back what importing has written into the module, and imports the modules that only PyTorch has below."""
        name = module.__spec__.name if module.__spec__ else ""
        vars(module).update(self._before)
        for home in (*HOMES, *REFUSED):
            above = home.rpartition(".")[0]
            if f"{above}.".startswith(f"{name}.") and above.replace("torch", "plait", 1) in sys.modules:
                import_if_there(home)

    def get_code(self, name: str) -> CodeType | None:
        """Returns the code, for `python -m`."""
        spec = self._module.__spec__
        assert spec
        return spec.loader.get_code(spec.name)  # type: ignore[union-attr]


class Finder:
    """Finds Plait's modules by PyTorch's names; `undo` takes back all that imports through it have changed."""

    def __init__(self) -> None:
        self._made = modules(lambda name: import_if_there(f"torch.{name}"))
        self.top = self._made["torch"]
        self._added: list[tuple[ModuleType, str]] = []
        self.top.__spec__ = ModuleSpec("torch", Loader(self.top), is_package=True)  # type: ignore[arg-type]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns how to import a module whose name begins with torch.

        Raises:
            ModuleNotFoundError: from an import of one that is not there; `importlib.util.find_spec` returns None.
        """
        if name.partition(".")[0] != "torch":
            return None
        module = self._module(name)
        if module is not None:
            return ModuleSpec(name, Loader(module), is_package=hasattr(module, "__path__"))  # type: ignore[arg-type]
        if sys._getframe(2).f_code.co_name == "find_spec":
            return None
        raise ModuleNotFoundError(
            f"{name}: Plait has no such module; docs/coverage.md lists what of PyTorch is there", name=name
        )

    def _module(self, name: str) -> ModuleType | None:
        if name in self._made:
            return self._made[name]
        if name in REFUSED:
            return self._refused(name, *REFUSED[name])
        parts = name.split(".")[1:]
        if parts[0] in OURS or any(p[0] == "_" and p not in {*PRIVATE, "__main__"} for p in parts):
            return None
        path = ".".join(["plait", *parts])
        module = import_if_there(path)
        if name in HOMES:
            module = self._with_homes(name, module)
        if module is None and any(m.startswith(f"{name}.") for m in HOMES):  # a package that only PyTorch has
            module = self._made[name] = ModuleType(name, "PyTorch's home of modules.")
        return module and self._below(name, module)

    def _refused(self, name: str, why: str, names: str) -> ModuleType:
        """Returns a module whose names can be imported, and raise when they are used."""
        refused = self._made[name] = ModuleType(name, f"Not there: {why}.")
        refused.__getattr__ = refusing(name, names, why)  # type: ignore[method-assign]
        return self._below(name, refused)

    def _below(self, name: str, module: ModuleType) -> ModuleType:
        """Notes a module's place below another, and makes it a package if PyTorch has modules below it."""
        above, _, last = name.rpartition(".")
        if last not in vars(sys.modules[above]):
            self._added.append((sys.modules[above], last))
        if not hasattr(module, "__path__") and any(m.startswith(f"{name}.") for m in (*HOMES, *REFUSED)):
            self._add(module, "__path__", [])
        return module

    def _with_homes(self, name: str, module: ModuleType | None) -> ModuleType | None:
        """Adds to a module, or to a new one, the names that PyTorch has there and Plait in a package above."""
        package, *names = HOMES[name].split()
        owner = importlib.import_module(package.replace("torch", "plait", 1))
        found = {}
        for n in names:
            try:
                found[n] = getattr(owner, n)
            except AttributeError:
                continue
        if module is None and not found:
            return self._refused(name, "docs/coverage.md lists what is there, and this is not yet", " ".join(names))
        if module is None:
            module = self._made[name] = ModuleType(name, f"PyTorch's home of names of `{package}`.")
            module.__getattr__ = partial(getattr, owner)  # type: ignore[method-assign]  # what PyTorch's imports there
        for n, value in found.items():
            if n not in vars(module):
                self._add(module, n, value)
        return module

    def _add(self, module: ModuleType, name: str, value: object) -> None:
        setattr(module, name, value)
        self._added.append((module, name))

    def undo(self) -> None:
        """Takes modules out of the list of what is imported, and names out of modules."""
        for name in [n for n in sys.modules if n.partition(".")[0] == "torch"]:
            del sys.modules[name]
        for module, name in self._added:
            vars(module).pop(name, None)
