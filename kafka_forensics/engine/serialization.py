"""The house's values as Arrow bytes, so that they can go to another process and come back: states, plans, answers.

A value becomes one Arrow record batch with a row for each of its parts, in the order in which they are met: what kind of thing it
is, a number, and bytes. Only the classes in `SERIALIZABLE` are written, by their fields: nothing that is read can name another
class or call anything. Arrays go as their bytes; sources of evidence as their names, to be opened anew. Equal strings are written
once, and what was one object stays one.
"""

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from kafka_forensics.engine.serializable import SERIALIZABLE
from kafka_forensics.errors import ForensicsError
from kafka_forensics.storage.open import address_of
from kafka_forensics.storage.source import ByteSource
from kafka_forensics.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

Opener = Callable[[str, str], ByteSource]
"""Gives the source called by a name (first) that is found at a place (second)."""
_VERSION: Final = b"kafka_forensics"
_LEAST, _MOST = -(2**63), 2**63 - 1
_ARRAY_KINDS: Final = "biuf"
_NO_VALUE: Final = (IndexError, KeyError, ValueError, TypeError)
"""What rows that no value became lead to."""


class SerializationError(ForensicsError):
    """A value that cannot be serialized, or bytes that no value became."""


class _Kind(IntEnum):
    NONE = auto()
    TRUE = auto()
    FALSE = auto()
    INTEGER = auto()
    WIDE_INTEGER = auto()
    FLOAT = auto()
    TEXT = auto()
    KNOWN_TEXT = auto()
    BYTES = auto()
    LIST = auto()
    TUPLE = auto()
    SET = auto()
    FROZENSET = auto()
    DICT = auto()
    COUNTER = auto()
    ORDERED_DICT = auto()
    ARRAY = auto()
    ENUM = auto()
    NAMED_TUPLE = auto()
    NEW_SHAPE = auto()
    """An object of a class, or with fields, not met before: class and names of fields stand before them."""
    OBJECT = auto()
    KNOWN_OBJECT = auto()
    SOURCE = auto()


_SEQUENCES: Final[dict[type, _Kind]] = {
    list: _Kind.LIST,
    tuple: _Kind.TUPLE,
    set: _Kind.SET,
    frozenset: _Kind.FROZENSET,
}
_MAPPINGS: Final[dict[type, _Kind]] = {dict: _Kind.DICT, Counter: _Kind.COUNTER, OrderedDict: _Kind.ORDERED_DICT}
_MAKERS: Final[dict[_Kind, Callable[[Any], Any]]] = {
    **{kind: maker for maker, kind in _SEQUENCES.items()},
    **{kind: maker for maker, kind in _MAPPINGS.items()},
}


def schema() -> "pa.Schema":
    """Of the record batch that a value becomes."""
    import pyarrow as pa

    fields: list[pa.Field[Any]] = [pa.field("kind", pa.uint8()), pa.field("number", pa.int64()), pa.field("data", pa.binary())]
    return pa.schema(fields, {_VERSION: __version__.encode()})


