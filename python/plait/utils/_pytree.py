"""Nested containers: taken apart into leaves, mapped, and put together again, under PyTorch's names."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from plait._layout import Size

__all__ = [
    "GetAttrKey", "KeyPath", "LeafSpec", "MappingKey", "PyTree", "SequenceKey", "TreeSpec", "is_namedtuple",
    "is_namedtuple_class", "is_namedtuple_instance", "key_get", "keystr", "register_pytree_node", "tree_all",
    "tree_all_only", "tree_any", "tree_any_only", "tree_flatten", "tree_flatten_with_path", "tree_is_leaf", "tree_iter",
    "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_",
    "tree_map_with_path", "tree_structure", "tree_unflatten",
]  # fmt: skip

PyTree = Any
Context = Any
IsLeaf = Callable[[Any], bool] | None


@dataclass(frozen=True)
class SequenceKey:
    """The place of a child in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """Returns the child."""
        return sequence[self.idx]


@dataclass(frozen=True)
class MappingKey:
    """The key of a child in a mapping."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """Returns the child."""
        return mapping[self.key]


@dataclass(frozen=True)
class GetAttrKey:
    """The name of a child that is an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """Returns the child."""
        return getattr(obj, self.name)


KeyPath = tuple[Any, ...]


class NodeDef(NamedTuple):
    """How containers of a class are taken apart and made."""

    type: type
    flatten_fn: Callable[[Any], tuple[list[Any], Context]]
    unflatten_fn: Callable[[Iterable[Any], Context], Any]
    keys: Callable[[Any, Context, int], list[Any]]


@dataclass(frozen=True)
class TreeSpec:
    """The form of a tree: the class of its root, what makes one like it, and the forms of the children."""

    type: Any
    context: Context = None
    children_specs: list[TreeSpec] = field(default_factory=list)

    @property
    def num_nodes(self) -> int:
        """The number of containers and leaves."""
        return 1 + sum(c.num_nodes for c in self.children_specs)

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return 1 if self.type is None else sum(c.num_leaves for c in self.children_specs)

    @property
    def num_children(self) -> int:
        """The number of children of the root."""
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether the tree is one leaf."""
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        """Returns a tree of this form."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(f"tree_unflatten: got {len(leaves)} leaves, want {self.num_leaves}")
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> PyTree:
        if self.type is None:
            return next(leaves)
        return SUPPORTED_NODES[self.type].unflatten_fn([c._build(leaves) for c in self.children_specs], self.context)

    def flatten_up_to(self, tree: PyTree) -> list[Any]:
        """Returns the subtrees of a tree where this form has leaves.

        Raises:
            ValueError: if the tree has another form above them.
        """
        if self.type is None:
            return [tree]
        if _get_node_type(tree) is not self.type:
            raise ValueError(f"tree: got {type(tree).__name__}, want {self.type.__name__}")
        children, context = SUPPORTED_NODES[self.type].flatten_fn(tree)
        if isinstance(tree, dict) and not isinstance(tree, OrderedDict) and set(self._keys()) == set(tree):
            children = [tree[k] for k in self._keys()]  # the order of a dict does not matter
        elif len(children) != len(self.children_specs) or context != self.context:
            raise ValueError(
                f"tree: the children of a {type(tree).__name__} differ: got {context}, want {self.context}"
            )
        return [leaf for spec, c in zip(self.children_specs, children, strict=True) for leaf in spec.flatten_up_to(c)]

    def _keys(self) -> list[Any]:
        return self.context[1] if self.type is defaultdict else self.context


def LeafSpec() -> TreeSpec:  # noqa: N802
    """Returns the form of a leaf."""
    return TreeSpec(None)


def _by_place(tree: Any, context: Context, count: int) -> list[Any]:
    return [SequenceKey(i) for i in range(count)]


def _by_key(tree: Any, context: Context, count: int) -> list[Any]:
    return [MappingKey(k) for k in tree]


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], Context]:
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[Any], Context]:
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: Context) -> dict[Any, Any]:
    return dict(zip(context, values, strict=True))


SUPPORTED_NODES: dict[Any, NodeDef] = {
    n.type: n
    for n in (
        NodeDef(tuple, lambda t: (list(t), None), lambda c, _: tuple(c), _by_place),
        NodeDef(Size, lambda t: (list(t), None), lambda c, _: tuple(c), _by_place),
        NodeDef(list, lambda t: (list(t), None), lambda c, _: list(c), _by_place),
        NodeDef(dict, _dict_flatten, _dict_unflatten, _by_key),
        NodeDef(OrderedDict, _dict_flatten, lambda c, k: OrderedDict(zip(k, c, strict=True)), _by_key),
        NodeDef(
            defaultdict,
            lambda t: (list(t.values()), [t.default_factory, list(t)]),
            lambda c, k: defaultdict(k[0], zip(k[1], c, strict=True)),
            _by_key,
        ),
        NodeDef(deque, lambda t: (list(t), t.maxlen), lambda c, n: deque(c, maxlen=n), _by_place),
    )
}
SUPPORTED_NODES["namedtuple"] = NodeDef(
    tuple, lambda t: (list(t), type(t)), lambda c, made: made(*c), lambda t, _, __: [GetAttrKey(n) for n in t._fields]
)


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[list[Any], Context]],
    unflatten_fn: Callable[[Iterable[Any], Context], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Any = None,
    from_dumpable_context: Any = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[Any], Context]] | None = None,
) -> None:
    """Makes a class a container, for the whole process.

    Args:
        cls: the class; its subclasses stay leaves
        flatten_fn: returns the children of an object, and what to know to make one like it
        unflatten_fn: makes one of children and of that
        serialized_type_name: for files, which are not there
        to_dumpable_context: the same
        from_dumpable_context: the same
        flatten_with_keys_fn: as flatten_fn, with pairs of keys and children
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"register_pytree_node: {cls} is registered already")

    def keys(tree: Any, context: Context, count: int) -> list[Any]:
        if flatten_with_keys_fn is None:
            raise ValueError(f"{cls} has no flatten_with_keys_fn: give one to register_pytree_node")
        return [k for k, _ in flatten_with_keys_fn(tree)[0]]

    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, keys)


_register_pytree_node = register_pytree_node


def is_namedtuple_class(cls: type) -> bool:
    """Whether a class is a named tuple's."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether an object is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether an object is a named tuple, or the class of one."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def _get_node_type(tree: Any) -> Any:
    """Returns the key of a container among SUPPORTED_NODES, None for a leaf."""
    if type(tree) in SUPPORTED_NODES:
        return type(tree)
    return "namedtuple" if is_namedtuple_instance(tree) else None


