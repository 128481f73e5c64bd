"""Eight trees that contain the cases of the fault gallery and known incidents, each case as a separate partition."""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.gallery.cases import SECTIONS
from tests.gallery.incidents import TREES as INCIDENTS
from tests.gallery.of_controllers_files import everything_wrong
from tests.support.brokers import Brokers

Make = Callable[[Path], Brokers]

LEFT_OUT: Final = {
    "a record that says it holds 2 GiB, in 233 bytes of gzip",
    "a valid record of 256 MiB in 261 KB of gzip",
    "zstd, 1 MiB for 32 GiB",
    "a `.log` of 8 TiB, all hole after the batches",
    "a hundred, all as decided, clocks with seven seconds between them",
    "one of a hundred in one epoch, clocks with seven seconds between them",
    "d18 KAFKA-6292",
    # `meta.properties`, of which a tree has only one per broker:
    "another cluster id on b2",
    "two copies under one node id",
    # Links and pipes, which a zip cannot contain, and names that are printed with the path of the tree:
    "links to itself and out of the log directory; one has the name of a segment",
    "pipes; one has the name of a segment",
    "directories named `..-0`, `<script>-0`, `=cmd-0`",
    "directories named with ESC, newline and a bidi mark",
}
"""Cases that are too large, or that some kinds of input cannot contain."""
NEEDS_RECORDS: Final = {
    "another record at the same offset and epoch, CRC right",
    "the same, another one on each replica",
    "another topic id on b2, b1 and b3 in conflict",
}
"""Cases where only payloads of two batches show the first differing record, which a bundle cannot."""
SECTIONS_OF: Final = {
    "batches": ("Bytes of a batch", "Segments", "Compression"),
    "files": ("Forecasts of starts, and leftovers", "Indexes, snapshots, checkpoints"),
    "replicas": ("Replicas and producers", "Committed offsets"),
    "compacted": ("Compacted topics",),
    "transactions": ("Transactions", "Internal topics"),
    "incidents": ("Environment",),
    "tiered": ("Tiered topics",),
    "controllers": (),
}
"""Tree → headings of the gallery whose cases it has."""


def cases_of(tree: str, *, every: bool) -> Iterator[Make]:
    """Makers of the cases of a tree: one of each fault, or all."""
    if tree == "incidents":
        chosen = [incident for incident in INCIDENTS if incident.key not in LEFT_OUT]
        yield from (incident.make for incident in chosen)
        yield from (incident.make_near_miss for incident in chosen if every)
    if tree == "controllers":
        yield everything_wrong
    seen = set()
    cases = [case for heading in SECTIONS_OF[tree] for case in SECTIONS[heading]]
    if tree == "tiered":
        cases.reverse()  # the last cases have `__remote_log_metadata`, whose events are of `t-0`
    for case in cases:
        if case.during is None and case.injected not in LEFT_OUT | NEEDS_RECORDS:
            if every or case.fault not in seen or tree == "compacted":
                yield case.make
            seen.add(case.fault)


def put_together(root: Path, makers: Iterable[Make]) -> Path:
    """Write a cluster whose partition `t-N` is `t-0` of the N-th case; other entries come from the first case that has them.

    Internal topics are of one case on all brokers. Second log directories of a broker are left out, because they have no number.
    """
    internal: dict[str, int] = {}
    for number, make in enumerate(makers):
        scratch = root.with_name("scratch")
        make(scratch)
        for log_dir in sorted(path for path in scratch.iterdir() if re.fullmatch(r"[bc]\d+", path.name)):
            to = root / log_dir.name
            to.mkdir(parents=True, exist_ok=True)
            for entry in sorted(log_dir.iterdir()):
                name = re.sub(r"^t-0(?!\d)", f"t-{number}", entry.name)
                if name.startswith("__") and internal.setdefault(name, number) != number:
                    continue
                if not (to / name).exists():
                    entry.rename(to / name)
                elif name.endswith("-offset-checkpoint"):
                    add_line(to / name, entry, number)
        shutil.rmtree(scratch)
    return root


def add_line(checkpoint: Path, other: Path, number: int) -> None:
    """Copy the entry for `t-0` of another checkpoint as an entry for `t-N`."""
    offset = re.search(rb"^t 0 (\d+)$", other.read_bytes(), re.MULTILINE)
    version, _, *lines = checkpoint.read_bytes().splitlines()
    if offset:
        lines.append(b"t %d %s" % (number, offset[1]))
        checkpoint.write_bytes(b"\n".join([version, b"%d" % len(lines), *lines, b""]))
