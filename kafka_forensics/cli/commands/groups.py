"""`groups`: what groups committed, against the logs; and why the newest records of a partition cannot be read."""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.commands.scan import exit_status
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.outputs.rows import Listing, cell
from kafka_forensics.cli.streams import Destination, absent, chosen_format, open_output, printable, say, screen_of
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.constants import (
    CONSUMER_OFFSETS_TOPIC,
    DELIVERY_STATES,
    NO_OFFSET,
    SHARE_GROUP_STATE_TOPIC,
    delivery_state_name,
)
from kafka_forensics.model.json_objects import Columns, Json, attribute, attributes, object_of, time_text, times

if TYPE_CHECKING:
    from kafka_forensics.analysis.replicas import Readable
    from kafka_forensics.model.coordinators import ShareState, StateBatch
    from kafka_forensics.questions.groups import GroupRow, GroupsAnswer


_METADATA: Final = "metadata"
_TOLD_STATES: Final = (0, 2, 4)
"""Delivery states that coordinators write."""
_HEADS: Final = ("group", "state", "members", "partition", "committed", "log end", "lag", "committed at", "newest records", "notes")
_RIGHT: Final = ("members", "committed", "log end", "lag")
_MESSAGES: Final = 20
_NO_GROUP: Final = "(no group)"
"""In a table, of partitions on which none committed."""
_NOT_KNOWN: Final = "how far consumers can read is not known"


def _if_any(path: str) -> "Callable[[GroupRow], int | None]":
    """A number that is negative where there is none."""
    number = attribute(path)
    return lambda row: value if (value := number(row)) is not None and value >= 0 else None


def _offsets_in(delivery_state: int, row: "GroupRow") -> int | None:
    return None if row.share is None else row.share.offsets_in(delivery_state)


def _share_batch(batch: "StateBatch") -> Json:
    """Offsets that a share group took, with their state by name."""
    return batch._asdict() | {"delivery_state": delivery_state_name(batch.delivery_state)}


COLUMNS: Final[Columns] = {
    **attributes("group"),
    **attributes("kind state members=members_count generation", of="about"),
    **attributes("topic partition status committed_offset=commit.offset"),
    **attributes("log_start_offset local_log_start_offset log_end_offset=readable.log_end_offset", of="ends"),
    **attributes("lag readable deleted_unread beyond_end"),
    **times("committed", "commit.commit_timestamp"),
    "expires_ms": _if_any("commit.expire_timestamp"),
    "leader_epoch": _if_any("commit.leader_epoch"),
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
    "share_complete_count": _if_any("share.delivery_complete_count"),
    **{f"share_{DELIVERY_STATES[state]}": partial(_offsets_in, state) for state in _TOLD_STATES},
    "share_batches": lambda row: None if row.share is None else [_share_batch(batch) for batch in row.share.batches],
    **attributes("share_snapshot_epoch=snapshot_epoch share_state_epoch=state_epoch share_leader_epoch=leader_epoch", of="share"),
    **times("share_written", "share.timestamp"),
}

GroupGlob = Annotated[str | None, typer.Option("--group", metavar="GLOB", help="Only groups that match, e.g. 'billing*'.")]
EveryPartition = Annotated[
    bool, typer.Option("--all-partitions", help="Also partitions on which no group committed: what holds their readers back.")
]


@options.flat
def groups(
    paths: options.Paths,
    selection: options.BrokerSelection,
    reading: options.Reading,
    *,
    group: GroupGlob = None,
    all_partitions: EveryPartition = False,
    fail_on: options.FailOn = "none",
    show_payloads: options.ShowPayloads = False,
    form: options.Form,
    printing: options.VerbosePrinting,
) -> int:
    """What each group committed, against the log ends of the copies; committed beyond every end is proof of loss.

    Of share groups, which commit no offsets: from where they take each partition's records, and what became of those they took.

    Says for every partition why consumers cannot read its newest records: the high watermark is held back (by whom, since when),
    or the last stable offset (by which producer's open transaction), or nothing holds them back.
    """
    wanted = chosen_format(form.format_name, form.output)
    choose("severity", fail_on, options.FAIL_ON)
    scan_options = reading.scan_options(selection, deep=False)
    screen = screen_of(printing)

    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.groups import groups as all_groups

    with Progress(screen, quiet=printing.quiet) as progress:
        answer = all_groups(paths, scan_options, group_glob=group, every_partition=all_partitions, progress=progress)
    with open_output(form.output, color=printing.color, private=show_payloads) as to:
        _listing(payloads=show_payloads).write(answer.rows, wanted, to)
    _say_rest(answer, screen, group, every_partition=all_partitions, quiet=printing.quiet)
    return exit_status(answer.result, fail_on)


def _listing(*, payloads: bool) -> Listing:
    """How the rows are listed, what clients keep with their offsets among it if it is asked for."""
    if not payloads:
        return Listing(COLUMNS, _HEADS, _RIGHT, _cells)
    kept = attribute(f"commit.{_METADATA}")
    return Listing({**COLUMNS, _METADATA: kept}, (*_HEADS, _METADATA), _RIGHT, lambda row: [*_cells(row), cell(kept(row))])


def _cells(row: "GroupRow") -> list[str]:
    values = object_of(COLUMNS, row)
    topic = row.topic_or_id if row.topic is not None or row.share is None else f"topic {row.topic_or_id}"
    partition = "" if topic is None else cell(f"{topic}-{row.partition}")
    return [
        _NO_GROUP if row.group is None else cell(row.group),
        cell(values["state"] if values["kind"] in (None, "classic") else " ".join(filter(None, (values["kind"], values["state"])))),
        cell(values["members"]),
        partition,
        cell(values["committed_offset"]),
        cell(values["log_end_offset"]),
        cell(values["lag"]),
        cell(values["committed"]),
        cell("" if row.ends is None else readers_in_words(row.ends.readable)),
        cell("; ".join(_notes(row))),
    ]


