"""What a salvage says of itself: whence every byte came, what no copy has, what stays behind, and what was not salvaged.

`schema/salvage-1.0.json` describes it.
"""

from dataclasses import dataclass, field
from typing import Final

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Asked, Finding
from kafka_forensics.model.json_objects import Json, attributes, object_of
from kafka_forensics.model.offset_ranges import Ranges
from kafka_forensics.model.results import SCHEMA_VERSION, Incomplete
from kafka_forensics.questions.salvage.lineage import LeftBehind
from kafka_forensics.questions.salvage.log_dirs import TargetDir
from kafka_forensics.questions.salvage.partition_files import Range
from kafka_forensics.replication.planner import NO_END
from kafka_forensics.version import __version__

MANIFEST: Final = "manifest.json"
ELECTION_FILE: Final = "election.json"
"""All partitions that were salvaged, as kafka-leader-election.sh reads them."""
NO_TOPIC_ID: Final = "topic_id"
"""Stands among what is unseen where brokers want the topic's id, and nothing here tells it."""
_LOG_DIR: Final = attributes(
    "broker=node directory in_place_of=log_dir was_empty=is_empty directory_id meta_properties partitions bytes=size_in_bytes"
)
_PARTITION: Final = attributes(
    "topic partition topic_id base chosen_by brokers log_start_offset local_log_start_offset log_end_offset high_watermark"
    " leader_epochs segments bytes=size_in_bytes"
)
_RANGE: Final = attributes(
    "file byte_start byte_end offset_start offset_end broker log_dir source_file source_byte_start source_byte_end why sha256"
)
_FILE: Final = attributes("file bytes=size_in_bytes broker log_dir source_file sha256")
_LEFT_BEHIND: Final = attributes("broker offset_start=start offset_end=end committed_end rival_of")
_INCOMPLETE: Final = attributes("path reason")
_REFUSED: Final = attributes("topic partition kind reason hint is_tiered")
_FINDING: Final = {
    **attributes("kind severity=severity.value offset_start=place.offset_start offset_end=place.offset_end"),
    "producer_id": lambda finding: finding.evidence.get("producer_id"),
}
MAY_BE_STALE: Final = (
    "keys whose newest value or tombstone was left out may be missing, have an older value, or be back from deletion"
)


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets `[start, end)` that no copy has of this lineage; of a compacted topic, that the copy taken does not have.

    `end` is None for damaged bytes after the last batch, which held an unknown number of offsets. `damaged_on`: brokers whose
    copy has damaged bytes of these offsets.
    """

    start: int
    end: int | None
    damaged_on: tuple[int | str, ...] = ()


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file of the output that is a copy's, byte for byte, beside the segments: a snapshot of the controllers' log."""

    file: str
    size_in_bytes: int
    broker: int | str
    log_dir: str
    source_file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Quorum:
    """On what the controllers' log stands: who votes, whose whole copies are the majority, and the epoch to start in."""

    voters: list[int]
    counted: list[int | str]
    leader_epoch: int
    """Above every one that a copy tells of; nobody was elected in it."""


@dataclass(frozen=True, slots=True)
class PassedLimit:
    """A limit of retention that the first segment of a salvaged log has passed: brokers delete it as soon as they run."""

    setting: str
    """`retention.ms` or `retention.bytes`"""
    value: int
    is_known: bool
    """Whether the controllers' log has it; else it is Kafka's default."""
    of_topic: str | None
    """The topic's own value, if it has one;"""
    of_topic_is_known: bool = True
    """and whether a controllers' log tells that."""


@dataclass(slots=True)
class SalvagedPartition:
    """A partition that was written; offsets are exclusive ends."""

    topic: str
    partition: int
    topic_id: str | None
    base: int | str
    """The broker whose copy says what the lineage is."""
    chosen_by: str
    """`plan` (recommends it) · `prefer-broker` · `committed` (its lineage alone was proven committed) · `longest` (neither: it is
    proven committed furthest, or goes on furthest) · `quorum` (of a majority of the voters, the most up-to-date)"""
    log_start_offset: int
    local_log_start_offset: int
    """Where its segments begin: the log start, but of a tiered topic."""
    log_end_offset: int
    high_watermark: int | None
    leader_epochs: list[EpochEntry] = field(default_factory=list)
    segments: int = 0
    size_in_bytes: int = 0
    replicas: list[tuple[int | str, str]] = field(default_factory=list)
    """Whose replicas it is: broker, and log directory below the output, `broker-N/LOGDIR`. Each has the same files."""
    gaps: list[Gap] = field(default_factory=list)
    left_behind: list[LeftBehind] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    """Whence its bytes came, known once they are on disk."""
    unseen: list[str] = field(default_factory=list)
    """What of the plan's witnesses is missing, so that records may be where nobody looked, as `kind` or `kind:broker`; `topic_id`
    where brokers want that, and nothing here tells it. Of the controllers' log `voter:N`, `quorum_state:N`."""
    inherited: list[Finding] = field(default_factory=list)
    """Findings above `info` of a scan of the output that a copy has at the same offsets."""
    new: list[Finding] = field(default_factory=list)
    """Findings above `info` of a scan of the output that no copy has there."""
    warning: str | None = None
    """Of a compacted topic: why the copy of the preferred broker was not taken, and what may be wrong with the rest where something
    was left out."""
    passed_limits: tuple[PassedLimit, ...] = ()
    quorum: Quorum | None = None
    """Of the controllers' log alone;"""
    files: list[CopiedFile] = field(default_factory=list)
    """and so are these."""

    @property
    def wants_topic_id(self) -> bool:
        """Whether its `partition.metadata` has to be written by hand before a broker takes the log for this topic's."""
        return NO_TOPIC_ID in self.unseen

    @property
    def brokers(self) -> list[int | str]:
        """Whose bytes it is made of, the base first."""
        return list(dict.fromkeys((self.base, *(taken.broker for taken in self.ranges))))


