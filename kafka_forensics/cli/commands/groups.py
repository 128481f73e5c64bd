"""`groups`: committed offsets of groups compared with the logs, and why the newest records of a partition cannot be read."""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.outputs.rows import AnswerList, cell
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, no_copy_message, open_output, say, screen_of
from kafka_forensics.model.amounts import first_few, plural
from kafka_forensics.model.constants import (
    CONSUMER_OFFSETS_TOPIC,
    DELIVERY_STATES,
    NO_OFFSET,
    REMOTE_LOG_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    delivery_state_name,
)
from kafka_forensics.model.json_objects import Columns, Json, attribute, attributes, object_of, rfc3339, time_text, times
from kafka_forensics.model.safe_text import unquoted

if TYPE_CHECKING:
    from kafka_forensics.analysis.replicas import ReadersLimit
    from kafka_forensics.model.coordinators import ShareState, StateBatch
    from kafka_forensics.questions.groups import GroupRow, GroupsAnswer, PartitionEnds


_GAPS_SHOWN: Final = 3
_METADATA: Final = "metadata"
_WRITTEN_DELIVERY_STATES: Final = (0, 2, 4)
"""Delivery states that share coordinators write."""
_HEADS: Final = ("group", "state", "members", "partition", "committed", "log end", "lag", "committed at", "newest records", "notes")
_RIGHT: Final = ("members", "committed", "log end", "lag")
_NO_GROUP: Final = "(no group)"
"""In a table, for partitions on which no group committed."""
_READABLE_UNKNOWN: Final = "the end of readable records is unknown"


def _none_if_negative(path: str) -> "Callable[[GroupRow], int | None]":
    """A column of a number that is negative if it is absent."""
    number = attribute(path)
    return lambda row: value if (value := number(row)) is not None and value >= 0 else None


def _offsets_in(delivery_state: int, row: "GroupRow") -> int | None:
    return None if row.share is None else row.share.offsets_in(delivery_state)


def _share_batch(batch: "StateBatch") -> Json:
    """A range of offsets that a share group acquired, with the name of its delivery state."""
    return batch._asdict() | {"delivery_state": delivery_state_name(batch.delivery_state)}


_EXPIRES_MS: Final = _none_if_negative("commit.expire_timestamp")
COLUMNS: Final[Columns] = {
    **attributes("group"),
    **attributes("kind state members=members_count generation", of="about"),
    **attributes("topic partition status committed_offset=commit.offset"),
    **attributes("log_start_offset local_log_start_offset log_end_offset=readable.log_end_offset", of="ends"),
    **attributes("lag readable deleted_unread beyond_end"),
    **times("committed", "commit.commit_timestamp"),
    "expires_ms": _EXPIRES_MS,
    "expires": lambda row: None if (time_ms := _EXPIRES_MS(row)) is None else rfc3339(time_ms),
    "leader_epoch": _none_if_negative("commit.leader_epoch"),
    "topic_id": lambda row: attribute("topic_id")(row.share or row.commit),
    "in_transaction": lambda row: None if row.commit is None else row.in_transaction,
    "producer_id": attribute("producer_id"),
    "metadata_length": lambda row: None if row.commit is None else len(row.commit.metadata.encode()),
    **attributes("offsets_partition=log_partition offsets_broker=log_broker offsets_offset=record_offset unknown_after_offset"),
    **attributes("coordinator_partition"),
    **attributes("high_watermark high_watermark_checkpointed=checkpointed held_back_by held_back_at", of="ends.readable"),
    **times("held_back_since", "ends.readable.since_ms"),
    **attributes("held_back_brokers=brokers held_back_producer_id=producer_id", of="ends.readable"),
    **attributes("isr min_insync_replicas missing_isr_members=missing", of="ends.readable"),
    **attributes("assignment_epoch topology_epoch", of="about"),
    "share_start_offset": lambda row: None if row.share is None or row.share.start_offset == NO_OFFSET else row.share.start_offset,
    "share_complete_count": _none_if_negative("share.delivery_complete_count"),
    **{f"share_{DELIVERY_STATES[state]}": partial(_offsets_in, state) for state in _WRITTEN_DELIVERY_STATES},
    "share_batches": lambda row: None if row.share is None else [_share_batch(batch) for batch in row.share.batches],
    **attributes("share_snapshot_epoch=snapshot_epoch share_state_epoch=state_epoch share_leader_epoch=leader_epoch", of="share"),
    **times("share_written", "share.timestamp"),
}

GroupGlob = Annotated[str | None, typer.Option("--group", metavar="GLOB", help="Only groups that match, e.g. 'billing*'.")]
EveryPartition = Annotated[
    bool,
    typer.Option("--all-partitions", help="Also partitions where no group committed offsets.", rich_help_panel=options.SELECTION),
]


