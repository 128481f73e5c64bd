"""Values as bytes, to be sent to another process and back: states, plans, answers.

A value becomes MessagePack. Plain values stay as they are; any other is an array that begins with a `_ClassTag`, or with the
name of a class in `SERIALIZABLE` and its fields. Bytes can name no other class and call nothing. numpy arrays go as their
bytes, sources by name, to be opened again. An object that occurs twice stays one object.
"""

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable
from enum import Enum, IntEnum, auto
from functools import cache
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import msgspec
import numpy as np

from kafka_forensics.analysis import bounds, compaction, epochs, placement, replica
from kafka_forensics.analysis.producers import producers, rules as producer_rules, runs as producer_runs
from kafka_forensics.analysis.segments import continuity, framing, indexes, misplaced
from kafka_forensics.analysis.transactions import endings as transaction_endings, markers as transaction_markers, transactions
from kafka_forensics.analysis.transactions_across import facts as transactions_facts
from kafka_forensics.errors import ForensicsError
from kafka_forensics.evidence import context, inputs, ledger, options
from kafka_forensics.model import batches, bundles, changes, controller, coordinators, files, findings, remote_log, results
from kafka_forensics.parsers import log_dir as discovery
from kafka_forensics.scanning.engine import task_values
from kafka_forensics.scanning.folding.keys import question as key_question
from kafka_forensics.scanning.judging import partitions, whole_scan
from kafka_forensics.scanning.witnesses import witnesses
from kafka_forensics.storage.open import address_of
from kafka_forensics.storage.source import ByteSource, Entry, EntryKind
from kafka_forensics.version import __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray

Opener = Callable[[str, str], ByteSource]
"""Opens the source of a name (first argument) at an address (second)."""
_MAGIC: Final = b"kafka_forensics "
"""Followed by the version, a zero, the size in bytes of the MessagePack value, and the value compressed."""
_SIZE: Final = struct.Struct("<q")
_MAX_BYTES: Final = 1 << 31
_ARRAY_KINDS: Final = "biuf"
_SCALARS: Final = frozenset({type(None), bool, int, float, bytes})
_PLAIN: Final = _SCALARS | {str}
_MALFORMED: Final = (
    IndexError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    OSError,
    RecursionError,
    MemoryError,
    struct.error,
)
"""Raised while bytes are read that `pack` did not make."""


class SerializationError(ForensicsError):
    """A value that cannot be serialized, or bytes that `pack` did not make."""


class _ClassTag(IntEnum):
    """First item of an array that is not an object of a class."""

    LIST = 0
    TUPLE = auto()
    SET = auto()
    FROZENSET = auto()
    DICT = auto()
    COUNTER = auto()
    ORDERED_DICT = auto()
    WIDE_INTEGER = auto()
    """Little-endian bytes of an integer of more than 64 bits."""
    ODD_TEXT = auto()
    """Bytes of text that is not Unicode, such as a file name."""
    ARRAY = auto()
    """Type, shape, bytes."""
    SOURCE = auto()
    """Name, address."""
    KNOWN_OBJECT = auto()
    """Number of an object that came before."""
    NOTHING = auto()
    """A field without a value."""


_TAGS: Final[dict[type, _ClassTag]] = {
    list: _ClassTag.LIST,
    tuple: _ClassTag.TUPLE,
    set: _ClassTag.SET,
    frozenset: _ClassTag.FROZENSET,
    dict: _ClassTag.DICT,
    Counter: _ClassTag.COUNTER,
    OrderedDict: _ClassTag.ORDERED_DICT,
}
_COLLECTIONS: Final[dict[int, type]] = {tag: collection for collection, tag in _TAGS.items()}
_NOTHING: Final = object()


def pack(value: object) -> bytes:
    """`value` as compressed bytes. Raises SerializationError for what cannot be serialized: it must not contain itself."""
    import pyarrow as pa

    try:
        plain = msgspec.msgpack.encode(_Packer(check_scalars=False).plain(value))
    except (OverflowError, UnicodeEncodeError):  # few values have wide integers or odd text
        plain = msgspec.msgpack.encode(_Packer(check_scalars=True).plain(value))
    except RecursionError as error:
        raise SerializationError(f"a {type(value).__qualname__} is nested too deep") from error
    return b"".join((_MAGIC, __version__.encode(), b"\0", _SIZE.pack(len(plain)), pa.compress(plain, "zstd", asbytes=True)))


