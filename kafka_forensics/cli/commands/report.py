"""`report`: one HTML page about an incident, to be sent to people."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.commands.scan import status_of
from kafka_forensics.cli.options import choose
from kafka_forensics.cli.streams import Destination, check_output, open_output, say, screen_of
from kafka_forensics.errors import UsageError

if TYPE_CHECKING:
    from kafka_forensics.evidence.options import ScanOptions
    from kafka_forensics.questions.report import Reported
    from kafka_forensics.report.document import Document
    from kafka_forensics.report.page import Provenance

_ENDINGS: Final = (".html", ".htm")
_DOCUMENT: Final = ".json"

ReportPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="What `scan` takes: log directories, archives, URIs; or alone a .json file that `scan --format json` wrote.",
    ),
]
Page = Annotated[
    Path,
    typer.Option("--output", metavar="FILE", parser=options.file_path, help="The page to write, never inside an input."),
]
Hashes = Annotated[bool, typer.Option("--hashes", help="Read every file once more for its SHA-256, and list them.")]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a page is made of beside the details of partitions."""

    document: "Document"
    provenance: "Provenance"
    reported: "Reported | None"


@options.flat
def report(
    paths: ReportPaths,
    output: Page,
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
            hint="run scan --engine spark --format json --output scan.json, then report scan.json",
        )
    choose("severity", fail_on, options.FAIL_ON)
    if output.suffix.lower() not in _ENDINGS:
        raise UsageError(f"{output} does not end in .html", hint=f"name the page, for example {output.with_suffix('.html')}")
    check_output(output, paths)
    scan_options = reading.scan_options(selection, deep=deep, as_of=as_of)
    screen = screen_of(printing)
    asked = _asked(hashes=hashes, payloads=show_payloads)
    if any(path.lower().endswith(_DOCUMENT) for path in paths):
        answer = _of_document(paths, scan_options, asked)
    else:
        answer = _of_copies(paths, scan_options, asked, screen, quiet=printing.quiet)

    from kafka_forensics.report.page import page

    text = page(answer.document, {} if answer.reported is None else answer.reported.details, answer.provenance)
    with open_output(output, no_color=True) as to:
        to.stream.write(text)
    _say_rest(answer, output, screen, quiet=printing.quiet)
    return _status(answer, fail_on)


def _asked(*, hashes: bool, payloads: bool) -> tuple[str, ...]:
    """Options that are not the scan's, as they are typed."""
    return (*(["--hashes"] if hashes else []), *(["--show-payloads"] if payloads else []))


def _of_document(paths: list[str], scan_options: "ScanOptions", asked: tuple[str, ...]) -> _Answer:
    """The answer that lies in a file. Raises UsageError for options that would need the copies."""
    from kafka_forensics.report.document import read_document
    from kafka_forensics.report.page import Provenance

    if len(paths) > 1:
        raise UsageError("a scan's document is given alone", hint="make one of all copies with `scan PATH... --format json`")
    needing = [*asked, *(_selecting(scan_options))]
    if needing:
        raise UsageError(f"{needing[0]} does not go with a scan's document", hint="give the log directories themselves")
    try:
        data = Path(paths[0]).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {paths[0]}: {error.strerror}", hint="give a file that `scan --format json` wrote") from error
    found = read_document(data, paths[0])
    return _Answer(found, Provenance(_command(paths, []), document=paths[0]), None)


def _of_copies(
    paths: list[str], scan_options: "ScanOptions", asked: tuple[str, ...], screen: Destination, *, quiet: bool
) -> _Answer:
    """The answer of a scan of the copies."""
    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.evidence.options import without_secrets
    from kafka_forensics.model.findings import without_payloads
    from kafka_forensics.questions.report import ReportOptions
    from kafka_forensics.questions.report import report as reported_of
    from kafka_forensics.report.document import document_of
    from kafka_forensics.report.page import Provenance

    wanted = ReportOptions(payloads="--show-payloads" in asked, hashes="--hashes" in asked)
    with Progress(screen, quiet=quiet) as progress:
        reported = reported_of(paths, scan_options, wanted, progress)
    result = reported.result
    if not wanted.payloads:
        result.findings = [without_payloads(finding) for finding in result.findings]
    bare, _ = without_secrets(paths, scan_options)
    provenance = Provenance(
        _command(bare, [*_selecting(scan_options), *asked]),
        tuple(bare),
        None,
        reported.oldest_ms,
        reported.newest_ms,
        result.totals.records_decoded,
        scan_options.live,
        reported.hashes,
    )
    return _Answer(document_of(result), provenance, reported)


def _selecting(scan_options: "ScanOptions") -> list[str]:
    """The options of a scan as they are typed, but for those that change no answer; values that may be secret are masked."""
    from kafka_forensics.evidence.ledger import Extent

    copied = {None: [], Extent.WHOLE: ["--whole"], Extent.PARTIAL: ["--partial"]}
    deep = {None: [], True: ["--deep"], False: ["--no-deep"]}
    words: list[str] = []
    for name, value in (
        ("--topic", scan_options.topic_glob),
        ("--partition", scan_options.partition),
        ("--broker", scan_options.broker),
        ("--as-of", scan_options.as_of_ms),
    ):
        words += [] if value is None else [name, str(value)]
    words += [*copied[scan_options.copied], *deep[scan_options.deep], *(["--live"] if scan_options.live else [])]
    for name, _ in scan_options.storage_options:
        words += ["--storage-option", f"{name}=***"]
    return words


def _command(paths: list[str], words: list[str]) -> str:
    """The command line as it can be typed again."""
    return shlex.join(["kafka-forensics", "report", *paths, *words])


def _say_rest(answer: _Answer, output: Path, screen: Destination, *, quiet: bool) -> None:
    from kafka_forensics.cli.outputs.words import incomplete_lines

    lines = [] if quiet else [f"wrote {output}: {answer.document.summary.verdict}"]
    if answer.reported is not None:
        lines += incomplete_lines(answer.reported.result)
    say(screen, lines)


def _status(answer: _Answer, fail_on: str) -> int:
    """As that of `scan`."""
    if answer.reported is not None:
        return status_of(answer.reported.result.findings, fail_on, incomplete=bool(answer.reported.result.incomplete))
    if answer.document.incomplete:
        return 3
    from kafka_forensics.report.document import SEVERITIES

    grave = SEVERITIES[: SEVERITIES.index(fail_on) + 1] if fail_on != "none" else ()
    return int(any(finding.severity in grave for finding in answer.document.findings))
