"""A scan's answer for a person: incidents with their partitions, or partitions, worst first; findings as sentences, the healthy as
counts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich.text import Text

from kafka_forensics.analysis.kinds import Trait, kinds_with
from kafka_forensics.cli.outputs.words import (
    aligned,
    by_kind,
    command_lines,
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
from kafka_forensics.cli.streams import Destination, printable
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.findings import Finding, RerunArguments, Severity
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
    rerun_command,
    severity_order,
    span,
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
_KIND_STYLES: Final = {
    Severity.CRITICAL: "bold red",
    Severity.ERROR: "bold red",
    Severity.WARNING: "yellow",
    Severity.INFO: "cyan",
}
_SHOWN_OF_A_KIND: Final = 3
_WORD: Final = re.compile(r"\S+")
_COMMAND: Final = re.compile(r"`(kafka-[^`]+)`(?:\.(?=\s|$)|$)")
SHOWN_PARTITIONS: Final = 20
_SHOWN_INCIDENTS: Final = 20
_SHOWN_APART: Final = 5
_LOST: Final = 2
_FOUND: Final = 4
"""Columns of an incident's partitions."""
_GUTTER: Final = 10
_INDENT: Final = 4

Key = tuple[str | None, int | None]
Group = tuple[PartitionSummary | None, Key, list[Finding]]


def write_table(result: ScanResult, to: Destination, *, verbose: bool, by: str = "incident") -> None:
    """Write the table to `to`, wrapped to its width: incidents and their partitions, or every partition that is not sound."""
    page = _Page(to.console(), crowded_brokers(result), result.asked, verbose=verbose)
    groups = _groups(result)
    if by == "incident" and result.incidents:
        _write_incidents(page, result, groups, verbose=verbose)
    else:
        _write_partitions(page, result, groups, verbose=verbose)


def _write_partitions(page: "_Page", result: ScanResult, groups: list[Group], *, verbose: bool) -> None:
    """A block for every partition that is not sound, the worst first."""
    clean, brief, sick = list[Group](), list[Group](), list[Group]()
    for group in groups:
        is_clean = not group[2] and not _is_told(group)
        (clean if is_clean else brief if not verbose and _is_brief(group) else sick).append(group)
    for group in sorted(sick, key=_gravity):
        page.begin()
        page.block(*group)
    if brief or clean:
        page.begin()
    page.counts(brief, clean, nothing_found(result))


def _write_incidents(page: "_Page", result: ScanResult, groups: list[Group], *, verbose: bool) -> None:
    """A block for every incident of several partitions, with a table of these; what concerns one partition as that partition's
    block; then what harms nothing."""
    by_key = {group[1]: group for group in groups}
    wide = [incident for incident in result.incidents if len(incident.partitions) > 1]
    if verbose:
        for incident in wide:
            page.begin()
            page.incident(incident, result.findings)
        _write_partitions(page, result, groups, verbose=verbose)
        return
    narrow: dict[Key, list[Incident]] = {}
    for incident in result.incidents:
        if len(incident.partitions) < 2:
            narrow.setdefault(_key_of(incident), []).append(incident)
    shown = 0
    for incident in result.incidents:
        key = _key_of(incident)
        if len(incident.partitions) < 2 and narrow[key][0] is not incident:
            continue
        shown += 1
        if shown > _SHOWN_INCIDENTS:
            continue
        page.begin()
        if len(incident.partitions) > 1:
            page.incident(incident, result.findings)
        else:
            own = [result.findings[place] for each in narrow[key] for place in each.findings]
            harmless = [finding for finding in by_key[key][2] if finding.severity is Severity.INFO] if key in by_key else []
            page.block(by_key[key][0] if key in by_key else None, key, own + harmless, narrow[key])
    if shown > _SHOWN_INCIDENTS:
        page.begin()
        page.more(f"{shown - _SHOWN_INCIDENTS} more incidents, and every finding", "--by", "partition")
    told: set[Key] = {(partition.topic, partition.partition) for incident in wide for partition in incident.partitions}
    _write_rest(page, result, [_harmless_of(group) for group in groups if group[1] not in narrow], told)


