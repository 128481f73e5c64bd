"""Judging one partition: from folded replicas to findings and a summary, the same for every engine."""

from collections.abc import Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from kafka_forensics.analysis.incidents import SIGNATURES, PartitionEvidence, ReplicaFacts, match_signatures
from kafka_forensics.analysis.kinds import Trait, finding as new_finding, kinds_with
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import (
    Comparison,
    ReferenceAgreement,
    add_unexplained_gaps,
    compare,
    damage_finding,
    group_findings,
    log_starts_missing_by_epochs,
    missing_log_start_findings,
    missing_log_starts,
    missing_snapshots,
    reference_agreements,
    remote_log_findings,
    single_replica_findings,
    with_absent_members,
    with_controller_findings,
    with_holders,
    with_missing_log_starts,
    with_records,
    with_remote_losses,
)
from kafka_forensics.evidence.inputs import Inputs, ReplicaPlan
from kafka_forensics.model.batches import BatchColumn
from kafka_forensics.model.controller import ControllerHistory, TopicHistory
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.model.json_objects import Json, rfc3339
from kafka_forensics.model.offset_ranges import counted
from kafka_forensics.model.results import Agreement, Incomplete, PartitionSummary, ReadExtent, ReplicaSummary, TransactionCounts
from kafka_forensics.scanning.folding.index_files import SnapshotCheck, transaction_findings
from kafka_forensics.scanning.judging.absence import nodes_with_copies
from kafka_forensics.scanning.judging.environment import missing_epochs, missing_topic_ids, replica_file_findings
from kafka_forensics.scanning.judging.recovery_files import with_indexes_without_log, with_leftovers, with_recovery
from kafka_forensics.scanning.judging.remote_logs import judge_remote_logs
from kafka_forensics.scanning.rereading.reader import LogReader, repeated_batches
from kafka_forensics.scanning.witnesses.controller import cleanup_policy, latest_controller_state, present_topic


def scan_matches(findings: list[Finding], inputs: Inputs) -> list[Finding]:
    """The known incidents that partitions match by findings made after all partitions were judged."""
    by_partition: dict[tuple[str | None, int | None], list[Finding]] = {}
    for finding in findings:
        by_partition.setdefault((finding.place.topic, finding.place.partition), []).append(finding)
    signatures = [signature for signature in SIGNATURES if signature.whole_scan]
    cases = (PartitionEvidence(of_partition, [], inputs.features) for of_partition in by_partition.values())
    return [incident for case in cases for incident in match_signatures(case, signatures)]


def _replica_facts(plan: ReplicaPlan, replica: Replica, snapshots: SnapshotCheck, reader: LogReader) -> ReplicaFacts:
    """The facts of a replica that signatures of incidents use."""
    directory, log_dir, meta = plan.directory, plan.log_dir, plan.log_dir.meta
    inputs, context = snapshots.inputs, plan.context
    facts = ReplicaFacts(
        replica,
        {log.base_offset: log.entry.size_in_bytes for log in directory.logs()},
        sum(file.suffix == "deleted" for file in directory.leftovers),
        has_partition_metadata="partition.metadata" in directory.entries,
        has_snapshots=bool(directory.snapshots),
        broker_epoch=None if log_dir.clean_shutdown is None else log_dir.clean_shutdown.broker_epoch,
        log_dirs=sum(log_dir.broker == context.broker for log_dir in inputs.log_dirs),
        relatives=sorted(inputs.relatives.get((context.broker, context.topic, context.partition), ())),
        ends_in_old_format=_ends_in_old_format(replica, reader),
        forgotten_transactions={
            entry.producer_id: entry.current_txn_first_offset
            for entry in snapshots.open_entries
            if entry.current_txn_first_offset < replica.log_start_offset
        },
        repeated_batches=repeated_batches(replica, reader),
    )
    if meta is not None:
        facts.meta_version, facts.node_id = meta.version, meta.node_id
        facts.cluster_id, facts.directory_id = meta.cluster_id, meta.directory_id
    return facts


