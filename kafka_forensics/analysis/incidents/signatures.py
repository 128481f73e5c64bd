"""Signatures of known incidents: conditions for and against, and a match as a finding.

A signature is a declaration over the findings and facts of one partition. It names an issue and never changes other findings. No
file records Kafka's version, so the versions of an issue are compared with the lowest version that the files allow.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct, structs

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.evidence.context import ReplicaContext
from kafka_forensics.model.findings import Confidence, Finding, Place

if TYPE_CHECKING:
    from kafka_forensics.model.json_objects import Json

KIND: Final = "INCIDENT_SIGNATURE"
_LISTED: Final = 8
_METADATA_VERSIONS: Final = (
    (1, (3, 0, 0)),
    (2, (3, 1, 0)),
    (3, (3, 2, 0)),
    (4, (3, 3, 0)),
    (8, (3, 4, 0)),
    (9, (3, 5, 0)),
    (12, (3, 6, 0)),
    (15, (3, 7, 0)),
    (20, (3, 8, 0)),
    (21, (3, 9, 0)),
    (22, (4, 0, 0)),
    (26, (4, 1, 0)),
    (28, (4, 2, 0)),
    (30, (4, 3, 0)),
)
"""The first level of the feature `metadata.version` of each release (MetadataVersion)."""
ConditionResult = Finding | bool | None
"""True, or the finding that shows that the condition holds; False: it does not hold; None: the files do not say."""


class ReplicaFacts(Struct):
    """A replica and facts from outside its log; None: the files do not say."""

    replica: Replica
    segment_bytes: dict[int, int] = msgspec.field(default_factory=dict)
    """Segment base offset → size of its `.log`."""
    deleted_files: int = 0
    """Files ending in `.deleted`."""
    has_partition_metadata: bool = False
    has_snapshots: bool = False
    meta_version: int | None = None
    """`version` of meta.properties: 1 in KRaft mode."""
    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None
    broker_epoch: int | None = None
    """From `.kafka_cleanshutdown`."""
    log_dirs: int = 1
    """Log directories of its broker among the copies."""
    relatives: list[str] = msgspec.field(default_factory=list)
    """Suffixes (`stray`, `delete`, `future`) of the partition's other directories on its broker."""
    ends_in_old_format: bool = False
    """Whether its last batch is of message format 0 or 1, which have no leader epochs."""
    forgotten_transactions: dict[int, int] = msgspec.field(default_factory=dict)
    """Producer id → first offset, before the log start, of a transaction open in the newest snapshot."""
    repeated_batches: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(offset of a batch, offset of the batch whose records it repeats under a higher producer epoch)."""

    @property
    def context(self) -> ReplicaContext:
        """The context of the replica."""
        return self.replica.context

    @property
    def broker(self) -> int | str:
        """The broker of this copy."""
        return self.replica.broker

    def shown(self, start: int | None = None, end: int | None = None) -> Finding:
        """A finding that only carries a place: this replica, and offsets `[start, end)`."""
        return finding(KIND, self.context.place(offset_start=start, offset_end=end))


class PartitionEvidence(Struct):
    """What conditions look at: all findings of one partition and, if they are available, the facts of its replicas."""

    findings: list[Finding]
    replicas: list[ReplicaFacts] = msgspec.field(default_factory=list)
    features: dict[str, int] = msgspec.field(default_factory=dict)
    """Levels of the cluster's features; empty without a controller's log."""

    def of(self, *kinds: str) -> list[Finding]:
        """Findings of these kinds, in order."""
        return [finding for finding in self.findings if finding.kind in kinds]

    def facts(self, broker: int | str | None) -> ReplicaFacts | None:
        """The replica of a broker; None if its facts are not available."""
        return next((facts for facts in self.replicas if facts.broker == broker), None)


Check = Callable[[PartitionEvidence], ConditionResult]


class Weight(Enum):
    """How a condition counts."""

    MUST = "must"
    """Required for a match."""
    EXPECTED = "expected"
    """Counts for the match if it holds, against it if it does not."""
    EXTRA = "extra"
    """Counts for the match if it holds."""
    AGAINST = "against"
    """Counts against the match if it holds."""


class Condition(Struct, frozen=True):
    """One condition; `text` describes it in the finding, in at most 60 characters."""

    weight: Weight
    text: str
    holds: Check


must: Final = partial(Condition, Weight.MUST)
expected: Final = partial(Condition, Weight.EXPECTED)
extra: Final = partial(Condition, Weight.EXTRA)
against: Final = partial(Condition, Weight.AGAINST)


@dataclass(frozen=True, slots=True)
class IncidentSignature:
    """A known incident, with the conditions that identify it."""

    incident: str
    """Its number in docs/incidents.md."""
    issue: str | None
    summary: str
    affected_versions: str
    """As reported."""
    fixed_in: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    explains: frozenset[str] = frozenset()
    """Kinds of findings that it accounts for: those its conditions look at, and no others."""
    whole_scan: bool = False
    """Whether it needs findings that are only made after all partitions."""
    fix_rules_out: bool = True
    """Whether files of a version with the fix count against it."""
    required: tuple[Condition, ...] = field(init=False)
    """The conditions of weight MUST, computed once: every partition is compared with every signature, and most fail the first."""

    def __post_init__(self) -> None:
        """Select the required conditions."""
        required = tuple(condition for condition in self.conditions if condition.weight is Weight.MUST)
        object.__setattr__(self, "required", required)

    @property
    def key(self) -> str:
        """The unique key of a signature: `d3 KAFKA-6361`, or `d7` without an issue."""
        return signature_key(self.incident, self.issue)

    def shown_by(
        self, *conditions: Condition, explains: frozenset[str] = frozenset(), whole_scan: bool = False, fix_rules_out: bool = True
    ) -> "IncidentSignature":
        """This incident with the conditions that identify it; parameters as the fields."""
        return replace(self, conditions=conditions, explains=explains, whole_scan=whole_scan, fix_rules_out=fix_rules_out)


def signature_key(incident: str, issue: str | None) -> str:
    """The key of a signature from the two values that the finding's evidence has, too."""
    return incident if issue is None else f"{incident} {issue}"


