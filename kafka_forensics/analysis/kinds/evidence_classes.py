"""What evidence each kind of finding carries: a class each, or one for several that say the same.

Offsets are inclusive where they are called last, exclusive where they are called end; times are milliseconds since 1970. What only
some findings of a kind have is `NotRequired`; what a stage after the rule adds is in `LaterEvidence`.
"""

from typing import NotRequired, TypedDict

from kafka_forensics.model.json_objects import Json, JsonArray

Broker = int | str
"""`node.id`, or the name of the directory where that is not known."""


class LaterEvidence(TypedDict, total=False):
    """What any finding may get after the rule that made it, when more is known."""

    held_by: list[Broker]
    """Brokers with a good copy of all of it."""
    held_ranges: list["HeldRange"]
    """Who has which of the offsets, where not all of them are on the same brokers; the first 64 ranges."""
    records_held: int
    """How many records one of these, or of a fork the version with most, has of the offsets; transaction markers not counted."""
    premises: list[str]
    harmless_if: str
    capped_by: str
    """The option that keeps the severity low."""
    high_watermark: int | None
    """The largest that is known."""
    witness: str | None
    """Of the high watermark."""
    below_high_watermark: bool
    also_in: list[str]
    """Files on their way out that hold the same offsets."""
    not_whole: list["DamagedRange"]
    ranges_not_compared: int
    unclean_restart: "UncleanRestart"
    counted: int
    """How many findings this one stands for."""
    examples: JsonArray


class HeldRange(TypedDict):
    """Offsets, and the brokers that have good copies of all of them; none where nobody has."""

    offset_start: int
    offset_end: int
    brokers: list[Broker]


class DamagedRange(TypedDict):
    """Offsets that a broker's copy holds damaged."""

    broker: Broker
    offset_start: int
    offset_end: int


class UncleanRestart(TypedDict):
    """What a start after a crash would make of damage."""

    walked: bool
    recovery_point: int | None
    starts: NotRequired[bool]
    log_end_offset: NotRequired[int | None]
    """None where that is not foretold."""
    segments: NotRequired[int]


# Bytes of segments.


class BatchDamageEvidence(LaterEvidence, total=False):
    """A batch whose header, payload or records are wrong: what its reader met."""

    stored_crc: int
    computed_crc: int
    magic: int
    crc_is_right_as_magic: int
    records_count: int
    records_found: int
    last_offset_delta: int
    record_index: int
    payload_position: int
    inner_offset: int
    codec: str
    bytes_in: int
    bytes_out: int
    position: int
    declared: int
    available: int
    limit: int
    ratio: int
    reason: str
    count: int


class FramingEvidence(LaterEvidence, total=False):
    """Where batches stop following each other, or zeros stand in one."""

    declared_length: int
    magic: int
    stored_crc: int
    computed_crc: int
    candidates: int
    found_at: int
    runs_past_end: bool
    zero_bytes: int
    reason: str
    bytes_present: int
    batches_recovered: int
    last_recovered_offset: int
    first_recovered_offset: int | None
    last_valid_offset: int | None
    index_entries_beyond: int
    clean_shutdown: bool
    count: int


class HiddenBytesEvidence(LaterEvidence):
    """Batches behind a length that reaches past them."""

    bytes: int
    batches_recovered: int
    first_recovered_offset: int
    last_recovered_offset: int


class BudgetEvidence(LaterEvidence, total=False):
    """What was left unread, and by which limit."""

    reason: str
    limit: int
    crc_checked: bool
    count: int


class SegmentNameEvidence(LaterEvidence):
    """A segment that begins with another offset than its name says."""

    name_offset: int
    first_offset: int


# Offsets and epochs.


class OrderEvidence(LaterEvidence):
    """Offsets that do not follow each other."""

    expected_offset: int
    found_offset: int
    witnesses: NotRequired[list[str]]
    missing: NotRequired[int]
    snapshot_end: NotRequired[int]
    """Of the controllers' log: a snapshot on this node states all before this offset."""
    control_batches_left_out: NotRequired[bool]
    """Whether another replica has only control batches there, which this log's older message format does not have."""


