"""`report`: one HTML page about an incident, for people who do not run this program."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, say, screen_of
from kafka_forensics.errors import UsageError
from kafka_forensics.model.findings import without_payloads

if TYPE_CHECKING:
    from kafka_forensics.evidence.options import ScanOptions
    from kafka_forensics.questions.report import ReportOptions

_DOCUMENT_SUFFIX: Final = ".json"

ReportPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="A PATH of `scan`: log directories, archives, URIs; or one .json file that `scan --format json` wrote.",
    ),
    options.InputMark(),
]
PageFile = Annotated[
    Path,
    typer.Option("--output", metavar="FILE", parser=options.file_path, help="The page to write."),
    options.OutputMark(),
]
Hashes = Annotated[
    bool,
    typer.Option("--hashes", help="List the SHA-256 of every file; reads each file twice.", rich_help_panel=options.OUTPUT),
]


@options.expand_option_groups
def report(
    paths: ReportPaths,
    output: PageFile,
    selection: options.BrokerSelection,
    reading: options.ReadOptions,
    *,
    fail_on: options.FailOn = "none",
    deep: options.Deep = None,
    hashes: Hashes = False,
    show_payloads: options.ShowPayloads = False,
    console: options.ConsoleOptions,
) -> int:
    """Write one HTML page about an incident: what happened, what it cost, and what each election would truncate.

    The page begins with the losses and the next step, and has a timeline of the cluster. It loads nothing and runs no script. Made
    from the JSON document of a scan it has no timeline and no elections. --show-payloads adds bytes of records.
    """
    from kafka_forensics.cli.outputs.report_page import check_ending
    from kafka_forensics.questions.report import ReportOptions

    check_ending(output)
    scan_options = reading.scan_options(selection, deep=deep)
    screen = screen_of(console)
    report_options = ReportOptions(payloads=show_payloads, hashes=hashes)
    if any(path.lower().endswith(_DOCUMENT_SUFFIX) for path in paths):
        verdict, incomplete, status = _write_from_document(output, paths, scan_options, report_options, fail_on)
    else:
        verdict, incomplete, status = _write_from_copies(output, paths, scan_options, report_options, fail_on, screen)
    say(screen, [*([] if screen.quiet else [f"wrote {output}: {verdict}"]), *incomplete])
    return status


def _report_only_options(report_options: "ReportOptions") -> list[str]:
    """The options in use that `scan` does not have, as they are typed."""
    return [*(["--hashes"] if report_options.hashes else []), *(["--show-payloads"] if report_options.payloads else [])]


def _write_from_document(
    output: Path, paths: list[str], scan_options: "ScanOptions", report_options: "ReportOptions", fail_on: str
) -> tuple[str, list[str], int]:
    """Write the page from the JSON document of a scan: (verdict, messages about unread inputs, exit status).

    Raises UsageError for options that only apply to copies.
    """
    from kafka_forensics.cli.outputs.report_page import selection_arguments, write_page
    from kafka_forensics.questions.report import PageFacts
    from kafka_forensics.report.document import read_document
    from kafka_forensics.report.page import Provenance
    from kafka_forensics.storage.documents import document_bytes

    if len(paths) > 1:
        raise UsageError(
            "give a scan's document without other paths", hint="make one of all copies with `scan PATH... --format json`"
        )
    if unusable := [*_report_only_options(report_options), *selection_arguments(scan_options)]:
        raise UsageError(f"{unusable[0]} cannot be used with a scan's document", hint="give the log directories")
    data = document_bytes(paths[0], hint="give a file that `scan --format json` wrote, or the log directories themselves")
    document = read_document(data, paths[0])
    provenance = Provenance(shlex.join([options.PROGRAM, "report", *paths]), document=paths[0])
    write_page(output, document, provenance, PageFacts())
    severities = (finding.severity for finding in document.findings)
    return document.summary.verdict, [], options.exit_status_of(severities, fail_on, incomplete=bool(document.incomplete))


def _write_from_copies(
    output: Path, paths: list[str], scan_options: "ScanOptions", report_options: "ReportOptions", fail_on: str, screen: Screen
) -> tuple[str, list[str], int]:
    """Write the page from a scan of the copies: (verdict, messages about unread inputs, exit status)."""
    from kafka_forensics.cli.outputs.report_page import scan_provenance, write_page
    from kafka_forensics.cli.outputs.words import incomplete_lines
    from kafka_forensics.questions.report import report as scan_for_report
    from kafka_forensics.report.document import document_of

    with Progress(screen) as progress:
        reported = scan_for_report(paths, scan_options, report_options, progress)
    result = reported.result
    if not report_options.payloads:
        result.findings = [without_payloads(finding) for finding in result.findings]
    document = document_of(result)
    provenance = scan_provenance(reported, "report", paths, scan_options, _report_only_options(report_options))
    write_page(output, document, provenance, reported.facts)
    return document.summary.verdict, incomplete_lines(result), options.exit_status(result, fail_on)
