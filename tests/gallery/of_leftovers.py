"""Cases of the gallery for starts after a crash, for temporary and deleted files and directories, and for entries that are not
logs."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.gallery.case import Case, Injected, injected_case, on_brokers, segment
from tests.gallery.injections import append, noise, zero_page
from tests.gallery.of_bytes import LENGTH, int32, target
from tests.support.brokers import LOG_FILES, Brokers, healthy, put_segment

NAMES: Final = ("..-0", "<script>-0", "=cmd-0", "\x1b[31mred-0", "a\nb-0", "\u202egnp-0")
"""Names of directories that Kafka never creates."""
REFUSED: Final = ("t-x", "t-2147483648", "t-0-delete")
"""Names of directories at which a broker refuses to start."""
UNIQUE: Final = "0123456789abcdef0123456789abcdef"
ASIDE: Final = f"t-0.{UNIQUE}"
SECRET: Final = b"root:x:0:0: never to be read"
LINK, PIPE = 99, 97
"""Base offsets in the names of a link and of a pipe."""


def links(brokers: Brokers, outside: Path) -> None:
    """Make links in broker 2's log directory: to itself, and to a secret outside in place of a segment, an index, a partition."""
    outside.mkdir()
    (outside / "secret").write_bytes(SECRET)
    directory = brokers.log_dir(2) / "t-0"
    (directory / "loop").symlink_to(directory)
    brokers.file(2, LINK).symlink_to(outside / "secret")
    brokers.file(2, LINK - 1, "index").symlink_to(outside / "secret")
    (brokers.log_dir(2) / "v-0").symlink_to(outside)


def pipes(brokers: Brokers) -> None:
    os.mkfifo(brokers.log_dir(2) / "u-0")
    os.mkfifo(brokers.file(2, PIPE))


def directories(brokers: Brokers, *names: str) -> None:
    for name in names:
        (brokers.log_dir(2) / name).mkdir()
        put_segment(brokers.log_dir(2) / name, 0, brokers.file(2, 0).read_bytes())


def empty_leftovers(brokers: Brokers, *endings: str) -> None:
    for ending in endings:
        put_segment(brokers.directory(2), 29, b"", f"log.{ending}")


def sparse(brokers: Brokers) -> None:
    with brokers.file(2, 55).open("ab") as file:
        file.truncate(8 << 40)


def all_at_once(root: Path) -> Brokers:
    """Three replicas; broker 2's log directory has all leftovers of F47, with links to a secret outside of it."""
    brokers = healthy(root / "brokers")
    links(brokers, root / "outside")
    pipes(brokers)
    directories(brokers, *NAMES, *(f"w-0.{UNIQUE}-{suffix}" for suffix in ("delete", "future", "stray")))
    empty_leftovers(brokers, "swap", "cleaned", "deleted")
    sparse(brokers)
    return brokers


def crash(brokers: Brokers, recovery_point: int) -> None:
    """Crash broker 2 with this recovery point."""
    brokers.crash(2)
    brokers.checkpoint("recovery-point", recovery_point, 2)


def swap_in(brokers: Brokers, base_offset: int, data: bytes) -> None:
    put_segment(brokers.directory(2), base_offset, data, "log.swap")


def set_aside(brokers: Brokers, broker: int, base_offset: int, ending: str) -> None:
    """Rename the files of a segment as Kafka does before it deletes or swaps them."""
    for suffix in LOG_FILES:
        path = brokers.file(broker, base_offset, suffix)
        if path.exists():
            path.rename(path.with_name(f"{path.name}.{ending}"))


def truncated_tail(brokers: Brokers) -> None:
    brokers.checkpoint("replication", 55)
    set_aside(brokers, 2, 55, "deleted")
    brokers.checkpoint("recovery-point", 55, 2)
    brokers.file(2, brokers.log.next_offset, "snapshot").unlink()
    brokers.put_epochs(2, (0, 0), (1, 32))


def half_of_a_split(brokers: Brokers) -> None:
    """A split interrupted before its swap counts: `.cleaned` files and a `.swap` file."""
    swap_in(brokers, 55, b"")
    put_segment(brokers.directory(2), 29, b"", "log.cleaned")
    put_segment(brokers.directory(2), 29, b"", "index.cleaned")
    put_segment(brokers.directory(2), 0, b"", "log.deleted")