class SegmentMissingEvidence(LaterEvidence):
    """A segment of which other files, or other segments, know."""

    file: str
    missing: NotRequired[int]
    """Offsets, at least those that files name."""
    index_files: NotRequired[list[str]]
    end_offsets: NotRequired[dict[str, int]]
    """Of the last segment: log ends, or offsets below them, by what names them (`producer snapshot`, `time index`)."""
    witnesses: NotRequired[list[str]]
    """Those of them that name the largest."""
    at_least: NotRequired[bool]
    """Whether the log may have gone on behind that."""


class EpochFieldEvidence(LaterEvidence):
    """A batch whose leader epoch, which no CRC covers, is not that of its neighbours."""

    epoch: int
    expected_epoch: int
    witnesses: list[str]
    crc: NotRequired[str]


class EpochCacheEvidence(LaterEvidence):
    """Leader epochs by the checkpoint and by the batches; `file_missing`: there is no checkpoint, and these a start then knows."""

    reason: str
    epoch: NotRequired[int]
    file_missing: NotRequired[bool]
    in_remote_storage: NotRequired[bool]
    checkpoint: list[list[int]]
    batches: list[list[int]]
    epochs_after_start: NotRequired[list[list[int]]]
    truncation_offset_by_checkpoint: NotRequired[int | None]
    truncation_offset_by_batches: NotRequired[int | None]


# Producers and transactions.


class SequenceEvidence(LaterEvidence):
    """A batch that does not follow its producer's last."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: NotRequired[int]
    previous_offset: NotRequired[int]
    ms_since_previous: NotRequired[int | None]
    previous_epoch: NotRequired[int]
    expected_sequence: NotRequired[int]
    found_sequence: NotRequired[int]
    occurrences: NotRequired[int]


class OpenTransactionEvidence(LaterEvidence):
    """A transaction without an end in its log: open, or never to be ended."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    first_timestamp: int
    last_timestamp: int
    last_stable_offset: int | None
    hidden_records: NotRequired[int]
    hidden_by_retention: NotRequired[bool]
    more_open: NotRequired[int]
    as_of: int
    age_ms: int
    ended_on: NotRequired[list[Broker]]
    transactional_id: NotRequired[str]
    coordinator_state: NotRequired[str]
    transaction_timeout_ms: NotRequired[int]
    transaction_start_timestamp: NotRequired[int]
    transaction_age_ms: NotRequired[int]
    overdue: NotRequired[bool]
    late: NotRequired[bool]
    coordinator: NotRequired[str]
    not_judged: NotRequired[bool]
    unknown_after_offset: NotRequired[int]
    missing_partitions: NotRequired[list[int]]
    reason: NotRequired[str]
    open_on: NotRequired[list[Broker]]
    look_again_at: NotRequired[int]
    find_hanging: NotRequired[str]
    command: NotRequired[str]
    late_write_after: NotRequired[int]
    waiting_groups: NotRequired[list[str]]
    waiting_groups_count: NotRequired[int]
    safe_to_abort: bool | None


class LateWriteEvidence(LaterEvidence):
    """A batch of an epoch that was fenced before."""

    producer_id: int
    producer_epoch: int
    later_epoch: int
    later_epoch_offset: int
    occurrences: NotRequired[int]


class TransactionDecidedEvidence(LaterEvidence):
    """What the coordinator decided, and a log does not show."""

    reason: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    decision: str
    coordinator_state: str
    partitions_of_transaction: list[str]
    decided_timestamp: int
    completed_timestamp: int | None
    coordinator_partition: int
    coordinator_offset: int
    brokers: list[Broker]
    coordinator_broker: NotRequired[Broker]


class MarkersDisagreeEvidence(LaterEvidence):
    """A transaction that is committed in one partition and not in another."""

    producer_id: int
    producer_epoch: int
    committed_in: list[str]
    committed_offset: int | None
    shown_as: str
    first_offset: int
    marker_offset: int | None
    coordinator: str
    brokers: list[Broker]


