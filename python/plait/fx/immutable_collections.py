"""Lists and dicts of a node's arguments: they raise when they are changed, since the graph keeps users by them."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["immutable_dict", "immutable_list"]


def _no_change(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(
        f"'{type(self).__name__}' object does not support mutation. If you are attempting to modify the kwargs or args "
        "of a plait.fx.Node object, instead create a new copy of it and assign the copy to the node: "
        "new_args = ...; node.args = new_args"
    )


class immutable_list(list):  # noqa: N801
    """A list that raises when it is changed."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = append = clear = extend = insert = pop = remove = _no_change
    reverse = sort = _no_change

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_list, (tuple(self),)


class immutable_dict(dict):  # noqa: N801
    """A dict that raises when it is changed."""

    __delitem__ = __ior__ = __setitem__ = clear = pop = popitem = setdefault = update = _no_change

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return immutable_dict, (dict(self),)
