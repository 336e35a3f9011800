"""Pickles as PyTorch's checkpoints hold them: written with PyTorch's names, and read without running what they name."""

from __future__ import annotations

import collections
import io
import pickle
import reprlib
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from plait import _core, _ops
from plait import _dtype as dt
from plait._device import device, parse, restored
from plait._engine.arming import CLAIMED
from plait._engine.runtime import MAX_DIMS, check, own
from plait._errors import CheckpointError
from plait._layout import Layout, Size, sparse_coo, sparse_csc, sparse_csr, strided
from plait._modes import no_grad
from plait._serialization.allowed_classes import REFUSED
from plait._tensor import Tensor
from plait._tensors.sparse_class import SparseTensor, rebuilt


class TensorError(CheckpointError):
    """A tensor of a checkpoint that cannot be made of the storage with a key."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


# The classes of storages by the names that PyTorch gives them.
STORAGES = {
    "FloatStorage": dt.float32,
    "DoubleStorage": dt.float64,
    "HalfStorage": dt.float16,
    "BFloat16Storage": dt.bfloat16,
    "LongStorage": dt.int64,
    "IntStorage": dt.int32,
    "ShortStorage": dt.int16,
    "CharStorage": dt.int8,
    "ByteStorage": dt.uint8,
    "BoolStorage": dt.bool_,
    "ComplexFloatStorage": dt.complex64,
    "ComplexDoubleStorage": dt.complex128,
}
_STORAGE_NAMES = {d: name for name, d in STORAGES.items()}


def parameter_class() -> type[Tensor] | None:
    """Returns the class of parameters, None where there are no modules."""
    try:
        from plait.nn import Parameter
    except ImportError:
        return None
    return Parameter


def distributed_module() -> Any:
    """Returns the module of distributed tensors, None as long as nothing has imported it."""
    return sys.modules.get("plait.distributed.tensor._dtensor")


# --- writing ---


class _Global:
    """A name of PyTorch's to be written: nothing of it is imported."""

    def __init__(self, module: str, name: str) -> None:
        self.text = f"c{module}\n{name}\n".encode()

    def __call__(self) -> None:
        """Does nothing: pickle wants what makes an object to be callable."""


class _Storage:
    """The storage of a tensor to be written."""

    def __init__(self, key: str, t: Tensor) -> None:
        self.key, self.dtype, self.location = key, t.dtype, location_of(t.device)
        self.elements = own(check(_core.bind_TensorStorage(t._h)))


def location_of(d: device) -> str:
    """Returns how checkpoints name a device."""
    return "cpu" if d.type == "cpu" else f"cuda:{d.index or 0}"


_TENSOR, _PARAMETER = _Global("torch._utils", "_rebuild_tensor_v2"), _Global("torch._utils", "_rebuild_parameter")
_TENSOR_OF_BYTES = _Global("torch._utils", "_rebuild_tensor_v3")
_DISTRIBUTED = _Global("plait.distributed.tensor._dtensor", "rebuilt")
_SPARSE, _LAYOUT = _Global("torch._utils", "_rebuild_sparse_tensor"), _Global("torch.serialization", "_get_layout")
_SIZE, _DEVICE = _Global("torch", "Size"), _Global("torch", "device")
_DTYPES = {d: _Global("torch", d.name) for d in dt.DTYPES}
_CLASSES = {d: _Global("torch", name) for d, name in _STORAGE_NAMES.items()}
_BYTES = _Global("torch.storage", "UntypedStorage")  # of dtypes that PyTorch has no class of storages for


