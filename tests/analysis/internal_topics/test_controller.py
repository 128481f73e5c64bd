"""The controller's log replayed: the state after changes, the count of epochs, and unknown state."""

import json
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafka_forensics.analysis.internal_topics import controller
from kafka_forensics.analysis.internal_topics.controller import ControllerReplay, MetadataCopy, add_copy, merge_copies
from kafka_forensics.model.controller import ControllerHistory, MetadataBatch, MetadataSnapshot, PartitionControl, PartitionEvent
from tests.support.brokers import TOPIC, TOPIC_ID
from tests.support.controllers import HUGE_VARINT, broker_registration, decode, partition, partition_change, record, setting, topic

OTHER_ID = "AAECAwQFBgcICQoLDA0ODw"
BAD_CHANGE = b"\1\5\x09" + partition_change(leader=3)[3:]
BAD_SETTING = b"\1\4\0" + HUGE_VARINT


def replayed(
    *values: bytes, start: int = 0, committed_end: int | None = None, possible_end: int | None = None
) -> ControllerHistory:
    replay = ControllerReplay(start, committed_end=committed_end, possible_end=possible_end)
    feed(replay, values, start)
    return replay.finish(start + len(values))


def feed(replay: ControllerReplay, values: Sequence[bytes], start: int = 0) -> None:
    for offset, value in enumerate(values, start):
        replay.step(offset, 1000 + offset, decode(value))


def last(history: ControllerHistory, name: str = TOPIC) -> PartitionControl:
    return history.partitions[name, 0]


def events(history: ControllerHistory) -> list[PartitionEvent]:
    kept = last(history).history
    assert kept is not None
    return kept.events


BEGIN, END, ABORT = record(23), record(24), record(25)
INSIDE = (partition_change(leader=2), partition_change(isr=[2]))
MADE = (topic(), partition([1, 2], 1))
WITH_ELR = (topic(), partition([1], 1, eligible_leader_replicas=[2], last_known_elr=[3]))
SECRETS = (
    setting("min.insync.replicas", "2", resource="", resource_type=4),
    setting("ssl.keystore.password", "secret", resource="", resource_type=4),
)
HISTORIES: dict[str, tuple[tuple[bytes, ...], dict[str, int]]] = {
    "changes keep what they do not name, and epochs are counted": (
        (
            topic(),
            partition([2, 3, 1], 2, directories=[bytes(16)] * 3),
            partition_change(isr=[2, 3]),
            partition_change(leader=3, isr=[3], eligible_leader_replicas=[2]),
            partition_change(leader=3),
            partition_change(leader=-1, isr=[], eligible_leader_replicas=[2, 3], last_known_elr=[]),
            partition_change(replicas=[2, 3], removing_replicas=[1]),
        ),
        {},
    ),
    "a topic made anew": (
        (
            *(topic(), partition([1], 1), setting("cleanup.policy", "compact"), record(9, topic_id=TOPIC_ID)),
            *(topic(topic_id=OTHER_ID), partition([2], 2, topic_id=OTHER_ID), partition_change(leader=1)),
        ),
        {},
    ),
    "a transaction that has not ended": ((*MADE, BEGIN, *INSIDE), {}),
    "a transaction that was aborted": ((*MADE, BEGIN, *INSIDE, ABORT), {}),
    "a transaction that ended": ((*MADE, BEGIN, *INSIDE, END), {}),
    "all ELRs are cleared": ((*WITH_ELR, record(28, topic_name="")), {}),
    "ELRs of the topic are cleared": ((*WITH_ELR, record(28, topic_name=TOPIC)), {}),
    "ELRs of another topic are cleared": ((*WITH_ELR, record(28, topic_name="other")), {}),
    "settings": (
        (
            *(topic(), setting("cleanup.policy", "delete"), setting("retention.ms", "5"), *SECRETS),
            *(partition([1], 1), setting("retention.ms", None)),
        ),
        {},
    ),
    "a policy that was changed": (
        (topic(), partition([1], 1), setting("cleanup.policy", "delete, compact"), setting("cleanup.policy", None)), {}
    ),
    "a policy of two words": ((topic(), partition([1], 1), setting("cleanup.policy", "delete, compact")), {}),
    "behind a record that cannot be read nothing is told": ((*MADE, BAD_CHANGE, partition_change(isr=[1])), {}),
    "told whole again": ((*MADE, BAD_CHANGE, partition([2], 2, leader_epoch=9), partition_change(isr=[2, 1])), {}),
    "a bad setting leaves only settings in doubt": (
        (topic(), setting("cleanup.policy", "delete"), partition([1], 1), BAD_SETTING), {}
    ),
    "bad records of other kinds": (
        (topic(), setting("cleanup.policy", "delete"), partition([1], 1), b"\1\0\x63", b"\1\x0b\0secret"), {}
    ),
    "records of unknown kinds are counted": ((*MADE, b"\1\x63\0\0", partition_change(isr=[1]), b"\1\x63\0\0"), {}),
    "begun later without a snapshot": ((partition_change(leader=2, topic_id=OTHER_ID), topic(), partition([1], 1)), {"start": 40}),
    "what no majority holds": ((*MADE, partition_change(leader=2, isr=[2])), {"committed_end": 2, "possible_end": 2}),
    "what a majority may hold": (
        (*MADE, partition_change(leader=2), partition_change(leader=1)),
        {"committed_end": 2, "possible_end": 3},
    ),
}  # fmt: skip
ANSWERS = Path(__file__).with_name("histories.json")
EXPECTED: dict[str, Any] = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}


