"""What the tasks of a scan are given, and what they give; all of it is serializable."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.internal_topics import Witnesses
from kafka_forensics.analysis.segments import IndexFold
from kafka_forensics.engine.slices import Noticed, Surroundings
from kafka_forensics.evidence.inputs import ReplicaPlan
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.judging.scanning import PartitionAnswer
from kafka_forensics.model.findings import Finding
from kafka_forensics.model.results import Incomplete
from kafka_forensics.parsers.log_dir import SegmentFiles

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kafka_forensics.folding.keys import KeyPart, KeyQuestion

EDGES_FIRST: Final = 1 << 62


@dataclass(slots=True)
class Common:
    """What all tasks of a scan have in common."""

    options: ScanOptions
    key: "NDArray[np.int64]"
    """`digest_key`."""
    compiled: bool
    """Whether the scan is worth compiled kernels."""
    split_bytes: int
    around: Surroundings
    deep: bool = False
    """Whether every record is decoded."""
    keys_apart_bytes: int | None = None
    """From how many bytes of logs on the keys of a compacted partition are asked for (`KeysApart`), None: never."""


@dataclass(slots=True)
class WitnessWork:
    """Replicas of the topics that are evidence themselves."""

    internal: list[ReplicaPlan]


@dataclass(slots=True)
class WitnessAnswer:
    """What they say."""

    witnesses: Witnesses
    noticed: Noticed


@dataclass(slots=True)
class Piece:
    """A split by its number (`numbered_split`) in a segment."""

    segment: SegmentFiles
    number: int
    next_base_offset: int | None
    size_in_bytes: int


@dataclass(slots=True)
class FoldPart:
    """Pieces of one replica of one slice, by their numbers; `plan` knows only what folding asks for."""

    slice: int
    replica: int
    plan: ReplicaPlan
    pieces: list[Piece] = field(default_factory=list)


@dataclass(slots=True)
class FoldWork:
    """Pieces to be folded by one task."""

    parts: list[FoldPart] = field(default_factory=list)
    size_in_bytes: int = 0


@dataclass(slots=True)
class StretchEdges:
    """A folded stretch without its state: what tells whether it meets its neighbours, and whether its index fits."""

    start: int
    end: int
    first: bool
    next_base_offset: int | None
    landed: int
    incomplete: Incomplete | None
    index: IndexFold | None


@dataclass(frozen=True, slots=True)
class StretchRow:
    """Packed `StretchEdges`, or the `ReplicaState` that goes with them, and where it belongs.

    Rows are put together in the order of these numbers. Edges have their `start` lowered by EDGES_FIRST, so that those of a whole
    segment come before its states, of which there can be more than fit in memory together.
    """

    slice: int
    replica: int
    segment: int
    start: int
    packed: bytes


@dataclass(slots=True)
class SliceAnswer:
    """What came of a slice: about its replicas, None without any, and about the files aside of a partition without replicas."""

    answer: PartitionAnswer | None
    lone: list[Finding]
    incomplete: list[Incomplete]
    noticed: Noticed
    asked: "list[KeyQuestion]" = field(default_factory=list)
    """What must be answered first: the slice is to be judged again with the answers, and this is no answer about it."""


@dataclass(slots=True)
class KeyWork:
    """Segments of replica `number` of those that a question asks about; `plan` knows only what reading them asks for.

    `asked` is the question's number, `log` the replica's among those of all questions, `first` the first segment's base offset; the
    rest is as `KeyReader` takes it, but for what was decided of transactions: that of a whole log, it is sent once.
    """

    asked: int
    log: int
    number: int
    first: int
    plan: ReplicaPlan
    next_base_offset: int | None
    cuts: "NDArray[np.int64]"
    seed: int
    delete_retention_ms: int


@dataclass(slots=True)
class KeyReading:
    """What reading a `KeyWork` gave beside rows."""

    asked: int
    number: int
    first: int
    part: "KeyPart"
