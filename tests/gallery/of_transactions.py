"""Cases and variants of the gallery for transactions: open, late, torn and lost; and for malformed logs of coordinators."""

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from kafka_forensics.writers.batches import write_transaction_log_key
from tests.gallery.case import Case, Row, cases_of_trees, segment
from tests.gallery.of_replicas import OTHER_CLUSTER_ID, wrapped_sequences
from tests.gallery.transactions import (
    ABORT,
    COMMIT,
    LATE,
    MALFORMED_VALUES,
    NOTHING,
    STATE,
    TOO_LATE,
    after_retention,
    another_one,
    cluster,
    controller_since,
    coordinator,
    cut_before,
    cut_within,
    decided,
    ended,
    epochs_of,
    forgotten,
    late_write,
    left_open,
    many,
    other_transactions,
    prepared,
    replaced_coordinator,
    retained,
    segmented,
    without_segment,
    without_transaction,
    wrong_clock,
)
from tests.support.brokers import Brokers, Logs, put_brokers, put_meta_properties, put_replicas
from tests.support.controllers import CONTROLLER, ControllerLog, partition, topic
from tests.support.logs import ABORTING, APP, COMMITTING, OTHER, CoordinatorLog, DataLog, Log, ms
from tests.support.segments import segment_file

FIRST, SECOND = (segment(0, broker=1, directory=name) for name in ("t-0", "t-1"))
COORDINATOR: Final = segment(0, broker=1, directory=STATE)
DECODER: Final = "--transaction-log-decoder"
ALSO: Final = ((COORDINATOR, DECODER),)
COMMITTED: Final = partial(decided, 30)
OVERDUE: Final = 12 + TOO_LATE
"""The second at which the open transaction's last record becomes too old."""


def logs_of(make: Callable[[], Logs], *, damaged: str = FIRST, with_coordinator: bool = True) -> partial[Case]:
    """A case of three brokers with these logs; kafka-dump-log also dumps the coordinators' log if `with_coordinator`."""
    also = ALSO if with_coordinator else ()
    return partial(Case, make=lambda root: put_brokers(root, make()), damaged=damaged, also=also)


def opened(later: float, state: Callable[[float], CoordinatorLog] | None) -> partial[Case]:

    def make() -> Logs:
        data = {"t-0": left_open(later)}
        return data if state is None else data | {STATE: state(later)}

    return logs_of(make, with_coordinator=state is not None)


def stated(state: str) -> partial[Case]:
    """A case where the coordinator has the long open transaction in this state."""
    return opened(12 + 100 * TOO_LATE, lambda later: coordinator(later, (later, state, (0, 1))))


def committed_again(root: Path) -> Brokers:
    """A copy of t-0 that ends before the marker of a transaction completed in the coordinator's log."""
    state = coordinator(OVERDUE, (OVERDUE, "CompleteAbort", ()))
    return put_brokers(root, {"t-0": left_open(13), STATE: state})


def behind_the_marker() -> Logs:
    behind, ahead = left_open(OVERDUE), left_open(OVERDUE)
    ahead.marker(OVERDUE + 1, commit=False)
    return {"t-0": {1: ahead, 2: ahead, 3: behind}, STATE: coordinator(OVERDUE)}


def ending_as_decided() -> Logs:
    data = left_open(15)
    data.marker(16, commit=True)
    state = coordinator(15, (10, "Ongoing", (0,)), (15.99, "PrepareCommit", (0,)), (16.01, "CompleteCommit", ()))
    return {"t-0": data, STATE: state}


def data_and_state(logs: tuple[DataLog, CoordinatorLog]) -> Logs:
    return {"t-0": logs[0], STATE: logs[1]}


def both(
    first: bool | None, second: bool | None, state: Callable[[], CoordinatorLog] | None, *, client: int, traffic: float
) -> Logs:
    data_log, other = (ended(30, commit, client=client, traffic=traffic) for commit in (first, second))
    return cluster(data_log, other, None if state is None else state())


