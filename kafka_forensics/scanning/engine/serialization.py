"""The house's values as bytes, so that they can go to another process and come back: states, plans, answers.

A value becomes MessagePack: what is plain as it is, all else as an array that begins with what it is: a number of `_Kind`, or the
name of a class in `SERIALIZABLE`, whose fields follow. Nothing that is read can name another class or call anything. Arrays go as
their bytes; sources of evidence as their names, to be opened anew. What was one object stays one.
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
"""Gives the source called by a name (first) that is found at a place (second)."""
_HEAD: Final = b"kafka_forensics "
"""Then the version and a zero; then the size of what follows, compressed."""
_SIZE: Final = struct.Struct("<q")
_MOST_BYTES: Final = 1 << 31
_LEAST, _MOST = -(2**63), 2**63 - 1
_ARRAY_KINDS: Final = "biuf"
_AS_THEY_ARE: Final = frozenset({type(None), bool, int, float, bytes})
_PLAIN: Final = _AS_THEY_ARE | {str}
_NO_VALUE: Final = (IndexError, KeyError, ValueError, TypeError, AttributeError, OSError, RecursionError, MemoryError)
"""What bytes that no value became lead to."""


class SerializationError(ForensicsError):
    """A value that cannot be serialized, or bytes that no value became."""


class _Kind(IntEnum):
    """What an array begins with that is no object of a class."""

    LIST = 0
    TUPLE = auto()
    SET = auto()
    FROZENSET = auto()
    DICT = auto()
    COUNTER = auto()
    ORDERED_DICT = auto()
    WIDE_INTEGER = auto()
    """Little-endian bytes, for what 64 bits do not hold."""
    ODD_TEXT = auto()
    """Bytes, for text that is not Unicode, such as names of files."""
    ARRAY = auto()
    """Type, shape, bytes."""
    SOURCE = auto()
    """Name, place."""
    KNOWN_OBJECT = auto()
    """Number of an object met before."""
    NOTHING = auto()
    """Where an object has no value in a field."""


_KINDS: Final[dict[type, _Kind]] = {
    list: _Kind.LIST,
    tuple: _Kind.TUPLE,
    set: _Kind.SET,
    frozenset: _Kind.FROZENSET,
    dict: _Kind.DICT,
    Counter: _Kind.COUNTER,
    OrderedDict: _Kind.ORDERED_DICT,
}
_MAKERS: Final[dict[int, type]] = {kind: maker for maker, kind in _KINDS.items()}
_NOTHING: Final = object()


def pack(value: object) -> bytes:
    """`value` as compressed bytes. Raises SerializationError for what cannot be serialized."""
    import pyarrow as pa

    try:
        plain = msgspec.msgpack.encode(_Packer(careful=False).plain(value))
    except (OverflowError, UnicodeEncodeError):  # few values have such parts
        plain = msgspec.msgpack.encode(_Packer(careful=True).plain(value))
    return b"".join((_HEAD, __version__.encode(), b"\0", _SIZE.pack(len(plain)), pa.compress(plain, "zstd", asbytes=True)))


def unpack(packed: bytes, opener: Opener | None = None) -> Any:
    """The value that `pack` made these bytes of; sources come from `opener`. Raises SerializationError for other bytes.

    Raises what the opener raises.
    """
    import pyarrow as pa

    head, _, body = packed.partition(b"\0")
    if not head.startswith(_HEAD):
        raise SerializationError("these bytes are no packed value")
    version = head.removeprefix(_HEAD).decode("ascii", "replace")
    if version != __version__:
        raise SerializationError(f"packed by kafka-forensics {version or 'of no version'}, and this is {__version__}")
    try:
        (size_in_bytes,) = _SIZE.unpack_from(body)
        if not 0 < size_in_bytes <= _MOST_BYTES:
            _refuse(f"a value of {size_in_bytes} bytes")
        plain = msgspec.msgpack.decode(pa.decompress(memoryview(body)[_SIZE.size :], size_in_bytes, "zstd"))
        return _Unpacker(opener).value(plain)
    except (struct.error, *_NO_VALUE) as error:
        raise SerializationError(f"these bytes are no packed value: {error}") from error


class _Shape(NamedTuple):
    """How objects of a class are taken apart and put together."""

    name: str
    slots: tuple[str, ...]
    has_dict: bool
    values: Callable[[object], tuple[object, ...]]
    """Of all slots. Raises AttributeError where one has none."""
    setters: tuple[Callable[[object, object], None], ...]


@cache
def _shape_of(of: type) -> _Shape:
    names: list[str] = []
    for base in reversed(of.__mro__):
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    has_dict, slots = of.__dictoffset__ != 0, tuple(name for name in names if name not in ("__dict__", "__weakref__"))
    setters = tuple(vars(next(base for base in of.__mro__ if name in vars(base)))[name].__set__ for name in slots)
    if len(slots) > 1:
        return _Shape(of.__qualname__, slots, has_dict, attrgetter(*slots), setters)
    return _Shape(of.__qualname__, slots, has_dict, lambda value: tuple(getattr(value, name) for name in slots), setters)


class _Packer:
    """Values as what MessagePack knows: `_PLAIN`, and arrays of them. A `careful` one looks at every number and text."""

    def __init__(self, *, careful: bool) -> None:
        self._careful = careful
        self._objects: dict[int, tuple[int, object]] = {}
        """id → (number, the object, so that the id stays its own)."""
        self._constants: dict[int, tuple[object, list[object]]] = {}
        """id → (a source or a member of an enumeration met before, what it is packed as)."""

    def plain(self, value: Any) -> object:
        of = type(value)
        if of in _PLAIN:
            return self._checked(value) if self._careful else value
        if of in (list, tuple):
            return [_KINDS[of], *self._all(value)] if value else [_KINDS[of]]
        if of in (set, frozenset):
            return [_KINDS[of], *self._all(sorted(value) if _sortable(value) else value)]
        if of in _KINDS:
            return [_KINDS[of], self._all(value.keys()), self._all(value.values())]
        if of is np.ndarray:
            if value.dtype.kind not in _ARRAY_KINDS:
                _refuse(f"an array of {value.dtype}")
            return [_Kind.ARRAY, value.dtype.str, value.shape, value.tobytes()]
        if isinstance(value, np.generic):
            return self.plain(value.item())
        return self._classed(value, of)

    def _all(self, values: Collection[object]) -> Iterable[object]:
        plain = self.plain
        if self._careful:
            return [plain(value) for value in values]
        return [value if type(value) in _PLAIN else plain(value) for value in values]

    def _checked(self, value: object) -> object:
        if isinstance(value, int) and not _LEAST <= value <= _MOST:
            return [_Kind.WIDE_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)]
        if isinstance(value, str) and not value.isascii():
            return [_Kind.ODD_TEXT, value.encode("utf-8", "surrogatepass")]
        return value

    def _classed(self, value: object, of: type) -> object:
        if (constant := self._constants.get(id(value))) is not None:
            return constant[1]
        shape = _shape_of(of)
        if SERIALIZABLE.get(shape.name) is not of:
            if not isinstance(value, ByteSource):
                _refuse(f"{of.__module__}.{shape.name}")
            return self._constant(value, [_Kind.SOURCE, self.plain(value.name), self.plain(address_of(value))])
        if isinstance(value, Enum):
            return self._constant(value, [shape.name, self.plain(value.value)])
        if isinstance(value, tuple):
            return [shape.name, *self._all(value)]
        if (known := self._objects.get(id(value))) is not None:
            return [_Kind.KNOWN_OBJECT, known[0]]
        self._objects[id(value)] = len(self._objects), value
        try:
            fields = self._all(shape.values(value))
        except AttributeError:
            fields = [self.plain(getattr(value, name)) if hasattr(value, name) else [_Kind.NOTHING] for name in shape.slots]
        if not shape.has_dict:
            return [shape.name, *fields]
        return [shape.name, *fields, *vars(value), *self._all(vars(value).values())]

    def _constant(self, value: object, packed: list[object]) -> list[object]:
        self._constants[id(value)] = value, packed
        return packed


def _sortable(values: Iterable[object]) -> bool:
    kinds = {type(value) for value in values}
    return len(kinds) <= 1 and kinds <= {int, str}


class _Unpacker:
    """Values out of what MessagePack knows."""

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
        kind = plain[0]
        if type(kind) is str:
            return self._classed(SERIALIZABLE[kind], plain)
        if kind <= _Kind.FROZENSET:
            values = self._all(plain[1:])
            return values if kind == _Kind.LIST else _MAKERS[kind](values)
        if kind <= _Kind.ORDERED_DICT:
            return _MAKERS[kind](dict(zip(self._all(plain[1]), self._all(plain[2]), strict=True)))
        if kind == _Kind.ARRAY:
            return _array(*plain[1:])
        return self._rare(kind, plain)

    def _all(self, plain: list[object]) -> list[object]:
        value = self.value
        return [value(item) if type(item) not in _AS_THEY_ARE else item for item in plain]

    def _rare(self, kind: int, plain: list[Any]) -> object:
        if kind == _Kind.KNOWN_OBJECT:
            return self._objects[plain[1]]
        if kind == _Kind.SOURCE:
            return self._source((self.value(plain[1]), self.value(plain[2])))
        if kind == _Kind.WIDE_INTEGER:
            return int.from_bytes(plain[1], "little", signed=True)
        if kind == _Kind.ODD_TEXT:
            return plain[1].decode("utf-8", "surrogatepass")
        return _NOTHING if kind == _Kind.NOTHING else _refuse(f"kind {kind}")

    def _source(self, where: tuple[str, str]) -> ByteSource:
        if self._opener is None:
            _refuse(f"source {where[0]}, and nothing opens it")
        if where not in self._sources:
            self._sources[where] = self._opener(*where)
        return self._sources[where]

    def _classed(self, of: Any, plain: list[object]) -> object:
        if issubclass(of, Enum):
            return of(self.value(plain[1]))
        if issubclass(of, tuple):
            return of._make(self._all(plain[1:]))
        shape = _shape_of(of)
        made: object = object.__new__(of)
        self._objects.append(made)
        behind = 1 + len(shape.slots)
        for put, item in zip(shape.setters, plain[1:behind], strict=True):
            if (value := self.value(item)) is not _NOTHING:
                put(made, value)
        if shape.has_dict:
            names, rest = plain[behind : (behind + len(plain)) // 2], plain[(behind + len(plain)) // 2 :]
            vars(made).update(zip(map(self.value, names), map(self.value, rest), strict=True))
        elif len(plain) > behind:
            _refuse(f"more than a {shape.name} has")
        return made


def _array(kind: str, shape: list[int], data: bytes) -> "NDArray[np.generic]":
    if np.dtype(kind).kind not in _ARRAY_KINDS:
        _refuse(f"an array of {kind}")
    return np.frombuffer(data, kind).reshape(shape).copy()


def _refuse(subject: str) -> NoReturn:
    raise SerializationError(f"{subject} cannot be serialized")


# The classes whose values may go to another process: those of these modules, which hold facts and no behaviour that reading one
# could set off.


_MODULES: Final[tuple[ModuleType, ...]] = (
    *(compaction, key_question, ledger),
    *(context, continuity, epochs, framing, indexes, misplaced, placement, producer_rules, producer_runs, producers, replica),
    *(bounds, transaction_endings, transaction_markers, transactions, transactions_facts, witnesses),
    *(changes, task_values, inputs, options, partitions, whole_scan),
    *(batches, bundles, controller, coordinators, discovery, files, findings, remote_log, results),
)


def _classes_of(module: ModuleType) -> dict[str, type]:
    types = {var.__qualname__: var for var in vars(module).values() if isinstance(var, type) and var.__module__ == module.__name__}
    return {name: of for name, of in types.items() if not getattr(of, "_is_protocol", False)}


SERIALIZABLE: Final[dict[str, type]] = {"Entry": Entry, "EntryKind": EntryKind}
"""Class by its name, which no two of them share."""


def make_serializable(*modules: ModuleType) -> None:
    """Let the values of all classes of these modules go to another process."""
    for module in modules:
        classes = _classes_of(module)
        assert not classes.keys() & SERIALIZABLE.keys(), classes.keys() & SERIALIZABLE.keys()
        SERIALIZABLE.update(classes)


make_serializable(*_MODULES)
