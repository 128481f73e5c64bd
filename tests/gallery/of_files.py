"""Cases and variants of the gallery for whole files: truncated, moved and lost segments; wrong indexes, snapshots and
checkpoints."""

import os
import shutil
from itertools import product
from pathlib import Path
from typing import Final

from kafka_forensics.model.files import AbortedTxn
from kafka_forensics.writers.files import write_transaction_index
from tests.gallery.case import Case, Injected, case_per_row, cases_of_trees, injected_case, on_brokers, segment
from tests.gallery.injections import append, change, cut, keep_only, noise, remove_snapshots, rename_segment, swap, zero_page
from tests.gallery.of_bytes import MAGIC, TARGET, target
from tests.gallery.of_leftovers import ASIDE, crash, directory_aside, half_of_a_split, set_aside, swap_in, truncated_tail
from tests.gallery.of_replicas import OTHER_TOPIC_ID
from tests.gallery.of_tiered import with_index_of_deleted_segment
from tests.support.brokers import (
    TOPIC_ID,
    Brokers,
    healthy,
    put_brokers,
    put_meta_properties,
    put_partition,
    put_replicas,
    put_topic_id,
)
from tests.support.controllers import partition, record, topic, topic_with_isr, with_controller
from tests.support.logs import COMMITTING, HEALTHY, LOG_END, Log, history
from tests.support.segments import segment_file, write_offset_index, write_time_index

FIRST, MIDDLE, ACTIVE = (segment(offset) for offset in (0, 29, 55))
TIMES, ABORTED, STATE = segment(29, "timeindex"), segment(29, "txnindex"), segment(55, "snapshot")
CHECKPOINT: Final = "replication-offset-checkpoint"
HIGH: Final = f"b2/{CHECKPOINT}"
EPOCHS: Final = "b2/t-0/leader-epoch-checkpoint"
METADATA: Final = "partition.metadata"


def torn(brokers: Brokers, end: int, *, clean: bool = False) -> None:
    """Truncate the active segment at a byte; after a crash, or after a clean shutdown."""
    if not clean:
        brokers.crash(2)
    cut(brokers, 55, end)


def lost_after_noise(brokers: Brokers, size: int = 100) -> None:
    append(brokers, 0, noise(size))
    brokers.remove(2, 29)


SEGMENTS: Final = (
    injected_case(
        "F13", "last batch cut short, after a crash", lambda it: torn(it, it.log.batches[-1].position + 100), damaged=ACTIVE
    ),
    injected_case(
        "F13", "the same after a clean shutdown", lambda it: torn(it, it.log.batches[-1].position + 100, clean=True), damaged=ACTIVE
    ),
    injected_case(
        "F13", "a committed batch cut short, after a crash", lambda it: torn(it, it.log.at(69).position + 50), damaged=ACTIVE
    ),
    injected_case(
        "F14", "another segment cut inside a batch", lambda it: cut(it, 29, it.log.at(49).position + 100), damaged=MIDDLE
    ),
    injected_case("F14", "another segment cut between two batches", lambda it: cut(it, 29, it.log.at(49).position), damaged=MIDDLE),
    injected_case(
        "F14",
        "another segment cut, none of it committed",
        lambda it: it.checkpoint("replication", 49),
        lambda it: cut(it, 29, it.log.at(49).position + 100),
        damaged=MIDDLE,
    ),
    injected_case("F15", "zeros after the last batch", lambda it: append(it, 55, bytes(10_000)), damaged=ACTIVE, control=True),
    injected_case("F16", "a page of zeros in the middle", lambda it: zero_page(it, 29), damaged=MIDDLE),
    injected_case("F17", "middle segment deleted on b1", lambda it: it.remove(1, 29), damaged=segment(55, broker=1)),
    injected_case(
        "F17", "middle segment deleted on all three", on_brokers(lambda it, broker: it.remove(broker, 29)), damaged=ACTIVE
    ),
    injected_case("F17", "middle segment deleted, 100 bytes of noise before it", lost_after_noise, damaged=FIRST),
    injected_case("F18", "an older batch appended again", lambda it: append(it, 55, it.log.at(43).data), damaged=ACTIVE),
    injected_case("F19", "two batches swapped", lambda it: swap(it, it.log.at(46), it.log.at(49)), damaged=MIDDLE),
    injected_case("F20", "segment renamed to a later offset", lambda it: rename_segment(it, 29, 31), damaged=segment(31)),
    injected_case("F20", "segment renamed to an earlier offset", lambda it: rename_segment(it, 29, 27), damaged=segment(27)),
)


