"""The `epochs` command: output in every format, and exit statuses."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli.runs import Run
from tests.support.brokers import put_epochs, put_replica
from tests.support.places import SAMPLES
from tests.support.segments import batch, legacy_entry

pytestmark = pytest.mark.usefixtures("wide")


@pytest.fixture
def run(run: Run) -> Run:
    """`epochs` with these arguments: exit status, stdout, stderr."""
    return partial(run, "epochs")


@pytest.fixture
def shifted(tmp_path: Path) -> Path:
    """A replica whose checkpoint begins epoch 1 at offset 3 instead of 2; its broker's name contains an escape sequence."""
    directory = put_replica(tmp_path, "\x1b[31m", b"".join([batch(0, 2, epoch=0), batch(2, 2, epoch=1)])) / "orders-0"
    put_epochs(directory, (0, 0), (1, 3))
    return tmp_path


def test_the_table_shows_epochs_by_checkpoint_and_by_log(run: Run) -> None:
    brokers = sorted((SAMPLES / "unclean-election").glob("broker-*"))
    status, out, err = run(*brokers, "--topic", "audit", "--format", "text")
    assert (status, err) == (0, "3 replicas: checkpoints and batches agree\n")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0][:5] == ["partition", "broker", "epoch", "checkpoint", "log"]
    epochs = [row[:7] for row in rows[1:] if "to" in row]
    assert epochs == [
        ["audit-0", "1", "0", "0", "0", "to", "299"],
        ["audit-0", "1", "2", "300", "300", "to", "344"],
        ["audit-0", "2", "0", "0", "0", "to", "369"],
        ["audit-0", "3", "0", "0", "0", "to", "299"],
    ]


def test_json_and_table_show_both_truncation_offsets(run: Run, shifted: Path) -> None:
    status, out, err = run(shifted, "--format", "json")
    assert (status, err.startswith("error: orders-0 on broker broker-\\x1b[31m: ")) == (0, True)
    rows = json.loads(out)
    assert [(row["leader_epoch"], row["status"]) for row in rows] == [(0, "agrees"), (1, "starts_differ")]
    assert (rows[0]["truncation_offset_by_checkpoint"], rows[0]["truncation_offset_by_batches"]) == (3, 2)
    assert (rows[0]["first_timestamp_ms"], rows[0]["first_timestamp"]) == (1700000000006, "2023-11-14T22:13:20.006Z")
    out = run(shifted, "--format", "text")[1]
    assert "a follower that requests its end is cut at 3 by the checkpoint, cut at 2 by the batches" in out
    assert "CHECKPOINT AND BATCHES DISAGREE" in out


def test_a_message_explains_an_empty_answer(run: Run, tmp_path: Path) -> None:
    put_replica(tmp_path, 1, legacy_entry(0))
    assert run(tmp_path, "--format", "jsonl") == (0, "", "1 replica: no leader epochs; logs from before Kafka 0.11 have none\n")
    error = "error: no broker matches --broker 2\nhint: brokers here: 1\n"
    assert run(tmp_path, "--broker", "2", "-q", "--format", "text") == (2, "", error)
    assert run(tmp_path / "none")[0] == 2


def test_agreement_mentions_damaged_batches(run: Run, tmp_path: Path) -> None:
    log = bytearray(b"".join([batch(0, 2, epoch=0), batch(2, 2, epoch=1)]))
    log[-1] ^= 1
    directory = put_replica(tmp_path, "b", bytes(log)) / "orders-0"
    put_epochs(directory, (0, 0))
    status, _, err = run(tmp_path)
    assert status == 0
    size = len(batch(2, 2, epoch=1))
    agreement, damaged = err.splitlines()
    assert agreement == "1 replica: checkpoints and batches agree, as far as batches can be read"
    message = f"{size} bytes of the log (offsets 2 to 3) are damaged"
    assert damaged == f"orders-0 on broker broker-b: {message}; only the checkpoint has their epochs"
    assert run(tmp_path, "-q")[2] == ""