class CoordinatorEpochEvidence(LaterEvidence):
    """A marker of a coordinator that was replaced before."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    previous_coordinator_epoch: int
    previous_marker_offset: int
    occurrences: int


# Indexes, snapshots, checkpoints.


class IndexEvidence(LaterEvidence, total=False):
    """Entries of an index that break its format, or that the log contradicts."""

    reason: str
    entry: int
    entries: int
    offset: int
    position: int
    timestamp: int
    expected: int
    behind_log_end: bool
    entry_size: int
    file_size: int
    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    found_first_offset: int
    occurrences: int
    places: int
    count: int


class IndexMissingEvidence(LaterEvidence):
    """Segments without an index that Kafka builds anew."""

    segments: int
    files: list[str]


class TransactionIndexEvidence(LaterEvidence):
    """An aborted transaction that only the log, or only its index, has."""

    producer_id: int
    first_offset: int
    last_offset: int
    occurrences: NotRequired[int]
    entry: NotRequired[int]
    file_missing: NotRequired[bool]


class SnapshotContradiction(TypedDict):
    """A producer's epoch, last sequence, last offset and first offset of its open transaction, by the snapshot and by the log."""

    reason: str
    producer_id: int
    snapshot: list[int]
    log: list[int | None]


class ProducerSnapshotEvidence(LaterEvidence, total=False):
    """A snapshot that is damaged, or that its log contradicts: the first contradiction, and more of them."""

    snapshot_offset: int
    reason: str
    producer_id: int
    snapshot: list[int]
    log: list[int | None]
    contradictions: list[SnapshotContradiction]
    occurrences: int
    version: int
    stored: int
    computed: int
    declared: int
    present: int
    trailing_bytes: int
    limit: int
    places: int
    rebuilt_from: int


class CountEvidence(LaterEvidence):
    """How many of them there are."""

    count: int
    open_transactions: NotRequired[int]


class WatermarkBeyondLogEvidence(LaterEvidence):
    """A checkpointed high watermark behind the log's end."""

    log_end_offset: int
    file: str
    clean_shutdown: NotRequired[bool]


class WatermarkUnknownEvidence(LaterEvidence):
    """Why no high watermark is known."""

    reason: str
    partitions: NotRequired[int]
    log_end_offset: NotRequired[int]


class CheckpointOrderEvidence(LaterEvidence):
    """A checkpointed offset beyond what bounds it."""

    what: str
    value: int
    limit_name: str
    limit: int
    clean_shutdown: NotRequired[bool]


class CheckpointEvidence(LaterEvidence, total=False):
    """The first place where a checkpoint or properties file breaks its format, and how many there are."""

    reason: str
    line: int
    key: str
    expected: int
    found: int
    limit: int
    count: int
    places: int
    empty: bool
    """Whether the file has no bytes."""
    starts: bool
    on_start: str
    topic_id: str
    told_by: list[str]
    node_id: int
    cluster_id: str
    directory_id: str


# Replicas.


class VersionPlace(TypedDict):
    """Where a broker's first batch of a version lies."""

    broker: Broker
    file: str
    byte_start: int
    byte_end: int


class ForkVersion(TypedDict):
    """One of the logs that differ."""

    brokers: list[Broker]
    epoch: int
    log_end_offset: int
    high_watermark: int | None
    places: NotRequired[list[VersionPlace]]


class FollowerTruncation(TypedDict):
    """Where a follower would cut its log, by the epochs of batches and of checkpoints."""

    follower: Broker
    leader: Broker
    from_batches: int | None
    from_checkpoint: int | None


class Election(TypedDict):
    """A change of leader in the controllers' log."""

    election_ms: int | None
    election_time: str | None
    election_offset: int
    old_leader: int | None
    new_leader: int | None
    leader_epoch: int | None
    """None where a record before could not be read, so that its count may be too low."""
    previous_isr: list[int]


