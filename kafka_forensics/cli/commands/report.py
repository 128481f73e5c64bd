"""`report`: one HTML page about an incident, to be sent to people."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.commands.scan import INTERRUPTED, status_of
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.streams import Destination, say, screen_of
from kafka_forensics.errors import UsageError
from kafka_forensics.model.findings import without_payloads

if TYPE_CHECKING:
    from kafka_forensics.cli.outputs.report_page import Page
    from kafka_forensics.evidence.options import ScanOptions
    from kafka_forensics.questions.report import ReportOptions
    from kafka_forensics.report.document import Document

_DOCUMENT: Final = ".json"

ReportPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="What `scan` takes: log directories, archives, URIs; or alone a .json file that `scan --format json` wrote.",
    ),
    options.Read(),
]
PageFile = Annotated[
    Path,
    typer.Option("--output", metavar="FILE", parser=options.file_path, help="The page to write, never inside an input."),
    options.Written(),
]
Hashes = Annotated[bool, typer.Option("--hashes", help="Read every file once more for its SHA-256, and list them.")]


@options.flat
def report(
    paths: ReportPaths,
    output: PageFile,
    selection: options.BrokerSelection,
    reading: options.Reading,
    *,
    engine: options.Engine = "local",
    fail_on: options.FailOn = "none",
    as_of: options.AsOf = None,
    deep: options.Deep = None,
    hashes: Hashes = False,
    show_payloads: options.ShowPayloads = False,
    printing: options.Printing,
) -> int:
    """One HTML page about what a scan finds, which loads nothing and runs no script: what happened, and the worst partitions drawn.

    Replicas over offsets with their leader epochs, what each election would cut, who led and who was in sync, open and aborted
    transactions. From the JSON document of a scan only what stands in it can be drawn. Bytes of records are shown with
    --show-payloads only.
    """
    if choose("engine", engine, options.ENGINES) == "spark":
        raise UsageError(
            "report reads copies on this machine only",
            hint="run scan --engine spark --report page.html, or --format json --output scan.json and then report scan.json",
        )
    choose("severity", fail_on, options.FAIL_ON)
    from kafka_forensics.cli.outputs.report_page import check_ending
    from kafka_forensics.questions.report import ReportOptions

    check_ending(output)
    scan_options = reading.scan_options(selection, deep=deep, as_of=as_of)
    screen = screen_of(printing)
    wanted = ReportOptions(payloads=show_payloads, hashes=hashes)
    if any(path.lower().endswith(_DOCUMENT) for path in paths):
        page, incomplete, status = _of_document(paths, scan_options, wanted, fail_on)
    else:
        page, incomplete, status = _of_copies(paths, scan_options, wanted, fail_on, screen, quiet=printing.quiet)
    page.write(output)
    say(screen, [*([] if printing.quiet else [f"wrote {output}: {page.document.summary.verdict}"]), *incomplete])
    return status


def _own(wanted: "ReportOptions") -> list[str]:
    """What was asked for that no scan is asked for, as it is typed."""
    return [*(["--hashes"] if wanted.hashes else []), *(["--show-payloads"] if wanted.payloads else [])]


def _of_document(
    paths: list[str], scan_options: "ScanOptions", wanted: "ReportOptions", fail_on: str
) -> tuple["Page", list[str], int]:
    """The page of an answer that lies in a file, what to say of what was not read, and the status. Raises UsageError for options
    that would need the copies."""
    from kafka_forensics.cli.outputs.report_page import Page, selecting
    from kafka_forensics.report.document import read_document
    from kafka_forensics.report.page import Provenance
    from kafka_forensics.storage.documents import document_bytes

    if len(paths) > 1:
        raise UsageError("a scan's document is given alone", hint="make one of all copies with `scan PATH... --format json`")
    needing = [*_own(wanted), *selecting(scan_options)]
    if needing:
        raise UsageError(f"{needing[0]} does not go with a scan's document", hint="give the log directories themselves")
    data = document_bytes(paths[0], hint="give a file that `scan --format json` wrote, or the log directories themselves")
    found = read_document(data, paths[0])
    command = shlex.join(["kafka-forensics", "report", *paths])
    page = Page(found, Provenance(command, document=paths[0]), {})
    return page, [], 3 if found.incomplete else _status(found, fail_on)


def _of_copies(
    paths: list[str], scan_options: "ScanOptions", wanted: "ReportOptions", fail_on: str, screen: Destination, *, quiet: bool
) -> tuple["Page", list[str], int]:
    """The same of a scan of the copies."""
    from kafka_forensics.cli.outputs.report_page import Asked, page_of
    from kafka_forensics.cli.outputs.words import incomplete_lines
    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.report import report as reported_of

    with Progress(screen, quiet=quiet) as progress:
        reported = reported_of(paths, scan_options, wanted, progress)
    result = reported.result
    if not wanted.payloads:
        result.findings = [without_payloads(finding) for finding in result.findings]
    page = page_of(reported, Asked("report", paths, scan_options, _own(wanted)))
    status = INTERRUPTED if result.is_interrupted else status_of(result.findings, fail_on, incomplete=bool(result.incomplete))
    return page, incomplete_lines(result), status


def _status(document: "Document", fail_on: str) -> int:
    """As that of `scan`."""
    from kafka_forensics.report.document import SEVERITIES

    grave = SEVERITIES[: SEVERITIES.index(fail_on) + 1] if fail_on != "none" else ()
    return int(any(finding.severity in grave for finding in document.findings))