def unordered_times(brokers: Brokers) -> None:
    path = brokers.file(2, 29, "timeindex")
    data = path.read_bytes()
    path.write_bytes(data[:12] + data[24:36] + data[12:24] + data[36:])


def more_bytes(brokers: Brokers, suffix: str, data: bytes) -> None:
    path = brokers.file(2, 29, suffix)
    path.write_bytes(path.read_bytes() + data)


def no_snapshots(brokers: Brokers, *, others: bool = False, crashed: bool = False) -> None:
    """Broker 2 has no producer snapshot of `t-0`; `others`: another partition has one."""
    if crashed:
        brokers.crash(2)
    remove_snapshots(brokers, 2)
    for broker in (1, 2, 3) if others else ():
        put_partition(brokers.log_dir(broker) / "u-0", HEALTHY)


def without_id_under_zookeeper(root: Path) -> Brokers:
    brokers = healthy(root)
    brokers.file_named(2, METADATA).unlink()
    put_meta_properties(brokers.log_dir(2), 2, version=0)
    return brokers


def empty_without_id(root: Path) -> Brokers:
    """An empty log on broker 2, whose topic id is not yet written."""
    brokers = put_replicas(root, {1: history(("r0", 0)), 2: Log()}, 0)
    brokers.file_named(2, METADATA).unlink()
    return brokers


def logs_alone(root: Path) -> Brokers:
    brokers = healthy(root)
    for path in (brokers.log_dir(2) / "t-0").iterdir():
        if path.suffix != ".log":
            path.unlink()
    return brokers


def lost_tail(brokers: Brokers) -> None:
    brokers.remove(2, 55)
    brokers.file(2, 75, "snapshot").unlink()
    brokers.checkpoint("recovery-point", 55, 2)


def checkpoint(brokers: Brokers, data: bytes) -> None:
    (brokers.log_dir(2) / CHECKPOINT).write_bytes(data)


def moved_log_start(brokers: Brokers) -> None:
    """Records were deleted, and the broker crashed before it checkpointed the high watermark."""
    brokers.checkpoint("replication", 60)
    brokers.checkpoint("log-start", 62, 2)
    brokers.put_epochs(2, (2, 62))
    brokers.crash(2)


