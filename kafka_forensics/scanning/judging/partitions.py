"""One partition, from folded replicas to findings and a summary; the same for every engine."""

from dataclasses import dataclass, field, replace

from kafka_forensics.analysis.incidents import SIGNATURES, Case, ReplicaFacts, matches
from kafka_forensics.analysis.kinds import Trait, finding as new_finding, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import (
    Comparison,
    beheaded,
    compare,
    damage_finding,
    group_findings,
    head_findings,
    judged_by_controller,
    missing_heads,
    missing_snapshots,
    own_findings,
    uncover_gaps,
    with_absent_members,
    with_heads,
    with_holders,
    with_records,
    with_remote_losses,
)
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.controller import ControllerHistory, TopicHistory
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.model.json_objects import Json, rfc3339
from kafka_forensics.model.offset_ranges import counted
from kafka_forensics.model.results import Agreement, Incomplete, PartitionSummary, Read, ReplicaSummary, TransactionCounts
from kafka_forensics.scanning.folding.index_files import SnapshotCheck, transaction_findings
from kafka_forensics.scanning.judging.absence import nodes_given
from kafka_forensics.scanning.judging.environment import missing_epochs, replica_file_findings
from kafka_forensics.scanning.judging.recovery_files import with_leftovers, with_lone_indexes, with_recovery
from kafka_forensics.scanning.judging.topic_ids import missing_topic_ids
from kafka_forensics.scanning.rereading.reader import LogReader, repeated_batches
from kafka_forensics.scanning.witnesses.controller import cleanup_policy, last_word, present_topic

# Signatures of known incidents, held against a partition once all is known of it.


def partition_matches(
    plans: list[ReplicaPlan],
    replicas: list[Replica],
    snapshots: list[SnapshotCheck],
    reader: LogReader,
    findings: list[Finding],
) -> list[Finding]:
    """The incidents that a partition matches, given all its findings; the first three lists go together, one each a replica."""
    every = zip(plans, replicas, snapshots, strict=True)
    facts = [_facts(*replica, reader) for replica in every if replica[1].read is not Read.NONE]
    features = snapshots[0].inputs.features if snapshots else {}
    return matches(Case(findings, facts, features), [signature for signature in SIGNATURES if not signature.whole_scan])


def scan_matches(findings: list[Finding], inputs: Inputs) -> list[Finding]:
    """The incidents that partitions match by findings made when all partitions were judged."""
    by_partition: dict[tuple[str | None, int | None], list[Finding]] = {}
    for finding in findings:
        by_partition.setdefault((finding.place.topic, finding.place.partition), []).append(finding)
    signatures = [signature for signature in SIGNATURES if signature.whole_scan]
    return [
        incident
        for of_partition in by_partition.values()
        for incident in matches(Case(of_partition, [], inputs.features), signatures)
    ]


def _facts(plan: ReplicaPlan, replica: Replica, snapshots: SnapshotCheck, reader: LogReader) -> ReplicaFacts:
    directory, log_dir = plan.directory, plan.log_dir
    inputs, context, meta = snapshots.inputs, plan.context, plan.log_dir.meta
    forgotten = {
        entry.producer_id: entry.current_txn_first_offset
        for entry in snapshots.open_entries
        if entry.current_txn_first_offset < replica.log_start_offset
    }
    return ReplicaFacts(
        replica,
        {segment.base_offset: segment.log.size_in_bytes for segment in directory.segments if segment.log is not None},
        sum(file.suffix == "deleted" for file in directory.leftovers),
        has_partition_metadata="partition.metadata" in directory.entries,
        has_snapshots=bool(directory.snapshots),
        meta_version=None if meta is None else meta.version,
        node_id=None if meta is None else meta.node_id,
        cluster_id=None if meta is None else meta.cluster_id,
        directory_id=None if meta is None else meta.directory_id,
        broker_epoch=None if log_dir.clean_shutdown is None else log_dir.clean_shutdown.broker_epoch,
        log_dirs=sum(log_dir.broker == context.broker for log_dir in inputs.log_dirs),
        relatives=sorted(inputs.relatives.get((context.broker, context.topic, context.partition), ())),
        ends_in_old_format=_ends_in_old_format(replica, reader),
        forgotten_transactions=forgotten,
        repeated_batches=repeated_batches(replica, reader),
    )


def _ends_in_old_format(replica: Replica, reader: LogReader) -> bool:
    """Whether the last batch has message format 0 or 1; only logs with batches that have no epoch are read again for that."""
    end = replica.log_end_offset
    if not replica.state.epochs.batches_without_epoch or replica.state.unread:
        return False
    last = reader.batches(replica, end - 1, end)
    return bool(last.shape[1]) and int(last[BatchColumn.MAGIC, -1]) < 2


