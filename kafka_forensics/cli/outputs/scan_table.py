"""A scan's answer for a person: incidents with their partitions, or partitions, worst first; partitions without findings are only
counted."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.text import Text

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.cli.outputs.words import (
    aligned,
    by_kind,
    cost_words,
    crowded_brokers,
    headline,
    is_harmless,
    kinds_and_places,
    lost_words,
    name,
    nothing_found,
    place_words,
    replica_words,
)
from kafka_forensics.cli.streams import Destination, command_lines, printable
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.incidents import Incident, IncidentPartition
from kafka_forensics.model.results import VERDICTS, PartitionSummary, ScanResult, verdict_of
from kafka_forensics.wording import (
    advice,
    incident_advice,
    incident_command,
    incident_message,
    incident_time,
    incident_title,
    is_background,
    message,
    offset_range,
    rerun_command,
    severity_order,
)

if TYPE_CHECKING:
    from rich.console import Console

STYLES: Final = {
    "critical": "bold white on red",
    "error": "bold red",
    "warning": "yellow",
    "info": "cyan",
    "unknown": "bold magenta",
    "clean": "green",
}
_SHOWN_OF_A_KIND: Final = 3
_WORD: Final = re.compile(r"\S+")
_COMMAND: Final = re.compile(r"`(kafka-[^`]+)`(?:\.(?=\s|$)|$)")
SHOWN_PARTITIONS: Final = 20
_SHOWN_INCIDENTS: Final = 20
_SHOWN_OUTSIDE_INCIDENTS: Final = 5
_LOST: Final = 2
_FOUND: Final = 4
"""Indexes of columns in the table of an incident's partitions."""
_GUTTER: Final = 10
_INDENT: Final = 4

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
    def has_background(self) -> bool:
        return any(map(is_background, self.findings))

    @property
    def harmless(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity is Severity.INFO]

    @property
    def severity_order(self) -> tuple[int, tuple[int, bool, int]]:
        """Sort key, the worst verdict first."""
        return -VERDICTS.index(self.verdict), min(map(severity_order, self.findings), default=(0, False, 0))


def write_table(result: ScanResult, to: Destination, *, verbose: bool, by: str = "incident") -> None:
    """Write the table to `to`, wrapped to its width: incidents and their partitions, or every partition with findings."""
    page = _ScanPage(to.console(), result, verbose=verbose)
    groups = _groups(result)
    if by == "incident" and result.incidents:
        _write_incidents(page, result, groups, verbose=verbose)
    else:
        _write_partitions(page, groups, verbose=verbose)


def _write_partitions(page: "_ScanPage", groups: list[_Group], *, verbose: bool) -> None:
    """A block for every partition that has findings or was not fully read, the worst first; the others are counted."""
    counted = [group for group in groups if not group.is_partly_read and is_harmless(group.findings) and not group.has_background]
    brief = [] if verbose else [group for group in counted if group.findings]
    clean = [group for group in counted if not group.findings]
    left_out = {group.key for group in (*brief, *clean)}
    for group in sorted((group for group in groups if group.key not in left_out), key=attrgetter("severity_order")):
        page.block(group)
    page.counts(brief, clean)


def _write_incidents(page: "_ScanPage", result: ScanResult, groups: list[_Group], *, verbose: bool) -> None:
    """A block for each incident of several partitions, with a table of these, and for each partition that has incidents alone; then
    harmless findings."""
    wide = [incident for incident in result.incidents if len(incident.partitions) > 1]
    if verbose:
        for incident in wide:
            page.incident(incident)
        _write_partitions(page, groups, verbose=verbose)
        return
    narrow: dict[Key, list[Incident]] = {}
    for incident in result.incidents:
        if len(incident.partitions) < 2:
            narrow.setdefault(_key_of(incident), []).append(incident)
    blocks = [incident for incident in result.incidents if len(incident.partitions) > 1 or narrow[_key_of(incident)][0] is incident]
    by_key = {group.key: group for group in groups}
    for incident in blocks[:_SHOWN_INCIDENTS]:
        if len(incident.partitions) > 1:
            page.incident(incident)
            continue
        key = _key_of(incident)
        group = by_key.get(key, _Group(None, key, []))
        findings = [result.findings[number] for of_partition in narrow[key] for number in of_partition.findings]
        page.block(_Group(group.summary, key, findings + group.harmless), narrow[key])
    if len(blocks) > _SHOWN_INCIDENTS:
        page.begin()
        page.more(f"{len(blocks) - _SHOWN_INCIDENTS} more incidents, and every finding", "--by", "partition")
    in_incidents: set[Key] = {(partition.topic, partition.partition) for incident in wide for partition in incident.partitions}
    others = [group._replace(findings=group.harmless) for group in groups if group.key not in narrow]
    _write_outside_incidents(page, others, in_incidents)


