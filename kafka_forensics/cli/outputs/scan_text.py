"""A scan's answer as text: the first screen, then incidents, or partitions with all their findings, worst first."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.text import Text

from kafka_forensics.cli.outputs.console_page import INDENT, ConsolePage, FirstScreen
from kafka_forensics.cli.outputs.words import (
    SHOWN_ROWS,
    GroupedTable,
    by_kind,
    by_severity,
    cost_words,
    crowded_brokers,
    extent_words,
    headline,
    is_harmless,
    lost_words,
    name,
    next_command,
    nothing_found,
    nothing_judged_lines,
    partition_ranges,
    replica_words,
    scope_words,
    waiting_readers,
)
from kafka_forensics.cli.streams import Destination
from kafka_forensics.model.amounts import first_few, plural
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.grouped import grouped
from kafka_forensics.model.incidents import Incident, IncidentPartition
from kafka_forensics.model.results import VERDICTS, PartitionSummary, ScanResult, verdict_of
from kafka_forensics.model.safe_text import printable, unquoted
from kafka_forensics.wording import (
    Overview,
    advice,
    incident_advice,
    incident_message,
    incident_precaution,
    incident_time,
    incident_title,
    named_brokers,
    offset_range,
    overview_of,
    rerun_command,
    severity_order,
)

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN_OF_A_KIND: Final = 3
_SHOWN_IN_FULL: Final = 2
"""Incidents that are shown in full; of more, each has a few lines."""
_SHOWN_INCIDENTS: Final = 12
_NAMED_PARTITIONS: Final = 6

Key = tuple[str | None, int | None]
"""Topic and partition; None for findings about brokers and directories."""


class _Group(NamedTuple):
    """A partition with its findings; `summary` is None where the findings are about no partition that was scanned."""

    summary: PartitionSummary | None
    key: Key
    findings: list[Finding]

    @property
    def verdict(self) -> str:
        return verdict_of(self.findings) if self.summary is None else self.summary.verdict

    @property
    def is_partly_read(self) -> bool:
        return self.summary is not None and bool(self.summary.not_read)

    @property
    def harmless(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.INFO]

    @property
    def worst_first(self) -> tuple[int, tuple[int, bool, int]]:
        """Sort key, the worst verdict first."""
        return -VERDICTS.index(self.verdict), min(map(severity_order, self.findings), default=(0, False, 0))


def write_text(result: ScanResult, to: Destination, *, verbose: bool, by: str = "incident") -> None:
    """Write the text to `to`, wrapped to its width: the first screen, then incidents, or every partition with findings.

    Harmless findings and partitions without findings appear only if `verbose`.
    """
    page = _ScanPage(to.console(), result, verbose=verbose)
    page.begin()
    page.first_screen(_first_screen(result))
    groups = _groups(result)
    if verbose:
        for incident in result.incidents:
            if len(incident.partitions) > 1:
                page.incident(incident, SHOWN_ROWS)
    if by == "partition" or verbose:
        _write_partitions(page, groups, verbose=verbose)
    else:
        _write_incidents(page, result, groups)


def _first_screen(result: ScanResult) -> FirstScreen:
    overview = overview_of(result.incidents)
    lines = [("lost", _loss_text(overview))] if overview.lost_at_most else []
    if readers := waiting_readers(result.findings):
        lines.append(("readers", readers))
    command = None
    if result.incidents:
        worst, *others = result.incidents
        sentence = printable(_incident_text(worst)) + (f"; and {plural(len(others), 'more incident')}" if others else "")
        lines.append(("do first", _do_first(worst, overview)))
        command = next_command(result)
    else:
        sentence = _harmless_text(result)
        lines += [("note", line) for line in nothing_judged_lines(result)]
    if result.incomplete:
        lines.append(("not read", f"{plural(len(result.incomplete), 'input')} could not be read, or not completely"))
    return FirstScreen(result.verdict, sentence, lines, command)


def _harmless_text(result: ScanResult) -> str:
    """`nothing found in 12 partitions, …`, or how many harmless findings there are."""
    if not (result.totals.partitions or result.findings):
        return "nothing was judged"
    found = by_severity(result.findings)
    return f"{found or nothing_found(result)} in {scope_words(result)}{'; -v shows all' if found else ''}"


def _incident_text(incident: Incident) -> str:
    """What happened, when, by which name it is known, and to which partitions."""
    moment, partitions = incident_time(incident), incident.partitions
    text = incident_title(incident) + (f", {moment}" if moment else "")
    text += "" if incident.known_as is None else f" ({incident.known_as})"
    if len(partitions) == 1:
        return f"{name(partitions[0].topic, partitions[0].partition)}: {text}"
    return f"{text}: {extent_words([partition.key for partition in partitions])}" if partitions else text


def _with_cost(incident: Incident, separator: str = ", ") -> str:
    """The same with what it costs, safe to print."""
    cost = cost_words(incident)
    return printable(_incident_text(incident)) + (f"{separator}{cost}" if cost else "")


def _loss_text(overview: Overview) -> str:
    """What was lost, and how much of it which copies hold."""
    least, most = overview.lost_at_least, overview.lost_at_most
    noun, partitions = overview.noun, plural(overview.partitions, "partition")
    if not least:
        text = f"no loss is proven; at most {plural(most, noun)} of {partitions} {'is' if most == 1 else 'are'} at risk"
    elif least == most:
        text = f"{plural(most, noun)} of {partitions}, proven"
    else:
        text = f"at least {least} and at most {plural(most, noun)} of {partitions}"
    them = "it" if most == 1 else "them"
    if not overview.recoverable:
        return f"{text}; {f'no given copy holds {them}' if least else 'no good copy is known'}"
    amount = "all" if overview.recoverable == most else str(overview.recoverable)
    verb = "holds" if len(overview.holders) == 1 else "hold"
    held = them if most == 1 else f"{amount} of them"
    return f"{text}; {named_brokers(list(overview.holders))} {verb} {held}"


def _do_first(worst: Incident, overview: Overview) -> str:
    """What stays stopped because of all losses, and what else the worst incident needs."""
    if not overview.lost_at_most:
        return printable(incident_advice(worst))
    return f"{_keep_stopped(overview)} {printable(incident_precaution(worst))}".rstrip()


def _keep_stopped(overview: Overview) -> str:
    """Which brokers stay stopped until what is copied."""
    if not overview.recoverable:
        return "Keep every broker stopped, and copy every log directory and every backup elsewhere."
    who, their = named_brokers(list(overview.holders)), "its" if len(overview.holders) == 1 else "their"
    until = f"Keep {who} stopped until {their} log directories are copied elsewhere."
    return f"{until} Copy those of the other brokers, too, before any of them starts."


def _write_partitions(page: "_ScanPage", groups: list[_Group], *, verbose: bool) -> None:
    """A block for every partition that has findings or was not fully read, the worst first; if `verbose` the others are counted."""
    clean = [group for group in groups if not group.findings and not group.is_partly_read]
    shown = [
        group for group in groups if group not in clean and (verbose or group.is_partly_read or not is_harmless(group.findings))
    ]
    for group in sorted(shown, key=attrgetter("worst_first")):
        page.block(group)
    if verbose:
        page.count_clean(clean)


def _write_incidents(page: "_ScanPage", result: ScanResult, groups: list[_Group]) -> None:
    """Incidents, the worst first: of several partitions with a table of these, of one partition with its replicas and findings.
    Then the partitions that were not fully read."""
    blocks: dict[int | Key, list[Incident]] = {}
    for number, incident in enumerate(result.incidents):
        of_one: Key = next((partition.key for partition in incident.partitions), (None, None))
        blocks.setdefault(number if len(incident.partitions) > 1 else of_one, []).append(incident)
    in_full = len(blocks) <= _SHOWN_IN_FULL
    summaries = {group.key: group.summary for group in groups}
    shown: set[Key] = set()
    for key, incidents in blocks.items() if in_full else enumerate([incident] for incident in result.incidents[:_SHOWN_INCIDENTS]):
        if isinstance(key, tuple):
            findings = [result.findings[number] for incident in incidents for number in incident.findings]
            page.block(_Group(summaries.get(key), key, findings), incidents)
            shown.add(key)
        else:
            has_table = len(incidents[0].partitions) > 1 and (in_full or key == 0)
            page.incident(incidents[0], SHOWN_ROWS // min(len(blocks), _SHOWN_IN_FULL) if has_table else 0)
    if not in_full and len(result.incidents) > _SHOWN_INCIDENTS:
        page.begin()
        page.paragraph(plural(len(result.incidents) - _SHOWN_INCIDENTS, "more incident"), 2)
    page.not_read([group for group in groups if group.is_partly_read and group.key not in shown])
    if len(shown) < len(blocks):
        page.more("every finding", "--by", "partition")


def _groups(result: ScanResult) -> list[_Group]:
    """Findings of no scanned partition, then every partition with its findings, in the order of the result."""
    partitions: dict[Key, PartitionSummary] = {(partition.topic, partition.partition): partition for partition in result.partitions}
    findings = grouped(result.findings, lambda finding: (finding.place.topic, finding.place.partition))
    keys = [key for key in findings if key not in partitions] + list(partitions)
    return [_Group(partitions.get(key), key, findings.get(key, [])) for key in keys]


def partition_lines(incident: Incident, findings: list[Finding], limit: int, width: int) -> list[str]:
    """A heading and at most `limit` rows in columns, one row for the partitions of a topic whose records the same brokers hold;
    then the number of other partitions. The column of kinds is left out where it does not fit `width`."""
    kinds: defaultdict[Key, Counter[str]] = defaultdict(Counter)
    for number in incident.findings if len(incident.kinds) > 1 else ():
        place = findings[number].place
        kinds[place.topic, place.partition][findings[number].kind] += 1
    lost_noun = "lost" if incident.lost_at_least else "at risk"

    def cells(group: Sequence[IncidentPartition]) -> list[str]:
        found = sum((kinds[partition.key] for partition in group), Counter[str]())
        offsets = {(partition.offset_start, partition.offset_end) for partition in group}
        return [
            partition_ranges(partition.key for partition in group),
            offset_range(*offsets.pop()) if len(offsets) == 1 else "",
            lost_words(incident, group),
            unquoted(", ".join(map(str, group[0].held_by))),
            _counted_kinds(found),
        ]

    def lost_by(others: Sequence[IncidentPartition]) -> str:
        return f", {lost} {lost_noun}" if (lost := lost_words(incident, others)) else ""

    equal = grouped(incident.partitions, lambda partition: (partition.topic, *partition.held_by, frozenset(kinds[partition.key])))
    groups = sorted(equal.values(), key=lambda group: (-sum(partition.lost_at_most for partition in group), group[0].topic))
    heads = ("partitions", "offsets", lost_noun, "good copies on", "found")
    lines = list(GroupedTable(heads, {lost_noun}, cells, lost_by).lines(groups, limit, None))
    if max(map(len, lines)) <= width + 1:
        return lines
    return list(GroupedTable(heads[:-1], {lost_noun}, lambda group: cells(group)[:-1], lost_by).lines(groups, limit, None))


def _counted_kinds(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind}{f' {count}' if count > 1 else ''}" for kind, count in counts.items())


class _ScanPage(ConsolePage):
    def __init__(self, console: "Console", result: ScanResult, *, verbose: bool) -> None:
        super().__init__(console)
        self._result, self._verbose = result, verbose
        self._crowded = crowded_brokers(result)
        self._has_begun = False
        self._advice_given: dict[str, str] = {}
        """Advice given for this partition → the kind it was given for."""

    def begin(self) -> None:
        """Begin a part of the page, with a blank line before it unless it is the first."""
        if self._has_begun:
            self.console.print()
        self._has_begun = True

    def incident(self, incident: Incident, limit: int = 0) -> None:
        """What happened, when, what it cost and what to do first, unless the first screen says so.

        With a `limit` also what was found, and as many rows of partitions, the longest loss first.
        """
        self.begin()
        on_first_screen = incident is self._result.incidents[0]
        if not (on_first_screen and limit):
            self.heading(incident.severity.value, Text(_with_cost(incident)))
        if limit:
            self.paragraph(printable(incident_message(incident)), 2)
            kinds = ", ".join(f"{kind} {count}" for kind, count in incident.kinds.items())
            self.labelled("found", f"{kinds} ({incident.severity.value}, {incident.confidence.value})")
        advice_text = incident_precaution(incident) if incident.lost_at_most else incident_advice(incident)
        if advice_text and not on_first_screen:
            self.labelled("do", printable(advice_text))
        for line in partition_lines(incident, self._result.findings, limit, self.console.width - 2) if limit else ():
            self.hanging(Text(), Text(line), 2, deeper=4)

    def not_read(self, groups: Sequence[_Group]) -> None:
        """The partitions that were not completely read, in one paragraph."""
        if groups:
            self.begin()
            names = first_few((name(*group.key) for group in groups), _NAMED_PARTITIONS)
            self.heading("unknown", Text(f"{plural(len(groups), 'partition')} not completely read: {names}"))

    def more(self, what: str, *options: str) -> None:
        """The command that shows the rest."""
        self.begin()
        self.paragraph(f"{what}:", 2, "dim")
        self.command(rerun_command("scan", self._result.rerun_arguments, *options), 2)

    def block(self, group: _Group, incidents: Sequence[Incident] = ()) -> None:
        """One partition: verdict and headline, its incidents, a line for each replica, its findings."""
        self.begin()
        findings = group.findings
        title = Text.assemble((name(*group.key) or "brokers and directories", "bold"))
        if group.summary is not None:
            title.append(f"  {headline(group.summary)}")
        self.heading(group.verdict, title)
        for incident in incidents:
            if incident is not self._result.incidents[0]:
                self.labelled("incident", _with_cost(incident, "; "))
        if group.summary is not None:
            self.replicas(map(replica_words, group.summary.replicas))
        self._advice_given = {}
        harmless = [] if self._verbose else group.harmless
        for of_kind in by_kind(finding for finding in findings if finding not in harmless):
            self._kind(of_kind)
        if counts := {of_kind[0].kind: len(of_kind) for of_kind in by_kind(harmless)}:
            self.console.print()
            self.hanging(Text("  more with -v:", "dim"), Text(_counted_kinds(counts), "dim"), 16)

    def _kind(self, findings: list[Finding]) -> None:
        """Findings of one kind as sentences, each advice once after the findings that it is for."""
        first = findings[0]
        self.kind(first)
        shown = findings if self._verbose else findings[:_SHOWN_OF_A_KIND]
        for step, group in groupby(shown, key=advice):
            for finding in group:
                self.finding(finding, self._crowded)
            if step:
                given_for = self._advice_given.setdefault(step, first.kind)
                text = printable(step) if given_for == first.kind else f"As for {given_for}."
                self.hanging(Text(" " * INDENT + "do", "bold"), Text(text), INDENT + 6)
        if hidden := len(findings) - len(shown):
            self.paragraph(f"... and {hidden} more {first.kind}; -v shows all", INDENT, "dim")

    def count_clean(self, clean: list[_Group]) -> None:
        """How many partitions have no findings."""
        if clean:
            self.begin()
            replicas = sum(len(group.summary.replicas) for group in clean if group.summary is not None)
            text = f"{plural(len(clean), 'partition')}, {plural(replicas, 'replica')}: {nothing_found(self._result)}"
            self.heading("clean", Text(text))
