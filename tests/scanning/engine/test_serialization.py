"""Values survive serialization; crafted bytes give only listed classes."""

from collections import Counter, OrderedDict
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.evidence.inputs import gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.coordinators import GroupKey
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity
from kafka_forensics.scanning.engine import serialization
from kafka_forensics.scanning.engine.serialization import SERIALIZABLE, SerializationError, pack, unpack
from kafka_forensics.scanning.engine.task_values import slices
from kafka_forensics.storage.open import open_source
from tests.support.places import SAMPLES

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=40)
hashable = st.integers() | st.text(max_size=8) | st.tuples(st.integers(), st.text(max_size=4))
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(hashable, inner, max_size=5)
        | st.sets(hashable, max_size=5)
        | st.frozensets(hashable, max_size=5)
    ),
    max_leaves=30,
)


def with_types(value: Any) -> Any:
    """The value with its types, at every depth."""
    if isinstance(value, dict):
        return type(value), [(with_types(key), with_types(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [with_types(item) for item in value]
    return type(value), value


@given(values)
def test_common_values_survive(value: Any) -> None:
    assert with_types(unpack(pack(value))) == with_types(value)


@pytest.mark.parametrize("value", [Counter(a=2), OrderedDict([("b", 1), ("a", 2)]), "\udcff", -(2**63), 2**200, -(2**200), 1.5])
def test_rare_values_survive(value: Any) -> None:
    assert with_types(unpack(pack(value))) == with_types(value)


@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "bool", "float64", ">i8"])
def test_arrays_keep_their_shape_and_are_writable(kind: str) -> None:
    array = np.arange(12).reshape(3, 4)[:, ::2].astype(kind)
    back = unpack(pack(array))
    assert back.dtype == array.dtype
    assert np.array_equal(back, array)
    back[0, 0] = 1


def test_findings_survive() -> None:
    finding = Finding("UNCLEAN_LOSS", Severity.CRITICAL, Confidence.PROVEN, Place("t", 0, "b1"), {"held_by": ["b1", 2], "n": None})
    assert unpack(pack([finding, finding])) == [finding, finding]
    assert type(unpack(pack(finding)).severity) is Severity


def test_named_tuples_keep_their_class() -> None:
    key = GroupKey(*range(len(GroupKey._fields)))
    assert with_types(unpack(pack(key))) == with_types(key)


def test_shared_objects_stay_shared() -> None:
    place = Place("t", 0)
    first, second = unpack(pack([place, place]))
    assert first is second


def test_sources_travel_by_name_and_are_opened_once() -> None:
    inputs = gather([str(SAMPLES / "silent-divergence")], ScanOptions())
    opened = []

    def opener(name: str, place: str) -> Any:
        opened.append((name, place))
        return open_source(place)

    for partition_slice in slices(inputs):
        unpacked = unpack(pack(partition_slice), opener)
        assert [plan.context for plan in unpacked.replicas] == [plan.context for plan in partition_slice.replicas]
    assert opened == [(inputs.sources[0].name, inputs.sources[0].name)] * len(list(slices(inputs)))


def test_a_class_that_is_not_listed_is_refused() -> None:
    with pytest.raises(SerializationError, match="cannot be serialized"):
        pack(ValueError("x"))
    with pytest.raises(SerializationError, match="cannot be serialized"):
        pack(np.array([object()]))


def test_no_two_classes_share_a_name() -> None:
    assert {serializable.__qualname__ for serializable in SERIALIZABLE.values()} == set(SERIALIZABLE)


@pytest.mark.parametrize("data", [b"", b"noise", pack([1, 2])[:-40]])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        unpack(data)


def crafted(plain: Any) -> bytes:
    """Bytes as `pack` makes them, of any MessagePack value."""
    encoded = msgspec.msgpack.encode(plain)
    head, _, _ = pack(1).partition(b"\0")
    return head + b"\0" + len(encoded).to_bytes(8, "little") + pa.compress(encoded, "zstd", asbytes=True)


unlisted_names = ["ValueError", "UnopenedSource", "builtins.eval", "Scan.__init__", "", "os"]
crafted_values = st.recursive(
    leaves.filter(lambda leaf: not isinstance(leaf, int) or abs(leaf) < 2**63)
    | st.sampled_from([*sorted(SERIALIZABLE), *unlisted_names]),
    lambda inner: (
        st.tuples(st.integers(-2, len(serialization._ClassTag) + 1), inner, inner, inner).map(list)
        | st.tuples(st.sampled_from([*sorted(SERIALIZABLE), *unlisted_names]), inner, inner).map(list)
        | st.lists(inner, max_size=6)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=20,
)


@given(crafted_values)
def test_crafted_bytes_give_listed_classes_or_an_error(plain: Any) -> None:
    try:
        made = unpack(crafted(plain))
    except SerializationError:
        return
    assert type(made).__module__ in {"builtins", "collections", "numpy"} or type(made) in SERIALIZABLE.values()


@pytest.mark.parametrize("name", unlisted_names)
def test_no_other_class_can_be_named(name: str) -> None:
    with pytest.raises(SerializationError):
        unpack(crafted([name]))


@pytest.mark.parametrize("size_in_bytes", [-1, 0, 1, 2**31 + 1, 2**62])
def test_a_wrong_size_costs_no_memory(size_in_bytes: int) -> None:
    head, _, body = pack([1, 2]).partition(b"\0")
    with pytest.raises(SerializationError):
        unpack(head + b"\0" + size_in_bytes.to_bytes(8, "little", signed=True) + body[8:])


def test_unset_fields_stay_unset() -> None:
    options = object.__new__(ScanOptions)
    object.__setattr__(options, "live", True)
    back = unpack(pack(options))
    assert back.live is True
    assert not hasattr(back, "deep")


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(SerializationError, match="nested too deep"):
        pack(value)


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(1)
    monkeypatch.setattr(serialization, "__version__", "9.9")
    with pytest.raises(SerializationError, match=r"packed by kafka-forensics .*, and this is 9\.9"):
        unpack(packed)