def _write_rest(page: "_Page", result: ScanResult, groups: list[Group], told: set[Key]) -> None:
    """What no incident tells of these groups: partitions that were not read, what explains what happened, and the rest in counts;
    `told` are in an incident, which says what explains it."""
    clean, brief, apart = list[Group](), list[Group](), list[Group]()
    for group in groups:
        if _is_told(group) or (group[1] not in told and any(map(is_background, group[2]))):
            apart.append(group)
        elif group[2]:
            brief.append(group)
        elif group[1] not in told:
            clean.append(group)
    for number, group in enumerate(sorted(apart, key=_gravity)):
        if number == _SHOWN_APART:
            page.begin()
            page.more(f"{len(apart) - number} more partitions of which something is to be said", "--by", "partition")
        elif number < _SHOWN_APART:
            page.begin()
            page.block(*group)
    if brief or clean:
        page.begin()
    page.counts(brief, clean, nothing_found(result))


def _key_of(incident: Incident) -> Key:
    """The partition of an incident that has one at most."""
    return (incident.partitions[0].topic, incident.partitions[0].partition) if incident.partitions else (None, None)


def _harmless_of(group: Group) -> Group:
    """A group with those of its findings alone that are in no incident."""
    return group[0], group[1], [finding for finding in group[2] if finding.severity is Severity.INFO]


def _is_brief(group: Group) -> bool:
    """Whether its findings, being harmless, are only counted."""
    findings = group[2]
    return bool(findings) and not _is_told(group) and is_harmless(findings) and not any(map(is_background, findings))


def _is_told(group: Group) -> bool:
    """Whether a partition has a word of its own though nothing was found in it: not all of it could be read."""
    return group[0] is not None and bool(group[0].not_read)


def _gravity(group: Group) -> tuple[int, tuple[int, bool, int]]:
    """Sort key, the worst verdict first."""
    partition, _, findings = group
    verdict = verdict_of(findings) if partition is None else partition.verdict
    return -VERDICTS.index(verdict), min(map(severity_order, findings), default=(0, False, 0))


def _groups(result: ScanResult) -> list[Group]:
    """Every partition with its findings, and the findings of none, in the order of the result."""
    partitions: dict[Key, PartitionSummary] = {(partition.topic, partition.partition): partition for partition in result.partitions}
    findings: dict[Key, list[Finding]] = {}
    for finding in result.findings:
        findings.setdefault((finding.place.topic, finding.place.partition), []).append(finding)
    keys = [key for key in findings if key not in partitions] + list(partitions)
    return [(partitions.get(key), key, findings.get(key, [])) for key in keys]


def print_hanging(console: "Console", label: Text, body: Text, indent: int, deeper: int = 0) -> None:
    """Print `label`, and `body` in the columns from `indent` on, wrapped if it is wider (lines after the first `deeper`)."""
    width = max(20, console.width - indent)
    if body.cell_len > width:
        width = max(20, width - deeper)
    for number, line in enumerate(_cut_at_slashes(body, width).wrap(console, width)):
        line.rstrip()
        whole = Text().append_text(label) if number == 0 else Text()
        whole.append(" " * (indent + (deeper if number else 0) - whole.cell_len))
        console.print(whole.append_text(line), soft_wrap=True)


def _cut_at_slashes(body: Text, width: int) -> Text:
    """`body` with a new line within each path that is longer than `width`, behind the last directory that has room."""
    cuts = []
    for word in _WORD.finditer(body.plain):
        begin = word.start()
        while word.end() - begin > width and (slash := body.plain.rfind("/", begin, begin + width)) >= 0:
            cuts.append(begin := slash + 1)
    return Text("\n").join(body.divide(cuts)) if cuts else body


