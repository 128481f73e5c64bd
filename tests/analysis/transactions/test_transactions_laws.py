"""Laws of the transactions fold on any log: any cut, a naive fold, and both forms of the kernels give the same."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from kafka_forensics.analysis.producers.runs import OffsetRuns
from kafka_forensics.analysis.transactions.endings import Ending, endings_of
from kafka_forensics.analysis.transactions.transactions import OpenTransaction, TransactionsFold, TransactionState
from kafka_forensics.model.batches import BATCH_COLUMNS, BatchColumn
from kafka_forensics.model.results import TransactionCounts
from tests.analysis.producer_log import ABORT, COMMIT, CONTROL, TRANSACTIONAL, Log, Row, context
from tests.support.kernels import kernels
from tests.support.strategies import logs

C = BatchColumn
LIMITS = (None, 0, 20, 45, 70, 10**6)
LOG_END = 2**63 - 1


def facts(fold: TransactionsFold) -> list[Any]:
    """Everything that a fold returns."""
    stable = [fold.last_stable_offset(limit, LOG_END) for limit in LIMITS]
    shape = [fold.counts(), fold.open_transactions(), endings_of(fold.non_commit_ending_rows()), fold.view(), stable]
    return [*shape, fold.findings(context(), OffsetRuns(0), LOG_END)]


@given(logs(), st.sets(st.integers(1, 60), max_size=6))
def test_any_cut_gives_the_same_result(log: Log, cuts: set[int]) -> None:
    whole = facts(log.fold(TransactionsFold))
    assert facts(log.fold(TransactionsFold, cuts)) == whole
    assert facts(log.fold(TransactionsFold, cuts, from_right=True)) == whole


@given(logs(), st.sets(st.integers(1, 60), max_size=3))
def test_compiled_kernels_agree(log: Log, cuts: set[int]) -> None:
    with kernels(compiled=False):
        plain = facts(log.fold(TransactionsFold, cuts))
    with kernels(compiled=True):
        assert facts(log.fold(TransactionsFold, cuts)) == plain


@dataclass
class Plain:
    """A naive fold of transactions: batch by batch, without bounds."""

    current: dict[int, list[dict[C, int]]] = field(default_factory=dict)
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    committed: int = 0
    aborted: int = 0
    late: list[int] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)
    """(first offset, marker) of every transaction that ended."""
    segments: dict[int, int] = field(default_factory=dict)

    def take(self, row: Row) -> None:
        values = {column: row.values.get(column, 0) for column in C}
        producer, attributes = values[C.PRODUCER_ID], values[C.ATTRIBUTES]
        sound = values[C.CRC] == values[C.CRC_COMPUTED] and 0 <= values[C.BASE_OFFSET] <= values[C.LAST_OFFSET]
        if row.lost or not sound or producer < 0:
            return
        values[C.HASH_LOW] = row.segment
        if attributes & CONTROL:
            if values[C.CONTROL_RECORD_TYPE] <= COMMIT:
                self.end(producer, values)
                self.last[producer] = (values[C.PRODUCER_EPOCH], values[C.BASE_OFFSET])
        elif attributes & TRANSACTIONAL:
            epoch, offset = self.last.get(producer, (-(2**63), -1))
            if epoch > values[C.PRODUCER_EPOCH] and values[C.BASE_OFFSET] > offset:
                self.late.append(values[C.BASE_OFFSET])
            self.current.setdefault(producer, []).append(values)
            self.last[producer] = (values[C.PRODUCER_EPOCH], values[C.LAST_OFFSET])

    def end(self, producer: int, marker: dict[C, int]) -> None:
        data = self.current.pop(producer, [])
        control_type, offset = marker[C.CONTROL_RECORD_TYPE], marker[C.BASE_OFFSET]
        first = data[0][C.BASE_OFFSET] if data else -1
        if data:
            self.committed += control_type == COMMIT
            self.aborted += control_type == ABORT
            self.ended.append((first, offset))
        if control_type != COMMIT:
            begins = (data[0][C.HASH_LOW], data[0][C.POSITION]) if data else (-1, -1)
            ends = (marker[C.HASH_LOW], marker[C.POSITION])
            self.endings.append(Ending(producer, control_type == ABORT, first, offset, begins, ends))

    def open_transactions(self) -> list[OpenTransaction]:
        answer = []
        for producer, batches in self.current.items():
            first, last = batches[0], batches[-1]
            plain_time = not first[C.ATTRIBUTES] & 0x48
            answer.append(
                OpenTransaction(
                    producer,
                    last[C.PRODUCER_EPOCH],
                    first[C.BASE_OFFSET],
                    last[C.LAST_OFFSET],
                    first[C.BASE_TIMESTAMP if plain_time else C.MAX_TIMESTAMP],
                    last[C.MAX_TIMESTAMP],
                    first[C.HASH_LOW],
                    first[C.POSITION],
                    first[C.SIZE_IN_BYTES],
                    first[C.PRODUCER_EPOCH],
                )
            )
        return sorted(answer, key=lambda transaction: (transaction.first_offset, transaction.producer_id))

    def last_stable_offset(self, limit: int | None) -> int:
        limit = LOG_END if limit is None else limit
        firsts = [batches[0][C.BASE_OFFSET] for batches in self.current.values()]
        firsts += [first for first, marker in self.ended if marker >= limit]
        return min([limit, *firsts])


@given(logs(), st.sets(st.integers(1, 60), max_size=2))
def test_the_result_equals_that_of_a_naive_fold(log: Log, cuts: set[int]) -> None:
    plain = Plain()
    for row in log.rows:
        plain.take(row)
    fold = log.fold(TransactionsFold, cuts)
    assert fold.counts() == TransactionCounts(plain.committed, plain.aborted, len(plain.current))
    assert fold.open_transactions() == plain.open_transactions()
    assert endings_of(fold.non_commit_ending_rows()) == plain.endings
    assert [fold.last_stable_offset(limit, LOG_END) for limit in LIMITS] == [plain.last_stable_offset(limit) for limit in LIMITS]
    findings = [finding for finding in fold.findings(context(), OffsetRuns(0), LOG_END) if finding.kind == "TXN_LATE_WRITE"]
    assert [finding.place.offset_start for finding in findings] == plain.late
    view = {}
    for producer, (epoch, offset) in plain.last.items():
        first = plain.current.get(producer, [None])[0]
        begins = (-1, (-1, -1)) if first is None else (first[C.BASE_OFFSET], (first[C.HASH_LOW], first[C.POSITION]))
        view[producer] = TransactionState(*begins, epoch, offset)
    assert fold.view() == view


def test_more_than_fits_the_first_arrays() -> None:
    """Hundreds of producers and of aborted transactions in one chunk and in one merge."""
    log = Log()
    for number in range(900):
        log.transactional(number % 300, 0).marker(number % 300, 0, ABORT if number % 3 else COMMIT)
    for cuts in ((), (900,), (1, 500, 1000)):
        fold = log.fold(TransactionsFold, cuts, chunk=10_000)
        assert fold.counts() == TransactionCounts(300, 600, 0)
        assert [ending.last_offset for ending in endings_of(fold.non_commit_ending_rows())] == [
            2 * n + 1 for n in range(900) if n % 3
        ]


def test_no_batches_at_all() -> None:
    fold = TransactionsFold(0)
    fold.step(np.zeros((BATCH_COLUMNS, 0), np.int64))
    fold.damage()
    fold.merge(TransactionsFold(5))
    assert facts(fold)[:4] == [TransactionCounts(), [], [], {}]
    assert fold.last_stable_offset(None, 3) == 3
