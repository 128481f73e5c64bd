"""One bit of each byte of a base offset in logs that tell of others: controllers, coordinators, and the log a transaction is in."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_forensics.engine.controller_events import controller_events
from kafka_forensics.engine.group_log import read_group_history
from kafka_forensics.engine.inputs import gather
from kafka_forensics.engine.options import ScanOptions
from kafka_forensics.engine.transaction_log import read_transaction_log
from kafka_forensics.engine.transactions_listing import transactions
from tests.support.flipped_offsets import batches_of, flipped

SAMPLE = Path(__file__).resolve().parents[2] / "sample_logs" / "healthy" / "broker-2"
BITS = (7, 0, 3, 1, 2, 5, 0, 6)
"""The bit that is turned over in each byte of a base offset."""


def controllers(path: Path) -> object:
    """What the controllers' log tells, and from where to where."""
    return controller_events([str(path)], ScanOptions())


def transaction_log(path: Path) -> object:
    """What the coordinators' log tells of transactions."""
    return read_transaction_log(gather([str(path)], ScanOptions()))


def group_ends(path: Path) -> object:
    """Where the coordinators' log of groups ends."""
    history = read_group_history(gather([str(path)], ScanOptions()))
    assert history is not None
    return [(one.partition, one.end_offset, one.complete) for one in history.logs]


def listed(path: Path) -> object:
    """Every transaction, by the offsets of its first and last batch and of its marker."""
    return list(transactions([str(path)], ScanOptions(topic_glob="payments")).rows)


@pytest.mark.parametrize(
    ("directory", "ask"),
    [
        ("__cluster_metadata-0", controllers),
        ("__transaction_state-0", transaction_log),
        ("__consumer_offsets-0", group_ends),
        ("payments-0", listed),
    ],
)
def test_one_copy_alone_tells_what_it_told(tmp_path: Path, directory: str, ask: Callable[[Path], object]) -> None:
    path = tmp_path / "broker-2"
    shutil.copytree(SAMPLE, path)
    before = ask(path)
    batches = batches_of(path / directory)
    for byte, bit in enumerate(BITS):
        for number in (0, len(batches) // 2):
            with flipped(batches[number], byte, bit):
                assert ask(path) == before, (byte, number)
