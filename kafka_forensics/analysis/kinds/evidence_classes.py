"""The evidence of each kind of finding: a class for a kind, or for several kinds with the same evidence.

Last offsets are inclusive, end offsets exclusive; times are milliseconds since 1970. Values that only some findings of a kind have
are `NotRequired`; values added after the rule that made the finding are in `LaterEvidence`.
"""

from typing import NotRequired, TypedDict

from kafka_forensics.model.json_objects import Json, JsonArray

Broker = int | str
"""`node.id`, or the name of the directory if that is unknown."""


class LaterEvidence(TypedDict, total=False):
    """Values that may be added to any finding after the rule that made it."""

    held_by: list[Broker]
    """Brokers with a good copy of all of it."""
    held_ranges: list["HeldRange"]
    """The first 64 ranges of the offsets with their holders, unless all are on the same brokers."""
    records_held: int
    """Records that a holder, or the largest version of a fork, has of the offsets, without transaction markers."""
    premises: list[str]
    harmless_if: str
    capped_by: str
    """The option that limits the severity."""
    high_watermark: int | None
    """The largest known one."""
    witness: str | None
    """Of the high watermark."""
    below_high_watermark: bool
    also_in: list[str]
    """Files to be deleted that hold the same offsets."""
    not_whole: list["DamagedRange"]
    ranges_not_compared: int
    unclean_restart: "UncleanRestart"
    counted: int
    """How many findings this one stands for."""
    examples: JsonArray


class HeldRange(TypedDict):
    """Offsets, and the brokers with good copies of all of them."""

    offset_start: int
    offset_end: int
    brokers: list[Broker]


class DamagedRange(TypedDict):
    """Offsets that are damaged in a broker's copy."""

    broker: Broker
    offset_start: int
    offset_end: int


class UncleanRestart(TypedDict):
    """What a start after a crash does with damage."""

    walked: bool
    recovery_point: int | None
    starts: NotRequired[bool]
    log_end_offset: NotRequired[int | None]
    """None if it cannot be predicted."""
    segments: NotRequired[int]


# Bytes of segments.


class BatchDamageEvidence(LaterEvidence, total=False):
    """A batch whose header, payload or records are wrong."""

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
    """A place where batches do not follow each other, or zeros in a segment."""

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
    """Batches inside the length of a damaged batch."""

    bytes: int
    batches_recovered: int
    first_recovered_offset: int
    last_recovered_offset: int


class BudgetEvidence(LaterEvidence, total=False):
    """Bytes or records not read because of a limit."""

    reason: str
    limit: int
    crc_checked: bool
    count: int


class SegmentNameEvidence(LaterEvidence):
    """A segment whose first offset differs from its name."""

    name_offset: int
    first_offset: int


# Offsets and epochs.


class OrderEvidence(LaterEvidence):
    """Offsets out of order, or with a gap."""

    expected_offset: int
    found_offset: int
    witnesses: NotRequired[list[str]]
    missing: NotRequired[int]
    snapshot_end: NotRequired[int]
    """Of the controllers' log: a snapshot on this node has all state before this offset."""
    control_batches_left_out: NotRequired[bool]
    """Whether another replica has only control batches there, which this log's older message format does not have."""


class SegmentMissingEvidence(LaterEvidence):
    """A missing segment that other files or segments prove."""

    file: str
    missing: NotRequired[int]
    """Number of missing offsets, at least those that files name."""
    index_files: NotRequired[list[str]]
    end_offsets: NotRequired[dict[str, int]]
    """Of the last segment: log ends, or offsets below them, by witness (`producer snapshot`, `time index`)."""
    witnesses: NotRequired[list[str]]
    """The witnesses of the largest offset."""
    at_least: NotRequired[bool]
    """Whether the log may have continued after that."""


class EpochFieldEvidence(LaterEvidence):
    """A batch whose leader epoch, which no CRC covers, differs from its neighbours."""

    epoch: int
    expected_epoch: int
    witnesses: list[str]
    crc: NotRequired[str]


class EpochCacheEvidence(LaterEvidence):
    """Leader epochs by the checkpoint, by the batches and, if `file_missing`, those that a broker knows after a start."""

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


class ProducerEvidence(LaterEvidence):
    """A producer."""

    producer_id: int
    producer_epoch: int


