"""Signatures of replication incidents: logs that diverge, are truncated, or lose what says where to truncate."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from kafka_forensics.analysis.incidents.signatures import (
    Check,
    ConditionResult,
    IncidentSignature,
    PartitionEvidence,
    ReplicaFacts,
    against,
    expected,
    extra,
    must,
)
from kafka_forensics.analysis.kinds import Trait, finding, kinds_with, with_premises
from kafka_forensics.model.constants import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from kafka_forensics.model.controller import ControllerHistory, PartitionControl, unknown_records_premises
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.model.json_objects import Json

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import RiskyConfigEvidence

FORKS: Final = ("FORK_BELOW_HW", "FORK_ABOVE_HW", "UNCLEAN_LOSS")
COORDINATOR_TOPICS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
"""Topics that coordinators load; their records count, however old, until newer ones of their keys replace them."""


def has_finding(*kinds: str, **evidence: object) -> Check:
    """A check for the first finding of these kinds with this evidence; False without one."""
    return lambda case: next((finding for finding in case.of(*kinds) if evidence.items() <= finding.evidence.items()), False)


def all_replicas(test: Callable[[ReplicaFacts], bool]) -> Check:
    """Whether all replicas pass; None without facts of replicas."""
    return lambda case: all(map(test, case.replicas)) if case.replicas else None


def any_replica(test: Callable[[ReplicaFacts], bool]) -> Check:
    """Whether a replica passes; None without facts of replicas."""
    return lambda case: any(map(test, case.replicas)) if case.replicas else None


def replica_of(subject: Check, test: Callable[[ReplicaFacts], bool]) -> Check:
    """Whether the replica of the finding that `subject` returns passes; None without such a replica."""

    def holds(case: PartitionEvidence) -> ConditionResult:
        found = subject(case)
        facts = case.facts(found.place.broker) if isinstance(found, Finding) else None
        return None if facts is None else test(facts)

    return holds


def _has_holders(subject: Check) -> Check:
    """Whether the finding that `subject` returns has holders of a good copy; None if it says nothing about holders."""

    def holds(case: PartitionEvidence) -> ConditionResult:
        found = subject(case)
        holders = found.evidence.get("held_by") if isinstance(found, Finding) else None
        return bool(holders) if isinstance(holders, list) else None

    return holds


def _versions(fork: Finding) -> list[Json]:
    return [version for version in fork.evidence.get("versions", []) if isinstance(version, dict)]


def ends_in_old_format(facts: ReplicaFacts) -> bool:
    """Whether the log ends in message format 0 or 1, which have no leader epochs."""
    return facts.ends_in_old_format


def stopped_uncleanly(facts: ReplicaFacts) -> bool:
    """Whether the broker left no `.kafka_cleanshutdown`."""
    return not facts.context.clean_shutdown


def _straddling(case: PartitionEvidence) -> ConditionResult:
    """A batch that begins below the end of the batch before it and ends above it."""
    for shown in case.of("OFFSET_REGRESSION", "OFFSET_DISCONTINUITY"):
        start, end, expected_offset = shown.place.offset_start, shown.place.offset_end, shown.evidence.get("expected_offset")
        if start is None or end is None or not isinstance(expected_offset, int):
            continue
        found_offset = int(shown.evidence.get("found_offset", start))
        if found_offset < expected_offset < found_offset + end - start:
            return shown
    return False


def _ahead_of_peers(case: PartitionEvidence) -> ConditionResult:
    """Whether other replicas hold other records at the straddling batch: its leader had fewer than its follower."""
    shown = _straddling(case)
    if not isinstance(shown, Finding) or len(case.replicas) < 2:
        return None
    return any(facts.broker != shown.place.broker for facts in case.replicas) and bool(case.of(*FORKS, "REPLICA_DIFFERS"))


_Version = tuple[int, ReplicaFacts, set[int]]
"""A version at a fork: its epoch there, one holder, and the epochs of that holder's log."""


