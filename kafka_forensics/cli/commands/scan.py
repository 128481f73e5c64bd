"""`scan`: what is wrong with these log directories, on which replica, what was lost, which copy to keep."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_forensics.cli import options
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.streams import Destination, chosen_format, open_output, say, screen_of, shares_screen
from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding, Severity, without_payloads
from kafka_forensics.model.results import ScanResult

if TYPE_CHECKING:
    from kafka_forensics.cli.outputs.scan import LinesAsSettled
    from kafka_forensics.questions.report import Reported
    from kafka_forensics.scanning.judging.whole_scan import Listener


INTERRUPTED: Final = 130


@options.flat
def scan(
    paths: options.Paths,
    selection: options.BrokerSelection,
    reading: options.Reading,
    *,
    where: options.Workplace,
    fail_on: options.FailOn = "error",
    as_of: options.AsOf = None,
    deep: options.Deep = None,
    show_payloads: options.ShowPayloads = False,
    by: options.By = "incident",
    report: options.ReportFile = None,
    form: options.ScanForm,
    printing: options.VerbosePrinting,
) -> int:
    """What is wrong with these log directories, on which replica, what was lost, which copy to keep.

    Reads every PATH, compares the replicas of each partition, and never writes to what it reads. Ends with status 0 if nothing
    was found from --fail-on upwards, 1 if something was, 2 for a wrong command line, 3 if some input could not be read. Ctrl-C ends
    it with what was judged so far, and status 130; on Spark that is nothing, since its answers come together.
    """
    spark = where.on_spark()
    wanted = chosen_format(form.format_name, form.output, options.SCAN_FORMATS)
    choose("severity", fail_on, options.FAIL_ON)
    choose("view", by, options.VIEWS)
    if report is not None:
        from kafka_forensics.cli.outputs.report_page import check_ending

        check_ending(report)
    scan_options = reading.scan_options(selection, deep=deep, as_of=as_of)
    screen = screen_of(printing)
    with ExitStack() as until_written:
        lines = None
        if wanted == "jsonl" and not spark:
            lines = until_written.enter_context(_lines(form, show_payloads=show_payloads))
        closely = None if report is None else show_payloads
        if spark:
            answer = _run_on_spark(paths, scan_options, screen, where, quiet=printing.quiet)
        else:
            quiet = printing.quiet or (lines is not None and shares_screen(form.output))
            answer = _run(paths, scan_options, screen, lines, closely, quiet=quiet)
        result = answer.result
        if not show_payloads:
            result.findings = [without_payloads(finding) for finding in result.findings]
        status = INTERRUPTED if result.is_interrupted else exit_status(result, fail_on)
        if report is not None:  # first: who reads the answer may go away
            _write_page(report, answer, paths, scan_options, show_payloads=show_payloads)
        if lines is not None:
            lines.end(result)
    if lines is None:
        with open_output(form.output, color=printing.color, whole=wanted == "prometheus", private=show_payloads) as to:
            from kafka_forensics.cli.outputs.scan import write_result

            as_of_ms = scan_options.as_of_ms
            write_result(result, wanted, to, verbose=printing.says_all, by=by, status=status, as_of_ms=as_of_ms)
    told = wanted == "report" and form.output is None  # at its end
    _say_summary(result, screen, quiet=printing.quiet, live=reading.live, told=told)
    if report is not None and not printing.quiet:
        say(screen, [f"wrote {report}"])
    return status


def _lines(form: options.ScanForm, *, show_payloads: bool) -> "LinesAsSettled":
    from kafka_forensics.cli.outputs.scan import LinesAsSettled

    return LinesAsSettled(form.output, show_payloads=show_payloads)


@dataclass(slots=True)
class _Answer:
    """A scan's answer, and what only a page shows, None if none was asked for."""

    result: ScanResult
    reported: "Reported | None" = None


def _write_page(report: Path, answer: _Answer, paths: list[str], scan_options: ScanOptions, *, show_payloads: bool) -> None:
    from kafka_forensics.cli.outputs.report_page import Asked, page_of
    from kafka_forensics.questions.report import Reported

    by_spark = answer.result.engine == "spark"
    own = [*(["--engine", "spark"] if by_spark else []), *(["--show-payloads"] if show_payloads else [])]
    asked = Asked("scan" if by_spark else "report", paths, scan_options, own)  # the one that makes this page
    page_of(answer.reported or Reported(answer.result), asked).write(report, "--report")


def _run(
    paths: list[str],
    scan_options: ScanOptions,
    screen: Destination,
    listener: "Listener | None",
    closely: bool | None,
    *,
    quiet: bool,
) -> _Answer:
    """The answer of this machine; looked at `closely` for a page: with payloads, or without."""
    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.scanning.engine import local
    from kafka_forensics.scanning.judging.whole_scan import ScanInterruptedError

    with Progress(screen, quiet=quiet) as progress:
        if closely is not None:
            from kafka_forensics.questions.report import ReportOptions, report as reported_of

            reported = reported_of(paths, scan_options, ReportOptions(payloads=closely), progress, listener)
            return _Answer(reported.result, reported)
        try:
            return _Answer(local.scan(paths, scan_options, progress, listener))
        except ScanInterruptedError as interruption:
            return _Answer(interruption.result)


def _run_on_spark(
    paths: list[str], scan_options: ScanOptions, screen: Destination, where: options.Workplace, *, quiet: bool
) -> _Answer:
    from kafka_forensics.cli.spark_session import stopping
    from kafka_forensics.evidence.inputs import gather
    from kafka_forensics.questions.report import Reported, controller_histories
    from kafka_forensics.scanning.judging.whole_scan import ScanInterruptedError, interrupted_result
    from kafka_forensics.spark.job import scanned
    from kafka_forensics.spark.sessions import require_pyspark

    require_pyspark()
    inputs = gather(paths, scan_options, ids_later=True, scanned=True)
    result: ScanResult
    try:
        with stopping(screen, where, scan_options.jobs, quiet=quiet) as spark:
            result = scanned(spark, paths, scan_options, inputs)
    except ScanInterruptedError as interruption:
        result = interruption.result
    except KeyboardInterrupt:
        result = interrupted_result("spark", inputs, scan_options)
    return _Answer(result, reported=Reported(result, controller_histories(inputs)))


def exit_status(result: ScanResult, fail_on: str) -> int:
    """See `status_of`."""
    return status_of(result.findings, fail_on, incomplete=bool(result.incomplete))


def status_of(findings: list[Finding], fail_on: str, *, incomplete: bool) -> int:
    """3 if some input could not be read, else 1 if a finding is at or above `fail_on`, else 0."""
    if incomplete:
        return 3
    if fail_on == "none":
        return 0
    return int(any(finding.severity.rank >= Severity(fail_on).rank for finding in findings))


def _say_summary(result: ScanResult, screen: Destination, *, quiet: bool, live: bool, told: bool) -> None:
    """Say on stderr what was read and what came of it; not again where it was `told` with the answer."""
    from kafka_forensics.cli.outputs.words import incomplete_lines, live_lines, summary_lines

    lines = [] if told else incomplete_lines(result)
    if not quiet or not result.totals.partitions:  # that nothing was judged must not look like an answer
        lines = [*([] if told else summary_lines(result)), *([] if live or quiet else live_lines(result)), *lines]
    if lines and sys.stdout.isatty() and screen.stream.isatty():
        lines.insert(0, "")  # both on one screen
    say(screen, lines)