@options.expand_option_groups
def groups(
    paths: options.Paths,
    selection: options.BrokerSelection,
    reading: options.ReadOptions,
    *,
    group: GroupGlob = None,
    all_partitions: EveryPartition = False,
    fail_on: options.FailOn = "none",
    show_payloads: options.ShowPayloads = False,
    output: options.OutputOptions,
    console: options.VerboseConsoleOptions,
) -> int:
    """Show what each group committed, and compare it with the log ends: an offset beyond every log end proves loss.

    Shows for each partition why consumers cannot read its newest records: the high watermark waits (for which broker, since
    when), or the last stable offset waits (for which producer's transaction). Share groups commit no offsets: shows where they
    read, and which records they hold.
    """
    format_name = output.chosen_format()
    scan_options = reading.scan_options(selection, deep=False)
    screen = screen_of(console)

    from kafka_forensics.questions.groups import groups as list_groups

    with Progress(screen) as progress:
        answer = list_groups(paths, scan_options, group_glob=group, every_partition=all_partitions, progress=progress)
    with open_output(output.output, color=console.color, private=show_payloads) as to:
        _listing(show_metadata=show_payloads).write(answer.rows, format_name, to)
    _print_summary(answer, screen, group, all_partitions=all_partitions)
    return options.exit_status(answer.result, fail_on)


def _listing(*, show_metadata: bool) -> AnswerList:
    """The columns of the rows, with the metadata that clients commit with offsets if it is to be shown."""
    if not show_metadata:
        return AnswerList(COLUMNS, _HEADS, _RIGHT, _cells)
    metadata = attribute(f"commit.{_METADATA}")
    return AnswerList(
        {**COLUMNS, _METADATA: metadata}, (*_HEADS, _METADATA), _RIGHT, lambda row: [*_cells(row), cell(metadata(row))]
    )


def _cells(row: "GroupRow") -> list[str]:
    values = object_of(COLUMNS, row)
    topic = row.topic_or_id if row.topic is not None or row.share is None else f"topic {row.topic_or_id}"
    state = values["state"]
    if values["kind"] not in (None, "classic"):
        state = " ".join(filter(None, (values["kind"], state)))
    return [
        _NO_GROUP if row.group is None else unquoted(row.group),
        unquoted(state or ""),
        cell(values["members"]),
        "" if topic is None else unquoted(f"{topic}-{row.partition}"),
        *(cell(values[name]) for name in ("committed_offset", "log_end_offset", "lag", "committed")),
        cell("" if row.ends is None else readers_text(row.ends.readable)),
        cell("; ".join(_notes(row))),
    ]


def readers_text(answer: "ReadersLimit") -> str:
    """Why the newest records of a partition cannot be read, as a note in a table."""
    brokers = f"broker{'s' if len(answer.brokers) > 1 else ''} {', '.join(map(str, answer.brokers))}"
    since = "" if answer.since_ms is None else f" since {time_text(answer.since_ms)}"
    size = 0 if answer.isr is None else len(answer.isr)
    minimum = "its minimum" if answer.min_insync_replicas is None else f"min.insync.replicas {answer.min_insync_replicas}"
    below = f"; ISR of {size}, below {minimum}" if answer.isr_below_minimum else ""
    match answer.held_back_by:
        case "high_watermark":
            by = f" by {brokers}" if answer.brokers else ""
            return f"high watermark held at {answer.held_back_at}{by}{since}{below}"
        case "last_stable_offset":
            before = f", or before: {_missing(answer)}" if answer.missing else ""
            return f"committed reads held at {answer.held_back_at} by producer {answer.producer_id}{since}{below}{before}"
        case "no_leader" if answer.brokers:
            return f"no leader{since}; last in sync: {', '.join(map(str, answer.brokers))}"
        case "no_leader":
            return f"no leader{since}"
        case "unknown" if answer.missing and answer.held_back_at is None:
            return f"{_READABLE_UNKNOWN}: {_missing(answer)}"
        case "unknown" if answer.missing:
            return f"held at {answer.held_back_at} or before: by {brokers}, and {_missing(answer)}"
        case "unknown" if answer.held_back_at is None:
            least = f"readable to {answer.proven} at least" if answer.proven else _READABLE_UNKNOWN
            why = "the ISR is unknown" if answer.isr is None else "no checkpoint has the high watermark"
            return f"{least}: {why}{below}"
        case "unknown":
            return f"held at {answer.held_back_at} if {brokers} is in the ISR"
        case _:
            return f"readable{below}"


def _missing(answer: "ReadersLimit") -> str:
    nodes = ", ".join(map(str, answer.missing))
    if len(answer.missing) > 1:
        return f"no logs of brokers {nodes}, members of the ISR"
    return f"no log of broker {nodes}, a member of the ISR"


