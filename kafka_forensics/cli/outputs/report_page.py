"""The page of `report` and of `scan --report`: what it is made of, where it may be written, and how it says where it comes from."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_forensics.cli.streams import open_output
from kafka_forensics.errors import UsageError
from kafka_forensics.evidence.ledger import CopyExtent
from kafka_forensics.evidence.options import ScanOptions, without_secrets
from kafka_forensics.model.findings import TopicPartition
from kafka_forensics.questions.report import PartitionDetails, Reported
from kafka_forensics.report.document import Document, document_of
from kafka_forensics.report.page import Provenance, page

_ENDINGS: Final = (".html", ".htm")


@dataclass(frozen=True, slots=True)
class Page:
    """What a page is made of."""

    document: Document
    provenance: Provenance
    details: Mapping[TopicPartition, PartitionDetails]

    def write(self, output: Path, option: str = "--output") -> None:
        """Write it. Raises UsageError, which names the option, if the file cannot be written."""
        text = page(self.document, self.details, self.provenance)
        with open_output(output, color="never", private=True, option=option) as to:
            to.stream.write(text)


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line that a page is of."""

    command: str
    paths: Sequence[str]
    options: ScanOptions
    own: Sequence[str] = ()
    """Options that are the command's own, as they are typed."""


def check_ending(output: Path) -> None:
    """Raise UsageError unless the name of a page ends as one."""
    if output.suffix.lower() not in _ENDINGS:
        raise UsageError(f"{output} does not end in .html", hint=f"name the page, for example {output.with_suffix('.html')}")


def page_of(reported: Reported, asked: Asked) -> Page:
    """The page about a scan's answer."""
    bare, options = without_secrets(asked.paths, asked.options)
    result = reported.result
    command = shlex.join(["kafka-forensics", asked.command, *bare, *selecting(options), *asked.own])
    provenance = Provenance(
        command=command,
        paths=tuple(bare),
        oldest_ms=reported.oldest_ms,
        newest_ms=reported.newest_ms,
        records_decoded=result.totals.records_decoded,
        live=options.live,
        is_by_spark=result.engine == "spark",
        hashes=reported.hashes,
    )
    return Page(document_of(result), provenance, reported.details)


def selecting(options: ScanOptions) -> list[str]:
    """The options of a scan as they are typed, but for those that change no answer; values that may be secret are masked."""
    copied = {None: [], CopyExtent.WHOLE: ["--whole"], CopyExtent.PARTIAL: ["--partial"]}
    deep = {None: [], True: ["--deep"], False: ["--no-deep"]}
    words: list[str] = []
    for name, value in (
        ("--topic", options.topic_glob),
        ("--partition", options.partition),
        ("--broker", options.broker),
        ("--as-of", options.as_of_ms),
    ):
        words += [] if value is None else [name, str(value)]
    words += [*copied[options.copied], *deep[options.deep], *(["--live"] if options.live else [])]
    for name, _ in options.storage_options:
        words += ["--storage-option", f"{name}=***"]
    return words