def torn(
    first: bool | None,
    second: bool | None,
    state: Callable[[], CoordinatorLog] | None = COMMITTED,
    *,
    client: int = 0,
    traffic: float = 20.0,
) -> partial[Case]:
    make = partial(both, first, second, state, client=client, traffic=traffic)
    return logs_of(make, damaged=SECOND, with_coordinator=state is not None)


def ending_before(root: Path) -> Brokers:
    """No broker stopped cleanly; t-1 ends before the coordinator's decision, while other logs of the same brokers continue."""
    return put_brokers(root, cluster(ended(30, COMMIT), ended(30, NOTHING, traffic=None), decided(30)), clean=False)


def gone(created: float) -> partial[Case]:
    """A case where t-1 is empty everywhere; the controller created the topic at second `created`."""

    def make(root: Path) -> Brokers:
        without_transaction(root)
        controller_since(root / f"c{CONTROLLER}", created)
        return Brokers(root, DataLog())

    return partial(Case, make=make, damaged=SECOND, also=ALSO)


def lost_segment(root: Path) -> Brokers:
    """The segment with the records of a committed transaction is missing on every broker."""
    brokers = put_brokers(root, cluster(ended(30, COMMIT), segmented(), decided(30)))
    without_segment(brokers, "t-1", 3)
    return brokers


def malformed_value(kind: str, *, restated: bool = False) -> partial[Case]:
    """A case with a malformed value in the coordinators' log; `restated`: a later record states the id again."""

    def make() -> Logs:
        state = CoordinatorLog()
        state.transaction(0, (0,), commit=True, name=OTHER)
        state.state(20, "Empty")
        state.value(30, write_transaction_log_key(APP), MALFORMED_VALUES[kind])
        state.transaction(40, (0,), commit=True, name=OTHER)
        if restated:
            state.state(50, "Empty")
        return {"t-0": ended(30, NOTHING, traffic=LATE), STATE: state}

    return partial(
        Case,
        make=lambda root: put_brokers(root, make()),
        damaged=COORDINATOR,
        peer_options=(DECODER,),
        shown=("reason", "transactional_id", "unknown_after_offset"),
    )


def malformed_key(root: Path) -> Brokers:
    state = CoordinatorLog()
    state.state(20, "Empty")
    state.value(30, b"\0\x07\0\x05app-1", b"")
    state.state(50, "Empty")
    return put_brokers(root, {"t-0": ended(30, NOTHING, traffic=LATE), STATE: state})


