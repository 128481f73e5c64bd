"""A scan's answer in every format of the contract; text is made by `scan_text`."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from kafka_forensics.cli.outputs.rows import tsv_lines
from kafka_forensics.cli.streams import Destination, delayed_interruptions, open_output
from kafka_forensics.export import json_document
from kafka_forensics.model.findings import Finding, without_payloads
from kafka_forensics.model.results import BrokerSummary, PartitionSummary, ScanResult
from kafka_forensics.wording import (
    severity_order,
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

    Text leaves nothing out if `verbose`, and groups findings `by` "incident" or "partition". Metrics include `status`, the exit
    status of the command, and `as_of_ms`, its option --as-of.
    """
    match format_name:
        case "text":
            from kafka_forensics.cli.outputs.scan_text import write_text

            write_text(result, to, verbose=verbose, by=by)
        case "tsv":
            worst_first = sorted(result.findings, key=severity_order)
            to.stream.writelines(tsv_lines(json_document.FINDING_COLUMNS, map(json_document.finding_object, worst_first)))
        case "prometheus":
            from kafka_forensics.cli.outputs import prometheus

            to.stream.writelines(prometheus.lines(result, status, as_of_ms))
        case _:
            makers = {"json": json_document.document, "jsonl": json_document.lines}
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

    def on_final(self, partition: PartitionSummary, findings: list[Finding]) -> None:
        """Write a partition completely, or not at all if the user interrupts."""
        shown = findings if self._show_payloads else map(without_payloads, findings)
        with delayed_interruptions():
            self._write(json_document.partition_lines(partition, shown))
            self._written += 1

    def end(self, result: ScanResult) -> None:
        """Write the rest of the answer: all of it if the scan never called `on_start`."""
        if self._stream is None:
            self.on_start(result.brokers)
        self._write(json_document.lines_at_end(result, self._written))

    def _write(self, lines: Iterable[str]) -> None:
        assert self._stream is not None
        self._stream.writelines(lines)
        self._stream.flush()