class Pickler(pickle._Pickler):
    """Writes objects as PyTorch does, and collects the storages of their tensors."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined, misc]

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=2)  # the one that PyTorch writes
        self.storages: dict[int, _Storage] = {}
        self._parameter = parameter_class()

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        """Writes one object."""
        written = _DTYPES[obj] if isinstance(obj, dt.dtype) else obj
        return super().save(written, save_persistent_id)  # type: ignore[misc]

    def persistent_id(self, obj: Any) -> Any:
        """Names a storage, whose bytes lie in a record of their own."""
        if isinstance(obj, _Storage):
            if obj.dtype not in _CLASSES:
                return "storage", _BYTES, obj.key, obj.location, obj.elements.nbytes
            return "storage", _CLASSES[obj.dtype], obj.key, obj.location, obj.elements.numel()
        return None

    def reducer_override(self, obj: Any) -> Any:
        """Says how PyTorch would make an object."""
        hooks: Any = collections.OrderedDict()
        if isinstance(obj, SparseTensor):
            layout, data = obj._made_of()
            return _SPARSE, (layout, tuple(Size(x) if isinstance(x, tuple) else x for x in data))
        if isinstance(obj, Layout):
            return _LAYOUT, (f"torch.{obj._name}",)
        if isinstance(obj, Tensor):
            if CLAIMED in obj.__dict__:
                return obj.__reduce_ex__(2)
            distributed = distributed_module()
            if distributed:
                distributed.settle(obj)
            if distributed and distributed.is_distributed(obj):
                return _DISTRIBUTED, distributed.described(obj)
            if self._parameter is not None and isinstance(obj, self._parameter):
                return _PARAMETER, (obj.detach(), obj.requires_grad, hooks)
            at = obj.storage_offset(), tuple(obj.shape), obj.stride()
            storage = self._storage(obj)
            if obj.dtype not in _CLASSES:
                return _TENSOR_OF_BYTES, (storage, *at, obj.requires_grad, hooks, obj.dtype)
            return _TENSOR, (storage, *at, obj.requires_grad, hooks)
        if isinstance(obj, Size):
            return _SIZE, (tuple(obj),)
        if isinstance(obj, device):
            kind, _, index = location_of(obj).partition(":")
            return _DEVICE, (kind, int(index)) if index else (kind,)
        return NotImplemented

    def _storage(self, t: Tensor) -> _Storage:
        identity = check(_core.bind_TensorStorageId(t._h))
        s = self.storages.get(identity)
        if s is None:
            s = self.storages[identity] = _Storage(str(len(self.storages)), t)
        elif s.dtype is not t.dtype:
            raise CheckpointError(
                f"save: tensors of {s.dtype} and {t.dtype} share memory, which a checkpoint cannot hold"
            )
        return s

    def _save_global(self, obj: _Global) -> None:
        self.write(obj.text)  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]

    dispatch[_Global] = _save_global


# --- reading: what names stand for ---


class Loaded:
    """A storage that was read, or a part of one."""

    def __init__(self, key: str, elements: Tensor, first: int = 0, count: int | None = None) -> None:
        self.key, self.elements, self.first = key, elements, first
        self.count = elements.numel() if count is None else count


def _sizes(what: str, values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple) or not all(type(v) is int and v >= 0 for v in values) or len(values) > MAX_DIMS:
        raise CheckpointError(f"{what} is {shown(values)}, want a tuple of at most {MAX_DIMS} sizes")
    return values


def shown(value: Any) -> str:
    """Returns a value of a file as text: a little of it, since it may be endless."""
    return _shortened.repr(value)


_shortened = reprlib.Repr()
_shortened.maxlevel, _shortened.maxstring, _shortened.maxlong, _shortened.maxother = 2, 60, 60, 60


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, *_: Any) -> Tensor:
    if not isinstance(storage, Loaded):
        raise CheckpointError(f"a tensor's storage is {shown(storage)}")
    try:
        size, stride = _sizes("its shape", size), _sizes("its strides", stride)
        (offset,) = _sizes("its offset", (offset,))
    except CheckpointError as error:
        raise TensorError(storage.key, str(error)) from None
    if len(size) != len(stride):
        raise TensorError(storage.key, f"shape {list(size)} and strides {list(stride)} differ in length")
    have = storage.count
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if (0 not in size and last >= have) or offset > have:
        raise TensorError(
            storage.key,
            f"shape {list(size)} with strides {list(stride)} from element {offset} reaches past the {have} elements",
        )
    with no_grad():
        out = _ops.as_strided(storage.elements, size, stride, storage.first + offset).detach()
    if requires_grad:
        out.requires_grad = True
    return out


def _tensor_of_bytes(
    storage: Any, offset: Any, size: Any, stride: Any, grad: Any, hooks: Any, d: Any, *_: Any
) -> Tensor:
    if not isinstance(storage, Loaded) or not isinstance(d, dt.dtype) or (storage.first | storage.count) % d.itemsize:
        raise CheckpointError(f"a tensor of {shown(d)} has the storage {shown(storage)}")
    first, count = storage.first // d.itemsize, storage.count // d.itemsize
    return _tensor(Loaded(storage.key, storage.elements.view(d), first, count), offset, size, stride, grad)


def _parameter(data: Any, requires_grad: Any = True, *_: Any) -> Any:
    if not isinstance(data, Tensor):
        raise CheckpointError(f"a parameter's value is {shown(data)}")
    cls = parameter_class()
    return data.requires_grad_(bool(requires_grad)) if cls is None else cls(data, bool(requires_grad))  # type: ignore[call-arg]


def _distributed(local: Any, mesh: Any, placed: Any, shape: Any, requires_grad: Any, category: Any, *_: Any) -> Tensor:
    numbers = isinstance(placed, tuple) and all(type(n) is int for n in placed)
    if not isinstance(local, Tensor) or not isinstance(mesh, tuple) or len(mesh) != 4 or not numbers:
        raise CheckpointError(
            f"a distributed tensor of {shown(local)} on {shown(mesh)} with placements {shown(placed)}"
        )
    _sizes("a distributed tensor's shape", shape)
    distributed = distributed_module()
    if distributed is None:
        raise CheckpointError(
            "it has distributed tensors: make their mesh before, on as many ranks, each of which loads its own file"
        )
    made: Tensor
    try:
        made = distributed.rebuilt(local, mesh, placed, shape, bool(requires_grad), category)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise CheckpointError(f"a distributed tensor of shape {list(shape)}: {error}") from None
    return made


def _layout(name: Any) -> Layout:
    for layout in (strided, sparse_coo, sparse_csr, sparse_csc):
        if name == f"torch.{layout._name}":
            return layout
    raise CheckpointError(
        f"a layout named {shown(name)}, want torch.strided or one of sparse_coo, sparse_csr, sparse_csc"
    )


def _sparse(layout: Any, data: Any) -> Any:
    three = Tensor, Tensor, Tensor
    of = {sparse_coo: (Tensor, Tensor), sparse_csr: three, sparse_csc: three}.get(layout, ())
    if not of or not isinstance(data, tuple) or len(data) < len(of) + 1:
        raise CheckpointError(f"a sparse tensor of {shown(layout)} made of {shown(data)}")
    if not all(isinstance(t, Tensor) for t in data[: len(of)]):
        raise CheckpointError(f"a sparse tensor made of {shown(data)}")
    _sizes("a sparse tensor's shape", data[len(of)])
    try:
        return rebuilt(layout, data)
    except (RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"a sparse tensor that is none: {error}") from None


def _typed(make: Any, kind: Any, args: Any, state: Any) -> Any:
    # A tensor with attributes of its own. They are data, but would hide the tensor's own methods: they are left out.
    if not isinstance(make, Allowed) or not isinstance(args, tuple):
        raise CheckpointError(f"a tensor made by {shown(make)}")
    return make.run(*args)


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if encoding != "latin1":
        raise CheckpointError(f"bytes in encoding {shown(encoding)}")
    return text.encode("latin1")


def _numpy_dtype(name: Any, *_: Any) -> np.dtype:
    d = np.dtype(name) if isinstance(name, str) else None
    if d is None or d.kind not in "biufc" or d.shape or d.fields:
        raise CheckpointError(f"NumPy dtype {shown(name)}, want one of numbers")
    return d


def _numpy_data(d: Any, shape: Any, data: Any, order: str = "C") -> np.ndarray:
    shape = _sizes("a NumPy array's shape", shape)
    if not isinstance(d, np.dtype) or not isinstance(data, bytes):
        raise CheckpointError("a NumPy array without numbers")
    count = 1
    for n in shape:
        count *= n
    if len(data) != count * d.itemsize:
        raise CheckpointError(f"a NumPy array of shape {list(shape)} with {len(data)} bytes, want {count * d.itemsize}")
    return np.frombuffer(data, d).reshape(shape, order=order).copy()  # type: ignore[call-overload]


def _numpy_scalar(d: Any, data: Any) -> Any:
    return _numpy_data(d, (), data)[()]


def _numpy_empty(*_: Any) -> np.ndarray:
    return np.empty(0, np.uint8)  # its state comes after it


def _device(kind: Any, index: Any = None) -> device:
    if not isinstance(kind, str) or not (index is None or type(index) is int):
        raise CheckpointError(f"a device named {shown(kind)}")
    return restored(*parse(kind, index))


def _plain(of: str, *kinds: type) -> Callable[..., Any]:
    """Returns the class that is named, of an argument of the given kinds: text of others may be endless."""
    made = {"int": int, "float": float, "str": str, "bool": bool, "complex": complex}[of]

    def make(*args: Any) -> Any:
        if not all(isinstance(a, kinds) for a in args):
            raise CheckpointError(f"{of} of {shown(args)}")
        return made(*args)

    return make


def _bytearray(data: Any = b"", encoding: Any = "latin1") -> bytearray:
    if not isinstance(data, bytes | str):
        raise CheckpointError(f"a bytearray of {shown(data)}")  # a number would be how long it is
    return bytearray(data if isinstance(data, bytes) else _encode(data, encoding))


def _items(values: Any) -> list[Any]:
    return list(values.items() if isinstance(values, dict) else values)


def checked_key(key: Any, depth: int = 4) -> Any:
    """Returns a key of a dict, or an element of a set, if it takes no time to hash: tuples may be nested endlessly."""
    if isinstance(key, tuple):
        if depth == 0 or len(key) > 1000:
            raise CheckpointError(f"a key that is {shown(key)}")
        for k in key:
            checked_key(k, depth - 1)
    elif isinstance(key, frozenset):
        raise CheckpointError("a key that is a frozenset")
    return key


def pairs(items: Any) -> dict[Any, Any]:
    """Returns a dict of pairs of keys and values."""
    return {checked_key(k): v for k, v in items}


def _set(values: Any = ()) -> set[Any]:
    return {checked_key(v) for v in values}


def _frozenset(values: Any = ()) -> frozenset[Any]:
    return frozenset(_set(values))


def _counter(values: Any = ()) -> Any:
    return collections.Counter(pairs(_items(values)))


def _dict(values: Any = ()) -> dict[Any, Any]:
    return pairs(_items(values))


def _ordered(values: Any = ()) -> Any:
    return collections.OrderedDict(pairs(_items(values)))


def _default(factory: Any = None, values: Any = ()) -> Any:
    if factory is not None and not isinstance(factory, Allowed):
        raise CheckpointError(f"a defaultdict of {shown(factory)}")
    return collections.defaultdict(None if factory is None else factory.run, pairs(_items(values)))


def _refused_directly(*_: Any) -> Any:
    raise CheckpointError("a class is called that a checkpoint does not call")


class Allowed:
    """What a name in a checkpoint stands for: not the thing itself, which a file could change."""

    __slots__ = ("name", "run")
    name: str
    run: Callable[..., Any]

    def __init__(self, name: str, run: Callable[..., Any]) -> None:
        self.name, self.run = name, run

    def __repr__(self) -> str:
        return self.name


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_of_bytes,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_sparse_tensor"): _sparse,
    ("torch.serialization", "_get_layout"): _layout,
    ("plait.distributed.tensor._dtensor", "rebuilt"): _distributed,
    ("torch._tensor", "_rebuild_from_type_v2"): _typed,
    ("torch", "Tensor"): _refused_directly,
    ("torch.nn.parameter", "Parameter"): _refused_directly,
    ("torch", "Size"): Size,
    ("torch", "device"): _device,
    ("collections", "OrderedDict"): _ordered,
    ("collections", "defaultdict"): _default,
    ("collections", "Counter"): _counter,
    ("_codecs", "encode"): _encode,
    ("numpy", "dtype"): _numpy_dtype,
    ("numpy", "ndarray"): _refused_directly,
    **{
        (f"numpy.{core}.multiarray", name): f
        for core in ("core", "_core")
        for name, f in (("scalar", _numpy_scalar), ("_reconstruct", _numpy_empty))
    },
    **{
        (module, name): f
        for module in ("builtins", "__builtin__")
        for name, f in (
            ("set", _set),
            ("frozenset", _frozenset),
            ("list", list),
            ("tuple", tuple),
            ("dict", _dict),
            ("bytearray", _bytearray),
            ("complex", _plain("complex", int, float)),
            ("int", _plain("int", int, float, str)),
            ("float", _plain("float", int, float, str)),
            ("str", _plain("str", str, int, float)),
            ("bool", _plain("bool", int, float, str)),
        )
    },
}
_VALUES: dict[tuple[str, str], Any] = {("torch", d.name): d for d in dt.DTYPES}
_VALUES |= {("torch", name): d for name, d in STORAGES.items()} | {("torch.storage", "UntypedStorage"): dt.uint8}


def value_of(module: str, name: str, trusted: bool = False) -> Any:
    """Returns what a name stands for: something `Allowed`, or a dtype. Of a file that is trusted, it is one of torch's.

    Raises:
        CheckpointError: for a name that stands for nothing in a checkpoint.
    """
    if (module, name) in _VALUES:
        return _VALUES[module, name]
    if (module, name) in ALLOWED:
        return Allowed(f"{module}.{name}", ALLOWED[module, name])
    if module == "torch" and name.endswith("Storage"):
        raise CheckpointError(f"it holds torch.{name}, of a dtype that tensors do not have here")
    if trusted:
        raise CheckpointError(
            f"it names {module}.{name}, which PyTorch alone can make; save a module's state_dict() there, and load that"
        )
    never = module.partition(".")[0] in REFUSED
    raise CheckpointError(
        f"it names {module}.{name}, which is not allowed, since it could run any code; "
        + ("" if never else "if you trust that, use serialization.add_safe_globals; ")
        + "if you trust the file, use weights_only=False"
    )
