"""How the gallery's totals interpret the cells of kafka-dump-log."""

import pytest

from lab.fault_gallery_totals import Peer, peer_outcome, totals


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
def test_the_outcome_of_a_case_is_read_from_its_cell(cell: str, expected: Peer) -> None:
    assert peer_outcome(cell) is expected


def test_totals_count_injections_probes_and_controls_separately() -> None:
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
    assert "findings for 3 of the injections and 1 of the probes (the bytes of P8, P10 are correct)" in text
    assert "findings above `info` for 0 of the controls" in text
    assert "injections 1 reported, 0 ended by an exception, 1 accepted, 1 not read;" in text
    assert "controls 0 reported, 1 ended by an exception, 0 accepted, 0 not read." in text
    assert "It reports 1 of the 2 faults in at least one injection. " in text
    assert "creates files in the evidence in 1 rows, opens them for writing in 1, and writes control characters raw in 1." in text
