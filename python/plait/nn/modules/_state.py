"""What a module saves and loads: its state as a flat dictionary of tensors."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from plait import _ops
from plait._autograd.hooks import RemovableHandle
from plait._engine import spelling
from plait._modes import no_grad
from plait._tensor import Tensor
from plait.nn.modules._tree import TreeMethods
from plait.nn.parameter import Parameter, is_lazy

EXTRA_STATE = "_extra_state"
_VARIES = "_varies"


def vary(tensor: Any, does: bool = True) -> Any:
    """Says that ranks may hold different values of a tensor, as of a buffer, and returns it."""
    if does:
        setattr(tensor, _VARIES, True)
    return tensor


def varies(tensor: Any) -> bool:
    """Whether ranks may hold different values of a tensor, of which a checkpoint takes the lowest rank's."""
    return getattr(tensor, _VARIES, False)


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{n}"' for n in names)


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` found no value for, and no place for."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"

    __str__ = __repr__


class StateMethods(TreeMethods):
    """Saving and loading."""

    _version = 1  # of what the state holds; a class that changes it reads older ones in `_load_from_state_dict`
    _state_dict_hooks: dict[int, Callable[..., Any]]
    _state_dict_pre_hooks: dict[int, Callable[..., Any]]
    _load_state_dict_pre_hooks: dict[int, Callable[..., Any]]
    _load_state_dict_post_hooks: dict[int, Callable[..., Any]]

    def get_extra_state(self) -> Any:
        """Returns what else belongs into the state; a module that has such overrides this and `set_extra_state`."""
        raise RuntimeError(f"{type(self).__name__}: get_extra_state is not overridden")

    def set_extra_state(self, state: Any) -> None:
        """Takes what `get_extra_state` returned."""
        raise RuntimeError(f"{type(self).__name__}: set_extra_state is not overridden")

    def _has_extra_state(self) -> bool:
        return type(self).get_extra_state is not StateMethods.get_extra_state

    # --- saving ---

    def state_dict(
        self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Returns the parameters and persistent buffers of this module and those below, by dotted name.

        The tensors share the module's memory. Its attribute `_metadata` has the version of each module's state.

        Args:
            args: destination, prefix and keep_vars by position
            destination: the dictionary to add to
            prefix: what names begin with
            keep_vars: return the parameters themselves, not tensors without a gradient
        """
        given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False))
        destination = given.get("destination", destination)
        prefix, keep_vars = given.get("prefix", prefix), given.get("keep_vars", keep_vars)
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, child in self._modules.items():
            if child is not None:
                child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            changed = hook(self, destination, prefix, metadata)
            destination = destination if changed is None else changed
        return destination

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Adds what belongs to this module alone."""
        for name, value in self._own_state():
            kept = value if keep_vars or is_lazy(value) else value.detach()
            destination[prefix + name] = vary(kept, name in self._buffers)
        if self._has_extra_state():
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def _own_state(self) -> list[tuple[str, Tensor]]:
        kept = [(n, b) for n, b in self._buffers.items() if n not in self._non_persistent_buffers_set]
        return [(n, t) for n, t in [*self._parameters.items(), *kept] if t is not None]

    # --- loading ---

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copies a state into the parameters and buffers of this module and those below.

        Args:
            state_dict: what `state_dict` returned
            strict: raise if names are missing, or are there that have no place
            assign: put the given tensors in place of the module's, in place of copying them

        Returns:
            the names that were missing, and those without a place.

        Raises:
            RuntimeError: for such names if strict, and for shapes that differ.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        state = OrderedDict(state_dict)
        metadata = getattr(state_dict, "_metadata", None) or {}
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        self._load(state, "", metadata, assign, strict, missing, unexpected, errors)
        if strict:
            if unexpected:
                errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return IncompatibleKeys(missing, unexpected)

    def _load(
        self,
        state: dict[str, Any],
        prefix: str,
        metadata: Mapping[str, dict[str, Any]],
        assign: bool,
        strict: bool,
        missing: list[str],
        unexpected: list[str],
        errors: list[str],
    ) -> None:
        own_missing: list[str] = []
        local = {**metadata.get(prefix[:-1], {}), "assign_to_params_buffers": assign}
        self._load_from_state_dict(state, prefix, local, True, own_missing, unexpected, errors)
        for name, child in self._modules.items():
            if child is not None:
                below = {k: v for k, v in state.items() if k.startswith(f"{prefix}{name}.")}
                child._load(below, f"{prefix}{name}.", metadata, assign, strict, own_missing, unexpected, errors)
        result = IncompatibleKeys(own_missing, unexpected)
        for hook in self._load_state_dict_post_hooks.values():
            if hook(self, result) is not None:
                raise RuntimeError("load_state_dict: a post-hook must change the keys in place and return None")
        missing.extend(own_missing)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Loads what belongs to this module alone, and notes what is wrong."""
        for hook in self._load_state_dict_pre_hooks.values():
            hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = dict(self._own_state())
        for name, mine in own.items():
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
                continue
            self._load_one(name, mine, key, state_dict[key], assign, error_msgs)
        if self._has_extra_state():
            if prefix + EXTRA_STATE in state_dict:
                self.set_extra_state(state_dict[prefix + EXTRA_STATE])
            else:
                missing_keys.append(prefix + EXTRA_STATE)
        known = {*own, *(n for n, m in self._modules.items() if m is not None)}
        if self._has_extra_state():
            known.add(EXTRA_STATE)
        for key in state_dict:
            if key.startswith(prefix):
                rest = key[len(prefix) :]
                first = rest.split(".", 1)[0]
                if first not in known or (first in own and first != rest):
                    unexpected_keys.append(key)

    def _load_one(self, name: str, mine: Any, key: str, value: Any, assign: bool, errors: list[str]) -> None:
        if not isinstance(value, Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected {spelling.package}.Tensor or Tensor-like object '
                f"from checkpoint but received {type(value)}"
            )
            return
        if is_lazy(mine) and not is_lazy(value):
            mine.materialize(value.shape)
        if is_lazy(mine) or is_lazy(value):
            return
        shape = value.shape
        if len(shape) == 1 and shape[0] == 1 and not mine.shape:
            value = _ops.squeeze(value.detach())
        if value.shape != mine.shape:
            errors.append(
                f"size mismatch for {key}: copying a param with shape {shape} from checkpoint, "
                f"the shape in current model is {mine.shape}."
            )
            return
        if assign:
            if hasattr(mine, "_assign"):  # a sharded parameter, which its unit knows
                try:
                    mine._assign(value, value.requires_grad if isinstance(value, Parameter) else mine.requires_grad)
                except ValueError as error:
                    errors.append(f"{key}: {error}")
            elif isinstance(mine, Parameter):
                if not isinstance(value, Parameter):
                    value = Parameter(value, requires_grad=mine.requires_grad)
                self._parameters[name] = value
            else:
                self._set_buffer(name, value)
            return
        with no_grad():
            mine.copy_(value.detach())

    # --- hooks ---

    def _add_state_hook(self, table: str, hook: Callable[..., Any]) -> RemovableHandle:
        hooks = getattr(self, table)
        key = max(hooks, default=-1) + 1
        hooks[key] = hook
        return RemovableHandle(partial(_forget, hooks, key))

    def register_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls `hook(module, prefix, keep_vars)` before the state is gathered."""
        return self._add_state_hook("_state_dict_pre_hooks", hook)

    def register_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls `hook(module, state_dict, prefix, local_metadata)` after the state is gathered."""
        return self._add_state_hook("_state_dict_hooks", hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        return self._add_state_hook("_state_dict_hooks", hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls `hook(module, state, prefix, metadata, strict, missing, unexpected, errors)` before loading."""
        return self._add_state_hook("_load_state_dict_pre_hooks", hook)

    def _register_load_state_dict_pre_hook(
        self, hook: Callable[..., None], with_module: bool = False
    ) -> RemovableHandle:
        called = hook if with_module else _WithoutModule(hook)
        return self._add_state_hook("_load_state_dict_pre_hooks", called)

    def register_load_state_dict_post_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Calls `hook(module, incompatible_keys)` after loading; it may change the lists of keys in place."""
        return self._add_state_hook("_load_state_dict_post_hooks", hook)


def _forget(hooks: dict[int, Any], key: int) -> None:
    hooks.pop(key, None)


class _WithoutModule:
    """A hook that is not told its module."""

    def __init__(self, hook: Callable[..., None]) -> None:
        self.hook = hook

    def __call__(self, _module: Any, *args: Any) -> None:
        self.hook(*args)