def described(name: str) -> list[str]:
    """A controllers' history with the settings of its partitions."""
    values, given_ends = HISTORIES[name]
    history = replayed(*values, **given_ends)
    policies = [sorted(map(str, topic_history.policies)) for topic_history in history.topics.values()]
    for topic_history in history.topics.values():
        topic_history.policies.clear()  # a set has no order
    settings = [
        f"{key}: {control.cleanup_policy} {control.was_compacted} {control.setting('min.insync.replicas')} {control.configs}"
        for key, control in history.partitions.items()
    ]
    return [repr(history), str(policies), *settings]


@pytest.mark.parametrize("name", HISTORIES)
def test_histories_equal_the_golden_ones(name: str) -> None:
    """After a change of a rule: `python -m tests.analysis.internal_topics.test_controller`, and read the difference."""
    assert described(name) == EXPECTED[name]


@pytest.mark.parametrize(
    ("before", "then", "unclean"),
    [
        (partition([1, 2, 3], 1), partition_change(leader=2, isr=[2, 3]), False),
        (partition([1, 2, 3], 1), partition_change(leader=3, isr=[3], leader_recovery_state=1), True),
        (partition([1], 1, replicas=[1, 2]), partition_change(leader=2, isr=[2]), True),
        (partition([], -1, replicas=[1, 2], eligible_leader_replicas=[2]), partition_change(leader=2, isr=[2]), False),
        (partition([1], 1, replicas=[1, 4]), partition_change(leader=4, isr=[4], replicas=[4], adding_replicas=[]), False),
        (partition([1], 1, leader_recovery_state=1), partition_change(leader_recovery_state=0), False),
        (partition([1], 1), partition_change(leader=-1, leader_recovery_state=1), False),
    ],
)
def test_which_elections_are_unclean(before: bytes, then: bytes, unclean: bool) -> None:
    assert [event.is_unclean for event in events(replayed(topic(), before, then))] == [False, unclean]


def test_clearing_elrs_of_another_topic_takes_no_time() -> None:
    replay = ControllerReplay(0)
    feed(replay, [topic(), *(partition([1], 1, partition_id=number, eligible_leader_replicas=[2]) for number in range(10_000))])
    start = process_time()
    feed(replay, [record(28, topic_name="other")] * 10_000, start=20_000)
    assert process_time() - start < 3