class SequenceEvidence(ProducerEvidence):
    """A batch that does not follow the last batch of its producer."""

    first_sequence: int
    last_sequence: int
    first_offset: NotRequired[int]
    previous_offset: NotRequired[int]
    ms_since_previous: NotRequired[int | None]
    previous_epoch: NotRequired[int]
    expected_sequence: NotRequired[int]
    found_sequence: NotRequired[int]
    occurrences: NotRequired[int]


class OpenTransactionEvidence(ProducerEvidence):
    """A transaction without an end in its log: open or hanging."""

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


class LateWriteEvidence(ProducerEvidence):
    """A batch with a producer epoch that was already fenced."""

    later_epoch: int
    later_epoch_offset: int
    occurrences: NotRequired[int]


class TransactionDecidedEvidence(ProducerEvidence):
    """A decision of the coordinator that a log does not show."""

    reason: str
    transactional_id: str
    decision: str
    coordinator_state: str
    partitions_of_transaction: list[str]
    decided_timestamp: int
    completed_timestamp: int | None
    coordinator_partition: int
    coordinator_offset: int
    brokers: list[Broker]
    coordinator_broker: NotRequired[Broker]


class MarkersDisagreeEvidence(ProducerEvidence):
    """A transaction that is committed in one partition and not in another."""

    committed_in: list[str]
    committed_offset: int | None
    shown_as: str
    first_offset: int
    marker_offset: int | None
    coordinator: str
    brokers: list[Broker]


class CoordinatorEpochEvidence(ProducerEvidence):
    """A marker of a coordinator that was already replaced."""

    coordinator_epoch: int
    previous_coordinator_epoch: int
    previous_marker_offset: int
    occurrences: int


# Indexes, snapshots, checkpoints.


class IndexEntryEvidence(LaterEvidence, total=False):
    """An index entry that is wrong."""

    reason: str
    entry: int
    entries: int
    offset: int
    position: int
    timestamp: int
    expected: int
    after_log_end: bool


class IndexEvidence(IndexEntryEvidence, total=False):
    """Index entries that violate the format or contradict the log."""

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
    """Segments without an index; Kafka rebuilds it."""

    segments: int
    files: list[str]


class TransactionIndexEvidence(LaterEvidence):
    """An aborted transaction that is only in the log or only in its index."""

    producer_id: int
    first_offset: int
    last_offset: int
    occurrences: NotRequired[int]
    entry: NotRequired[int]
    file_missing: NotRequired[bool]


class SnapshotContradiction(TypedDict):
    """A producer's epoch, last sequence, last offset and first offset of its open transaction, by snapshot and log."""

    reason: str
    producer_id: int
    snapshot: list[int]
    log: list[int | None]


class ProducerSnapshotEvidence(LaterEvidence, total=False):
    """A damaged snapshot, or one that contradicts the log: the first contradiction and further ones."""

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
    """Missing producer snapshots."""

    count: int
    open_transactions: NotRequired[int]


class WatermarkBeyondLogEvidence(LaterEvidence):
    """A checkpointed high watermark beyond the log end."""

    log_end_offset: int
    file: str
    clean_shutdown: NotRequired[bool]


class WatermarkUnknownEvidence(LaterEvidence):
    """Why no high watermark is known."""

    reason: str
    partitions: NotRequired[int]
    log_end_offset: NotRequired[int]


class CheckpointOrderEvidence(LaterEvidence):
    """A checkpointed offset beyond its limit."""

    what: str
    value: int
    limit_name: str
    limit: int
    clean_shutdown: NotRequired[bool]


class CheckpointEvidence(LaterEvidence, total=False):
    """The first violation of the format of a checkpoint or properties file, and their number."""

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
    topic_id_sources: list[str]
    node_id: int
    cluster_id: str
    directory_id: str


# Replicas.


class VersionPlace(TypedDict):
    """The place of a broker's first batch of a version."""

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
    """Where a follower would truncate, by the epochs of batches and of checkpoints."""

    follower: Broker
    leader: Broker
    from_batches: int | None
    from_checkpoint: int | None


class ElectionEvidence(TypedDict):
    """A change of leader in the controllers' log."""

    election_ms: int | None
    election_time: str | None
    election_offset: int
    old_leader: int | None
    new_leader: int | None
    leader_epoch: int | None
    """None if earlier records could not be read, since the counted epoch may be too low."""
    previous_isr: list[int]


class ElectionOfLoss(ElectionEvidence):
    """The election that caused a loss."""

    unclean: bool
    unclean_elections_since: int
    or_in_epochs: NotRequired[list[int]]
    """Leader epochs of earlier elections that may have caused the loss instead."""


