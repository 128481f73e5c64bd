"""`transactions`: every transaction in the copies, from a second reading of the best copies, in bounded memory.

The scan before it judges open transactions; this reading pairs data with markers. It holds the open transactions of one partition.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct, field

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.transactions import OpenTransaction, Pairing, TransactionColumn
from kafka_forensics.analysis.transactions_across import SKEW_MS, TV2, DamagedLog, best_copy, damage_of, hidden_by_damage
from kafka_forensics.errors import SourceError
from kafka_forensics.evidence.inputs import ReplicaPlan, gather
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.evidence.paths import not_read
from kafka_forensics.model.constants import CLUSTER_METADATA_TOPIC, CONTROL_ABORT, CONTROL_COMMIT, INT64_MAX, control_record_name
from kafka_forensics.model.coordinators import Decision, TransactionLog
from kafka_forensics.model.findings import Evidence, Finding, TopicPartition
from kafka_forensics.model.json_objects import rfc3339
from kafka_forensics.model.results import Incomplete, ScanResult
from kafka_forensics.scanning.engine.local import Progress, scan_inputs
from kafka_forensics.scanning.rereading.logs_in_order import transactional_batches
from kafka_forensics.scanning.witnesses.remote_chains import remote_logs_of, take_remote_logs
from kafka_forensics.scanning.witnesses.witnesses import read_witnesses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kafka_forensics.evidence.context import ReplicaContext
    from kafka_forensics.model.json_objects import Json
    from kafka_forensics.scanning.judging.partitions import PartitionResult
    from kafka_forensics.scanning.rereading.reader import LogReader


# Why an open transaction is judged as it is: what its coordinator knows of it, in a few words.


_COORDINATOR_REASONS: Final = {
    "will end it": "the coordinator will end it",
    "should have ended it": "the coordinator should have ended it",
    "unknown": "the coordinator's state is unknown",
    "not among the copies": "the coordinator's log is not among the copies",
}


def coordinators_word(evidence: Evidence) -> str | None:
    """The reason by the evidence of an open transaction; None where it names no coordinator."""
    coordinator = evidence.get("coordinator")
    if coordinator != "does not list it":
        return _COORDINATOR_REASONS.get(coordinator or "")
    unlisted = "the coordinator does not list it"
    if (again := evidence.get("look_again_at")) is not None:
        return f"{unlisted}: if it is still open at {rfc3339(again)}, it hangs; check again then"
    if evidence.get("command") is None:
        return f"{unlisted}, and it is overdue only by clients' clocks"
    return f"{unlisted}, but its log may have been copied before this one"


# The coordinator's decision that a marker belongs to: no number identifies it, only times.


_decided_at = attrgetter("decided_timestamp")


def fitting(decisions: Sequence[Decision], timestamp: int, *, commit: bool) -> Decision | None:
    """The decision nearest in time that a marker may belong to; `decisions` have one producer and epoch and are sorted by time.

    Each is completed before the next one is made.
    """
    nearest: Decision | None = None
    for at in range(bisect_right(decisions, timestamp + SKEW_MS, key=_decided_at) - 1, -1, -1):
        decision = decisions[at]
        if decision.completed_timestamp is not None and timestamp > decision.completed_timestamp + SKEW_MS:
            break
        distance = abs(decision.decided_timestamp - timestamp)
        if decision.commit == commit and (nearest is None or distance <= abs(nearest.decided_timestamp - timestamp)):
            nearest = decision
        if nearest is not None and decision.decided_timestamp <= timestamp:
            break
    return nearest


MARKERS: Final = {kind: control_record_name(kind) for kind in (CONTROL_ABORT, CONTROL_COMMIT)}
"""Type of a readable marker → its name."""
ENDED: Final = {CONTROL_ABORT: "aborted", CONTROL_COMMIT: "committed"}
"""Type of a readable marker → the state of the transaction that it ends."""


class TransactionRow(Struct):
    """One transaction in one partition; None means unknown or none, times are ms."""

    topic: str
    partition: int
    broker: int | str
    """The broker whose copy was read."""
    state: str
    producer_id: int
    """-1 in the state `damaged`, as is the epoch."""
    producer_epoch: int
    """Of its data, also where none of it is left; else of the marker."""
    first_offset: int | None = None
    last_offset: int | None = None
    """Of its data, inclusive."""
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    batches: int = 0
    records: int = 0
    """Offsets of its data."""
    marker: str | None = None
    marker_offset: int | None = None
    marker_timestamp: int | None = None
    marker_epoch: int | None = None
    """In the state `lost` the epoch of the coordinator's decision."""
    coordinator_epoch: int | None = None
    transactional_id: str | None = None
    coordinator_state: str | None = None
    """Of an ended transaction its coordinator's decision, of an open one the last state of its transactional id."""
    partitions: list[str] | None = None
    """All partitions that the coordinator lists for it."""
    holds_last_stable_offset: bool = False
    last_stable_offset: int | None = None
    safe_to_abort: bool | None = None
    find_hanging: str | None = None
    """The command that shows on the running cluster whether it hangs."""
    command: str | None = None
    """The command that ends it there."""
    reason: str | None = None
    age_ms: int | None = None
    """Of an open one at `--as-of`: since its start if its coordinator considers it overdue, else since its last batch."""
    transaction_timeout_ms: int | None = None
    """Of its transactional id, by its coordinator."""
    decided_timestamp: int | None = None
    """When its coordinator decided it, equal in all partitions."""


