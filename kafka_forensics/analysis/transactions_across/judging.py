"""Transactions as all partitions and the coordinators' log show them together: hanging, torn, lost in part, or only open."""

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.internal_topics import will_be_ended
from kafka_forensics.analysis.kinds import Trait, finding, kinds_with, with_premises
from kafka_forensics.analysis.replicas import electable, member_lacks
from kafka_forensics.analysis.transactions import OFFSET, PRODUCER_EPOCH, PRODUCER_ID, TIMESTAMP, TYPE
from kafka_forensics.analysis.transactions_across.decisions import (
    SKEW_MS,
    TV2,
    CommitDecisions,
    Contradiction,
    contradictions,
    disagreements,
)
from kafka_forensics.analysis.transactions_across.facts import CollectedFacts, PartitionFacts, PartitionTransactionFacts
from kafka_forensics.model.constants import CONSUMER_OFFSETS_TOPIC, CONTROL_COMMIT
from kafka_forensics.model.coordinators import (
    DEFAULT_MAX_TIMEOUT_MS,
    LATE_BUFFER_MS,
    Decision,
    GroupHistory,
    LoggedState,
    TransactionLog,
)
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity, TopicPartition
from kafka_forensics.model.json_objects import Json
from kafka_forensics.model.results import PartitionSummary, ReadExtent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.analysis.kinds.evidence_classes import TransactionDecidedEvidence


MAX_LISTED: Final = 16
_COORDINATOR_LOG: Final = "__transaction_state as copied, one copy of each partition"
_UNJUDGED: Final[Json] = {"safe_to_abort": None, "not_judged": True}
"""Of an open transaction whose state at the coordinator is unknown."""

Decided = Mapping[tuple[int, int], Sequence[Decision]]
"""(producer id, producer epoch) → what the coordinators completed."""