class ForkEvidence(LaterEvidence):
    """Logs that diverge at an offset, and the loss."""

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


class RemoteHoleEvidence(LaterEvidence):
    """Offsets of a log that are neither in finished remote segments of it nor in the leader's local log."""

    log_start_offset: int
    local_log_start_offset: int
    """Of the leader."""
    leaders: list[Broker]
    segments: NotRequired[JsonArray]
    """The first 64 remote segments with these offsets that readers do not get: ids, offsets, states, and whether
    the store has their logs."""
    segments_count: NotRequired[int]
    in_remote_storage: NotRequired[bool]
    """Whether these segments have all of the offsets, and no broker does."""
    ranges_more: NotRequired[int]
    """Further holes of the partition, which are not listed."""


class RemoteSegmentEvidence(LaterEvidence):
    """Finished remote segments whose objects are missing, or have a wrong size."""

    reason: str
    lacking: list[str]
    """Suffixes of the missing objects."""
    segments: JsonArray
    """The first 64 of them: ids and offsets."""
    segments_count: int
    is_read: bool
    """Whether readers get these segments: they belong to the leader's log."""
    size_in_bytes: NotRequired[int]
    """Of the object with the log."""
    expected_bytes: NotRequired[int]
    in_remote_storage: NotRequired[bool]
    """Whether other remote segments have all of the offsets, and no broker does."""
    ranges_more: NotRequired[int]
    """Further ranges of the partition, which are not listed."""


class UnreferencedEvidence(LaterEvidence):
    """Objects of the remote store that no reader gets."""

    reason: str
    segments: JsonArray
    """The first 64 segments: ids, first offsets and, if known, last states and ends."""
    segments_count: int


class RemoteEventEvidence(LaterEvidence):
    """Events of `__remote_log_metadata` that brokers drop, or do not find."""

    reason: str
    events: JsonArray
    """The first 64: offsets in the metadata partition, segment ids and states."""
    events_count: int
    expected_partition: NotRequired[int]
    """Where brokers look for events of this partition."""


class LossByElectionEvidence(ForkEvidence, ElectionEvidence):
    """A loss, with the election of a last known leader that caused it."""


class DiffersEvidence(LaterEvidence):
    """A batch field in which a minority of the replicas differs."""

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
    """Different batches with the same records, as far as the older of two message formats can hold them."""

    brokers: list[Broker]
    batches: int
    message_formats: NotRequired[list[list[int]]]
    not_compared: NotRequired[list[str]]
    without_headers: NotRequired[list[Broker]]
    without_transactions: NotRequired[list[Broker]]
    lacking: NotRequired[list[HeldRange]]
    """Offsets of batches without headers or transaction, and their brokers; absent if not all could be compared."""


class LostEverywhereEvidence(LaterEvidence):
    """Committed offsets that no copy has."""

    missing: int
    log_end_offset: NotRequired[int]
    directories_missing_on: NotRequired[list[Broker]]
    never_known: NotRequired[bool]
    in_remote_storage: NotRequired[bool]
    """Whether finished remote segments have some of the offsets."""
    remote_segments_count: NotRequired[int]
    not_in_remote_storage: NotRequired[JsonArray]


class CompactedRecord(TypedDict):
    """A record of a compacted log that is missing on some replicas."""

    offset: int
    reason: str
    key_hash: str
    held_by: list[Broker]
    not_on: list[Broker]


class ByReasonEvidence(LaterEvidence, total=False):
    """Numbers of keys by reason of the difference."""

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
    """Keys whose latest values differ without explanation by the cleaner's rules."""

    markers: NotRequired[int]
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
    """A replica that may become leader and lacks committed records."""

    membership: NotRequired[str]
    isr: NotRequired[list[int] | None]
    elr: NotRequired[list[int] | None]
    log_end_offset: int
    loses: int
    absent: NotRequired[bool]
    wiped: NotRequired[bool]
    latest_epoch: NotRequired[int]


class HeadMissingEvidence(LaterEvidence):
    """Missing oldest segments that retention does not explain."""

    log_start_offset: int
    loses: int
    retention_ms: NotRequired[int]
    retention_bytes: NotRequired[int]
    head_timestamp_ms: NotRequired[int | None]
    epochs_start: NotRequired[int]
    moved_by_broker: NotRequired[bool]
    """Whether the broker cut its leader-epoch-checkpoint at this log start."""
    needs_snapshot: NotRequired[bool]
    snapshot_end: NotRequired[int]
    """Of the controllers' log: end of the snapshot on this node that reaches its start, if there is one."""


