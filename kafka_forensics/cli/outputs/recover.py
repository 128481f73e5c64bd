"""What `recover` prints in every format: which side is kept, and a line a range with what became of its offsets."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_forensics.analysis.kinds import CATALOGUE
from kafka_forensics.cli.outputs.console_page import FirstScreen, first_screen_text
from kafka_forensics.cli.outputs.plan_words import brokers, capital
from kafka_forensics.cli.outputs.rows import table_lines, write_items
from kafka_forensics.cli.outputs.steps import PLAN, partitions_words, produce_command
from kafka_forensics.cli.outputs.words import SHOWN_ROWS, GroupedTable, name, partition_ranges
from kafka_forensics.cli.streams import Destination, wrapped
from kafka_forensics.evidence.options import listed
from kafka_forensics.export.json_document import json_line, json_list
from kafka_forensics.export.recovered import RECORDS_JSONL, RECORDS_PARQUET, REPORT
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.findings import Severity, TopicPartition
from kafka_forensics.model.grouped import grouped
from kafka_forensics.model.incidents import Cause
from kafka_forensics.model.json_objects import Columns, Json, attributes, json_text
from kafka_forensics.model.offset_ranges import counted
from kafka_forensics.model.recovered import OUTCOMES_COUNTED, OutcomeCounts
from kafka_forensics.model.safe_text import printable, unquoted
from kafka_forensics.questions.plan import held_by_no_copy
from kafka_forensics.questions.recover import KeptSide, RecoveredPartition, RecoveredRange, Recovery, Undecided
from kafka_forensics.wording import offset_range, rerun_command

if TYPE_CHECKING:
    from kafka_forensics.replication.planner import Broker

REASONS: Final = {
    "surviving": "the surviving side has (same producer, epoch and sequence, same content)",
    "surviving_by_content": "the surviving side has by a weaker match (same key, value, headers and timestamp)",
    "merged": "another losing copy holds as well, and is given once",
    "superseded": "a later record of the same key supersedes on the surviving side",
    "aborted": "aborted transactions wrote",
    "open": "transactions wrote that never ended",
}
"""Why a record that was read is left out: the end of `records that ...`."""
_UNREADABLE: Final = {
    "damaged": "damaged",
    "too_large": "too large",
    "not_collected": "not collected",
    "in_remote_storage": "in remote storage, not given or not readable",
}
"""Why no copy has the records at some offsets."""
_MAY_HOLD_MORE: Final = {
    "no_controller_log": "no given controllers' log shows{} whether there are more replicas, which may hold more",
    "controller_log_damaged": "the given controllers' log is too damaged to show{} whether there are more replicas",
    "controller_log_silent": "the given controllers' log does not show{} whether there are more replicas, which may hold more",
    "voters_behind": "the voters' copies of the controllers' log end too early to show{} which replicas exist",
    "copy_absent": "no copy of {who} was given{}; it may hold more",
    "dead_copy_absent": "no copy of {who} was given{}; it may hold more",
    "not_copied": "the copy of {who} is partial{}; the rest may hold more",
    "copy_not_read": "the log of {who} could not be read{}; it may hold more",
    "copy_unnamed": "the copy {name} has no node.id{}, and other replicas may hold more",
    "log_not_read": "the log of {who} could not be read completely{}; it may hold more",
    "unknown_bytes": "after the last batch of {who} there are bytes{} that may hold more records",
    "topic_undecided": "no file shows which topic of this name exists now{}; another may hold more",
}
"""Kinds of a plan's `Missing` with which more may be lost; `{}` says for how many partitions."""
_SHOWN_REASONS: Final = 3
_COUNTS: Final = ("committed", "recovered", "left out", "no records", "unreadable")


class _LostRangeRow(NamedTuple):
    """A lost range with its partition."""

    partition: RecoveredPartition
    lost: RecoveredRange


COLUMNS: Final[Columns] = {
    **attributes("topic=partition.topic partition=partition.partition kept=partition.kept"),
    **attributes("offset_start=start offset_end=end committed_end_offset=committed_end held_by", of="lost.loss"),
    **attributes("planned_records=records", of="lost.planned"),
    **attributes(" ".join(OUTCOMES_COUNTED), of="lost.count.all"),
}
"""Columns in TSV, a row for each range; counts are of offsets, except `planned_records`."""


