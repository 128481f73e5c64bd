"""Signatures of incidents in which logs part, are cut, or lose what tells where to cut: elections, truncation, recovery."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.incidents.signatures import Answer, Case, ReplicaFacts, Signature, against, expected, extra, must
from kafka_forensics.analysis.kinds import Trait, finding, kinds_with, on_premises
from kafka_forensics.model.constants import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from kafka_forensics.model.controller import ControllerHistory, PartitionControl, passed_over
from kafka_forensics.model.findings import Finding, Place, Severity
from kafka_forensics.model.json_objects import Json

if TYPE_CHECKING:
    from kafka_forensics.analysis.kinds.evidence_classes import RiskyConfigEvidence

FORKS: Final = ("FORK_BELOW_HW", "FORK_ABOVE_HW", "UNCLEAN_LOSS")


def has(*kinds: str, **evidence: object) -> Callable[[Case], Answer]:
    """The first finding of one of these kinds whose evidence says this; False if there is none."""

    def holds(case: Case) -> Answer:
        return next((finding for finding in case.of(*kinds) if evidence.items() <= finding.evidence.items()), False)

    return holds


def each(test: Callable[[ReplicaFacts], bool]) -> Callable[[Case], Answer]:
    """Whether every replica passes; None where replicas are not in hand."""
    return lambda case: all(map(test, case.replicas)) if case.replicas else None


def some(test: Callable[[ReplicaFacts], bool]) -> Callable[[Case], Answer]:
    """Whether a replica passes; None where replicas are not in hand."""
    return lambda case: any(map(test, case.replicas)) if case.replicas else None


def of_subject(subject: Callable[[Case], Answer], test: Callable[[ReplicaFacts], bool]) -> Callable[[Case], Answer]:
    """Whether the replica of which the finding `subject` gives speaks passes; None if it speaks of none."""

    def holds(case: Case) -> Answer:
        shown = subject(case)
        facts = case.facts(shown.place.broker) if isinstance(shown, Finding) else None
        return None if facts is None else test(facts)

    return holds


def held_by_others(subject: Callable[[Case], Answer]) -> Callable[[Case], Answer]:
    """Whether the finding `subject` gives names holders of a good copy; None if it does not speak of holders."""

    def holds(case: Case) -> Answer:
        shown = subject(case)
        holders = shown.evidence.get("held_by") if isinstance(shown, Finding) else None
        return bool(holders) if isinstance(holders, list) else None

    return holds


def _versions(fork: Finding) -> list[Json]:
    return [version for version in fork.evidence.get("versions", []) if isinstance(version, dict)]


def without_epochs(replica_facts: ReplicaFacts) -> bool:
    """Whether the log ends in a message format that has no leader epochs."""
    return replica_facts.ends_in_old_format


def unclean(replica_facts: ReplicaFacts) -> bool:
    """Whether the broker left no mark of a clean shutdown."""
    return not replica_facts.replica.context.clean_shutdown


def _straddling(case: Case) -> Answer:
    """A batch that begins below the end of the one before it and ends above."""
    for disorder in case.of("OFFSET_REGRESSION", "OFFSET_DISCONTINUITY"):
        start, end, due = disorder.place.offset_start, disorder.place.offset_end, disorder.evidence.get("expected_offset")
        if start is None or end is None or not isinstance(due, int):
            continue
        stands_at = int(disorder.evidence.get("found_offset", start))
        if stands_at < due < stands_at + end - start:
            return disorder
    return False


def _ahead_of_peers(case: Case) -> Answer:
    """Whether the straddling batch ends above every other log: its leader had less than its follower."""
    shown = _straddling(case)
    if not isinstance(shown, Finding) or len(case.replicas) < 2:
        return None
    return any(replica_facts.broker != shown.place.broker for replica_facts in case.replicas) and bool(
        case.of(*FORKS, "REPLICA_DIFFERS")
    )


_Side = tuple[int, ReplicaFacts, set[int]]
"""A version at a fork: its epoch there, one holder, and the epochs of that holder's log."""