class TransactionStateCounts(Struct):
    """Counts of a partition's transactions, known before they are listed."""

    plan: ReplicaPlan
    last_stable_offset: int
    log_end_offset: int | None
    """None if the log was not read to its end."""
    committed: int
    aborted: int
    open: int
    held: bool
    """Whether an open transaction holds the last stable offset."""
    damage: DamagedLog | None = None
    hidden: list[OpenTransaction] = field(default_factory=list)
    """Open by a producer snapshot, with damaged records; `open` includes them."""
    hanging: int = 0
    remote: list[ReplicaPlan] = field(default_factory=list)
    """The partition's logs in remote stores, whose transactions are counted when the rows are read."""

    @property
    def has_transactions(self) -> bool:
        """Whether it has any, as far as they were counted."""
        return bool(self.committed or self.aborted or self.open or self.damage or self.held)

    def add_remote(self, ended: "NDArray[np.int64]") -> None:
        """Count ended transactions whose markers are in remote storage; columns by `TransactionColumn`."""
        logs = self.plan.directory.logs()
        is_remote = ended[TransactionColumn.MARKER_OFFSET] < (logs[0].base_offset if logs else INT64_MAX)
        types = ended[TransactionColumn.MARKER_TYPE, is_remote]
        self.committed += int(np.count_nonzero(types == CONTROL_COMMIT))
        self.aborted += int(np.count_nonzero(types == CONTROL_ABORT))


class TransactionsAnswer(Struct):
    """Rows, which are read while they are consumed; the scan; and the counts of every partition that has transactions."""

    rows: Iterator[TransactionRow]
    result: ScanResult
    partitions: dict[TopicPartition, TransactionStateCounts] = field(default_factory=dict)
    has_log: bool = True
    """Whether a copy of `__transaction_state` is here."""


def transactions(
    paths: list[str],
    options: ScanOptions,
    *,
    producer_id: int | None = None,
    state: str | None = None,
    progress: Progress | None = None,
) -> TransactionsAnswer:
    """Scan the paths and list every transaction, or only those of one producer or in one state (of `TRANSACTION_STATES`).

    Partitions come in order; ended transactions of a partition in the order of their markers, then open ones by first offset.
    Raises UsageError for invalid paths.
    """
    inputs = gather(paths, options)
    witnesses = read_witnesses(inputs)
    take_remote_logs(inputs, options, witnesses.remote_log)
    plans = {id(plan.context): plan for plan in inputs.replicas}
    partitions: dict[TopicPartition, TransactionStateCounts] = {}

    def look(replicas: list[Replica], _reader: "LogReader", _result: "PartitionResult") -> None:
        best = best_copy(replicas)
        remote = remote_logs_of(inputs, best.context)
        counts = _partition_transactions(best, replicas, plans[id(best.context)], remote)
        if counts is not None and best.context.topic != CLUSTER_METADATA_TOPIC:
            partitions[best.context.topic_partition] = counts

    result = scan_inputs(inputs, options, progress, look, witnesses)
    for summary in result.partitions:
        if (partition := partitions.get((summary.topic, summary.partition))) is not None:
            partition.hanging = max((replica.transactions.hanging or 0 for replica in summary.replicas), default=0)
    log = witnesses.transaction_log
    known = KnownTransactions(log, result.findings)

    def wanted(row: TransactionRow) -> bool:
        return producer_id in (None, row.producer_id) and state in (None, row.state)

    everywhere = sorted({*partitions, *known.lost})

    def every_row() -> Iterator[TransactionRow]:
        for where in everywhere:
            yield from _rows(where, partitions.get(where), known, result)
            if where in partitions and partitions[where].remote and not partitions[where].has_transactions:
                del partitions[where]

    rows = filter(wanted, every_row())
    return TransactionsAnswer(rows, result, partitions, log is not None)