def unpack(packed: bytes, opener: Opener | None = None) -> Any:
    """The value that `pack` made these bytes of; `opener` opens its sources. Raises SerializationError for other bytes.

    Raises what the opener raises.
    """
    import pyarrow as pa

    head, _, body = packed.partition(b"\0")
    if not head.startswith(_MAGIC):
        raise SerializationError("these bytes are not a packed value")
    version = head.removeprefix(_MAGIC).decode("ascii", "replace")
    if version != __version__:
        raise SerializationError(f"packed by kafka-forensics {version or 'of no version'}, and this is {__version__}")
    try:
        (size_in_bytes,) = _SIZE.unpack_from(body)
        if not 0 < size_in_bytes <= _MAX_BYTES:
            _refuse(f"a value of {size_in_bytes} bytes")
        plain = msgspec.msgpack.decode(pa.decompress(memoryview(body)[_SIZE.size :], size_in_bytes, "zstd"))
        return _Unpacker(opener).value(plain)
    except _MALFORMED as error:
        raise SerializationError(f"these bytes are not a packed value: {error}") from error


class _ClassLayout(NamedTuple):
    """The fields of a class, with their getters and setters."""

    name: str
    slots: tuple[str, ...]
    has_dict: bool
    values: Callable[[object], tuple[object, ...]]
    """Values of all slots. Raises AttributeError where a slot is empty."""
    setters: tuple[Callable[[object, object], None], ...]


@cache
def _layout_of(cls: type) -> _ClassLayout:
    names: list[str] = []
    for base in reversed(cls.__mro__):
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    has_dict, slots = cls.__dictoffset__ != 0, tuple(name for name in names if name not in ("__dict__", "__weakref__"))
    setters = tuple(vars(next(base for base in cls.__mro__ if name in vars(base)))[name].__set__ for name in slots)
    if len(slots) > 1:
        return _ClassLayout(cls.__qualname__, slots, has_dict, attrgetter(*slots), setters)
    return _ClassLayout(cls.__qualname__, slots, has_dict, lambda value: tuple(getattr(value, name) for name in slots), setters)


class _Packer:
    """Turns values into `_PLAIN` ones and arrays of them; with `check_scalars`, integers and text that MessagePack lacks too."""

    def __init__(self, *, check_scalars: bool) -> None:
        self._check_scalars = check_scalars
        self._objects: dict[int, tuple[int, object]] = {}
        """id → (number, the object, which keeps its id taken)."""
        self._constants: dict[int, tuple[object, list[object]]] = {}
        """id → (a source or a member of an enumeration that came before, its packed form)."""

    def plain(self, value: Any) -> object:
        cls = type(value)
        if cls in _PLAIN:
            return self._checked(value) if self._check_scalars else value
        if cls in (list, tuple):
            return [_TAGS[cls], *self._all(value)] if value else [_TAGS[cls]]
        if cls in (set, frozenset):
            return [_TAGS[cls], *self._all(sorted(value) if _sortable(value) else value)]
        if cls in _TAGS:
            return [_TAGS[cls], self._all(value.keys()), self._all(value.values())]
        if cls is np.ndarray:
            if value.dtype.kind not in _ARRAY_KINDS:
                _refuse(f"an array of {value.dtype}")
            return [_ClassTag.ARRAY, value.dtype.str, value.shape, value.tobytes()]
        if isinstance(value, np.generic):
            return self.plain(value.item())
        return self._object(value, cls)

    def _all(self, values: Collection[object]) -> Iterable[object]:
        plain = self.plain
        if self._check_scalars:
            return [plain(value) for value in values]
        return [value if type(value) in _PLAIN else plain(value) for value in values]

    def _checked(self, value: object) -> object:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            return [_ClassTag.WIDE_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]
        if isinstance(value, str) and not value.isascii():
            return [_ClassTag.ODD_TEXT, value.encode("utf-8", "surrogatepass")]
        return value

    def _object(self, value: object, cls: type) -> object:
        if (constant := self._constants.get(id(value))) is not None:
            return constant[1]
        layout = _layout_of(cls)
        if SERIALIZABLE.get(layout.name) is not cls:
            if not isinstance(value, ByteSource):
                _refuse(f"{cls.__module__}.{layout.name}")
            return self._constant(value, [_ClassTag.SOURCE, self.plain(value.name), self.plain(address_of(value))])
        if isinstance(value, Enum):
            return self._constant(value, [layout.name, self.plain(value.value)])
        if isinstance(value, tuple):
            return [layout.name, *self._all(value)]
        if (known := self._objects.get(id(value))) is not None:
            return [_ClassTag.KNOWN_OBJECT, known[0]]
        try:
            fields = self._all(layout.values(value))
        except AttributeError:
            fields = [self.plain(getattr(value, name)) if hasattr(value, name) else [_ClassTag.NOTHING] for name in layout.slots]
        rest = [*vars(value), *self._all(vars(value).values())] if layout.has_dict else ()
        self._objects[id(value)] = len(self._objects), value
        return [layout.name, *fields, *rest]

    def _constant(self, value: object, packed: list[object]) -> list[object]:
        self._constants[id(value)] = value, packed
        return packed