def _sides(case: Case, fork: Finding) -> tuple[_Side, _Side] | None:
    """The versions of the lowest and the highest epoch at a fork; None unless both epochs are known and differ."""
    sides = []
    for version in _versions(fork):
        holder = next(
            (replica_facts for replica_facts in case.replicas if replica_facts.broker in version.get("brokers", [])), None
        )
        if holder is not None and isinstance(version.get("epoch"), int) and version["epoch"] >= 0:
            sides.append((version["epoch"], holder, {entry.leader_epoch for entry in holder.replica.epochs}))
    sides.sort(key=lambda side: side[0])
    return (sides[0], sides[-1]) if len(sides) > 1 and sides[0][0] < sides[-1][0] else None


def _fork_where(test: Callable[[_Side, _Side], bool]) -> Callable[[Case], Answer]:
    def holds(case: Case) -> Answer:
        for fork in case.of(*FORKS):
            sides = _sides(case, fork)
            if sides is not None and test(*sides):
                return fork
        return False

    return holds


def _joined_without_cut(low: _Side, high: _Side) -> bool:
    """The log of the lower epoch goes on in the higher one, later than that epoch began in the other log."""
    return high[0] in low[2] and _start(low[1], high[0]) > _start(high[1], high[0])


def _grown_together(low: _Side, high: _Side) -> bool:
    """The higher epoch is in one log only, and both logs go on in one still higher, from one offset."""
    later = [epoch for epoch in low[2] & high[2] if epoch > high[0]]
    return high[0] not in low[2] and any(_start(low[1], epoch) == _start(high[1], epoch) for epoch in later)


def _start(replica_facts: ReplicaFacts, leader_epoch: int) -> int:
    return next(entry.start_offset for entry in replica_facts.replica.epochs if entry.leader_epoch == leader_epoch)


def _fork_without_epochs(case: Case) -> Answer:
    """A fork below the watermark of logs in a format that has no epochs."""
    for fork in case.of("FORK_BELOW_HW"):
        holders = {broker for version in _versions(fork) for broker in version.get("brokers", [])}
        facts = [replica_facts for replica_facts in case.replicas if replica_facts.broker in holders]
        if all(version.get("epoch") == -1 for version in _versions(fork)) and facts and all(map(without_epochs, facts)):
            return fork
    return False


def _behind_peers_watermark(case: Case) -> Answer:
    known = [
        replica_facts.replica.context.high_watermark
        for replica_facts in case.replicas
        if replica_facts.replica.context.high_watermark
    ]
    return bool(known) and any(replica_facts.replica.log_end_offset < max(known) for replica_facts in case.replicas)


def _end_alike(case: Case) -> Answer:
    return len({replica_facts.replica.log_end_offset for replica_facts in case.replicas}) == 1


def _no_copy_left(case: Case) -> Answer:
    """Whether the controller's log tells of it, or every copy ends at one offset below a checkpointed watermark."""
    findings = case.of("LRS_LOSS", "LRS_RISK")
    if findings:
        return findings[0]
    ends = {replica_facts.replica.log_end_offset for replica_facts in case.replicas}
    lost = [beyond for beyond in case.of("HW_BEYOND_LEO") if beyond.evidence.get("held_by") == []]
    return lost[0] if lost and len(case.replicas) > 1 and len(ends) == 1 and any(map(unclean, case.replicas)) else False


def _with_elr(case: Case) -> Answer:
    """Whether the cluster keeps KIP-966's list; a feature that no record names is off, if any record names one."""
    return case.features.get("eligible.leader.replicas.version", 0) >= 1 if case.features else None


def _cut_by_recovery(case: Case) -> Answer:
    """A log that ends with a whole batch below its own watermark while another has the rest."""
    torn = {beyond.place.broker for beyond in case.of("SEG_TORN_TAIL", "SEG_SHORT", "FRAMING_LOST", "BATCH_CRC_MISMATCH")}
    for beyond in case.of("HW_BEYOND_LEO"):
        if beyond.evidence.get("held_by") and beyond.place.broker not in torn:
            return beyond
    return False


def _start_beyond_end(case: Case) -> Answer:
    return has("CHECKPOINT_OUT_OF_ORDER", what="log start", limit_name="log end")(case)


