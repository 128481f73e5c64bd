"""Variants of faults of transactions and producers: F41 to F45 and F48 of the coordinators' log, and what looks like them."""

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from kafka_forensics.writers.files import write_meta_properties
from tests.support.controller_log import CONTROLLER, ControllerLog, partition, topic
from tests.support.faults import ABORTING, COMMITTING, Brokers, Log, histories
from tests.support.gallery_case import Case, Row, trees
from tests.support.gallery_replicas import OTHER_CLUSTER_ID, wrapped_sequences
from tests.support.gallery_transactions import OVERDUE, both, committed_again, lying, opened, torn
from tests.support.transaction_logs import (
    ABORT,
    COMMIT,
    LATE,
    NOTHING,
    OTHER,
    STATE,
    TOO_LATE,
    CoordinatorLog,
    DataLog,
    Logs,
    another_one,
    brokers_of,
    cluster,
    controller_since,
    coordinator,
    cut_before,
    cut_within,
    decided,
    ended,
    left_open,
    ms,
    prepared,
    strangers,
    without_transaction,
    write_cluster,
    wrong_clock,
)

OTHER_TOPIC_ID: Final = "BBBBBBBBBBBBBBBBBBBBBQ"


def logs(
    fault: str, words: str, make: Callable[[], Logs], *, clean: bool = True, live: bool = False, control: bool = False
) -> Case:
    return Case(fault, words, lambda root: brokers_of(root, make(), clean=clean), live=live, control=control)


def each_logs(fault: str, words: str, make: Callable[..., Logs], rows: Iterable[Row], **given: Any) -> list[Case]:
    """A case a row: three brokers with the logs that are made with its values."""
    return trees(fault, words, lambda root, *row: brokers_of(root, make(*row)), rows, **given)