class HeldBackEvidence(LaterEvidence):
    """Consumers that wait for the high watermark."""

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
    """Unknown if records have no timestamp, or the first waiting one has a later timestamp than the newest."""


# What should be there.


class ReplicaMissingEvidence(LaterEvidence):
    """An expected replica that is missing."""

    expected_by: list[str]
    never_known: NotRequired[bool]


class ReplicaNotGivenEvidence(LaterEvidence):
    """A broker without a given log directory."""

    node_id: int
    as_of_ms: int | None
    replicas: NotRequired[int]
    in_isr: NotRequired[int]
    led: NotRequired[int]
    other_log_dirs: NotRequired[bool]
    votes: NotRequired[bool]
    """Whether it is a voter of the controllers' quorum."""


class PartialCopyEvidence(LaterEvidence):
    """An incomplete copy."""

    partitions: int
    there: int
    log_dirs: list[str]
    reasons: list[str]
    without_logs: NotRequired[bool]
    """Whether none of its partitions has a `.log` file."""


class WipedEvidence(LaterEvidence):
    """A log directory that is empty or has only `meta.properties`."""

    node_id: Broker | None
    is_empty: NotRequired[bool]
    replicas: NotRequired[int]
    expected_by: NotRequired[list[str]]
    may_have_held: NotRequired[int]


class AllEmptyEvidence(LaterEvidence):
    """Logs that are all empty although leaders changed."""

    partitions: int
    leader_epoch: int
    internal_topics: list[str] | None


class TopicUnknownEvidence(LaterEvidence):
    """A topic that is not in the controllers' log."""

    brokers: list[Broker]
    topic_id: str
    controller_end_ms: int | None
    may_delete: NotRequired[bool]
    sets_aside: NotRequired[bool]
    """What brokers do with topics unknown to the controllers: delete the directory, or set it aside."""


class QuorumEvidence(LaterEvidence):
    """Voters that may be elected although they lack committed records of the controllers' log."""

    voters: list[int]
    leaders: list[Broker]
    """Those that may be elected."""
    empty: list[Broker]
    """Those of them without any record."""
    behind: list[Broker]
    """Those of them whose log ends too early."""
    loses: int
    proven_end: int
    """Records before this offset are known to be committed."""
    not_given: list[int]
    """Voters without a given copy."""


class UncleanElectionEvidence(LaterEvidence, ElectionEvidence):
    """An unclean election, and the finding about its cost or why there is none."""

    unclean_elections: int
    epoch_start_offset: NotRequired[int]
    cost_finding: NotRequired[str]
    or_in_epochs: NotRequired[list[int]]
    """Leader epochs of other elections that may have lost these offsets instead."""
    agree_again: NotRequired[bool]
    same_leader: NotRequired[bool]
    old_leader_not_given: NotRequired[bool]
    old_leader_not_compared: NotRequired[bool]
    damage_hides: NotRequired[bool]


class RiskyConfigEvidence(LaterEvidence):
    """Settings that allow the loss of records."""

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
    events_lost: NotRequired[bool]
    """Whether brokers lost all copies of `__remote_log_metadata`."""
    store_listed: NotRequired[bool]


class RemoteSegmentDiffersEvidence(LaterEvidence):
    """A remote segment whose object contradicts its event, or a replica."""

    segment_id: str
    differs_in: str
    """`records`, or the field of its event: `size_in_bytes`, `start_offset`, `end_offset`, `max_timestamp_ms`, `leader_epoch`."""
    found: NotRequired[int]
    """The field's value by the object,"""
    listed: NotRequired[int]
    """and by `__remote_log_metadata`."""
    than_brokers: NotRequired[list[Broker]]
    """The brokers that have other records."""
    leader_epoch: NotRequired[int]
    """Of all these records."""


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
    """Kafka's exception with which the controller stops."""
    brokers: list[Broker]
    """Brokers whose copies have the record."""
    records_more: NotRequired[int]
    name: NotRequired[str]
    topic_name: NotRequired[str]
    topic_id: NotRequired[str]
    partition_id: NotRequired[int]
    broker_id: NotRequired[int]
    controller_id: NotRequired[int]


class MetadataUnknownEvidence(LaterEvidence):
    """Records of an unknown type."""

    api_key: int
    record_versions: list[int]
    records: int
    record_bytes: int
    brokers: list[Broker]


