"""The probes: what kafka-dump-log 4.3.0 misses, dies of or changes, and what becomes of it here."""

import hashlib
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.parsers.log.records import decode_batch
from tests.support.faults import HEALTHY, healthy
from tests.support.faults_verdict import Said, offsets, only, said, scan, verdict
from tests.support.gallery_bytes import HUGE, declared_gigabytes, huge_value
from tests.support.gallery_replicas import hostile
from tests.support.injections import probe

pytestmark = pytest.mark.faults

FORMATS = ("table", "tsv", "json", "jsonl", "markdown")


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
    result = verdict(declared_gigabytes(tmp_path), deep=True)
    assert said(result) == [("RECORD_LENGTH_OUT_OF_BOUNDS", "error", 1)]
    assert offsets(result.findings[0]) == (1, 2)


MEASURED_SCAN = """
import sys
from pathlib import Path
from kafka_forensics.cli.main import outcome
status = outcome(["scan", *sys.argv[1:], "--deep", "--format", "json"])
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
sys.exit(status)
"""
"""Prints its peak in KiB last; getrusage would begin with what the test's own process once held."""


def test_probe_p7_value_of_256_mib_is_measured_and_not_held(tmp_path: Path) -> None:
    brokers = huge_value(tmp_path)
    log = brokers.file(1, 0)
    assert log.stat().st_size < 300_000
    command = [sys.executable, "-c", MEASURED_SCAN, str(brokers.log_dir(1))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    assert answer["findings"] == []
    assert answer["summary"]["verdict"] == "clean"
    peak_kib = int(done.stderr.split()[-1])
    assert peak_kib < 400 << 10
    position = brokers.log.batches[1].position
    decoded = decode_batch(log.read_bytes()[position : brokers.log.batches[1].end], position=position)
    (held,) = decoded.iter_records()
    assert (held.offset, held.key_length, held.value_length, held.value) == (1, 3, HUGE, None)
    assert decoded.problems == []


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("payloads", [[], ["--show-payloads"]])
def test_probe_p8_no_control_character_reaches_a_terminal(
    tmp_path: Path, format_name: str, payloads: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    brokers = hostile(tmp_path)
    paths = [str(path) for path in brokers.log_dirs]
    assert outcome(["scan", *paths, "--format", format_name, "--color", "never", *payloads]) == 1
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
    assert not [finding for finding in result.findings if finding.severity.rank > 1]
    assert tree(tmp_path) == before