@dataclass(frozen=True, slots=True)
class Refused:
    """A partition that was not salvaged, why, and what to do."""

    topic: str
    partition: int
    kind: str
    """`rivals` · `gaps` · `internal_topic` · `compacted` · `controllers_log` · `tiered` · `topic_undecided` · `no_copy` ·
    `nothing_read` · `not_readable` · `not_sound` · `no_log_dir`"""
    reason: str
    hint: str | None = None
    offsets: tuple[tuple[int, int | None], ...] = ()
    """Ranges; an end of None is unknown."""
    brokers: tuple[int | str, ...] = ()
    is_tiered: bool = False
    """Whether a start of brokers without its directories has Kafka delete its remote log."""


class RefusedError(Exception):
    """A partition cannot be salvaged."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.refused = refused


@dataclass(slots=True)
class Salvaged:
    """The answer: what was written, and what was not."""

    output: str
    partitions: list[SalvagedPartition] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    begun_empty: list[Refused] = field(default_factory=list)
    """Partitions of which no copy is here, and that brokers may begin empty."""
    incomplete: list[Incomplete] = field(default_factory=list)
    inherited: list[Finding] = field(default_factory=list)
    """Findings of no single partition that an input has, too."""
    new: list[Finding] = field(default_factory=list)
    """Findings of no single partition that no input has."""
    log_dirs: list[TargetDir] = field(default_factory=list)
    bytes_to_write: int = 0
    """Of the segments in all log directories, as it is announced."""
    is_kraft: bool = False
    """Whether nodes are known to have controllers in the place of ZooKeeper."""
    combined: frozenset[int] = frozenset()
    """Nodes that vote among the controllers; those that are brokers, too, run as both."""
    is_selection: bool = False
    """Whether --topic, --partition or --broker left out partitions."""
    of_controllers: list[Finding] = field(default_factory=list)
    """What must be mended before controllers start, where their log was refused."""
    to_mend: list[Finding] = field(default_factory=list)
    """Small files that come from the copies as they are, and over which a broker does not start, or does not serve its logs."""
    asked: Asked | None = None
    options: tuple[str, ...] = ()
    """What to give to salvage the same copies again, beside `--output`."""

    @property
    def is_whole(self) -> bool:
        """Whether all that was asked for was read and salvaged."""
        return not (self.refused or self.incomplete)

    @property
    def has_new_findings(self) -> bool:
        """Whether a scan of the output finds what no copy has."""
        return bool(self.new) or any(partition.new for partition in self.partitions)

    def to_elect(self) -> list[tuple[str, int]]:
        """Partitions that need a leader: the controllers elect among themselves."""
        return [(partition.topic, partition.partition) for partition in self.partitions if partition.quorum is None]

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the segments written."""
        return sum(partition.size_in_bytes for partition in self.partitions)


def open_ended(ranges: Ranges) -> tuple[tuple[int, int | None], ...]:
    """The ranges, with None for an end that is unknown."""
    return tuple([(start, None if end == NO_END else end) for start, end in ranges])


def document(salvaged: Salvaged) -> Json:
    """The manifest as JSON has it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "kafka-forensics", "version": __version__},
        "bytes_to_write": salvaged.bytes_to_write,
        "log_dirs": [{**object_of(_LOG_DIR, target), "partitions": len(target.partitions)} for target in salvaged.log_dirs],
        "partitions": [_partition(partition) for partition in salvaged.partitions],
        "refused": [_refused(refused) for refused in salvaged.refused],
        **({"begun_empty": [_refused(one) for one in salvaged.begun_empty]} if salvaged.begun_empty else {}),
        "incomplete": [object_of(_INCOMPLETE, gap) for gap in salvaged.incomplete],
        **_findings(salvaged),
    }


def _refused(refused: Refused) -> Json:
    return {**object_of(_REFUSED, refused), "offsets": [list(span) for span in refused.offsets], "brokers": list(refused.brokers)}


def _partition(partition: SalvagedPartition) -> Json:
    quorum = partition.quorum
    return {
        **object_of(_PARTITION, partition),
        "leader_epochs": [[entry.leader_epoch, entry.start_offset] for entry in partition.leader_epochs],
        "replicas": [{"broker": broker, "directory": directory} for broker, directory in partition.replicas],
        "ranges": [object_of(_RANGE, taken) for taken in partition.ranges],
        "gaps": [{"offset_start": gap.start, "offset_end": gap.end, "damaged_on": list(gap.damaged_on)} for gap in partition.gaps],
        "left_behind": [object_of(_LEFT_BEHIND, left) for left in partition.left_behind],
        "unseen": partition.unseen,
        **_findings(partition),
        **({} if partition.warning is None else {"warning": partition.warning}),
        **({} if quorum is None else {"quorum": object_of(attributes("voters counted leader_epoch"), quorum)}),
        **({} if quorum is None else {"files": [object_of(_FILE, copied) for copied in partition.files]}),
    }


def _findings(of: Salvaged | SalvagedPartition) -> Json:
    findings = {"inherited": of.inherited, "new": of.new}
    return {name: [object_of(_FINDING, finding) for finding in found] for name, found in findings.items()}
