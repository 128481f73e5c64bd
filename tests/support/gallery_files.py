"""The gallery's cases of whole files: segments cut, moved and lost; indexes, snapshots and checkpoints that lie."""

from pathlib import Path
from typing import Final

from kafka_forensics.model.files import AbortedTxn
from kafka_forensics.writers.files import write_meta_properties, write_transaction_index
from tests.support.faults import (
    CLUSTER_ID,
    COMMITTING,
    HEALTHY,
    LOG_END,
    Brokers,
    Log,
    healthy,
    histories,
    write_checkpoint,
    write_files,
)
from tests.support.gallery_case import Case, done, on_each, patient, segment
from tests.support.injections import (
    append,
    change,
    claim_epochs,
    cut,
    delete_segment,
    history,
    noise,
    remove_snapshots,
    rename_segment,
    swap,
    zero_page,
)

FIRST, MIDDLE, ACTIVE = (segment(offset) for offset in (0, 29, 55))
CHECKPOINT: Final = "replication-offset-checkpoint"
EPOCHS: Final = "b2/t-0/leader-epoch-checkpoint"
METADATA: Final = "partition.metadata"


def torn(brokers: Brokers, end: int, *, clean: bool = False) -> None:
    """The active segment ends at a byte; after a crash, or after a clean shutdown."""
    if not clean:
        brokers.crash(2)
    cut(brokers, 55, end)


def lost_behind_noise(brokers: Brokers, size: int = 100) -> None:
    append(brokers, 0, noise(size))
    delete_segment(brokers, 2)


SEGMENTS: Final = (
    done("F13", "last batch cut short, after a crash", lambda it: torn(it, it.log.batches[-1].position + 100), damaged=ACTIVE),
    done(
        "F13", "the same after a clean shutdown", lambda it: torn(it, it.log.batches[-1].position + 100, clean=True), damaged=ACTIVE
    ),
    done("F13", "a committed batch cut short, after a crash", lambda it: torn(it, it.log.at(69).position + 50), damaged=ACTIVE),
    done("F14", "another segment cut inside a batch", lambda it: cut(it, 29, it.log.at(49).position + 100), damaged=MIDDLE),
    done("F14", "another segment cut between two batches", lambda it: cut(it, 29, it.log.at(49).position), damaged=MIDDLE),
    done(
        "F14",
        "another segment cut, nothing of it committed",
        on_each(lambda it, broker: write_checkpoint(it.log_dir(broker), "replication", 49)),
        lambda it: cut(it, 29, it.log.at(49).position + 100),
        damaged=MIDDLE,
    ),
    done("F15", "zeros behind the last batch", lambda it: append(it, 55, bytes(10_000)), damaged=ACTIVE, control=True),
    done("F16", "a page of zeros in the middle", lambda it: zero_page(it, 29), damaged=MIDDLE),
    done("F17", "middle segment deleted on b1", lambda it: delete_segment(it, 1), damaged=segment(55, broker=1)),
    done("F17", "middle segment deleted on all three", on_each(lambda it, broker: delete_segment(it, broker)), damaged=ACTIVE),
    done("F17", "middle segment deleted, 100 bytes of noise before it", lost_behind_noise, damaged=FIRST),
    done("F18", "an older batch appended again", lambda it: append(it, 55, it.log.at(43).data), damaged=ACTIVE),
    done("F19", "two batches swapped", lambda it: swap(it, it.log.at(46), it.log.at(49)), damaged=MIDDLE),
    done("F20", "segment renamed to a later offset", lambda it: rename_segment(it, 29, 31), damaged=segment(31)),
    done("F20", "segment renamed to an earlier offset", lambda it: rename_segment(it, 29, 27), damaged=segment(27)),
)


def unordered_times(brokers: Brokers) -> None:
    path = brokers.file(2, 29, "timeindex")
    data = path.read_bytes()
    path.write_bytes(data[:12] + data[24:36] + data[12:24] + data[36:])


