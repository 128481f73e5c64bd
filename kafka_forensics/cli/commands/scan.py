"""`scan`: what is wrong with these log directories, on which replica, what was lost, which copy to keep."""

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, open_output, say, screen_of
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import without_payloads
from kafka_forensics.model.results import ScanResult

if TYPE_CHECKING:
    from kafka_forensics.questions.report import ReportContent, ReportOptions
    from kafka_forensics.scanning.judging.whole_scan import Listener


@options.expand_option_groups
def scan(
    paths: options.Paths,
    selection: options.BrokerSelection,
    reading: options.ReadOptions,
    *,
    engine: options.EngineOptions,
    fail_on: options.FailOn = "error",
    deep: options.Deep = None,
    show_payloads: options.ShowPayloads = False,
    by: options.By = "incident",
    report: options.ReportFile = None,
    output: options.ScanOutputOptions,
    console: options.VerboseConsoleOptions,
) -> int:
    """Find what is wrong with log directories, on which replica, what was lost, and which copy to keep.

    Reads every PATH and compares the replicas of each partition. Give all brokers of a cluster at once. Ctrl-C prints what was
    judged so far; on Spark, nothing.
    """
    spark = engine.on_spark()
    format_name = output.chosen_format()
    report_options = None
    if report is not None:
        from kafka_forensics.cli.outputs.report_page import check_ending
        from kafka_forensics.questions.report import ReportOptions

        check_ending(report)
        report_options = ReportOptions(payloads=show_payloads)
    scan_options = reading.scan_options(selection, deep=deep)
    screen = screen_of(console)
    with ExitStack() as until_written:
        lines = None
        if format_name == "jsonl" and not spark:
            from kafka_forensics.cli.outputs.scan import PartitionLinesWriter

            lines = until_written.enter_context(PartitionLinesWriter(output.output, show_payloads=show_payloads))
        scanned: ScanResult | ReportContent
        if spark:
            scanned = _run_on_spark(paths, scan_options, engine, screen)
        else:
            progress_screen = screen if lines is None else screen.without_progress_over(output.output)
            scanned = _run(paths, scan_options, report_options, lines, progress_screen)
        result = scanned if isinstance(scanned, ScanResult) else scanned.result
        if not show_payloads:
            result.findings = [without_payloads(finding) for finding in result.findings]
        status = options.exit_status(result, fail_on)
        if report is not None:  # before the answer: its reader may close the pipe
            _write_page(report, scanned, paths, scan_options, show_payloads=show_payloads)
        if lines is not None:
            lines.end(result)
    if lines is None:
        with open_output(output.output, color=console.color, whole=format_name == "prometheus", private=show_payloads) as to:
            from kafka_forensics.cli.outputs.scan import write_result

            as_of_ms = scan_options.as_of_ms
            write_result(result, format_name, to, verbose=console.is_verbose, by=by, status=status, as_of_ms=as_of_ms)
    _print_summary(result, screen, live=reading.live, names_readers=format_name != "text")
    if report is not None and not screen.quiet:
        say(screen, [f"wrote {report}"])
    return status


def _write_page(
    report: Path, scanned: "ScanResult | ReportContent", paths: list[str], scan_options: ScanOptions, *, show_payloads: bool
) -> None:
    """Write the HTML page, which names a command that writes the same page."""
    from kafka_forensics.cli.outputs.report_page import scan_provenance, write_page
    from kafka_forensics.questions.report import ReportContent
    from kafka_forensics.report.document import document_of

    reported = ReportContent(scanned) if isinstance(scanned, ScanResult) else scanned
    by_spark = reported.result.engine == "spark"
    typed_options = [*(["--engine", "spark"] if by_spark else []), *(["--show-payloads"] if show_payloads else [])]
    provenance = scan_provenance(reported, "scan" if by_spark else "report", paths, scan_options, typed_options)
    write_page(report, document_of(reported.result), provenance, reported.facts, "--report")


def _run(
    paths: list[str], scan_options: ScanOptions, report_options: "ReportOptions | None", listener: "Listener | None", screen: Screen
) -> "ScanResult | ReportContent":
    """Scan on this machine, with the details that a page shows if there are `report_options`."""
    from kafka_forensics.scanning.engine import local
    from kafka_forensics.scanning.judging.whole_scan import ScanInterruptedError

    with Progress(screen) as progress:
        if report_options is not None:
            from kafka_forensics.questions.report import report as scan_for_report

            return scan_for_report(paths, scan_options, report_options, progress, listener)
        try:
            return local.scan(paths, scan_options, progress, listener)
        except ScanInterruptedError as interruption:
            return interruption.result


def _run_on_spark(paths: list[str], scan_options: ScanOptions, engine: options.EngineOptions, screen: Screen) -> "ReportContent":
    from kafka_forensics.cli.spark_session import running_session
    from kafka_forensics.evidence.inputs import gather
    from kafka_forensics.questions.cluster_history import cluster_history
    from kafka_forensics.questions.report import PageFacts, ReportContent
    from kafka_forensics.scanning.judging.whole_scan import ScanInterruptedError, interrupted_result
    from kafka_forensics.spark.job import scan_on_spark
    from kafka_forensics.spark.sessions import require_pyspark

    require_pyspark()
    inputs = gather(paths, scan_options, ids_later=True, scanned=True)
    result: ScanResult
    try:
        with running_session(screen, engine, scan_options.jobs) as spark:
            result = scan_on_spark(spark, paths, scan_options, inputs)
    except ScanInterruptedError as interruption:
        result = interruption.result
    except KeyboardInterrupt:
        result = interrupted_result(inputs, scan_options)
    return ReportContent(result, facts=PageFacts(history=cluster_history(inputs.controller)))


def _print_summary(result: ScanResult, screen: Screen, *, live: bool, names_readers: bool) -> None:
    """Print what was read and found, if `names_readers` also where readers wait."""
    from kafka_forensics.cli.outputs.words import incomplete_lines, live_lines, summary_lines

    lines = []
    if not screen.quiet or not result.totals.partitions:  # an empty scan must not look like a clean one
        lines = [*summary_lines(result, names_readers=names_readers), *([] if live or screen.quiet else live_lines(result))]
    lines += incomplete_lines(result)
    if lines and sys.stdout.isatty() and screen.stream.isatty():
        lines.insert(0, "")  # after the answer on the same terminal
    say(screen, lines)