PHANTOM: Final = write_transaction_index([AbortedTxn(COMMITTING, 36, 42, 43)])
DROPPED, SHIFTED = ((0, 0), (2, 58)), ((0, 0), (1, 35), (2, 58))
INVENTED, DISORDERED = ((0, 0), (1, 32), (2, 58), (4, 65)), ((0, 0), (2, 58), (1, 32))
TO_COME: Final = ((0, 0), (1, 32), (2, 58), (3, LOG_END))
BEYOND: Final = Injected(lambda it: it.checkpoint("replication", 90, 2))
SMALL_FILES: Final = (
    injected_case("F25", "`.index` position flipped", lambda it: change(it.file(2, 29, "index"), 31), damaged=segment(29, "index")),
    injected_case("F25", "`.timeindex` out of order", unordered_times, damaged=TIMES),
    injected_case(
        "F25", "`.index` of no whole entries", lambda it: more_bytes(it, "index", b"\1\1\1"), damaged=segment(29, "index")
    ),
    injected_case("F25", "`.timeindex` of no whole entries", lambda it: more_bytes(it, "timeindex", b"\1" * 8), damaged=TIMES),
    injected_case(
        "P9",
        "`.timeindex` without `.index`",
        on_brokers(lambda it, offset: it.file(2, offset, "index").unlink(), 0, 29, 55),
        damaged=TIMES,
        note="not a byte changes",
    ),
    Case("P10", "`.txnindex`, nothing wrong", healthy, ABORTED, note="it is only read", report_open_mode=True),
    injected_case(
        "F26",
        "aborted transaction left out of `.txnindex`",
        lambda it: it.file(2, 29, "txnindex").write_bytes(b""),
        damaged=ABORTED,
    ),
    injected_case("F26", "`.txnindex` missing", lambda it: it.file(2, 29, "txnindex").unlink()),
    injected_case(
        "F27", "committed transaction listed as aborted", lambda it: more_bytes(it, "txnindex", PHANTOM), damaged=ABORTED
    ),
    injected_case("F28", "`.snapshot` with a bit flipped", lambda it: change(it.file(2, 55, "snapshot"), 3), damaged=STATE),
    injected_case(
        "F28",
        "`.snapshot` of an earlier state",
        lambda it: it.file(2, 55, "snapshot").write_bytes(it.file(2, 29, "snapshot").read_bytes()),
        damaged=STATE,
    ),
    injected_case("F28", "no `.snapshot` at all, after a clean shutdown", no_snapshots),
    injected_case("F28", "the same where another partition has one", lambda it: no_snapshots(it, others=True)),
    injected_case("F28", "no `.snapshot` at all, after a crash", lambda it: no_snapshots(it, crashed=True), control=True),
    injected_case("F29", "`leader-epoch-checkpoint`: an entry dropped", lambda it: it.put_epochs(2, *DROPPED), damaged=EPOCHS),
    injected_case("F29", "an entry shifted", lambda it: it.put_epochs(2, *SHIFTED), damaged=EPOCHS),
    injected_case("F29", "an entry invented", lambda it: it.put_epochs(2, *INVENTED), damaged=EPOCHS),
    injected_case("F29", "entries out of order", lambda it: it.put_epochs(2, *DISORDERED), damaged=EPOCHS),
    injected_case(
        "F29", "an entry at the log end, without batches yet", lambda it: it.put_epochs(2, *TO_COME), damaged=EPOCHS, control=True
    ),
    Case("F30", "high watermark beyond the log end", BEYOND, HIGH),
    injected_case("F30", "the active segment missing", lost_tail, damaged=HIGH),
    Case("F30", "high watermark beyond the log end, with `--live`", BEYOND, HIGH, live=True),
    injected_case("F31", "high-watermark checkpoint missing", lambda it: (it.log_dir(2) / CHECKPOINT).unlink(), control=True),
    injected_case("F31", "high watermark 0", lambda it: it.checkpoint("replication", 0, 2), damaged=HIGH, control=True),
    injected_case("F32", "checkpoint of 2147483647 lines", lambda it: checkpoint(it, b"0\n2147483647\nt 0 72\n"), damaged=HIGH),
    injected_case(
        "F32",
        "checkpoint with a number of 10 MB",
        lambda it: checkpoint(it, b"0\n1\nt 0 " + b"7" * 10_000_000 + b"\n"),
        damaged=HIGH,
    ),
    injected_case("F32", "checkpoint of version 9", lambda it: checkpoint(it, b"9\n1\nt 0 72\n"), damaged=HIGH),
    injected_case("F32", "checkpoint of noise", lambda it: checkpoint(it, noise(3000)), damaged=HIGH),
    injected_case(
        "F32",
        "`leader-epoch-checkpoint` that counts wrongly",
        lambda it: it.file_named(2, "leader-epoch-checkpoint").write_bytes(b"0\n3\n0 0\n2 58\n"),
        damaged=EPOCHS,
    ),
    injected_case(
        "-", "`partition.metadata` missing", lambda it: it.file_named(2, METADATA).unlink(), shown=("topic_id", "topic_id_sources")
    ),
    Case("-", "the same of a broker under ZooKeeper", without_id_under_zookeeper, None, control=True),
    Case("-", "the same of an empty log", empty_without_id, None, control=True),
    Case("-", "no small file in any directory, as in a copy of the logs alone", logs_alone, None, control=True),
    injected_case("-", "log start above the high watermark, after a crash", moved_log_start, control=True),
)

# Variants: other places, other values, and states that only look like the fault. They are not in docs/faults.md.

EPOCH_FILE: Final = "leader-epoch-checkpoint"
FLIP: Final = Injected(lambda brokers: brokers.flip(2, TARGET, 100)).injection
LAST: Final = HEALTHY.batches[-1]
ENTRIES: Final = tuple((entry.leader_epoch, entry.start_offset) for entry in HEALTHY.epochs)


def cut_in_the_middle(brokers: Brokers, kept: int, *without: str) -> None:
    """Truncate the middle segment `kept` bytes after the start of the batch at offset 49."""
    cut(brokers, 29, HEALTHY.at(49).position + kept)
    for suffix in without:
        brokers.file(2, 29, suffix).unlink()