def more_bytes(brokers: Brokers, suffix: str, data: bytes) -> None:
    path = brokers.file(2, 29, suffix)
    path.write_bytes(path.read_bytes() + data)


def no_snapshots(brokers: Brokers, *, others: bool = False, crashed: bool = False) -> None:
    """Broker 2 has no producer snapshot; `others`: of another partition it has."""
    if crashed:
        brokers.crash(2)
    remove_snapshots(brokers, 2)
    for broker in (1, 2, 3) if others else ():
        write_files(brokers.log_dir(broker) / "u-0", HEALTHY)


def without_id_under_zookeeper(root: Path) -> Brokers:
    brokers = healthy(root)
    brokers.named(2, METADATA).unlink()
    (brokers.log_dir(2) / "meta.properties").write_bytes(write_meta_properties(version=0, node_id=2, cluster_id=CLUSTER_ID))
    return brokers


def empty_without_id(root: Path) -> Brokers:
    """Nothing was ever appended on broker 2, where the topic's id was not yet written down."""
    brokers = histories(root, {1: history(("r0", 0)), 2: Log()}, {1: 0, 2: 0})
    brokers.named(2, METADATA).unlink()
    return brokers


def logs_alone(root: Path) -> Brokers:
    brokers = healthy(root)
    for path in (brokers.log_dir(2) / "t-0").iterdir():
        if path.suffix != ".log":
            path.unlink()
    return brokers


def lost_tail(brokers: Brokers) -> None:
    delete_segment(brokers, 2, 55)
    brokers.file(2, 75, "snapshot").unlink()
    write_checkpoint(brokers.log_dir(2), "recovery-point", 55)


def checkpoint(brokers: Brokers, data: bytes) -> None:
    (brokers.log_dir(2) / CHECKPOINT).write_bytes(data)


def moved_log_start(brokers: Brokers) -> None:
    """Records were deleted, and the broker crashed before it wrote down the high watermark."""
    for broker in (1, 2, 3):
        write_checkpoint(brokers.log_dir(broker), "replication", 60)
    write_checkpoint(brokers.log_dir(2), "log-start", 62)
    claim_epochs(brokers, 2, (2, 62))
    brokers.crash(2)


