"""Signatures of known incidents: what must hold, what should, what speaks against, and the match as a finding.

A signature is a declaration over the findings and the facts of one partition; it names an issue and never changes what other
findings say. Kafka's version stands in no file, so versions are facts about the issue, held against what the files bound.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.kinds import finding
from kafka_forensics.analysis.replica import Replica
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
"""First level of the feature `metadata.version` that a release knows (MetadataVersion)."""
Answer = Finding | bool | None
"""What a condition says of a case: it holds (or the finding that shows it), it does not, or None: the files do not say."""


@dataclass(slots=True)
class ReplicaFacts:
    """A replica and what is known of its surroundings; None is "the files do not say"."""

    replica: Replica
    segment_bytes: dict[int, int] = field(default_factory=dict)
    """Segment base offset → size of its `.log`."""
    deleted_files: int = 0
    """Files on their way out: `.deleted`."""
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
    relatives: list[str] = field(default_factory=list)
    """Suffixes (`stray`, `delete`, `future`) of the partition's other directories on its broker."""
    ends_in_old_format: bool = False
    """Its last batch is of message format 0 or 1."""
    forgotten_transactions: dict[int, int] = field(default_factory=dict)
    """Producer id → first offset of a transaction that the newest snapshot holds open, though it lies before the log start."""
    repeated_batches: list[tuple[int, int]] = field(default_factory=list)
    """(offset of a batch, offset of the one whose records it repeats under a higher epoch of its producer)."""

    @property
    def broker(self) -> int | str:
        """Who holds it."""
        return self.replica.broker

    def shown(self, start: int | None = None, end: int | None = None) -> Finding:
        """A finding that only lends its place: this replica, and offsets `[start, end)`."""
        return finding(KIND, self.replica.context.place(offset_start=start, offset_end=end))


@dataclass(slots=True)
class Case:
    """What signatures are held against: all findings of one partition, and its replicas' facts where they are in hand."""

    findings: list[Finding]
    replicas: list[ReplicaFacts] = field(default_factory=list)
    features: dict[str, int] = field(default_factory=dict)
    """Levels of the cluster's features; empty where no controller's log tells."""

    def of(self, *kinds: str) -> list[Finding]:
        """Findings of these kinds, in order."""
        return [finding for finding in self.findings if finding.kind in kinds]

    def facts(self, broker: int | str | None) -> ReplicaFacts | None:
        """The replica on a broker, None if it is not known."""
        return next((replica_facts for replica_facts in self.replicas if replica_facts.broker == broker), None)


class Weight(Enum):
    """What a condition's answer does."""

    MUST = "must"
    """Without it there is no match."""
    EXPECTED = "expected"
    """Fits if it holds, does not fit if it does not."""
    EXTRA = "extra"
    """Fits if it holds; its absence says nothing."""
    AGAINST = "against"
    """Does not fit if it holds; its absence says nothing."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing to look for; `text` says it in at most 60 characters, as it stands in the finding."""

    weight: Weight
    text: str
    holds: Callable[[Case], Answer]


@dataclass(frozen=True, slots=True)
class Signature:
    """An incident: its number in docs/incidents.md, its issue if it has one, what happened, versions as told there, conditions.

    `whole_scan`: it needs findings that are only made when every partition was judged.
    """

    incident: str
    issue: str | None
    summary: str
    affected_versions: str
    fixed_in: tuple[str, ...]
    conditions: tuple[Condition, ...]
    whole_scan: bool = False
    outgrown: bool = True
    """Whether files of a version that has the fix speak against it."""
    explains: frozenset[str] = frozenset()
    """Kinds of findings that it accounts for: what its conditions look at, and no more."""
    musts: tuple[Condition, ...] = field(init=False)
    """Of the conditions those without which there is no match."""

    def __post_init__(self) -> None:
        """Every partition is held against every signature, and most fail the first must."""
        musts = tuple(condition for condition in self.conditions if condition.weight is Weight.MUST)
        object.__setattr__(self, "musts", musts)

    @property
    def key(self) -> str:
        """`d3 KAFKA-6361`: one signature of one incident; `d7` where it has no issue."""
        return signature_key(self.incident, self.issue)


def signature_key(incident: str, issue: str | None) -> str:
    """What tells signatures apart, from the two values that the finding's evidence has, too."""
    return incident if issue is None else f"{incident} {issue}"


def must(text: str, holds: Callable[[Case], Answer]) -> Condition:
    """A condition without which there is no match."""
    return Condition(Weight.MUST, text, holds)


def expected(text: str, holds: Callable[[Case], Answer]) -> Condition:
    """A condition that counts both ways."""
    return Condition(Weight.EXPECTED, text, holds)