def _fork_where(test: Callable[[_Version, _Version], bool]) -> Check:
    """A fork whose versions of the lowest and the highest epoch pass; both epochs must be known and differ."""

    def holds(case: PartitionEvidence) -> ConditionResult:
        for fork in case.of(*FORKS):
            versions = []
            for version in _versions(fork):
                holder = next((facts for facts in case.replicas if facts.broker in version.get("brokers", [])), None)
                if holder is not None and isinstance(version.get("epoch"), int) and version["epoch"] >= 0:
                    versions.append((version["epoch"], holder, {entry.leader_epoch for entry in holder.replica.epochs}))
            versions.sort(key=lambda version: version[0])
            if len(versions) > 1 and versions[0][0] < versions[-1][0] and test(versions[0], versions[-1]):
                return fork
        return False

    return holds


def _appends_without_truncation(low: _Version, high: _Version) -> bool:
    """The log of the lower epoch goes on in the higher one, later than that epoch began in the other log."""
    return high[0] in low[2] and _start(low[1], high[0]) > _start(high[1], high[0])


def _is_only_in_one_log(low: _Version, high: _Version) -> bool:
    """The higher epoch is in one log only, and both logs have a still higher epoch from the same offset on."""
    later = [epoch for epoch in low[2] & high[2] if epoch > high[0]]
    return high[0] not in low[2] and any(_start(low[1], epoch) == _start(high[1], epoch) for epoch in later)


def _start(facts: ReplicaFacts, leader_epoch: int) -> int:
    return next(entry.start_offset for entry in facts.replica.epochs if entry.leader_epoch == leader_epoch)


def _fork_without_epochs(case: PartitionEvidence) -> ConditionResult:
    """A fork below the high watermark between logs in a format without epochs."""
    for fork in case.of("FORK_BELOW_HW"):
        brokers = {broker for version in _versions(fork) for broker in version.get("brokers", [])}
        holders = [facts for facts in case.replicas if facts.broker in brokers]
        if all(version.get("epoch") == -1 for version in _versions(fork)) and holders and all(map(ends_in_old_format, holders)):
            return fork
    return False


def _below_peers_watermark(case: PartitionEvidence) -> ConditionResult:
    high_watermark = max((facts.context.high_watermark or 0 for facts in case.replicas), default=0)
    return any(facts.replica.log_end_offset < high_watermark for facts in case.replicas) and high_watermark > 0


def _equal_log_ends(case: PartitionEvidence) -> ConditionResult:
    return len({facts.replica.log_end_offset for facts in case.replicas}) == 1


def _no_copy_left(case: PartitionEvidence) -> ConditionResult:
    """A loss in the controller's log, or a checkpointed high watermark above the equal ends of all logs."""
    findings = case.of("LRS_LOSS", "LRS_RISK")
    if findings:
        return findings[0]
    lost = [shown for shown in case.of("HW_BEYOND_LEO") if shown.evidence.get("held_by") == []]
    several_equal = len(case.replicas) > 1 and _equal_log_ends(case)
    return lost[0] if lost and several_equal and any(map(stopped_uncleanly, case.replicas)) else False


def _without_elr(case: PartitionEvidence) -> bool:
    """Whether eligible leader replicas (KIP-966) are not known to be enabled; a feature without a record is disabled."""
    return case.features.get("eligible.leader.replicas.version", 0) < 1


def _truncated_by_recovery(case: PartitionEvidence) -> ConditionResult:
    """A log that ends with a whole batch below its own high watermark while another replica has the rest."""
    torn = {shown.place.broker for shown in case.of("SEG_TORN_TAIL", "SEG_SHORT", "FRAMING_LOST", "BATCH_CRC_MISMATCH")}
    beyond_end = (shown for shown in case.of("HW_BEYOND_LEO") if shown.evidence.get("held_by") and shown.place.broker not in torn)
    return next(beyond_end, False)


_start_beyond_end: Final = has_finding("CHECKPOINT_OUT_OF_ORDER", what="log start", limit_name="log end")


def _another_log_continues(case: PartitionEvidence) -> ConditionResult:
    """Whether another log reaches the log start that is beyond this log's end."""
    shown = _start_beyond_end(case)
    if not isinstance(shown, Finding) or not isinstance(value := shown.evidence.get("value"), int):
        return None
    ends = [facts.replica.log_end_offset for facts in case.replicas if facts.broker != shown.place.broker]
    return max(ends) >= value if ends else None


