"""A change between two snapshots as short text."""

from typing import Final

from kafka_forensics.model.amounts import plural
from kafka_forensics.model.changes import Change, ChangeKind
from kafka_forensics.model.offset_ranges import offset_range

REASONS: Final = {
    "retention": "by retention, or as the leader did",
    "log_start_missing": "the first segments are missing, and no known retention deletes records this young",
    "log_start_moved": "the log start moved: DeleteRecords, or as the leader did",
    "came_and_went": "appended since the older snapshot and already below the log start, or never copied to this replica",
    "topic_deleted": "the topic was deleted",
    "topic_missing": "no given broker has the topic any more",
    "topic_recreated": "the topic was created again with another id",
    "topic_created": "the topic is new",
    "partition_added": "the partition is new",
    "replica_added": "an additional replica",
    "moved_to_other_brokers": "the partition moved to other brokers",
    "replica_being_deleted": "its directory is marked for deletion",
    "replica_stray": "its directory was renamed to -stray",
    "replica_missing": "its directory is not there",
    "broker_not_given": "the other snapshot has no files of this broker",
    "log_dir_not_given": "its log directory is not in the other snapshot",
    "unreadable": "not all of it could be read",
    "same_records_again": "the same records came back in another epoch",
    "tail": "the log now ends in damage there",
    "batch": "batches were damaged",
    "framing": "bytes there are no longer batches",
    "header": "headers differ in fields that the CRC does not cover",
    "reencoded": "equal records in different batches",
    "content": "different records with the same leader epoch, which no broker writes",
    "repaired": "damaged batches are good again",
    "other_batches": "different batches at the same offsets",
    "cleaned_copy": "cleaned batches that differ",
    "against_the_rules": "also records that cleaning never removes",
    "log_start": "the log starts earlier than it did",
    "gap": "offsets that were missing are present again",
}
"""The text of a `reason`."""
_MORE_RANGES: Final = {
    "ranges_more": "and {} more such range{} after it",
    "ranges_not_compared": "{} further range{} of offsets differ and were not read",
}
"""The text of counts in the evidence of further ranges."""

CHANGE_HEADS: Final = ("partition", "broker", "from", "to", "offsets", "what changed")


def change_cells(change: Change) -> tuple[str, ...]:
    """A change as a row of a table with the columns `CHANGE_HEADS`."""
    place = f"{change.topic}-{change.partition}", str(change.broker), change.from_snapshot, change.to_snapshot
    offsets = offset_range(change.offset_start, change.offset_end) if change.has_offsets else "not known"
    return *place, offsets, change_text(change)


def change_text(change: Change) -> str:
    """What happened to the range, without its place: `cut off in epoch 0, replaced in epoch 2; 70 records; committed below 370`."""
    parts = [_what(change)]
    if change.reason is not None:
        parts.append(REASONS.get(change.reason, change.reason.replace("_", " ")))
    if change.kind not in (ChangeKind.UNCHANGED, ChangeKind.NOT_COMPARED):
        counted = (change.batches, "batch"), (change.records, "record"), (change.bytes, "byte")
        counts = ", ".join(plural(number, noun) for number, noun in counted if number is not None)
        parts += [counts] if counts else []
    parts += ["records in remote storage"] if change.evidence.get("in_remote_storage") else []
    if change.committed_end_offset is not None:
        parts.append(f"committed below {change.committed_end_offset}, {_holders(change)}")
    more = ((text, change.evidence.get(key)) for key, text in _MORE_RANGES.items())
    return "; ".join([*parts, *(text.format(count, "" if count == 1 else "s") for text, count in more if count)])


def _holders(change: Change) -> str:
    """Who has the committed part of the range."""
    parts = change.evidence.get("in_parts_on")
    if change.held_by or not parts:
        return f"still on {', '.join(map(str, change.held_by))}" if change.held_by else "no longer on any given replica"
    holders, lost = ", ".join(map(str, parts)), change.evidence.get("lost") or []
    if not lost:
        return f"still on {holders}, a part each"
    if len(lost) > 1:
        among = offset_range(lost[0][0], lost[-1][1])
        return f"still on {holders} but for {change.evidence.get('lost_offsets')} offsets among {among}"
    return f"still on {holders} but for {offset_range(*lost[0])}"


def _what(change: Change) -> str:
    epochs = ""
    if change.leader_epochs:
        first, last, count = change.leader_epochs[0], change.leader_epochs[-1], len(change.leader_epochs)
        epochs = f" in epoch {first}" if count == 1 else f" in epochs {first} {'and' if count == 2 else 'to'} {last}"
    match change.kind:
        case ChangeKind.APPENDED:
            return f"appended{epochs}"
        case ChangeKind.TRUNCATED:
            return f"cut off{epochs}" + ("" if change.replaced_by is None else f", replaced in epoch {change.replaced_by}")
        case ChangeKind.CLEANED:
            return "cleaned"
        case ChangeKind.MOVED:
            return "moved to another log directory"
        case ChangeKind.NOT_COMPARED:
            return "not compared"
        case _:
            return change.kind.value
