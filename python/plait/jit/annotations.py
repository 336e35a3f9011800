"""Types of annotations for compiled functions. There is no compiler, and nobody reads them."""

import typing

Dict, List, Tuple, Optional, Union = dict, list, tuple, typing.Optional, typing.Union


class _Broadcasting:
    def __getitem__(self, types: typing.Any) -> typing.Any:
        return typing.Any


BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = _Broadcasting()

__all__ = ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Optional", "Tuple", "Union"]
