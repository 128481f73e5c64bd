"""What became of promises, in words and in every format."""

from collections.abc import Iterator
from typing import Final

from kafka_forensics.cli.outputs.rows import Listing, cell
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.json_objects import Columns, attributes
from kafka_forensics.questions.verify import Checked, Outcome, Verified

_WORDS: Final = {
    "elected": "broker {found} was elected",
    "leads": "broker {found} leads",
    "other_elected": "broker {found} was elected first, and not broker {planned}",
    "nobody_elected": "no leader has been elected",
    "not_elected": "broker {found} leads, and nobody was elected since the plan",
    "no_controller_log": "no controller's log here says who leads",
    "election_not_known": "the controller's log here does not say who was elected first; broker {found} leads",
    "as_planned": "as planned",
    "went_on_before": "the log went on to offset {found} before the election: the plan's copies were older",
    "moved_on": "retention, or somebody, has deleted offsets before {found} since",
    "head_missing": "offsets before {found} are gone, and retention does not explain it",
    "cut_short": "the log kept offsets before {found} only",
    "other_lineage": "a leader epoch begins at another offset than planned, near offset {found}",
    "follows": "follows the leader; its log ends at offset {found}",
    "differs": "holds other records than the leader from offset {found} on",
    "ends_before": "its log ends at offset {found}, before that",
    "same_bytes": "every byte that was salvaged is there",
    "other_bytes": "other bytes than were salvaged, from offset {found} on",
    "bytes_gone": "segments with offset {found} are gone",
    "no_bytes": "a bundle has no bytes: give the directory",
    "records_back": "{found} records are there again, each once",
    "records_missing": "{found} of {planned} records are there again",
    "records_twice": "all {planned} records are there, in {found} copies",
    "nothing_found": "nothing above warning was found",
    "found": "{kinds}",
    "not_planned": "the plan did not know it",
    "no_copy": "no copy of it was given",
    "not_read": "its log could not be read to the end",
}
_PROMISES: Final = {
    "leader": "broker {broker} leads",
    "start": "the log of broker {broker} starts at {planned}",
    "end": "it stays as it was up to {planned} on broker {broker}",
    "cut": "broker {broker} cuts at {planned}, and follows",
    "bytes": "broker {broker} has all that was salvaged",
    "records": "{planned} recovered records are back on broker {broker}",
    "intact": "the partition is sound",
}
COLUMNS: Final[Columns] = {
    **attributes("topic partition promise broker outcome=outcome.value reason planned found kinds"),
    "message": lambda verified: message(verified),
}
LISTING: Final = Listing(COLUMNS, ("partition", "promise", "outcome", "found"), (), lambda verified: _cells(verified))


def message(verified: Verified) -> str:
    """What was found, in a few words."""
    return _filled(_WORDS[verified.reason], verified)


def _filled(words: str, verified: Verified) -> str:
    planned, found = ("?" if value is None else cell(value) for value in (verified.planned, verified.found))
    return words.format(broker=cell(verified.broker), kinds=", ".join(verified.kinds), planned=planned, found=found)


def _cells(verified: Verified) -> list[str]:
    outcome = verified.outcome.value
    return [
        cell(f"{verified.topic}-{verified.partition}"),
        _filled(_PROMISES[verified.promise], verified),
        outcome if verified.outcome is Outcome.KEPT else outcome.upper(),
        message(verified),
    ]


def summary_line(checked: Checked) -> str:
    """What is said on stderr at the end."""
    if not checked.promises:
        return "nothing to verify: nothing is promised of a partition that is asked for"
    counts = [(checked.count(outcome), outcome.value) for outcome in (Outcome.BROKEN, Outcome.UNKNOWN, Outcome.KEPT)]
    return f"{plural(checked.partitions, 'partition')}: " + ", ".join(_counted(counts)) + _rest(checked)


def _counted(counts: list[tuple[int, str]]) -> Iterator[str]:
    noun = "promise"
    for count, outcome in counts:
        if count:
            yield f"{plural(count, noun)} {outcome}" if noun else f"{count} {outcome}"
            noun = ""


def _rest(checked: Checked) -> str:
    return f"; {plural(checked.without_promise, 'partition')} of which nothing is promised" if checked.without_promise else ""