HANGING: Final = ("reason", "producer_id", "last_stable_offset", "hidden_records", "safe_to_abort")
OPEN: Final = ("coordinator", "coordinator_state")
DECIDED: Final = ("reason", "decision")
SHOWN_AS: Final = ("committed_in", "shown_as", "confidence")
TRANSACTIONS: Final = (
    *(
        opened(OVERDUE, partial(forgotten, reason=reason))("F41", words, shown=(*HANGING, "command"))
        for reason, words in (
            ("partition_not_listed", "open for more than 20 minutes; its coordinator does not list the partition"),
            ("no_description", "the same; the transactional id has expired"),
            ("no_transactional_id", "the same; no transactional id has the producer"),
        )
    ),
    Case(
        "F41",
        "its records are lost with their segment, a snapshot holds it open",
        lambda root: retained(root, OVERDUE, listed=False),
        segment(2, broker=1),
        also=ALSO,
        shown=("hidden_by_retention", *HANGING),
    ),
    Case(
        "F41",
        "the same, and its coordinator lists it, in the state Ongoing",
        lambda root: retained(root, OVERDUE, listed=True),
        segment(2, broker=1),
        also=ALSO,
        shown=("hidden_by_retention", "coordinator_state"),
    ),
    opened(OVERDUE - 2, coordinator)("F41", "open for less than 20 minutes and not listed", control=True, shown=OPEN),
    Case(
        "F41",
        "as the first, and only partition 1 of the coordinators' log was copied",
        lambda root: put_brokers(root, {"t-0": left_open(OVERDUE), "__transaction_state-1": other_transactions(11)}),
        FIRST,
        also=((segment(0, broker=1, directory="__transaction_state-1"), DECODER),),
        control=True,
        shown=("missing_partitions",),
    ),
    Case(
        "F41",
        "`--live`: a log older than the coordinator's latest record",
        committed_again,
        FIRST,
        also=ALSO,
        live=True,
        control=True,
        shown=OPEN,
    ),
    logs_of(behind_the_marker, damaged=segment(0, broker=3))(
        "F41", "b3 ends before the marker that b1 and b2 have", control=True, shown=("ended_on",)
    ),
    logs_of(ending_as_decided)("F41", "all end as decided", control=True),
    *(
        stated(state)("F42", f"open for 33 hours, and the coordinator says {state}", control=True, shown=("transactional_id",))
        for state in ("Ongoing", "PrepareAbort", "PrepareEpochFence")
    ),
    opened(13, None)("F42", "open for a second, without the coordinators' log", control=True, shown=OPEN),
    opened(OVERDUE, None)(
        "F42", "open for more than 20 minutes, without the coordinators' log", shown=("coordinator", "confidence")
    ),
    logs_of(lambda: data_and_state(late_write(OVERDUE, 1)))("F43", "data of a fenced epoch after the marker", shown=HANGING),
    logs_of(lambda: data_and_state(late_write(OVERDUE, 0)))(
        "F43", "data of an equal epoch after the marker (before KIP-890)", shown=("late_write_after", *HANGING)
    ),
    logs_of(lambda: data_and_state(epochs_of(0)))("F43", "markers as transaction version 0 writes them", control=True),
    logs_of(lambda: data_and_state(epochs_of(2)))("F43", "markers as transaction version 2 writes them", control=True),
    torn(COMMIT, ABORT)("F44", "committed by the coordinator; t-0 has COMMIT, t-1 has ABORT", shown=DECIDED),
    torn(COMMIT, ABORT, partial(decided, 30, client=2), client=2)("F44", "the same in transaction version 2", shown=DECIDED),
    torn(COMMIT, NOTHING)("F44", "committed by the coordinator; t-1 has no marker", shown=DECIDED),
    Case(
        "F44",
        "the same at the end of t-1, after a crash",
        ending_before,
        SECOND,
        also=ALSO,
        shown=("reason", "decision", "confidence"),
    ),
    torn(COMMIT, NOTHING, prepared, traffic=LATE)(
        "F44", "PrepareCommit for more than 20 minutes; t-1 has no marker", shown=DECIDED
    ),
    torn(ABORT, COMMIT, partial(decided, 30, commit=False))("F44", "aborted by the coordinator; t-1 has COMMIT", shown=DECIDED),
    logs_of(lambda: many(47), damaged=SECOND)("F44", "one of a hundred in one epoch, clocks with seven seconds between them"),
    torn(COMMIT, ABORT, None, client=2)("F44", "COMMIT in t-0, ABORT in t-1, without the coordinators' log", shown=SHOWN_AS),
    torn(COMMIT, ABORT, None)("F44", "the same before transaction version 2", shown=SHOWN_AS),
    logs_of(lambda: cluster(ended(30, COMMIT), cut_before(), decided(30)), damaged=SECOND)(
        "F44", "committed, and no copy of t-1 has its records", shown=("reason",)
    ),
    gone(-3600)("F44", "committed, and t-1, as old as t-0, is empty on every broker", shown=("reason",)),
    Case(
        "F44",
        "committed, and its segment of t-1 is missing everywhere",
        lost_segment,
        segment(0, broker=1, directory="t-1"),
        also=ALSO,
        shown=("reason",),
    ),
    *(
        torn(commit, commit, partial(decided, 30, commit=commit, client=client), client=client)(
            "F44", f"{'COMMIT' if commit else 'ABORT'} in both as decided, transaction version {client}", control=True
        )
        for client, commit in ((0, True), (2, True), (2, False))
    ),
    gone(40)("F44", "committed, t-1 is empty on every broker, and the topic was created again since", control=True),
    torn(COMMIT, NOTHING, prepared, traffic=60)("F44", "PrepareCommit a minute ago; t-1 has no marker", control=True),
    Case(
        "F44", "`--live`: the copies of t-1 are older than the decision", ending_before, SECOND, also=ALSO, live=True, control=True
    ),
    logs_of(lambda: cluster(ended(30, COMMIT), another_one(0)), damaged=SECOND, with_coordinator=False)(
        "F44", "COMMIT and ABORT of two transactions, one after the other", control=True
    ),
    logs_of(lambda: many(None), damaged=SECOND)(
        "F44", "a hundred, all as decided, clocks with seven seconds between them", control=True
    ),
    logs_of(after_retention, damaged=segment(90, broker=1, directory="t-1"))(
        "F44", "retention deleted the records of t-1", control=True
    ),
    logs_of(lambda: {"t-0": replaced_coordinator()}, with_coordinator=False)(
        "-", "a marker of coordinator epoch 4 after one of 5", shown=("coordinator_epoch", "previous_coordinator_epoch")
    ),
)
MALFORMED: Final = (
    malformed_value("version")("F48", "`__transaction_state`: a value of version 9"),
    malformed_value("short")("F48", "`__transaction_state`: 2147483646 partitions"),
    malformed_value("short of tags")("F48", "`__transaction_state`: 2147483647 tagged fields"),
    malformed_value("state")("F48", "`__transaction_state`: a state of number 99"),
    malformed_value("version", restated=True)("F48", "`__transaction_state`: a value of version 9, and the id is stated again"),
    Case(
        "F48",
        "`__transaction_state`: a key of version 7",
        malformed_key,
        COORDINATOR,
        peer_options=(DECODER,),
        shown=("reason", "unknown_after_offset"),
    ),
)

