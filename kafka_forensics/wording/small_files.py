"""Prose about indexes, snapshots and checkpoints."""

from typing import Final

DEFECTS: Final = {
    "broker_epoch": "its broker epoch cannot be read",
    "cluster_id": "its cluster id cannot be read",
    "count": "the number of its entries is missing or wrong",
    "directory_id": "its directory id cannot be read",
    "epoch": "an epoch cannot be read",
    "escape": "a character is escaped wrongly",
    "fields": "a line has another form",
    "json": "it is no JSON",
    "line_too_long": "a line is too long",
    "missing": "a line is missing that must be there",
    "node_id": "its node id cannot be read",
    "offset": "an offset cannot be read",
    "oversized": "it is too large",
    "partition": "a partition cannot be read",
    "too_many_lines": "it has too many lines",
    "topic": "no topic can have such a name",
    "topic_id": "its topic id cannot be read",
    "unterminated": "its last line has no end",
    "version": "its version is missing or unknown",
    "zeros": "it is filled with zeros",
}
"""What the reasons say that reading a checkpoint or identity file gives."""
WITHOUT: Final = {
    "leader-epoch-checkpoint": (
        "without it Kafka knows no leader epochs of this log but those of batches that a recovery after an unclean stop walks;"
        " knowing none, it cuts it as a follower at its high watermark, not at a fork"
    ),
    "replication-offset-checkpoint": (
        "without it Kafka takes each log's start for its high watermark until replicas have fetched again, and before version 0.11"
        " a follower is cut there"
    ),
}
"""What it costs to start without a file."""
PROSE: Final = """
INDEX_MISMATCH: index that contradicts its log
    {file} does not fit its log[ ({reason})][ at entry {entry}][, which is harmless if {harmless_if}]; no record is harmed and
    Kafka can rebuild the file
    > Do not touch the .log; `kafka-forensics explain INDEX_MISMATCH` says how Kafka rebuilds the index.
INDEX_MISSING: missing index files
    index files of [{segments:segment}|some segments] are missing; Kafka rebuilds them from the log
TXNINDEX_MISSING_ABORT: aborted transaction missing from the index
    {file}[{file_missing:if} is missing and so] lacks an aborted transaction[ of producer {producer_id}][, offsets {first_offset}
    to {last_offset}], so that read_committed readers would get its records
    > Keep the .log; `kafka-forensics explain TXNINDEX_MISSING_ABORT` says how Kafka rebuilds the file.
TXNINDEX_PHANTOM_ABORT: aborted transaction that the log does not have
    {file} lists an aborted transaction[ of producer {producer_id}][, offsets {first_offset} to {last_offset},] that the log does
    not have, so that read_committed readers would miss good records
    > Keep the .log; `kafka-forensics explain TXNINDEX_PHANTOM_ABORT` says how Kafka rebuilds the file.
PRODUCER_SNAPSHOT_CORRUPT: damaged producer snapshot
    {file} cannot be trusted[ ({reason})]; Kafka drops it and rebuilds the producers' state from the log
    > Nothing to repair; what it holds can be seen with [{dump}|`kafka-forensics dump`.]
PRODUCER_SNAPSHOT_MISSING: producer snapshots that are not there
    the broker was shut down cleanly and no producer snapshot is in this copy, so that starting on it would forget
    [{count:producer}|its producers][ and {open_transactions:open transaction}]
    > Look for the .snapshot files on the broker before it starts: without any, Kafka begins with no producers at all.
EPOCH_CACHE_MISMATCH: epoch checkpoint that contradicts the batches
    leader-epoch-checkpoint [{file_missing:if}{epochs_after_start:none}is missing, though these batches have leader epochs and
    other partitions have theirs; a broker that starts like this cuts the log as a follower at its high
    watermark|{file_missing:if}is missing, though these batches have leader epochs and other partitions have theirs; the broker was
    not stopped cleanly, and its recovery takes epochs from the batches that it walks|does not fit the epochs of the batches
    ({reason})|does not fit the epochs of the batches][: as a follower this replica would be cut at offset
    {truncation_offset_by_checkpoint} by the file, {truncation_offset_by_batches} by the batches]<held>
    > Copy this log directory elsewhere before the broker starts[{epochs_after_start:none}: it then knows no epochs of this
    log|{file_missing:if}: its recovery writes that file anew|: Kafka truncates by the file, not by the batches]. <look>
HW_BEYOND_LEO: high watermark beyond the log's end
    the checkpointed high watermark[ {high_watermark}] lies beyond the log's end[ {log_end_offset}], so this replica lost
    [{offsets}|committed offsets][{clean_shutdown:if} although the broker was stopped in order|, unless it was copied while
    running]<held>
    > [{clean_shutdown:if}Find the offsets with {compare}|{clean_shutdown:if}<only>|If the copy was taken from a running broker,
    scan it again with --live; else find the offsets with {compare}|If the copy was taken from a running broker, scan it again
    with --live. <only>]
HW_UNKNOWN: unknown high watermark
    no high watermark is known[ for {partitions:partition}][ (checkpoint: {reason})], so nothing is said about what was committed
    > [For {partitions:partition}, add replication-offset-checkpoint of the log directory to the copy, if it can still be
    had.|Nothing is missing from the copy: no watermark had been written down yet; `kafka-forensics groups PATH...
    --all-partitions` says what holds it back.]
CHECKPOINT_OUT_OF_ORDER: checkpoint that contradicts the log
    [{what} {value}|a checkpointed offset] contradicts [{limit_name} {limit}|the log][, which is harmless if {harmless_if}]
    > [{clean_shutdown:if}The broker was stopped in order, so that the log or the file was changed since: see what every replica
    holds there with {compare}|{clean_shutdown:if}The broker was stopped in order, so that the log or the file was changed since.
    <only>|Check whether the copy was taken from a running broker (--live) before looking for a fault.]
CHECKPOINT_MALFORMED: unreadable checkpoint or identity file
    {file} cannot be read as what it should be[: {defect}], so what it says is unknown[{stops}; Kafka takes the log directory
    offline over it, and a broker without another one does not start]
    > [{stops}Before this broker starts, copy its log directory elsewhere and move (never delete) this file out of it:
    {without}. ][See its content with {dump}]
"""