def _partition_transactions(
    best: Replica, replicas: list[Replica], plan: ReplicaPlan, remote: list[ReplicaPlan]
) -> TransactionStateCounts | None:
    """The counts of the best copy of a partition; None if it has no transactions."""
    fold = best.state.transactions
    counts = fold.counts()
    hidden = hidden_by_damage(best, [transaction for replica in (best, *replicas) for transaction in replica.snapshot_open])
    if not (len(fold.last_markers.markers.rows) or counts.open or best.forgotten or hidden or remote):
        return None
    stable = fold.last_stable_offset(best.context.high_watermark, best.log_end_offset)
    stable = min([stable, *(transaction.first_offset for transaction in hidden)])
    held = any(transaction.first_offset == stable for transaction in (*fold.open_transactions(1), *hidden))
    return TransactionStateCounts(
        plan,
        best.log_start_offset if best.forgotten else stable,
        best.log_end_offset if best.end_is_known else None,
        counts.committed or 0,
        counts.aborted or 0,
        (counts.open or 0) + len(hidden),
        held or bool(best.forgotten),
        damage_of(best),
        hidden,
        remote=remote,
    )


def _rows(
    where: TopicPartition, partition: TransactionStateCounts | None, known: "KnownTransactions", result: ScanResult
) -> Iterator[TransactionRow]:
    """Every transaction of one partition: those in its best copy, ranges of damaged offsets, and those that no copy holds."""
    if partition is not None:
        plan, stable = partition.plan, partition.last_stable_offset
        for paired, ended in paired_transactions(plan, result.incomplete, partition.remote):
            if partition.remote and ended:
                partition.add_remote(paired)
            yield from known.rows(plan.context, paired, stable, ended=ended)
        yield from known.forgotten(where, plan.context.broker)
        yield from known.hidden(where, partition)
        for start, end in () if partition.damage is None else partition.damage.spans or ((None, None),):
            last = None if end is None else end - 1
            row = TransactionRow(*where, plan.context.broker, "damaged", -1, -1, start, last)
            row.reason = "transactions that begin or end here are missing, and the last stable offset may be as low as this"
            yield row
    yield from known.lost_in(where)


def paired_transactions(
    plan: ReplicaPlan, incomplete: list[Incomplete], remote: Sequence[ReplicaPlan] = ()
) -> "Iterator[tuple[NDArray[np.int64], bool]]":
    """(transactions, whether they have ended) of one replica's log, any number at a time, columns by `TransactionColumn`.

    The log begins with what those in `remote` stores have of it. Ended transactions come in the order of their markers, then open
    ones by first offset. What cannot be read is noted in `incomplete`. Of a transaction that is open where offsets are missing in
    remote storage the end is unknown: it is left out.
    """
    pairing = Pairing()
    try:
        for batches in transactional_batches(plan, remote, incomplete):
            if batches is None:
                pairing = Pairing()
            else:
                yield pairing.take(batches), True
    except SourceError as error:
        incomplete.append(not_read(plan.log_dir.source, error))
    yield pairing.still_open(), False