PHANTOM: Final = write_transaction_index([AbortedTxn(COMMITTING, 36, 42, 43)])
DROPPED, SHIFTED = ((0, 0), (2, 58)), ((0, 0), (1, 35), (2, 58))
INVENTED, DISORDERED = ((0, 0), (1, 32), (2, 58), (4, 65)), ((0, 0), (2, 58), (1, 32))
TO_COME: Final = ((0, 0), (1, 32), (2, 58), (3, LOG_END))
BEYOND: Final = patient(lambda it: write_checkpoint(it.log_dir(2), "replication", 90))
SMALL_FILES: Final = (
    done("F25", "`.index` position flipped", lambda it: change(it.file(2, 29, "index"), 31), damaged=segment(29, "index")),
    done("F25", "`.timeindex` out of order", unordered_times, damaged=segment(29, "timeindex")),
    done("F25", "`.index` of no whole entries", lambda it: more_bytes(it, "index", b"\1\1\1"), damaged=segment(29, "index")),
    done(
        "F25",
        "`.timeindex` of no whole entries",
        lambda it: more_bytes(it, "timeindex", b"\1" * 8),
        damaged=segment(29, "timeindex"),
    ),
    done(
        "P9",
        "`.timeindex` without `.index`",
        on_each(lambda it, offset: it.file(2, offset, "index").unlink(), 0, 29, 55),
        damaged=segment(29, "timeindex"),
        note="not a byte changes",
    ),
    Case("P10", "`.txnindex`, nothing wrong", healthy, segment(29, "txnindex"), note="it is only read", traced=True),
    done(
        "F26",
        "aborted transaction left out of `.txnindex`",
        lambda it: it.file(2, 29, "txnindex").write_bytes(b""),
        damaged=segment(29, "txnindex"),
    ),
    done("F26", "`.txnindex` gone", lambda it: it.file(2, 29, "txnindex").unlink()),
    done(
        "F27",
        "committed transaction listed as aborted",
        lambda it: more_bytes(it, "txnindex", PHANTOM),
        damaged=segment(29, "txnindex"),
    ),
    done(
        "F28", "`.snapshot` with a bit flipped", lambda it: change(it.file(2, 55, "snapshot"), 3), damaged=segment(55, "snapshot")
    ),
    done(
        "F28",
        "`.snapshot` of an earlier state",
        lambda it: it.file(2, 55, "snapshot").write_bytes(it.file(2, 29, "snapshot").read_bytes()),
        damaged=segment(55, "snapshot"),
    ),
    done("F28", "no `.snapshot` at all, after a clean shutdown", no_snapshots),
    done("F28", "the same where another partition has its own", lambda it: no_snapshots(it, others=True)),
    done("F28", "no `.snapshot` at all, after a crash", lambda it: no_snapshots(it, crashed=True), control=True),
    done("F29", "`leader-epoch-checkpoint`: an entry dropped", lambda it: claim_epochs(it, 2, *DROPPED), damaged=EPOCHS),
    done("F29", "an entry shifted", lambda it: claim_epochs(it, 2, *SHIFTED), damaged=EPOCHS),
    done("F29", "an entry invented", lambda it: claim_epochs(it, 2, *INVENTED), damaged=EPOCHS),
    done("F29", "entries out of order", lambda it: claim_epochs(it, 2, *DISORDERED), damaged=EPOCHS),
    done(
        "F29",
        "an entry at the log end, without batches yet",
        lambda it: claim_epochs(it, 2, *TO_COME),
        damaged=EPOCHS,
        control=True,
    ),
    Case("F30", "high watermark beyond the log end", BEYOND, f"b2/{CHECKPOINT}"),
    done("F30", "the active segment gone", lost_tail, damaged=f"b2/{CHECKPOINT}"),
    Case("F30", "high watermark beyond the log end, with `--live`", BEYOND, f"b2/{CHECKPOINT}", live=True),
    done("F31", "high-watermark checkpoint missing", lambda it: (it.log_dir(2) / CHECKPOINT).unlink(), control=True),
    done(
        "F31",
        "high watermark 0",
        lambda it: write_checkpoint(it.log_dir(2), "replication", 0),
        damaged=f"b2/{CHECKPOINT}",
        control=True,
    ),
    done(
        "F32", "checkpoint of 2147483647 lines", lambda it: checkpoint(it, b"0\n2147483647\nt 0 72\n"), damaged=f"b2/{CHECKPOINT}"
    ),
    done(
        "F32",
        "checkpoint with a number of 10 MB",
        lambda it: checkpoint(it, b"0\n1\nt 0 " + b"7" * 10_000_000 + b"\n"),
        damaged=f"b2/{CHECKPOINT}",
    ),
    done("F32", "checkpoint of version 9", lambda it: checkpoint(it, b"9\n1\nt 0 72\n"), damaged=f"b2/{CHECKPOINT}"),
    done("F32", "checkpoint of noise", lambda it: checkpoint(it, noise(3000)), damaged=f"b2/{CHECKPOINT}"),
    done(
        "F32",
        "`leader-epoch-checkpoint` that counts wrongly",
        lambda it: it.named(2, "leader-epoch-checkpoint").write_bytes(b"0\n3\n0 0\n2 58\n"),
        damaged=EPOCHS,
    ),
    done("-", "`partition.metadata` gone", lambda it: it.named(2, METADATA).unlink(), shown=("topic_id", "told_by")),
    Case("-", "the same of a broker under ZooKeeper", without_id_under_zookeeper, None, control=True),
    Case("-", "the same of an empty log", empty_without_id, None, control=True),
    Case("-", "no small file in any directory, as in a copy of the logs alone", logs_alone, None, control=True),
    done("-", "log start above the high watermark, after a crash", moved_log_start, control=True),
)