def _ends_in_old_format(replica: Replica, reader: LogReader) -> bool:
    """Whether the last batch has message format 0 or 1; reads again only logs that have batches without an epoch."""
    end = replica.log_end_offset
    if not replica.state.epochs.batches_without_epoch or replica.state.unread:
        return False
    last = reader.batches(replica, end - 1, end)
    return bool(last.shape[1]) and int(last[BatchColumn.MAGIC, -1]) < 2


class PartitionResult(Struct):
    """A partition's summary, its sorted findings, and what could not be read again."""

    summary: PartitionSummary
    findings: list[Finding]
    bytes: tuple[int, int, int]
    """(decoded, damaged, skipped) of all its replicas' `.log` files and of the objects of its logs in remote stores."""
    incomplete: list[Incomplete] = field(default_factory=list)


def judge_partition(
    plans: list[ReplicaPlan],
    replicas: list[Replica],
    snapshots: list[SnapshotCheck],
    reader: LogReader,
    inputs: Inputs,
    remote_logs: Sequence[tuple[ReplicaPlan, Replica]] = (),
) -> PartitionResult:
    """All findings about one partition. `plans`, `replicas` and `snapshots` have one item for each replica.

    The replicas are judged as without `remote_logs`, those in remote stores that were read; these are then compared with them.
    """
    judge = _PartitionJudge(plans, replicas, snapshots, reader, inputs)
    comparison, findings = judge.compare_groups()
    context = replicas[0].context
    findings = with_leftovers(context.topic_partition, replicas, inputs, _merged_duplicates(findings), reader.incomplete)
    remote = judge.remote_log_findings()
    is_live = any(replica.context.live for replica in replicas)
    if is_live:
        findings, remote = list(map(capped_if_live, findings)), list(map(capped_if_live, remote))
    findings = with_records(findings, replicas, reader, kinds_with(Trait.LOST_COMMITTED, Trait.COMMITTED_AT_RISK))
    findings += remote
    findings += judge.incidents(findings)
    if len(replicas) == 1:
        findings = [replace(finding, is_only_copy=True) for finding in findings]
    of_objects = judge_remote_logs(remote_logs, plans, replicas, reader) if remote_logs else []
    findings += map(capped_if_live, of_objects) if is_live else of_objects
    findings.sort(key=Finding.sort_key)
    bytes_of_log = bytes_of_logs([*replicas, *(log for _, log in remote_logs)])
    return PartitionResult(judge.summary(comparison, findings), findings, bytes_of_log, reader.incomplete)


def bytes_of_logs(logs: Sequence[Replica]) -> tuple[int, int, int]:
    """(decoded, damaged, skipped) bytes of these logs."""
    framings = [log.state.framing for log in logs]
    return (
        sum(framing.bytes_decoded for framing in framings),
        sum(framing.bytes_damaged for framing in framings),
        sum(framing.bytes_skipped for framing in framings),
    )


