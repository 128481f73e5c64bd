"""A scan's answer in every format of the contract; a table for a terminal is made by `scan_table`."""

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TextIO

from kafka_forensics.cli.outputs.rows import markdown, tsv_lines
from kafka_forensics.cli.outputs.words import (
    by_kind,
    cost_words,
    crowded_brokers,
    headline,
    incomplete_lines,
    name,
    nothing_found,
    place_words,
    replica_words,
    summary_lines,
)
from kafka_forensics.cli.streams import Destination, delayed_interruptions, open_output, printable, wrapped
from kafka_forensics.export import json_document
from kafka_forensics.model.amounts import plural
from kafka_forensics.model.findings import Finding, without_payloads
from kafka_forensics.model.incidents import Incident
from kafka_forensics.model.results import VERDICTS, BrokerSummary, PartitionSummary, ScanResult
from kafka_forensics.wording import (
    advice,
    incident_advice,
    incident_message,
    incident_time,
    incident_title,
    message,
    severity_order,
    title,
)


def write_result(
    result: ScanResult,
    format_name: str,
    to: Destination,
    *,
    verbose: bool = False,
    by: str = "incident",
    status: int = 0,
    as_of_ms: int | None = None,
) -> None:
    """Write `result` to `to` in one of the formats of `options.SCAN_FORMATS`.

    A table leaves nothing out if `verbose`, and groups findings `by` "incident" or "partition". Metrics include `status`, the exit
    status of the command, and `as_of_ms`, its option --as-of.
    """
    match format_name:
        case "table" | "report":
            from kafka_forensics.cli.outputs.scan_table import write_table

            is_report = format_name == "report"
            write_table(result, replace(to, colour=to.colour and not is_report), verbose=verbose, by=by)
            paragraphs = [*summary_lines(result), *incomplete_lines(result)] if is_report else []
            before = "\n" if paragraphs and (result.partitions or result.findings) else ""
            to.stream.writelines([before, *(f"{line}\n" for line in wrapped(paragraphs, to.width))])
        case "tsv":
            gravest_first = sorted(result.findings, key=severity_order)
            to.stream.writelines(tsv_lines(json_document.FINDING_COLUMNS, map(json_document.finding_object, gravest_first)))
        case "prometheus":
            from kafka_forensics.cli.outputs import prometheus

            to.stream.writelines(prometheus.lines(result, status, as_of_ms))
        case _:
            makers = {"json": json_document.document, "jsonl": json_document.lines, "markdown": report_lines}
            to.stream.writelines(makers[format_name](result))


class PartitionLinesWriter:
    """A `Listener` that writes the JSON Lines of a scan while it runs: each partition once its findings are final, at the `end` the
    rest. It opens the output when the scan begins.

    The lines are those that `write_result` writes.
    """

    def __init__(self, output: Path | None, *, show_payloads: bool) -> None:
        self._output, self._show_payloads = output, show_payloads
        self._open = ExitStack()
        self._stream: TextIO | None = None
        self._written = 0

    def __enter__(self) -> Self:
        self._open.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.__exit__(kind, error, trace)

    def on_start(self, brokers: list[BrokerSummary]) -> None:
        """Write the brokers."""
        self._stream = self._open.enter_context(open_output(self._output, color="never", private=self._show_payloads)).stream
        self._write(json_document.broker_lines(brokers))

    def settled(self, partition: PartitionSummary, findings: list[Finding]) -> None:
        """Write a partition completely, or not at all if the user interrupts."""
        shown = findings if self._show_payloads else map(without_payloads, findings)
        with delayed_interruptions():
            self._write(json_document.partition_lines(partition, shown))
            self._written += 1

    def end(self, result: ScanResult) -> None:
        """Write the rest of the answer: all of it if the scan never called `begun`."""
        if self._stream is None:
            self.on_start(result.brokers)
        self._write(json_document.lines_at_end(result, self._written))

    def _write(self, lines: Iterable[str]) -> None:
        assert self._stream is not None
        self._stream.writelines(lines)
        self._stream.flush()


_CODE: Final = re.compile(r"`([^`]+)`")


def report_lines(result: ScanResult) -> Iterator[str]:
    """A scan's answer as Markdown, for a ticket or a review: the verdict, partitions worst first, every finding."""
    verdict, *totals = summary_lines(result)
    yield f"# kafka-forensics: {markdown(verdict)}\n\n"
    yield from (f"{markdown(line)}  \n" for line in [*totals, *incomplete_lines(result)])
    if result.incidents:
        yield "\n## Incidents\n"
    for incident in result.incidents:
        yield f"\n### {markdown(_incident_title(incident))} ({incident.severity.value}, {incident.confidence.value})\n\n"
        yield f"{markdown(incident_message(incident))}  \nFirst: {markdown(incident_advice(incident))}\n"
    partitions = [partition for partition in result.partitions if partition.verdict != "clean" or partition.not_read]
    if partitions:
        yield "\n## Partitions\n\n| partition | verdict | replicas |\n| --- | --- | --- |\n"
        gravest: dict[tuple[str | None, int | None], tuple[int, bool, int]] = {}
        for finding in sorted(result.findings, key=severity_order, reverse=True):
            gravest[finding.place.topic, finding.place.partition] = severity_order(finding)

        def order(summary: PartitionSummary) -> tuple[int, tuple[int, bool, int]]:
            return -VERDICTS.index(summary.verdict), gravest.get((summary.topic, summary.partition), (1, True, 0))

        for partition in sorted(partitions, key=order):
            yield f"| {markdown(name(partition.topic, partition.partition))} | {partition.verdict} | {_replicas(partition)} |\n"
    if clean := len(result.partitions) - len(partitions):
        yield f"\n{plural(clean, 'partition')}: {nothing_found(result)}.\n"
    if result.findings:
        yield "\n## Findings\n"
    crowded = crowded_brokers(result)
    for group in by_kind(result.findings):
        first = group[0]
        yield f"\n### {markdown(first.kind)}: {markdown(title(first.kind))} ({first.severity.value}, {first.confidence.value})\n\n"
        for finding in group:
            yield f"- {markdown(message(finding))}  \n"
            if where := place_words(finding.place, crowded):
                yield f"  Where: {markdown(where)}  \n"
            if step := advice(finding):
                yield f"  Advice: {_advice_with_code(step)}\n"


def _incident_title(incident: Incident) -> str:
    """The title of an incident: what happened, when, to how many partitions, and what was lost."""
    moment, name = incident_time(incident), f" ({incident.known_as})" if incident.known_as is not None else ""
    cost = cost_words(incident)
    words = f"{incident_title(incident)}{f', {moment}' if moment else ''}{name}: {plural(len(incident.partitions), 'partition')}"
    return words + (f", {cost}" if cost else "")


def _advice_with_code(step: str) -> str:
    """Advice with its commands as code and everything else as plain text."""
    return "".join(f"`{printable(part)}`" if number % 2 else markdown(part) for number, part in enumerate(_CODE.split(step)))


def _replicas(partition: PartitionSummary) -> str:
    replicas = [", ".join(filter(None, replica_words(replica))) for replica in partition.replicas]
    return "<br>".join(map(markdown, [headline(partition), *replicas]))