def _write_outside_incidents(page: "_ScanPage", groups: list[_Group], in_incidents: set[Key]) -> None:
    """Partitions with what no incident says of them: those not fully read, those with background findings, the rest counted.

    The incidents of partitions `in_incidents` include their background.
    """
    blocks, counted = list[_Group](), list[_Group]()
    for group in groups:
        needs_block = group.is_partly_read or (group.key not in in_incidents and group.has_background)
        (blocks if needs_block else counted).append(group)
    for group in sorted(blocks, key=attrgetter("severity_order"))[:_SHOWN_OUTSIDE_INCIDENTS]:
        page.block(group)
    if (hidden := len(blocks) - _SHOWN_OUTSIDE_INCIDENTS) > 0:
        page.begin()
        page.more(f"{hidden} more partitions of which something is to be said", "--by", "partition")
    clean = [group for group in counted if not group.findings and group.key not in in_incidents]
    page.counts([group for group in counted if group.findings], clean)


def _key_of(incident: Incident) -> Key:
    """The partition of an incident that has at most one."""
    return (incident.partitions[0].topic, incident.partitions[0].partition) if incident.partitions else (None, None)


def _groups(result: ScanResult) -> list[_Group]:
    """Findings of no scanned partition, then every partition with its findings, in the order of the result."""
    partitions: dict[Key, PartitionSummary] = {(partition.topic, partition.partition): partition for partition in result.partitions}
    findings: dict[Key, list[Finding]] = {}
    for finding in result.findings:
        findings.setdefault((finding.place.topic, finding.place.partition), []).append(finding)
    keys = [key for key in findings if key not in partitions] + list(partitions)
    return [_Group(partitions.get(key), key, findings.get(key, [])) for key in keys]


def _cut_at_slashes(body: Text, width: int) -> Text:
    """`body` with a line break in each path longer than `width`, after the last directory that fits."""
    cuts = []
    for word in _WORD.finditer(body.plain):
        begin = word.start()
        while word.end() - begin > width and (slash := body.plain.rfind("/", begin, begin + width)) >= 0:
            cuts.append(begin := slash + 1)
    return Text("\n").join(body.divide(cuts)) if cuts else body


def _incident_text(incident: Incident) -> str:
    """What the findings of an incident of one partition do not say: its time, its name and its cost; empty without these."""
    moment, cost = incident_time(incident), cost_words(incident)
    if moment is None and incident.known_as is None and not cost:
        return ""
    words = incident_title(incident) + (f", {moment}" if moment else "")
    words += "" if incident.known_as is None else f" ({incident.known_as})"
    if cost:
        words += f"; {'it costs' if incident.lost_at_least else 'it may cost'} {cost}"
    return printable(words)


def partition_lines(
    incident: Incident, partitions: Sequence[IncidentPartition], findings: list[Finding], width: int
) -> Iterator[str]:
    """A heading and a row for each partition, in columns; the column of kinds is left out where it does not fit `width`."""
    kinds: defaultdict[Key, Counter[str]] = defaultdict(Counter)
    if len(incident.kinds) > 1:
        for number in incident.findings:
            place = findings[number].place
            kinds[place.topic, place.partition][findings[number].kind] += 1
    lost = "lost" if incident.lost_at_least else "at risk"
    rows = [["partition", "offsets", lost, "good copies on", "found"]]
    for partition in partitions:
        row = [
            name(partition.topic, partition.partition),
            offset_range(partition.offset_start, partition.offset_end),
            lost_words(incident, partition),
            printable(", ".join(map(str, partition.held_by))),
            _counted_kinds(kinds[partition.topic, partition.partition]),
        ]
        rows.append(row)
    columns = [column for column in range(5) if any(row[column] for row in rows[1:])]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    if columns[-1] == _FOUND and sum(widths[column] + 3 for column in columns) - 3 > width:
        columns.pop()
    for row in rows:
        cells = (row[column].rjust(widths[column]) if column == _LOST else row[column].ljust(widths[column]) for column in columns)
        yield "   ".join(cells).rstrip()


