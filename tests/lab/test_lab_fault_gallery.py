"""What the gallery's table makes of the output of kafka-dump-log and of findings, without running either."""

from pathlib import Path

import pytest

from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.model.findings import Place
from lab.fault_gallery import _said, _shown, page, rows_of
from lab.fault_gallery_peer import _complaints, _words
from lab.fault_gallery_totals import Peer, peer_made_of_it, totals
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
        (BATCH.format(0, "true") * 3 + "\x1b[31m", "**1 control character written raw**"),
    ],
)
def test_batches_shown_and_hidden(out: str, expected: str) -> None:
    assert expected in _words(LOG, 3, result(out), frozenset())


def test_what_is_said_of_sound_files_too_is_left_out() -> None:
    err = f"Non-consecutive offsets in {LOG}\n  -1 is followed by 29\n  40 is followed by 43\n"
    usual = frozenset({"“Non-consecutive offsets in the file: -1 is followed by 29”"})
    assert _words(LOG, 1, result(BATCH.format(0, "true"), err), usual) == (
        "exit 0, every batch `isvalid: true`, “Non-consecutive offsets in the file: 40 is followed by 43”"
    )


def test_a_file_without_batches_is_not_called_valid() -> None:
    assert _words(LOG, 0, result(), frozenset()) == "exit 0, no batch shown"


def test_records_that_a_decoder_skips_are_named() -> None:
    out = BATCH.format(0, "true") + "| offset: 0 key: Error at offset 0, skipping. No such version.\n| offset: 1 payload: x\n"
    assert _words(LOG, 1, result(out), frozenset()).endswith("`isvalid: true`, “Error at offset 0, skipping. No such version”")


def test_an_exception_stands_for_all_that_was_said() -> None:
    err = 'Exception in thread "main" org.x.KafkaException: x\n\tat org.x.Y\nCaused by: java.lang.OutOfMemoryError: heap\n'
    assert _complaints(LOG, result(err=err, exit_code=1)) == ["`OutOfMemoryError`"]
    assert _complaints(LOG, result(err=err.partition("Caused")[0])) == ["`KafkaException`"]
    assert _complaints(LOG, result(err="Snapshot is corrupt (CRC). Stored: 1. Computed: 2\n")) == ["“Snapshot is corrupt (CRC)”"]


def test_a_finding_names_its_brokers_where_they_are_not_the_usual_one() -> None:
    def told(*brokers: int) -> str:
        findings = [finding("SEG_HOLE", Place("t", 0, broker, offset_start=3, offset_end=5)) for broker in brokers]
        return _said("SEG_HOLE", findings[0].severity, findings, 3)

    assert told(2) == "`SEG_HOLE` error [3, 5)"
    assert told(1) == "`SEG_HOLE` error [3, 5) on b1"
    assert told(1, 3) == "`SEG_HOLE` error [3, 5) on b1, b3"
    assert told(1, 2, 3) == "`SEG_HOLE` error [3, 5) on each"
    assert told(2, 2) == "`SEG_HOLE` error [3, 5) (twice)"


def test_evidence_is_taken_from_the_worst_finding_that_has_it() -> None:
    place = Place("t", 0, 2)
    findings = [
        finding("REPLICA_LAGS", place, evidence={"log_end_offset": 7, "records": {"1": 16, "2": 14}}),
        finding("SEG_HOLE", place, evidence={"log_end_offset": 9, "safe": False, "inner": {"segments": [29, 55]}}),
    ]
    names = ("log_end_offset", "records", "safe", "inner.segments", "inner.other", "none")
    assert list(_shown(names, findings)) == [
        ("log_end_offset", "9"),
        ("records", "b1 16, b2 14"),
        ("safe", "false"),
        ("inner.segments", "29, 55"),
    ]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("exit 0, every batch `isvalid: true`", Peer.SILENT),
        ("exit 0", Peer.SILENT),
        ("exit 1, “Found 3 invalid bytes at the end”, `CorruptRecordException`", Peer.NAMED),
        ("exit 0, `isvalid: false` once", Peer.NAMED),
        ("exit 0, every batch `isvalid: true`; with `--deep-iteration`: exit 1, `OutOfMemoryError`", Peer.FAILED),
        ("does not end: it opens the pipe and waits", Peer.FAILED),
        ("ignores the file", Peer.UNREAD),
        ("not a matter of one file", Peer.UNREAD),
    ],
)
def test_what_became_of_a_case_is_read_from_its_cell(cell: str, expected: Peer) -> None:
    assert peer_made_of_it(cell) is expected


def test_totals_count_injections_probes_and_controls_apart() -> None:
    rows = [
        ["F01", "a", "`SEG_HOLE` error", "exit 0, `isvalid: false` once"],
        ["F01", "b", "`SEG_HOLE` error", "exit 0"],
        ["F02", "*c*", "`REPLICA_LAGS` info", "exit 1, `KafkaException`"],
        ["-", "d", "`SEG_HOLE` error", "ignores the file"],
        ["P10", "e", "nothing", "exit 0; **opens it `O_RDWR + O_CREAT`**"],
        ["P9", "f", "`SEG_HOLE` error", "exit 1, `KafkaException`; **creates `0.index` in the evidence**"],
        ["P8", "g", "nothing", "exit 0, **3 control characters written raw**"],
    ]
    text = totals({"A": rows[:2], "B": rows[2:]})
    assert text.startswith("2 faults in 3 injections, 3 probes, and 1 negative controls. ")
    assert "finds something in 3 of the injections and in 1 of the probes (nothing in P8, P10, whose bytes are sound)" in text
    assert "anything above `info` it finds in 0 of the controls" in text
    assert "of the injections 1 called wrong, 0 ended by an exception, 1 passed as sound, 1 not read;" in text
    assert "of the controls 0 called wrong, 1 ended by an exception, 0 passed as sound, 0 not read." in text
    assert "Of the 2 faults it complains of 1 in at least one injection. " in text
    assert "creates files in the evidence in 1 rows, opens them for writing in 1, and writes control characters raw in 1." in text


def test_tables_without_cases_and_text_stay_as_they_are() -> None:
    text = "# A\n\nwords | words\n\n## Other\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nmore\n"
    assert page(text, with_peer=False) == text
    assert rows_of(text) == {"Other": [["1", "2"]]}