class ElectionOfLoss(Election):
    """The election that a loss came of."""

    unclean: bool
    unclean_elections_since: int
    or_in_epochs: NotRequired[list[int]]
    """Leader epochs of others before it that may have cost the same instead."""


class ForkEvidence(LaterEvidence):
    """Logs that part at an offset, and what it costs."""

    offset: NotRequired[int]
    versions: list[ForkVersion]
    truncation_offsets: NotRequired[list[FollowerTruncation]]
    record_offset: NotRequired[int | None]
    committed_on: NotRequired[list[Broker]]
    watermark_unknown: NotRequired[list[Broker]]
    kept: NotRequired[JsonArray]
    kept_on: NotRequired[list[Broker]]
    loses: NotRequired[int]
    leaders: NotRequired[list[Broker]]
    latest_epoch: NotRequired[int]
    election: NotRequired[ElectionOfLoss]
    in_remote_storage: NotRequired[bool]
    partly_on: NotRequired[list[Broker]]
    remote_segments: NotRequired[JsonArray]
    remote_segments_count: NotRequired[int]
    remote_segments_deleted: NotRequired[int]
    not_in_remote_storage: NotRequired[JsonArray]


class LossByElectionEvidence(ForkEvidence, Election):
    """A loss with the election of a last known leader that it came of."""


class DiffersEvidence(LaterEvidence):
    """A batch field that few replicas have otherwise than most."""

    kind: str
    epoch: int
    minority: list[Broker]
    majority: list[Broker]
    epoch_in_doubt: NotRequired[bool]


class LagsEvidence(LaterEvidence):
    """A replica that is shorter than others."""

    behind: int
    leader_end: int
    in_conflict: NotRequired[list[Broker]]
    isr: NotRequired[list[int]]
    in_isr: NotRequired[bool]
    committed: NotRequired[int]


class ReencodedEvidence(LaterEvidence):
    """Batches that differ and hold the same records, as far as the older of two message formats can hold them."""

    brokers: list[Broker]
    batches: int
    message_formats: NotRequired[list[list[int]]]
    not_compared: NotRequired[list[str]]
    without_headers: NotRequired[list[Broker]]
    without_transactions: NotRequired[list[Broker]]
    lacking: NotRequired[list[HeldRange]]
    """Offsets of the batches that lack headers or a transaction, and whose they are; absent where not all could be compared."""


class LostEverywhereEvidence(LaterEvidence):
    """Committed offsets that no copy has."""

    missing: int
    log_end_offset: NotRequired[int]
    directories_missing_on: NotRequired[list[Broker]]
    never_known: NotRequired[bool]


class CompactedRecord(TypedDict):
    """A record of a compacted log that some replicas have and others should."""

    offset: int
    reason: str
    key_hash: str
    held_by: list[Broker]
    not_on: list[Broker]


class ByReasonEvidence(LaterEvidence, total=False):
    """Keys by why they differ."""

    keys: int
    same_value: int
    superseded: int
    stale: int
    vanished: int
    missing: int
    contents: int
    tombstones: int
    tombstones_expired: int
    tombstones_early: int
    out_of_reach: int
    undecided: int
    unreadable: int


class CompactedDiffersEvidence(ByReasonEvidence):
    """Latest values that no rule of the cleaner explains."""

    markers: NotRequired[int]
    aborted: NotRequired[int]
    keyless: NotRequired[int]
    transactional: NotRequired[int]
    records: list[CompactedRecord]


class CompactionSkewEvidence(ByReasonEvidence):
    """Replicas that were cleaned at different times."""

    brokers: list[Broker]
    keys_cleaned_differently: int
    records: dict[str, int]
    keys_that_differ: NotRequired[int]
    beyond_checkpoint: NotRequired[int]
    markers: NotRequired[dict[str, int]]
    aborted: NotRequired[dict[str, int]]
    keyless: NotRequired[dict[str, int]]