def _counted_kinds(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind}{f' {count}' if count > 1 else ''}" for kind, count in counts.items())


class ConsolePage:
    """Prints paragraphs, each with a label in the columns before it."""

    def __init__(self, console: "Console") -> None:
        self.console = console

    def print_lines(self, lines: Iterable[Text]) -> None:
        """Print lines as they are, even if they are wider than the console."""
        for line in lines:
            line.rstrip()
            self.console.print(line, soft_wrap=True)

    def hanging(self, label: Text, body: Text, indent: int, deeper: int = 0) -> None:
        """Print `label`, and `body` from column `indent` on; lines after the first are `deeper` if it has to be wrapped."""
        width = max(20, self.console.width - indent)
        if body.cell_len > width:
            width = max(20, width - deeper)
        for number, line in enumerate(_cut_at_slashes(body, width).wrap(self.console, width)):
            line.rstrip()
            whole = Text().append_text(label) if number == 0 else Text()
            whole.append(" " * (indent + (deeper if number else 0) - whole.cell_len))
            self.console.print(whole.append_text(line), soft_wrap=True)

    def paragraph(self, text: str, indent: int, style: str = "") -> None:
        """Print `text` without a label."""
        self.hanging(Text(), Text(text, style), indent)

    def replicas(self, rows: Iterable[list[str]], style: str = "") -> None:
        """Print rows of `replica_words` in columns."""
        for line in aligned(rows, self.console.width - 2):
            self.hanging(Text(), Text(line, style), 2, deeper=4)


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

    def incident(self, incident: Incident) -> None:
        """What happened, when, what it cost and what to do first; then the partitions, the longest loss first."""
        self.begin()
        moment, cost, severity = incident_time(incident), cost_words(incident), incident.severity.value
        title = Text.assemble((incident_title(incident), "bold"))
        title.append(f"{f', {moment}' if moment else ''}: {plural(len(incident.partitions), 'partition')}")
        title.append(f", {cost}" if cost else "")
        self.hanging(Text(severity.upper(), STYLES[severity]), title, _GUTTER)
        self.paragraph(printable(incident_message(incident)), 2)
        kinds = ", ".join(f"{kind} {count}" for kind, count in incident.kinds.items())
        self._labelled("found", f"{kinds} ({severity}, {incident.confidence.value})")
        if incident.known_as is not None:
            self._labelled("known as", printable(incident.known_as))
        self._labelled("do first", printable(incident_advice(incident)), "bold")
        topics = {partition.topic for partition in incident.partitions}
        topic_option = ("--topic", *topics) if len(topics) == 1 else ()
        if (command := incident_command(incident)) is not None:
            self._command(rerun_command(command, self._result.rerun_arguments, *topic_option), _GUTTER + 2)
        self.console.print()
        rows = incident.partitions if self._verbose else incident.partitions[:SHOWN_PARTITIONS]
        for line in partition_lines(incident, rows, self._result.findings, self.console.width - 2):
            self.hanging(Text(), Text(line), 2, deeper=4)
        hidden = len(incident.partitions) - len(rows)
        if not self._verbose:
            what = f"{hidden} more partitions, and every finding" if hidden else "every finding"
            self.more(what, "--by", "partition", *topic_option)

    def more(self, what: str, *options: str) -> None:
        """The command that shows the rest."""
        self.paragraph(f"{what}:", 2, "dim")
        self._command(rerun_command("scan", self._result.rerun_arguments, *options), 2)

    def block(self, group: _Group, incidents: Sequence[Incident] = ()) -> None:
        """One partition: verdict and headline, its incidents, a line for each replica, its findings."""
        self.begin()
        findings = group.findings
        title = Text.assemble((name(*group.key) or "brokers and directories", "bold"))
        if group.summary is not None:
            title.append(f"  {headline(group.summary)}")
        self.hanging(Text(group.verdict.upper(), STYLES[group.verdict]), title, _GUTTER)
        for text in filter(None, map(_incident_text, incidents)):
            self._labelled("incident", text)
        if group.summary is not None:
            self.replicas(map(replica_words, group.summary.replicas))
        self._advice_given = {}
        harmless = [] if self._verbose else group.harmless
        for of_kind in by_kind(finding for finding in findings if finding not in harmless):
            self._kind(of_kind)
        explaining = frozenset[str]() if is_harmless(findings) else kinds_with(Trait.IS_BACKGROUND)
        background = [finding for finding in harmless if is_background(finding) or finding.kind in explaining]
        if background:
            self.console.print()
        for finding in background:
            self.hanging(Text("  background", "dim"), Text(printable(message(finding))), _INDENT + 10)
        counted = by_kind(finding for finding in harmless if finding not in background)
        if counts := {of_kind[0].kind: len(of_kind) for of_kind in counted}:
            self.console.print()
            self.hanging(Text("  more with -v:", "dim"), Text(_counted_kinds(counts), "dim"), 16)

    def _labelled(self, label: str, text: str, style: str = "dim") -> None:
        self.hanging(Text(f"  {label}", style), Text(text), _GUTTER + 2)

    def _kind(self, findings: list[Finding]) -> None:
        """Findings of one kind as sentences, each advice once after the findings that it is for."""
        first = findings[0]
        style = STYLES["error" if first.severity is Severity.CRITICAL else first.severity.value]
        title = Text.assemble((first.kind, style), f"  {first.severity.value}, {first.confidence.value}")
        self.console.print()
        self.hanging(Text(), title, 2)
        shown = findings if self._verbose else findings[:_SHOWN_OF_A_KIND]
        for step, group in groupby(shown, key=advice):
            for finding in group:
                self.paragraph(printable(message(finding)), _INDENT)
                if where := place_words(finding.place, self._crowded):
                    self.hanging(Text(" " * _INDENT + "where", "dim"), Text(where), _INDENT + 6)
            if step:
                given_for = self._advice_given.setdefault(step, first.kind)
                self._advice(printable(step) if given_for == first.kind else f"As for {given_for}.")
        if hidden := len(findings) - len(shown):
            self.paragraph(f"... and {hidden} more {first.kind}; -v shows all", _INDENT, "dim")

    def _advice(self, text: str) -> None:
        """Advice: sentences wrapped, and each command that ends a sentence on a line of its own, ready to copy."""
        label = Text(" " * _INDENT + "do", "bold")
        for number, part in enumerate(_COMMAND.split(text)):
            if number % 2:
                self._command(part, _INDENT + 6)
            elif part.strip():
                self.hanging(label, Text(part.strip()), _INDENT + 6)
                label = Text()

    def _command(self, command: str, indent: int) -> None:
        """A command in lines that a shell reads as one."""
        for number, line in enumerate(command_lines(printable(command), self.console.width - indent - 2)):
            self.console.print(Text(" " * indent + ("  " if number else "$ ") + line), soft_wrap=True)

    def counts(self, brief: list[_Group], clean: list[_Group]) -> None:
        """How many partitions have only harmless findings, and how many have none."""
        if brief or clean:
            self.begin()
        if brief:
            kinds = kinds_and_places(finding for group in brief for finding in group.findings)
            self.hanging(Text("info", STYLES["info"]), Text(f"more with -v: {kinds}"), _GUTTER)
        if clean:
            replicas = sum(len(group.summary.replicas) for group in clean if group.summary is not None)
            text = f"{plural(len(clean), 'partition')}, {plural(replicas, 'replica')}: {nothing_found(self._result)}"
            self.hanging(Text("clean", STYLES["clean"]), Text(text), _GUTTER)
