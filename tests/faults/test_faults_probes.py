"""The probes: what kafka-dump-log 4.3.0 misses, dies of or changes, and what becomes of it here."""

import gzip
import hashlib
import struct
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.parsers.spec.record import encode_zigzag
from kafka_forensics.writers.batches import RecordToWrite, fix_crc, write_batch, write_raw_batch
from tests.support.faults import BASE_TIMESTAMP, HEALTHY, Brokers, Log, healthy, histories
from tests.support.faults_verdict import Said, offsets, only, said, scan, span, verdict

pytestmark = pytest.mark.faults

HOSTILE = "\x1b]0;pwn\x07\x1b[31m\x9b2J\x85\u202e"
"""Sets a terminal's title and colours, clears it, turns text round."""
FORMATS = ("table", "tsv", "json", "jsonl", "markdown")


def one_replica(root: Path, log: Log) -> Brokers:
    return histories(root, {1: log}, {1: log.next_offset})


def probe(root: Path, batches: int, changed: int, byte: int, data: bytes, *, right_crc: bool = False) -> Brokers:
    """A log of some small batches, one of them changed."""
    log = Log()
    written = [log.plain(1) for _ in range(batches)]
    brokers = one_replica(root, log)
    batch = written[changed]
    new = batch.data[:byte] + data + batch.data[byte + len(data) :]
    brokers.overwrite(1, batch, fix_crc(new) if right_crc else new)
    return brokers


@pytest.mark.parametrize(
    ("batches", "changed", "byte", "data", "right_crc", "expected"),
    [
        pytest.param(3, 1, 16, b"\3", False, [("BATCH_MAGIC_UNKNOWN", "error", 1)], id="P1"),
        pytest.param(3, 1, 12, struct.pack(">i", 77), False, [("EPOCH_FIELD_MISMATCH", "error", 1)], id="P2"),
        pytest.param(3, 1, 0, struct.pack(">q", 2**40), False, [("OFFSET_DISCONTINUITY", "critical", 1)], id="P3"),
        pytest.param(5, 1, 8, b"\x7f\xff\xff\xff", False, [("FRAMING_LOST", "error", 1), ("HIDDEN_BYTES", "error", 1)], id="P4"),
        pytest.param(3, 1, 57, struct.pack(">i", 2**31 - 1), True, [("BATCH_COUNT_LIE", "error", 1)], id="P5"),
    ],
)
def test_probe(tmp_path: Path, batches: int, changed: int, byte: int, data: bytes, right_crc: bool, expected: Said) -> None:
    result = verdict(probe(tmp_path, batches, changed, byte, data, right_crc=right_crc))
    assert said(result) == expected
    assert offsets(result.findings[0]) == (1, 2)
    if expected[-1][0] == "HIDDEN_BYTES":
        hidden = only(result, "HIDDEN_BYTES")
        assert (hidden.evidence["batches_recovered"], offsets(hidden)) == (3, (2, 5))


def test_probe_p6_record_that_declares_two_gigabytes(tmp_path: Path) -> None:
    payload = gzip.compress(encode_zigzag(2**31 - 1) + b"\0" * 100, mtime=0)
    log = Log()
    log.plain(1)
    header = {
        "base_offset": 1,
        "partition_leader_epoch": 0,
        "attributes": 1,
        "last_offset_delta": 0,
        "base_timestamp": BASE_TIMESTAMP,
        "max_timestamp": BASE_TIMESTAMP,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "records_count": 1,
    }
    liar = log.append(write_raw_batch(header, payload), 1, BASE_TIMESTAMP + 1000)
    log.plain(1)
    result = verdict(one_replica(tmp_path, log), deep=True)
    found = [one for one in result.findings if one.kind != "INDEX_MISMATCH"]
    assert [(one.kind, one.severity.value) for one in found] == [("RECORD_LENGTH_OUT_OF_BOUNDS", "error")]
    assert (span(found[0]), offsets(found[0])) == ((liar.position, liar.end), (1, 2))


def hostile(root: Path) -> Brokers:
    """Control characters wherever a file lets them in; and enough faults that every part of an answer is printed."""
    log = Log()
    for _ in range(3):
        record = RecordToWrite(HOSTILE.encode(), HOSTILE.encode(), [(HOSTILE, HOSTILE.encode())])
        stamp = BASE_TIMESTAMP + 1000 * log.next_offset
        log.append(write_batch([record], base_offset=log.next_offset, base_timestamp=stamp), log.next_offset, stamp)
    brokers = histories(root / HOSTILE, dict.fromkeys((1, 2), log), {1: 9, 2: 2})
    brokers.overwrite(2, log.batches[1], b"\3", 16)
    (brokers.log_dir(1) / HOSTILE).write_bytes(b"unknown")
    (brokers.log_dir(1) / f"{HOSTILE}-0").mkdir()
    (brokers.log_dir(1) / f"{HOSTILE}-0" / f"{0:020d}.log").write_bytes(b"")
    meta = brokers.log_dir(2) / "meta.properties"
    meta.write_bytes(meta.read_bytes().replace(b"cluster.id=", b"cluster.id=" + HOSTILE.encode("unicode_escape")))
    (brokers.log_dir(2) / "cleaner-offset-checkpoint").write_bytes(HOSTILE.encode() * 3)
    return brokers


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("payloads", [[], ["--show-payloads"]])
def test_probe_p8_no_control_character_reaches_a_terminal(
    tmp_path: Path, format_name: str, payloads: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    brokers = hostile(tmp_path)
    paths = [str(path) for path in brokers.log_dirs]
    assert outcome(["scan", *paths, "--format", format_name, "--no-color", *payloads]) == 1
    captured = capsys.readouterr()
    assert "DIR_NAME_ILLEGAL" in captured.out.replace("\\", "")
    for text in (captured.out, captured.err):
        raw = {character for character in text if not character.isprintable()} - {"\n"}
        if format_name == "tsv":
            raw -= {"\t"}
        assert not raw


def tree(root: Path) -> dict[str, tuple[str, int, int]]:
    """Every file below `root`: hash, mode, modification time."""
    answer = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        answer[str(path.relative_to(root))] = (content, status.st_mode, status.st_mtime_ns)
    return answer


def test_probe_p9_time_index_without_index_stays_alone(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    for segment in (0, 29, 55):
        brokers.file(2, segment, "index").unlink()
    before = tree(tmp_path)
    result = verdict(brokers)
    assert said(result) == [("INDEX_MISSING", "info", 2)]
    assert only(result, "INDEX_MISSING").evidence["segments"] == 3
    assert tree(tmp_path) == before


def test_probe_p10_transaction_index_is_only_read(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    for path in tmp_path.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = tree(tmp_path)
    assert said(verdict(brokers)) == []
    assert tree(tmp_path) == before


def test_probe_p10_one_segment_file_by_itself_is_only_read(tmp_path: Path) -> None:
    brokers = healthy(tmp_path)
    before = tree(tmp_path)
    result = scan([brokers.file(2, 29)])
    assert result.totals.batches == len(HEALTHY.of_segment(29))
    assert not [one for one in result.findings if one.severity.rank > 1]
    assert tree(tmp_path) == before