# Variants: other places, other values, and states that only look like the fault. They are not in docs/faults.md.

OTHER_TOPIC_ID: Final = "BBBBBBBBBBBBBBBBBBBBBQ"


def logs(
    fault: str, words: str, make: Callable[[], Logs], *, clean: bool = True, live: bool = False, control: bool = False
) -> Case:
    return Case(fault, words, lambda root: put_brokers(root, make(), clean=clean), live=live, control=control)


def each_logs(fault: str, words: str, make: Callable[..., Logs], rows: Iterable[Row], **given: Any) -> list[Case]:
    """A case per row: three brokers with the logs that `make` builds from the row's values."""
    return cases_of_trees(fault, words, lambda root, *row: put_brokers(root, make(*row)), rows, **given)


def isr(root: Path, members: list[int], *partitions: int, start: int | None = None, replicas: tuple[int, ...] = (1, 2, 3)) -> None:
    """Write the controllers' log of `t` from second `start` on; its partitions (default: 1) have these members in the ISR."""
    states = [partition(members, members[0], partition_id=number, replicas=list(replicas)) for number in partitions or (1,)]
    log = ControllerLog() if start is None else ControllerLog(start_ms=ms(start))
    log.lead([CONTROLLER]).append(topic(), *states).put(root / f"c{CONTROLLER}")


def committed_and(second: DataLog) -> Logs:
    """The coordinator committed; t-0 has COMMIT, t-1 is `second`."""
    return cluster(ended(30, COMMIT), second, decided(30))


# Open transactions.


def open_for_a_while(root: Path) -> Brokers:
    """A transaction is open, after another was aborted; there is no coordinators' log."""
    log = Log()
    _ = log.produce(), log.produce(ABORTING, transactional=True)
    log.end_transaction(ABORTING, commit=False)
    _ = log.produce(COMMITTING, transactional=True), log.produce(), log.produce(COMMITTING, transactional=True)
    return put_replicas(root, log, 7)


