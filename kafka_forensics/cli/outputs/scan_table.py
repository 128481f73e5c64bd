"""A scan's answer for a person at a terminal: a verdict a partition, worst first, findings as sentences, the healthy as counts."""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich.text import Text

from kafka_forensics.cli.outputs.words import (
    aligned,
    by_kind,
    crowded_brokers,
    gravity,
    headline,
    is_background,
    is_harmless,
    kinds_and_places,
    name,
    nothing_found,
    place_words,
    plural,
    replica_words,
)
from kafka_forensics.cli.streams import Destination, printable
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.model.results import VERDICTS, PartitionSummary, ScanResult, verdict_of
from kafka_forensics.wording import advice, message

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
_COMMAND: Final = re.compile(r"`(kafka-forensics [^`]+)`(?:\.(?=\s|$)|$)")
_TOLD_BESIDE_WORSE: Final = frozenset({"INCIDENT_SIGNATURE", "UNCLEAN_ELECTION"})
"""Of info, and yet the likely reason of what stands above it."""
_GUTTER: Final = 10
_INDENT: Final = 4

Key = tuple[str | None, int | None]
Group = tuple[PartitionSummary | None, Key, list[Finding]]


def write_table(result: ScanResult, to: Destination, *, verbose: bool) -> None:
    """Write the table to `to`, wrapped to its width."""
    page = _Page(to.console(), crowded_brokers(result), verbose=verbose)
    groups = _groups(result)
    clean = [group for group in groups if not group[2] and not _is_told(group)]
    brief = [] if verbose else [group for group in groups if _is_brief(group)]
    sick = [group for group in groups if group not in clean and group not in brief]
    for number, group in enumerate(sorted(sick, key=_gravity)):
        if number:
            page.gap()
        page.block(*group)
    if sick and (brief or clean):
        page.gap()
    page.counts(brief, clean, nothing_found(result))


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
    return -VERDICTS.index(verdict), min(map(gravity, findings), default=(0, False, 0))


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


class _Page:
    def __init__(self, console: "Console", crowded: frozenset[str], *, verbose: bool) -> None:
        self._console = console
        self._crowded = crowded
        self._verbose = verbose
        self._told: dict[str, str] = {}
        """Advice given for this partition → the kind it was given for."""

    def block(self, partition: PartitionSummary | None, key: Key, findings: list[Finding]) -> None:
        """One partition: verdict and headline, a line a replica, its findings."""
        verdict = verdict_of(findings) if partition is None else partition.verdict
        title = Text.assemble((name(*key) or "brokers and directories", "bold"))
        if partition is not None:
            title.append(f"  {headline(partition)}")
        self._hanging(Text(verdict.upper(), STYLES[verdict]), title, _GUTTER)
        if partition is not None:
            self._aligned([replica_words(replica) for replica in partition.replicas])
        self._told = {}
        harmless = [] if self._verbose else [finding for finding in findings if finding.severity is Severity.INFO]
        for group in by_kind(finding for finding in findings if finding not in harmless):
            self._kind(group)
        worse = not is_harmless(findings)
        background = [finding for finding in harmless if is_background(finding) or (worse and finding.kind in _TOLD_BESIDE_WORSE)]
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
            self._hanging(Text("  info, -v explains:", "dim"), Text(f"{counts}", "dim"), 21)

    def gap(self) -> None:
        """A blank line between two parts of the page; none stands at its end."""
        self._console.print()

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
                self._console.print(Text(" " * (_INDENT + 6) + f"$ {part}"), soft_wrap=True)
            elif part.strip():
                self._hanging(label, Text(part.strip()), _INDENT + 6)
                label = Text()

    def counts(self, brief: list[Group], clean: list[Group], nothing: str) -> None:
        """What needs no attention, in a line or two."""
        if brief:
            words = kinds_and_places(finding for _, _, findings in brief for finding in findings)
            self._hanging(Text("info", STYLES["info"]), Text(f"-v explains: {words}"), _GUTTER)
        if clean:
            replicas = sum(len(partition.replicas) for partition, _, _ in clean if partition is not None)
            text = f"{plural(len(clean), 'partition')}, {plural(replicas, 'replica')}: {nothing}"
            self._hanging(Text("clean", STYLES["clean"]), Text(text), _GUTTER)

    def _aligned(self, rows: Iterable[list[str]]) -> None:
        for line in aligned(rows, self._console.width - 2):
            self._hanging(Text(), Text(line), 2, deeper=4)

    def _hanging(self, label: Text, body: Text, indent: int, deeper: int = 0) -> None:
        print_hanging(self._console, label, body, indent, deeper)