def _peers_go_on(case: Case) -> Answer:
    shown = _start_beyond_end(case)
    value = shown.evidence.get("value") if isinstance(shown, Finding) else None
    others = [
        replica_facts
        for replica_facts in case.replicas
        if isinstance(shown, Finding) and replica_facts.broker != shown.place.broker
    ]
    return (
        any(replica_facts.replica.log_end_offset >= value for replica_facts in others)
        if others and isinstance(value, int)
        else None
    )


def _epochs_over_old_format(case: Case) -> Answer:
    """A log that ends in a format without epochs, below an end for which the checkpoint names an epoch."""
    for replica_facts in case.replicas:
        epochs, end = replica_facts.replica.context.leader_epochs, replica_facts.replica.log_end_offset
        entries = [] if epochs is None else [entry for entry in epochs.entries if entry.start_offset < end]
        if replica_facts.ends_in_old_format and entries:
            return replica_facts.shown(max(entries).start_offset, end)
    return False


def _history_lost_on_one(case: Case) -> Answer:
    """A checkpoint that lacks epochs of its own log which another replica's checkpoint has, at the same offsets."""
    if case.of(*FORKS, "SAME_EPOCH_DIVERGENCE"):
        return False
    for shown in case.of("EPOCH_CACHE_MISMATCH"):
        mine = case.facts(shown.place.broker)
        if shown.evidence.get("reason") != "entry_missing" or mine is None:
            continue
        own = mine.replica.context.leader_epochs
        lost = set(mine.replica.epochs) - set([] if own is None else own.entries)
        for other in case.replicas:
            theirs = other.replica.context.leader_epochs
            if other is not mine and theirs is not None and lost and lost <= set(theirs.entries):
                return shown
    return False


def _several_log_dirs(replica_facts: ReplicaFacts) -> bool:
    return replica_facts.log_dirs > 1 or "future" in replica_facts.relatives


def _only_copies(case: Case) -> Answer:
    """Whether one replica alone holds what an unclean leader lacks."""
    losses = case.of("UNCLEAN_LOSS")
    remote = any(finding.evidence.get("in_remote_storage") for finding in losses)  # those that one leader copied
    return max((len(finding.evidence.get("held_by", [])) for finding in losses), default=0) == (0 if remote else 1)