def write_recovery(
    recovery: Recovery, report: Json, output: str, format_name: str, to: Destination, *, by: str = "incident"
) -> None:
    """Write the answer in one of the formats of `options.FORMATS`; `report` is what stands in the directory `output`."""
    match format_name:
        case "text":
            to.stream.writelines(text_lines(recovery, output, to, by))
        case "json" | "jsonl":
            to.stream.writelines(document(report) if format_name == "json" else _json_lines(report))
        case _:
            ranges = [_LostRangeRow(partition, lost) for partition in recovery.partitions for lost in partition.ranges]
            write_items(COLUMNS, ranges, format_name, to)


def document(report: Json) -> Iterator[str]:
    """The report as a JSON document, a line for each partition."""
    yield f"{json_text(_summary(report))[:-1]},\n"
    yield from json_list(' "partitions"', report["partitions"])
    yield from json_list(' "incomplete"', report["incomplete"], "}\n")


def _json_lines(report: Json) -> Iterator[str]:
    yield from (json_line("partition", partition) for partition in report["partitions"])
    yield from (json_line("incomplete", unread) for unread in report["incomplete"])
    yield json_line("summary", _summary(report))


def _summary(report: Json) -> Json:
    return {key: value for key, value in report.items() if key not in ("partitions", "incomplete")}


def text_lines(recovery: Recovery, output: str, to: Destination, by: str) -> Iterator[str]:
    """The first screen; then, of one partition or `by` "partition", each partition with its ranges, else a line for the partitions
    of a topic with the same side."""
    yield first_screen_text(_first_screen(recovery, output), to)
    if by == "partition" or len(recovery.partitions) == 1:
        for partition in recovery.partitions:
            yield "\n"
            yield from _partition_lines(partition, to.width)
        return
    groups = _groups(recovery.partitions)
    if groups:
        yield "\n"
        yield from _GROUPS.lines(groups, SHOWN_ROWS, to.width)
    for line in _notes(recovery.partitions):
        yield from wrapped(line, to.width)


def _first_screen(recovery: Recovery, output: str) -> FirstScreen:
    count, undecided = recovery.count, recovery.undecided
    verdict = "clean"
    if undecided or recovery.may_hold_more:
        verdict = "unknown"
    if count.all.offsets:
        verdict = "critical" if count.committed.offsets else "error"
    place, lines = unquoted(output.rstrip("/")), []
    if missing := _held_by_no_copy(recovery):
        verdict = "critical"
        lines.append(("missing", f"no given copy holds {plural(missing, 'committed offset')}: they cannot be recovered"))
    if count.all.recovered:
        lines.append(("records", f"{place}/{RECORDS_JSONL} and {place}/{RECORDS_PARQUET}"))
    lines.append(("report", f"{place}/{REPORT} says what became of every offset"))
    kept = Counter(partition.kept for partition in recovery.partitions if partition.kept is not None)
    if kept:
        sides = (f"{brokers([broker])} in {plural(number, 'partition')}" for broker, number in sorted(kept.items(), key=str))
        lines.append(("kept", ", ".join(sides)))
    by_reason: dict[tuple[str, str], list[TopicPartition]] = {}
    for partition in undecided:
        assert isinstance(partition.side, Undecided)
        by_reason.setdefault((partition.side.reason, partition.side.hint), []).append(partition.key)
    for (reason, hint), partitions in list(by_reason.items())[:_SHOWN_REASONS]:
        lines.append(("undecided", printable(f"{partitions_words(partitions)}: {reason}: {hint}")))
    if others := sum(map(len, list(by_reason.values())[_SHOWN_REASONS:])):
        lines.append(("undecided", f"{plural(others, 'more partition')}; {REPORT} has the reasons"))
    if recovery.may_hold_more:
        lines.append(("not given", f"{plural(len(recovery.may_hold_more), 'copy')} may hold more lost records: see the notes"))
    command = None
    if left_out := left_out_words(recovery):
        lines.append(("left out", left_out))
    of_clients = [partition for partition in recovery.partitions if partition.topic not in WITNESS_TOPICS]
    if count.all.recovered and not any(partition.count.all.recovered for partition in of_clients):
        lines.append(("next", "only brokers write to these topics: read the records, and do not produce them"))
    elif count.all.recovered:
        leads = all(isinstance(partition.side, KeptSide) and partition.side.why == "leader" for partition in recovery.partitions)
        first = "" if leads else "elect what is kept, then "
        lines.append(("next", f"{first}produce the records again (docs/recover.md); a dry run:"))
        command = produce_command(output)
    if undecided and not count.all.recovered and recovery.result is not None:
        lines.append(("next", f"plan first, then recover with --plan {PLAN}:"))
        command = rerun_command("plan", recovery.result.rerun_arguments, "--output", PLAN)
    return FirstScreen(verdict, summary_line(recovery, place), lines, command)