class KnownTransactions:
    """Single transactions as the coordinators' log and the findings describe them."""

    def __init__(self, log: TransactionLog | None, findings: list[Finding]) -> None:
        self._log = log
        self._decisions: dict[tuple[int, int, TopicPartition], list[Decision]] = {}
        for decision in () if log is None else log.decisions:
            for where in decision.partitions:
                self._decisions.setdefault((decision.producer_id, decision.producer_epoch, where), []).append(decision)
        for decisions in self._decisions.values():
            decisions.sort(key=_decided_at)
        self._open: dict[tuple[TopicPartition, int], Finding] = {}
        self._forgotten: dict[TopicPartition, list[Finding]] = {}
        self.lost: dict[TopicPartition, list[Finding]] = {}
        """Committed transactions whose records a partition has lost."""
        self._torn: dict[tuple[TopicPartition, int, int | None], Finding] = {}
        for finding in findings:
            place = finding.place
            if not finding.kind.startswith("TXN_") or place.topic is None or place.partition is None:
                continue
            where, producer_id = (place.topic, place.partition), int(finding.evidence.get("producer_id", -1))
            if finding.kind in kinds_with(Trait.OPEN_TRANSACTION):
                self._open.setdefault((where, producer_id), finding)
                if "hidden_by_retention" in finding.evidence:
                    self._forgotten.setdefault(where, []).append(finding)
            elif finding.kind == "TXN_PARTLY_LOST":
                self.lost.setdefault(where, []).append(finding)
            elif finding.kind == "TXN_TORN":
                self._torn[where, producer_id, place.offset_start] = finding
        producers = {producer_id for producer_id, _, _ in self._decisions} | {producer_id for _, producer_id, _ in self._torn}
        self._producers = np.fromiter(producers.union(() if log is None else log.ids_of_producer), np.int64)

    def may_describe(self, producer_ids: "NDArray[np.int64]") -> "NDArray[np.bool_]":
        """Which of these producers may have ended transactions that the log or the findings describe."""
        return np.isin(producer_ids, self._producers) if len(self._producers) else np.zeros(len(producer_ids), np.bool_)

    def rows(
        self, context: "ReplicaContext", paired: "NDArray[np.int64]", last_stable_offset: int | None, *, ended: bool
    ) -> Iterator[TransactionRow]:
        """Transactions of one replica, columns by `TransactionColumn`, as rows with all that is known of each."""
        for numbers in paired.T.tolist():
            producer_id, epoch, first_offset, first_timestamp, last_offset, last_timestamp, batches, records, *marker = numbers
            row = TransactionRow(context.topic, context.partition, context.broker, "open", producer_id, epoch)
            row.transactional_id = self._transactional_id(producer_id)
            if batches:
                row.first_offset, row.last_offset, row.batches, row.records = first_offset, last_offset, batches, records
                row.first_timestamp, row.last_timestamp = first_timestamp, last_timestamp
            if ended:
                control, row.marker_offset, row.marker_timestamp, row.marker_epoch, coordinator_epoch = marker
                row.state = ENDED.get(control, "unknown") if batches else "empty"
                row.marker = MARKERS.get(control)
                row.coordinator_epoch = None if row.marker is None else coordinator_epoch
                self._add_decision(row)
            elif context.is_remote:
                row.state, row.reason = "unknown", "its marker is not in the remote store"
            else:
                self._add_judgement(row, last_stable_offset)
            yield row

    def _add_decision(self, row: TransactionRow) -> None:
        """Add the coordinator's decision, if it can be identified, to an ended transaction."""
        where = (row.topic, row.partition)
        torn = self._torn.get((where, row.producer_id, row.marker_offset))
        if torn is not None:
            self._add_evidence(row, torn.evidence, "torn")
            return
        named = self._decisions.get((row.producer_id, row.marker_epoch or 0, where), ())
        decision = fitting(named, row.marker_timestamp or 0, commit=row.marker == "COMMIT")
        if decision is not None:
            row.transactional_id, row.decided_timestamp = decision.transactional_id, decision.decided_timestamp
            row.coordinator_state = decision.coordinator_state
            row.partitions = [f"{topic}-{partition}" for topic, partition in decision.partitions]

    def _add_judgement(self, row: TransactionRow, last_stable_offset: int | None) -> None:
        where = (row.topic, row.partition)
        row.holds_last_stable_offset = row.first_offset == last_stable_offset
        row.last_stable_offset = last_stable_offset if row.holds_last_stable_offset else None
        torn = self._torn.get((where, row.producer_id, row.first_offset))
        finding = self._open.get((where, row.producer_id))
        if torn is not None:
            self._add_evidence(row, torn.evidence, "torn")
            row.safe_to_abort = False
        elif finding is not None:
            self._add_evidence(row, finding.evidence, "hanging" if finding.kind == "TXN_HANGING" else "open")

    def forgotten(self, where: TopicPartition, broker: int | str) -> Iterator[TransactionRow]:
        """Open transactions of a partition that only a producer snapshot lists, since retention deleted their records."""
        for finding in self._forgotten.get(where, ()):
            evidence = finding.evidence
            producer_id = int(evidence["producer_id"])
            row = TransactionRow(*where, broker, "open", producer_id, int(evidence["producer_epoch"]), evidence["first_offset"])
            row.last_offset, row.last_timestamp = evidence["last_offset"], evidence["last_timestamp"]
            row.holds_last_stable_offset, row.last_stable_offset = True, evidence["last_stable_offset"]
            self._add_evidence(row, evidence, "hanging" if finding.kind == "TXN_HANGING" else "open")
            yield row

    def lost_in(self, where: TopicPartition) -> Iterator[TransactionRow]:
        """Committed transactions of a partition that no copy holds; one row stands for all that a finding names."""
        for finding in self.lost.get(where, ()):
            evidence, broker = finding.evidence, finding.place.broker
            row = TransactionRow(*where, "" if broker is None else broker, "lost", -1, -1, finding.place.offset_start)
            row.producer_id, row.marker_epoch = int(evidence["producer_id"]), int(evidence["producer_epoch"])
            decisions = self._decisions.get((row.producer_id, row.marker_epoch, where), ())
            at_offset = (decision for decision in decisions if decision.offset == evidence.get("coordinator_offset"))
            # with transaction version 2 the coordinator raises the epoch before it writes the markers (KIP-890)
            is_raised = any(decision.client_transaction_version >= TV2 for decision in at_offset)
            row.producer_epoch = row.marker_epoch - 1 if is_raised and row.marker_epoch > 0 else row.marker_epoch
            self._add_evidence(row, evidence, "lost")
            yield row

    def hidden(self, where: TopicPartition, partition: TransactionStateCounts) -> Iterator[TransactionRow]:
        """Open transactions with damaged records that a producer snapshot lists."""
        for transaction in partition.hidden:
            begun = transaction.producer_id, transaction.producer_epoch, transaction.first_offset
            row = TransactionRow(*where, partition.plan.context.broker, "open", *begun)
            row.last_offset, row.last_timestamp = transaction.last_offset, transaction.last_timestamp
            row.holds_last_stable_offset = transaction.first_offset == partition.last_stable_offset
            row.last_stable_offset = partition.last_stable_offset if row.holds_last_stable_offset else None
            row.transactional_id = self._transactional_id(transaction.producer_id)
            evidence: Json = {"reason": "known from a producer snapshot; its records are damaged"}
            owners = [] if self._log is None or row.transactional_id is None else self._log.owners(transaction.producer_id)
            for metadata in (owner.metadata for owner in owners if owner.metadata is not None):
                evidence |= {"coordinator_state": metadata.state, "transaction_timeout_ms": metadata.transaction_timeout_ms}
            self._add_evidence(row, evidence, "open")
            yield row

    def _transactional_id(self, producer_id: int) -> str | None:
        if self._log is None or not self._log.knows_owners(producer_id):
            return None
        owners = self._log.owners(producer_id)
        return owners[0].transactional_id if len(owners) == 1 else None

    def _add_evidence(self, row: TransactionRow, evidence: Evidence, state: str) -> None:
        row.state = state
        row.transactional_id = evidence.get("transactional_id", row.transactional_id)
        row.coordinator_state = evidence.get("coordinator_state")
        row.reason = evidence.get("reason") or coordinators_word(evidence)
        row.safe_to_abort = evidence.get("safe_to_abort")
        row.find_hanging, row.command = evidence.get("find_hanging"), evidence.get("command")
        row.decided_timestamp = evidence.get("decided_timestamp")
        row.age_ms = evidence.get("transaction_age_ms", evidence.get("age_ms"))
        row.transaction_timeout_ms = evidence.get("transaction_timeout_ms")
        row.partitions = evidence.get("partitions_of_transaction")
        if row.partitions is None and state == "open" and self._log is not None:
            known = [owner.metadata.partitions for owner in self._log.owners(row.producer_id) if owner.metadata is not None]
            row.partitions = [f"{topic}-{partition}" for partitions in known for topic, partition in partitions] or None