class CrossPartitionTransactions:
    """Collects the facts of every partition, and judges once all are known."""

    def __init__(
        self,
        log: TransactionLog | None,
        as_of_ms: int | None,
        controller_ms: int | None = None,
        groups: GroupHistory | None = None,
    ) -> None:
        self._log = log
        self._groups = groups or GroupHistory()
        self._as_of = as_of_ms
        self._controller_ms = controller_ms
        """When the controller wrote the last record of its log."""
        self._grace_ms = LATE_BUFFER_MS if as_of_ms is None else 0
        """How long copies of different times may show a transaction open beyond its timeout."""
        self._facts = CollectedFacts()
        self._commits: CommitDecisions | None = None

    def take(self, transactions: PartitionTransactionFacts) -> None:
        """Add a partition."""
        self._facts.take(transactions)

    @property
    def as_of(self) -> int:
        """The time to which ages count, in ms: the requested one, or the newest timestamp set by a broker, or else the newest of
        all."""
        return self._facts.newest_timestamp if self._broker_as_of < 0 else self._broker_as_of

    @property
    def _broker_as_of(self) -> int:
        """The same without clients' timestamps, which may be years ahead; -1: no broker set any."""
        newest = -1 if self._log is None else self._log.newest_timestamp
        controller = -1 if self._controller_ms is None else self._controller_ms
        return max(newest, controller, self._facts.broker_timestamp) if self._as_of is None else self._as_of

    def finish(self, findings: list[Finding], partitions: list[PartitionSummary]) -> list[Finding]:
        """`findings` with every TXN_OPEN judged and new findings added; `partitions` are updated."""
        facts = self._facts.partitions
        torn = [] if self._log is None else contradictions(self._log, facts, self._broker_as_of, self._facts.reached)
        ended = {
            (contradiction.topic_partition, contradiction.decision.producer_id)
            for contradiction in torn
            if contradiction.reason == "no_marker"
        }
        judged: list[Finding] = []
        hanging: dict[tuple[TopicPartition, int], Finding] = {}
        for found in [
            *findings,
            *(opened for _, partition_facts in sorted(facts.items()) for opened in _forgotten(partition_facts)),
        ]:
            key = _transaction(found)
            if key is None:
                judged.append(found)
            elif key not in ended:
                result = self._open(found, facts.get(key[0]), key[0])
                if result.kind == "TXN_HANGING":
                    hanging[key] = result
                judged.append(result)
        judged = [finding for finding in judged if _transaction(finding) not in hanging and finding.kind != "TXN_HANGING"]
        judged += hanging.values()
        judged += [_contradiction_finding(contradiction, facts[contradiction.topic_partition], self._log) for contradiction in torn]
        if self._log is None:
            judged += disagreements(facts, self._broker_as_of)
        else:
            decided = completed_decisions(self._log)
            by_partition: dict[TopicPartition, list[Finding]] = {
                topic_partition: [] for topic_partition, partition_facts in facts.items() if partition_facts.beyond
            }
            for found in judged if by_partition else ():
                if (topic_partition := (found.place.topic or "", found.place.partition or 0)) in by_partition:
                    by_partition[topic_partition].append(found)
            for summary in partitions:
                if (topic_partition := (summary.topic, summary.partition)) in by_partition:
                    judged += committed_beyond(facts[topic_partition], summary, decided, by_partition[topic_partition])
        _update_summaries(partitions, findings, judged, set(hanging))
        return judged

    def _open(self, subject: Finding, facts: PartitionFacts | None, where: TopicPartition) -> Finding:
        """An open transaction with everything known about it."""
        written = int(subject.evidence["last_timestamp"])
        written = written if facts is None else max(written, facts.written_after(int(subject.evidence["last_offset"])))
        evidence: Json = {**subject.evidence, "as_of": self.as_of, "age_ms": max(self.as_of - written, 0)}
        producer_id = int(evidence["producer_id"])
        if ended_on := _ended_on(evidence, facts):
            return replace(subject, evidence={**evidence, "ended_on": ended_on, "safe_to_abort": False})
        if where[0] == CONSUMER_OFFSETS_TOPIC and (waiting := self._groups.waiting_for(where[1], producer_id)):
            evidence |= {"waiting_groups": waiting[:MAX_LISTED], "waiting_groups_count": len(waiting)}
        if self._log is None:
            return self._without_coordinator(subject, evidence)
        owners = self._log.owners(producer_id)
        evidence |= _described(owners)
        timeouts = [logged_state.metadata.transaction_timeout_ms for logged_state in owners if logged_state.metadata]
        timeout = max([DEFAULT_MAX_TIMEOUT_MS, *timeouts])
        late = evidence["age_ms"] > timeout + LATE_BUFFER_MS
        unknown = self._unknown(producer_id)
        listing = [logged_state for logged_state in owners if will_be_ended(logged_state, *where)]
        overdue = self._overdue(listing)
        if overdue is not None:
            return replace(subject, severity=Severity.WARNING, confidence=Confidence.SUSPECTED, evidence=evidence | overdue)
        if listing:
            return replace(subject, evidence=evidence | {"safe_to_abort": False, "coordinator": "will end it"})
        if unknown is not None:
            return replace(subject, evidence=evidence | unknown | _UNJUDGED)
        unlisted: Json = {"safe_to_abort": None, "coordinator": "does not list it"}
        suspected = replace(subject, severity=Severity.WARNING, confidence=Confidence.SUSPECTED)
        if not late:
            not_due = {"safe_to_abort": False, "look_again_at": written + timeout + LATE_BUFFER_MS}
            return replace(subject, evidence=evidence | unlisted | not_due)
        evidence["find_hanging"] = find_hanging_command(*where, timeout)
        last_state = max((logged_state.timestamp for logged_state in owners), default=0)
        later_copy = facts is not None and facts.broker_timestamp >= last_state  # then the copy would have a marker
        if facts is None or (facts.context.live and not later_copy):
            evidence["command"] = abort_command(*where, int(evidence["first_offset"]))
            if self._as_of is None:  # its log may have been copied before others
                return replace(subject, evidence=evidence | unlisted)
            return replace(suspected, evidence=evidence | unlisted | {"late": True})
        if self._broker_as_of < 0:
            return replace(suspected, evidence=evidence | unlisted | {"late": True})
        return self._hanging(subject, evidence, facts, owners)

    def _overdue(self, listing: list[LoggedState]) -> Json | None:
        """Evidence of a transaction that its coordinator still lists after its timeout; None if there is none."""
        for logged_state in listing:
            metadata = logged_state.metadata
            if metadata is None or metadata.start_timestamp < 0 or metadata.transaction_timeout_ms < 0:
                continue
            late = self.as_of - metadata.start_timestamp - metadata.transaction_timeout_ms
            if metadata.state != "Ongoing":  # decided: only its markers are missing
                if metadata.last_update_timestamp < 0:
                    continue
                late = self.as_of - metadata.last_update_timestamp - DEFAULT_MAX_TIMEOUT_MS
            if late > self._grace_ms:
                age = self.as_of - metadata.start_timestamp
                known = {"overdue": True, "transaction_age_ms": age, "transaction_timeout_ms": metadata.transaction_timeout_ms}
                return known | {"coordinator": "should have ended it", "safe_to_abort": None}
        return None

    def _without_coordinator(self, subject: Finding, evidence: Json) -> Finding:
        """Without the coordinators' log, only the transaction's timestamps show that it is overdue, not that it hangs."""
        evidence |= {"coordinator": "not among the copies"} | _UNJUDGED
        if evidence["age_ms"] <= DEFAULT_MAX_TIMEOUT_MS + self._grace_ms:
            return replace(subject, evidence=evidence)
        return replace(subject, severity=Severity.WARNING, confidence=Confidence.SUSPECTED, evidence=evidence | {"late": True})

    def _unknown(self, producer_id: int) -> Json | None:
        """Why the log does not show whether a transaction of this producer id will still be ended; None if it does."""
        log = self._log
        assert log is not None
        for transactional_id in log.ids_of_producer.get(producer_id, ()):
            if transactional_id in log.unknown_ids:
                return {"coordinator": "unknown", "unknown_after_offset": log.unknown_ids[transactional_id][1] - 1}
            last = log.states.get(transactional_id)
            if last is not None and last.partition in log.unknown_from:
                return {"coordinator": "unknown", "unknown_after_offset": log.unknown_from[last.partition] - 1}
        if log.complete or (log.owners(producer_id) and log.knows_owners(producer_id)):
            return None
        offsets = [*log.unknown_from.values(), *(offset for _, offset in log.unknown_ids.values())]
        known = {"unknown_after_offset": min(offsets) - 1} if offsets else {}
        return {"coordinator": "unknown", "missing_partitions": log.missing[:MAX_LISTED]} | known

    def _hanging(self, subject: Finding, evidence: Json, facts: PartitionFacts, owners: list[LoggedState]) -> Finding:
        not_expired = [logged_state for logged_state in owners if logged_state.metadata is not None]
        reason = "no_transactional_id" if not owners else "partition_not_listed" if not_expired else "no_description"
        context = facts.context
        producer_id, epoch = int(evidence["producer_id"]), int(evidence["producer_epoch"])
        began = int(evidence["first_timestamp"])
        committed = self._committed_elsewhere(producer_id, epoch, context.topic_partition, began)
        opened = facts.open.get(producer_id)
        place = subject.place if opened is None else opened.place(context)
        evidence = evidence | {
            "reason": reason,
            "last_stable_offset": facts.last_stable_offset if opened is not None else evidence["last_stable_offset"],
            "open_on": facts.brokers,
            "safe_to_abort": not committed,
            "command": abort_command(context.topic, context.partition, int(evidence["first_offset"])),
            "premises": [_COORDINATOR_LOG, "transaction.max.timeout.ms is not above 15 minutes, nor above the timeout of the id"],
        }
        if committed:
            evidence["committed_in"] = committed
        late_marker = facts.marker_before(producer_id, int(evidence["first_offset"]), began)
        if late_marker is not None:
            evidence["late_write_after"] = late_marker
        return finding(
            "TXN_HANGING", place, evidence, confidence=subject.confidence if subject.confidence is not Confidence.PROVEN else None
        )

    def _committed_elsewhere(self, producer_id: int, epoch: int, where: TopicPartition, began: int) -> list[str]:
        """Partitions of a commit, decided since the transaction began, that may include it: then an abort would undo a part of a
        committed transaction."""
        assert self._log is not None
        self._commits = self._commits or CommitDecisions(self._log.decisions)
        named: dict[str, None] = {}
        for decision in self._commits.of(producer_id, where):
            if decision.producer_epoch >= epoch and decision.decided_timestamp >= began:
                named |= {f"{topic}-{partition}": None for topic, partition in decision.partitions if (topic, partition) != where}
            if len(named) >= MAX_LISTED:
                break
        return list(named)[:MAX_LISTED]