@dataclass(slots=True)
class PartitionResult:
    """A partition's summary, its findings sorted, and what could not be read again."""

    summary: PartitionSummary
    findings: list[Finding]
    bytes: tuple[int, int, int]
    """Decoded, damaged, skipped, over all its replicas' `.log` files."""
    incomplete: list[Incomplete] = field(default_factory=list)


def judge_partition(
    plans: list[ReplicaPlan], replicas: list[Replica], snapshots: list[SnapshotCheck], reader: LogReader, inputs: Inputs
) -> PartitionResult:
    """Every finding about one partition. `plans`, `replicas` and `snapshots` go together, one each a replica."""
    judge = _PartitionJudge(plans, replicas, snapshots, reader, inputs)
    comparison, findings = judge.by_groups()
    for stage in (_once, judge.with_leftovers, judge.capped, judge.with_records, judge.with_incidents, judge.alone):
        findings = stage(findings)
    findings.sort(key=Finding.sort_key)
    framings = [replica.state.framing for replica in replicas]
    counted = (
        sum(fold.bytes_decoded for fold in framings),
        sum(fold.bytes_damaged for fold in framings),
        sum(fold.bytes_skipped for fold in framings),
    )
    return PartitionResult(judge.summary(comparison, findings), findings, counted, reader.incomplete)


class _PartitionJudge:
    """The stages from folded replicas to findings, in the order in which `judge_partition` names them."""

    def __init__(
        self, plans: list[ReplicaPlan], replicas: list[Replica], snapshots: list[SnapshotCheck], reader: LogReader, inputs: Inputs
    ) -> None:
        self._plans, self._replicas, self._snapshots, self._reader, self._inputs = plans, replicas, snapshots, reader, inputs

    def by_groups(self) -> tuple[Comparison, list[Finding]]:
        """Each replica by itself, and those of one topic id against each other."""
        groups, findings = identity_groups(self._plans, self._inputs.controller)
        findings += missing_topic_ids(self._plans, self._replicas, self._inputs)
        for group in groups:
            uncover_gaps([self._replicas[number] for number in group], self._reader)
        own = [self._own_findings(number) for number in range(len(self._replicas))]
        comparisons = []
        for group in groups:
            compared, judged = self._group_findings(group, own, is_only=len(groups) == 1)
            findings += judged
            members = [replica for replica in map(self._replicas.__getitem__, group) if replica.read is not Read.NONE]
            heads = missing_heads(members, self._reader)
            findings = with_heads([*head_findings(heads), *beheaded(members), *missing_snapshots(members)], findings)
            comparisons.append(compared)
        return _over_groups(comparisons, present_topic(groups, self._replicas)[0]), findings

    def _own_findings(self, number: int) -> list[Finding]:
        """What a replica's own files prove."""
        plan, replica, snapshot = self._plans[number], self._replicas[number], self._snapshots[number]
        findings = replica_file_findings(plan, self._plans, self._inputs)
        if replica.read is Read.NONE:
            return findings
        findings = [*findings, *missing_epochs(plan, replica), *own_findings(replica)]
        findings += transaction_findings(plan, replica, snapshot)
        findings = with_recovery(plan, replica, self._inputs, findings, self._reader.incomplete)
        return with_lone_indexes(plan, replica, self._inputs, findings)

    def _group_findings(self, group: list[int], own: list[list[Finding]], *, is_only: bool) -> tuple[Comparison, list[Finding]]:
        """What replicas of one topic id prove of each other, with the findings of each; `is_only`: there are no others."""
        reader = self._reader
        every = [self._replicas[number] for number in group]
        read = [number for number in group if self._replicas[number].read is not Read.NONE]
        members = [self._replicas[number] for number in read]
        compared = _compared(members, every, reader)
        compared.findings = with_remote_losses(members, compared.findings)
        if any(member.context.compacted for member in members):
            from kafka_forensics.scanning.judging.compaction import compacted_findings  # few partitions pay for it

            plans = [self._plans[number] for number in read]
            compared.findings += compacted_findings(plans, members, compared, reader, self._inputs.evidence)
        of_groups = group_findings(members, reader, compared, every) if is_only and members else []
        problems = [
            damage_finding(which, damage.kind, segment, damage, last=False, count=1) for which, segment, damage in reader.problems
        ]
        reader.problems.clear()
        findings = [*(finding for number in read for finding in own[number]), *compared.findings, *problems, *of_groups]
        held = with_holders(members, findings, compared, all_read=all(replica.read is Read.WHOLE for replica in every))
        known = compared.high_watermark, compared.witness
        judged = judged_by_controller(members, compared.conflicts, held, reader, nodes_given(self._inputs), known)
        return compared, with_absent_members(members, judged, reader) if members else judged

    def with_leftovers(self, findings: list[Finding]) -> list[Finding]:
        """With what leftovers beside the logs hold, and where they have offsets that are missing (`also_in`)."""
        context = self._replicas[0].context
        key = context.topic, context.partition
        return with_leftovers(key, self._replicas, self._inputs, findings, self._reader.incomplete)

    def capped(self, findings: list[Finding]) -> list[Finding]:
        """Where copies are of running brokers, what that may explain is not said louder than `info`."""
        is_live = any(replica.context.live for replica in self._replicas)
        return [_capped(finding) for finding in findings] if is_live else findings

    def with_records(self, findings: list[Finding]) -> list[Finding]:
        """With the number of records where committed offsets are lost, or may be."""
        return with_records(findings, self._replicas, self._reader, kinds_with(Trait.LOST_COMMITTED, Trait.COMMITTED_AT_RISK))

    def with_incidents(self, findings: list[Finding]) -> list[Finding]:
        """With the known incidents that all this matches."""
        return findings + partition_matches(self._plans, self._replicas, self._snapshots, self._reader, findings)

    def alone(self, findings: list[Finding]) -> list[Finding]:
        """Each marked where no other replica is there."""
        return [replace(finding, alone=True) for finding in findings] if len(self._replicas) == 1 else findings

    def summary(self, comparison: Comparison, findings: list[Finding]) -> PartitionSummary:
        """The row of the partition, by its findings."""
        context = self._replicas[0].context
        ids = {plan.context.topic_id for plan in self._plans} - {None}
        summary = PartitionSummary(
            context.topic,
            context.partition,
            next(iter(ids)) if len(ids) == 1 else None,
            cleanup_policy([replica.context for replica in self._replicas]),
            "unknown",
            comparison.high_watermark,
            comparison.witness,
            comparison.agreement,
            [summarise(replica) for replica in self._replicas],
            *last_word(self._replicas),
            is_tiered=any(replica.is_tiered for replica in self._replicas),
        )
        summary.judge(findings)
        return summary