def _epochs_over_old_format(case: PartitionEvidence) -> ConditionResult:
    """A log that ends in a format without epochs although the checkpoint has an epoch below its end."""
    for facts in case.replicas:
        epochs, end = facts.context.leader_epochs, facts.replica.log_end_offset
        entries = [] if epochs is None else [entry for entry in epochs.entries if entry.start_offset < end]
        if facts.ends_in_old_format and entries:
            return facts.shown(max(entries).start_offset, end)
    return False


def _epochs_lost_on_one(case: PartitionEvidence) -> ConditionResult:
    """A checkpoint without epochs of its log that another replica's checkpoint has, at the same offsets."""
    if case.of(*FORKS, "SAME_EPOCH_DIVERGENCE"):
        return False
    for shown in case.of("EPOCH_CACHE_MISMATCH"):
        facts = case.facts(shown.place.broker)
        if shown.evidence.get("reason") != "entry_missing" or facts is None:
            continue
        checkpoint = facts.context.leader_epochs
        lost = set(facts.replica.epochs) - set([] if checkpoint is None else checkpoint.entries)
        for other in case.replicas:
            theirs = other.context.leader_epochs
            if other is not facts and theirs is not None and lost and lost <= set(theirs.entries):
                return shown
    return False


def _several_log_dirs(facts: ReplicaFacts) -> bool:
    return facts.log_dirs > 1 or "future" in facts.relatives


def _only_copy(case: PartitionEvidence) -> ConditionResult:
    """Whether one replica alone holds what an unclean leader lacks."""
    losses = case.of("UNCLEAN_LOSS")
    remote = any(finding.evidence.get("in_remote_storage") for finding in losses)  # those that one leader copied
    return max((len(finding.evidence.get("held_by", [])) for finding in losses), default=0) == (0 if remote else 1)


