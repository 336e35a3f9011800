"""Stores: keys and values that ranks share, apart from tensors and collectives.

`_table` says what every operation does, and `_store` has the methods. A `HashStore` keeps a table in this process, a
`FileStore` (`_file`) a journal of operations in a file, and a `TCPStore` (`_client`) asks a server (`_server`) by the
messages of `_frames`.
"""

from plait.distributed._stores._client import TCPStore as TCPStore
from plait.distributed._stores._file import FileStore as FileStore
from plait.distributed._stores._store import HashStore as HashStore
from plait.distributed._stores._store import PrefixStore as PrefixStore
from plait.distributed._stores._store import Store as Store

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
