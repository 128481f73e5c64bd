"""The page of `report` and of `scan --report`: its content, its file, and its provenance."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kafka_forensics.cli.outputs.words import next_command
from kafka_forensics.cli.streams import open_output
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions, without_secrets
from kafka_forensics.questions.report import PageFacts, ReportContent
from kafka_forensics.report.document import Document
from kafka_forensics.report.page import Provenance, page

_ENDINGS: Final = (".html", ".htm")


def check_ending(output: Path) -> None:
    """Raise UsageError unless the file name ends in .html or .htm."""
    if output.suffix.lower() not in _ENDINGS:
        raise UsageError(f"{output} does not end in .html", hint=f"name the page, for example {output.with_suffix('.html')}")


def write_page(output: Path, document: Document, provenance: Provenance, facts: PageFacts, option: str = "--output") -> None:
    """Write the page. Raises UsageError, which names the option, if the file cannot be written."""
    text = page(document, facts, provenance)
    with open_output(output, color="never", private=True, option=option) as to:
        to.stream.write(text)


def scan_provenance(
    reported: ReportContent, command: str, paths: Sequence[str], options: ScanOptions, command_options: Sequence[str]
) -> Provenance:
    """Where a scan's answer comes from; `command_options` are those that only the command has, as they are typed."""
    paths, options = without_secrets(paths, options)
    result = reported.result
    return Provenance(
        command=shlex.join(["kafka-forensics", command, *paths, *selection_arguments(options), *command_options]),
        next_command=next_command(result),
        records_decoded=result.totals.records_decoded,
        live=options.live,
        is_by_spark=result.engine == "spark",
    )


def selection_arguments(options: ScanOptions) -> list[str]:
    """The options of a scan that affect its answer, as they are typed; values that may be secret are masked."""
    copied = {None: [], CopyExtent.WHOLE: ["--whole"], CopyExtent.PARTIAL: ["--partial"]}
    deep = {None: [], True: ["--deep"], False: ["--no-deep"]}
    values = (
        *(("--topic", options.topic_glob), ("--partition", options.partition), ("--broker", options.broker)),
        ("--as-of", options.as_of_ms),
    )
    arguments = [text for name, value in values if value is not None for text in (name, str(value))]
    arguments += [*copied[options.copied], *deep[options.deep], *(["--live"] if options.live else [])]
    for name, _ in options.storage_options:
        arguments += ["--storage-option", f"{name}=***"]
    return arguments