def extra(text: str, holds: Callable[[Case], Answer]) -> Condition:
    """A condition that counts only if it holds."""
    return Condition(Weight.EXTRA, text, holds)


def against(text: str, holds: Callable[[Case], Answer]) -> Condition:
    """A condition that speaks against the match if it holds."""
    return Condition(Weight.AGAINST, text, holds)


def matches(case: Case, signatures: Iterable[Signature]) -> list[Finding]:
    """One finding for each signature whose every must-condition holds in the case, in the order of the signatures.

    Where something speaks against it and nothing but the musts for it, there is none.
    """
    findings: list[Finding | None] = []
    for signature in signatures:
        answers = []
        for condition in signature.musts:
            answers.append((condition, condition.holds(case)))
            if not answers[-1][1]:
                break
        else:
            findings += [_match(case, signature, answers)] if answers else []
    return [finding for finding in findings if finding is not None]


def _speaks_against(
    signature: Signature, rest: list[tuple[Condition, Answer]], bounds: list[tuple[tuple[int, ...], str]]
) -> list[str]:
    """Conditions that do not hold and should, those that hold and should not, and a version in which it is fixed."""
    against = [f"not so: {condition.text}" for condition, answer in rest if condition.weight is Weight.EXPECTED and answer is False]
    against += [condition.text for condition, answer in rest if condition.weight is Weight.AGAINST and answer]
    if signature.outgrown and signature.fixed_in and bounds and bounds[-1][0] >= _version(signature.fixed_in[-1]):
        against.append(f"{bounds[-1][1]}: Kafka {_dotted(bounds[-1][0])} or later"[:60])
    return against


def _match(case: Case, signature: Signature, musts: list[tuple[Condition, Answer]]) -> Finding | None:
    rest = [(condition, condition.holds(case)) for condition in signature.conditions if condition.weight is not Weight.MUST]
    fits = [condition.text for condition, answer in (*musts, *rest) if answer and condition.weight is not Weight.AGAINST]
    unknown = [condition.text for condition, answer in rest if answer is None]
    bounds = version_bounds(case.replicas, case.features)
    against = _speaks_against(signature, rest, bounds)
    more = len(fits) > len(musts)
    if against and not more:
        return None
    evidence: Json = {
        "incident": signature.incident,
        "issue": signature.issue,
        "summary": signature.summary,
        "fits": fits,
        "does_not_fit": against,
        "unknown": unknown,
        "affected_versions": signature.affected_versions,
        "fixed_in": list(signature.fixed_in),
        "version_at_least": _dotted(bounds[-1][0]) if bounds else None,
        "version_witnesses": [f"{witness}: {_dotted(version)} or later" for version, witness in bounds][:_LISTED],
    }
    shown = next((answer for _, answer in musts if isinstance(answer, Finding)), None)
    place = _place(case, None if shown is None else shown.place)
    return finding(KIND, place, evidence, confidence=Confidence.INFERRED if more and not against else Confidence.SUSPECTED)


def _place(case: Case, shown: Place | None) -> Place:
    """Partition, and of what shows it the broker and the offsets: the match is about a log, not about a file."""
    if shown is not None:
        return Place(
            shown.topic, shown.partition, shown.broker, shown.log_dir, offset_start=shown.offset_start, offset_end=shown.offset_end
        )
    context = case.replicas[0].replica.context if case.replicas else None
    return Place() if context is None else Place(context.topic, context.partition)


def version_bounds(replicas: Sequence[ReplicaFacts], features: Mapping[str, int]) -> list[tuple[tuple[int, ...], str]]:
    """What the files say of the version that wrote them: (at least this version, the witness), lowest first.

    A bound is of the broker that ran last; what went wrong may be older than an upgrade.
    """
    signs: set[tuple[tuple[int, ...], str]] = set()
    for replica_facts in replicas:
        if replica_facts.replica.context.leader_epochs is not None or replica_facts.has_snapshots:
            signs.add(((0, 11, 0), "leader epochs or producer snapshots"))
        if replica_facts.has_partition_metadata:
            signs.add(((2, 8, 0), "partition.metadata"))
        if replica_facts.meta_version is not None and replica_facts.meta_version >= 1:
            signs.add(((2, 8, 0), "meta.properties version 1"))
        if replica_facts.broker_epoch is not None:
            signs.add(((3, 7, 0), ".kafka_cleanshutdown with an epoch"))
    level = features.get("metadata.version", 0)
    release = max((release for first, release in _METADATA_VERSIONS if first <= level), default=None)
    if release is not None:
        signs.add((release, f"metadata.version {level}"))
    return sorted(signs)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
