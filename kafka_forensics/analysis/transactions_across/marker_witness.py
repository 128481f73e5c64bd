"""Transaction markers as witnesses: what lay before one when its coordinator was done was committed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.catalogue import on_premises
from kafka_forensics.analysis.replicas import electable, member_lacks
from kafka_forensics.analysis.transactions import OFFSET, PRODUCER_EPOCH, PRODUCER_ID, TIMESTAMP, TYPE
from kafka_forensics.analysis.transactions_across.decided import SKEW_MS, TV2
from kafka_forensics.analysis.transactions_across.facts import PartitionFacts
from kafka_forensics.model.constants import CONTROL_COMMIT
from kafka_forensics.model.controller import PartitionControl
from kafka_forensics.model.coordinators import Decision, TopicPartition, TransactionLog
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.results import PartitionSummary, Read, ReplicaSummary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Decided = Mapping[tuple[int, int], Sequence[Decision]]
"""(producer id, producer epoch) → what the coordinators completed."""


@dataclass(frozen=True, slots=True)
class MarkerProof:
    """Records before `end_offset` of one copy's log were committed: a transaction's marker stands there."""

    end_offset: int
    transactional_id: str
    timestamp_ms: int
    """Of the marker, by its leader's clock."""


def completed(log: TransactionLog) -> Decided:
    """What the coordinators' log says was completed."""
    decisions: dict[tuple[int, int], list[Decision]] = {}
    for decision in log.decisions:
        if decision.completed_timestamp is not None:
            decisions.setdefault((decision.producer_id, decision.producer_epoch), []).append(decision)
    return decisions


def proven_by(rows: "NDArray[np.int64]", log_end_offset: int, partition: TopicPartition, decided: Decided) -> MarkerProof | None:
    """The furthest marker of a log that proves what lies before it committed.

    A coordinator completes a transaction when every partition's leader has its marker from the whole ISR, so that all up to the
    marker is committed. From transaction version 2 on each transaction has its own epoch; before, the marker must be older than a
    later completion of its producer, by more than clocks differ. A leader that is replaced before it answers may leave a marker
    that nobody else has, and the next one is sent another: where logs part nothing tells which of them was answered for.
    """
    for row in rows[rows[:, OFFSET].argsort()[::-1]].tolist():
        if row[OFFSET] >= log_end_offset:
            continue
        for decision in decided.get((row[PRODUCER_ID], row[PRODUCER_EPOCH]), ()):
            assert decision.completed_timestamp is not None
            same = decision.client_transaction_version >= TV2 and decision.commit == (row[TYPE] == CONTROL_COMMIT)
            older = 0 <= row[TIMESTAMP] <= decision.completed_timestamp - SKEW_MS
            if older or (same and partition in decision.partitions):
                return MarkerProof(row[OFFSET] + 1, decision.transactional_id, row[TIMESTAMP])
    return None


def _may_be_judged(facts: PartitionFacts, summary: PartitionSummary, known_findings: Sequence[Finding]) -> bool:
    alike = summary.agreement.kind in _ALIKE and summary.read is Read.WHOLE
    return bool(facts.beyond) and alike and not any(known.kind in _TOLD for known in known_findings)


def _electable_replicas(
    facts: PartitionFacts, summary: PartitionSummary, control: PartitionControl
) -> Iterator[tuple[ReplicaSummary, int | str]]:
    """Replicas that may be elected, with their nodes; none of a broker of which there are several copies."""
    node_of = dict(zip(facts.brokers, facts.nodes, strict=True))
    members = electable(control)
    for replica in summary.replicas:
        node = node_of.get(replica.broker)
        if node is not None and node in members and facts.nodes.count(node) == 1:
            yield replica, node


def committed_beyond(
    facts: PartitionFacts, summary: PartitionSummary, decided: Decided, known_findings: Sequence[Finding]
) -> Iterator[Finding]:
    """`ISR_MEMBER_MISSING_COMMITTED`, or `LRS_RISK`, of replicas that may be elected and end before a marker which proves more
    committed than any high watermark; brings `summary` up to date.

    Said of logs that were read whole and agree as far as they go, where the controllers' log is not older than the marker; not
    again where a loss is `known_findings`.
    """
    control = facts.context.control
    if control is None or not _may_be_judged(facts, summary, known_findings):
        return
    furthest = _furthest_proof(facts, decided, control.as_of_ms)
    if furthest is None:
        return
    proof, broker = furthest
    witness = f"transaction marker {proof.end_offset - 1} of {proof.transactional_id} on broker {broker}"
    holders = [replica for replica in summary.replicas if (replica.log_end_offset or 0) >= proof.end_offset]
    first = min((replica.log_start_offset or 0 for replica in holders), default=0)
    for replica, node in _electable_replicas(facts, summary, control):
        end = replica.log_end_offset or 0
        start = max(end, first)
        if start >= proof.end_offset:
            continue
        topic_partition = facts.context.topic, facts.context.partition
        place = Place(*topic_partition, replica.broker, replica.log_dir, offset_start=start, offset_end=proof.end_offset)
        log = {"witness": witness, "log_end_offset": end}
        lacking = member_lacks(control, node, place, log, [holder.broker for holder in holders], stopped=facts.clean)
        yield on_premises(lacking, control.premises)
    if proof.end_offset > (summary.high_watermark_at_least or 0):
        summary.high_watermark_at_least, summary.high_watermark_witness = proof.end_offset, witness


def _furthest_proof(facts: PartitionFacts, decided: Decided, as_of_ms: int | None) -> tuple[MarkerProof, int | str] | None:
    """The marker that proves most committed, and on which broker; none that is newer than the controllers' log."""
    if as_of_ms is None:
        return None
    key = facts.context.topic, facts.context.partition
    proofs = [(proven_by(beyond.rows, beyond.log_end_offset, key, decided), beyond.broker) for beyond in facts.beyond]
    known = [(proof, broker) for proof, broker in proofs if proof is not None and proof.timestamp_ms <= as_of_ms]
    return max(known, key=lambda pair: pair[0].end_offset, default=None)


_ALIKE: Final = frozenset({"identical", "prefix", "missing", "compacted"})
_TOLD: Final = frozenset({"UNCLEAN_LOSS", "LRS_LOSS", "FORK_BELOW_HW", "ISR_MEMBER_MISSING_COMMITTED", "LRS_RISK"})
