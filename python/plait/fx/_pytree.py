"""Trees taken apart by the form of another one: dicts by its keys, lists and tuples by its length."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from plait.utils._pytree import TreeSpec, is_namedtuple_class

FlattenFuncSpec = Callable[[Any, TreeSpec], list[Any]]

_flatten: dict[type, FlattenFuncSpec] = {}


def register_pytree_flatten_spec(
    cls: type,
    flatten_fn_spec: FlattenFuncSpec,
    flatten_fn_exact_match_spec: Callable[[Any, TreeSpec], bool] | None = None,
) -> None:
    """Says how containers of a class are taken apart by a form, for the process.

    Args:
        cls: the class
        flatten_fn_spec: returns the children of a container that a form has
        flatten_fn_exact_match_spec: has no effect: a container may have more than a form
    """
    _flatten[cls] = flatten_fn_spec


def _by_key(tree: Any, spec: TreeSpec) -> list[Any]:
    return [tree[k] for k in spec.context]


def _by_place(tree: Any, spec: TreeSpec) -> list[Any]:
    return [tree[i] for i in range(spec.num_children)]


_flatten.update({dict: _by_key, OrderedDict: _by_key, list: _by_place, tuple: _by_place})


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """Returns the leaves of a tree where a form has some.

    Args:
        pytree: the tree, which may have more than the form
        spec: the form

    Raises:
        RuntimeError: for a class of containers that is not registered.
    """
    if spec.is_leaf():
        return [pytree]
    flatten = _flatten.get(spec.type) or (_by_place if is_namedtuple_class(spec.type) else None)
    if flatten is None:
        kind = spec.type.__name__
        raise RuntimeError(f"tree_flatten_spec: {kind} is not registered: use register_pytree_flatten_spec")
    children = zip(flatten(pytree, spec), spec.children_specs, strict=True)
    return [leaf for child, below in children for leaf in tree_flatten_spec(child, below)]