HISTORIES: Final = (
    IncidentSignature("d1", "KAFKA-3919", "offsets that step back after a power outage", "before 0.11.0.0", ("0.11.0",)).shown_by(
        must("a batch begins below the last offset and ends above it", _straddling),
        must("the log is in a format without leader epochs", replica_of(_straddling, ends_in_old_format)),
        extra("another replica has all of these offsets", _has_holders(_straddling)),
        expected("the broker was not stopped cleanly", replica_of(_straddling, stopped_uncleanly)),
        extra("other replicas have different records there", _ahead_of_peers),
        explains=frozenset({"OFFSET_REGRESSION", "OFFSET_DISCONTINUITY"}),
    ),
    IncidentSignature(
        "d2", "KAFKA-7164", "follower that missed a leader change and did not truncate", "before 2.0.1", ("2.0.1", "2.1.0")
    ).shown_by(
        must("a log continues in the leader's epoch without truncation", _fork_where(_appends_without_truncation)),
        expected("the logs diverge below a known high watermark", has_finding("FORK_BELOW_HW", "UNCLEAN_LOSS")),
        explains=frozenset({"FORK_BELOW_HW", "UNCLEAN_LOSS"}),
    ),
    IncidentSignature(
        "d3", "KAFKA-6361", "logs that diverged in a fast fail-over and then became equal", "0.11.0.0 to 1.1.1", ("2.0.0",)
    ).shown_by(
        must("an epoch of one log is in no other, but a later epoch is in both", _fork_where(_is_only_in_one_log)),
        expected("the logs diverge below a known high watermark", has_finding("FORK_BELOW_HW", "UNCLEAN_LOSS")),
        explains=frozenset({"FORK_BELOW_HW", "UNCLEAN_LOSS"}),
    ),
    IncidentSignature(
        "d4",
        "KAFKA-1211",
        "truncation to the high watermark, see KIP-101",
        "before 0.11.0.0, or with an older message format",
        ("0.11.0",),
    ).shown_by(
        must("logs without leader epochs diverge below a high watermark", _fork_without_epochs),
        expected("no replica keeps a leader-epoch-checkpoint", all_replicas(lambda facts: facts.context.leader_epochs is None)),
        extra("a log ends below another replica's high watermark", _below_peers_watermark),
        extra("all logs end at the same offset, as if in sync", _equal_log_ends),
        fix_rules_out=False,
        explains=frozenset({"FORK_BELOW_HW"}),
    ),
    IncidentSignature(
        "d5",
        "KIP-966",
        "last replica standing, lost with an unclean stop",
        "all versions without eligible leader replicas",
        ("4.1.0",),
    ).shown_by(
        must("committed offsets were lost with the last in-sync replica", _no_copy_left),
        must("a broker was not stopped cleanly", any_replica(stopped_uncleanly)),
        must("eligible leader replicas are not known to be enabled", _without_elr),
        extra("a recovery point lies beyond the log end", has_finding("CHECKPOINT_OUT_OF_ORDER", what="recovery point")),
        extra("a group has committed offsets beyond every log", has_finding("GROUP_OFFSET_BEYOND_LOG")),
        extra("the controller's log shows the election", has_finding("LRS_LOSS", "UNCLEAN_ELECTION")),
        fix_rules_out=False,
    ),
    IncidentSignature("d6", "KAFKA-10751", "unclean election", "all versions, with unclean.leader.election.enable", ()).shown_by(
        must("a leader of a later epoch lacks committed records", has_finding("UNCLEAN_LOSS")),
        expected("only one replica had the records", _only_copy),
        extra("the controller's log shows an unclean election", has_finding("UNCLEAN_ELECTION")),
        explains=frozenset({"UNCLEAN_LOSS"}),
    ),
    IncidentSignature(
        "d15", "KAFKA-10101", "log start beyond the log end: a start deletes all segments", "before 2.8.0", ("2.8.0",)
    ).shown_by(
        must("log-start checkpoint lies beyond the log end", _start_beyond_end),
        expected("another replica's log continues after that offset", _another_log_continues),
        expected("the broker was not stopped cleanly", replica_of(_start_beyond_end, stopped_uncleanly)),
        explains=frozenset({"CHECKPOINT_OUT_OF_ORDER", "RECOVERY_WOULD_TRUNCATE"}),
    ),
    IncidentSignature("d16", "linkedin/kafka#409", "recovery that cut good batches off", "not known", ()).shown_by(
        must("a log ends without damage below its watermark; others continue", _truncated_by_recovery),
        must("the broker was not stopped cleanly", replica_of(_truncated_by_recovery, stopped_uncleanly)),
        extra("a recovery point lies beyond the log end", has_finding("CHECKPOINT_OUT_OF_ORDER", what="recovery point")),
    ),
    IncidentSignature(
        "d22",
        "KAFKA-7897",
        "epoch history kept for records without epochs",
        "0.11.0.0 to 2.1.0, with message format 0 or 1",
        ("2.1.1", "2.2.0"),
    ).shown_by(
        must("the checkpoint has an epoch for batches without one", _epochs_over_old_format),
        extra("logs diverge or are cut short", has_finding(*FORKS, "HW_BEYOND_LEO")),
    ),
    IncidentSignature(
        "d23",
        "KAFKA-15608",
        "epoch history lost on one replica",
        "brokers that moved a replica between log directories; KAFKA-7415 before 2.0.1",
        (),
    ).shown_by(
        must("a checkpoint lacks epochs that another replica's checkpoint has", _epochs_lost_on_one),
        expected("its broker has several log directories", replica_of(_epochs_lost_on_one, _several_log_dirs)),
        against("the checkpoint is damaged", has_finding("CHECKPOINT_MALFORMED")),
        explains=frozenset({"EPOCH_CACHE_MISMATCH"}),
    ),
)


TOPICS_NAMED: Final = 64
_LOSSES: Final = kinds_with(Trait.LOST_BY_ELECTION, Trait.ELECTION_MAY_LOSE) | {"FORK_BELOW_HW", "UNCLEAN_ELECTION"}
_CLEANUP_POLICY: Final = "cleanup.policy"


class _Risk(Struct, frozen=True):
    """A risky setting with the kinds of findings that it made possible."""

    text: str
    setting: str
    value: str
    explains: tuple[str, ...]