def restated(offset: int, *values: bytes) -> MetadataSnapshot:
    records = tuple((number, decode(value)) for number, value in enumerate(values))
    return MetadataSnapshot(offset, 500, (MetadataBatch(0, 500, records),))


def test_a_snapshot_completes_a_log_that_begins_later() -> None:
    replay = ControllerReplay(40)
    assert replay.in_doubt
    replay.replace_state(restated(40, topic(), setting("cleanup.policy", "compact"), partition([3, 1], 3, leader_epoch=7)))
    assert not replay.in_doubt
    feed(replay, [partition_change(leader=1)], 40)
    history = replay.finish(41)
    assert (last(history).leader, last(history).leader_epoch, last(history).cleanup_policy) == (1, 8, "compact")
    shown = [(event.kind, event.offset, event.timestamp_ms) for event in events(history)]
    assert shown == [("snapshot", 40, 500), ("changed", 40, 1040)]
    assert history.topics[TOPIC_ID].created_offset is None


def test_a_snapshot_makes_state_known_and_adds_events_only_for_differences() -> None:
    replay = ControllerReplay(0)
    feed(replay, [topic(), partition([1, 2], 1), topic("gone", OTHER_ID), BAD_CHANGE])
    replay.replace_state(restated(4, topic(), partition([1, 2], 1)))
    feed(replay, [partition_change(isr=[1])], 4)
    history = replay.finish(5)
    assert (last(history).isr, last(history).unknown_after, history.unknown_after) == ([1], None, None)
    assert [event.kind for event in events(history)] == ["created", "changed"]
    assert history.topics[OTHER_ID].deleted_offset == 4


def test_histories_are_bounded_and_keep_unclean_elections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "MAX_EVENTS", 16)
    unclean = partition_change(leader=2, isr=[2], leader_recovery_state=1)
    kept = last(replayed(topic(), partition([1, 2], 1), unclean, *[partition_change(isr=[2])] * 100)).history
    assert kept is not None
    assert len(kept.events) + kept.dropped_events == 102
    assert len(kept.events) <= 16
    assert [event.kind for event in kept.events[:2]] == ["created", "changed"]
    assert kept.events[1].is_unclean


def test_unreadable_offsets_are_bounded_and_the_last_one_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "MAX_MARKS", 4)
    history = replayed(topic(), *[BAD_CHANGE] * 10, partition([1], 1))
    assert (history.malformed_records, last(history).unknown_after) == (10, 4)


RECORDS = st.one_of(
    st.sampled_from(
        [topic(), topic("u", OTHER_ID), partition([1, 2], 1), record(23), record(24), record(25), BAD_CHANGE, BAD_SETTING]
    ),
    st.builds(
        partition_change,
        leader=st.integers(-2, 3),
        isr=st.one_of(st.none(), st.lists(st.integers(1, 3), max_size=3)),
        topic_id=st.sampled_from([TOPIC_ID, OTHER_ID]),
        leader_recovery_state=st.integers(-1, 1),
    ),
    st.just(record(9, topic_id=TOPIC_ID)),
    st.just(record(28, topic_name="")),
    st.binary(max_size=30),
)


def naive(values: Sequence[bytes]) -> dict[str, Any] | None:
    """Leader, epoch and ISR of the partition by a naive replay, without transactions and damage."""
    state: dict[str, Any] | None = None
    topics: set[str] = set()
    for value in values:
        metadata_record = decode(value)
        assert metadata_record.fields is not None
        fields = metadata_record.fields
        if metadata_record.api_key == 2:
            topics.add(fields["topic_id"])
            state = None if fields["topic_id"] == TOPIC_ID else state
        elif metadata_record.api_key == 3:
            state = {"leader": fields["leader"], "leader_epoch": fields["leader_epoch"], "isr": fields["isr"]}
        elif metadata_record.api_key == 5 and fields["topic_id"] == TOPIC_ID and state is not None:
            state["isr"] = state["isr"] if fields["isr"] is None else fields["isr"]
            if fields["leader"] != -2:
                state |= {"leader": fields["leader"], "leader_epoch": state["leader_epoch"] + 1}
        elif metadata_record.api_key == 9:
            state = None
            topics.discard(TOPIC_ID)
    return state if TOPIC_ID in topics else None