class AtRiskEvidence(LaterEvidence):
    """A replica that may lead and lacks what is committed."""

    membership: NotRequired[str]
    isr: NotRequired[list[int] | None]
    elr: NotRequired[list[int] | None]
    log_end_offset: int
    loses: int
    absent: NotRequired[bool]
    wiped: NotRequired[bool]
    latest_epoch: NotRequired[int]


class HeadMissingEvidence(LaterEvidence):
    """The oldest segments that retention does not explain."""

    log_start_offset: int
    loses: int
    retention_ms: NotRequired[int]
    retention_bytes: NotRequired[int]
    head_timestamp_ms: NotRequired[int | None]
    epochs_start: NotRequired[int]
    needs_snapshot: NotRequired[bool]
    snapshot_end: NotRequired[int]
    """Of the controllers' log: no snapshot on this node reaches its start, or this one does."""


class HeldBackEvidence(LaterEvidence):
    """Readers that wait for the high watermark."""

    reason: str
    leader: Broker
    brokers: list[Broker]
    isr: list[int]
    isr_below_minimum: NotRequired[bool]
    min_insync_replicas: NotRequired[int]
    log_end_offset: int
    behind: int
    since_ms: NotRequired[int]
    waiting_ms: NotRequired[int]
    """Not known where records have no time, or the first that waits is stamped later than the newest."""


# What should be there.


class ReplicaMissingEvidence(LaterEvidence):
    """A replica that is expected and not there."""

    expected_by: list[str]
    never_known: NotRequired[bool]


class ReplicaNotGivenEvidence(LaterEvidence):
    """A broker of which no log directory was given."""

    node_id: int
    as_of_ms: int | None
    replicas: NotRequired[int]
    in_isr: NotRequired[int]
    led: NotRequired[int]
    other_log_dirs: NotRequired[bool]
    votes: NotRequired[bool]
    """Whether it is a voter of the controllers' quorum."""


class PartialCopyEvidence(LaterEvidence):
    """A copy that was made in part."""

    partitions: int
    there: int
    log_dirs: list[str]
    reasons: list[str]
    without_logs: NotRequired[bool]
    """Whether none of its partitions has a `.log` file."""


class WipedEvidence(LaterEvidence):
    """A log directory with `meta.properties` and nothing else, or an empty one."""

    node_id: Broker | None
    is_empty: NotRequired[bool]
    replicas: NotRequired[int]
    expected_by: NotRequired[list[str]]
    may_have_held: NotRequired[int]


class AllEmptyEvidence(LaterEvidence):
    """Logs that are all empty, though leaders came and went."""

    partitions: int
    leader_epoch: int
    internal_topics: list[str] | None


class TopicUnknownEvidence(LaterEvidence):
    """A topic that the controllers' log does not have."""

    brokers: list[Broker]
    topic_id: str
    controller_end_ms: int | None
    may_delete: NotRequired[bool]
    sets_aside: NotRequired[bool]
    """Which of them brokers do with what the controllers do not know."""


class QuorumEvidence(LaterEvidence):
    """Voters that may be elected though they lack committed records of the controllers' log."""

    voters: list[int]
    leaders: list[Broker]
    """Who may be elected so."""
    empty: list[Broker]
    """Those of them that have no record at all."""
    behind: list[Broker]
    """Those of them whose log ends too early."""
    loses: int
    proven_end: int
    """Records before this offset are known to be committed."""
    not_given: list[int]
    """Voters of which nothing was given."""


class UncleanElectionEvidence(LaterEvidence, Election):
    """An unclean election, and which finding tells what it cost, or why none does."""

    unclean_elections: int
    epoch_start_offset: NotRequired[int]
    cost_finding: NotRequired[str]
    or_in_epochs: NotRequired[list[int]]
    """Leader epochs of other elections that may have cost these offsets instead."""
    agree_again: NotRequired[bool]
    same_leader: NotRequired[bool]
    old_leader_not_given: NotRequired[bool]
    old_leader_not_compared: NotRequired[bool]
    damage_hides: NotRequired[bool]