def readers_in_words(answer: "Readable") -> str:
    """Why the newest records cannot be read, in a few words."""
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
            return f"{_NOT_KNOWN}: {_missing(answer)}"
        case "unknown" if answer.missing:
            return f"held at {answer.held_back_at} or before: by {brokers}, and {_missing(answer)}"
        case "unknown" if answer.held_back_at is None:
            least = f"readable to {answer.proven} at least" if answer.proven else _NOT_KNOWN
            why = "nothing says who is in the ISR" if answer.isr is None else "no checkpoint has the high watermark"
            return f"{least}: {why}{below}"
        case "unknown":
            return f"held at {answer.held_back_at} if {brokers} is in the ISR"
        case _:
            return f"readable{below}"


def _missing(answer: "Readable") -> str:
    many = len(answer.missing) > 1
    nodes = ", ".join(map(str, answer.missing))
    return f"no logs of brokers {nodes}, members of the ISR" if many else f"no log of broker {nodes}, a member of the ISR"


def _notes(row: "GroupRow") -> Iterator[str]:
    if row.beyond_end:
        yield f"BEYOND EVERY LOG by {row.beyond_end}"
    if row.deleted_unread and row.status == "committed":
        left = "" if row.readable is None else f", {row.readable} are left to read"
        yield f"OUT OF RANGE: {plural(row.deleted_unread, 'offset')} deleted unread{left}; auto.offset.reset decides"
    if row.ends is not None and row.commit is not None and 0 <= row.commit.offset < row.ends.local_log_start_offset:
        local_start = row.ends.local_log_start_offset
        if row.ends.log_start_offset < local_start:
            yield f"up to {local_start} from remote storage"
    if row.coordinator_partition is not None:
        read = f"{CONSUMER_OFFSETS_TOPIC}-{row.coordinator_partition}"
        yield f"NOT READ: in {CONSUMER_OFFSETS_TOPIC}-{row.log_partition}, its coordinator reads {read}"
    if row.status == "pending":
        yield f"pending: transaction of producer {row.producer_id} has no marker"
    if row.share is not None:
        yield share_in_words(row.share)
    if row.unknown_after_offset is not None:
        log = CONSUMER_OFFSETS_TOPIC if row.share is None else SHARE_GROUP_STATE_TOPIC
        yield f"unknown after offset {row.unknown_after_offset} of {log}-{row.log_partition}"
    if (row.topic is not None or row.share is not None) and row.ends is None:
        yield "no copy of the partition"


def share_in_words(state: "ShareState") -> str:
    """From where a share group takes records, and what became of those that it took."""
    if state.start_offset == NO_OFFSET:
        return "nothing taken yet"
    counts = {name: state.offsets_in(number) for number, name in DELIVERY_STATES.items() if number in _TOLD_STATES}
    counted = [f"{count} {name}" for name, count in counts.items() if count]
    return f"takes from {state.start_offset}" + (f": {', '.join(counted)}" if counted else "")


def _nobody(answer: "GroupsAnswer", group: str | None) -> str:
    """Why no group has a row."""
    from kafka_forensics.evidence.options import listed

    if not answer.names:
        return "no group committed anything"
    if group is not None and not any(fnmatchcase(name, group) for name in answer.names):
        return f"no group fits --group {group}; there is {listed(answer.names)}"
    return "no group that is asked for committed anything on the partitions asked for"


def _say_rest(answer: "GroupsAnswer", screen: Destination, group: str | None, *, every_partition: bool, quiet: bool) -> None:
    """What was found, in the words of a scan, a summary, and what could not be read, on stderr."""
    from kafka_forensics.cli.outputs.words import finding_lines, incomplete_lines

    lines = [] if quiet else [*finding_lines(answer.result.findings)]
    if not answer.has_log:
        lines.append(("" if answer.rows else "nothing to show: ") + absent(CONSUMER_OFFSETS_TOPIC))
    elif not answer.rows:
        lines.append(f"nothing to show: {_nobody(answer, group)}")
    if not (answer.rows or every_partition):
        lines.append("--all-partitions shows what holds back the readers of partitions without commits")
    elif answer.rows and answer.has_log and not quiet:
        lines.append(_summary(answer.rows))
    say(screen, [*lines, *_not_whole(answer), *incomplete_lines(answer.result)])


def _summary(rows: "list[GroupRow]") -> str:
    """How many groups, commits and share partitions there are, and how many commits lie beyond all logs."""
    names = {row.group for row in rows if row.group is not None}
    committed = [row for row in rows if row.status == "committed"]
    beyond = sum(bool(row.beyond_end) for row in committed)
    shares = sum(row.share is not None for row in rows)
    counted = f"{plural(len(names), 'group')}, {plural(len(committed), 'committed offset')}"
    counted = f"{plural(shares, 'share partition')}, {counted}" if shares else counted
    return f"{counted}, {beyond or 'none'} beyond every log's end"


def _not_whole(answer: "GroupsAnswer") -> Iterator[str]:
    """The logs of groups of which not all could be read."""

    for log in answer.logs:
        if not log.complete or log.limited:
            name = f"{CONSUMER_OFFSETS_TOPIC}-{log.partition}"
            yield f"{name} of broker {printable(str(log.broker))} is not whole: commits may be missing"
    for share_log in answer.share_logs:
        if not share_log.complete or share_log.limited:
            name = f"{SHARE_GROUP_STATE_TOPIC}-{share_log.partition}"
            yield f"{name} of broker {printable(str(share_log.broker))} is not whole: states may be missing"
