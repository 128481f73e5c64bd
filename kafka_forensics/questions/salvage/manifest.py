"""The manifest of a salvage: the source of every byte, gaps, what is left behind, and what was not salvaged.

`schema/salvage-1.0.json` describes it.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import asdict

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.findings import Finding, RerunArguments, TopicPartition
from kafka_forensics.model.json_objects import Columns, Json, attributes, object_of
from kafka_forensics.model.offset_ranges import Ranges
from kafka_forensics.model.remote_log import RemoteSegment
from kafka_forensics.model.results import SCHEMA_VERSION, Incomplete
from kafka_forensics.questions.salvage.lineage import LeftBehind
from kafka_forensics.questions.salvage.log_dirs import TargetDir
from kafka_forensics.questions.salvage.partition_files import OutputRange
from kafka_forensics.replication.planner import NO_END
from kafka_forensics.version import __version__

MANIFEST: Final = "manifest.json"
ELECTION_FILE: Final = "election.json"
"""Lists all salvaged partitions in the format of kafka-leader-election.sh."""
NO_TOPIC_ID: Final = "topic_id"
"""Entry of `SalvagedPartition.unseen` if brokers need the topic's id and no input has it."""
_LOG_DIR: Final = attributes(
    "broker=node directory in_place_of=log_dir was_empty=is_empty directory_id meta_properties partitions bytes=size_in_bytes"
)
_PARTITION: Final = attributes(
    "topic partition topic_id base_broker chosen_by brokers log_start_offset local_log_start_offset log_end_offset high_watermark"
    " leader_epochs segments bytes=size_in_bytes"
)
_RANGE: Final = attributes(
    "file byte_start byte_end offset_start offset_end broker log_dir source_file source_byte_start source_byte_end why sha256"
)
_REMOTE_SEGMENT: Final[Columns] = {
    **attributes("segment_id offset_start=start_offset"),
    "offset_end": lambda segment: segment.end_offset + 1,
}
_FILE: Final = attributes("file bytes=size_in_bytes broker log_dir source_file sha256")
_LEFT_BEHIND: Final = attributes("broker offset_start=start offset_end=end committed_end_offset=committed_end rival_of")
_INCOMPLETE: Final = attributes("path reason")
_REFUSED: Final = attributes("topic partition kind reason hint is_tiered")
_FINDING: Final = {
    **attributes("kind severity=severity.value offset_start=place.offset_start offset_end=place.offset_end"),
    "producer_id": lambda finding: finding.evidence.get("producer_id"),
}


class LogGap(Struct, frozen=True):
    """Offsets `[start, end)` that no copy has in this lineage; in a compacted topic, that the used copy lacks.

    `end` is None for damaged bytes after the last batch, which held an unknown number of offsets. The copies of the brokers
    `damaged_on` have damaged bytes there.
    """

    start: int
    end: int | None
    damaged_on: tuple[int | str, ...] = ()


class CopiedFile(Struct, frozen=True):
    """A file of the output, other than a segment, that is copied unchanged: a snapshot of the controllers' log."""

    file: str
    size_in_bytes: int
    broker: int | str
    log_dir: str
    source_file: str
    sha256: str


class SalvagedQuorum(Struct, frozen=True):
    """The voters of the controllers' log, those whose copies are whole and form the majority, and the epoch to start in."""

    voters: list[int]
    counted: list[int | str]
    leader_epoch: int
    """Higher than every epoch in the copies; nobody was elected in it."""


class PassedLimit(Struct, frozen=True):
    """A retention limit that the first segment of a salvaged log exceeds: brokers delete the segment as soon as they run."""

    setting: str
    """`retention.ms` or `retention.bytes`."""
    value: int
    is_known: bool
    """Whether the value is from the controllers' log; else it is Kafka's default."""
    topic_value: str | None
    """The topic's own value, if it has one."""
    topic_value_is_known: bool = True
    """Whether a controllers' log says what the topic's own value is."""


class SalvagedPartition(Struct):
    """A partition that was written; offsets are exclusive ends."""

    topic: str
    partition: int
    topic_id: str | None
    base_broker: int | str
    """The broker whose copy determines the lineage, or REMOTE."""
    chosen_by: str
    """`plan` (recommended) · `prefer_broker` · `committed` (only its lineage is proven committed) · `longest` (otherwise: proven
    committed furthest, or longest) · `quorum` (the most up-to-date of a majority of the voters) · `remote` (no copy is here, but
    a remote store has it)."""
    log_start_offset: int
    local_log_start_offset: int
    """Start of its segments: the log start, except in a tiered topic."""
    log_end_offset: int
    high_watermark: int | None
    leader_epochs: list[EpochEntry] = field(default_factory=list)
    segments: int = 0
    size_in_bytes: int = 0
    replicas: list[tuple[int | str, str]] = field(default_factory=list)
    """Its replicas, with the same files each: broker, and log directory below the output, `broker-N/LOGDIR`."""
    gaps: list[LogGap] = field(default_factory=list)
    left_behind: list[LeftBehind] = field(default_factory=list)
    ranges: list[OutputRange] = field(default_factory=list)
    """The source of each byte; set once the bytes are on disk."""
    unseen: list[str] = field(default_factory=list)
    """Missing witnesses of the plan: there may be records that no input has: `kind` or `kind:broker`; `NO_TOPIC_ID`; for the
    controllers' log `voter:N`, `quorum_state:N`."""
    inherited: list[Finding] = field(default_factory=list)
    """Findings above `info` in the output that a copy has at the same offsets."""
    new: list[Finding] = field(default_factory=list)
    """Findings above `info` in the output that no copy has there."""
    warning: str | None = None
    """`Choice.warning`."""
    passed_limits: tuple[PassedLimit, ...] = ()
    quorum: SalvagedQuorum | None = None
    """Of the controllers' log only."""
    files: list[CopiedFile] = field(default_factory=list)
    """Of the controllers' log only."""
    remote_segments: Sequence[RemoteSegment] = ()
    """Those with events in the rebuilt `__remote_log_metadata`."""

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition

    @property
    def has_remote_part(self) -> bool:
        """Whether its log begins in remote storage."""
        return self.local_log_start_offset > self.log_start_offset

    @property
    def needs_topic_id(self) -> bool:
        """Whether the user must write its `partition.metadata` before a broker accepts the log as this topic's."""
        return NO_TOPIC_ID in self.unseen

    @property
    def brokers(self) -> list[int | str]:
        """The brokers whose bytes it consists of, the base first."""
        return list(dict.fromkeys((self.base_broker, *(range_.broker for range_ in self.ranges))))