class _PartitionJudge(Struct):
    """The steps of `judge_partition` that compare replicas."""

    plans: list[ReplicaPlan]
    replicas: list[Replica]
    snapshots: list[SnapshotCheck]
    reader: LogReader
    inputs: Inputs
    groups: list[list[int]] = field(default_factory=list)
    """Numbers of the replicas of each topic id, once they are compared."""
    agreements: dict[int, ReferenceAgreement] = field(default_factory=dict)
    """How replicas, by their numbers, agree with the reference of their group, once they are compared."""

    def compare_groups(self) -> tuple[Comparison, list[Finding]]:
        """Judge each replica by itself, and compare those of one topic id with each other."""
        groups, findings = identity_groups(self.plans, self.inputs.controller)
        self.groups = groups
        findings += missing_topic_ids(self.plans, self.replicas, self.inputs)
        for group in groups:
            add_unexplained_gaps([self.replicas[number] for number in group], self.reader)
        of_replicas = [self._replica_findings(number) for number in range(len(self.replicas))]
        comparisons = []
        for group in groups:
            comparison, judged = self._group_findings(group, of_replicas, is_only=len(groups) == 1)
            findings += judged
            numbers = [number for number in group if self.replicas[number].read is not ReadExtent.NONE]
            members = [self.replicas[number] for number in numbers]
            missing = missing_log_starts(members, self.reader)
            self._agree(group, numbers, comparison, [start.replica for start in missing if start.is_sure])
            findings = with_missing_log_starts(
                [*missing_log_start_findings(missing), *log_starts_missing_by_epochs(members), *missing_snapshots(members)],
                findings,
            )
            comparisons.append(comparison)
        return _comparison_of_groups(comparisons, present_topic(groups, self.replicas)[0]), findings

    def _agree(self, group: list[int], numbers: list[int], comparison: Comparison, without_start: list[Replica]) -> None:
        """Add how the replicas of a group agree with its reference; `numbers` are those of which something was read."""
        members = [self.replicas[number] for number in numbers]
        agreements = reference_agreements(members, comparison, without_start, all_read=not self.reader.incomplete)
        if len(group) > 1:
            self.agreements |= dict.fromkeys(group, ReferenceAgreement(None, "not_compared"))
        self.agreements |= zip(numbers, agreements, strict=True)

    def _replica_findings(self, number: int) -> list[Finding]:
        """What a replica's own files prove."""
        plan, replica = self.plans[number], self.replicas[number]
        findings = replica_file_findings(plan, self.plans, self.inputs)
        if replica.read is ReadExtent.NONE:
            return findings
        findings = [*findings, *missing_epochs(plan, replica), *single_replica_findings(replica)]
        findings += transaction_findings(plan, replica, self.snapshots[number])
        findings = with_recovery(plan, replica, self.inputs, findings, self.reader.incomplete)
        return with_indexes_without_log(plan, replica, self.inputs, findings)

    def _group_findings(
        self, group: list[int], of_replicas: list[list[Finding]], *, is_only: bool
    ) -> tuple[Comparison, list[Finding]]:
        """Compare the replicas of one topic id, and add the findings of each; `is_only`: there are no others."""
        reader = self.reader
        group_replicas = [self.replicas[number] for number in group]
        read = [number for number in group if self.replicas[number].read is not ReadExtent.NONE]
        members = [self.replicas[number] for number in read]
        comparison = _compared(members, group_replicas, reader)
        comparison.findings = with_remote_losses(members, comparison.findings)
        if any(member.context.compacted for member in members):
            from kafka_forensics.scanning.judging.compaction import compacted_findings  # few partitions pay for it

            plans = [self.plans[number] for number in read]
            comparison.findings += compacted_findings(plans, members, comparison, reader, self.inputs.evidence)
        of_groups = group_findings(members, reader, comparison, group_replicas) if is_only and members else []
        problems = [
            damage_finding(replica, damage.kind, segment, damage, last=False, count=1)
            for replica, segment, damage in reader.problems
        ]
        reader.problems.clear()
        findings = [*(finding for number in read for finding in of_replicas[number]), *comparison.findings, *problems, *of_groups]
        with_copies = with_holders(
            members, findings, comparison, all_read=all(replica.read is ReadExtent.WHOLE for replica in group_replicas)
        )
        watermark = comparison.high_watermark, comparison.witness
        judged = with_controller_findings(
            members, comparison.conflicts, with_copies, reader, nodes_with_copies(self.inputs), watermark
        )
        return comparison, with_absent_members(members, judged, reader) if members else judged

    def remote_log_findings(self) -> list[Finding]:
        """What remote segments and their objects prove; no broker holds them, so their records are not counted."""
        members = ([self.replicas[number] for number in group] for group in self.groups)
        read = ([replica for replica in replicas if replica.read is not ReadExtent.NONE] for replicas in members)
        return [finding for replicas in read for finding in remote_log_findings(replicas)]

    def incidents(self, findings: list[Finding]) -> list[Finding]:
        """The known incidents that the partition matches, by all its findings."""
        logs = zip(self.plans, self.replicas, self.snapshots, strict=True)
        facts = [
            _replica_facts(plan, replica, snapshot, self.reader)
            for plan, replica, snapshot in logs
            if replica.read is not ReadExtent.NONE
        ]
        features = self.snapshots[0].inputs.features if self.snapshots else {}
        return match_signatures(
            PartitionEvidence(findings, facts, features), [signature for signature in SIGNATURES if not signature.whole_scan]
        )

    def summary(self, comparison: Comparison, findings: list[Finding]) -> PartitionSummary:
        """The row of the partition."""
        context = self.replicas[0].context
        ids = {plan.context.topic_id for plan in self.plans} - {None}
        summary = PartitionSummary(
            context.topic,
            context.partition,
            next(iter(ids)) if len(ids) == 1 else None,
            cleanup_policy([replica.context for replica in self.replicas]),
            "unknown",
            comparison.high_watermark,
            comparison.witness,
            comparison.agreement,
            [summarise(replica, self.agreements.get(number)) for number, replica in enumerate(self.replicas)],
            *latest_controller_state(self.replicas),
            is_tiered=any(replica.is_tiered for replica in self.replicas),
        )
        summary.judge(findings)
        return summary


