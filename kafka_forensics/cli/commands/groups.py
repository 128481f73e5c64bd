"""`groups`: what groups committed, against the logs; and why the newest records of a partition cannot be read."""

import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.commands.scan import exit_status, log_to
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.streams import check_output, chosen_format, destination, open_output
from kafka_forensics.model.constants import (
    CONSUMER_OFFSETS_TOPIC,
    DELIVERY_STATES,
    NO_OFFSET,
    SHARE_GROUP_STATE_TOPIC,
    delivery_state_name,
)

if TYPE_CHECKING:
    from kafka_forensics.analysis.replicas import Readable
    from kafka_forensics.cli.streams import Destination
    from kafka_forensics.model.coordinators import ShareState
    from kafka_forensics.questions.groups import GroupRow, GroupsAnswer


COLUMNS: Final = (
    "group",
    "kind",
    "state",
    "members",
    "generation",
    "topic",
    "partition",
    "status",
    "committed_offset",
    "log_start_offset",
    "log_end_offset",
    "lag",
    "beyond_end",
    "committed_ms",
    "committed",
    "expires_ms",
    "leader_epoch",
    "topic_id",
    "in_transaction",
    "producer_id",
    "metadata_length",
    "offsets_partition",
    "offsets_broker",
    "offsets_offset",
    "unknown_after_offset",
    "held_back_by",
    "held_back_at",
    "held_back_since_ms",
    "held_back_since",
    "held_back_brokers",
    "held_back_producer_id",
    "isr",
    "min_insync_replicas",
    "missing_isr_members",
    "assignment_epoch",
    "topology_epoch",
    "share_start_offset",
    "share_complete_count",
    "share_available",
    "share_acknowledged",
    "share_archived",
    "share_batches",
    "share_snapshot_epoch",
    "share_state_epoch",
    "share_leader_epoch",
    "share_written_ms",
    "share_written",
)
_METADATA: Final = "metadata"
_TOLD_STATES: Final = (0, 2, 4)
"""Delivery states that coordinators write."""
_HEADS: Final = ("group", "state", "members", "partition", "committed", "log end", "lag", "committed at", "newest records", "notes")
_RIGHT: Final = ("members", "committed", "log end", "lag")
_MESSAGES: Final = 20
_NO_GROUP: Final = "(no group)"
"""In a table, of partitions on which none committed."""

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
    or the last stable offset (by which producer's open transaction), or nothing holds them back. Ends with status 0, 1 from
    --fail-on upwards, 2 for a wrong command line, 3 if some input could not be read.
    """
    wanted = chosen_format(form.format_name, form.output)
    choose("severity", fail_on, options.FAIL_ON)
    check_output(form.output, paths)
    scan_options = reading.scan_options(selection, deep=False)
    screen = destination(sys.stderr, no_color=printing.no_color)
    if printing.says_all:
        log_to(screen)

    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.groups import groups as all_groups

    with Progress(screen, quiet=printing.quiet) as progress:
        answer = all_groups(paths, scan_options, group_glob=group, every_partition=all_partitions, progress=progress)
    with open_output(form.output, no_color=printing.no_color) as to:
        _write(answer.rows, wanted, to, payloads=show_payloads)
    _say_rest(answer, screen, group, every_partition=all_partitions, quiet=printing.quiet)
    return exit_status(answer.result, fail_on)


def _write(rows: "Iterable[GroupRow]", wanted: str, to: "Destination", *, payloads: bool) -> None:
    from kafka_forensics.cli.outputs.rows import table_lines, write_rows

    if wanted == "table":
        heads = (*_HEADS, _METADATA) if payloads else _HEADS
        to.stream.writelines(table_lines(heads, _RIGHT, (_cells(row, payloads=payloads) for row in rows), to.width))
    else:
        write_rows((*COLUMNS, _METADATA) if payloads else COLUMNS, map(_values, rows), wanted, to)


def _values(row: "GroupRow") -> dict[str, Any]:
    """Every column of a row, None for what is not known."""
    about, commit = row.about, row.commit
    answer = _known(row.ends, "readable")
    return {
        "group": row.group,
        "kind": _known(about, "kind"),
        "state": _known(about, "state"),
        "members": _known(about, "members_count"),
        "generation": _known(about, "generation"),
        "topic": row.topic,
        "partition": row.partition,
        "status": row.status,
        "committed_offset": _known(commit, "offset"),
        "log_start_offset": _known(row.ends, "log_start_offset"),
        "log_end_offset": _known(answer, "log_end_offset"),
        "lag": row.lag,
        "beyond_end": row.beyond_end,
        "committed_ms": _known(commit, "commit_timestamp"),
        "committed": None if commit is None else _time(commit.commit_timestamp),
        "expires_ms": None if commit is None or commit.expire_timestamp < 0 else commit.expire_timestamp,
        "leader_epoch": None if commit is None or commit.leader_epoch < 0 else commit.leader_epoch,
        "topic_id": _known(row.share or commit, "topic_id"),
        "in_transaction": None if commit is None else row.in_transaction,
        "producer_id": row.producer_id,
        "metadata_length": None if commit is None else len(commit.metadata.encode()),
        "offsets_partition": row.log_partition,
        "offsets_broker": row.log_broker,
        "offsets_offset": row.record_offset,
        "unknown_after_offset": row.unknown_after_offset,
        **_readers(answer),
        "assignment_epoch": _known(about, "assignment_epoch"),
        "topology_epoch": _known(about, "topology_epoch"),
        **_share(row.share),
        _METADATA: _known(commit, "metadata"),
    }


def _known(holder: object, name: str) -> Any:
    """A field of what is known of a row; None where nothing is."""
    return None if holder is None else getattr(holder, name)


def _share(state: "ShareState | None") -> dict[str, Any]:
    """The columns that say how far a share group is on a partition."""
    if state is None:
        return dict.fromkeys(name for name in COLUMNS if name.startswith("share_"))
    batches = [batch._asdict() | {"delivery_state": delivery_state_name(batch.delivery_state)} for batch in state.batches]
    return {
        "share_start_offset": None if state.start_offset == NO_OFFSET else state.start_offset,
        "share_complete_count": None if state.delivery_complete_count < 0 else state.delivery_complete_count,
        **{f"share_{name}": state.offsets_in(number) for number, name in DELIVERY_STATES.items() if number in _TOLD_STATES},
        "share_batches": batches,
        "share_snapshot_epoch": state.snapshot_epoch,
        "share_state_epoch": state.state_epoch,
        "share_leader_epoch": state.leader_epoch,
        "share_written_ms": state.timestamp,
        "share_written": _time(state.timestamp),
    }


def _readers(answer: "Readable | None") -> dict[str, Any]:
    """The columns that say what holds readers back."""
    return {
        "held_back_by": None if answer is None else answer.held_back_by,
        "held_back_at": None if answer is None else answer.held_back_at,
        "held_back_since_ms": None if answer is None else answer.since_ms,
        "held_back_since": None if answer is None or answer.since_ms is None else _time(answer.since_ms),
        "held_back_brokers": None if answer is None else list(answer.brokers),
        "held_back_producer_id": None if answer is None else answer.producer_id,
        "isr": None if answer is None or answer.isr is None else list(answer.isr),
        "min_insync_replicas": None if answer is None else answer.min_insync_replicas,
        "missing_isr_members": None if answer is None else list(answer.missing),
    }


def _cells(row: "GroupRow", *, payloads: bool) -> list[str]:
    from kafka_forensics.cli.outputs.rows import cell

    values = _values(row)
    topic = row.topic_or_id if row.topic is not None or row.share is None else f"topic {row.topic_or_id}"
    partition = "" if topic is None else cell(f"{topic}-{row.partition}")
    cells = [
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
    return [*cells, cell(values[_METADATA])] if payloads else cells


def readers_in_words(answer: "Readable") -> str:
    """Why the newest records cannot be read, in a few words."""
    brokers = f"broker{'s' if len(answer.brokers) > 1 else ''} {', '.join(map(str, answer.brokers))}"
    since = "" if answer.since_ms is None else f" since {_time(answer.since_ms) or answer.since_ms}"
    size = 0 if answer.isr is None else len(answer.isr)
    below = f"; ISR of {size}, below min.insync.replicas {answer.min_insync_replicas}" if answer.isr_below_minimum else ""
    match answer.held_back_by:
        case "high_watermark":
            return f"high watermark held at {answer.held_back_at} by {brokers}{since}{below}"
        case "last_stable_offset":
            before = f", or before: {_missing(answer)}" if answer.missing else ""
            return f"committed reads held at {answer.held_back_at} by producer {answer.producer_id}{since}{below}{before}"
        case "no_leader" if answer.brokers:
            return f"no leader{since}; last in sync: {', '.join(map(str, answer.brokers))}"
        case "no_leader":
            return f"no leader{since}"
        case "unknown" if answer.missing and answer.held_back_at is None:
            return f"how far consumers can read is not known: {_missing(answer)}"
        case "unknown" if answer.missing:
            return f"held at {answer.held_back_at} or before: by {brokers}, and {_missing(answer)}"
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
    told = [f"{count} {name}" for name, count in counts.items() if count]
    return f"takes from {state.start_offset}" + (f": {', '.join(told)}" if told else "")


def _time(time_ms: int) -> str | None:
    from kafka_forensics.export.json_document import rfc3339

    return rfc3339(time_ms)


def _nobody(answer: "GroupsAnswer", group: str | None) -> str:
    """Why no group has a row."""
    from kafka_forensics.evidence.options import listed

    if not answer.names:
        return "no group committed anything"
    if group is not None and not any(fnmatchcase(name, group) for name in answer.names):
        return f"no group fits --group {group}; there is {listed(answer.names)}"
    return "no group that is asked for committed anything on the partitions asked for"


def _say_rest(answer: "GroupsAnswer", screen: "Destination", group: str | None, *, every_partition: bool, quiet: bool) -> None:
    """What was found, in the words of a scan, a summary, and what could not be read, on stderr."""
    from kafka_forensics.cli.outputs.words import finding_lines, incomplete_lines
    from kafka_forensics.cli.streams import absent, say

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
    from kafka_forensics.cli.outputs.words import plural

    names = {row.group for row in rows if row.group is not None}
    committed = [row for row in rows if row.status == "committed"]
    beyond = sum(bool(row.beyond_end) for row in committed)
    shares = sum(row.share is not None for row in rows)
    counted = f"{plural(len(names), 'group')}, {plural(len(committed), 'committed offset')}"
    counted = f"{plural(shares, 'share partition')}, {counted}" if shares else counted
    return f"{counted}, {beyond or 'none'} beyond every log's end"


def _not_whole(answer: "GroupsAnswer") -> Iterator[str]:
    """The logs of groups of which not all could be read."""
    from kafka_forensics.cli.streams import printable

    for log in answer.logs:
        if not log.complete or log.limited:
            name = f"{CONSUMER_OFFSETS_TOPIC}-{log.partition}"
            yield f"{name} of broker {printable(str(log.broker))} is not whole: commits may be missing"
    for share_log in answer.share_logs:
        if not share_log.complete or share_log.limited:
            name = f"{SHARE_GROUP_STATE_TOPIC}-{share_log.partition}"
            yield f"{name} of broker {printable(str(share_log.broker))} is not whole: states may be missing"