def risky_settings(
    controller: ControllerHistory | None, topics: set[str], findings: list[Finding], as_of_ms: int | None
) -> list[Finding]:
    """`RISKY_CONFIG` for these topics: one per topic whose settings explain a finding, one for all others of equal settings.

    `as_of_ms`: the time from which ages are computed; None: the newest timestamp of the controller's log.
    """
    if controller is None:
        return []
    now_ms = controller.last_ms if as_of_ms is None else as_of_ms
    by_topic: dict[str, list[Finding]] = {}
    for found in findings:
        if found.place.topic in topics:
            by_topic.setdefault(found.place.topic or "", []).append(found)
    partitions: dict[str, list[PartitionControl]] = {}
    for (topic, _), control in sorted(controller.partitions.items()):
        if topic in topics:
            partitions.setdefault(topic, []).append(control)
    without_findings: dict[tuple[_Risk, ...], list[str]] = {}
    risky = []
    for topic, controls in partitions.items():
        risks = tuple(_risks(topic, controls, by_topic.get(topic, []), now_ms))
        if any(risk.explains for risk in risks):
            risky.append(_finding(risks, [topic], Place(topic)))
        elif risks:
            without_findings.setdefault(risks, []).append(topic)
    risky += [_finding(risks, names, Place(names[0] if len(names) == 1 else None)) for risks, names in without_findings.items()]
    return [with_premises(finding, unknown_records_premises(controller.unknown_records)) for finding in risky]


def _finding(risks: tuple[_Risk, ...], topics: list[str], place: Place) -> Finding:
    evidence: RiskyConfigEvidence = {
        "topics": topics[:TOPICS_NAMED],
        "count": len(topics),
        "risks": [risk.text for risk in risks],
        "settings": {risk.setting: risk.value for risk in risks},
    }
    explains = sorted({kind for risk in risks for kind in risk.explains})
    if explains:
        evidence["explains"] = explains
    if not any(risk.setting == _CLEANUP_POLICY for risk in risks):
        return finding("RISKY_CONFIG", place, evidence)
    evidence["of_coordinators"] = True
    return finding("RISKY_CONFIG", place, evidence, severity=Severity.WARNING)


def _risks(topic: str, controls: list[PartitionControl], findings: list[Finding], now_ms: int | None) -> list[_Risk]:
    """The risks of one topic, by the latest state of its partitions in the controller's log."""
    first = controls[0]
    counts = {len(control.replica_assignment) for control in controls if control.replica_assignment}
    losses = {finding.kind for finding in findings if finding.kind in _LOSSES and "same_leader" not in finding.evidence}
    explains = tuple(sorted(losses))
    risks = []
    policy = first.cleanup_policy
    if topic in COORDINATOR_TOPICS and policy is not None and "delete" in policy.split(","):
        risks.append(
            _Risk("old segments are deleted while offsets or states in them are still in use", _CLEANUP_POLICY, policy, ())
        )
    if first.setting("unclean.leader.election.enable") == "true":
        risks.append(_Risk("unclean elections on", "unclean.leader.election.enable", "true", explains))
    if first.setting("min.insync.replicas") == "1" and counts and min(counts) > 1:
        replicas = str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
        risks.append(_Risk(f"min.insync.replicas 1 with {replicas} replicas", "min.insync.replicas", "1", explains))
    if 1 in counts:
        errors = [finding for finding in findings if finding.severity.rank >= Severity.ERROR.rank]
        damage = tuple(sorted({finding.kind for finding in errors if finding.place.partition is not None}))
        risks.append(_Risk("one replica only", "replication.factor", "1", damage))
    return risks + _short_retention(first.setting("retention.ms"), findings, now_ms)


def _short_retention(retention: str | None, findings: list[Finding], now_ms: int | None) -> list[_Risk]:
    """The risk of a transaction that is open for longer than its records are kept."""
    if retention is None or now_ms is None or not (retention.isascii() and retention.isdigit() and len(retention) < 20):
        return []
    kinds = {
        finding.kind
        for finding in findings
        if finding.kind in kinds_with(Trait.OPEN_TRANSACTION)
        and isinstance(last_ms := finding.evidence.get("last_timestamp"), int)
        and 0 <= last_ms < now_ms - int(retention)
    }
    return [_Risk("retention shorter than an open transaction", "retention.ms", retention, tuple(sorted(kinds)))] if kinds else []