def _in_a_line(incident: Incident) -> str:
    """What an incident of one partition has that its findings do not say by themselves: time, name, sum; nothing without."""
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
    """A row for each partition below a head, in columns; the kinds found are left out where there is no room."""
    kinds: dict[Key, dict[str, int]] = {}
    if len(incident.kinds) > 1:
        for number in incident.findings:
            place = findings[number].place
            of_partition = kinds.setdefault((place.topic, place.partition), {})
            of_partition[findings[number].kind] = of_partition.get(findings[number].kind, 0) + 1
    lost = "lost" if incident.lost_at_least else "at risk"
    rows = [["partition", "offsets", lost, "good copies on", "found"]]
    for partition in partitions:
        found = kinds.get((partition.topic, partition.partition), {})
        rows.append(
            [
                name(partition.topic, partition.partition),
                span(partition.offset_start, partition.offset_end, "") or "",
                lost_words(incident, partition),
                printable(", ".join(map(str, partition.held_by))),
                ", ".join(f"{kind}{f' {count}' if count > 1 else ''}" for kind, count in found.items()),
            ]
        )
    there = [column for column in range(5) if any(row[column] for row in rows[1:])]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    while there[-1] == _FOUND and sum(widths[column] + 3 for column in there) - 3 > width:
        there.pop()
    for row in rows:
        yield "   ".join(_in_column(row[column], column, widths[column]) for column in there).rstrip()


def _in_column(word: str, column: int, width: int) -> str:
    return word.rjust(width) if column == _LOST else word.ljust(width)