def _over_groups(comparisons: list[Comparison], present: int) -> Comparison:
    """What is said of a partition whose replicas were compared in groups: a conflict in one is one; and not all were compared.
    What was committed is told of the present topic, which is one of them."""
    if len(comparisons) == 1:
        return comparisons[0]
    comparison = comparisons[present]
    conflict = next(
        (comparison.agreement for comparison in comparisons if comparison.agreement.kind == "conflict"), Agreement("not_compared")
    )
    return Comparison(conflict, [], comparison.high_watermark, comparison.witness)


def _compared(members: list[Replica], every: list[Replica], reader: LogReader) -> Comparison:
    """`members` of a group compared, which are those of which something could be read.

    Where a log of `every` one was not read whole, what is not known to differ was not compared; where none was read at all, nothing
    is known to be committed either.
    """
    if not members:
        return Comparison(Agreement("not_compared"))
    compared = compare(members, reader)
    unread = any(replica.read is not Read.WHOLE for replica in every) or bool(reader.incomplete)
    if unread and len(every) > 1 and compared.agreement.kind in ("identical", "prefix", "compacted"):
        compared.agreement = Agreement("not_compared")
    return compared


def summarise(replica: Replica) -> ReplicaSummary:
    """The row of one replica."""
    if replica.read is Read.NONE:
        return _unread(replica)
    context, state = replica.context, replica.state
    counts = state.transactions.counts()
    stable = state.transactions.last_stable_offset(context.high_watermark, replica.log_end_offset)
    whole = replica.read is Read.WHOLE
    gaps = counted(replica.course.gaps())
    return ReplicaSummary(
        context.broker,
        context.log_dir,
        context.directory,
        replica.log_start_offset,
        replica.local_log_start_offset,
        replica.log_end_offset if replica.end_is_known else None,
        context.high_watermark,
        stable if whole else None,
        context.recovery_point,
        [(entry.leader_epoch, entry.start_offset) for entry in replica.epochs],
        len(context.segment_base_offsets),
        state.framing.batches,
        state.framing.records,
        state.framing.bytes_decoded + state.framing.bytes_damaged + state.framing.bytes_skipped,
        gaps + state.continuity.missing_by_compaction,
        counts,
        replica.recovery,
        replica.read,
        None if whole else replica.course.end_offset,
    )