def _notes(row: "GroupRow") -> Iterator[str]:
    if row.beyond_end:
        yield f"BEYOND EVERY LOG by {row.beyond_end}"
    if row.deleted_unread and row.status == "committed":
        left = "" if row.readable is None else f", {row.readable} are left to read"
        yield f"OUT OF RANGE: {plural(row.deleted_unread, 'offset')} deleted unread{left}; auto.offset.reset decides"
    if row.ends is not None and row.commit is not None:
        local_start = row.ends.local_log_start_offset
        if 0 <= row.commit.offset < local_start and row.ends.log_start_offset < local_start:
            yield f"up to {local_start} from remote storage{_remote_text(row.ends, row.commit.offset)}"
    if row.coordinator_partition is not None:
        coordinator_log = f"{CONSUMER_OFFSETS_TOPIC}-{row.coordinator_partition}"
        yield f"NOT READ: in {CONSUMER_OFFSETS_TOPIC}-{row.log_partition}, its coordinator reads {coordinator_log}"
    if row.status == "pending":
        yield f"pending: transaction of producer {row.producer_id} has no marker"
    if row.share is not None:
        yield _share_text(row.share)
    if row.unknown_after_offset is not None:
        log = CONSUMER_OFFSETS_TOPIC if row.share is None else SHARE_GROUP_STATE_TOPIC
        yield f"unknown after offset {row.unknown_after_offset} of {log}-{row.log_partition}"
    if (row.topic is not None or row.share is not None) and row.ends is None:
        yield "no copy of the partition"


def _remote_text(ends: "PartitionEnds", offset: int) -> str:
    """Whether remote storage has the offsets from a committed one up to the local log start."""
    from kafka_forensics.model.offset_ranges import clipped, counted
    from kafka_forensics.wording import offset_range

    if ends.remote is None:
        return ""
    if missing := clipped(ends.remote.missing, offset, ends.local_log_start_offset):
        shown = first_few([offset_range(*span) for span in missing], _GAPS_SHOWN)
        return f", where {shown} {'are' if counted(missing) > 1 else 'is'} missing"
    return ", where they are" if ends.remote.has_store else f", where they are by {REMOTE_LOG_METADATA_TOPIC}"


def _share_text(state: "ShareState") -> str:
    """The start offset of a share group, and how many acquired offsets are in each delivery state."""
    if state.start_offset == NO_OFFSET:
        return "nothing read yet"
    counts = [(state.offsets_in(number), DELIVERY_STATES[number]) for number in _WRITTEN_DELIVERY_STATES]
    counted = ", ".join(f"{count} {name}" for count, name in counts if count)
    return f"takes from {state.start_offset}" + (f": {counted}" if counted else "")


def _print_summary(answer: "GroupsAnswer", screen: Screen, group: str | None, *, all_partitions: bool) -> None:
    """Print findings as a scan does, a summary, and inputs that could not be read."""
    from kafka_forensics.cli.outputs.words import finding_lines, incomplete_lines

    lines = [] if screen.quiet else [*finding_lines(answer.result.findings)]
    if not answer.has_log:
        lines.append(("" if answer.rows else "nothing to show: ") + no_copy_message(CONSUMER_OFFSETS_TOPIC))
    elif not answer.rows:
        lines.append(f"nothing to show: {_why_no_rows(answer, group)}")
    if not (answer.rows or all_partitions):
        lines.append("--all-partitions shows what holds back the readers of partitions without commits")
    elif answer.rows and answer.has_log and not screen.quiet:
        lines.append(_counts(answer.rows))
    for topic, subject, logs in (
        (CONSUMER_OFFSETS_TOPIC, "commits", answer.logs),
        (SHARE_GROUP_STATE_TOPIC, "states", answer.share_logs),
    ):
        lines += [
            f"{topic}-{log.partition} of broker {unquoted(str(log.broker))} is not whole: {subject} may be missing"
            for log in logs
            if not log.complete or log.limited
        ]
    say(screen, [*lines, *incomplete_lines(answer.result)])


def _why_no_rows(answer: "GroupsAnswer", group: str | None) -> str:
    from kafka_forensics.evidence.options import listed

    if not answer.names:
        return "no group committed an offset"
    if group is not None and not any(fnmatchcase(name, group) for name in answer.names):
        return f"no group matches --group {group}; there is {listed(map(unquoted, answer.names))}"
    return "no matching group committed an offset on the matching partitions"


def _counts(rows: "list[GroupRow]") -> str:
    """`2 groups, 7 committed offsets, 1 beyond every log's end`, after the number of share partitions if there are any."""
    names = {row.group for row in rows if row.group is not None}
    committed = [row for row in rows if row.status == "committed"]
    beyond = sum(bool(row.beyond_end) for row in committed)
    shares = sum(row.share is not None for row in rows)
    counts = [plural(shares, "share partition")] if shares else []
    counts += [plural(len(names), "group"), plural(len(committed), "committed offset")]
    return f"{', '.join(counts)}, {beyond or 'none'} beyond every log's end"