HISTORIES: Final = (
    Signature(
        "d1",
        "KAFKA-3919",
        "offsets that step back after a power outage",
        "before 0.11.0.0",
        ("0.11.0",),
        (
            must("a batch begins below the last offset and ends above it", _straddling),
            must("the log is in a format without leader epochs", of_subject(_straddling, without_epochs)),
            extra("another replica holds these offsets whole", held_by_others(_straddling)),
            expected("the broker was not stopped cleanly", of_subject(_straddling, unclean)),
            extra("other replicas hold other records there", _ahead_of_peers),
        ),
        explains=frozenset({"OFFSET_REGRESSION", "OFFSET_DISCONTINUITY"}),
    ),
    Signature(
        "d2",
        "KAFKA-7164",
        "follower that missed a leader change and did not truncate",
        "before 2.0.1",
        ("2.0.1", "2.1.0"),
        (
            must("a log goes on in the leader's epoch without being cut", _fork_where(_joined_without_cut)),
            expected("the logs part below a known high watermark", has("FORK_BELOW_HW", "UNCLEAN_LOSS")),
        ),
        explains=frozenset({"FORK_BELOW_HW", "UNCLEAN_LOSS"}),
    ),
    Signature(
        "d3",
        "KAFKA-6361",
        "logs that parted in a fast fail-over and grew together",
        "0.11.0.0 to 1.1.1",
        ("2.0.0",),
        (
            must("an epoch of one log is in no other, a later one in both", _fork_where(_grown_together)),
            expected("the logs part below a known high watermark", has("FORK_BELOW_HW", "UNCLEAN_LOSS")),
        ),
        explains=frozenset({"FORK_BELOW_HW", "UNCLEAN_LOSS"}),
    ),
    Signature(
        "d4",
        "KAFKA-1211",
        "truncation to the high watermark, see KIP-101",
        "before 0.11.0.0, or with an older message format",
        ("0.11.0",),
        (
            must("logs without leader epochs part below a high watermark", _fork_without_epochs),
            expected(
                "no replica keeps a leader-epoch-checkpoint",
                each(lambda replica_facts: replica_facts.replica.context.leader_epochs is None),
            ),
            extra("a log ends below another replica's high watermark", _behind_peers_watermark),
            extra("all logs end alike, as if in sync", _end_alike),
        ),
        outgrown=False,
        explains=frozenset({"FORK_BELOW_HW"}),
    ),
    Signature(
        "d5",
        "KIP-966",
        "last replica standing, lost with an unclean stop",
        "all versions without eligible leader replicas",
        ("4.1.0",),
        (
            must("committed offsets went with the last in-sync replica", _no_copy_left),
            must("a broker was not stopped cleanly", some(unclean)),
            must("eligible leader replicas are not known to be enabled", lambda case: not _with_elr(case)),
            extra("a recovery point lies beyond the log end", has("CHECKPOINT_OUT_OF_ORDER", what="recovery point")),
            extra("a group has committed offsets beyond every log", has("GROUP_OFFSET_BEYOND_LOG")),
            extra("the controller's log shows the election", has("LRS_LOSS", "UNCLEAN_ELECTION")),
        ),
        outgrown=False,
    ),
    Signature(
        "d6",
        "KAFKA-10751",
        "unclean election",
        "all versions, with unclean.leader.election.enable",
        (),
        (
            must("a leader of a later epoch lacks committed records", has("UNCLEAN_LOSS")),
            expected("one replica alone had the records", _only_copies),
            extra("the controller's log shows an unclean election", has("UNCLEAN_ELECTION")),
        ),
        explains=frozenset({"UNCLEAN_LOSS"}),
    ),
    Signature(
        "d15",
        "KAFKA-10101",
        "log start beyond the log end, so that a start deletes all segments",
        "before 2.8.0",
        ("2.8.0",),
        (
            must("log-start checkpoint lies beyond the log end", _start_beyond_end),
            expected("another replica's log goes on past that offset", _peers_go_on),
            expected("the broker was not stopped cleanly", of_subject(_start_beyond_end, unclean)),
        ),
        explains=frozenset({"CHECKPOINT_OUT_OF_ORDER", "RECOVERY_WOULD_TRUNCATE"}),
    ),
    Signature(
        "d16",
        "linkedin/kafka#409",
        "recovery that cut good batches off",
        "not known",
        (),
        (
            must("a log ends whole below its own watermark, others go on", _cut_by_recovery),
            must("the broker was not stopped cleanly", of_subject(_cut_by_recovery, unclean)),
            extra("a recovery point lies beyond the log end", has("CHECKPOINT_OUT_OF_ORDER", what="recovery point")),
        ),
    ),
    Signature(
        "d22",
        "KAFKA-7897",
        "epoch history kept for records without epochs",
        "0.11.0.0 to 2.1.0, with message format 0 or 1",
        ("2.1.1", "2.2.0"),
        (
            must("the checkpoint gives an epoch to batches that carry none", _epochs_over_old_format),
            extra("logs part or are cut short", has(*FORKS, "HW_BEYOND_LEO")),
        ),
    ),
    Signature(
        "d23",
        "KAFKA-15608",
        "epoch history lost on one replica",
        "brokers that moved a replica between log directories; KAFKA-7415 before 2.0.1",
        (),
        (
            must("a checkpoint lacks epochs that another replica's has", _history_lost_on_one),
            expected("its broker has several log directories", of_subject(_history_lost_on_one, _several_log_dirs)),
            against("the checkpoint is damaged", has("CHECKPOINT_MALFORMED")),
        ),
        explains=frozenset({"EPOCH_CACHE_MISMATCH"}),
    ),
)


# Settings that allow what happened, or will: read from the controller's log, tied to findings where there are some.


