"""Whether the promises of a plan or salvage were kept, as sentences and in every format."""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from kafka_forensics.cli.outputs.rows import cell, write_items
from kafka_forensics.cli.outputs.words import name
from kafka_forensics.cli.streams import Destination, printable
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.json_objects import Columns, attributes
from kafka_forensics.questions.verify import Outcome, Verified, VerifyResult

_REASONS: Final = {
    "elected": "",
    "leads": "",
    "other_elected": "broker {found} was elected first",
    "nobody_elected": "no leader has been elected",
    "not_elected": "broker {found} leads, and nobody was elected since the plan",
    "no_controller_log": "no controller's log here says who leads",
    "election_not_known": "the controller's log here does not say who was elected first; broker {found} leads",
    "node_not_known": "broker {found} leads, and no copy says which id that broker has",
    "as_planned": "",
    "went_on_before": "the log went on to offset {found} before the election: the plan's copies were older",
    "moved_on": "offsets before {found} were deleted since, as retention or DeleteRecords does",
    "head_missing": "offsets before {found} are gone, and retention does not explain it",
    "cut_short": "the log kept only what lies before offset {found}",
    "other_lineage": "a leader epoch begins elsewhere than it did, near offset {found}",
    "damaged": "the log is damaged at offset {found}, and was not before",
    "follows": "its log ends at offset {found}",
    "differs": "it holds other records from offset {found} on",
    "goes_beyond": "it holds more: that log ends at offset {found}",
    "copied_later": "that log ends at offset {found}, and the copies, of running brokers, are of different moments",
    "ends_before": "its log ends at offset {found} already",
    "same_bytes": "",
    "other_bytes": "other bytes than were salvaged, from offset {found} on",
    "bytes_gone": "segments with offset {found} are gone",
    "no_bytes": "a bundle has no records: give the directory",
    "records_back": "",
    "records_missing": "{found} of them are there",
    "records_twice": "they are there in {found} copies",
    "records_deleted": "{found} of them are there, and offsets where the others may have stood were deleted since",
    "nothing_found": "",
    "segments_known": "",
    "segments_unknown": "__remote_log_metadata does not list that of offset {found}",
    "no_remote_log": "__remote_log_metadata was not given or not read whole",
    "found": "a scan finds {kinds}",
    "not_all_given": "nothing was found, but not every replica was given and read",
    "not_planned": "the plan did not know it",
    "no_copy": "no copy of it was given",
    "not_read": "its log could not be read to the end",
}
_PROMISES: Final = {
    "leader": "broker {broker} leads",
    "start": "the log of broker {broker} starts at {planned}",
    "end": "the log of broker {broker} stays as it was up to {planned}",
    "cut": "broker {broker} cuts at {planned}, and holds what broker {leader} holds",
    "bytes": "broker {broker} has every byte that was salvaged",
    "records": "{planned} recovered records are back on broker {broker}, each once",
    "segments": "brokers know the {planned} remote segments that the salvage took",
    "intact": "the partition is sound",
}
COLUMNS: Final[Columns] = {
    **attributes("topic partition promise broker outcome=outcome.value reason planned found kinds"),
    "message": lambda verified: message(verified),
}
_INDENT: Final = 11


def write_promises(promises: Sequence[Verified], format_name: str, to: Destination) -> None:
    """Write the outcome of each promise in one of the formats of `options.FORMATS`."""
    if format_name == "text":
        to.stream.writelines(_lines(promises, to.width))
    else:
        write_items(COLUMNS, promises, format_name, to)


def _lines(promises: Sequence[Verified], width: int) -> Iterator[str]:
    """The promises of each partition below its name."""
    partitions = groupby(promises, key=attrgetter("topic", "partition"))
    for number, ((topic, partition), of_partition) in enumerate(partitions):
        yield f"{chr(10) if number else ''}{name(topic, partition)}\n"
        for verified in of_partition:
            outcome = verified.outcome.value if verified.outcome is Outcome.KEPT else verified.outcome.value.upper()
            lines = textwrap.wrap(
                printable(message(verified)),
                max(width, 20 + _INDENT),
                initial_indent=f"  {outcome:<{_INDENT - 2}}",
                subsequent_indent=" " * _INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            )
            yield from (line + "\n" for line in lines)


def message(verified: Verified) -> str:
    """What was promised, and what was found."""
    planned, found = ("?" if value is None else cell(value) for value in (verified.planned, verified.found))
    values = {"broker": cell(verified.broker), "leader": cell(verified.leader), "kinds": ", ".join(verified.kinds)}
    templates = filter(None, (_PROMISES[verified.promise], _REASONS[verified.reason]))
    return ": ".join(template.format(planned=planned, found=found, **values) for template in templates)


def summary_line(checked: VerifyResult) -> str:
    """The last line on stderr."""
    if not checked.promises:
        return "nothing to verify: nothing is promised of these partitions"
    counts = [(checked.count(outcome), outcome.value) for outcome in (Outcome.BROKEN, Outcome.UNKNOWN, Outcome.KEPT)]
    (first, outcome), *others = [(count, outcome) for count, outcome in counts if count]
    counted = ", ".join([f"{plural(first, 'promise')} {outcome}", *(f"{count} {outcome}" for count, outcome in others)])
    rest = f"; {plural(checked.without_promise, 'partition')} of which nothing is promised" if checked.without_promise else ""
    return f"{plural(checked.partitions, 'partition')}: {counted}{rest}"