@given(st.lists(RECORDS, max_size=25))
def test_any_records_have_a_history(values: list[bytes]) -> None:
    history = replayed(*values)
    for topic_history in history.topics.values():
        for kept in topic_history.partitions.values():
            offsets = [event.offset for event in kept.events]
            assert offsets == sorted(offsets)


SOUND = RECORDS.filter(lambda value: decode(value).fields is not None and decode(value).api_key not in (23, 24, 25))


@given(st.lists(SOUND, max_size=25))
def test_the_latest_state_equals_a_naive_replay(values: list[bytes]) -> None:
    expected = naive([topic(), *values])
    control = replayed(topic(), *values).partitions.get((TOPIC, 0))
    latest = None if control is None else {"leader": control.leader, "leader_epoch": control.leader_epoch, "isr": control.isr}
    assert latest == expected


def copy(node: int, *batches: tuple[int, int, int], size: int = 2) -> MetadataCopy:
    """A copy that holds batches (base offset, leader epoch, content) of `size` offsets each."""
    bases = np.array([base for base, _, _ in batches], np.int64)
    identities = np.array([(epoch << 32) | content for _, epoch, content in batches], np.int64)
    return MetadataCopy(node, bases, bases + size - 1, identities)


SAME = [(0, 1, 7), (2, 1, 8), (4, 1, 9)]


def test_a_longer_copy_of_an_older_epoch_does_not_win() -> None:
    log = merge_copies([copy(1, *SAME, (6, 1, 1), (8, 1, 2)), copy(2, *SAME, (6, 2, 3)), copy(3, *SAME)])
    assert (log.start_offset, log.end_offset, log.gaps) == (0, 8, [])
    assert log.agreed_ends == {1: 6, 2: 8, 3: 6}
    assert (log.identities >> 32).tolist() == [1, 1, 1, 2]
    assert log.committed_end([1, 2, 3]) == 6
    assert log.committed_end([2]) == 8
    assert log.committed_end([2, 3]) == 6


@pytest.mark.parametrize("damaged", range(len(SAME)))
def test_a_damaged_leader_epoch_is_no_fork(damaged: int) -> None:
    """No CRC covers the epoch. The copy may be any of them, also the one that an election would choose."""
    wrong = [(base, 4098 if row == damaged else epoch, content) for row, (base, epoch, content) in enumerate(SAME)]
    for nodes in ((1, 2, 3), (3, 2, 1)):
        copies = {1: copy(1, *wrong), 2: copy(2, *SAME), 3: copy(3, *SAME)}
        log = merge_copies([copies[node] for node in nodes])
        assert (log.end_offset, log.gaps, log.agreed_ends) == (6, [], dict.fromkeys(nodes, 6))


@pytest.mark.parametrize("voters", [None, [], [4, 5, 6], [1, 4, 5]])
def test_too_few_copies_of_voters_show_no_majority(voters: list[int] | None) -> None:
    assert merge_copies([copy(1, *SAME)]).committed_end(voters) is None


@pytest.mark.parametrize(
    ("voters", "ends"),
    [
        ([1, 2, 3], (6, 6)),
        ([1, 2, 4], (6, 8)),
        ([1, 2, 3, 4], (6, 6)),
        ([1, 2, 3, 4, 5], (6, 8)),
        ([2, 4, 5], (None, None)),
        ([2, 4], (None, 8)),
        ([], (None, None)),
    ],
)
def test_what_a_majority_may_hold_if_copies_are_missing(voters: list[int], ends: tuple[int | None, int | None]) -> None:
    """A voter without a given copy may have everything."""
    log = merge_copies([copy(1, *SAME), copy(2, *SAME, (6, 2, 3)), copy(3, *SAME)])
    assert (log.committed_end(voters), log.possible_end(voters)) == ends