def _comparison_of_groups(comparisons: list[Comparison], present: int) -> Comparison:
    """The comparison of a partition whose groups were compared: the conflict of any group, and the high watermark of group
    `present`. Without a conflict it was not compared, because the groups were not."""
    if len(comparisons) == 1:
        return comparisons[0]
    conflicts = (comparison.agreement for comparison in comparisons if comparison.agreement.kind == "conflict")
    agreement = next(conflicts, Agreement("not_compared"))
    return Comparison(agreement, [], comparisons[present].high_watermark, comparisons[present].witness)


def _compared(members: list[Replica], group_replicas: list[Replica], reader: LogReader) -> Comparison:
    """The comparison of `members`, the replicas of a group of which something was read; `group_replicas` has all of the group.

    If some log was not read to its end, replicas without a known difference count as not compared.
    """
    if not members:
        return Comparison(Agreement("not_compared"))
    comparison = compare(members, reader)
    unread = any(replica.read is not ReadExtent.WHOLE for replica in group_replicas) or bool(reader.incomplete)
    if unread and len(group_replicas) > 1 and comparison.agreement.kind in ("identical", "prefix", "compacted"):
        comparison.agreement = Agreement("not_compared")
    return comparison


def summarise(replica: Replica, agreement: ReferenceAgreement | None = None) -> ReplicaSummary:
    """The row of one replica; if nothing of its log was read, only what file names and checkpoints say."""
    context, state, read = replica.context, replica.state, replica.read
    summary = ReplicaSummary(
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
        segments=None if read is ReadExtent.NONE and context.log_unknown else len(context.segment_base_offsets),
        read=read,
    )
    if agreement is not None:
        summary.reference_broker, summary.agreement_with_reference = agreement
    if read is ReadExtent.NONE:
        summary.batches = summary.records = summary.bytes = summary.missing_offsets = None
        summary.transactions = TransactionCounts(None, None, None, None)
        return summary
    summary.log_start_offset, summary.local_log_start_offset = replica.log_start_offset, replica.local_log_start_offset
    summary.log_end_offset = replica.log_end_offset if replica.end_is_known else None
    if read is ReadExtent.WHOLE:
        summary.last_stable_offset = state.transactions.last_stable_offset(context.high_watermark, replica.log_end_offset)
    else:
        summary.read_end_offset = replica.offset_sequence.end_offset
    summary.leader_epochs = [(entry.leader_epoch, entry.start_offset) for entry in replica.epochs]
    framing = state.framing
    summary.batches, summary.records = framing.batches, framing.records
    summary.bytes = framing.bytes_decoded + framing.bytes_damaged + framing.bytes_skipped
    summary.missing_offsets = counted(replica.offset_sequence.gaps()) + state.continuity.missing_by_compaction
    summary.transactions, summary.recovery = state.transactions.counts(), replica.recovery
    return summary