def abort_command(topic: str, partition: int, first_offset: int) -> str:
    """The command that aborts a hanging transaction on a running cluster (Kafka 3.0 and later)."""
    where = f"--topic {shlex.quote(topic)} --partition {partition} --start-offset {first_offset}"
    return f"kafka-transactions.sh --bootstrap-server HOST:PORT abort {where}"


def find_hanging_command(topic: str, partition: int, timeout_ms: int) -> str:
    """The command that checks on a running cluster whether a transaction hangs (Kafka 3.0 and later)."""
    where = f"--topic {shlex.quote(topic)} --partition {partition} --max-transaction-timeout {-(-timeout_ms // 60_000)}"
    return f"kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging {where}"


def _described(owners: list[LoggedState]) -> Json:
    """The coordinator's last state of the ids that have or had a producer id."""
    if not owners:
        return {}
    last = max(owners, key=lambda logged_state: logged_state.timestamp)
    evidence: Json = {"transactional_id": last.transactional_id, "coordinator_state": "expired"}
    if last.metadata is not None:
        evidence |= {
            "coordinator_state": last.metadata.state,
            "transaction_timeout_ms": last.metadata.transaction_timeout_ms,
            "transaction_start_timestamp": last.metadata.start_timestamp,
        }
    return evidence