@pytest.mark.parametrize(
    ("copies", "base_offsets", "gaps", "end"),
    [
        pytest.param(([],), [], [], 0, id="an empty copy"),
        pytest.param(([], SAME), [0, 2, 4], [], 6, id="an empty copy beside a whole one"),
        pytest.param(([SAME[0], SAME[2], (6, 1, 1)], SAME[:2]), [0, 2, 4, 6], [], 8, id="what one lost another fills in"),
        pytest.param(([SAME[0], (6, 1, 1)], [SAME[0], (6, 1, 1), (12, 1, 2)]), [0, 6, 12], [(2, 6), (8, 12)], 14, id="all lost it"),
        pytest.param(([SAME[0], (2, 2, 1), (8, 2, 2)], SAME), [0, 2, 8], [(4, 8)], 10, id="nothing from behind a fork"),
    ],
)
def test_copies_complete_each_other(
    copies: tuple[list[tuple[int, int, int]], ...], base_offsets: list[int], gaps: list[tuple[int, int]], end: int
) -> None:
    log = merge_copies([copy(node, *batches) for node, batches in enumerate(copies)])
    assert (log.base_offsets.tolist(), log.gaps, log.end_offset) == (base_offsets, gaps, end)


def test_equal_copies_share_their_memory() -> None:
    copies: list[MetadataCopy] = []
    for number, batches in enumerate((SAME[:2], SAME, SAME[1:], [*SAME, (6, 1, 1)], [(0, 1, 7), (2, 2, 3)], [])):
        add_copy(copies, copy(number, *batches))
    assert [metadata_copy.base_offsets.tolist() for metadata_copy in copies] == [
        [0, 2],
        [0, 2, 4],
        [2, 4],
        [0, 2, 4, 6],
        [0, 2],
        [],
    ]
    shared = [np.shares_memory(metadata_copy.base_offsets, copies[3].base_offsets) for metadata_copy in copies]
    assert shared == [True, True, True, True, False, False]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 2)), min_size=1, max_size=4))
def test_copies_of_parts_of_one_log_agree(cuts: list[tuple[int, int, int]]) -> None:
    whole = [(2 * at, 1 + at // 3, at) for at in range(6)]
    copies: list[MetadataCopy] = []
    for node, (a, b, _) in enumerate(cuts):
        add_copy(copies, copy(node, *whole[min(a, b) : max(a, b) + 1]))
    log = merge_copies(copies)
    batches = {batch for a, b, _ in cuts for batch in whole[min(a, b) : max(a, b) + 1]}
    assert log.base_offsets.tolist() == sorted(base for base, _, _ in batches)
    assert log.end_offset == max(metadata_copy.end_offset for metadata_copy in copies)
    assert log.agreed_ends == {metadata_copy.node: metadata_copy.end_offset for metadata_copy in copies}


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps({name: described(name) for name in HISTORIES}, indent=0) + "\n")


def test_brokers_are_fenced_and_unfenced() -> None:
    history = replayed(
        broker_registration(1, 0),
        record(17, broker_id=1, broker_epoch=0, fenced=-1),
        record(17, broker_id=1, broker_epoch=0, in_controlled_shutdown=1),
        record(7, id=1, epoch=0),
        record(8, id=1, epoch=0),
        broker_registration(1, 5),
        record(1, broker_id=1, broker_epoch=5),
    )
    states = [(event.timestamp_ms, event.broker, event.is_fenced) for event in history.brokers]
    assert states == [(1000, 1, True), (1001, 1, False), (1003, 1, True), (1004, 1, False), (1005, 1, True)]


def test_events_of_brokers_are_bounded() -> None:
    history = replayed(*(record(7 + number % 2, id=1, epoch=0) for number in range(5000)))
    assert len(history.brokers) <= controller.MAX_EVENTS
    assert history.brokers[-1].timestamp_ms == 5999