def _held_by_no_copy(recovery: Recovery) -> int:
    """Committed offsets that no copy holds, in all partitions that were looked at."""
    findings = () if recovery.result is None else recovery.result.findings
    by_partition = grouped(findings, lambda finding: (finding.place.topic, finding.place.partition))
    return sum(counted(held_by_no_copy(of_partition)) for of_partition in by_partition.values())


def _groups(partitions: list[RecoveredPartition]) -> list[list[RecoveredPartition]]:
    """Partitions of a topic with the same side and the same holders of lost records, the largest loss first."""

    def same_loss(partition: RecoveredPartition) -> tuple[object, ...]:
        return partition.topic, partition.kept, frozenset(broker for lost in partition.ranges for broker in lost.loss.held_by)

    groups = grouped((partition for partition in partitions if partition.ranges), same_loss).values()
    return sorted(groups, key=lambda group: (-sum(partition.at_most for partition in group), group[0].topic))


def _group_cells(group: Sequence[RecoveredPartition]) -> list[str]:
    ranges = [lost for partition in group for lost in partition.ranges]
    return [partition_ranges(partition.key for partition in group), *_cells(ranges)]


def _cells(ranges: Sequence[RecoveredRange]) -> list[str]:
    """Who holds these lost offsets, how many are committed, and what became of them."""
    holders = sorted({str(broker) for lost in ranges for broker in lost.loss.held_by})
    tallies = [lost.count.all for lost in ranges]
    numbers = (
        sum(lost.loss.committed for lost in ranges),
        sum(tally.recovered for tally in tallies),
        sum(map(_filtered, tallies)),
        sum(tally.control + tally.no_record for tally in tallies),
        sum(tally.unreadable for tally in tallies),
    )
    return [", ".join(map(unquoted, holders)) or "remote storage", *(str(number) if number else "" for number in numbers)]


_GROUPS: Final = GroupedTable(
    ("partitions", "held by", *_COUNTS),
    _COUNTS,
    _group_cells,
    lambda others: f": {plural(sum(partition.count.all.recovered for partition in others), 'record')} recovered",
)


def _partition_lines(partition: RecoveredPartition, width: int) -> Iterator[str]:
    """One partition: the side that is kept, its lost ranges, and why records are left out."""
    yield from wrapped(f"{name(partition.topic, partition.partition)}: {_sentence(partition)}", width)
    if partition.ranges:
        yield "\n"
        rows = ([offset_range(lost.loss.start, lost.loss.end), *_cells([lost])] for lost in partition.ranges)
        yield from table_lines(("lost offsets", "held by", *_COUNTS), _COUNTS, rows, width)
        yield "\n"
    for line in _notes([partition]):
        yield from wrapped(line, width)


def _sentence(partition: RecoveredPartition) -> str:
    """Which replica is kept, why, and what that loses by the plan."""
    if isinstance(partition.side, Undecided):
        return f"{unquoted(partition.side.reason)}."
    kept = f"{unquoted(partition.side.message)}."
    if not partition.at_most:
        more = "" if partition.at_most_is_bound else "; copies that were not given or not read may hold more"
        return f"{kept} It loses nothing that these copies hold{more}."
    bound = f"at most {partition.at_most}" if partition.at_most_is_bound else f"{partition.at_most} of these copies, perhaps more"
    return (
        f"{kept} By the plan it loses {plural(partition.at_most, 'offset')}, {partition.committed} of them proven committed:"
        f" at least {partition.at_least} (on no copy that stays), {bound}."
    )


def _filtered(tally: OutcomeCounts) -> int:
    return sum(getattr(tally, reason) for reason in REASONS)


