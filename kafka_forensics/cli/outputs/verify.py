"""Whether the promises of a plan or salvage were kept, as sentences and in every format."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kafka_forensics.cli.outputs.console_page import FirstScreen, first_screen_text
from kafka_forensics.cli.outputs.rows import cell, write_items
from kafka_forensics.cli.outputs.steps import partitions_words
from kafka_forensics.cli.outputs.words import SHOWN_ROWS, first_rows, name
from kafka_forensics.cli.streams import Destination, wrapped
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.constants import WITNESS_TOPICS
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.model.grouped import grouped
from kafka_forensics.model.json_objects import Columns, attributes
from kafka_forensics.model.offset_ranges import Ranges, counted
from kafka_forensics.model.safe_text import printable
from kafka_forensics.questions.verify import Outcome, Verified, VerifyResult

_REASONS: Final = {
    "elected": "",
    "leads": "",
    "other_elected": "broker {found} was elected first",
    "no_leader_elected": "no leader has been elected",
    "not_elected": "broker {found} leads, and there was no election since the plan",
    "no_controller_log": "no given controllers' log shows who leads",
    "election_not_known": "the given controllers' log does not show who was elected first; broker {found} leads",
    "node_not_known": "broker {found} leads, and no copy shows the id of that broker",
    "as_planned": "",
    "went_on_before": "the log grew to offset {found} before the election: the plan's copies were older",
    "moved_on": "offsets before {found} were deleted since, as retention or DeleteRecords does",
    "log_start_missing": "offsets before {found} are missing, and retention does not explain it",
    "cut_short": "the log kept only records before offset {found}",
    "other_lineage": "a leader epoch begins at another offset, near {found}",
    "damaged": "the log is damaged at offset {found}, and was not before",
    "follows": "its log ends at offset {found}",
    "differs": "it holds other records from offset {found} on",
    "goes_beyond": "it holds more: that log ends at offset {found}",
    "copied_later": "that log ends at offset {found}, and the copies of running brokers are from different times",
    "ends_before": "its log ends at offset {found} already",
    "same_bytes": "",
    "other_bytes": "other bytes than were salvaged, from offset {found} on",
    "segments_missing": "the segments with offset {found} are missing",
    "no_bytes": "a bundle has no records: give the directory",
    "records_back": "",
    "records_missing": "{found} of them are there",
    "records_twice": "they are there in {found} copies",
    "records_deleted": "{found} of them are there, and the offsets that may have had the others were deleted since",
    "nothing_found": "",
    "offset_not_set": "a group's offset still lies beyond the log end: do that step of the plan",
    "known_loss": "a scan finds only what was known to be lost ({kinds})",
    "segments_known": "",
    "segments_unknown": "__remote_log_metadata does not list that of offset {found}",
    "no_remote_log": "__remote_log_metadata was not given or not read completely",
    "found": "a scan finds {kinds}",
    "not_all_given": "nothing was found, but not every replica was given and read",
    "not_planned": "the plan does not contain it",
    "no_copy": "no copy of it was given",
    "not_read": "its log could not be read to the end",
}
_PROMISES: Final = {
    "leader": "broker {broker} leads",
    "start": "the log of broker {broker} starts at {planned}",
    "end": "the log of broker {broker} is unchanged before offset {planned}",
    "cut": "broker {broker} cuts at {planned}, and holds what broker {leader} holds",
    "bytes": "broker {broker} has every byte that was salvaged",
    "records": "{planned} recovered records are back on broker {broker}, each once",
    "segments": "brokers know the {planned} remote segments that the salvage took",
    "intact": "no finding above warning",
}
COLUMNS: Final[Columns] = {
    **attributes("topic partition promise broker outcome=outcome.value reason planned found kinds"),
    "message": lambda verified: message(verified),
}
_INDENT: Final = 11
_ORDER: Final = (Outcome.BROKEN, Outcome.UNKNOWN, Outcome.KEPT)


def write_promises(
    checked: VerifyResult, format_name: str, to: Destination, *, verbose: bool = False, by: str = "incident"
) -> None:
    """Write the outcome of each promise in one of the formats of `options.FORMATS`; text has kept promises only if `verbose`."""
    if format_name == "text":
        to.stream.writelines(_text_lines(checked, to, verbose=verbose, by=by))
    else:
        write_items(COLUMNS, checked.promises, format_name, to)


def _text_lines(checked: VerifyResult, to: Destination, *, verbose: bool, by: str) -> Iterator[str]:
    """The first screen; then promises that were not kept, equal ones of several partitions together unless `by` is "partition"."""
    yield first_screen_text(_first_screen(checked), to)

    def promised(verified: Verified) -> tuple[object, ...]:
        place = (verified.topic, verified.partition) if by == "partition" else ()
        return *place, verified.outcome, verified.promise, verified.reason, verified.broker, verified.leader, verified.kinds

    groups = grouped((verified for verified in checked.promises if verbose or verified.outcome is not Outcome.KEPT), promised)
    ordered = sorted(groups.values(), key=lambda group: _ORDER.index(group[0].outcome))
    shown, hidden = first_rows(ordered, None if by == "partition" else SHOWN_ROWS)
    if shown:
        yield "\n"
    for group in shown:
        yield from _group_lines(group, to.width)
    if others := sum(map(len, hidden)):
        yield f"{plural(others, 'more promise')}: --by partition lists all\n"


def _group_lines(group: Sequence[Verified], width: int) -> Iterator[str]:
    """What was promised of these partitions, and what was found; numbers only of the first of several."""
    first = group[0]
    outcome = first.outcome.value if first.outcome is Outcome.KEPT else first.outcome.value.upper()
    partitions = list(dict.fromkeys((verified.topic, verified.partition) for verified in group))
    has_numbers = len(partitions) > 1 and len({message(verified) for verified in group}) > 1
    example = f", such as {name(*partitions[0])}" if has_numbers else ""
    text = printable(f"{partitions_words(partitions)}{example}: {message(first)}")
    yield from wrapped(text, width, " " * _INDENT, f"  {outcome:<{_INDENT - 2}}")


def _first_screen(checked: VerifyResult) -> FirstScreen:
    if not checked.promises:
        return FirstScreen("unknown", summary_line(checked))
    verdict = "error" if checked.count(Outcome.BROKEN) else "unknown" if checked.count(Outcome.UNKNOWN) else "clean"
    lines = []
    broken = [verified for verified in checked.promises if verified.outcome is Outcome.BROKEN]
    if checked.lost:
        lines.append(("lost", f"no copy held {_offsets_words(checked.lost)} when the copies were made"))
    if checked.given_up:
        is_internal = all(topic in WITNESS_TOPICS for topic, _ in checked.given_up)
        why = "only brokers write these" if is_internal else "no recovered records of these were given"
        lines.append(("given up", f"the planned elections lose {_offsets_words(checked.given_up)}; {why}"))
    if broken:
        lines.append(("broken", partitions_words(sorted({(verified.topic, verified.partition) for verified in broken}))))
        not_begun = any(verified.reason == "no_leader_elected" for verified in broken)
        steps = "carry out the steps of the plan, copy the log directories again, and verify again"
        stop = "stop the producers of these partitions, copy the log directories again, and scan the copies"
        lines.append(("do first", steps if not_begun else stop))
    return FirstScreen(verdict, summary_line(checked), lines)


def _offsets_words(lost: Mapping[TopicPartition, Ranges]) -> str:
    """`20 offsets of orders-0`."""
    return f"{plural(sum(map(counted, lost.values())), 'offset')} of {partitions_words(sorted(lost))}"


def message(verified: Verified) -> str:
    """What was promised, and what was found."""
    planned, found = ("?" if value is None else cell(value) for value in (verified.planned, verified.found))
    values = {"broker": cell(verified.broker), "leader": cell(verified.leader), "kinds": ", ".join(verified.kinds)}
    templates = filter(None, (_PROMISES[verified.promise], _REASONS[verified.reason]))
    return ": ".join(template.format(planned=planned, found=found, **values) for template in templates)


def summary_line(checked: VerifyResult) -> str:
    """The last line on stderr."""
    if not checked.promises:
        return "nothing to verify: the document promises nothing of these partitions; a scan of the new copies shows what is left"
    counts = [(checked.count(outcome), outcome.value) for outcome in _ORDER]
    (first, outcome), *others = [(count, outcome) for count, outcome in counts if count]
    counted = ", ".join([f"{plural(first, 'promise')} {outcome}", *(f"{count} {outcome}" for count, outcome in others)])
    rest = f"; {plural(checked.without_promise, 'partition')} of which nothing is promised" if checked.without_promise else ""
    return f"{plural(checked.partitions, 'partition')}: {counted}{rest}"