def directory_aside(brokers: Brokers, suffix: str) -> None:
    directory = brokers.log_dir(2) / "t-0"
    directory.rename(directory.with_name(f"{ASIDE}-{suffix}"))


def deleted_copies(brokers: Brokers) -> None:
    for broker in (1, 2):
        path = brokers.file(broker, 29)
        shutil.copy(path, path.with_name(f"{path.name}.deleted"))


def linked(root: Path) -> Brokers:
    brokers = healthy(root / "brokers")
    links(brokers, root / "outside")
    return brokers


def crashed(recovery_point: int, damage: Callable[[Brokers], object]) -> partial[Case]:

    def injection(brokers: Brokers) -> None:
        crash(brokers, recovery_point)
        damage(brokers)

    return partial(Case, make=Injected(injection), damaged=MIDDLE, shown=FORECAST)


def unreadable_recovery_point(brokers: Brokers) -> None:
    (brokers.log_dir(2) / "recovery-point-offset-checkpoint").write_bytes(noise(3000))
    brokers.flip(2, target(brokers), 100)


def empty_directory(brokers: Brokers, name: str) -> None:
    (brokers.log_dir(2) / name).mkdir()


def renamed_directory(brokers: Brokers, suffix: str) -> None:
    directories(brokers, f"w-0.{UNIQUE}-{suffix}")


def log_gone(brokers: Brokers, base_offset: int) -> None:
    brokers.remove(1, base_offset, "log")