def lone_and_lost(brokers: Brokers, size: int) -> None:
    lost_after_noise(brokers, size)
    keep_only(brokers)


def only_log_missing(root: Path, *without: str, other: bool = False) -> Brokers:
    """Broker 2 lacks the `.log` of `t-0`, a segment of 60 records, and the files named in `without`; `u-0` is complete.

    `other`: the other brokers have different records from offset 30 on.
    """
    log, beside, new = Log(), Log(), Log()
    for number in range(20):
        log.produce()
        new.tag, new.leader_epoch = ("new", 1) if other and number >= 10 else ("", 0)
        new.produce()
    beside.produce()
    brokers = put_brokers(root, {"t-0": {1: new, 2: log, 3: new}, "u-0": beside})
    brokers.remove(2, 0, "log")
    for suffix in {"index", "timeindex"} & {*without}:
        brokers.file(2, 0, suffix).write_bytes(b"")
    if "snapshot" in without:
        brokers.crash(2)
    for which in {"replication", "recovery-point"} & {*without}:
        (brokers.log_dir(2) / f"{which}-offset-checkpoint").unlink()
    return brokers


def never_written(root: Path) -> Brokers:
    """`t-0` never got a record and has empty files; `u-0` has records."""
    beside = Log()
    beside.produce()
    brokers = put_brokers(root, {"t-0": Log(), "u-0": beside})
    for broker in (1, 2, 3):
        brokers.file(broker, 0, "snapshot").unlink()
    return brokers


def only_first(brokers: Brokers) -> None:
    for base_offset in (29, 55):
        for path in brokers.file(2, base_offset).parent.glob(segment_file(base_offset, "*")):
            path.unlink()
    cut(brokers, 0, 0)


def deleted_topic(brokers: Brokers) -> None:
    other = topic("other", OTHER_TOPIC_ID), partition([1, 2, 3], 1, topic_id=OTHER_TOPIC_ID)
    with_controller(brokers, *other, *topic_with_isr([1, 2, 3]), record(9, topic_id=TOPIC_ID))


def without_partition(brokers: Brokers, *on: int) -> None:
    for broker in on:
        shutil.rmtree(brokers.log_dir(broker) / "t-0")


SEGMENT_VARIANTS: Final = (
    Case("-", "nothing", healthy, control=True),
    *case_per_row("F13", "last byte kept, after a crash:", torn, [(LAST.position + size,) for size in (1, 16, 61)], control=True),
    *case_per_row("F14", "bytes kept of a batch of another segment:", cut_in_the_middle, [(1,)]),
    *case_per_row(
        "F14", "the same without indexes:", lambda it, kept: cut_in_the_middle(it, kept, "index", "timeindex"), [(0,), (1,)]
    ),
    *case_per_row(
        "F15", "zeros after the last batch:", lambda it, size: append(it, 55, bytes(size)), [(12,), (1 << 20,)], control=True
    ),
    *case_per_row("F17", "bytes of noise before a missing segment:", lost_after_noise, [(61,), (1546,), (13_000,)]),
    *case_per_row("F17", "the same of one replica by itself:", lone_and_lost, [(60,), (61,)]),
    *cases_of_trees(
        "F17",
        "only the `.log` of the only segment is gone on b2, of what may name its end these files too:",
        only_log_missing,
        [
            (),
            ("index",),
            ("index", "replication", "recovery-point"),
            ("index", "replication", "recovery-point", "snapshot"),
            ("index", "timeindex", "replication", "recovery-point", "snapshot"),
        ],
    ),
    Case(
        "F17",
        "only the `.log` of the only segment is gone on b2, and the others have another history",
        lambda root: only_log_missing(root, other=True),
    ),
    Case("-", "a partition that never got a record", never_written, control=True),
    Case(
        "-",
        "of a tiered topic an index is left of a segment that local retention took",
        with_index_of_deleted_segment,
        control=True,
    ),
    *case_per_row(
        "F17", "bytes left of the first segment:", lambda it, kept: cut(it, 0, kept), [(0,), (len(HEALTHY.batches[0].data) - 1,)]
    ),
    injected_case(
        "F17",
        "records deleted up to the second segment, the first is empty",
        lambda it: it.checkpoint("log-start", 29),
        lambda it: cut(it, 0, 0),
    ),
    injected_case("F17", "an empty only segment misses nothing", only_first),
    *case_per_row("F17", "no directory is left on", without_partition, [(1, 2, 3), (1, 2)]),
    injected_case(
        "F17",
        "no directory is left of a topic that was deleted",
        lambda it: without_partition(it, 1, 2, 3),
        deleted_topic,
        control=True,
    ),
)