def _forgotten(facts: PartitionFacts) -> list[Finding]:
    """Transactions that are open in the snapshot and no longer in the log, as open transactions."""
    start, end = facts.log_start_offset, facts.log_end_offset
    return [
        finding(
            "TXN_OPEN",
            facts.context.place(offset_start=start, offset_end=max(end, start)),
            {
                "producer_id": transaction.producer_id,
                "producer_epoch": transaction.producer_epoch,
                "first_offset": transaction.first_offset,
                "last_offset": transaction.last_offset,
                "first_timestamp": transaction.last_timestamp,
                "last_timestamp": transaction.last_timestamp,
                "last_stable_offset": start,
                "hidden_records": max(end - start, 0),
                "hidden_by_retention": True,
            },
            confidence=Confidence.INFERRED,
        )
        for transaction in facts.forgotten
    ]


def _transaction(subject: Finding) -> tuple[TopicPartition, int] | None:
    """Partition and producer id of an open transaction; None for any other finding."""
    place = subject.place
    if subject.kind != "TXN_OPEN" or place.topic is None or place.partition is None:
        return None
    return (place.topic, place.partition), int(subject.evidence["producer_id"])


def _ended_on(evidence: Json, facts: PartitionFacts | None) -> list[int | str]:
    """Brokers whose logs have the end of a transaction reported as open."""
    if facts is None:
        return []
    producer_id = int(evidence["producer_id"])
    opened = facts.open.get(producer_id)
    is_still_open = opened is not None and opened.first_offset == evidence["first_offset"]
    here = [] if is_still_open or "hidden_by_retention" in evidence else [facts.context.broker]
    return facts.ended_elsewhere.get(producer_id) or here