class RiskyConfigEvidence(LaterEvidence):
    """Settings with which records can be lost."""

    topics: list[str]
    count: int
    risks: list[str]
    settings: dict[str, str]
    of_coordinators: NotRequired[bool]
    """Whether old segments of `__consumer_offsets` or `__transaction_state` are deleted."""
    explains: NotRequired[list[str]]


class TieredEvidence(LaterEvidence):
    """Topics whose older segments are moved to remote storage."""

    topics: list[str]
    count: int
    remote_segments_count: NotRequired[int]
    metadata_not_read: NotRequired[bool]


# Internal topics.


class MetadataMalformedEvidence(LaterEvidence):
    """A record of an internal topic that cannot be read."""

    reason: str
    unknown_after_offset: int
    is_snapshot: NotRequired[bool]
    """Whether it is a whole `.checkpoint` file."""
    record_type: NotRequired[str]
    record_bytes: NotRequired[int]
    api_key: NotRequired[int]
    record_version: NotRequired[int]
    brokers: NotRequired[list[Broker]]
    transactional_id: NotRequired[str]
    group: NotRequired[str]
    records_more: NotRequired[int]


class MetadataRejectedEvidence(LaterEvidence):
    """A record of the controllers' log that a controller cannot apply."""

    record_type: str
    reason: str
    exception: str
    """Kafka's, with which the controller stops."""
    brokers: list[Broker]
    """Whose copies have the record."""
    records_more: NotRequired[int]
    name: NotRequired[str]
    topic_name: NotRequired[str]
    topic_id: NotRequired[str]
    partition_id: NotRequired[int]
    broker_id: NotRequired[int]
    controller_id: NotRequired[int]


class MetadataUnknownEvidence(LaterEvidence):
    """Records of a type that is not known."""

    api_key: int
    record_versions: list[int]
    records: int
    record_bytes: int
    brokers: list[Broker]


class GroupOffsetEvidence(LaterEvidence):
    """An offset that a group committed behind every log's end."""

    group: str
    groups: list[str]
    groups_count: int
    committed_offset: int | None
    commit_timestamp: int
    consumed_epoch: int
    log_end_offset: int
    newest_timestamp: int
    missing: int
    commit_record: Json
    unknown_after_offset: NotRequired[int]


# Environment.


class ClustersEvidence(LaterEvidence):
    """Cluster ids, by broker or log directory."""

    cluster_ids: dict[str, str]


class TopicsEvidence(LaterEvidence):
    """Topic ids, by broker."""

    topic_ids: Json
    present_topic_id: NotRequired[str | None]
    present_on: NotRequired[list[Broker]]
    other_ids: NotRequired[dict[str, str]]
    """What each of them is."""
    misplaced_on: NotRequired[list[Broker]]


class TopicIdMissingEvidence(LaterEvidence):
    """A log without its topic's id; of a copy that lacks all of them, how many."""

    topic_id: NotRequired[str]
    told_by: NotRequired[list[str]]
    """Who has that id: the controllers' log, or brokers with a copy."""
    sets_aside: NotRequired[bool]
    """Whether it is known that the broker is of a version that renames the directory to `-stray`."""
    is_empty: NotRequired[bool]
    """Whether the log has no batches left, and ends above offset 0."""
    partitions: NotRequired[int]
    examples: NotRequired[list[str]]


class NodeClashEvidence(LaterEvidence):
    """A node id that several log directories claim for different copies."""

    node_id: Broker
    log_dirs: list[str]


class NodeMismatchEvidence(LaterEvidence):
    """A directory's name and its `meta.properties`."""

    node_ids: list[int]
    named: Broker
    log_dirs: list[str]


class InconsistentCutEvidence(LaterEvidence, total=False):
    """Files of a copy of running brokers that are of different moments, each with what would else be its own finding's."""

    what: str
    value: int
    limit_name: str
    limit: int
    reason: str
    entry: int
    entries: int
    offset: int
    position: int
    timestamp: int
    expected: int
    behind_log_end: bool
    log_end_offset: int
    file: str
    epoch: int
    clean_shutdown: bool


