"""What `transactions` says of a log of which some is damaged: that it does not know, and what a snapshot still knows."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.cli.main import outcome
from tests.support.faults import Written
from tests.support.injections import change
from tests.support.transaction_logs import APP_ID, OTHER_ID, CoordinatorLog, DataLog, write_cluster


def hung() -> tuple[DataLog, CoordinatorLog, Written]:
    """OTHER ended [2, 5), APP has been open since [0, 2), and that is the batch."""
    log, state = DataLog(), CoordinatorLog()
    opened = log.data(1)
    log.traffic(2)
    state.state(1, "Ongoing", (0,))
    return log, state, opened


def written(folder: Path, log: DataLog, state: CoordinatorLog, *damaged: Written, without_snapshots: bool = False) -> Path:
    """Three copies, of which these batches are damaged alike."""
    write_cluster(folder, {"t-0": log, "__transaction_state-0": state})
    for directory in folder.glob("*/t-0"):
        for batch in damaged:
            change(directory / f"{batch.segment:020d}.log", batch.position + 90)
        for path in directory.glob("*.snapshot") if without_snapshots else ():
            path.unlink()
    return folder


def told(capsys: pytest.CaptureFixture[str], copies: Path, *arguments: object) -> tuple[list[dict[str, Any]], str]:
    """The rows, and what stderr says."""
    assert outcome(["transactions", str(copies), "--format", "json", *map(str, arguments)]) == 0
    capture_result = capsys.readouterr()
    return json.loads(capture_result.out), capture_result.err


def shown(rows: list[dict[str, Any]]) -> list[tuple[str, int | None, int | None, int | None]]:
    return [(row["state"], row["producer_id"], row["first_offset"], row["last_offset"]) for row in rows]


def test_the_batch_of_an_open_transaction_is_damaged_and_no_snapshot_knows_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log, state, opened = hung()
    rows, err = told(capsys, written(tmp_path, log, state, opened, without_snapshots=True))
    assert shown(rows) == [("committed", OTHER_ID, 2, 3), ("damaged", None, 0, 1)]
    assert "last stable offset may be as low as this" in rows[1]["reason"]
    size = len(opened.data)
    assert (
        f"t-0: 1 committed, 0 aborted, 0 open; {size} bytes of the log (offsets 0 to 1) are damaged, so that transactions in them"
        " are not told, and the last stable offset is not known beyond 0 (log end 5)"
    ) in err
    assert "no transaction holds back" not in err


def test_a_snapshot_that_has_it_open_is_heard(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, state, opened = hung()
    rows, err = told(capsys, written(tmp_path, log, state, opened))
    assert shown(rows) == [("committed", OTHER_ID, 2, 3), ("open", APP_ID, 0, 1), ("damaged", None, 0, 1)]
    one = rows[1]
    assert (one["holds_last_stable_offset"], one["last_stable_offset"], one["coordinator_state"]) == (True, 0, "Ongoing")
    assert "known from a producer snapshot" in one["reason"]
    assert "1 committed, 0 aborted, 1 open; the last stable offset 0 is held by an open transaction, as a snapshot knows" in err
    assert shown(told(capsys, tmp_path, "--state", "damaged")[0]) == [("damaged", None, 0, 1)]


def test_a_snapshot_is_not_heard_against_a_marker_that_came_after_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The snapshot of a segment's start has APP's transaction open; its marker stands behind, its data are damaged."""
    log, state = DataLog(), CoordinatorLog()
    opened = log.data(1)
    log.traffic(2)
    log.roll()
    log.marker(3, commit=True)
    state.transaction(1, (0,), commit=True)
    copies = written(tmp_path, log, state, opened)
    for path in copies.glob(f"*/t-0/{log.next_offset:020d}.snapshot"):
        path.unlink()
    rows, err = told(capsys, copies)
    assert [row["state"] for row in rows] == ["committed", "empty", "damaged"]
    assert "0 open" in err


def test_a_damaged_marker_leaves_the_end_of_a_transaction_open_to_doubt(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, state = DataLog(), CoordinatorLog()
    log.data(1)
    marker = log.marker(2, commit=True)
    log.traffic(3)
    state.transaction(1, (0,), commit=True)
    write_cluster(tmp_path, {"t-0": log, "__transaction_state-0": state})
    for path in tmp_path.glob(f"*/t-0/{0:020d}.log"):
        change(path, marker.position + 65)
    _, err = told(capsys, tmp_path)
    assert "is held by an open transaction, unless that ended in them or an earlier one began there; " in err
    assert "(offset 2) are damaged" in err


def test_a_whole_copy_and_a_torn_tail_leave_no_doubt(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, state, opened = hung()
    write_cluster(tmp_path, {"t-0": log, "__transaction_state-0": state})
    change(tmp_path / "b1" / "t-0" / f"{0:020d}.log", opened.position + 90)
    rows, err = told(capsys, tmp_path)
    assert "damaged" not in {row["state"] for row in rows}
    assert "damaged" not in err
    for path in tmp_path.glob(f"*/t-0/{0:020d}.log"):
        path.write_bytes(log.batches[0].data + b"".join(batch.data for batch in log.batches[1:]) + opened.data[:40])
    rows, err = told(capsys, tmp_path)
    assert "damaged" not in {row["state"] for row in rows}
    assert "the last stable offset 0 is held by an open transaction (log end 5)" in err