def _contradiction_finding(contradiction: Contradiction, facts: PartitionFacts, log: TransactionLog | None) -> Finding:
    decision = contradiction.decision
    context = facts.context
    evidence: TransactionDecidedEvidence = {
        "reason": contradiction.reason,
        "transactional_id": decision.transactional_id,
        "producer_id": decision.producer_id,
        "producer_epoch": decision.producer_epoch,
        "decision": "commit" if decision.commit else "abort",
        "coordinator_state": decision.coordinator_state,
        "partitions_of_transaction": [f"{topic}-{partition}" for topic, partition in decision.partitions[:MAX_LISTED]],
        "decided_timestamp": decision.decided_timestamp,
        "completed_timestamp": decision.completed_timestamp,
        "coordinator_partition": decision.log_partition,
        "coordinator_offset": decision.offset,
        "brokers": facts.brokers,
        "premises": [_COORDINATOR_LOG, f"the log of broker {context.broker}, which has the highest end"],
    }
    if contradiction.continuing_broker is not None:
        others = f"other logs of broker {contradiction.continuing_broker} continue after it"
        evidence["premises"].append(f"the copies are from stopped brokers, since --live was not given: {others}")
    if contradiction.since_creation:
        evidence["premises"] += ["the controller's log has the topic before the decision, and this log begins at offset 0"]
    if log is not None and decision.log_partition in log.partitions:
        evidence["coordinator_broker"] = log.partitions[decision.log_partition]
    place = context.place(offset_start=contradiction.offset_start, offset_end=contradiction.offset_end)
    if contradiction.marker is not None:
        segment, position, size = contradiction.marker
        file = context.place(context.log_file(segment)).file
        place = replace(place, file=file, byte_start=position, byte_end=position + size)
    kind, severity = ("TXN_PARTLY_LOST", None) if contradiction.lost else ("TXN_TORN", None if decision.commit else Severity.ERROR)
    if contradiction.lost:
        evidence["held_by"] = []
    if contradiction.continuing_broker is not None:  # the copies may be of running brokers, copied one partition after another
        return finding(kind, place, evidence, severity=Severity.WARNING, confidence=Confidence.SUSPECTED)
    # without the controller's log, a gap may be one that a cleaner left
    doubtful = contradiction.lost and contradiction.offset_start is not None and context.control is None
    return finding(kind, place, evidence, severity=severity, confidence=Confidence.SUSPECTED if doubtful else None)


def _update_summaries(
    partitions: list[PartitionSummary], before: list[Finding], after: list[Finding], hanging: set[tuple[TopicPartition, int]]
) -> None:
    """Update the verdicts of partitions whose findings changed, and the number of hanging transactions of each replica."""
    unchanged = {id(finding) for finding in before}
    changed = {
        (finding.place.topic, finding.place.partition)
        for finding in [*before, *after]
        if finding.kind.startswith("TXN_") or (id(finding) not in unchanged and finding.place.topic is not None)
    }
    by_partition: dict[tuple[str | None, int | None], list[Finding]] = {key: [] for key in changed}
    for judged in after:
        if (judged.place.topic, judged.place.partition) in by_partition:
            by_partition[judged.place.topic, judged.place.partition].append(judged)
    places = (finding.place for finding in before if _transaction(finding) in hanging)
    counts = Counter((place.topic, place.partition, place.broker) for place in places)
    for summary in partitions:
        if (summary.topic, summary.partition) in by_partition:
            summary.judge(by_partition[summary.topic, summary.partition])
            for replica in summary.replicas:
                if replica.transactions.hanging is not None:
                    replica.transactions.hanging = counts[summary.topic, summary.partition, replica.broker]


class MarkerProof(Struct, frozen=True):
    """Records before `end_offset` of one copy's log were committed: a completed transaction's marker is there."""

    end_offset: int
    transactional_id: str
    timestamp_ms: int
    """Of the marker, by its leader's clock."""