# Indexes, snapshots, checkpoints.


def stale_times(brokers: Brokers, stale: tuple[int, ...], crashed: bool, closed: bool) -> None:
    """Stale entries of a truncation at the end of the time index, followed by zeros unless the file was closed."""
    path = brokers.file(2, 55, "timeindex")
    data = bytearray(path.read_bytes())
    for entry in stale:
        data[12 * entry : 12 * entry + 8] = (int.from_bytes(data[12 * entry : 12 * entry + 8], "big") - 1).to_bytes(8, "big")
    path.write_bytes(data if closed else data + bytes(120))
    if crashed:
        brokers.crash(2)


def dropped_entries(brokers: Brokers, later_ms: int) -> None:
    """Broker 2 crashed with open indexes that end in entries of a missing tail, with timestamps `later_ms` after the last
    record."""
    index, times = brokers.file(2, 55, "index"), brokers.file(2, 55, "timeindex")
    index.write_bytes(index.read_bytes() + write_offset_index([(200 + n, 1_000_000 + n) for n in range(40)], 55) + bytes(80))
    stamp = max(batch.max_timestamp for batch in HEALTHY.batches) + later_ms
    times.write_bytes(times.read_bytes() + write_time_index([(stamp + n, 200 + n) for n in range(40)], 55) + bytes(120))
    brokers.crash(2)


def dropped_tail(brokers: Brokers, epoch_start: int | None, high_watermark: int) -> None:
    """`dropped_entries` with timestamps after all records; broker 1 may have a later leader epoch that starts at `epoch_start`."""
    dropped_entries(brokers, 1000)
    brokers.checkpoint("replication", high_watermark, 2)
    if epoch_start is not None:
        brokers.put_epochs(1, *ENTRIES, (7, epoch_start))


def beside_u(brokers: Brokers) -> None:
    for broker in (1, 2, 3):
        put_partition(brokers.log_dir(broker) / "u-0", HEALTHY)


def no_epochs(brokers: Brokers) -> None:
    brokers.file_named(2, EPOCH_FILE).unlink()


def no_small_files(brokers: Brokers) -> None:
    """After a crash broker 2 has no epochs, no topic id and no snapshots of its partition."""
    brokers.crash(2)
    no_epochs(brokers)
    brokers.file_named(2, METADATA).unlink()
    remove_snapshots(brokers, 2)


def without_producers(root: Path) -> Brokers:
    log = Log()
    _ = log.plain(), log.plain()
    brokers = put_replicas(root, dict.fromkeys((1, 2), log), 6)
    remove_snapshots(brokers, 1, 2)
    return brokers


def malformed(file: str, damage: str) -> bytes:
    line = b"0 0" if file == EPOCH_FILE else b"t 0 72"
    entry = line.rpartition(b" ")[0]
    return {
        "count": b"0\n2147483647\n" + line + b"\n",
        "a long line": b"0\n1\n" + entry + b" " + b"7" * 100_000 + b"\n",
        "version": b"9\n1\n" + line + b"\n",
        "negative count": b"0\n-1\n" + line + b"\n",
        "a long count": b"0\n" + b"7" * 100_000 + b"\n" + line + b"\n",
        "words": b"0\n1\n" + entry + b" seventy\n",
        "zeros": bytes(4096),
        "torn": b"0\n2\n" + line + b"\n" + entry,
    }[damage]


def malformed_beside_damage(brokers: Brokers, file: str, damage: str) -> None:
    directory = brokers.log_dir(2) / "t-0" if file == EPOCH_FILE else brokers.log_dir(2)
    (directory / file).write_bytes(malformed(file, damage))
    brokers.flip(2, TARGET, 100)


