"""What the gallery's table makes of the output of kafka-dump-log and of findings, without running either."""

from pathlib import Path

import pytest

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.model.findings import Place
from lab.fault_gallery import _said, page, rows_of
from lab.fault_gallery_peer import _complaints, _words
from lab.jvm import ToolResult

LOG = Path("/b2/t-0/00000000000000000029.log")
BATCH = "baseOffset: {0} lastOffset: {0} count: 1 position: 0 size: 100 magic: 2 crc: 1 isvalid: {1}\n"


def result(out: str = "", err: str = "", exit_code: int = 0) -> ToolResult:
    return ToolResult(exit_code, out.encode(), err.encode())


@pytest.mark.parametrize(
    ("out", "expected"),
    [
        (BATCH.format(0, "true") * 3, "exit 0, every batch `isvalid: true`"),
        (BATCH.format(0, "true") + BATCH.format(-7, "false") * 2, "exit 0, `isvalid: false` twice"),
        (BATCH.format(0, "true") + "Found 12 invalid bytes at the end of x\n", "1 of 3 readable batches shown, “Found 12 invalid"),
        (BATCH.format(0, "true") * 3 + "\x1b[31m", "**1 control characters written raw**"),
    ],
)
def test_batches_shown_and_hidden(out: str, expected: str) -> None:
    assert expected in _words(LOG, 3, result(out), frozenset())


def test_what_is_said_of_sound_files_too_is_left_out() -> None:
    err = f"Non-consecutive offsets in {LOG}\n  -1 is followed by 29\n  40 is followed by 43\n"
    usual = frozenset({"“Non-consecutive offsets in the file: -1 is followed by 29”"})
    assert _words(LOG, 0, result(err=err), usual) == (
        "exit 0, every batch `isvalid: true`, “Non-consecutive offsets in the file: 40 is followed by 43”"
    )


def test_an_exception_stands_for_all_that_was_said() -> None:
    err = 'Exception in thread "main" org.x.KafkaException: x\n\tat org.x.Y\nCaused by: java.lang.OutOfMemoryError: heap\n'
    assert _complaints(LOG, result(err=err, exit_code=1)) == ["`OutOfMemoryError`"]
    assert _complaints(LOG, result(err=err.partition("Caused")[0])) == ["`KafkaException`"]
    assert _complaints(LOG, result(err="Snapshot is corrupt (CRC). Stored: 1. Computed: 2\n")) == ["“Snapshot is corrupt (CRC)”"]


def test_a_finding_names_its_brokers_where_they_are_not_the_usual_one() -> None:
    def told(*brokers: int) -> str:
        found = [finding("SEG_HOLE", Place("t", 0, one, offset_start=3, offset_end=5)) for one in brokers]
        return _said("SEG_HOLE", found[0].severity, found, 3)

    assert told(2) == "`SEG_HOLE` error [3, 5)"
    assert told(1) == "`SEG_HOLE` error [3, 5) on b1"
    assert told(1, 3) == "`SEG_HOLE` error [3, 5) on b1, b3"
    assert told(1, 2, 3) == "`SEG_HOLE` error [3, 5) on each"
    assert told(2, 2) == "`SEG_HOLE` error [3, 5) (twice)"


def test_tables_without_cases_and_text_stay_as_they_are() -> None:
    text = "# A\n\nwords | words\n\n## Other\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nmore\n"
    assert page(text, with_peer=False) == text
    assert rows_of(text) == {"Other": [["1", "2", "-", "-"]]}