def completed_decisions(log: TransactionLog) -> Decided:
    """The decisions that the coordinators' log shows as completed."""
    decisions: dict[tuple[int, int], list[Decision]] = {}
    for decision in log.decisions:
        if decision.completed_timestamp is not None:
            decisions.setdefault((decision.producer_id, decision.producer_epoch), []).append(decision)
    return decisions


def proof_by_marker(
    rows: "NDArray[np.int64]", log_end_offset: int, partition: TopicPartition, decided: Decided
) -> MarkerProof | None:
    """The last marker of a log that proves all records before it committed.

    A coordinator completes a transaction when every partition's leader has its marker from the whole ISR, so all records up to the
    marker are committed. From transaction version 2 on each transaction has its own epoch; before, the marker must be older than a
    later completion of its producer, by more than clocks differ. A leader that is replaced before it answers may leave a marker
    that no other replica has, and the next leader gets another: after a fork the answered one is unknown.
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


def committed_beyond(
    facts: PartitionFacts, summary: PartitionSummary, decided: Decided, known_findings: Sequence[Finding]
) -> Iterator[Finding]:
    """`ISR_MEMBER_MISSING_COMMITTED`, or `LRS_RISK`, of replicas that may be elected and end before a marker that proves more
    committed than any high watermark; updates `summary`.

    Only for logs that were read completely and agree as far as they go, if the controller's log is not older than the marker; not
    if `known_findings` report a loss, nor for a broker with several copies.
    """
    control = facts.context.control
    agrees = summary.agreement.kind in _AGREEING and summary.read is ReadExtent.WHOLE
    if control is None or not facts.beyond or not agrees or any(found.kind in _REPORTED_KINDS for found in known_findings):
        return
    furthest = _furthest_proof(facts, decided, control.as_of_ms)
    if furthest is None:
        return
    proof, broker = furthest
    witness = f"transaction marker {proof.end_offset - 1} of {proof.transactional_id} on broker {broker}"
    holders = [replica for replica in summary.replicas if (replica.log_end_offset or 0) >= proof.end_offset]
    first = min((replica.log_start_offset or 0 for replica in holders), default=0)
    node_of, members = dict(zip(facts.brokers, facts.nodes, strict=True)), electable(control)
    for replica in summary.replicas:
        node, end = node_of.get(replica.broker), replica.log_end_offset or 0
        start = max(end, first)
        if node is None or node not in members or facts.nodes.count(node) > 1 or start >= proof.end_offset:
            continue
        topic_partition = facts.context.topic_partition
        place = Place(*topic_partition, replica.broker, replica.log_dir, offset_start=start, offset_end=proof.end_offset)
        log = {"witness": witness, "log_end_offset": end}
        lacking = member_lacks(control, node, place, log, [holder.broker for holder in holders], stopped=facts.clean)
        yield with_premises(lacking, control.premises)
    if proof.end_offset > (summary.high_watermark_at_least or 0):
        summary.high_watermark_at_least, summary.high_watermark_witness = proof.end_offset, witness


def _furthest_proof(facts: PartitionFacts, decided: Decided, as_of_ms: int | None) -> tuple[MarkerProof, int | str] | None:
    """The marker that proves most committed, and its broker; none newer than the controller's log."""
    if as_of_ms is None:
        return None
    key = facts.context.topic_partition
    proofs = ((proof_by_marker(beyond.rows, beyond.log_end_offset, key, decided), beyond.broker) for beyond in facts.beyond)
    older = [(proof, broker) for proof, broker in proofs if proof is not None and proof.timestamp_ms <= as_of_ms]
    return max(older, key=lambda pair: pair[0].end_offset, default=None)


_AGREEING: Final = frozenset({"identical", "prefix", "missing", "compacted"})
_REPORTED_KINDS: Final = kinds_with(Trait.LOST_BY_ELECTION, Trait.ELECTION_MAY_LOSE) | {"FORK_BELOW_HW"}
