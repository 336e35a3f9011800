"""The tree of modules: what they own, and how it is found by name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from plait._tensor import Tensor
from plait.nn.parameter import BUFFER, Buffer, Parameter, is_lazy, set_category

if TYPE_CHECKING:
    from plait.nn.modules.module import Module


class TreeMethods:
    """Registration of parameters, buffers and children, and the ways to walk them."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _non_persistent_buffers_set: set[str]
    _modules: dict[str, Any]

    # --- registration ---

    def _claim(self, kind: str, name: str, known: dict[str, Any]) -> None:
        """Raises the error that says why `name` cannot be registered, if it cannot."""
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__}: call super().__init__() before assigning a {kind}")
        if not isinstance(name, str):
            raise TypeError(f"register_{kind}: the name must be a string, got {type(name).__name__}")
        if not name or "." in name:
            raise KeyError(f"register_{kind}: the name must not be empty nor hold a dot, got {name!r}")
        if name not in known and hasattr(self, name):
            raise KeyError(f"register_{kind}: the module has an attribute {name!r} already")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Makes a parameter, or the place of one that may come, part of the module."""
        self._claim("parameter", name, self.__dict__.get("_parameters", {}))
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"register_parameter: {name!r} must be a Parameter or None, got {type(param).__name__}")
        if param is not None and not is_lazy(param) and not param.is_leaf:
            raise ValueError(f"register_parameter: {name!r} is the result of an operation; want a leaf")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Makes a tensor that is not trained part of the module; of its state too, if it is persistent."""
        self._claim("buffer", name, self.__dict__.get("_buffers", {}))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"register_buffer: {name!r} must be a Tensor or None, got {type(tensor).__name__}")
        self._set_buffer(name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def _set_buffer(self, name: str, tensor: Tensor | None) -> None:
        if tensor is not None and not isinstance(tensor, Parameter):
            set_category(tensor, BUFFER)
        self._buffers[name] = tensor

    def add_module(self, name: str, module: Module | None) -> None:
        """Makes a module a child under a name."""
        self._claim("module", name, self.__dict__.get("_modules", {}))
        if module is not None and not isinstance(module, TreeMethods):
            raise TypeError(f"add_module: {name!r} must be a Module or None, got {type(module).__name__}")
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """Does what `add_module` does."""
        self.add_module(name, module)

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            self._forget(name, "_buffers", "_modules")
            self.register_parameter(name, value)
        elif isinstance(value, TreeMethods):
            self._forget(name, "_parameters", "_buffers")
            self.add_module(name, value)  # type: ignore[arg-type]
        elif isinstance(value, Buffer):
            self._forget(name, "_parameters", "_modules")
            self.register_buffer(name, value, value.persistent)
        elif "_parameters" not in own:
            object.__setattr__(self, name, value)
        elif name in own["_parameters"] and (value is None or isinstance(value, Tensor)):
            if value is not None:
                raise TypeError(f"{type(self).__name__}.{name}: want a Parameter or None, got {type(value).__name__}")
            self._parameters[name] = None
        elif name in own["_buffers"] and (value is None or isinstance(value, Tensor)):
            self._set_buffer(name, value)
        elif name in own["_parameters"] or name in own["_buffers"]:
            kind = "Parameter" if name in own["_parameters"] else "Tensor"
            raise TypeError(f"{type(self).__name__}.{name}: want a {kind} or None, got {type(value).__name__}")
        elif name in own["_modules"]:
            if value is not None:
                raise TypeError(f"{type(self).__name__}.{name}: want a Module or None, got {type(value).__name__}")
            self._modules[name] = None
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name: str, *tables: str) -> None:
        """Makes room for a new kind of value under `name`."""
        own = self.__dict__
        own.pop(name, None)
        for table in tables:
            if own.get(table) and own[table].pop(name, None) is not None:
                self._non_persistent_buffers_set.discard(name)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "_parameters" in own:
            for table in (own["_parameters"], own["_modules"], own["_buffers"]):
                if name in table:
                    return table[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)

    def __delattr__(self, name: str) -> None:
        for table in ("_parameters", "_modules", "_buffers"):
            if name in self.__dict__.get(table, ()):
                del self.__dict__[table][name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self._parameters, *self._buffers, *self._modules}
        return sorted(n for n in names if not n[:1].isdigit())

    # --- walks ---

    def named_modules(
        self, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yields this module and all below it, with their dotted names; each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self  # type: ignore[misc]
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """Yields this module and all below it, each once unless `remove_duplicate` is False."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yields the modules right below, with their names; each once."""
        seen = set()
        for name, child in self._modules.items():
            if child is not None and child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """Yields the modules right below, each once."""
        for _, child in self.named_children():
            yield child

    def _named_members(
        self, members: Callable[[Any], Any], prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for where, module in modules:
            for name, value in members(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield (f"{where}.{name}" if where else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yields the parameters of this module and those below, with their dotted names; shared ones once."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yields the parameters of this module and those below."""
        for _, p in self.named_parameters(recurse=recurse):
            yield p

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields the buffers of this module and those below, with their dotted names; shared ones once."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yields the buffers of this module and those below."""
        for _, b in self.named_buffers(recurse=recurse):
            yield b

    # --- by name ---

    def get_submodule(self, target: str) -> Module:
        """Returns the module with a dotted name; this one for an empty name.

        Raises:
            AttributeError: if there is none.
        """
        module: Any = self
        for part in target.split(".") if target else ():
            found = getattr(module, part, None)
            if not isinstance(found, TreeMethods):
                raise AttributeError(
                    f"get_submodule: {type(module).__name__} has no module {part!r}, wanted {target!r}"
                )
            module = found
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Puts a module in the place with a dotted name; with `strict` only in place of another."""
        if not target:
            raise ValueError("set_submodule: want the name of a submodule, got an empty one")
        where, _, name = target.rpartition(".")
        parent = self.get_submodule(where)
        if strict and not isinstance(getattr(parent, name, None), TreeMethods):
            raise AttributeError(f"set_submodule: {type(parent).__name__} has no module {name!r}")
        setattr(parent, name, module)

    def _get_member(self, what: str, table: str, target: str) -> Any:
        where, _, name = target.rpartition(".")
        module = self.get_submodule(where)
        if name not in getattr(module, table):
            raise AttributeError(f"get_{what}: {type(module).__name__} has no {what} {name!r}, wanted {target!r}")
        return getattr(module, table)[name]

    def get_parameter(self, target: str) -> Parameter:
        """Returns the parameter with a dotted name."""
        return self._get_member("parameter", "_parameters", target)

    def get_buffer(self, target: str) -> Tensor:
        """Returns the buffer with a dotted name."""
        return self._get_member("buffer", "_buffers", target)


def new_tables() -> dict[str, Any]:
    """Returns the empty tables of a module."""
    return {
        "_parameters": OrderedDict(),
        "_buffers": OrderedDict(),
        "_non_persistent_buffers_set": set(),
        "_modules": OrderedDict(),
    }