MIDDLE: Final = segment(29)
FORECAST: Final = ("check", "reason", "forecast_log_end", "segments", "batches_recovered")
RESTART: Final = ("unclean_restart.walked", "unclean_restart.recovery_point")
GAP: Final = ("also_in",)
A_DIRECTORY: Final = "not run: a directory, no file"
STEPS: Final = ("steps",)
SWAP, DELETED, LAST_DELETED = (segment(29, "log.swap"), segment(29, "log.deleted"), segment(55, "log.deleted"))
OUTSIDE: Final = (
    Case(
        "F47",
        "links to itself and out of the log directory; one has the name of a segment",
        linked,
        f"brokers/{segment(LINK)}",
        note="incomplete, exit 3",
    ),
    injected_case("F47", "pipes; one has the name of a segment", pipes, damaged=segment(PIPE), note="incomplete, exit 3"),
    injected_case(
        "F47",
        "directories named `..-0`, `<script>-0`, `=cmd-0`",
        lambda it: directories(it, *NAMES[:3]),
        damaged=segment(0, directory=NAMES[1]),
        run_in_log_dir=True,
        note="escaped",
    ),
    injected_case(
        "F47",
        "directories named with ESC, newline and a bidi mark",
        lambda it: directories(it, *NAMES[3:]),
        damaged=segment(0, directory=NAMES[3]),
        run_in_log_dir=True,
        note="escaped",
    ),
    *(
        injected_case(
            "F47",
            f"a directory named `{name}`",
            partial(empty_directory, name=name),
            shown=("refused",),
            no_dump_reason=A_DIRECTORY,
        )
        for name in REFUSED
    ),
    *(
        injected_case(
            "F47",
            f"a partition's directory that ends in `-{suffix}`",
            partial(renamed_directory, suffix=suffix),
            damaged=segment(0, directory=f"w-0.{UNIQUE}-{suffix}"),
        )
        for suffix in ("delete", "future", "stray")
    ),
    injected_case(
        "F47", "`.swap` and `.cleaned` leftovers", lambda it: empty_leftovers(it, "swap", "cleaned"), damaged=SWAP, shown=STEPS
    ),
    injected_case("F47", "a `.log` of 8 TiB, all hole after the batches", sparse, damaged=segment(55)),
)
STARTS: Final = (
    crashed(29, lambda it: it.flip(2, target(it), 100))(
        "F01", "one bit that the CRC covers, after a crash, above the recovery point"
    ),
    crashed(55, lambda it: it.flip(2, target(it), 100))("F01", "the same below the recovery point", shown=RESTART),
    injected_case(
        "F01",
        "the same above the recovery point, after a clean shutdown",
        lambda it: it.checkpoint("recovery-point", 29, 2),
        lambda it: it.flip(2, target(it), 100),
        damaged=MIDDLE,
        shown=(*RESTART, "unclean_restart.log_end_offset"),
    ),
    crashed(29, lambda it: it.flip(2, target(it), 2))(
        "F03", "baseOffset beyond what an index can hold, after a crash", shown=("unclean_restart.starts",)
    ),
    crashed(29, lambda it: it.overwrite(2, target(it), int32(49), LENGTH))("F04", "batchLength = 49, after a crash"),
    crashed(29, lambda it: it.overwrite(2, target(it), int32(2**31 - 1), LENGTH))("F05", "batchLength = 2147483647, after a crash"),
    crashed(29, lambda it: it.overwrite(2, target(it), int32(-1), LENGTH))("F06", "batchLength = -1, after a crash"),
    crashed(29, lambda it: append(it, 29, bytes(4096)))("F15", "zeros after a closed segment, after a crash"),
    crashed(29, lambda it: zero_page(it, 29))("F16", "a page of zeros in the middle, after a crash"),
    *(
        injected_case(
            "F17",
            f"only the `.log` of the {which} segment is missing on b1",
            partial(log_gone, base_offset=base),
            damaged=segment(base, "index", broker=1),
            shown=("index_files",),
        )
        for which, base in (("first", 0), ("middle", 29))
    ),
    injected_case(
        "F17",
        "the `.log` of the first segment is missing on b1, whose log start is after it",
        lambda it: it.remove(1, 0, "log"),
        lambda it: it.checkpoint("log-start", 29, 1),
        damaged=segment(0, "index", broker=1),
        control=True,
    ),
    crashed(55, unreadable_recovery_point)("F32", "recovery point of noise, after a crash, and one bit that the CRC covers"),
    injected_case(
        "F47", "the middle segment exists as `.deleted`", lambda it: set_aside(it, 2, 29, "deleted"), damaged=DELETED, shown=GAP
    ),
    injected_case(
        "F47",
        "the middle segment is missing on all, and on b3 it exists as `.deleted`",
        on_brokers(lambda it, broker: it.remove(broker, 29)),
        lambda it: it.file(3, 29, "log.deleted").write_bytes(b"".join(batch.data for batch in it.log.batches_of_segment(29))),
        damaged=segment(29, "log.deleted", broker=3),
        shown=GAP,
    ),
    injected_case(
        "F47",
        "the first segment exists as `.deleted`, which retention deleted",
        lambda it: set_aside(it, 2, 0, "deleted"),
        damaged=segment(0, "log.deleted"),
        shown=("expired",),
    ),
    injected_case("F47", "a truncated tail exists as `.deleted`", truncated_tail, damaged=LAST_DELETED, shown=("after_log_end",)),
    injected_case(
        "F47", "`.swap` with what the segment has", lambda it: swap_in(it, 29, it.file(2, 29).read_bytes()), damaged=SWAP
    ),
    injected_case(
        "F47",
        "`.swap` without the last committed batches of what it replaces",
        lambda it: swap_in(it, 29, it.file(2, 29).read_bytes()[: target(it).position]),
        damaged=SWAP,
    ),
    injected_case("F47", "an empty `.swap` over a good segment", lambda it: swap_in(it, 29, b""), damaged=SWAP),
    injected_case(
        "F47", "`.cleaned` files beside a `.swap`: half of a split", half_of_a_split, damaged=segment(55, "log.swap"), shown=STEPS
    ),
    *(
        injected_case(
            "F47",
            f"b2's directory is renamed to `-{suffix}`",
            partial(directory_aside, suffix=suffix),
            damaged=segment(0, directory=f"{ASIDE}-{suffix}"),
        )
        for suffix in ("delete", "stray")
    ),
    injected_case("F47", "copies of a live segment as `.deleted`", deleted_copies, damaged=DELETED, control=True),
    injected_case(
        "F47",
        "a `-future` copy of an existing log",
        lambda it: shutil.copytree(it.log_dir(2) / "t-0", it.log_dir(2) / f"{ASIDE}-future"),
        damaged=segment(0, directory=f"{ASIDE}-future"),
        control=True,
    ),
)
