"""Where `dump --format kafka-dump-log` once differed from Kafka's own tool: seen on logs of real brokers."""

from pathlib import Path

import pytest

from kafka_forensics.cli.main import outcome
from kafka_forensics.cli.outputs.kafka_dump_log import _text
from tests.support.segments import batch

NAME = f"{0:020}"
FORMAT = ("--format", "kafka-dump-log")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\xed\xb0\xcc", "\ufffd\ufffd"),
        (b"\x01\xed\xb7\x148", "\\x01\ufffd\\x148"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed", "\ufffd"),
        (b"\xed\x9f\xbf\xff", "\ud7ff\ufffd"),
        (b"\xe0\x80\xf0\x90A", "\ufffd\ufffd\ufffdA"),
    ],
)
def test_payloads_are_decoded_as_java_decodes_them(data: bytes, shown: str) -> None:
    assert _text(data).replace("\\ud7ff", "\ud7ff") == shown


def put(folder: Path, log: bytes) -> Path:
    """A segment with indexes of zeros, as they are reserved before anything is in them; the path of the time index."""
    folder.mkdir(exist_ok=True)
    (folder / f"{NAME}.log").write_bytes(log)
    (folder / f"{NAME}.index").write_bytes(bytes(80))
    path = folder / f"{NAME}.timeindex"
    path.write_bytes(bytes(24))
    return path


def test_a_time_index_ends_where_the_segment_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tool reads the whole segment for every entry, also behind the batch that it looks for."""
    sound = put(tmp_path / "sound", batch(0, 3))
    reserved = put(tmp_path / "reserved", batch(0, 3) + bytes(200))
    assert outcome(["dump", str(sound), *FORMAT]) == 0
    assert "timestamp: 0 offset: 0" in capsys.readouterr().out
    assert outcome(["dump", str(reserved), *FORMAT]) == 0
    capture_result = capsys.readouterr()
    assert "timestamp: 0" not in capture_result.out
    assert capture_result.err.startswith("Kafka's tool ends ")
    assert "Found record size 0 smaller than minimum record overhead (14)" in capture_result.err


def test_complaints_of_a_log_name_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "log", batch(0, 1) + batch(4, 1))
    monkeypatch.chdir(tmp_path)
    assert outcome(["dump", f"log/{NAME}.log", *FORMAT, "--deep-iteration"]) == 0
    assert capsys.readouterr().err.splitlines() == [f"Non-consecutive offsets in log/{NAME}.log", "  0 is followed by 4"]
