"""Small files with pseudonyms in the place of names: they are read as before, and say nothing else."""

import re
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_forensics.model.pseudonyms import NameKind
from kafka_forensics.parsers.checkpoints import (
    parse_clean_shutdown,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
)
from kafka_forensics.parsers.log_dir import FileKind
from kafka_forensics.questions.collect import PseudonymMap
from kafka_forensics.writers.redacted_files import RewrittenFile, redacted_file

TOPIC_ID: Final = "EbZFS3wKSOSOZCc3KwMkgg"
NAMES: Final = PseudonymMap("00" * 32, {})
PARSERS: Final[dict[FileKind, Any]] = {
    FileKind.REPLICATION_OFFSET_CHECKPOINT: parse_offset_checkpoint,
    FileKind.LEADER_EPOCH_CHECKPOINT: parse_leader_epochs,
    FileKind.META_PROPERTIES: parse_meta_properties,
    FileKind.PARTITION_METADATA: parse_partition_metadata,
    FileKind.CLEAN_SHUTDOWN: parse_clean_shutdown,
}
SOUND: Final = {
    FileKind.REPLICATION_OFFSET_CHECKPOINT: b"0\n2\norders 0 7\n__consumer_offsets 3 4\n",
    FileKind.LEADER_EPOCH_CHECKPOINT: b"0\n2\n0 0\n3 300\n",
    FileKind.META_PROPERTIES: f"#\nversion=1\nnode.id=3\ncluster.id=hush\ndirectory.id={TOPIC_ID}\n".encode(),
    FileKind.PARTITION_METADATA: f"version: 0\ntopic_id: {TOPIC_ID}".encode(),
    FileKind.CLEAN_SHUTDOWN: b'{"version":0,"brokerEpoch":35}',
    FileKind.QUORUM_STATE: b'{"clusterId":"hush","leaderId":1,"currentVoters":[{"voterId":1}],"data_version":0}',
}
SAID: Final = re.compile(
    rb"[0-9+\-\s:=#.?{}\[\],\"\0\\]|version|topic_id|other|u\b|node\.id|broker\.id|cluster\.id|directory\.id|topic-[0-9a-f]{12}|cluster-[0-9a-f]{12}"
    rb"|__[a-z_]+|[A-Za-z0-9_-]{22}|brokerEpoch|clusterId|leaderId|leaderEpoch|votedId|votedDirectoryId|appliedOffset|currentVoters"
    rb"|voterId|data_version|null|true|false"
)
"""All that such a file may say: numbers, ids, pseudonyms, and Kafka's own words."""


def rewritten(kind: FileKind, data: bytes) -> bytes:
    file = redacted_file(kind, RewrittenFile(data), NAMES)
    return file.read_at(0, file.size_in_bytes)


def read(kind: FileKind, data: bytes) -> Any:
    """What a reader takes of a file, with why it takes no more; where in the file that is may be another place."""
    parsed = PARSERS[kind](RewrittenFile(data))
    damage = [(row.kind, row.detail) for row in parsed.damage]
    told = {name: getattr(parsed, name) for name in type(parsed).__slots__ if name != "damage"}
    return told, damage


ODD: Final = [b"hush", b"0", b"7", b"hush 1 2", b"a: b", b"topic_id: x", b"version: y", b"version=x", b"=", b"\\u12", b"{", b"\0"]


@st.composite
def any_file(draw: st.DrawFn, kind: FileKind) -> bytes:
    """Lines of a sound file and of others, in any order, and any bytes."""
    lines = SOUND[kind].splitlines(keepends=True)
    words = st.sampled_from(ODD)
    chosen = draw(st.lists(st.sampled_from(lines) | words | st.binary(max_size=12), max_size=9))
    ends = st.sampled_from([b"", b"\n", b"\r\n", b"\r", b" "])
    return b"".join(line + draw(ends) for line in chosen)


@pytest.mark.parametrize("kind", SOUND)
@given(data=st.data())
def test_nothing_but_numbers_ids_and_pseudonyms_is_said(kind: FileKind, data: st.DataObject) -> None:
    told = rewritten(kind, data.draw(any_file(kind)))
    assert SAID.sub(b"", told) == b""
    assert b"hush" not in told


@pytest.mark.parametrize("kind", PARSERS)
@given(data=st.data())
def test_any_file_is_read_as_before(kind: FileKind, data: st.DataObject) -> None:
    before = data.draw(any_file(kind))
    expected, damage = read(kind, before)
    if "offsets" in expected:
        expected["offsets"] = {
            (NAMES.pseudonym(NameKind.TOPIC, topic), partition): at for (topic, partition), at in expected["offsets"].items()
        }
    if expected.get("cluster_id") is not None:
        expected["cluster_id"] = NAMES.pseudonym(NameKind.CLUSTER, expected["cluster_id"])
    told, damage_told = read(kind, rewritten(kind, before))
    assert told == expected
    assert {row["reason"] for _, row in damage_told} == {row["reason"] for _, row in damage}
    if kind is not FileKind.META_PROPERTIES:  # whose lines come in another order
        assert damage_told == damage


@pytest.mark.parametrize("kind", [FileKind.CLEANER_OFFSET_CHECKPOINT, FileKind.LEADER_EPOCH_CHECKPOINT])
@pytest.mark.parametrize("data", [b"\n" * (2 << 20), b"hush " * (1 << 15) + b"\n0 hush\n"], ids=["lines", "a long line"])
def test_what_nobody_reads_costs_no_more_and_stays_unread(kind: FileKind, data: bytes) -> None:
    told = rewritten(kind, data)
    assert len(told) <= len(data)
    assert b"hush" not in told
    parse = PARSERS.get(kind, parse_offset_checkpoint)
    reasons = [[row.detail["reason"] for row in parse(RewrittenFile(each)).damage] for each in (data, told)]
    assert reasons[0] == reasons[1]
    assert {"too_many_lines", "line_too_long"} & {*reasons[0]} or "more" in reasons[0]


@pytest.mark.parametrize("kind", SOUND)
def test_what_holds_no_name_stays_as_it_is(kind: FileKind) -> None:
    for data in (b"", bytes(100)):
        assert rewritten(kind, data) == data
    assert rewritten(FileKind.INDEX, SOUND[kind]) == SOUND[kind]
    if b"hush" not in SOUND[kind] and b"orders" not in SOUND[kind]:
        assert rewritten(kind, SOUND[kind]) == SOUND[kind]
