"""Logs of real brokers: transactions as their clients counted them, indexes that lack one, and copied batches."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_forensics.analysis.producers.producers import ProducersFold
from kafka_forensics.analysis.transactions.endings import endings_of
from kafka_forensics.analysis.transactions.index_check import IndexCheck
from kafka_forensics.analysis.transactions.transactions import TransactionsFold
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.files import AbortedTxn, TransactionIndex
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import TransactionCounts
from kafka_forensics.parsers.indexes import parse_transaction_index
from tests.analysis.producer_log import context, step
from tests.support.archives import archive_members
from tests.support.memory import MemoryFile
from tests.support.segments import read

HEALTHY = "kafka-4.3.0-healthy.tar.xz"
C = BatchColumn


@dataclass
class Partition:
    """The files of one partition directory, by segment base offset."""

    topic: str
    logs: dict[int, bytes] = field(default_factory=dict)
    indexes: dict[int, TransactionIndex] = field(default_factory=dict)
    with_index_files: set[int] = field(default_factory=set)


def partitions(archive: Path, directory: str) -> dict[str, Partition]:
    answer: dict[str, Partition] = {}
    for name, data in archive_members(archive, rf"{directory}/\d+\.(log|index|txnindex)"):
        path, _, file = name.rpartition("/")
        base, kind = int(file[:20]), file[21:]
        partition = answer.setdefault(path, Partition(path.rpartition("/")[2].rpartition("-")[0]))
        if kind == "log":
            partition.logs[base] = data
        elif kind == "txnindex":
            partition.indexes[base] = parse_transaction_index(MemoryFile(data))
        else:
            partition.with_index_files.add(base)
    return answer


def folded(partition: Partition) -> tuple[int, ProducersFold, TransactionsFold]:
    """The log's end offset, and its folds, segment by segment."""
    producers, transactions = ProducersFold(0), TransactionsFold(0)
    for base, data in sorted(partition.logs.items()):
        columns = read(data).columns
        for whole, part in ((producers, ProducersFold(base)), (transactions, TransactionsFold(base))):
            step(part, columns)
            whole.merge(part)  # type: ignore[arg-type]
    return producers.runs.end_offset, producers, transactions


def index_findings(partition: Partition) -> list[Finding]:
    about = context(partition.topic, segment_base_offsets=sorted(partition.logs))
    _, producers, transactions = folded(partition)
    check = IndexCheck(about, partition.with_index_files, partition.indexes.get)
    return check.findings(transactions, list(partition.indexes), min(partition.logs), producers.runs)


def expected_entries(partition: Partition) -> list[tuple[int, int, int, int]]:
    """The entries that the `.txnindex` files must have, computed naively from the batches."""
    current: dict[int, int] = {}
    answer = []
    for _, data in sorted(partition.logs.items()):
        for row in read(data).columns.T.tolist():
            producer, base = row[C.PRODUCER_ID], row[C.BASE_OFFSET]
            if row[C.ATTRIBUTES] & 0x30 == 0x10:
                current.setdefault(producer, base)
            elif row[C.CONTROL_RECORD_TYPE] in (0, 1):
                first = current.pop(producer)
                if row[C.CONTROL_RECORD_TYPE] == 0:
                    answer.append((producer, first, base, min(current.values(), default=base + 1)))
    return answer


def entries_of(partition: Partition) -> list[AbortedTxn]:
    return [entry for _, index in sorted(partition.indexes.items()) for entry in index.entries]


@pytest.mark.parametrize(
    ("topic", "counts", "stable", "end"),
    [("payments", TransactionCounts(23, 17, 0), 320, 320), ("ledger", TransactionCounts(5, 5, 1), 0, 25)],
)
def test_transactions_are_those_counted(archives: Path, topic: str, counts: TransactionCounts, stable: int, end: int) -> None:
    replicas = partitions(archives / HEALTHY, rf"healthy/broker-\d/{topic}-0")
    assert len(replicas) == 3
    for partition in replicas.values():
        log_end, _, transactions = folded(partition)
        assert (log_end, transactions.counts(), transactions.last_stable_offset(None, log_end)) == (end, counts, stable)
        expected = expected_entries(partition)
        assert [
            (ending.producer_id, ending.first_offset, ending.last_offset)
            for ending in endings_of(transactions.non_commit_ending_rows())
        ] == [e[:3] for e in expected]
        written = entries_of(partition)
        assert [(e.producer_id, e.first_offset, e.last_offset, e.last_stable_offset) for e in written] == expected
        for number, entry in enumerate(written):
            findings = index_findings(without(partition, number))
            missing = [finding for finding in findings if finding.kind == "TXNINDEX_MISSING_ABORT"]
            assert [finding.evidence["last_offset"] for finding in missing] == [entry.last_offset]
            assert not any(finding.kind == "TXNINDEX_PHANTOM_ABORT" for finding in findings)


def without(partition: Partition, number: int) -> Partition:
    """The partition without one entry of its indexes."""
    dropped = entries_of(partition)[number]
    indexes = {
        base: TransactionIndex([entry for entry in index.entries if entry != dropped]) for base, index in partition.indexes.items()
    }
    return Partition(partition.topic, partition.logs, indexes, partition.with_index_files)
