"""`collect`: an evidence bundle of a broker's log directories, made where they lie, judged anywhere."""

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, cast

import typer

from kafka_forensics.cli import options
from kafka_forensics.cli.streams import Destination, printable, say, screen_of
from kafka_forensics.errors import UsageError
from kafka_forensics.storage.disks import UNFINISHED

if TYPE_CHECKING:
    from kafka_forensics.questions.collect import Collected, CollectOptions, Estimate, PseudonymMap, RequestedRecords

_RECORDS: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249}):(?P<partition>[0-9]{1,10}):(?P<start>[0-9]{1,19})-(?P<end>[0-9]{1,19})"
)
_MEGA: Final = 1_000_000

LogDirs = Annotated[
    list[str],
    typer.Argument(
        metavar="LOG_DIR",
        help="A broker's log directories, all of them in one bundle; or a partition directory. NAME=LOG_DIR names the broker.",
    ),
    options.Read(),
]
BundleOutput = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE.kfb",
        parser=options.file_path,
        help="The bundle, never inside a log directory. Needed unless --estimate is given.",
    ),
    options.Written(suffixes=("", UNFINISHED)),
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
    options.Written(),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """Whether a bundle holds names."""

    redact: Redact = False
    redact_map: RedactMap = None

    def pseudonyms(self, *, kept: bool) -> "PseudonymMap | None":
        """What gives names their pseudonyms, by the map if they are `kept`; None where names stay. Raises UsageError for one option
        without the other, and for a map that cannot be used."""
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


@options.flat
def collect(
    log_dirs: LogDirs,
    selection: options.Selection,
    access: options.Access,
    *,
    output: BundleOutput = None,
    live: options.Live = False,
    deep: options.Deep = None,
    with_records: WithRecords = None,
    compacted: Compacted = None,
    hashes: Hash = False,
    max_rate: MaxRate = None,
    estimate: EstimateOnly = False,
    privacy: Privacy,
    printing: options.VerbosePrinting,
) -> int:
    """Take all that is needed to judge a broker's logs elsewhere, without any payload: a small file.

    Run it on each broker, where the logs lie, running (--live) or stopped; carry the bundles to one place and give them to any
    other command as PATHs. The same command goes on with a bundle that was interrupted. With --redact, the bundle contains
    pseudonyms instead of names: copies of one map on all brokers give the same pseudonyms.
    """
    from dataclasses import replace

    from kafka_forensics.questions.collect import CollectOptions, at_low_priority

    if output is not None:
        _check_name(output)
    elif not estimate:
        raise UsageError(
            "missing option '--output'", hint="give the bundle a name, --output broker-1.kfb; or ask for an --estimate"
        )
    screen = screen_of(printing)
    if privacy.redact and with_records:
        hint = "leave out one of them: no pseudonym stands for what is in records"
        raise UsageError("--redact and --with-records contradict each other", hint=hint)
    pseudonyms = privacy.pseudonyms(kept=not estimate)
    wanted = CollectOptions(
        replace(access.scope(selection), live=live, deep=deep),
        tuple(map(_records, with_records or ())),
        compacted,
        hashes,
        None if max_rate is None else int(max_rate * _MEGA),
        pseudonyms,
    )
    if output is None or estimate:
        from kafka_forensics.questions.collect import estimate_of

        with at_low_priority():
            estimated = estimate_of(log_dirs, wanted)
        sys.stdout.write(_estimate_line(estimated))
        return 0
    with at_low_priority():
        done = _made(log_dirs, wanted, output, pseudonyms, screen, quiet=printing.quiet)
    say(screen, [] if printing.quiet else _summary(done, output))
    say(screen, [f"incomplete: {printable(gap.path)}: {printable(gap.reason)}" for gap in done.incomplete])
    return 3 if done.incomplete else 0


def _check_name(output: Path) -> None:
    if not output.name.endswith(".kfb"):
        raise UsageError(f"{output}: a bundle's name ends in .kfb", hint=f"write --output {output}.kfb")


def _made(
    log_dirs: list[str],
    wanted: "CollectOptions",
    output: Path,
    pseudonyms: "PseudonymMap | None",
    screen: Destination,
    *,
    quiet: bool,
) -> "Collected":
    """Make the bundle under another name, and give it its own once it is whole and on disk."""
    from kafka_forensics.cli.progress import Progress
    from kafka_forensics.questions.collect import collect as make
    from kafka_forensics.storage.disks import FULL, why

    beside = _beside(output)
    try:
        with _opened(beside) as file, Progress(screen, quiet=quiet) as progress:
            done = make(log_dirs, wanted, file, progress)
            os.fsync(file.fileno())
            if pseudonyms is not None:
                pseudonyms.keep()  # no bundle is whole before its names can be found
            beside.replace(output)
    except OSError as error:
        hint = "give --output another place"
        if error.errno in FULL:
            hint = f"make room, and run the same command again: it goes on with {beside}"
        raise UsageError(f"cannot write {output}: {why(error, str(output))}", hint=hint) from error
    return done


def _beside(output: Path) -> Path:
    """The bundle while it is being made."""
    return output.with_name(output.name + UNFINISHED)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The unfinished bundle, read and written, which nobody else writes at the same time; if nothing was, it is taken away.
    Raises UsageError if somebody does."""
    import fcntl

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as raw:
        try:
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _in_use(path) from error
        if not path.exists() or not os.path.samestat(os.fstat(raw.fileno()), path.stat()):
            raise _in_use(path)  # the other one has just finished it
        try:
            yield cast("BinaryIO", raw)
        finally:
            if not os.fstat(raw.fileno()).st_size:
                path.unlink(missing_ok=True)  # nothing to go on with


def _in_use(path: Path) -> UsageError:
    return UsageError(f"{path} is being written by another process", hint="wait for it, or give --output another name")


def _records(text: str) -> "RequestedRecords":
    from kafka_forensics.questions.collect import RequestedRecords

    match = _RECORDS.fullmatch(text)
    if match is None or int(match["start"]) >= int(match["end"]):
        raise UsageError(f"--with-records {text} names no records", hint="write TOPIC:PARTITION:FROM-TO, such as orders:0:300-345")
    return RequestedRecords(match["topic"], int(match["partition"]), int(match["start"]), int(match["end"]))


def _summary(done: "Collected", output: Path) -> list[str]:
    from kafka_forensics.model.amounts import size

    share = f" ({100 * done.bundle_bytes / done.bytes_in_all:.2g} %)" if done.bytes_in_all else ""
    kept = f", {size(done.bytes_kept)} known already" if done.bytes_kept else ""
    depth = "every record decoded" if done.is_deep else "batches only"
    facts = f"{done.logs} logs, {done.batches} batches, {depth}{kept}"
    lines = [f"{size(done.bundle_bytes)} of facts about {size(done.bytes_in_all)}{share}: {facts}"]
    if done.left_out:
        lines.append(f"{done.left_out} files are listed without their bytes: nothing of Kafka's")
    return [*lines, f"judge it, together with those of other brokers: kafka-forensics scan {printable(shlex.quote(str(output)))}"]


def _estimate_line(estimate: "Estimate") -> str:
    from kafka_forensics.model.amounts import size
    from kafka_forensics.wording import duration

    of_what = f"{size(estimate.bytes_in_all)} in {estimate.files} files"
    by_what = f"by {size(estimate.sampled_bytes)} that were read"
    return f"about {size(estimate.bundle_bytes)} for {of_what}, in about {duration(round(estimate.seconds) * 1000)}; {by_what}\n"