class GroupOffsetEvidence(LaterEvidence):
    """A committed offset of a group beyond all log ends."""

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
    set_back_to: NotRequired[int]
    """Its present offset, within the log, if every group that was beyond it went back."""
    set_back_ms: NotRequired[int]


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
    """What the directory of each id is."""
    misplaced_on: NotRequired[list[Broker]]


class TopicIdMissingEvidence(LaterEvidence):
    """A log without its topic id; if a copy lacks all topic ids, the number of logs."""

    topic_id: NotRequired[str]
    topic_id_sources: NotRequired[list[str]]
    """The source of the id: the controllers' log, or brokers with a copy."""
    sets_aside: NotRequired[bool]
    """Whether the broker is known to have a version that renames the directory to `-stray`."""
    is_empty: NotRequired[bool]
    """Whether the log has no batches, and ends above offset 0."""
    partitions: NotRequired[int]
    examples: NotRequired[list[str]]


class NodeClashEvidence(LaterEvidence):
    """A node id in the log directories of different copies."""

    node_id: Broker
    log_dirs: list[str]


class NodeMismatchEvidence(LaterEvidence):
    """A directory whose name contradicts its `meta.properties`."""

    node_ids: list[int]
    named: Broker
    log_dirs: list[str]


class InconsistentCutEvidence(IndexEntryEvidence, total=False):
    """Files of a live copy from different times, with the evidence of the findings that they would otherwise be."""

    what: str
    value: int
    limit_name: str
    limit: int
    log_end_offset: int
    file: str
    epoch: int
    clean_shutdown: bool


class ChangedEvidence(LaterEvidence):
    """A file that changed while it was read."""

    before: dict[str, int]
    after: dict[str, int] | None


class IrregularEvidence(LaterEvidence):
    """An entry that is neither a file nor a directory."""

    entry_kind: str


class SparseEvidence(LaterEvidence):
    """A file with holes."""

    allocated_bytes: int
    size_in_bytes: int


class DirectoryNameEvidence(LaterEvidence):
    """A directory whose name is almost that of a partition."""

    name: str
    refused: bool
    holds: NotRequired[list[str]]
    """Partitions that are links into it."""


class CleanerStoppedEvidence(LaterEvidence):
    """A broker whose logs were due for cleaning and not cleaned; `logs`: those with most to clean."""

    partitions: int
    dirty_bytes: int
    clean_bytes: int
    due_since_ms: int
    last_cleaned_ms: int
    """It cleaned a log after this time."""
    last_written_ms: int
    logs: list[Json]


class SwapEvidence(LaterEvidence):
    """An interrupted swap of segments by the cleaner."""

    leftovers: list[str]
    count: int
    steps: list[str]
    files_deleted: int
    files_renamed: int
    under_way: NotRequired[bool]


class RecoveryEvidence(LaterEvidence):
    """What a start on this copy would truncate."""

    check: int
    reason: str
    forecast_log_end: int | None
    log_end_offset: int
    clean_shutdown: bool
    recovery_point: int | None
    segments: int
    segments_deleted: list[str]
    batches_recovered: int | None
    count: NotRequired[int]


class LeftoverEvidence(LaterEvidence):
    """Files to be deleted with offsets that the live log lacks."""

    files: list[str]
    suffix: str
    batches: int
    offsets: list[list[int]]
    in_remote_storage: NotRequired[bool]
    expired: bool
    after_log_end: bool
    fills: list[str]
    is_stray: NotRequired[bool]
    topic_id: NotRequired[str | None]


class FilesUnknownEvidence(LaterEvidence):
    """Files that are not Kafka's."""

    names: list[str]
    count: int


class MisplacedStateEvidence(LaterEvidence):
    """Groups or transactional ids whose coordinators do not read their state."""

    of_groups: bool
    """Whether the names are groups, not transactional ids."""
    names_count: int
    partition_count: int
    in_partitions: dict[str, list[int]]
    """Partitions with their state, for the first names."""
    read_from: dict[str, int]
    """The partition that their coordinator reads, for the same names."""


class KeyPlacementEvidence(LaterEvidence):
    """The hash that places a topic's keys."""

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
    """Committed offsets of an older snapshot that were truncated since."""

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
    """Latest records of keys of an older snapshot that are missing."""

    from_snapshot: str
    to_snapshot: str
    markers: NotRequired[int]
    records: list[Json]
    held_before: list[Broker]


class IncidentEvidence(LaterEvidence):
    """A known incident whose signature matches."""

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