TOPICS_NAMED: Final = 64
_LOSSES: Final = kinds_with(Trait.LOST_BY_ELECTION, Trait.ELECTION_MAY_LOSE) | {"FORK_BELOW_HW", "UNCLEAN_ELECTION"}
_CLEANUP_POLICY: Final = "cleanup.policy"
_OF_COORDINATORS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})
"""Topics whose records count until newer ones of their keys replace them, however old."""


@dataclass(frozen=True, slots=True)
class _Risk:
    """One setting with the findings it made possible."""

    text: str
    setting: str
    value: str
    explains: tuple[str, ...]


def risky_settings(
    controller: ControllerHistory | None, topics: set[str], findings: list[Finding], as_of_ms: int | None
) -> list[Finding]:
    """`RISKY_CONFIG` for the `topics` given: one for each that a finding speaks of, one for all others of equal settings.

    `as_of_ms`: the moment ages are counted to; None: the newest timestamp of the controller's log.
    """
    if controller is None:
        return []
    moment = controller.last_ms if as_of_ms is None else as_of_ms
    by_topic: dict[str, list[Finding]] = {}
    for known_finding in findings:
        if known_finding.place.topic in topics:
            by_topic.setdefault(known_finding.place.topic or "", []).append(known_finding)
    partitions: dict[str, list[PartitionControl]] = {}
    for (topic, _), control in sorted(controller.partitions.items()):
        if topic in topics:
            partitions.setdefault(topic, []).append(control)
    quiet: dict[tuple[_Risk, ...], list[str]] = {}
    risky = []
    for topic, controls in partitions.items():
        risks = tuple(_risks(topic, controls, by_topic.get(topic, []), moment))
        if any(risk.explains for risk in risks):
            risky.append(_finding(risks, [topic], Place(topic)))
        elif risks:
            quiet.setdefault(risks, []).append(topic)
    risky += [_finding(risks, names, Place(names[0] if len(names) == 1 else None)) for risks, names in quiet.items()]
    return [on_premises(finding, passed_over(controller.unknown_records)) for finding in risky]


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


def _risks(topic: str, controls: list[PartitionControl], findings: list[Finding], moment: int | None) -> list[_Risk]:
    """What is risky of one topic, by its partitions' last words."""
    first = controls[0]
    counts = {len(control.replica_assignment) for control in controls if control.replica_assignment}
    losses = tuple(
        sorted({finding.kind for finding in findings if finding.kind in _LOSSES and "same_leader" not in finding.evidence})
    )
    risks = []
    policy = first.cleanup_policy
    if topic in _OF_COORDINATORS and policy is not None and "delete" in policy.split(","):
        risks.append(_Risk("old segments are deleted, with offsets or states still in force", _CLEANUP_POLICY, policy, ()))
    if first.setting("unclean.leader.election.enable") == "true":
        risks.append(_Risk("unclean elections on", "unclean.leader.election.enable", "true", losses))
    if first.setting("min.insync.replicas") == "1" and counts and min(counts) > 1:
        risk = f"min.insync.replicas 1 with {_span(counts)} replicas"
        risks.append(_Risk(risk, "min.insync.replicas", "1", losses))
    if 1 in counts:
        worse = [finding for finding in findings if finding.severity.rank >= Severity.ERROR.rank]
        damage = tuple(sorted({finding.kind for finding in worse if finding.place.partition is not None}))
        risks.append(_Risk("one replica only", "replication.factor", "1", damage))
    return risks + _short_retention(first.setting("retention.ms"), findings, moment)


def _short_retention(retention: str | None, findings: list[Finding], moment: int | None) -> list[_Risk]:
    """Records of a transaction that is open for longer than they are kept."""
    if retention is None or moment is None or not (retention.isascii() and retention.isdigit() and len(retention) < 20):
        return []
    opened = [
        finding
        for finding in findings
        if finding.kind in kinds_with(Trait.OPEN_TRANSACTION) and isinstance(finding.evidence.get("last_timestamp"), int)
    ]
    stuck = [finding.kind for finding in opened if 0 <= finding.evidence["last_timestamp"] < moment - int(retention)]
    kinds = tuple(sorted(set(stuck)))
    return [_Risk("retention shorter than an open transaction", "retention.ms", retention, kinds)] if stuck else []


def _span(counts: set[int]) -> str:
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