def _merged_duplicates(findings: list[Finding]) -> list[Finding]:
    """Merge findings of one kind about the same bytes, which neighbours and other replicas may both show."""
    seen: dict[tuple[object, ...], Finding] = {}
    for finding in findings:
        place = finding.place
        key: tuple[object, ...] = (finding.kind, str(place.broker), place.file, place.byte_start, place.offset_start)
        if place.byte_start is None:
            key = (id(finding),)
        if key in seen:
            merged = {
                **seen[key].evidence,
                **{name: value for name, value in finding.evidence.items() if name not in seen[key].evidence},
            }
            if "witnesses" in finding.evidence:
                merged["witnesses"] = [*dict.fromkeys([*merged["witnesses"], *finding.evidence["witnesses"]])]
            seen[key] = replace(seen[key], evidence=merged)
        else:
            seen[key] = finding
    return list(seen.values())


def capped_if_live(finding: Finding) -> Finding:
    """The finding, at most `info` if it may come from copying a running broker's files at different moments."""
    if finding.kind in kinds_with(Trait.HARMLESS_IF_LIVE) and finding.severity.rank > 0:
        return replace(finding.with_evidence(capped_by="--live"), severity=Severity.INFO)
    return finding


def identity_groups(plans: list[ReplicaPlan], controller: ControllerHistory | None = None) -> tuple[list[list[int]], list[Finding]]:
    """Group the replicas of one partition, by number, by topic id and cluster id; only replicas of one group are compared.

    A replica without an id belongs to the only topic or cluster there is, or is a group if there are several. Several topic ids are
    a finding, which `controller` explains.
    """
    topics = [plan.context.topic_id for plan in plans]
    clusters = [None if plan.log_dir.meta is None else plan.log_dir.meta.cluster_id for plan in plans]
    groups: dict[tuple[object, object], list[int]] = {}
    for number, ids in enumerate(zip(_group_keys(topics), _group_keys(clusters), strict=True)):
        groups.setdefault(ids, []).append(number)
    topic_of = {str(plan.context.broker): topic for plan, topic in zip(plans, topics, strict=True) if topic is not None}
    if len(set(topic_of.values())) < 2:
        return list(groups.values()), []
    place = Place(plans[0].context.topic, plans[0].context.partition)
    evidence = {"topic_ids": topic_of} | ({} if controller is None else topic_ids_explained(plans, controller))
    return list(groups.values()), [new_finding("TOPIC_ID_MISMATCH", place, evidence)]


def _group_keys(ids: list[str | None]) -> list[object]:
    """Group keys for ids: if several are known, an unknown id gets a separate key; else all get the same key."""
    known = set(ids) - {None}
    if len(known) < 2:
        return [None] * len(ids)
    return [number if known_id is None else known_id for number, known_id in enumerate(ids)]


def topic_ids_explained(plans: list[ReplicaPlan], controller: ControllerHistory) -> Json:
    """Evidence about copies of one partition with different topic ids; empty if the controller's log lacks the partition.

    `present_topic_id`, the brokers `present_on` that have it, `other_ids` (id → description), and `misplaced_on`: brokers whose
    copy has the id of a topic that exists under another name.
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
            evidence["other_ids"][context.topic_id] = _described(other)
            if other is not None and other.deleted_offset is None and other.topic not in ("", name):
                misplaced.append(context.broker)
    return evidence | ({"misplaced_on": misplaced} if misplaced else {})


def _described(topic: TopicHistory | None) -> str:
    if topic is None or not topic.topic:
        return "no topic it knows"
    if topic.deleted_offset is None:
        return f"topic {topic.topic}"
    time = None if topic.deleted_ms is None else rfc3339(topic.deleted_ms)
    return f"{topic.topic}, deleted" + ("" if time is None else f" {time[:19]}Z")
