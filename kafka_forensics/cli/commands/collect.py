"""`collect`: write a bundle of facts about a broker's log directories, to be judged on another machine."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, cast

import typer
from msgspec import Struct

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.ranges import OFFSETS_HELP, offsets
from kafka_forensics.cli.streams import COMMAND_START, Screen, say, screen_of
from kafka_forensics.errors import UsageError
from kafka_forensics.model.amounts import size
from kafka_forensics.model.constants import INT64_MAX
from kafka_forensics.model.safe_text import printable, unquoted
from kafka_forensics.storage.disks import UNFINISHED

if TYPE_CHECKING:
    from kafka_forensics.questions.collect import Collected, CollectOptions, Estimate, PseudonymMap, RequestedRecords

_RECORDS_PATTERN: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249}):(?P<partition>[0-9]{1,10}):(?P<offsets>[0-9.]+)")
_MEGA: Final = 1_000_000

LogDirs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG_DIR",
        help="All log directories of one broker, or a partition directory. NAME=LOG_DIR names the broker.",
    ),
    options.InputMark(),
]
BundleOutput = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE.kfb",
        parser=options.file_path,
        help="The bundle to write. Required without --estimate.",
    ),
    options.OutputMark(suffixes=("", UNFINISHED)),
]
WithRecords = Annotated[
    list[str] | None,
    typer.Option(
        "--with-records",
        metavar="TOPIC:PARTITION:A..B",
        help=f"Include whole batches, with keys and values, of offsets A to B, {OFFSETS_HELP} Repeatable; @FILE reads them from a"
        " file.",
    ),
]
Compacted = Annotated[
    str | None,
    typer.Option(
        "--compacted",
        metavar="GLOB",
        help="Also treat these topics as compacted, and hash their keys.",
        rich_help_panel=options.SELECTION,
    ),
]
Hash = Annotated[
    bool, typer.Option("--hash", help="Add the SHA-256 of every file; reads each file twice.", rich_help_panel=options.OUTPUT)
]
MaxRate = Annotated[
    float | None,
    typer.Option(
        "--max-rate", metavar="MB/S", min=0.001, help="Read at most this many MB a second.", rich_help_panel=options.INPUT
    ),
]
EstimateOnly = Annotated[bool, typer.Option("--estimate", help="Print the expected size and time; write nothing.")]
Redact = Annotated[
    bool,
    typer.Option(
        "--redact",
        help="Replace names of topics, groups, clients, transactional ids, hosts and clusters by pseudonyms. Requires"
        " --redact-map.",
    ),
]
RedactMap = Annotated[
    Path | None,
    typer.Option(
        "--redact-map",
        metavar="FILE",
        parser=options.file_path,
        help="The private file of the names for --redact; created if missing. The same file gives the same pseudonyms.",
    ),
    options.OutputMark(),
]


class RedactionOptions(Struct, frozen=True, kw_only=True):
    """Whether a bundle contains pseudonyms instead of names."""

    redact: Redact = False
    redact_map: RedactMap = None

    def pseudonyms(self, *, kept: bool) -> "PseudonymMap | None":
        """The pseudonyms of names, read from the map if they are to be `kept`; None without --redact.

        Raises UsageError for --redact-map without --redact, for --redact without --redact-map if `kept`, and for a map that cannot
        be used.
        """
        if not self.redact:
            if self.redact_map is not None:
                raise UsageError("--redact-map requires --redact", hint="add --redact")
            return None
        from kafka_forensics.questions.collect import PseudonymMap

        if not kept:
            return PseudonymMap.in_memory()
        if self.redact_map is None:
            hint = "add --redact-map names.json: it holds the key and the name for each pseudonym; do not share it"
            raise UsageError("--redact needs --redact-map FILE", hint=hint)
        return PseudonymMap.at(self.redact_map)


@options.expand_option_groups
def collect(
    log_dirs: LogDirs,
    selection: options.Selection,
    access: options.AccessOptions,
    *,
    output: BundleOutput = None,
    live: options.Live = False,
    deep: options.Deep = None,
    with_records: WithRecords = None,
    compacted: Compacted = None,
    hashes: Hash = False,
    max_rate: MaxRate = None,
    estimate: EstimateOnly = False,
    redaction: RedactionOptions,
    console: options.VerboseConsoleOptions,
) -> int:
    """Write one small file that holds what other commands need to judge a broker's logs, without keys and values.

    Run it on each broker, stopped or running (--live). Copy the bundles to one place, and give them as PATHs to any other
    command. The same command continues an interrupted bundle. With --redact, copies of one map on all brokers give the same
    pseudonyms.
    """
    from kafka_forensics.questions.collect import CollectOptions, at_low_priority, estimate_of

    if output is not None and not output.name.endswith(".kfb"):
        raise UsageError(f"{output}: a bundle's name ends in .kfb", hint=f"write --output {output}.kfb")
    if output is None and not estimate:
        hint = "give the bundle a name, --output broker-1.kfb; or ask for an --estimate"
        raise UsageError("missing option '--output'", hint=hint)
    screen = screen_of(console)
    if redaction.redact and with_records:
        hint = "leave out one of them: pseudonyms do not replace the content of records"
        raise UsageError("--redact and --with-records contradict each other", hint=hint)
    pseudonyms = redaction.pseudonyms(kept=not estimate)
    collect_options = CollectOptions(
        replace(access.scope(selection), live=live, deep=deep),
        tuple(map(_requested_records, _values(with_records or ()))),
        compacted,
        hashes,
        None if max_rate is None else int(max_rate * _MEGA),
        pseudonyms,
    )
    with at_low_priority():
        if output is None or estimate:
            sys.stdout.write(_estimate_line(estimate_of(log_dirs, collect_options)))
            return 0
        collected = _write_bundle(log_dirs, collect_options, pseudonyms, output, screen)
    lines = [] if screen.quiet else _summary(collected, output)
    say(screen, [*lines, *(f"incomplete: {unquoted(unread.path)}: {printable(unread.reason)}" for unread in collected.incomplete)])
    return options.EXIT_INCOMPLETE if collected.incomplete else 0


def _write_bundle(
    log_dirs: list[str], collect_options: "CollectOptions", pseudonyms: "PseudonymMap | None", output: Path, screen: Screen
) -> "Collected":
    """Write the bundle under a temporary name, and rename it once it is complete and on disk."""
    from kafka_forensics.questions.collect import collect as collect_facts
    from kafka_forensics.storage.disks import FULL, why

    unfinished = output.with_name(output.name + UNFINISHED)
    try:
        with _open_unfinished(unfinished) as file, Progress(screen) as progress:
            collected = collect_facts(log_dirs, collect_options, file, progress)
            os.fsync(file.fileno())
            if pseudonyms is not None:
                pseudonyms.keep()  # before the bundle is complete: its pseudonyms must never be without their names
            unfinished.replace(output)
    except OSError as error:
        hint = "give --output another place"
        if error.errno in FULL:
            hint = f"make room, and run the same command again: it goes on with {unfinished}"
        raise UsageError(f"cannot write {output}: {why(error, str(output))}", hint=hint) from error
    return collected


@contextmanager
def _open_unfinished(path: Path) -> Iterator[BinaryIO]:
    """The unfinished bundle, open for reading and writing and locked; removed if it is empty at the end.

    Raises UsageError if another process writes it.
    """
    import fcntl

    in_use = UsageError(f"{path} is being written by another process", hint="wait for it, or give --output another name")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as raw:
        try:
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise in_use from error
        if not path.exists() or not os.path.samestat(os.fstat(raw.fileno()), path.stat()):
            raise in_use  # the other process has just renamed it
        try:
            yield cast("BinaryIO", raw)
        finally:
            if not os.fstat(raw.fileno()).st_size:
                path.unlink(missing_ok=True)


def _requested_records(text: str) -> "RequestedRecords":
    from kafka_forensics.questions.collect import RequestedRecords

    match = _RECORDS_PATTERN.fullmatch(text)
    if match is None:
        raise UsageError(f"--with-records {text!r} names no records", hint="write TOPIC:PARTITION:A..B, such as orders:0:300..344")
    start, end = offsets(match["offsets"])
    return RequestedRecords(match["topic"], int(match["partition"]), start or 0, INT64_MAX if end is None else end)


def _values(texts: Iterable[str]) -> Iterator[str]:
    """The values of --with-records, those in a file too. Raises UsageError if it cannot be read."""
    for text in texts:
        if not text.startswith("@"):
            yield text
            continue
        try:
            yield from Path(text[1:]).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            hint = "after @ give the file that `recover` wrote, with one TOPIC:PARTITION:A..B a line"
            raise UsageError(f"cannot read {text[1:]}: {reason}", hint=hint) from error


def _summary(collected: "Collected", output: Path) -> list[str]:
    share = f" ({100 * collected.bundle_bytes / collected.bytes_in_all:.2g} %)" if collected.bytes_in_all else ""
    reused = f", {size(collected.bytes_kept)} known already" if collected.bytes_kept else ""
    depth = "every record decoded" if collected.is_deep else "batches only"
    facts = f"{collected.logs} logs, {collected.batches} batches, {depth}{reused}"
    lines = [f"{size(collected.bundle_bytes)} of facts about {size(collected.bytes_in_all)}{share}: {facts}"]
    if collected.left_out:
        lines.append(f"{collected.left_out} files are listed without their bytes: not Kafka files")
    scan_command = f"{options.PROGRAM} scan {printable(shlex.quote(str(output)))}"
    return [*lines, "scan it together with the bundles of the other brokers:", f"{COMMAND_START}{scan_command}"]


def _estimate_line(estimate: "Estimate") -> str:
    from kafka_forensics.wording import duration

    files = f"{size(estimate.bytes_in_all)} in {estimate.files} files"
    time = duration(round(estimate.seconds) * 1000)
    sample = f"{size(estimate.sampled_bytes)} that were read"
    return f"about {size(estimate.bundle_bytes)} for {files}, in about {time}; by {sample}\n"