def pack(value: object) -> bytes:
    """`value` as an Arrow IPC stream of one batch, compressed. Raises SerializationError for what cannot be serialized."""
    import pyarrow as pa

    writer = _Writer()
    writer.put(value)
    columns: list[pa.Array[Any]] = [
        pa.array(np.array(writer.kinds, np.uint8)),
        pa.array(np.array(writer.numbers, np.int64)),
        pa.array(writer.data, pa.binary()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def unpack(packed: bytes, opener: Opener | None = None) -> Any:
    """The value that `pack` made these bytes of; sources come from `opener`. Raises SerializationError for other bytes.

    Raises what the opener raises.
    """
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(packed) as stream:
            told = (stream.schema.metadata or {}).get(_VERSION, b"").decode("ascii", "replace")
            if told != __version__:
                raise SerializationError(f"packed by kafka-forensics {told or 'of no version'}, and this is {__version__}")
            batch = stream.read_next_batch()
        kinds, numbers = (batch.column(name).to_numpy().tolist() for name in ("kind", "number"))
        return _Reader(kinds, numbers, batch.column("data"), opener).take()
    except (pa.ArrowException, OSError, StopIteration, RecursionError, *_NO_VALUE) as error:
        raise SerializationError(f"these bytes are no packed value: {error}") from error


class _Writer:
    """Rows of a value, as they are met."""

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.numbers: list[int] = []
        self.data: list[bytes] = []
        self._texts: dict[str, int] = {}
        self._objects: dict[int, tuple[int, object]] = {}
        """id → (number, the object, so that the id stays its own)."""
        self._shapes: dict[tuple[type, tuple[str, ...]], int] = {}

    def _row(self, kind: _Kind, number: int = 0, data: bytes = b"") -> None:
        self.kinds.append(kind)
        self.numbers.append(number)
        self.data.append(data)

    def put(self, value: Any) -> None:
        """Add a value and all its parts."""
        of = type(value)
        if value is None:
            self._row(_Kind.NONE)
        elif of is bool:
            self._row(_Kind.TRUE if value else _Kind.FALSE)
        elif of is int:
            self._integer(value)
        elif of is str:
            self._text(value)
        elif of in _SEQUENCES:
            self._row(_SEQUENCES[of], len(value))
            for one in sorted(value) if of in (set, frozenset) and _sortable(value) else value:
                self.put(one)
        elif of in _MAPPINGS:
            self._row(_MAPPINGS[of], len(value))
            for key, one in value.items():
                self.put(key)
                self.put(one)
        elif of is float:
            self._row(_Kind.FLOAT, struct.unpack("<q", struct.pack("<d", value))[0])
        elif of is bytes:
            self._row(_Kind.BYTES, 0, value)
        elif of is np.ndarray:
            self._array(value)
        elif isinstance(value, np.generic):
            self.put(value.item())
        else:
            self._house(value, of)

    def _integer(self, value: int) -> None:
        if _LEAST <= value <= _MOST:
            self._row(_Kind.INTEGER, value)
        else:
            self._row(_Kind.WIDE_INTEGER, 0, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))

    def _text(self, value: str) -> None:
        known = self._texts.get(value)
        if known is None:
            self._texts[value] = len(self._texts)
            self._row(_Kind.TEXT, 0, value.encode("utf-8", "surrogateescape"))
        else:
            self._row(_Kind.KNOWN_TEXT, known)

    def _array(self, value: "np.ndarray[Any, Any]") -> None:
        if value.dtype.kind not in _ARRAY_KINDS:
            raise SerializationError(f"an array of {value.dtype} cannot be serialized")
        self._row(_Kind.ARRAY, value.ndim, np.ascontiguousarray(value).tobytes())
        self._text(value.dtype.str)
        for length in value.shape:
            self._integer(length)

    def _house(self, value: Any, of: type) -> None:
        """A value of a class of ours."""
        if isinstance(value, ByteSource):
            self._row(_Kind.SOURCE)
            self._text(value.name)
            self._text(address_of(value))
            return
        name = of.__qualname__
        if SERIALIZABLE.get(name) is not of:
            raise SerializationError(f"{of.__module__}.{name} cannot be serialized")
        if isinstance(value, Enum):
            self._row(_Kind.ENUM)
            self._text(name)
            self.put(value.value)
        elif isinstance(value, tuple):
            self._row(_Kind.NAMED_TUPLE, len(value))
            self._text(name)
            for one in value:
                self.put(one)
        else:
            self._object(value, of)

    def _object(self, value: Any, of: type) -> None:
        if id(value) in self._objects:
            self._row(_Kind.KNOWN_OBJECT, self._objects[id(value)][0])
            return
        self._objects[id(value)] = len(self._objects), value
        names = tuple(name for name in _field_names(value, of) if hasattr(value, name))
        shape = of, names
        if shape in self._shapes:
            self._row(_Kind.OBJECT, self._shapes[shape])
        else:
            self._shapes[shape] = len(self._shapes)
            self._row(_Kind.NEW_SHAPE, len(names))
            self._text(of.__qualname__)
            for name in names:
                self._text(name)
        for name in names:
            self.put(getattr(value, name))


def _sortable(values: Any) -> bool:
    return len({type(value) for value in values} - {int, str}) == 0 and len({type(value) for value in values}) <= 1


def _field_names(value: Any, of: type) -> list[str]:
    """Slots of all its classes, and what its dictionary has."""
    names: dict[str, None] = {}
    for one in reversed(of.__mro__):
        slots = one.__dict__.get("__slots__", ())
        names |= dict.fromkeys([slots] if isinstance(slots, str) else slots)
    names |= dict.fromkeys(getattr(value, "__dict__", ()))
    return [name for name in names if name not in ("__dict__", "__weakref__")]


class _Reader:
    """A value out of its rows."""

    def __init__(self, kinds: list[int], numbers: list[int], data: "pa.Array[Any]", opener: Opener | None) -> None:
        self._kinds, self._numbers, self._data, self._opener = kinds, numbers, data, opener
        self._at = 0
        self._texts: list[str] = []
        self._objects: list[object] = []
        self._shapes: list[tuple[type, list[str]]] = []
        self._sources: dict[tuple[str, str], ByteSource] = {}

    def take(self) -> Any:
        """The next value."""
        at = self._at
        self._at += 1
        kind, number = self._kinds[at], self._numbers[at]
        if kind == _Kind.INTEGER:
            return number
        if kind == _Kind.NONE:
            return None
        if kind in (_Kind.TRUE, _Kind.FALSE):
            return kind == _Kind.TRUE
        if kind == _Kind.KNOWN_TEXT:
            return self._texts[number]
        if kind == _Kind.OBJECT:
            return self._fill(*self._shapes[number])
        if kind in _MAKERS:
            return self._contained(_Kind(kind), number)
        return self._rare(_Kind(kind), number, at)

    def _contained(self, kind: _Kind, number: int) -> Any:
        if kind in (_Kind.DICT, _Kind.COUNTER, _Kind.ORDERED_DICT):
            made = _MAKERS[kind]({})
            for _ in range(number):
                key = self.take()
                made[key] = self.take()
            return made
        items = [self.take() for _ in range(number)]
        return items if kind == _Kind.LIST else _MAKERS[kind](items)

    def _rare(self, kind: _Kind, number: int, at: int) -> Any:
        data = self._data[at].as_py()
        if kind == _Kind.TEXT:
            self._texts.append(data.decode("utf-8", "surrogateescape"))
            return self._texts[-1]
        if kind == _Kind.BYTES:
            return data
        if kind == _Kind.FLOAT:
            return struct.unpack("<d", struct.pack("<q", number))[0]
        if kind == _Kind.WIDE_INTEGER:
            return int.from_bytes(data, "little", signed=True)
        if kind == _Kind.ARRAY:
            return self._array(data, number)
        if kind == _Kind.KNOWN_OBJECT:
            return self._objects[number]
        if kind == _Kind.SOURCE:
            return self._source()
        return self._classed(kind, number)

    def _array(self, data: bytes, dimensions: int) -> "np.ndarray[Any, Any]":
        kind = np.dtype(self.take())
        if kind.kind not in _ARRAY_KINDS:
            _refuse(f"an array of {kind}")
        shape = [self.take() for _ in range(dimensions)]
        return np.frombuffer(data, kind).reshape(shape).copy()

    def _source(self) -> ByteSource:
        where = self.take(), self.take()
        if self._opener is None:
            _refuse(f"source {where[0]}, and nothing opens it")
        if where not in self._sources:
            self._sources[where] = self._opener(*where)
        return self._sources[where]

    def _classed(self, kind: _Kind, number: int) -> Any:
        of = SERIALIZABLE[self.take()]
        if kind == _Kind.ENUM:
            return of(self.take())
        if kind == _Kind.NAMED_TUPLE:
            make: Any = of
            return make._make([self.take() for _ in range(number)])
        self._shapes.append((of, [self.take() for _ in range(number)]))
        return self._fill(*self._shapes[-1])

    def _fill(self, of: type, names: list[str]) -> object:
        made: object = object.__new__(of)
        self._objects.append(made)
        for name in names:
            object.__setattr__(made, name, self.take())
        return made


def _refuse(what: str) -> NoReturn:
    raise SerializationError(f"{what} cannot be serialized")