class _Page:
    def __init__(self, console: "Console", crowded: frozenset[str], asked: RerunArguments | None, *, verbose: bool) -> None:
        self._console = console
        self._asked = asked
        self._begun = False
        self._crowded = crowded
        self._verbose = verbose
        self._told: dict[str, str] = {}
        """Advice given for this partition → the kind it was given for."""

    def begin(self) -> None:
        """A part of the page, with a blank line before it unless it is the first."""
        if self._begun:
            self._console.print()
        self._begun = True

    def incident(self, incident: Incident, findings: list[Finding]) -> None:
        """What happened, when, to whom, what it cost, what to do first; then its partitions, the longest loss first."""
        moment = incident_time(incident)
        title = Text.assemble((incident_title(incident), "bold"))
        cost = cost_words(incident)
        title.append(f"{f', {moment}' if moment else ''}: {plural(len(incident.partitions), 'partition')}")
        title.append(f", {cost}" if cost else "")
        self._hanging(Text(incident.severity.value.upper(), STYLES[incident.severity.value]), title, _GUTTER)
        self._hanging(Text(), Text(printable(incident_message(incident))), 2)
        kinds = ", ".join(f"{kind} {count}" for kind, count in incident.kinds.items())
        said = f"{kinds} ({incident.severity.value}, {incident.confidence.value})"
        self._hanging(Text("  found", "dim"), Text(said), _GUTTER + 2)
        if incident.known_as is not None:
            self._hanging(Text("  known as", "dim"), Text(printable(incident.known_as)), _GUTTER + 2)
        self._hanging(Text("  do first", "bold"), Text(printable(incident_advice(incident))), _GUTTER + 2)
        topics = {partition.topic for partition in incident.partitions}
        of_topic = ("--topic", *topics) if len(topics) == 1 else ()
        if (command := incident_command(incident)) is not None:
            self._command(rerun_command(command, self._asked, *of_topic), _GUTTER + 2)
        self._console.print()
        rows = incident.partitions if self._verbose else incident.partitions[:SHOWN_PARTITIONS]
        for line in partition_lines(incident, rows, findings, self._console.width - 2):
            self._hanging(Text(), Text(line), 2, deeper=4)
        hidden = len(incident.partitions) - len(rows)
        if not self._verbose:
            self.more(f"{hidden} more partitions, and every finding" if hidden else "every finding", "--by", "partition", *of_topic)

    def more(self, what: str, *options: str) -> None:
        """Where the rest is to be seen: the command that shows it."""
        self._hanging(Text(), Text(f"{what}:", "dim"), 2)
        self._command(rerun_command("scan", self._asked, *options), 2)

    def block(
        self, partition: PartitionSummary | None, key: Key, findings: list[Finding], incidents: Sequence[Incident] = ()
    ) -> None:
        """One partition: verdict and headline, a line a replica, the incidents that its findings are, its findings."""
        verdict = verdict_of(findings) if partition is None else partition.verdict
        title = Text.assemble((name(*key) or "brokers and directories", "bold"))
        if partition is not None:
            title.append(f"  {headline(partition)}")
        self._hanging(Text(verdict.upper(), STYLES[verdict]), title, _GUTTER)
        for incident in incidents:
            if said := _in_a_line(incident):
                self._hanging(Text("  incident", "dim"), Text(said), _GUTTER + 2)
        if partition is not None:
            self._aligned([replica_words(replica) for replica in partition.replicas])
        self._told = {}
        harmless = [] if self._verbose else [finding for finding in findings if finding.severity is Severity.INFO]
        for group in by_kind(finding for finding in findings if finding not in harmless):
            self._kind(group)
        worse = not is_harmless(findings)
        background = [
            finding for finding in harmless if is_background(finding) or (worse and finding.kind in kinds_with(Trait.IS_BACKGROUND))
        ]
        self._background(background, [finding for finding in harmless if finding not in background])

    def _background(self, background: list[Finding], brief: list[Finding]) -> None:
        """Findings that harm nothing: those that explain others in sentences, the rest counted."""
        if background:
            self._console.print()
            for finding in background:
                self._hanging(Text("  background", "dim"), Text(printable(message(finding))), _INDENT + 10)
        if brief:
            self._console.print()
            counts = ", ".join(f"{group[0].kind}{f' {len(group)}' if len(group) > 1 else ''}" for group in by_kind(brief))
            self._hanging(Text("  more with -v:", "dim"), Text(f"{counts}", "dim"), 16)

    def _kind(self, findings: list[Finding]) -> None:
        first = findings[0]
        title = Text.assemble((first.kind, _KIND_STYLES[first.severity]), f"  {first.severity.value}, {first.confidence.value}")
        self._console.print()
        self._hanging(Text(), title, 2)
        shown = findings if self._verbose else findings[:_SHOWN_OF_A_KIND]
        for step, group in groupby(shown, key=advice):
            for finding in group:
                self._hanging(Text(), Text(printable(message(finding))), _INDENT)
                if where := place_words(finding.place, self._crowded):
                    self._hanging(Text(" " * _INDENT + "where", "dim"), Text(where), _INDENT + 6)
            if step:
                told_for = self._told.setdefault(step, first.kind)
                self._step(printable(step) if told_for == first.kind else f"As for {told_for}.")
        if hidden := len(findings) - len(shown):
            self._hanging(Text(), Text(f"... and {hidden} more {first.kind}; -v shows all", "dim"), _INDENT)

    def _step(self, step: str) -> None:
        """Advice: sentences wrapped, and each command that ends one in a line of its own, never broken, ready to copy."""
        label = Text(" " * _INDENT + "do", "bold")
        for number, part in enumerate(_COMMAND.split(step)):
            if number % 2:
                self._command(part, _INDENT + 6)
            elif part.strip():
                self._hanging(label, Text(part.strip()), _INDENT + 6)
                label = Text()

    def _command(self, command: str, indent: int) -> None:
        """A command in lines that a shell takes as one."""
        for number, line in enumerate(command_lines(printable(command), self._console.width - indent - 2)):
            self._console.print(Text(" " * indent + ("  " if number else "$ ") + line), soft_wrap=True)

    def counts(self, brief: list[Group], clean: list[Group], nothing: str) -> None:
        """What needs no attention, in a line or two."""
        if brief:
            words = kinds_and_places(finding for _, _, findings in brief for finding in findings)
            self._hanging(Text("info", STYLES["info"]), Text(f"more with -v: {words}"), _GUTTER)
        if clean:
            replicas = sum(len(partition.replicas) for partition, _, _ in clean if partition is not None)
            text = f"{plural(len(clean), 'partition')}, {plural(replicas, 'replica')}: {nothing}"
            self._hanging(Text("clean", STYLES["clean"]), Text(text), _GUTTER)

    def _aligned(self, rows: Iterable[list[str]]) -> None:
        for line in aligned(rows, self._console.width - 2):
            self._hanging(Text(), Text(line), 2, deeper=4)

    def _hanging(self, label: Text, body: Text, indent: int, deeper: int = 0) -> None:
        print_hanging(self._console, label, body, indent, deeper)
