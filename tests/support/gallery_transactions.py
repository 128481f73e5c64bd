"""The gallery's cases of transactions: open and late, torn and lost; and of the coordinators' log when it cannot be read."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from kafka_forensics.writers.batches import write_transaction_log_key
from tests.support.controller_log import CONTROLLER
from tests.support.faults import Brokers
from tests.support.gallery_case import Case, segment
from tests.support.transaction_logs import (
    ABORT,
    APP,
    COMMIT,
    LATE,
    LIES,
    NOTHING,
    OTHER,
    STATE,
    TOO_LATE,
    CoordinatorLog,
    DataLog,
    Logs,
    after_retention,
    another_one,
    brokers_of,
    cluster,
    controller_since,
    coordinator,
    cut_before,
    decided,
    ended,
    epochs_of,
    forgotten,
    late_write,
    left_open,
    many,
    prepared,
    replaced_coordinator,
    retained,
    segmented,
    strangers,
    without_segment,
    without_transaction,
)

FIRST, SECOND = (segment(0, broker=1, directory=name) for name in ("t-0", "t-1"))
COORDINATOR: Final = segment(0, broker=1, directory=STATE)
DECODER: Final = "--transaction-log-decoder"
ALSO: Final = ((COORDINATOR, DECODER),)
COMMITTED: Final = partial(decided, 30)
OVERDUE: Final = 12 + TOO_LATE
"""The second at which the open transaction's last record is too old."""


def logs_of(make: Callable[[], Logs], *, damaged: str = FIRST, told: bool = True) -> partial[Case]:
    """Three brokers with these logs; kafka-dump-log is told the coordinators' log too, if there is one."""
    also = ALSO if told else ()
    return partial(Case, make=lambda root: brokers_of(root, make()), damaged=damaged, also=also)


def opened(later: float, state: Callable[[float], CoordinatorLog] | None) -> partial[Case]:

    def make() -> Logs:
        data = {"t-0": left_open(later)}
        return data if state is None else data | {STATE: state(later)}

    return logs_of(make, told=state is not None)


def stated(state: str) -> partial[Case]:
    """The coordinator says of the long open transaction that it is in this state."""
    return opened(12 + 100 * TOO_LATE, lambda later: coordinator(later, (later, state, (0, 1))))


def committed_again(root: Path) -> Brokers:
    """A live copy of t-0 that ends before the marker which the coordinator's log is past."""
    state = coordinator(OVERDUE, (OVERDUE, "CompleteAbort", ()))
    return brokers_of(root, {"t-0": left_open(13), STATE: state})


def behind_the_marker() -> Logs:
    behind, ahead = left_open(OVERDUE), left_open(OVERDUE)
    ahead.marker(OVERDUE + 1, commit=False)
    return {"t-0": {1: ahead, 2: ahead, 3: behind}, STATE: coordinator(OVERDUE)}


def ending_as_decided() -> Logs:
    data = left_open(15)
    data.marker(16, commit=True)
    state = coordinator(15, (10, "Ongoing", (0,)), (15.99, "PrepareCommit", (0,)), (16.01, "CompleteCommit", ()))
    return {"t-0": data, STATE: state}


def data_and_state(made: tuple[DataLog, CoordinatorLog]) -> Logs:
    return {"t-0": made[0], STATE: made[1]}


def both(
    first: bool | None, second: bool | None, state: Callable[[], CoordinatorLog] | None, *, client: int, traffic: float
) -> Logs:
    data_log, other = (ended(30, each, client=client, traffic=traffic) for each in (first, second))
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
    return logs_of(make, damaged=SECOND, told=state is not None)


def ending_before(root: Path) -> Brokers:
    """No broker was stopped cleanly; t-1 ends before the coordinator decided, other logs of the same brokers behind."""
    logs = cluster(ended(30, COMMIT), ended(30, NOTHING, traffic=None), decided(30))
    return brokers_of(root, logs, clean=False)


def gone(created: float) -> partial[Case]:
    """t-1 is empty everywhere; the controller has created the topic at second `created`."""

    def make(root: Path) -> Brokers:
        without_transaction(root)
        controller_since(root / f"c{CONTROLLER}", created)
        return Brokers(root, DataLog())

    return partial(Case, make=make, damaged=SECOND, also=ALSO)


def lost_segment(root: Path) -> Brokers:
    """The segment with the records of a committed transaction is gone on every broker."""
    brokers = brokers_of(root, cluster(ended(30, COMMIT), segmented(), decided(30)))
    without_segment(brokers, "t-1", 3)
    return brokers


def lying(lie: str, *, restated: bool = False) -> partial[Case]:
    """A value of the coordinators' log that cannot be read; `restated`: the id is stated again behind it."""

    def make() -> Logs:
        state = CoordinatorLog()
        state.transaction(0, (0,), commit=True, name=OTHER)
        state.state(20, "Empty")
        state.value(30, write_transaction_log_key(APP), LIES[lie])
        state.transaction(40, (0,), commit=True, name=OTHER)
        if restated:
            state.state(50, "Empty")
        return {"t-0": ended(30, NOTHING, traffic=LATE), STATE: state}

    return partial(
        Case,
        make=lambda root: brokers_of(root, make()),
        damaged=COORDINATOR,
        peer_options=(DECODER,),
        shown=("reason", "transactional_id", "unknown_after_offset"),
    )