def _sortable(values: Iterable[object]) -> bool:
    types = {type(value) for value in values}
    return len(types) <= 1 and types <= {int, str}


class _Unpacker:
    """Turns what `_Packer` made back into values."""

    def __init__(self, opener: Opener | None) -> None:
        self._opener = opener
        self._objects: list[object] = []
        self._texts: dict[str, str] = {}
        self._sources: dict[tuple[str, str], ByteSource] = {}

    def value(self, plain: Any) -> Any:
        if type(plain) is not list:
            if type(plain) is str:
                return self._texts.setdefault(plain, plain)
            return plain if type(plain) in _PLAIN else _refuse(f"{type(plain).__name__}")
        tag = plain[0]
        if type(tag) is str:
            return self._object(SERIALIZABLE[tag], plain)
        if tag <= _ClassTag.FROZENSET:
            values = self._all(plain[1:])
            return values if tag == _ClassTag.LIST else _COLLECTIONS[tag](values)
        if tag <= _ClassTag.ORDERED_DICT:
            return _COLLECTIONS[tag](dict(zip(self._all(plain[1]), self._all(plain[2]), strict=True)))
        if tag == _ClassTag.ARRAY:
            return _array(*plain[1:])
        return self._rare(tag, plain)

    def _all(self, plain: list[object]) -> list[object]:
        value = self.value
        return [value(item) if type(item) not in _SCALARS else item for item in plain]

    def _rare(self, tag: int, plain: list[Any]) -> object:
        if tag == _ClassTag.KNOWN_OBJECT:
            return self._objects[plain[1]]
        if tag == _ClassTag.SOURCE:
            return self._source((self.value(plain[1]), self.value(plain[2])))
        if tag == _ClassTag.WIDE_INTEGER:
            return int.from_bytes(plain[1], "little", signed=True)
        if tag == _ClassTag.ODD_TEXT:
            return plain[1].decode("utf-8", "surrogatepass")
        return _NOTHING if tag == _ClassTag.NOTHING else _refuse(f"kind {tag}")

    def _source(self, where: tuple[str, str]) -> ByteSource:
        if self._opener is None:
            _refuse(f"source {where[0]}, and nothing opens it")
        if where not in self._sources:
            self._sources[where] = self._opener(*where)
        return self._sources[where]

    def _object(self, cls: Any, plain: list[object]) -> object:
        if issubclass(cls, Enum):
            return cls(self.value(plain[1]))
        if issubclass(cls, tuple):
            return cls._make(self._all(plain[1:]))
        layout = _layout_of(cls)
        end = 1 + len(layout.slots)
        values = self._all(plain[1:end])
        if issubclass(cls, msgspec.Struct):
            if any(value is _NOTHING for value in values):
                _refuse(f"a {layout.name} without a field")
            made = cls(**dict(zip(layout.slots, values, strict=True)))
        else:
            made = object.__new__(cls)
            for put, value in zip(layout.setters, values, strict=True):
                if value is not _NOTHING:
                    put(made, value)
        if layout.has_dict:
            names, rest = plain[end : (end + len(plain)) // 2], plain[(end + len(plain)) // 2 :]
            vars(made).update(zip(map(self.value, names), map(self.value, rest), strict=True))
        elif len(plain) > end:
            _refuse(f"more than a {layout.name} has")
        self._objects.append(made)
        return made


def _array(kind: str, shape: list[int], data: bytes) -> "NDArray[np.generic]":
    if np.dtype(kind).kind not in _ARRAY_KINDS:
        _refuse(f"an array of {kind}")
    return np.frombuffer(data, kind).reshape(shape).copy()


def _refuse(subject: str) -> NoReturn:
    raise SerializationError(f"{subject} cannot be serialized")


SERIALIZABLE: Final[dict[str, type]] = {"Entry": Entry, "EntryKind": EntryKind}
"""Serializable classes by their names, which are unique."""


def make_serializable(*modules: ModuleType) -> None:
    """Make all classes that these modules define serializable. They hold facts: reading one runs no code of theirs."""
    for module in modules:
        defined = (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__)
        classes = {cls.__qualname__: cls for cls in defined if not getattr(cls, "_is_protocol", False)}
        assert not classes.keys() & SERIALIZABLE.keys(), classes.keys() & SERIALIZABLE.keys()
        assert not any(issubclass(cls, msgspec.Struct) and hasattr(cls, "__post_init__") for cls in classes.values()), classes
        SERIALIZABLE.update(classes)


make_serializable(compaction, key_question, ledger, context, continuity, epochs, framing, indexes, misplaced, placement)
make_serializable(producer_rules, producer_runs, producers, replica, bounds, transaction_endings, transaction_markers, transactions)
make_serializable(transactions_facts, witnesses, changes, task_values, inputs, options, partitions, whole_scan, batches, bundles)
make_serializable(controller, coordinators, discovery, files, findings, remote_log, results)
