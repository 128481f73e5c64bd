import pytest
from hypothesis import given, strategies as st

from kafka_forensics.model.batches import Damage
from kafka_forensics.model.files import CleanShutdown, MetaProperties, PartitionMetadata
from kafka_forensics.parsers.checkpoints import parse_clean_shutdown, parse_meta_properties, parse_partition_metadata
from kafka_forensics.parsers.quorum_state import QuorumState, parse_quorum_state
from kafka_forensics.writers.files import write_clean_shutdown, write_meta_properties, write_partition_metadata, write_quorum_state
from tests.support.memory import MemoryFile
from tests.support.places import SAMPLES

CLUSTER = "BKfjTOGySGi0sBpnDkcBQQ"
DIRECTORY = "p_pCeaazXND7Utpa-h8TQA"


def meta(data: bytes) -> MetaProperties:
    return parse_meta_properties(MemoryFile(data))


def reasons(damage: list[Damage]) -> list[object]:
    assert {row.kind for row in damage} <= {"CHECKPOINT_MALFORMED"}
    return [row.detail["reason"] for row in damage]


def test_meta_properties_of_versions_1_and_0() -> None:
    """Version 0 names the broker id `broker.id`; no property is required."""
    data = write_meta_properties(node_id=3, cluster_id=CLUSTER, directory_id=DIRECTORY)
    assert meta(data) == MetaProperties(1, 3, CLUSTER, DIRECTORY)
    assert meta(write_meta_properties(version=0, node_id=3, cluster_id=CLUSTER)) == MetaProperties(0, 3, CLUSTER, None)
    assert meta(b"#\n#Sat Nov 21 02:07:56 UTC 2026\nversion=0\n") == MetaProperties(0, None, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "version=1\nnode.id=3\ncluster.id=c 1",
        "version:1\r\nnode.id : 3\r\ncluster.id   c 1\r\n",
        "! remark = 9\n  version\t1\n\\u006eode.id=\\u0033\ncluster.id=c\\ 1",
        "version=1\nnode.id=9\nnode.id=3\ncluster\\\n  .id=\\\n    c \\\n    1\n",
        "# continued \\\nversion=1\nnode.id=3\nother=a\\\\\ncluster.id=c\\u00201\\\n",
    ],
)
def test_escapes_and_separators_are_read_as_java_reads_them(text: str) -> None:
    assert meta(text.encode()) == MetaProperties(1, 3, "c 1", None)


def test_surrogate_escapes_become_characters() -> None:
    assert meta(b"version=0\ncluster.id=\\ud83d\\ude00").cluster_id == "\U0001f600"
    assert meta(b"version=0\ncluster.id=\\ud83d!").cluster_id == "\ufffd!"
    assert meta(b"version=0\ncluster.id=\xe9").cluster_id == "\xe9"


@pytest.mark.parametrize(
    ("text", "expected", "expected_properties"),
    [
        ("node.id=3\n", ["missing"], MetaProperties(None, 3, None, None)),
        ("broker.id=3\n", ["missing"], MetaProperties(None, 3, None, None)),
        ("", ["missing"], MetaProperties(None, None, None, None)),
        ("version=2\nnode.id=3\n", ["version"], MetaProperties(None, 3, None, None)),
        ("version=1\n", ["missing", "missing"], MetaProperties(1, None, None, None)),
        ("version=0\nbroker.id=x", ["node_id"], MetaProperties(0, None, None, None)),
        ("version=0\nbroker.id=-1", ["node_id"], MetaProperties(0, None, None, None)),
        ("version=0\nbroker.id=2147483648", ["node_id"], MetaProperties(0, None, None, None)),
        ("version=0\nbroker.id=" + "1" * 50_000, ["node_id"], MetaProperties(0, None, None, None)),
        ("version=0\ncluster.id=", ["cluster_id_empty"], MetaProperties(0, None, None, None)),
        ("version=0\ncluster.id=" + "c" * 256, ["cluster_id"], MetaProperties(0, None, None, None)),
        ("version=0\ndirectory.id=short", ["directory_id"], MetaProperties(0, None, None, None)),
        ("version=0\nbroker.id=3\nx=\\u12g4", ["escape"], MetaProperties(0, 3, None, None)),
        ("\0\0\0\0", ["zeros", "missing"], MetaProperties(None, None, None, None)),
        ("version=0\n" + "x" * 70_000 + "\nbroker.id=3", ["line_too_long"], MetaProperties(0, 3, None, None)),
    ],
)
def test_unreadable_meta_properties_are_damage(text: str, expected: list[str], expected_properties: MetaProperties) -> None:
    parsed = meta(text.encode("latin-1"))
    assert reasons(parsed.damage) == expected
    parsed.damage = []
    assert parsed == expected_properties


def test_damage_has_the_line_and_its_bytes() -> None:
    (row,) = meta(b"version=0\nbroker.id=\\\n  x\n").damage
    assert (row.position, row.size_in_bytes, row.detail) == (10, 12, {"reason": "node_id", "line": 2})


def test_partition_metadata() -> None:
    data = write_partition_metadata("dMwERMehRq6SQBEYsfIf9A")
    assert parse_partition_metadata(MemoryFile(data)) == PartitionMetadata(0, "dMwERMehRq6SQBEYsfIf9A")
    assert parse_partition_metadata(MemoryFile(data + b"\n")) == PartitionMetadata(0, "dMwERMehRq6SQBEYsfIf9A")