def tree_is_leaf(tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether something is a leaf: no container, or one that `is_leaf` calls a leaf."""
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) is None


def _flatten(tree: PyTree, is_leaf: IsLeaf, path: KeyPath, out: list[Any], with_path: bool) -> TreeSpec:
    if tree_is_leaf(tree, is_leaf):
        out.append((path, tree) if with_path else tree)
        return LeafSpec()
    kind = _get_node_type(tree)
    node = SUPPORTED_NODES[kind]
    children, context = node.flatten_fn(tree)
    children = list(children)
    keys = node.keys(tree, context, len(children)) if with_path else children
    specs = [_flatten(c, is_leaf, (*path, k), out, with_path) for k, c in zip(keys, children, strict=True)]
    return TreeSpec(kind, context, specs)


def tree_flatten(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """Returns the leaves of a tree, and its form.

    Args:
        tree: nested tuples, lists, dicts, deques, named tuples, and objects of registered classes
        is_leaf: says of a container whether to take it as a leaf
    """
    out: list[Any] = []
    spec = _flatten(tree, is_leaf, (), out, False)
    return out, spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """Returns a tree of a form with other leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten: want a TreeSpec, got {type(treespec).__name__}")
    return treespec.unflatten(leaves)


def tree_leaves(tree: PyTree, is_leaf: IsLeaf = None) -> list[Any]:
    """Returns the leaves of a tree."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: PyTree, is_leaf: IsLeaf = None) -> Iterator[Any]:
    """Returns an iterator over the leaves of a tree."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: PyTree, is_leaf: IsLeaf = None) -> TreeSpec:
    """Returns the form of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Returns a tree of what a function returns for the leaves of one tree, or of several of the same form."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten(map(func, leaves, *(spec.flatten_up_to(r) for r in rests)))


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Calls a function with the leaves and returns the tree as it was."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for values in zip(leaves, *(spec.flatten_up_to(r) for r in rests), strict=True):
        func(*values)
    return tree


def map_only(type_or_types: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Returns a decorator: the function is called for objects of some types, and others are returned as they are."""
    chosen = _chooses(type_or_types)
    return lambda func: lambda x: func(x) if chosen(x) else x


def _chooses(type_or_types: Any) -> Callable[[Any], bool]:
    if isinstance(type_or_types, type | tuple) or not callable(type_or_types):
        return lambda x: isinstance(x, type_or_types)
    return type_or_types


def tree_map_only(type_or_types: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Returns a tree with a function applied to the leaves of some types, or of which a predicate is true."""
    return tree_map(map_only(type_or_types)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Calls a function with the leaves of some types and returns the tree as it was."""
    return tree_map_(map_only(type_or_types)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether a predicate is true of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether a predicate is true of a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(type_or_types: Any, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether a predicate is true of all leaves of some types."""
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(type_or_types: Any, pred: Callable[[Any], bool], tree: PyTree, is_leaf: IsLeaf = None) -> bool:
    """Whether a predicate is true of a leaf of some types."""
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


def tree_flatten_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """Returns pairs of the path of a leaf, a tuple of keys, and the leaf; and the form of the tree."""
    out: list[Any] = []
    spec = _flatten(tree, is_leaf, (), out, True)
    return out, spec


def tree_leaves_with_path(tree: PyTree, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """Returns pairs of the path of a leaf and the leaf."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: IsLeaf = None) -> PyTree:
    """Returns a tree of what a function returns for the path of each leaf, and the leaves that are there."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    paths, leaves = [p for p, _ in found], [leaf for _, leaf in found]
    return spec.unflatten(map(func, paths, leaves, *(spec.flatten_up_to(r) for r in rests)))


def keystr(kp: KeyPath) -> str:
    """Returns a path as text."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: KeyPath) -> Any:
    """Returns what is at a path."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: IsLeaf = None) -> list[Any] | None:
    """Returns a value for each leaf of a form from a smaller tree, a leaf of which stands for all that is below it."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or _get_node_type(tree) != treespec.type:
        return None
    children, context = SUPPORTED_NODES[treespec.type].flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    out: list[Any] = []
    for c, spec in zip(children, treespec.children_specs, strict=True):
        found = _broadcast_to_and_flatten(c, spec, is_leaf)
        if found is None:
            return None
        out += found
    return out
