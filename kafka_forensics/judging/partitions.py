"""One partition, from folded replicas to findings and a summary; the same for every engine."""

from dataclasses import dataclass, field, replace

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas import (
    Comparison,
    compare,
    damage_finding,
    group_findings,
    head_findings,
    judged_by_controller,
    missing_heads,
    own_findings,
    uncover_gaps,
    with_absent_members,
    with_holders,
)
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.folding.index_files import SnapshotCheck, transaction_findings
from kafka_forensics.judging.absence import nodes_given
from kafka_forensics.judging.environment import identity_groups, missing_epochs, replica_file_findings
from kafka_forensics.judging.leftovers import leftovers_judged, lone_indexes_judged
from kafka_forensics.judging.recovery import recovery_judged
from kafka_forensics.judging.signatures import partition_matches
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import (
    Agreement,
    Incomplete,
    PartitionSummary,
    Read,
    ReplicaSummary,
    TransactionCounts,
)
from kafka_forensics.rereading.reader import LogReader
from kafka_forensics.witnesses.controller import cleanup_policy, last_word, present_topic


@dataclass(slots=True)
class PartitionResult:
    """A partition's summary, its findings sorted, and what could not be read again."""

    summary: PartitionSummary
    findings: list[Finding]
    bytes: tuple[int, int, int]
    """Decoded, damaged, skipped, over all its replicas' `.log` files."""
    incomplete: list[Incomplete] = field(default_factory=list)


def judge_partition(
    plans: list[ReplicaPlan], replicas: list[Replica], snapshots: list[SnapshotCheck], reader: LogReader
) -> PartitionResult:
    """Every finding about one partition. `plans`, `replicas` and `snapshots` go together, one each a replica."""
    groups, findings = identity_groups(plans, snapshots[0].inputs.controller)
    for group in groups:
        uncover_gaps([replicas[number] for number in group], reader)
    own: list[list[Finding]] = []
    for plan, replica, snapshot in zip(plans, replicas, snapshots, strict=True):
        if replica.read is Read.NONE:
            own.append(replica_file_findings(plan))
            continue
        of_files = [*replica_file_findings(plan), *missing_epochs(plan, replica)]
        own.append([*of_files, *own_findings(replica), *transaction_findings(plan, replica, snapshot)])
        own[-1] += recovery_judged(plan, replica, snapshot.inputs, own[-1], reader.incomplete)
        own[-1] += lone_indexes_judged(plan, replica, snapshot.inputs, own[-1])
    comparisons = []
    for group in groups:
        every = [replicas[number] for number in group]
        group = [number for number in group if replicas[number].read is not Read.NONE]
        members = [replicas[number] for number in group]
        compared = _compared(members, every, reader)
        if any(member.context.compacted for member in members):
            from kafka_forensics.judging.compaction import compacted_findings  # few partitions pay for it

            compared.findings += compacted_findings(
                [plans[number] for number in group], members, compared, reader, snapshots[0].inputs.evidence
            )
        of_groups = group_findings(members, reader, compared, every) if len(groups) == 1 and members else []
        problems = [
            damage_finding(which, damage.kind, segment, damage, last=False, count=1) for which, segment, damage in reader.problems
        ]
        reader.problems.clear()
        found = [*(finding for number in group for finding in own[number]), *compared.findings, *problems, *of_groups]
        held = with_holders(members, found, compared, all_read=all(one.read is Read.WHOLE for one in every))
        known = compared.high_watermark, compared.witness
        judged = judged_by_controller(members, compared.conflicts, held, reader, nodes_given(snapshots[0].inputs), known)
        findings += with_absent_members(members, judged, reader) if members else judged
        findings += head_findings(missing_heads(members, compared.conflicts, reader), findings)
        comparisons.append(compared)
    comparison = _over_groups(comparisons, present_topic(groups, replicas)[0])
    findings = _once(findings)
    context = replicas[0].context
    inputs = snapshots[0].inputs
    findings += leftovers_judged((context.topic, context.partition), replicas, inputs, findings, reader.incomplete)
    if any(one.context.live for one in replicas):
        findings = [_capped(finding) for finding in findings]
    findings += partition_matches(plans, replicas, snapshots, reader, findings)
    if len(replicas) == 1:
        findings = [replace(finding, alone=True) for finding in findings]
    findings.sort(key=Finding.sort_key)
    ids = {plan.context.topic_id for plan in plans} - {None}
    summary = PartitionSummary(
        context.topic,
        context.partition,
        next(iter(ids)) if len(ids) == 1 else None,
        cleanup_policy([one.context for one in replicas]),
        "unknown",
        comparison.high_watermark,
        comparison.witness,
        comparison.agreement,
        [summarise(one) for one in replicas],
        *last_word(replicas),
    )
    summary.judge(findings)
    framings = [one.state.framing for one in replicas]
    counted = (
        sum(fold.bytes_decoded for fold in framings),
        sum(fold.bytes_damaged for fold in framings),
        sum(fold.bytes_skipped for fold in framings),
    )
    return PartitionResult(summary, findings, counted, reader.incomplete)


def _over_groups(comparisons: list[Comparison], present: int) -> Comparison:
    """What is said of a partition whose replicas were compared in groups: a conflict in one is one; and not all were compared.
    What was committed is told of the present topic, which is one of them."""
    if len(comparisons) == 1:
        return comparisons[0]
    comparison = comparisons[present]
    conflict = next((one.agreement for one in comparisons if one.agreement.kind == "conflict"), Agreement("not_compared"))
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
    gaps = sum(
        irregularity.end - irregularity.start for irregularity in replica.course.irregularities if irregularity.kind == "OFFSET_GAP"
    )
    return ReplicaSummary(
        context.broker,
        context.log_dir,
        context.directory,
        replica.log_start_offset,
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
    context, listed = replica.context, not replica.context.unlisted
    return ReplicaSummary(
        context.broker,
        context.log_dir,
        context.directory,
        log_start_offset=None,
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
            merged = dict(seen[key].evidence)
            merged |= {name: value for name, value in finding.evidence.items() if name not in merged}
            if "witnesses" in finding.evidence:
                merged["witnesses"] = [*dict.fromkeys([*merged["witnesses"], *finding.evidence["witnesses"]])]
            seen[key].evidence.update(merged)
        else:
            seen[key] = finding
    return list(seen.values())


_TAIL_OF_LIVE_COPY = frozenset(
    {
        "SEG_TORN_TAIL",
        "SEG_ZERO_TAIL",
        "REPLICA_LAGS",
        "HW_BEYOND_LEO",
        "GROUP_OFFSET_BEYOND_LOG",
        "CHECKPOINT_OUT_OF_ORDER",
        "RECOVERY_WOULD_TRUNCATE",
    }
    | {"ISR_MEMBER_MISSING_COMMITTED", "LRS_RISK", "EMPTY_REPLICA_MAY_LEAD", "LOG_HEAD_MISSING"}
)


def _capped(finding: Finding) -> Finding:
    """Of a live copy, what concerns the tail is at most `info`: the files are of different moments."""
    if finding.kind in _TAIL_OF_LIVE_COPY and finding.severity.rank > 0:
        return Finding(finding.kind, Severity.INFO, finding.confidence, finding.place, finding.evidence | {"capped_by": "--live"})
    return finding