def match_signatures(case: PartitionEvidence, signatures: Iterable[IncidentSignature]) -> list[Finding]:
    """One finding per signature whose required conditions all hold, in the order of the signatures.

    A signature with conditions against it, and no condition for it except the required ones, does not match.
    """
    findings: list[Finding | None] = []
    for signature in signatures:
        results = []
        for condition in signature.required:
            results.append((condition, condition.holds(case)))
            if not results[-1][1]:
                break
        else:
            findings += [_match(case, signature, results)] if results else []
    return [finding for finding in findings if finding is not None]


def _match(
    case: PartitionEvidence, signature: IncidentSignature, required: list[tuple[Condition, ConditionResult]]
) -> Finding | None:
    rest = [(condition, condition.holds(case)) for condition in signature.conditions if condition.weight is not Weight.MUST]
    fits = [condition.text for condition, result in (*required, *rest) if result and condition.weight is not Weight.AGAINST]
    bounds = version_bounds(case.replicas, case.features)
    against = [
        f"not true: {condition.text}" for condition, result in rest if condition.weight is Weight.EXPECTED and result is False
    ]
    against += [condition.text for condition, result in rest if condition.weight is Weight.AGAINST and result]
    if signature.fix_rules_out and signature.fixed_in and bounds and bounds[-1][0] >= _version(signature.fixed_in[-1]):
        against.append(f"{bounds[-1][1]}: Kafka {_dotted(bounds[-1][0])} or later"[:60])
    has_more = len(fits) > len(required)
    if against and not has_more:
        return None
    evidence: Json = {
        "incident": signature.incident,
        "issue": signature.issue,
        "summary": signature.summary,
        "fits": fits,
        "does_not_fit": against,
        "unknown": [condition.text for condition, result in rest if result is None],
        "affected_versions": signature.affected_versions,
        "fixed_in": list(signature.fixed_in),
        "version_at_least": _dotted(bounds[-1][0]) if bounds else None,
        "version_witnesses": [f"{witness}: {_dotted(version)} or later" for version, witness in bounds][:_LISTED],
    }
    shown = next((result.place for _, result in required if isinstance(result, Finding)), None)
    if shown is not None:  # a match is about a log, not about a file
        place = structs.replace(shown, file=None, byte_start=None, byte_end=None)
    elif case.replicas:
        place = Place(case.replicas[0].context.topic, case.replicas[0].context.partition)
    else:
        place = Place()
    confidence = Confidence.INFERRED if has_more and not against else Confidence.SUSPECTED
    return finding(KIND, place, evidence, confidence=confidence)


def version_bounds(replicas: Sequence[ReplicaFacts], features: Mapping[str, int]) -> list[tuple[tuple[int, ...], str]]:
    """What the files say about the version that wrote them: (at least this version, the witness), lowest first.

    A bound holds for the broker that ran last; the incident may be older than an upgrade.
    """
    bounds: set[tuple[tuple[int, ...], str]] = set()
    for facts in replicas:
        if facts.context.leader_epochs is not None or facts.has_snapshots:
            bounds.add(((0, 11, 0), "leader epochs or producer snapshots"))
        if facts.has_partition_metadata:
            bounds.add(((2, 8, 0), "partition.metadata"))
        if facts.meta_version is not None and facts.meta_version >= 1:
            bounds.add(((2, 8, 0), "meta.properties version 1"))
        if facts.broker_epoch is not None:
            bounds.add(((3, 7, 0), ".kafka_cleanshutdown with an epoch"))
    level = features.get("metadata.version", 0)
    release = max((release for first, release in _METADATA_VERSIONS if first <= level), default=None)
    if release is not None:
        bounds.add((release, f"metadata.version {level}"))
    return sorted(bounds)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
