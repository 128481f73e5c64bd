"""Every file of many log directories that Kafka's own dump tool reads, each content once, laid out for one run of it."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka_forensics.cli.streams import printable
from lab.files import copy_sparse
from lab.jvm import DUMP_LOG_SEGMENTS, ToolResult, run_tool

SUFFIXES: Final = (".log", ".index", ".timeindex", ".snapshot", ".txnindex", ".checkpoint")
BESIDE: Final = {".index": (".log",), ".timeindex": (".index", ".log")}
DECODERS: Final = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__share_group_state": "--share-group-state-decoder",
}
PRINT: Final = "--print-data-log"
PLAIN: Final = ""
VERIFY: Final = "--verify-index-only"
FILES_A_RUN: Final = 2000
"""So many names fit into one argument."""
ENDS: Final = "Kafka's tool ends "
HERE: Final = " here; the other formats read on"
TIMEOUT_SECONDS: Final = 180
_DUMPING: Final = re.compile(r"^Dumping (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Laid:
    """A file in the layout, relative to it, and the options to dump it with, of which the first shows most."""

    path: str
    options: tuple[str, ...]


def lay_out(trees: Iterable[Path], layout: Path) -> list[Laid]:
    """Copy the files below `layout`, a directory each, with what the tool reads beside an index: the log, and the offset index."""
    seen: set[bytes] = set()
    laid = []
    for source in _sources(trees):
        beside = [source.with_suffix(suffix) for suffix in BESIDE.get(source.suffix, ())]
        read = [path for path in (source, *beside) if path.exists()]
        mark = hashlib.sha256(f"{options_of(source)} {source.name} ".encode())
        for path in read:
            mark.update(path.read_bytes())
        if mark.digest() in seen:
            continue
        seen.add(mark.digest())
        directory = layout / f"{len(seen):04}"
        directory.mkdir(parents=True)
        for path in read:
            copy_sparse(path, directory / path.name)
        laid.append(Laid(f"{directory.name}/{source.name}", options_of(source)))
    return laid


def _sources(trees: Iterable[Path]) -> Iterator[Path]:
    for tree in trees:
        for folder, _, names in sorted(os.walk(tree)):
            yield from (Path(folder, name) for name in sorted(names) if name.endswith(SUFFIXES) and name[0].isdigit())


def options_of(source: Path) -> tuple[str, ...]:
    """Of a log keys and values, with the decoder of an internal topic, and batches alone; of an index all, and what is wrong."""
    if source.suffix in BESIDE:
        return PLAIN, VERIFY
    if source.suffix not in (".log", ".checkpoint"):
        return (PLAIN,)
    return DECODERS.get(source.parent.name.rpartition("-")[0], PRINT), PLAIN


def dumps(text: str) -> dict[str, str]:
    """File → what was printed of it."""
    parts = _DUMPING.split(text)
    assert parts[0] == ""
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def shown(text: str) -> str:
    """What Kafka's tool prints as we may show it. It prints payloads raw, so that a line break may be in one or end a line: all of
    them are escaped here. What we print has only such as end lines, which `one_line` escapes."""
    return printable(text)


def said_to_end(complaints: list[str]) -> list[str]:
    """The files at which our own complaints say that Kafka's tool ends."""
    return [complaint.removeprefix(ENDS).removesuffix(HERE) for complaint in complaints if complaint.startswith(ENDS)]


def one_line(text: str) -> str:
    """Our own output, the ends of its lines escaped."""
    return text.replace("\n", printable("\n"))


def kafka_prints(paths: list[str], layout: Path, *options: str) -> tuple[dict[str, str], Counter[str]]:
    """File → what Kafka's own tool prints of it, and its complaints, all files in as few runs as can be."""
    found: dict[str, str] = {}
    complaints: Counter[str] = Counter()
    for start in range(0, len(paths), FILES_A_RUN):
        done = _run(paths[start : start + FILES_A_RUN], layout, options)
        assert done.exit_code == 0, done.stderr[-2000:]
        found |= dumps(done.stdout.decode())
        complaints.update(done.stderr.decode().replace(f"{layout}/", "").splitlines())
    assert list(found) == paths
    return found, complaints


def kafka_ends_at(path: str, layout: Path, *options: str) -> str:
    """What Kafka's own tool prints of a file before it ends with an exception."""
    done = _run([path], layout, options)
    assert done.exit_code != 0, path
    return dumps(done.stdout.decode())[path]


def _run(paths: list[str], layout: Path, options: tuple[str, ...]) -> ToolResult:
    arguments = [*options, "--files", ",".join(paths)]
    return run_tool(DUMP_LOG_SEGMENTS, arguments, directory=layout, timeout_seconds=TIMEOUT_SECONDS)