class Refused(Struct, frozen=True):
    """A partition that was not salvaged, the reason, and what to do."""

    topic: str
    partition: int
    kind: str
    """`rivals` · `gaps` · `internal_topic` · `compacted` · `controllers_log` · `tiered` · `topic_undecided` · `no_copy` ·
    `nothing_read` · `not_readable` · `not_sound` · `no_log_dir`."""
    reason: str
    hint: str | None = None
    offsets: tuple[tuple[int, int | None], ...] = ()
    """Ranges; an end of None is unknown."""
    brokers: tuple[int | str, ...] = ()
    is_tiered: bool = False
    """Whether Kafka deletes its remote log if brokers start without its directories."""

    @property
    def key(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition


class RefusedError(Exception):
    """A partition cannot be salvaged."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.refused = refused


class Salvaged(Struct):
    """The answer: what was written, and what was not."""

    output: str
    partitions: list[SalvagedPartition] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    started_empty: list[Refused] = field(default_factory=list)
    """Partitions without a copy that brokers may start empty."""
    incomplete: list[Incomplete] = field(default_factory=list)
    inherited: list[Finding] = field(default_factory=list)
    """Findings of no single partition that an input also has."""
    new: list[Finding] = field(default_factory=list)
    """Findings of no single partition that no input has."""
    log_dirs: list[TargetDir] = field(default_factory=list)
    bytes_to_write: int = 0
    """Bytes of the segments in all log directories, before they are written."""
    is_kraft: bool = False
    """Whether nodes are known to run with KRaft controllers."""
    controller_voters: frozenset[int] = frozenset()
    """Voters among the controllers; those that are also brokers have both roles."""
    is_selection: bool = False
    """Whether --topic, --partition or --broker excluded partitions."""
    controller_findings: list[Finding] = field(default_factory=list)
    """If the controllers' log was refused: what must be repaired before controllers start."""
    files_to_repair: list[Finding] = field(default_factory=list)
    """Findings about small files that are kept from the copies and keep a broker from starting or from serving its logs."""
    from_store: bool = False
    """Whether the logs are for brokers without remote storage (`--from-store`)."""
    rerun_arguments: RerunArguments | None = None
    options: tuple[str, ...] = ()
    """The options of this salvage except `--output`."""

    @property
    def is_whole(self) -> bool:
        """Whether everything requested was read and salvaged."""
        return not (self.refused or self.incomplete)

    @property
    def has_new_findings(self) -> bool:
        """Whether a scan of the output finds anything that no copy has."""
        return bool(self.new) or any(partition.new for partition in self.partitions)

    def to_elect(self) -> list[tuple[str, int]]:
        """Partitions that need a leader; controllers elect their own."""
        return [partition.key for partition in self.partitions if partition.quorum is None]

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the written segments."""
        return sum(partition.size_in_bytes for partition in self.partitions)


def open_ended(ranges: Ranges) -> tuple[tuple[int, int | None], ...]:
    """The ranges, with None for an unknown end (NO_END)."""
    return tuple([(start, None if end == NO_END else end) for start, end in ranges])


def document(salvaged: Salvaged) -> Json:
    """The manifest as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "kafka-forensics", "version": __version__},
        "bytes_to_write": salvaged.bytes_to_write,
        "log_dirs": [{**object_of(_LOG_DIR, target), "partitions": len(target.partitions)} for target in salvaged.log_dirs],
        "partitions": [_partition(partition) for partition in salvaged.partitions],
        "refused": [_refused(refused) for refused in salvaged.refused],
        "started_empty": [_refused(row) for row in salvaged.started_empty],
        "incomplete": [object_of(_INCOMPLETE, row) for row in salvaged.incomplete],
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
        "ranges": [object_of(_RANGE, range_) for range_ in partition.ranges],
        "gaps": [{"offset_start": gap.start, "offset_end": gap.end, "damaged_on": list(gap.damaged_on)} for gap in partition.gaps],
        "left_behind": [object_of(_LEFT_BEHIND, left) for left in partition.left_behind],
        "unseen": partition.unseen,
        **_findings(partition),
        **(
            {"remote_segments": [object_of(_REMOTE_SEGMENT, row) for row in remote]}
            if (remote := partition.remote_segments)
            else {}
        ),
        **({} if partition.warning is None else {"warning": partition.warning}),
        **({} if quorum is None else {"quorum": asdict(quorum), "files": [object_of(_FILE, file) for file in partition.files]}),
    }


def _findings(salvaged: Salvaged | SalvagedPartition) -> Json:
    findings = {"inherited": salvaged.inherited, "new": salvaged.new}
    return {name: [object_of(_FINDING, finding) for finding in rows] for name, rows in findings.items()}