def _unread(replica: Replica) -> ReplicaSummary:
    """The row of a replica of whose log nothing could be read: what the names of its files and the checkpoints say."""
    context, listed = replica.context, not replica.context.log_unknown
    return ReplicaSummary(
        context.broker,
        context.log_dir,
        context.directory,
        log_start_offset=None,
        local_log_start_offset=None,
        log_end_offset=None,
        high_watermark=context.high_watermark,
        last_stable_offset=None,
        recovery_point=context.recovery_point,
        leader_epochs=None,
        segments=len(context.segment_base_offsets) if listed else None,
        batches=None,
        records=None,
        bytes=None,
        missing_offsets=None,
        transactions=TransactionCounts(None, None, None, None),
        read=Read.NONE,
    )


def _once(findings: list[Finding]) -> list[Finding]:
    """Drop a finding that says what another of its kind said of the same bytes (neighbours and replicas may both see it)."""
    seen: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        place = finding.place
        key = (
            (finding.kind, str(place.broker), place.file, place.byte_start, place.offset_start)
            if place.byte_start is not None
            else (id(finding),)
        )
        if key in seen:
            merged = {**seen[key].evidence, **{name: of for name, of in finding.evidence.items() if name not in seen[key].evidence}}
            if "witnesses" in finding.evidence:
                merged["witnesses"] = [*dict.fromkeys([*merged["witnesses"], *finding.evidence["witnesses"]])]
            seen[key] = replace(seen[key], evidence=merged)
        else:
            seen[key] = finding
    return list(seen.values())


def _capped(finding: Finding) -> Finding:
    """Of a live copy, what concerns the tail is at most `info`: the files are of different moments."""
    if finding.kind in kinds_with(Trait.HARMLESS_IF_LIVE) and finding.severity.rank > 0:
        return replace(finding.with_evidence(capped_by="--live"), severity=Severity.INFO)
    return finding


# Which copies of a partition are of one topic, by its id: those are compared with each other, and no others.


def identity_groups(plans: list[ReplicaPlan], controller: ControllerHistory | None = None) -> tuple[list[list[int]], list[Finding]]:
    """The replicas of one partition, by their numbers, in groups of one topic in one cluster by their ids; the finding if topics
    are more than one. A replica that tells no id belongs to the only topic and cluster there is, and to none of several.

    `controller` says which topic is the present one, and whose the other ids are.
    """
    topics = [plan.context.topic_id for plan in plans]
    clusters = [None if plan.log_dir.meta is None else plan.log_dir.meta.cluster_id for plan in plans]
    groups: dict[tuple[object, object], list[int]] = {}
    for number, ids in enumerate(zip(_among(topics), _among(clusters), strict=True)):
        groups.setdefault(ids, []).append(number)
    topic_of = {str(plan.context.broker): topic for plan, topic in zip(plans, topics, strict=True) if topic is not None}
    if len(set(topic_of.values())) < 2:
        return list(groups.values()), []
    place = Place(plans[0].context.topic, plans[0].context.partition)
    evidence = {"topic_ids": topic_of} | ({} if controller is None else topic_ids_explained(plans, controller))
    return list(groups.values()), [new_finding("TOPIC_ID_MISMATCH", place, evidence)]


def _among(ids: list[str | None]) -> list[object]:
    """The ids, an unknown one as one of its own if several are known, else as the one known."""
    known = set(ids) - {None}
    if len(known) < 2:
        return [None] * len(ids)
    return [number if topic_id is None else topic_id for number, topic_id in enumerate(ids)]


def topic_ids_explained(plans: list[ReplicaPlan], controller: ControllerHistory) -> Json:
    """Evidence on the copies of one partition that carry different topic ids; empty where the log does not know the partition.

    `present_topic_id` and the brokers that have it, `other_ids` (id → what it is), and `misplaced_on`: brokers whose copy has the
    id of a topic that exists under another name.
    """
    name = plans[0].context.topic
    present = controller.partitions.get((name, plans[0].context.partition))
    if present is None or present.topic_id is None:
        return {}
    evidence: Json = {"present_topic_id": present.topic_id, "present_on": [], "other_ids": {}}
    misplaced = []
    for plan in plans:
        context = plan.context
        if context.topic_id == present.topic_id:
            evidence["present_on"].append(context.broker)
        elif context.topic_id is not None:
            other = controller.topics.get(context.topic_id)
            evidence["other_ids"][context.topic_id] = _told(other)
            if other is not None and other.deleted_offset is None and other.topic not in ("", name):
                misplaced.append(context.broker)
    return evidence | ({"misplaced_on": misplaced} if misplaced else {})


def _told(topic: TopicHistory | None) -> str:
    if topic is None or not topic.topic:
        return "no topic it knows"
    if topic.deleted_offset is None:
        return f"topic {topic.topic}"
    time = None if topic.deleted_ms is None else rfc3339(topic.deleted_ms)
    return f"{topic.topic}, deleted" + ("" if time is None else f" {time[:19]}Z")
