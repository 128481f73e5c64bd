"""Settings that allow what happened, or will: read from the controller's log, tied to findings where there are some."""

from dataclasses import dataclass
from typing import Any, Final

from kafka_forensics.analysis.catalogue import finding, on_premises
from kafka_forensics.model.controller import ControllerHistory, PartitionControl, passed_over
from kafka_forensics.model.findings import Finding, Place, Severity

TOPICS_NAMED: Final = 64
_LOSSES: Final = frozenset(
    {"UNCLEAN_LOSS", "LRS_LOSS", "LRS_RISK", "ISR_MEMBER_MISSING_COMMITTED", "FORK_BELOW_HW", "UNCLEAN_ELECTION"}
)
_OPEN: Final = frozenset({"TXN_OPEN", "TXN_HANGING"})


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
    for one in findings:
        if one.place.topic in topics:
            by_topic.setdefault(one.place.topic or "", []).append(one)
    partitions: dict[str, list[PartitionControl]] = {}
    for (topic, _), control in sorted(controller.partitions.items()):
        if topic in topics:
            partitions.setdefault(topic, []).append(control)
    quiet: dict[tuple[_Risk, ...], list[str]] = {}
    found = []
    for topic, controls in partitions.items():
        risks = tuple(_risks(controls, by_topic.get(topic, []), moment))
        if any(risk.explains for risk in risks):
            found.append(_finding(risks, [topic], Place(topic)))
        elif risks:
            quiet.setdefault(risks, []).append(topic)
    found += [_finding(risks, names, Place(names[0] if len(names) == 1 else None)) for risks, names in quiet.items()]
    return [on_premises(one, passed_over(controller.unknown_records)) for one in found]


def _finding(risks: tuple[_Risk, ...], topics: list[str], place: Place) -> Finding:
    evidence: dict[str, Any] = {
        "topics": topics[:TOPICS_NAMED],
        "count": len(topics),
        "risks": [risk.text for risk in risks],
        "settings": {risk.setting: risk.value for risk in risks},
    }
    explains = sorted({kind for risk in risks for kind in risk.explains})
    return finding("RISKY_CONFIG", place, evidence | ({"explains": explains} if explains else {}))


def _risks(controls: list[PartitionControl], findings: list[Finding], moment: int | None) -> list[_Risk]:
    """What is risky of one topic, by its partitions' last words."""
    first = controls[0]
    counts = {len(control.replica_assignment) for control in controls if control.replica_assignment}
    losses = tuple(sorted({one.kind for one in findings if one.kind in _LOSSES and "same_leader" not in one.evidence}))
    risks = []
    if first.setting("unclean.leader.election.enable") == "true":
        risks.append(_Risk("unclean elections on", "unclean.leader.election.enable", "true", losses))
    if first.setting("min.insync.replicas") == "1" and counts and min(counts) > 1:
        told = f"min.insync.replicas 1 with {_span(counts)} replicas"
        risks.append(_Risk(told, "min.insync.replicas", "1", losses))
    if 1 in counts:
        damage = tuple(sorted({one.kind for one in findings if one.severity.rank >= Severity.ERROR.rank}))
        risks.append(_Risk("one replica only", "replication.factor", "1", damage))
    return risks + _short_retention(first.setting("retention.ms"), findings, moment)


def _short_retention(retention: str | None, findings: list[Finding], moment: int | None) -> list[_Risk]:
    """Records of a transaction that is open for longer than they are kept."""
    if retention is None or moment is None or not (retention.isascii() and retention.isdigit() and len(retention) < 20):
        return []
    opened = [one for one in findings if one.kind in _OPEN and isinstance(one.evidence.get("last_timestamp"), int)]
    stuck = [one.kind for one in opened if 0 <= one.evidence["last_timestamp"] < moment - int(retention)]
    kinds = tuple(sorted(set(stuck)))
    return [_Risk("retention shorter than an open transaction", "retention.ms", retention, kinds)] if stuck else []


def _span(counts: set[int]) -> str:
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