def clock_ahead(coordinators_log: str) -> Logs:
    """A record in another topic has a timestamp 50,000 years ahead; ages are counted by brokers' clocks."""
    logs: dict[str, Log] = {"t-0": left_open(13), "other-0": wrong_clock()}
    third = [(12.0, "Ongoing", (0,))] if coordinators_log == "it as Ongoing" else []
    return logs if coordinators_log == "not been copied" else logs | {STATE: coordinator(13, *third)}


def no_brokers_clock(state: bool) -> Logs:
    """One open transaction, and a client with timestamps in microseconds; no marker shows the time of a broker."""
    data = DataLog()
    data.data(10)
    return {"t-0": data, "other-0": wrong_clock()} | ({STATE: CoordinatorLog()} if state else {})


def old_times() -> Logs:
    """A producer copies old records with their timestamps; a marker before them shows when they were written at the earliest."""
    data = DataLog()
    data.traffic(2 * TOO_LATE)
    data.data(10)
    data.traffic(2 * TOO_LATE + 1)
    return {"t-0": data, STATE: other_transactions(0, 2 * TOO_LATE)}


FORGOTTEN: Final = (10, "Ongoing", (0, 1)), (12.5, "PrepareCommit", (0, 1)), (12.6, "CompleteCommit", ())
"""The coordinator committed, and listed t-1 too."""
OPEN_VARIANTS: Final = (
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
    """A fenced transaction of version 2 ends one or two epochs later (early builds of 4.0: KAFKA-19367)."""
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
    """No copy of broker 3 is scanned; the controllers' log has the ISR."""
    brokers = put_brokers(root, committed_and(ended(30, NOTHING)))
    shutil.rmtree(root / "b3")
    isr(root, list(members))
    return brokers


def damaged_leader(root: Path) -> Brokers:
    """The leader's marker is damaged; the follower ends before it and was not in sync."""
    second = {1: ended(30, COMMIT, traffic=None), 2: ended(30, NOTHING, traffic=None)}
    brokers = put_brokers(root, {"t-0": ended(30, COMMIT), "t-1": second, STATE: decided(30)}, clean=False)
    damage(next((root / "b1" / "t-1").glob("*.log")), -3)
    isr(root, [1], replicas=(1, 2))
    return brokers


def damage(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= 0xFF
    path.write_bytes(data)


def fast_clock(root: Path, clean: bool, ahead: float) -> Brokers:
    """Only broker 3 has the decision; broker 1 continued for `ahead` seconds after it, by its own clock."""
    without, other = DataLog(), DataLog()
    without.traffic(0)
    without.data(30)
    other.traffic(30.09 + ahead)
    return put_brokers(root, {"t-0": {1: other}, "t-1": {1: without}, STATE: {3: decided(30)}}, clean=clean)


def controllers_as_of(root: Path, second: int) -> Brokers:
    """Only broker 1 is scanned, and is in the ISR by a controllers' log of that second."""
    put_brokers(root / "all", committed_and(ended(30, NOTHING)))
    (root / "all" / "b1").rename(root / "b1")
    shutil.rmtree(root / "all")
    isr(root, [1, 2], 0, 1, start=second, replicas=(1, 2))
    return Brokers(root, DataLog())


def marker_on_one(root: Path, clean: bool) -> Brokers:
    has, without = ended(30, COMMIT, traffic=None), ended(30, NOTHING, traffic=None)
    brokers = put_brokers(
        root, {"t-0": ended(30, COMMIT), "t-1": {1: without, 2: has, 3: without}, STATE: decided(30)}, clean=clean
    )
    isr(root, [1])
    return brokers


def older_copies() -> Logs:
    """Crashed brokers, where those with the open transaction have no newer records."""
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
    *cases_of_trees("F44", "broker 3 is not given; in sync:", without_3, [((3,),), ((2, 3),)], controls=[((3,),)]),
    Case("F44", "a follower behind a damaged leader, not in sync", damaged_leader),
    *cases_of_trees(
        "F44",
        "broker 1 went on behind the decision; clean, by seconds:",
        fast_clock,
        [(True, 5), (True, 60), (False, 0.2), (False, 60)],
        controls=[(True, 5), (False, 0.2)],
    ),
    *cases_of_trees(
        "F44", "the controllers' log ends at second", controllers_as_of, [(-3600,), (20,), (3600,)], controls=[(-3600,), (20,)]
    ),
    *cases_of_trees("F44", "one copy has the marker; clean:", marker_on_one, [(True,), (False,)]),
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

# A producer continues after a lost marker, so that two of its transactions look like one open transaction.


def goes_on(client: int, later: float, written: list[float], commit: bool) -> Logs:
    """A transaction at 30 s ended without a marker in t-0; the next one is open since `later`; `written`: times of its batches."""
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
    """In version 2 the marker of the next transaction ends the transaction whose marker is lost."""
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


def gone_everywhere(
    root: Path, created: float | None, isr: tuple[int, ...] = (1, 2, 3), copies: int = 3, **options: object
) -> Brokers:
    """t-1 is empty everywhere; the controllers' log, if any, shows that the topic was created at that second."""
    without_transaction(root, **options)  # type: ignore[arg-type]  # keyword arguments of that function
    for number in range(copies + 1, 4):
        shutil.rmtree(root / f"b{number}")
    if created is not None:
        controller_since(root / f"c{CONTROLLER}", created, isr)
    return Brokers(root, DataLog())


GONE: Final = (
    Case("F44", "nothing is left of the only transaction, after a crash", lambda root: gone_everywhere(root, -3600, clean=False)),
    Case("F44", "nothing is left, the topic was created about then", lambda root: gone_everywhere(root, 25), control=True),
    Case("F44", "nothing is left, without the controllers' log", lambda root: gone_everywhere(root, None), control=True),
    Case("F44", "nothing is left, retention took it", lambda root: gone_everywhere(root, -3600, start=90), control=True),
    Case(
        "F44",
        "nothing is left, the directory is of another topic",
        lambda root: gone_everywhere(root, -3600, topic_id=OTHER_TOPIC_ID),
    ),
    Case("F44", "nothing is left of an aborted transaction", lambda root: gone_everywhere(root, -3600, commit=False), control=True),
    Case(
        "F44",
        "nothing is left on copies that were not in sync",
        lambda root: gone_everywhere(root, -3600, isr=(3,), copies=2),
        control=True,
    ),
    Case("F44", "nothing is left, with `--live`", lambda root: gone_everywhere(root, -3600, clean=False), control=True, live=True),
)

# The coordinators' log, and other clusters.


def damaged_copy(root: Path) -> Brokers:
    brokers = put_brokers(root, committed_and(ended(30, ABORT)))
    damage(root / "b1" / STATE / segment_file(0), -5)
    return brokers


def two_clusters(root: Path, ours: Logs, theirs: Logs) -> Brokers:
    brokers = put_brokers(root, ours)
    for number, path in enumerate(put_brokers(root / "theirs", theirs).log_dirs):
        put_meta_properties(path, 10 + number, cluster_id=OTHER_CLUSTER_ID)
        path.rename(root / f"o{number}")
    (root / "theirs").rmdir()
    return brokers


COORDINATORS: Final = (
    *(
        malformed_value(kind, restated=True)("F48", f"the id is stated again: {kind}")
        for kind in ("short", "short of tags", "state")
    ),
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
    *cases_of_trees(
        "F45", "sequence numbers that wrap, before the wrap:", wrapped_sequences, [(1,), (2,), (3,), (5,)], control=True
    ),
)
VARIANTS: Final[tuple[Case, ...]] = (*OPEN_VARIANTS, *TORN, *GOES_ON, *GONE, *COORDINATORS, *SEQUENCES)
