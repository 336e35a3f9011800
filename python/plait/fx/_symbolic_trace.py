"""Tracing: a module's `forward` runs with proxies for its arguments, and the graph has what it did with them."""

from __future__ import annotations

import builtins
import inspect
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import plait
from plait._tensor import Tensor
from plait.fx._codegen import WRAPPED, PyTreeCodeGen, PyTreeInfo
from plait.fx.graph import Graph
from plait.fx.graph_module import GraphModule
from plait.fx.node import Argument
from plait.fx.proxy import ParameterProxy, Proxy, TracerBase, find_proxy
from plait.nn.modules.container import Sequential
from plait.nn.modules.module import Module
from plait.nn.parameter import Parameter
from plait.utils import _pytree as pytree

__all__ = ["PH", "PHBase", "ProxyableClassMeta", "Tracer", "is_fx_tracing", "symbolic_trace", "wrap"]

T = TypeVar("T")


class PHBase:
    """In `concrete_args`, an argument that stays one."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class ProxyableClassMeta(type):
    """A metaclass: where a class of it is called with proxies while a module is traced, the call is a node."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxy = find_proxy(args, kwargs) if is_fx_tracing() else None
        if proxy is None:
            return super().__call__(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", cls, args, kwargs)


# --- functions that tracing does not look into ---

_wrapped_names: dict[tuple[int, str], dict[str, Any]] = {}  # the global names of modules, by their identity and a name


def wrap(fn_or_name: T) -> T:
    """Has calls of a function of this module be nodes when a module is traced: it is not looked into.

    This holds for the process. Call it at the top level of the module, with the function or with the name that the
    module calls it by, as `"len"`, or put it before the function as a decorator.

    Args:
        fn_or_name: the function, or its name

    Returns:
        what it was given.

    Raises:
        RuntimeError: unless that is a function or a name.
        NotImplementedError: where it is called in a function.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        kind = type(fn_or_name).__name__
        raise RuntimeError(f"wrap: want a global function, or its name, got {kind}: {fn_or_name!r:.60}")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__  # type: ignore[union-attr,attr-defined]
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_names[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


_MISSING = object()


class _Patches:
    """Names that mean something else while a module is traced."""

    def __init__(self) -> None:
        self._done: list[tuple[dict[str, Any], str, Any]] = []
        self._seen: set[int] = set()

    def put(self, names: dict[str, Any], name: str, value: Any) -> None:
        """Gives a global name another value."""
        self._done.append((names, name, names.get(name, _MISSING)))
        names[name] = value

    def wrap(self, names: dict[str, Any], name: str) -> None:
        """Wraps the function that a global name, or one of Python's own, means."""
        function = names.get(name, getattr(builtins, name, None))
        if callable(function) and not hasattr(function, "_fx_original"):
            self.put(names, name, _wrapper(function))

    def search(self, names: dict[str, Any], wanted: set[int]) -> None:
        """Wraps the functions of a module that are wanted, once."""
        if id(names) in self._seen:
            return
        self._seen.add(id(names))
        for name, value in list(names.items()):
            if name[:1] != "_" and callable(value) and id(value) in wanted:
                self.put(names, name, _wrapper(value))
        for name in names.get(WRAPPED, ()):
            self.wrap(names, name)

    def undo(self) -> None:
        """Gives all names their values back."""
        for names, name, value in reversed(self._done):
            if value is _MISSING:
                del names[name]
            else:
                names[name] = value


def _wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = find_proxy(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        made = proxy.tracer.create_proxy("call_function", function, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    wrapped._fx_original = function  # type: ignore[attr-defined]
    wrapped.__name__ = getattr(function, "__name__", "wrapped")
    return wrapped


# --- the one trace that runs ---

_lock = threading.RLock()  # modules are called in another way while one is traced
_local = threading.local()


def is_fx_tracing() -> bool:
    """Whether a module is traced in this thread."""
    return getattr(_local, "depth", 0) > 0


@contextmanager
def _modules_call(call: Callable[..., Any], read: Callable[..., Any]) -> Iterator[None]:
    """Has this thread call modules, and read what they own, by functions that get the usual ones first."""
    thread = threading.get_ident()
    usual_call, usual_read = Module.__call__, Module.__getattr__
    inherited = "__getattr__" not in vars(Module)

    def called(self: Module, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != thread:
            return usual_call(self, *args, **kwargs)
        return call(usual_call, self, args, kwargs)

    def was_read(self: Module, name: str) -> Any:
        if threading.get_ident() != thread:
            return usual_read(self, name)
        return read(usual_read, self, name)

    Module.__call__, Module.__getattr__ = called, was_read  # type: ignore[method-assign,assignment]
    _local.depth = getattr(_local, "depth", 0) + 1
    try:
        yield
    finally:
        _local.depth -= 1
        Module.__call__ = usual_call  # type: ignore[method-assign]
        if inherited:
            del Module.__getattr__
        else:
            Module.__getattr__ = usual_read  # type: ignore[method-assign]


class Tracer(TracerBase):
    """Makes graphs of modules. A derived class says which modules are not looked into, or how nodes are made.

    Args:
        autowrap_modules: modules whose functions are not looked into
        autowrap_functions: functions that are not
        param_shapes_constant: give shapes of parameters as they are, so that control flow may depend on them

    Attributes:
        root: the module that is traced, or an empty one for a function
        proxy_buffer_attributes: also stand in for buffers as soon as they are read
    """

    root: Module
    proxy_buffer_attributes = False

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._autowrap_function_ids = {
            id(v) for m in autowrap_modules for n, v in vars(m).items() if n[:1] != "_" and callable(v)
        }
        self._autowrap_function_ids.update(map(id, autowrap_functions))
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.tensor_attrs: dict[int, str] = {}
        self._kept: list[Any] = []  # the tensors whose identities `tensor_attrs` has

    # --- what a derived class may change ---

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of a module is a node: by default the layers of `plait.nn` but for `Sequential`.

        Args:
            m: the module
            module_qualified_name: its dotted name in the root
        """
        return type(m).__module__.startswith("plait.nn") and not isinstance(m, Sequential)

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Does a call of a module: a node for a leaf, and what the module does for others.

        Args:
            m: the module
            forward: runs it, hooks included
            args: of the call, by position
            kwargs: by name
        """
        name = self.path_of_module(m)
        if self.is_leaf_module(m, name):
            return self.create_proxy("call_module", name, args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """Returns what a module's attribute is while it is traced: a proxy for a parameter, others as they are.

        Args:
            attr: its name
            attr_val: its value
            parameter_proxy_cache: the proxies by dotted names of parameters
        """
        found = None
        if isinstance(attr_val, Parameter):
            found = _named(self.root.named_parameters(), attr_val)
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            found = _named(self.root.named_buffers(), attr_val)
        if found is None:
            return attr_val
        if found not in parameter_proxy_cache:
            more: dict[str, Any] = {}  # derived classes' create_proxy may not take it
            if self.param_shapes_constant:
                more["proxy_factory_fn"] = lambda node: ParameterProxy(self, node, found, attr_val)
            parameter_proxy_cache[found] = self.create_proxy("get_attr", found, (), {}, **more)
        return parameter_proxy_cache[found]

    def path_of_module(self, mod: Module) -> str:
        """Returns a module's dotted name in the root.

        Raises:
            NameError: if it is not in there.
        """
        if self.submodule_paths is None:
            self.submodule_paths = {m: n for n, m in reversed(list(self.root.named_modules(remove_duplicate=False)))}
        path = self.submodule_paths.get(mod)
        if path is None:
            path = next((n for n, m in self.root.named_modules() if m is mod), None)  # one that came meanwhile
        if path is None:
            raise NameError(
                f"module is not installed as a submodule: {type(mod).__name__} is called, and is not below the root"
            )
        return path

    def create_arg(self, a: Any) -> Argument:
        """Returns an argument of a node for a value: reads of parameters, buffers and constants for tensors.

        Raises:
            NameError: for a parameter that is not the root's.
        """
        if isinstance(a, Parameter):
            found = _named(self.root.named_parameters(), a)
            if found is None:
                raise NameError(f"parameter is not a member of this module: one of shape {list(a.shape)} is used")
            return self.create_node("get_attr", found, (), {})
        if isinstance(a, Tensor):
            found = _named(self.root.named_buffers(), a) or self.tensor_attrs.get(id(a))
            return self.create_node("get_attr", self._keep(a, "_tensor_constant") if found is None else found, (), {})
        if isinstance(a, Module):
            found = _named(self.root.named_modules(), a)
            if found is not None:
                return self.create_node("get_attr", found, (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(self.create_arg(x) for x in a), {})
        if type(type(a)) is ProxyableClassMeta:
            return self.create_node("get_attr", self._keep(a, f"_{type(a).__name__}_constant_"), (), {})
        return super().create_arg(a)

    def get_fresh_qualname(self, prefix: str) -> str:
        """Returns a name of an attribute that the root does not have."""
        i = 0
        while hasattr(self.root, f"{prefix}{i}"):
            i += 1
        return f"{prefix}{i}"

    def _keep(self, a: Any, prefix: str) -> str:
        """Makes a constant an attribute of the root and returns its name."""
        if id(a) not in self.tensor_attrs:
            name = self.tensor_attrs[id(a)] = self.get_fresh_qualname(prefix)
            self._kept.append(a)
            setattr(self.root, name, a)
        return self.tensor_attrs[id(a)]

    # --- tracing ---

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Returns the function to trace and its arguments: proxies of placeholders, and constants.

        Args:
            root_fn: the function, or a module's `forward`
            is_module: whether its first argument is the module
            concrete_args: constants by names of arguments
        """
        inner = inspect.unwrap(root_fn)
        code = inner.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames[:total])
        parameters = inspect.signature(inner).parameters
        if isinstance(concrete_args, tuple):
            known = names[1:] if is_module else names
            if len(known) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(known)} arguments but got {len(concrete_args)} concrete ones"
                )
            concrete_args = dict(zip(known, concrete_args, strict=True))
        constants = concrete_args or {}
        args: list[Any] = []
        if is_module:
            if not names:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
            names = names[1:]
        args += [self._root_arg(n, parameters[n].default, inner, constants) for n in names]
        more = code.co_varnames[total:]
        stars = [f"*{n}" for n in more[:1]] if code.co_flags & inspect.CO_VARARGS else []
        if code.co_flags & inspect.CO_VARKEYWORDS:
            stars.append("**" + more[len(stars)])
        args += [self.create_proxy("placeholder", s, (), {}) for s in stars]
        plain = stars or code.co_kwonlyargcount
        function = _positional(inner, len(args)) if plain else root_fn
        leaves, spec = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in spec.children_specs):
            return function, args
        info = PyTreeInfo(list(code.co_varnames[:total]), spec, None)
        self.graph._codegen = PyTreeCodeGen(info)

        def of_leaves(*args: Any) -> list[Any]:
            out, out_spec = pytree.tree_flatten(function(*pytree.tree_unflatten(args, spec)))
            self.graph._codegen = PyTreeCodeGen(info._replace(out_spec=out_spec))
            return out

        return of_leaves, leaves

    def _root_arg(self, name: str, default: Any, inner: Callable[..., Any], constants: dict[str, Any]) -> Any:
        given = () if default is inspect.Parameter.empty else (default,)
        kind = getattr(inner, "__annotations__", {}).get(name)
        if name not in constants or isinstance(constants[name], PHBase):
            return self.create_proxy("placeholder", name, given, {}, type_expr=kind)
        leaves, spec = pytree.tree_flatten(constants[name])
        return pytree.tree_unflatten([self._constant(name, n, v, given) for n, v in enumerate(leaves, 1)], spec)

    def _constant(self, name: str, number: int, value: Any, given: tuple[Any, ...]) -> Any:
        """Adds a placeholder for an argument of a known value, or a part of one, and what checks it."""
        out = self.create_proxy("placeholder", f"{name}_{number}", given, {})
        if isinstance(value, PHBase):
            return out
        told = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (out, told), {})
        elif type(value) in (bool, int, float, str):
            self.create_proxy("call_function", plait._assert, (out == value, told), {})
        else:
            warnings.warn(
                f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to "
                "the user to make sure that your inputs match the inputs you specialized the function with.",
                stacklevel=4,
            )
        return value

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """Returns the graph of a module's `forward`, or of a function.

        What a module does in its mode, of training or evaluation, is what the graph does in both.

        Args:
            root: the module or function
            concrete_args: constants for arguments, by name: control flow may depend on them

        Raises:
            TraceError: where control flow depends on a traced value.
        """
        with _lock:
            return self._trace(root, concrete_args)

    def _trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None) -> Graph:
        is_module = isinstance(root, Module)
        if is_module:
            self.root = root  # type: ignore[assignment]
            fn = getattr(type(root), self.traced_func_name, None)
            if fn is None:
                raise AttributeError(f"trace: {type(root).__name__} has no method {self.traced_func_name!r}")
        else:
            if not callable(root):
                raise TypeError(f"trace: want a module or a function, got {type(root).__name__}")
            self.root = Module()  # type: ignore[assignment]
            fn = root if isinstance(root, FunctionType) else inspect.unwrap(root)
        if not hasattr(inspect.unwrap(fn), "__code__"):
            raise TypeError(f"trace: want a function written in Python, got {fn!r:.60}; put the call into one")
        self.submodule_paths = None
        self.graph = Graph(tracer_cls=getattr(self, "__class__", None))
        self.tensor_attrs, self._kept = {}, []
        for prefix, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor) or type(type(value)) is ProxyableClassMeta:
                    self.tensor_attrs[id(value)] = f"{prefix}.{name}" if prefix else name
        traced, args = self.create_args_for_root(fn, is_module, concrete_args)
        proxies: dict[str, Proxy] = {}
        patches = _Patches()
        wanted = self._autowrap_function_ids

        def read(usual: Callable[..., Any], module: Module, name: str) -> Any:
            return self.getattr(name, usual(module, name), proxies)

        def call(usual: Callable[..., Any], module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            names = getattr(getattr(module, "forward", None), "__globals__", None)
            if names is not None:
                patches.search(names, wanted)
            return self.call_module(module, lambda *a, **k: usual(module, *a, **k), args, kwargs)

        try:
            with _modules_call(call, read):
                for (_, name), names in list(_wrapped_names.items()):
                    patches.wrap(names, name)
                patches.search(inspect.unwrap(fn).__globals__, wanted)
                for searched in self._autowrap_search:
                    patches.search(vars(searched), wanted)
                result = self.create_arg(traced(*args))
                kind = getattr(inspect.unwrap(fn), "__annotations__", {}).get("return")
                self.create_node("output", "output", (result,), {}, type_expr=kind)
        finally:
            patches.undo()
            self.submodule_paths = None
        return self.graph


def _named(pairs: Any, wanted: Any) -> str | None:
    return next((n for n, v in pairs if v is wanted), None)


def _assert_is_none(value: Any, message: str) -> None:
    """Raises AssertionError for what is not None."""
    assert value is None, message


def _positional(function: Any, count: int) -> Callable[..., Any]:
    """Returns the function with all arguments by position: a proxy stands for all that `*args` or `**kwargs` has."""
    code = function.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    plain = code.replace(co_argcount=count, co_kwonlyargcount=0, co_posonlyargcount=0, co_flags=flags)
    return FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """Traces a module, or a function, and returns the module that does what its graph says.

    Args:
        root: the module or function
        concrete_args: constants for arguments, by name: control flow may depend on them

    Raises:
        TraceError: where control flow depends on a traced value.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)
