"""Cases of the gallery for the controllers' log, its copies and snapshots, its voters, and its small files."""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.gallery.case import Case
from tests.support.brokers import Brokers, healthy
from tests.support.controllers import (
    METADATA,
    ControllerLog,
    broker_registration,
    partition,
    partition_change,
    put_snapshot,
    record,
    snapshot,
    topic,
)

VOTERS: Final = (101, 102, 103)
STATE: Final = (topic(), partition([1, 2, 3], 1))
LATER: Final = tuple(partition_change(isr=[1, 2, 3]) for _ in range(8))
EMPTY: Final = ControllerLog()
STATED: Final = snapshot(*STATE)


def written(*more: bytes) -> ControllerLog:
    log = ControllerLog().lead([*VOTERS])
    for value in (*STATE, *more):
        log.append(value)
    return log


def controllers(root: Path, logs: Mapping[int, ControllerLog | None], **given: Any) -> Brokers:
    """Healthy brokers, and controllers with these copies of the log; None: a log directory without it."""
    brokers = healthy(root)
    for node, log in logs.items():
        directory = (log or EMPTY).put(brokers.root / f"c{node}", node, **given)
        if log is None:
            shutil.rmtree(directory)
    return brokers


def with_snapshots(root: Path, snapshots: Mapping[int, bytes], **given: Any) -> Brokers:
    """Three controllers whose logs start later or have a gap, each with these snapshots (by end offset)."""
    brokers = controllers(root, dict.fromkeys(VOTERS, written(*LATER)), **given)
    for node in VOTERS:
        for end, data in snapshots.items():
            put_snapshot(brokers.root / f"c{node}" / METADATA, end, data)
    return brokers


def one_snapshot_damaged(root: Path) -> Brokers:
    brokers = with_snapshots(root, {5: STATED}, start=5)
    put_snapshot(brokers.root / "c102" / METADATA, 5, STATED[:-1])
    return brokers


def holding(root: Path, values: tuple[bytes, ...] = ()) -> Brokers:
    """Three controllers whose logs end with these records."""
    return controllers(root, dict.fromkeys(VOTERS, written(*values)))


def identity(root: Path, file: str, data: bytes) -> Brokers:
    """Controller 102 has these bytes in a small file."""
    brokers = holding(root)
    (brokers.root / "c102" / file).write_bytes(data)
    return brokers


def everything_wrong(root: Path) -> Brokers:
    """Two controllers without records; the third's log has a gap, and one of its snapshots is truncated; a fourth node's log ends
    with a record that cannot be applied."""
    brokers = controllers(root, {101: EMPTY, 102: None, 103: written(*LATER)}, without=(5,))
    put_snapshot(brokers.root / "c103" / METADATA, 6, STATED)
    put_snapshot(brokers.root / "c103" / METADATA, 9, STATED[:-1])
    written(*LATER, topic()).put(brokers.root / "c104", 104)
    (brokers.root / "c101" / METADATA / "quorum-state").write_bytes(b"")
    return brokers


def linked(root: Path) -> Brokers:
    """The partition's directory on b2 is a link into the same log directory."""
    brokers = healthy(root)
    place = brokers.log_dir(2) / "moved"
    place.mkdir()
    brokers.directory(2).rename(place / "t-0")
    brokers.directory(2).symlink_to("moved/t-0")
    return brokers


def shortcut(root: Path) -> Brokers:
    """A link to a partition stands next to the log directories."""
    brokers = healthy(root)
    (brokers.root / "t-0").symlink_to("b2/t-0")
    return brokers


UNFENCED: Final = record(17, broker_id=1, broker_epoch=3, fenced=-1)
OTHER_EPOCH: Final = record(17, broker_id=1, broker_epoch=9, fenced=-1)
_TAGS_AT: Final = 23
"""Position of the number of tagged fields in a PartitionChangeRecord."""


def with_newer_tag(value: bytes) -> bytes:
    return value[:_TAGS_AT] + bytes([value[_TAGS_AT] + 1]) + value[_TAGS_AT + 1 :] + b"\x63\x03new"


OLD: Final = ControllerLog().lead([*VOTERS])
AHEAD: Final = written(*LATER)


def copies(words: str, *logs: ControllerLog | None, control: bool = False) -> Case:
    """A case of controllers with these copies of the log."""
    make = partial(controllers, logs=dict(zip(VOTERS, logs, strict=True)))
    return Case("-", words, make, control=control, shown=("leaders", "loses"))


def snapshots(words: str, ends: tuple[int, ...], *, control: bool = False, **given: Any) -> Case:
    make = partial(with_snapshots, snapshots=dict.fromkeys(ends, STATED), **given)
    return Case("-", words, make, control=control, shown=("snapshot_end",))


def ending(words: str, *values: bytes, control: bool = False) -> Case:
    """A case of controllers whose logs end with these records."""
    return Case("-", words, partial(holding, values=values), control=control, shown=("reason", "exception"))


def small_file(words: str, file: str, data: bytes, *, control: bool = False) -> Case:
    return Case("-", words, partial(identity, file=file, data=data), control=control, shown=("reason", "on_start"))


CONTROLLERS_FILES: Final = (
    snapshots("a batch of the log is missing on all controllers", (), without=(5,)),
    snapshots("the same, a newer snapshot states all before", (9,), without=(5,), control=True),
    snapshots("the log begins at 5, the newest snapshot ends at 3", (3,), start=5),
    snapshots("the same, another snapshot ends at 9", (3, 9), start=5, control=True),
    Case("-", "one controller's snapshot is cut short, two are whole", one_snapshot_damaged, shown=("reason",)),
    snapshots("the log begins where a snapshot ends", (5,), start=5, control=True),
    copies("two of three controllers have an empty log", EMPTY, EMPTY, AHEAD),
    copies("two of three controllers have no log", None, None, AHEAD),
    copies("two of three controllers have an old log", OLD, OLD, AHEAD),
    copies("one of three controllers has an empty log", EMPTY, AHEAD, AHEAD, control=True),
    copies("one of three controllers lags", OLD, AHEAD, AHEAD, control=True),
    copies("one controller has more than the others", written(), written(), AHEAD, control=True),
    ending("a broker is unfenced under another epoch", broker_registration(1, 3), OTHER_EPOCH),
    ending("a broker is unfenced under its epoch", broker_registration(1, 3), UNFENCED, control=True),
    ending("a topic is made twice", topic()),
    ending("a partition is made twice", STATE[1], control=True),
    ending("a topic that does not exist is removed", record(9, topic_id=bytes(15) + b"\x09")),
    ending("a tagged field of a newer version", with_newer_tag(LATER[0]), control=True),
    small_file("`quorum-state` of 0 bytes", f"{METADATA}/quorum-state", b""),
    small_file("`bootstrap.checkpoint` of NUL bytes", "bootstrap.checkpoint", bytes(99)),
    small_file("`bootstrap.checkpoint` that is whole", "bootstrap.checkpoint", STATED, control=True),
    small_file("`meta.properties` with an empty `cluster.id`", "meta.properties", b"version=1\nnode.id=102\ncluster.id=\n"),
    Case("-", "b2's partition is a link to a place below its log directory", linked),
    Case("-", "a link to b2's partition stands beside the log directories", shortcut, control=True),
)
