"""Very many findings of one kind and broker: the first of them one by one, the rest counted.

A checkpoint may name 300,000 partitions of which nothing is there, a log directory hold as many odd entries. What is said of a
partition that was read is never counted away: no two partitions need be alike.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final

from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.findings import Confidence, Finding, Place, Severity

LIMIT: Final = 100
"""Findings of one kind, severity and broker told one by one, the first as they are sorted."""
EXAMPLES: Final = 6
"""Places named of those that are counted."""

_SURENESS: Final = tuple(Confidence)
_Group = tuple[str, Severity, str]


def counted(findings: Iterable[Finding], read: Collection[tuple[str, int]]) -> list[Finding]:
    """`findings`, which are sorted; those beyond `LIMIT` of one kind, severity and broker that are of none of the partitions `read`
    are one, whose evidence has how many (`counted`) and some of their places (`examples`); what of place and evidence all of them
    have alike stays, and the least confidence.
    """
    known = frozenset(read)
    seen: dict[_Group, int] = {}
    rest: dict[_Group, list[Finding]] = {}
    kept: list[Finding] = []
    for finding in findings:
        if not _is_around(finding.place, known):
            kept.append(finding)
            continue
        group = (finding.kind, finding.severity, str(finding.place.broker))
        seen[group] = seen.get(group, 0) + 1
        if seen[group] <= LIMIT:
            kept.append(finding)
        else:
            rest.setdefault(group, []).append(finding)
    if rest:
        kept += [members[0] if len(members) == 1 else _as_one(members) for members in rest.values()]
        kept.sort(key=Finding.sort_key)
    return kept


def _is_around(place: Place, read: frozenset[tuple[str, int]]) -> bool:
    """Whether a finding is of a log directory, or of a partition that was not read; witnesses' logs are read by themselves."""
    if place.topic is None:
        return place.broker is not None or place.log_dir is not None or place.file is not None
    return place.partition is not None and place.topic not in WITNESS_TOPICS and (place.topic, place.partition) not in read


def _as_one(members: list[Finding]) -> Finding:
    """One finding for several of one kind, severity and broker."""
    first = members[0]
    alike: dict[str, Any] = {
        name: value
        for name, value in first.evidence.items()
        if all(finding.evidence.get(name, members) == value for finding in members)
    }
    examples = [_called(finding.place) for finding in members[:EXAMPLES]]
    places = [finding.place for finding in members]
    place = Place(
        broker=first.place.broker,
        log_dir=first.place.log_dir if all(one.log_dir == first.place.log_dir for one in places) else None,
    )
    confidence = max((finding.confidence for finding in members), key=_SURENESS.index)
    return replace(first, confidence=confidence, place=place, evidence=alike | {"counted": len(members), "examples": examples})


def _called(place: Place) -> str:
    """A short name of a place: its partition, else its file, else its log directory."""
    if place.topic is not None and place.partition is not None:
        return f"{place.topic}-{place.partition}"
    return str(place.file or place.log_dir or place.broker)