MALFORMED_EPOCHS: Final = (b"0\n3\n0 0\nx 32\n2 58\n", b"0\n3\n0 0\n1 -32\n2 58\n", b"7\n3\n0 0\n1 35\n2 58\n", b"\xff\xfe" * 40)
"""Content that is not a valid `leader-epoch-checkpoint`."""
FILES: Final = (
    CHECKPOINT,
    EPOCH_FILE,
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
DAMAGES: Final = ("count", "a long line", "version", "negative count", "a long count", "words", "zeros", "torn")
SMALL_FILE_VARIANTS: Final = (
    injected_case("F25", "a position beyond the log", lambda it: change(it.file(2, 55, "index"), 44, 0x10)),
    *case_per_row(
        "F25",
        "stale entries in a time index, crashed, closed:",
        stale_times,
        [((6,), True, False), ((5, 6), True, False), ((5,), True, False), ((6,), False, False), ((6,), True, True)],
        controls=[((6,), True, False), ((5, 6), True, False)],
    ),
    *case_per_row("F25", "entries older than the log of a tail that was cut", dropped_entries, [(-1_000_000,)], control=True),
    *case_per_row("F25", "the same with `--live`", dropped_entries, [(-1_000_000,)], control=True, live=True),
    *case_per_row(
        "F25",
        "entries of a tail that is gone; start of a later epoch, high watermark:",
        dropped_tail,
        [(LOG_END, LOG_END), (None, LOG_END), (LOG_END, LOG_END + 5)],
        controls=[(LOG_END, LOG_END)],
    ),
    *case_per_row(
        "F28", "one snapshot less:", lambda it, at: it.file(2, at, "snapshot").unlink(), [(29,), (55,), (75,)], control=True
    ),
    Case("F28", "no snapshots of a log without producers", without_producers, control=True),
    injected_case("F29", "epochs gone", no_epochs, control=True),
    injected_case("F29", "epochs gone beside another partition with its own", no_epochs, beside_u),
    injected_case("F29", "the same with `--live`", no_epochs, beside_u, control=True, live=True),
    injected_case("F29", "the same after a crash", beside_u, no_epochs, lambda it: it.crash(2)),
    injected_case("F29", "no small file of a partition beside another with its own, after a crash", beside_u, no_small_files),
    *case_per_row(
        "F32",
        "leader epochs",
        lambda it, data: it.file_named(2, EPOCH_FILE).write_bytes(data),
        [(data,) for data in MALFORMED_EPOCHS],
    ),
    injected_case(
        "F32",
        "leader epochs of version 7 and an epoch field that lies",
        lambda it: it.file_named(2, EPOCH_FILE).write_bytes(MALFORMED_EPOCHS[2]),
        lambda it: it.flip(2, TARGET, 15, 3),
    ),
    *case_per_row(
        "F32",
        "no checkpoint, and a damaged batch:",
        malformed_beside_damage,
        [*product(FILES[:2], DAMAGES), *product(FILES[2:], DAMAGES[:1])],
    ),
    injected_case(
        "F32",
        "an unreadable recovery point has all segments walked",
        lambda it: it.crash(2),
        lambda it: it.flip(2, TARGET, 100),
        lambda it: (it.log_dir(2) / "recovery-point-offset-checkpoint").write_bytes(b"9\n1\nt 0 55\n"),
    ),
    injected_case(
        "-",
        "log start above the high watermark everywhere, only b2 crashed",
        on_brokers(lambda it, broker: it.put_epochs(broker, (2, 62))),
        lambda it: it.checkpoint("replication", 60),
        lambda it: it.checkpoint("log-start", 62),
        lambda it: it.crash(2),
    ),
    injected_case("-", "log start beyond the log end", lambda it: it.crash(2), lambda it: it.checkpoint("log-start", 80, 2)),
)

# Starts after a crash, and leftovers.


def crashed(brokers: Brokers, recovery_point: int) -> None:
    crash(brokers, recovery_point)
    FLIP(brokers)


def copied_aside(brokers: Brokers, broker: int, to: int) -> None:
    """A copy of a broker's partition, renamed for deletion."""
    shutil.copytree(brokers.log_dir(broker) / "t-0", brokers.log_dir(to) / f"{ASIDE}-delete")


LEFTOVERS: Final = (
    injected_case("-", "a crash without damage", lambda it: crash(it, 55), control=True),
    *case_per_row("F01", "damage after a crash, recovery point:", crashed, [(54,)]),
    injected_case(
        "F01",
        "damage after a crash, none of it committed",
        lambda it: crash(it, 29),
        FLIP,
        lambda it: it.checkpoint("replication", 39),
    ),
    injected_case("F01", "damage after a crash, with `--live`", lambda it: crash(it, 29), FLIP, live=True),
    injected_case("F08", "magic 1, after a crash", lambda it: crash(it, 29), lambda it: it.overwrite(2, TARGET, b"\1", MAGIC)),
    injected_case("-", "a damaged segment without index after a clean shutdown", FLIP, lambda it: it.file(2, 29, "index").unlink()),
    injected_case(
        "F47",
        "a swap of sound and half of a split, with `--live`",
        lambda it: swap_in(it, 29, it.file(2, 29).read_bytes()),
        half_of_a_split,
        live=True,
        control=True,
    ),
    injected_case(
        "F47",
        "an empty swap and half of a split, with `--live`",
        lambda it: swap_in(it, 29, b""),
        half_of_a_split,
        live=True,
        control=True,
    ),
    injected_case(
        "F47", "a swap with a torn batch", lambda it: swap_in(it, 29, it.file(2, 29).read_bytes()[: target(it).position + 100])
    ),
    injected_case(
        "F47",
        "a truncated tail that no log reaches to any more",
        lambda it: it.remove(1, 55),
        lambda it: it.remove(3, 55),
        truncated_tail,
        lambda it: it.checkpoint("replication", 29),
    ),
    injected_case(
        "F47",
        "`.cleaned` and `.deleted` of a live segment",
        lambda it: [shutil.copy(it.file(2, 29), f"{it.file(2, 29)}.{ending}") for ending in ("deleted", "cleaned")],
        control=True,
    ),
    injected_case(
        "F47",
        "what the cleaner took from all",
        on_brokers(lambda it, broker: set_aside(it, broker, 29, "deleted")),
        lambda it: it.checkpoint("cleaner", 55),
    ),
    injected_case(
        "F47", "a directory on its way out is all that is left", lambda it: directory_aside(it, "delete"), keep_only, control=True
    ),
    injected_case(
        "F47",
        "a missing replica lies stray in the other log directory",
        lambda it: shutil.copytree(it.log_dir(2) / "t-0", it.root / "b2-more" / f"{ASIDE}-stray"),
        lambda it: shutil.copy(it.log_dir(2) / "meta.properties", it.root / "b2-more"),
        lambda it: without_partition(it, 2),
    ),
    injected_case(
        "F47",
        "a directory of an earlier topic fills nothing",
        lambda it: it.remove(2, 29),
        lambda it: copied_aside(it, 1, 2),
        lambda it: put_topic_id(it.log_dir(2) / f"{ASIDE}-delete", OTHER_TOPIC_ID),
    ),
    injected_case(
        "F47",
        "a directory of an earlier topic that another broker still has",
        lambda it: copied_aside(it, 1, 1),
        lambda it: copied_aside(it, 2, 2),
        on_brokers(lambda it, broker: put_topic_id(it.directory(broker), OTHER_TOPIC_ID), 1, 2),
    ),
    injected_case(
        "F17",
        "the last segment is missing, its index is left",
        lambda it: it.remove(1, 55, "log"),
        lambda it: it.file(1, LOG_END, "snapshot").unlink(),
    ),
    injected_case(
        "F17",
        "an index beside its deleted log proves nothing",
        lambda it: it.file(1, 0).rename(f"{it.file(1, 0)}.deleted"),
        control=True,
    ),
    injected_case("F46", "damage in the middle of a live copy", lambda it: it.flip(2, TARGET, 100), live=True),
    injected_case("F46", "a log that shrinks to a part of its first batch", during=lambda it: os.truncate(it.file(2, 55), 100)),
    injected_case(
        "F46",
        "an index that vanishes, an epoch field lies",
        lambda it: it.flip(1, TARGET, 15),
        during=lambda it: it.file(2, 29, "index").unlink(),
    ),
    injected_case("F46", "a checkpoint written while the log is read", during=lambda it: it.checkpoint("replication", LOG_END, 2)),
)
VARIANTS: Final[tuple[Case, ...]] = (*SEGMENT_VARIANTS, *SMALL_FILE_VARIANTS, *LEFTOVERS)
