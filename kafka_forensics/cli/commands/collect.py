"""`collect`: write a bundle of facts about a broker's log directories, to be judged on another machine."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, cast

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.progress import Progress
from kafka_forensics.cli.streams import Screen, printable, say, screen_of
from kafka_forensics.errors import UsageError
from kafka_forensics.model.amounts import size
from kafka_forensics.storage.disks import UNFINISHED

if TYPE_CHECKING:
    from kafka_forensics.questions.collect import Collected, CollectOptions, Estimate, PseudonymMap, RequestedRecords

_RECORDS_PATTERN: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249}):(?P<partition>[0-9]{1,10}):(?P<start>[0-9]{1,19})-(?P<end>[0-9]{1,19})"
)
_MEGA: Final = 1_000_000

LogDirs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG_DIR",
        help="A broker's log directories, all of them in one bundle; or a partition directory. NAME=LOG_DIR names the broker.",
    ),
    options.InputMark(),
]
BundleOutput = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE.kfb",
        parser=options.file_path,
        help="The bundle, never inside a log directory. Needed unless --estimate is given.",
    ),
    options.OutputMark(suffixes=("", UNFINISHED)),
]
WithRecords = Annotated[
    list[str] | None,
    typer.Option(
        "--with-records",
        metavar="TOPIC:PARTITION:FROM-TO",
        help="Take the batches that hold these offsets whole, payloads and all (TO excluded); may be given again.",
    ),
]
Compacted = Annotated[
    str | None,
    typer.Option(
        "--compacted",
        metavar="GLOB",
        help="Hash keys of these topics, too: they are compacted, though no cleaner's checkpoint or controller's log here says so.",
    ),
]
Hash = Annotated[bool, typer.Option("--hash", help="Take the SHA-256 of every file, too: each is then read twice.")]
MaxRate = Annotated[
    float | None, typer.Option("--max-rate", metavar="MB/S", min=0.001, help="Read at most so many million bytes a second.")
]
EstimateOnly = Annotated[
    bool, typer.Option("--estimate", help="Say how large the bundle will be and how long it takes; make none.")
]
Redact = Annotated[
    bool,
    typer.Option(
        "--redact",
        help="Put pseudonyms in the place of the names of topics, groups, clients, transactional ids, hosts and clusters; needs"
        " --redact-map.",
    ),
]
RedactMap = Annotated[
    Path | None,
    typer.Option(
        "--redact-map",
        metavar="FILE",
        parser=options.file_path,
        help="With --redact: the private file with the key and the names that pseudonyms stand for. Created if it does not exist;"
        " the same file gives the same pseudonyms.",
    ),
    options.OutputMark(),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionOptions:
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
            hint = "add --redact-map names.json: it keeps the key and the name behind each pseudonym; keep it to yourself"
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
    """Take all that is needed to judge a broker's logs elsewhere, without any payload: a small file.

    Run it on each broker, where the logs lie, running (--live) or stopped; carry the bundles to one place and give them to any
    other command as PATHs. The same command goes on with a bundle that was interrupted. With --redact, the bundle contains
    pseudonyms instead of names: copies of one map on all brokers give the same pseudonyms.
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
        tuple(map(_requested_records, with_records or ())),
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
    say(screen, [*lines, *(f"incomplete: {printable(unread.path)}: {printable(unread.reason)}" for unread in collected.incomplete)])
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
    if match is None or int(match["start"]) >= int(match["end"]):
        raise UsageError(f"--with-records {text} names no records", hint="write TOPIC:PARTITION:FROM-TO, such as orders:0:300-345")
    return RequestedRecords(match["topic"], int(match["partition"]), int(match["start"]), int(match["end"]))


def _summary(collected: "Collected", output: Path) -> list[str]:
    share = f" ({100 * collected.bundle_bytes / collected.bytes_in_all:.2g} %)" if collected.bytes_in_all else ""
    reused = f", {size(collected.bytes_kept)} known already" if collected.bytes_kept else ""
    depth = "every record decoded" if collected.is_deep else "batches only"
    facts = f"{collected.logs} logs, {collected.batches} batches, {depth}{reused}"
    lines = [f"{size(collected.bundle_bytes)} of facts about {size(collected.bytes_in_all)}{share}: {facts}"]
    if collected.left_out:
        lines.append(f"{collected.left_out} files are listed without their bytes: not Kafka files")
    scan_command = f"{options.PROGRAM} scan {printable(shlex.quote(str(output)))}"
    return [*lines, f"scan it together with the bundles of other brokers: {scan_command}"]


def _estimate_line(estimate: "Estimate") -> str:
    from kafka_forensics.wording import duration

    files = f"{size(estimate.bytes_in_all)} in {estimate.files} files"
    time = duration(round(estimate.seconds) * 1000)
    sample = f"{size(estimate.sampled_bytes)} that were read"
    return f"about {size(estimate.bundle_bytes)} for {files}, in about {time}; by {sample}\n"