@pytest.mark.parametrize(
    ("data", "version", "expected"),
    [
        (b"", None, ["missing", "missing"]),
        (b"version: 0\n", 0, ["missing"]),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 0, ["zero_id"]),
        (b"version: 0\ntopic_id: dMwERMehRq6SQBEYsfIf9", 0, ["topic_id"]),
        (b"version: 0\ntopic_id: dMwERMehRq6SQBEYsfIf9\xff", 0, ["topic_id"]),
        (b"version: 0\ntopic_id:dMwERMehRq6SQBEYsfIf9A", 0, ["fields", "missing"]),
        (b"version: -1\ntopic_id: a b", None, ["fields", "version", "missing"]),
        (bytes(40), None, ["zeros", "missing", "missing"]),
    ],
)
def test_unreadable_partition_metadata_is_damage(data: bytes, version: int | None, expected: list[str]) -> None:
    parsed = parse_partition_metadata(MemoryFile(data))
    assert (parsed.version, parsed.topic_id, reasons(parsed.damage)) == (version, None, expected)


def test_clean_shutdown() -> None:
    assert parse_clean_shutdown(MemoryFile(b"")) == CleanShutdown(None)
    assert parse_clean_shutdown(MemoryFile(write_clean_shutdown(None))) == CleanShutdown(None)
    assert write_clean_shutdown(436) == b'{"version":0,"brokerEpoch":436}'
    for epoch in (-1, 0, 436, 2**63 - 1):
        assert parse_clean_shutdown(MemoryFile(write_clean_shutdown(epoch))) == CleanShutdown(epoch)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b" ", ["json"]),
        (b"[]", ["json"]),
        (b"\xff\xfe", ["json"]),
        (b"[" * 4000, ["json"]),
        (b'{"version":0}', ["broker_epoch"]),
        (b'{"version":0,"brokerEpoch":true}', ["broker_epoch"]),
        (b'{"version":0,"brokerEpoch":1e3}', ["broker_epoch"]),
        (b'{"version":0,"brokerEpoch":' + b"9" * 4000 + b"}", ["broker_epoch"]),
        (b"{}", ["version", "broker_epoch"]),
        (b" " * 5000, ["oversized"]),
        (bytes(31), ["zeros"]),
    ],
)
def test_an_unreadable_clean_shutdown_file_is_damage(data: bytes, expected: list[str]) -> None:
    parsed = parse_clean_shutdown(MemoryFile(data))
    assert (parsed.broker_epoch, reasons(parsed.damage)) == (None, expected)


def test_the_epoch_is_read_from_an_unknown_version() -> None:
    parsed = parse_clean_shutdown(MemoryFile(b'{"version":1,"brokerEpoch":7}'))
    assert (parsed.broker_epoch, reasons(parsed.damage)) == (7, ["version"])


PROPERTY_TEXT = st.text(alphabet="ab=:#! \\\t\f\n\ru01versiond.", max_size=60)


@given(st.one_of(st.binary(max_size=200), PROPERTY_TEXT.map(str.encode)))
def test_damage_of_any_bytes_is_inside_the_file(data: bytes) -> None:
    file = MemoryFile(data)
    for parsed in (parse_meta_properties(file), parse_partition_metadata(file), parse_clean_shutdown(file)):
        assert all(0 <= row.position <= row.position + row.size_in_bytes <= len(data) for row in parsed.damage)


@given(st.text(min_size=1, max_size=40))
def test_any_cluster_id_is_read_back(cluster_id: str) -> None:
    parsed = meta(write_meta_properties(node_id=1, cluster_id=cluster_id))
    assert (parsed.cluster_id, parsed.damage) == (cluster_id, [])


# `quorum-state`.


DYNAMIC = b'{"leaderId":-1,"leaderEpoch":7,"votedId":2,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}'


def test_the_quorum_state_of_a_broker_without_a_vote() -> None:
    data = (SAMPLES / "healthy" / "broker-1" / "__cluster_metadata-0" / "quorum-state").read_bytes()
    assert parse_quorum_state(MemoryFile(data)) == QuorumState(0, 1, (100,))
    assert write_quorum_state(1, 0, [100]).replace(b'"leaderId":-1', b'"leaderId":100') == data


def test_written_quorum_states_are_read_back() -> None:
    assert parse_quorum_state(MemoryFile(DYNAMIC)) == parse_quorum_state(MemoryFile(DYNAMIC + b"\nmore")) == QuorumState(1, 7)
    for state in (QuorumState(0, 9, (1, 2), "c", 3), QuorumState(1, 2**31 - 1)):
        data = write_quorum_state(
            state.leader_epoch, state.data_version, state.voters, cluster_id=state.cluster_id, applied_offset=state.applied_offset
        )
        assert parse_quorum_state(MemoryFile(data)) == state


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 130,
        b"\xff{}",
        b"[]",
        b"{}",
        b"7",
        DYNAMIC[:-9],
        DYNAMIC.replace(b'"data_version":1', b'"data_version":2'),
        DYNAMIC.replace(b'"data_version":1', b'"data_version":true'),
        DYNAMIC.replace(b'"leaderEpoch":7', b'"leaderEpoch":2147483648'),
        DYNAMIC.replace(b'"leaderEpoch":7', b'"leaderEpoch":-1'),
        DYNAMIC.replace(b'"leaderEpoch":7', b'"leaderEpoch":7.5'),
        b'{"leaderEpoch":1,"currentVoters":[7],"data_version":0}',
        b'{"leaderEpoch":1,"currentVoters":[{"voterId":-2}],"data_version":0}',
        b'{"leaderEpoch":1,"currentVoters":{},"data_version":0}',
        b'{"leaderEpoch":1,"clusterId":8,"data_version":0}',
        b'{"leaderEpoch":1,"appliedOffset":"0","data_version":0}',
        b"[" * 100_000,
    ],
)
def test_an_invalid_quorum_state_is_none(data: bytes) -> None:
    assert parse_quorum_state(MemoryFile(data)) is None