class ChangedEvidence(LaterEvidence):
    """A file that changed while it was read."""

    before: dict[str, int]
    after: dict[str, int] | None


class IrregularEvidence(LaterEvidence):
    """What is neither a file nor a directory."""

    entry_kind: str


class SparseEvidence(LaterEvidence):
    """A file with holes."""

    allocated_bytes: int
    size_in_bytes: int


class DirectoryNameEvidence(LaterEvidence):
    """A directory that is named almost like a partition."""

    name: str
    refused: bool
    holds: NotRequired[list[str]]
    """Partitions that are links to what lies in it."""


class CleanerStoppedEvidence(LaterEvidence):
    """A broker whose logs were due for cleaning, and were not cleaned; `logs` has those with most to clean."""

    partitions: int
    dirty_bytes: int
    clean_bytes: int
    due_since_ms: int
    last_cleaned_ms: int
    """A time after which it cleaned a log."""
    last_written_ms: int
    logs: list[Json]


class SwapEvidence(LaterEvidence):
    """A cleaner's swap that was interrupted."""

    leftovers: list[str]
    count: int
    steps: list[str]
    files_deleted: int
    files_renamed: int
    under_way: NotRequired[bool]


class RecoveryEvidence(LaterEvidence):
    """What a start on this copy would cut."""

    check: int
    reason: str
    log_end_foretold: int | None
    log_end_offset: int
    clean_shutdown: bool
    recovery_point: int | None
    segments: int
    segments_deleted: list[str]
    batches_recovered: int | None
    count: NotRequired[int]


class LeftoverEvidence(LaterEvidence):
    """Files on their way out with offsets that the live log lacks."""

    files: list[str]
    suffix: str
    batches: int
    offsets: list[list[int]]
    in_remote_storage: NotRequired[bool]
    expired: bool
    behind_log_end: bool
    fills: list[str]
    is_stray: NotRequired[bool]
    topic_id: NotRequired[str | None]


class FilesUnknownEvidence(LaterEvidence):
    """Files that are none of Kafka's."""

    names: list[str]
    count: int


class MisplacedStateEvidence(LaterEvidence):
    """Groups or transactional ids whose state their coordinators do not read."""

    of_groups: bool
    """Whether the names are groups; else they are transactional ids."""
    names_count: int
    partition_count: int
    in_partitions: dict[str, list[int]]
    """Of the first names: in which partitions their state is."""
    read_from: dict[str, int]
    """Of the same: which partition their coordinator reads."""


class KeyPlacementEvidence(LaterEvidence):
    """By which hash a topic's keys are placed."""

    partitioner: str | None
    partition_count: int | None
    partitioner_before: str | None
    partition_count_before: int | None
    changed_timestamp: int | None
    agreeing_percent: int | float | None
    elsewhere_percent: int | float | None
    partitions: int
    records_looked_at: int
    keys_looked_at: int
    keys_in_several_partitions: int | None
    changes: JsonArray
    keyless_percent: dict[str, int]


# Between snapshots, and incidents.


class TruncatedSinceEvidence(LaterEvidence):
    """Committed offsets that an older snapshot had."""

    from_snapshot: str
    to_snapshot: str
    brokers: list[Broker]
    missing: int
    replaced_by: list[int]
    held_before: list[Broker]
    scattered: NotRequired[int]
    ranges: NotRequired[list[list[int]]]
    not_given: NotRequired[list[Broker]]


class KeysLostEvidence(ByReasonEvidence):
    """Latest values that an older snapshot had."""

    from_snapshot: str
    to_snapshot: str
    markers: NotRequired[int]
    aborted: NotRequired[int]
    keyless: NotRequired[int]
    records: list[Json]
    held_before: list[Broker]


class IncidentEvidence(LaterEvidence):
    """A known defect of Kafka that fits."""

    incident: str
    issue: str | None
    summary: str
    fits: list[str]
    does_not_fit: list[str]
    unknown: list[str]
    affected_versions: str
    fixed_in: list[str]
    version_at_least: str | None
    version_witnesses: list[str]