def isr(root: Path, members: list[int], *partitions: int, start: int | None = None, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
    """The controllers' log of `t`, whose partitions (1 unless named) have these replicas in sync; it begins at second `start`."""
    states = [partition(members, members[0], partition_id=number, replicas=list(replicas)) for number in partitions or (1,)]
    log = ControllerLog() if start is None else ControllerLog(start_ms=ms(start))
    log.lead([CONTROLLER]).append(topic(), *states).put(root / f"c{CONTROLLER}")


def committed_and(second: DataLog) -> Logs:
    """The coordinator committed; t-0 has COMMIT, t-1 is this."""
    return cluster(ended(30, COMMIT), second, decided(30))


# Open transactions.


def open_for_a_while(root: Path) -> Brokers:
    """A transaction is open, after another was aborted; nothing is known of coordinators."""
    log = Log()
    _ = log.produce(), log.produce(ABORTING, transactional=True)
    log.end_transaction(ABORTING, commit=False)
    _ = log.produce(COMMITTING, transactional=True), log.produce(), log.produce(COMMITTING, transactional=True)
    return histories(root, dict.fromkeys((1, 2, 3), log), dict.fromkeys((1, 2, 3), 7))


def clock_ahead(known: str) -> Logs:
    """Ages are counted by the clocks of brokers: somebody's record in another topic is stamped 50,000 years ahead."""
    logs: dict[str, Log] = {"t-0": left_open(13), "other-0": wrong_clock()}
    third = [(12.0, "Ongoing", (0,))] if known == "it as Ongoing" else []
    return logs if known == "not been copied" else logs | {STATE: coordinator(13, *third)}


def no_brokers_clock(state: bool) -> Logs:
    """One open transaction, and a client that stamps in microseconds; no marker says what time it is."""
    data = DataLog()
    data.data(10)
    return {"t-0": data, "other-0": wrong_clock()} | ({STATE: CoordinatorLog()} if state else {})


def old_times() -> Logs:
    """A producer copies old records with their times, behind a marker that tells when they were written at least."""
    data = DataLog()
    data.traffic(2 * TOO_LATE)
    data.data(10)
    data.traffic(2 * TOO_LATE + 1)
    return {"t-0": data, STATE: strangers(0, 2 * TOO_LATE)}


FORGOTTEN: Final = (10, "Ongoing", (0, 1)), (12.5, "PrepareCommit", (0, 1)), (12.6, "CompleteCommit", ())
"""The coordinator committed, listing t-1 too."""
OPEN: Final = (
    Case("F42", "open, without any marker behind it", open_for_a_while, control=True),
    opened(OVERDUE, lambda later: coordinator(later, *FORGOTTEN))("F41", "a commit on record makes it torn, not hanging"),
    opened(13, coordinator)("F41", "open for a second and not listed", control=True),
    *each_logs(
        "F41",
        "a client's clock is 50,000 years ahead; the coordinators' log has",
        clock_ahead,
        [("nothing of it",), ("it as Ongoing",), ("not been copied",)],
        control=True,
    ),
    *each_logs("F42", "no broker's clock; the coordinators' log is there, empty:", no_brokers_clock, [(False,), (True,)]),
    logs("F41", "records older than a marker before them", old_times, control=True),
    opened(OVERDUE, lambda later: coordinator(later, (10, "Ongoing", (0,))))("F42", "listed past its timeout"),
    Case("F41", "the coordinator completed it, and no copy has the marker", committed_again),
)

# Decisions and markers.


def fenced(bump: int, shown: bool | None) -> Logs:
    """A fenced transaction of version 2 ends one or two epochs up (early builds of 4.0: KAFKA-19367)."""
    log, state = DataLog(), CoordinatorLog()
    log.traffic(0)
    log.data(30, epoch=4)
    if shown is not None:
        log.marker(90.07, commit=shown, epoch=4 + bump)
    log.traffic(120)
    state.transaction(0, (0,), commit=True, name=OTHER)
    state.state(30, "Ongoing", (0,), epoch=4, client=2)
    state.state(90.05, "PrepareAbort", (0,), epoch=4 + bump, since=30, client=2)
    state.state(90.09, "CompleteAbort", epoch=4 + bump, since=30, client=2)
    return {"t-0": log, STATE: state}


def without_3(root: Path, members: tuple[int, ...]) -> Brokers:
    """Broker 3 was not given; the controllers' log says who had all that was committed."""
    brokers = brokers_of(root, committed_and(ended(30, NOTHING)))
    shutil.rmtree(root / "b3")
    isr(root, list(members))
    return brokers


def damaged_leader(root: Path) -> Brokers:
    """The leader's marker is damaged; the follower's copy ends before it and was not in sync."""
    second = {1: ended(30, COMMIT, traffic=None), 2: ended(30, NOTHING, traffic=None)}
    brokers = brokers_of(root, {"t-0": ended(30, COMMIT), "t-1": second, STATE: decided(30)}, clean=False)
    damage(next((root / "b1" / "t-1").glob("*.log")), -3)
    isr(root, [1], replicas=(1, 2))
    return brokers


def damage(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 0xFF
    path.write_bytes(data)


def fast_clock(root: Path, clean: bool, ahead: float) -> Brokers:
    """Broker 3 alone has the decision; broker 1 went on so many seconds behind it, by its own clock."""
    without, other = DataLog(), DataLog()
    without.traffic(0)
    without.data(30)
    other.traffic(30.09 + ahead)
    return brokers_of(root, {"t-0": {1: other}, "t-1": {1: without}, STATE: {3: decided(30)}}, clean=clean)


def controllers_as_of(root: Path, second: int) -> Brokers:
    """Broker 1 alone was given, and is in sync by a controllers' log of that second."""
    write_cluster(root / "all", committed_and(ended(30, NOTHING)))
    (root / "all" / "b1").rename(root / "b1")
    shutil.rmtree(root / "all")
    isr(root, [1, 2], 0, 1, start=second, replicas=(1, 2))
    return Brokers(root, DataLog())


def marker_on_one(root: Path, clean: bool) -> Brokers:
    has, without = ended(30, COMMIT, traffic=None), ended(30, NOTHING, traffic=None)
    brokers = brokers_of(root, {"t-0": ended(30, COMMIT), "t-1": {1: without, 2: has, 3: without}, STATE: decided(30)}, clean=clean)
    isr(root, [1])
    return brokers


def older_copies() -> Logs:
    """Crashed brokers, of which those with an open transaction have nothing newer."""
    second = ended(30, NOTHING, traffic=None)
    return {"t-0": {3: ended(30, COMMIT)}, "t-1": {1: second, 2: second}, STATE: {3: decided(30)}}


def lost_records() -> DataLog:
    log = DataLog()
    log.traffic(0)
    return log


TORN: Final = (
    torn(ABORT, ABORT, partial(decided, 30, commit=False))("F44", "aborted as decided in version 0", control=True),
    torn(COMMIT, NOTHING, partial(decided, 30, client=2), client=2)("F44", "no marker in version 2"),
    logs(
        "F44",
        "a client's clock is ahead, markers on their way",
        lambda: {**both(COMMIT, NOTHING, prepared, client=0, traffic=60), "other-0": wrong_clock()},
        control=True,
    ),
    logs(
        "F44",
        "an abort whose marker is lost, after a crash",
        lambda: cluster(ended(30, ABORT), ended(30, NOTHING, traffic=None), decided(30, commit=False)),
        clean=False,
    ),
    logs("F44", "committed records lost, after a crash", lambda: committed_and(lost_records()), clean=False),
    logs("F44", "copies of crashed brokers older than the decision", older_copies, clean=False, control=True),
    *each_logs(
        "F44",
        "fenced in version 2, epochs up, marker:",
        fenced,
        product((1, 2), (ABORT, NOTHING, COMMIT)),
        controls=[(1, ABORT), (2, ABORT)],
    ),
    *trees("F44", "broker 3 is not given; in sync:", without_3, [((3,),), ((2, 3),)], controls=[((3,),)]),
    Case("F44", "a follower behind a damaged leader, not in sync", damaged_leader),
    *trees(
        "F44",
        "broker 1 went on behind the decision; clean, by seconds:",
        fast_clock,
        [(True, 5), (True, 60), (False, 0.2), (False, 60)],
        controls=[(True, 5), (False, 0.2)],
    ),
    *trees("F44", "the controllers' log ends at second", controllers_as_of, [(-3600,), (20,), (3600,)], controls=[(-3600,), (20,)]),
    *trees("F44", "one copy has the marker; clean:", marker_on_one, [(True,), (False,)]),
    logs(
        "F44",
        "a decision long ago whose markers may still come, after a crash",
        lambda: cluster(ended(30, COMMIT, traffic=LATE), ended(30, NOTHING, traffic=None), prepared()),
        clean=False,
    ),
    logs(
        "F44",
        "two transactions in version 2 that ended differently",
        lambda: cluster(ended(30, COMMIT, client=2), another_one(2)),
        control=True,
    ),
    logs(
        "F44",
        "one copy of t-1 has the records",
        lambda: {"t-0": ended(30, COMMIT), "t-1": {1: cut_before(), 2: ended(30, COMMIT), 3: cut_before()}, STATE: decided(30)},
    ),
    *each_logs(
        "F44",
        "decisions beyond the log's end; version, one epoch:",
        lambda client, one_epoch: cut_within(client, one_epoch=one_epoch),
        [(0, False), (0, True), (2, False)],
    ),
)

# The same producer goes on behind a lost marker, so that two of its transactions look like one that is open.


def goes_on(client: int, later: float, written: list[float], commit: bool) -> Logs:
    """A transaction at 30 s ended so without a marker in t-0; one is in hand since `later`; `written` is when the open was."""
    log, state, other = DataLog(), CoordinatorLog(), DataLog()
    log.traffic(0)
    for at in written:
        log.data(at, epoch=client // 2 if at == later else 0)
    log.traffic(62)
    other.traffic(62)
    state.transaction(0, (0,), commit=True, name=OTHER)
    state.transaction(30, (0,), commit=commit, client=client)
    state.state(later, "Ongoing", (0,), epoch=client // 2, since=later, client=client)
    return cluster(log, other, state)


def ended_by_the_next(commit: bool, later: bool) -> Logs:
    """In version 2 the marker of the next transaction ended what the lost one should have."""
    log, state, other = DataLog(), CoordinatorLog(), DataLog()
    log.traffic(0)
    log.data(30)
    log.data(50, epoch=1)
    log.marker(50.07, commit=later, epoch=2)
    log.traffic(72)
    other.traffic(72)
    state.transaction(0, (0,), commit=True, name=OTHER)
    state.transaction(30, (0,), commit=commit, client=2)
    state.transaction(50, (0,), commit=later, epoch=1, client=2)
    return cluster(log, other, state)


GOES_ON: Final = (
    *each_logs(
        "F44",
        "the producer goes on; version, second, commit:",
        lambda client, later, commit: goes_on(client, later, [30, later], commit),
        [(client, later, commit) for client, later in ((2, 32), (0, 50), (0, 32)) for commit in (True, False)],
        controls=[(0, 32, True), (0, 32, False)],
    ),
    logs("F44", "the producer goes on: only long after", lambda: goes_on(0, 50, [50], commit=True)),
    *each_logs(
        "F44",
        "decided, ended by the marker of the next:",
        ended_by_the_next,
        product((True, False), repeat=2),
        controls=[(True, True), (False, False)],
    ),
)


def gone(root: Path, created: float | None, isr: tuple[int, ...] = (1, 2, 3), given: int = 3, **other: object) -> Brokers:
    """t-1 is empty everywhere; the topic was created at that second, if the controllers' log is there."""
    without_transaction(root, **other)  # type: ignore[arg-type]  # its own options
    for number in range(given + 1, 4):
        shutil.rmtree(root / f"b{number}")
    if created is not None:
        controller_since(root / f"c{CONTROLLER}", created, isr)
    return Brokers(root, DataLog())


GONE: Final = (
    Case("F44", "nothing is left of the only transaction, after a crash", lambda root: gone(root, -3600, clean=False)),
    Case("F44", "nothing is left, the topic was created about then", lambda root: gone(root, 25), control=True),
    Case("F44", "nothing is left, without the controllers' log", lambda root: gone(root, None), control=True),
    Case("F44", "nothing is left, retention took it", lambda root: gone(root, -3600, start=90), control=True),
    Case("F44", "nothing is left, the directory is of another topic", lambda root: gone(root, -3600, topic_id=OTHER_TOPIC_ID)),
    Case("F44", "nothing is left of an aborted transaction", lambda root: gone(root, -3600, commit=False), control=True),
    Case("F44", "nothing is left on copies that were not in sync", lambda root: gone(root, -3600, isr=(3,), given=2), control=True),
    Case("F44", "nothing is left, with `--live`", lambda root: gone(root, -3600, clean=False), control=True, live=True),
)

# The coordinators' log, and other clusters.


def damaged_copy(root: Path) -> Brokers:
    brokers = brokers_of(root, committed_and(ended(30, ABORT)))
    damage(root / "b1" / STATE / f"{0:020d}.log", -5)
    return brokers


def two_clusters(root: Path, ours: Logs, theirs: Logs) -> Brokers:
    brokers = brokers_of(root, ours)
    for number, path in enumerate(write_cluster(root / "theirs", theirs)):
        (path / "meta.properties").write_bytes(write_meta_properties(node_id=10 + number, cluster_id=OTHER_CLUSTER_ID))
        path.rename(root / f"o{number}")
    (root / "theirs").rmdir()
    return brokers


COORDINATORS: Final = (
    *(lying(lie, restated=True)("F48", f"the id is stated again: {lie}") for lie in ("short", "short of tags", "state")),
    Case("F48", "`__transaction_state`: one copy is damaged", damaged_copy),
    Case(
        "F44",
        "the coordinators of another cluster",
        lambda root: two_clusters(
            root,
            cluster(ended(30, ABORT), ended(30, NOTHING), decided(30, commit=False)),
            {"u-0": ended(30, COMMIT), STATE: decided(30)},
        ),
    ),
    Case(
        "F44",
        "markers of two clusters",
        lambda root: two_clusters(root, {"t-0": ended(30, COMMIT, client=2)}, {"u-0": ended(9000, ABORT, client=2)}),
    ),
)

# Sequence numbers.


SEQUENCES: Final = (
    *trees("F45", "sequence numbers that wrap, before the wrap:", wrapped_sequences, [(1,), (2,), (3,), (5,)], control=True),
)
VARIANTS: Final[tuple[Case, ...]] = (*OPEN, *TORN, *GOES_ON, *GONE, *COORDINATORS, *SEQUENCES)