def lying_key(root: Path) -> Brokers:
    state = CoordinatorLog()
    state.state(20, "Empty")
    state.value(30, b"\0\x07\0\x05app-1", b"")
    state.state(50, "Empty")
    return brokers_of(root, {"t-0": ended(30, NOTHING, traffic=LATE), STATE: state})


HANGING: Final = ("reason", "producer_id", "last_stable_offset", "hidden_records", "safe_to_abort")
OPEN: Final = ("coordinator", "coordinator_state")
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
        "its records are gone with their segment, a snapshot holds it open",
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
        lambda root: brokers_of(root, {"t-0": left_open(OVERDUE), "__transaction_state-1": strangers(11)}),
        FIRST,
        also=((segment(0, broker=1, directory="__transaction_state-1"), DECODER),),
        control=True,
        shown=("missing_partitions",),
    ),
    Case(
        "F41",
        "`--live`: a log older than the coordinator's last word",
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
    logs_of(lambda: data_and_state(late_write(OVERDUE, 1)))("F43", "data of a fenced epoch behind the marker", shown=HANGING),
    logs_of(lambda: data_and_state(late_write(OVERDUE, 0)))(
        "F43", "data of an equal epoch behind the marker (before KIP-890)", shown=("late_write_after", *HANGING)
    ),
    logs_of(lambda: data_and_state(epochs_of(0)))("F43", "markers as transaction version 0 writes them", control=True),
    logs_of(lambda: data_and_state(epochs_of(2)))("F43", "markers as transaction version 2 writes them", control=True),
    torn(COMMIT, ABORT)("F44", "committed by the coordinator; t-0 has COMMIT, t-1 has ABORT", shown=("reason", "decision")),
    torn(COMMIT, ABORT, partial(decided, 30, client=2), client=2)(
        "F44", "the same in transaction version 2", shown=("reason", "decision")
    ),
    torn(COMMIT, NOTHING)("F44", "committed by the coordinator; t-1 has no marker", shown=("reason", "decision")),
    Case(
        "F44",
        "the same at the end of t-1, after a crash",
        ending_before,
        SECOND,
        also=ALSO,
        shown=("reason", "decision", "confidence"),
    ),
    torn(COMMIT, NOTHING, prepared, traffic=LATE)(
        "F44", "PrepareCommit for more than 20 minutes; t-1 has no marker", shown=("reason", "decision")
    ),
    torn(ABORT, COMMIT, partial(decided, 30, commit=False))(
        "F44", "aborted by the coordinator; t-1 has COMMIT", shown=("reason", "decision")
    ),
    logs_of(lambda: many(47), damaged=SECOND)("F44", "one of a hundred under one epoch, clocks seven seconds apart"),
    torn(COMMIT, ABORT, None, client=2)(
        "F44", "COMMIT in t-0, ABORT in t-1, without the coordinators' log", shown=("committed_in", "shown_as", "confidence")
    ),
    torn(COMMIT, ABORT, None)("F44", "the same before transaction version 2", shown=("committed_in", "shown_as", "confidence")),
    logs_of(lambda: cluster(ended(30, COMMIT), cut_before(), decided(30)), damaged=SECOND)(
        "F44", "committed, and no copy of t-1 has its records", shown=("reason",)
    ),
    gone(-3600)("F44", "committed, and t-1, as old as t-0, is empty on every broker", shown=("reason",)),
    Case(
        "F44",
        "committed, and its segment of t-1 is gone everywhere",
        lost_segment,
        segment(0, broker=1, directory="t-1"),
        also=ALSO,
        shown=("reason",),
    ),
    *(
        torn(each, each, partial(decided, 30, commit=each, client=client), client=client)(
            "F44", f"{'COMMIT' if each else 'ABORT'} in both as decided, transaction version {client}", control=True
        )
        for client, each in ((0, True), (2, True), (2, False))
    ),
    gone(40)("F44", "committed, t-1 is empty on every broker, and the topic was created anew since", control=True),
    torn(COMMIT, NOTHING, prepared, traffic=60)("F44", "PrepareCommit a minute ago; t-1 has no marker", control=True),
    Case(
        "F44", "`--live`: the copies of t-1 are older than the decision", ending_before, SECOND, also=ALSO, live=True, control=True
    ),
    logs_of(lambda: cluster(ended(30, COMMIT), another_one(0)), damaged=SECOND, told=False)(
        "F44", "COMMIT and ABORT of two transactions, one after the other", control=True
    ),
    logs_of(lambda: many(None), damaged=SECOND)("F44", "a hundred, all as decided, clocks seven seconds apart", control=True),
    logs_of(after_retention, damaged=segment(90, broker=1, directory="t-1"))(
        "F44", "retention took the records of t-1", control=True
    ),
    logs_of(lambda: {"t-0": replaced_coordinator()}, told=False)(
        "-", "a marker of coordinator epoch 4 behind one of 5", shown=("coordinator_epoch", "previous_coordinator_epoch")
    ),
)
MALFORMED: Final = (
    lying("version")("F48", "`__transaction_state`: a value of version 9"),
    lying("short")("F48", "`__transaction_state`: 2147483646 partitions"),
    lying("short of tags")("F48", "`__transaction_state`: 2147483647 tagged fields"),
    lying("state")("F48", "`__transaction_state`: a state of number 99"),
    lying("version", restated=True)("F48", "`__transaction_state`: a value of version 9, and the id is stated again"),
    Case(
        "F48",
        "`__transaction_state`: a key of version 7",
        lying_key,
        COORDINATOR,
        peer_options=(DECODER,),
        shown=("reason", "unknown_after_offset"),
    ),
)