def _notes(partitions: Sequence[RecoveredPartition]) -> Iterator[str]:
    """Why records of these partitions are left out, and what was deleted since."""
    tallies = [partition.count.all for partition in partitions]
    for reason, predicate in REASONS.items():
        if count := sum(getattr(tally, reason) for tally in tallies):
            yield f"Left out: {plural(count, 'record')} that {predicate}."
    if unreadable := sum(tally.unreadable for tally in tallies):
        counts = sum((partition.unreadable for partition in partitions), Counter[str]())
        why = [(words, counts[reason]) for reason, words in _UNREADABLE.items() if counts[reason]]
        listed_reasons = why[0][0] if len(why) == 1 else ", ".join(f"{count} {words}" for words, count in why)
        yield f"No given copy has the records of {plural(unreadable, 'offset')}: {listed_reasons}."
    unchecked = [partition for partition in partitions if partition.not_compared and partition.count.all.recovered]
    for words in dict.fromkeys(map(not_compared_words, unchecked)):
        yield capital(words) + "."
    deleted: Counter[tuple[Broker, Broker | None]] = Counter()
    for partition in partitions:
        for broker, offsets in partition.below_log_start:
            deleted[broker, partition.kept] += offsets
    for (broker, kept), offsets in deleted.items():
        start = f"below the start of the log of {brokers([kept or ''])}: deleted, and not lost"
        yield f"{plural(offsets, 'offset')} of {brokers([broker])} {'is' if offsets == 1 else 'are'} {start}."


def not_compared_words(partition: RecoveredPartition) -> str:
    """A clause for records that could not be looked up in the surviving log: duplicates are possible."""
    who = brokers([partition.kept or ""])
    why = "duplicates are possible, because not all of its records could be read"
    return f"could not check whether {who} already has some of these records: {why}"


def more_lines(recovery: Recovery) -> Iterator[str]:
    """A note for each copy that is absent or could not be read and may hold more lost records."""
    for (kind, broker), count in sorted(recovery.may_hold_more.items(), key=str):
        where = "" if recovery.looked_at == 1 else f" for {plural(count, 'partition')}"
        named = unquoted(str(broker))
        yield f"note: {_MAY_HOLD_MORE[kind].format(where, who=brokers([broker or '']), name=named)}"


def left_out_words(recovery: Recovery) -> str:
    """Which internal topics lose records, too; empty for none."""
    topics = [f"{topic} ({plural(count, 'partition')})" for topic, count in sorted(recovery.left_out.items())]
    return f"{listed(topics)}, which only brokers write; --topic '__*' reads them" if topics else ""


def unchecked_lines(recovery: Recovery) -> Iterator[str]:
    """A line for the partitions whose recovered records may exist in the surviving log already, for each side."""
    unchecked = (partition for partition in recovery.partitions if partition.not_compared and partition.count.all.recovered)
    for words, partitions in grouped(unchecked, not_compared_words).items():
        yield f"not checked: {partitions_words([partition.key for partition in partitions])}: {words}"


def summary_line(recovery: Recovery, output: str) -> str:
    """The last line on stderr."""
    if not recovery.looked_at:
        if recovery.by_raft:
            return "nothing to recover: the controllers elect the leader of __cluster_metadata among themselves"
        return "nothing to recover: no partition was found or selected"
    total = recovery.count
    partitions = plural(recovery.looked_at, "partition")
    if not recovery.partitions or not total.all.offsets:
        is_partial = recovery.may_hold_more or _held_by_no_copy(recovery)
        what = "nothing that these copies hold is lost" if is_partial else "nothing is lost"
        if undecided := len(recovery.undecided):
            what = f"no side is chosen for {undecided}" + (f"; of the others {what}" if undecided < recovery.looked_at else "")
        return f"{partitions}: {what}{_unreadable_remotely(recovery)}"
    sources = sum(bool(partition.count.all.recovered) for partition in recovery.partitions)
    recovered = f"{plural(total.all.recovered, 'record')} of {plural(sources, 'partition')} recovered to {output}"
    recovered += f", {total.committed.recovered} of them proven committed"
    rest = ((_filtered(total.all), "left out"), (total.all.unreadable, "unreadable"))
    return "; ".join([recovered, *(f"{count} {what}" for count, what in rest if count)])


def _unreadable_remotely(recovery: Recovery) -> str:
    """The end of a sentence about critical findings in remote storage, which no election causes."""
    findings = () if recovery.result is None else recovery.result.findings
    of_remote_log = [found for found in findings if CATALOGUE[found.kind].cause is Cause.REMOTE_LOG]
    partitions = {(found.place.topic, found.place.partition) for found in of_remote_log if found.severity is Severity.CRITICAL}
    if not partitions:
        return ""
    return f" by an election; records of {plural(len(partitions), 'partition')} in remote storage cannot be read: see scan"
