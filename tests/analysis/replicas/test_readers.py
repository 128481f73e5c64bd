"""Why consumers cannot read the newest records: the high watermark, the last stable offset, nothing, or unknown."""

from typing import Any

import pytest
from msgspec.structs import replace

from kafka_forensics.analysis.replica import Replica
from kafka_forensics.analysis.replicas.readers import ReadersLimit, held_back_finding, readable
from kafka_forensics.cli.commands.groups import readers_text
from kafka_forensics.model.controller import PartitionControl, PartitionEvent, PartitionHistory, PartitionState
from kafka_forensics.wording import message
from kafka_forensics.writers.batches import RecordToWrite, write_batch
from tests.analysis.replica_logs import Logs, batches
from tests.support.segments import BASE_TIMESTAMP


def control(isr: list[int] | None, leader: int | None = 1, **configs: str) -> PartitionControl:
    topic_configs = {name.replace("_", "."): value for name, value in configs.items()}
    return PartitionControl(leader, 0, isr, None, [1, 2, 3], configs=topic_configs)


def replicas(**ends: int) -> list[Replica]:
    """Replicas by name, b1=…, each a prefix of one history."""
    logs = Logs()
    return [logs.add(int(name[1:]), batches((0, "a" * end))) for name, end in ends.items()]


def stamp(replica: Replica, offset: int) -> int | None:
    assert offset < replica.log_end_offset
    return BASE_TIMESTAMP - 60_000


def judged(found: list[Replica], about: PartitionControl | None) -> ReadersLimit:
    return readable(found, about, stamp)


@pytest.mark.parametrize(
    ("ends", "isr", "checkpointed", "expected"),
    [
        ({"b1": 9, "b2": 9, "b3": 4}, [1, 2], 0, ("nothing", 1, 9, None, ())),
        ({"b1": 9, "b2": 4, "b3": 7}, [1, 2, 3], 4, ("high_watermark", 1, 4, 4, (2,))),
        ({"b1": 9, "b2": 4, "b3": 7}, [1, 2, 3], 5, ("high_watermark", 1, 7, 7, (3,))),
        ({"b1": 9, "b2": 4, "b3": 7}, [1, 2, 3], 7, ("high_watermark", 1, 7, 7, (3,))),
        ({"b1": 9, "b2": 4, "b3": 7}, [1, 2, 3], 8, ("nothing", 1, 9, None, ())),
        ({"b1": 9, "b2": 4, "b3": 7}, [1, 2, 3], 20, ("nothing", 1, 9, None, ())),
        ({"b1": 5, "b2": 5, "b3": 9}, [1, 2], 0, ("nothing", 1, 5, None, ())),
    ],
)
def test_who_holds_readers_back(
    ends: dict[str, int], isr: list[int], checkpointed: int, expected: tuple[str, int, int, int | None, tuple[int, ...]]
) -> None:
    """What holds them, the leader, its watermark, the offset, and by whom; what the leader has checkpointed nobody holds back."""
    found = replicas(**ends)
    found[0].context.high_watermark = checkpointed
    answer = judged(found, control(isr))
    assert (answer.held_back_by, answer.leader, answer.high_watermark, answer.held_back_at, answer.brokers) == expected
    assert (held_back_finding(found, answer) == []) is (answer.held_back_by == "nothing")
    assert judged(found, None).high_watermark == (9 if checkpointed >= 9 else None)


def test_the_shortest_members_of_the_isr_hold_the_high_watermark() -> None:
    found = replicas(b1=9, b2=4, b3=4)
    answer = judged(found, control([1, 2, 3], min_insync_replicas="2"))
    assert (answer.since_ms, answer.waiting_ms, answer.min_insync_replicas) == (BASE_TIMESTAMP - 60_000, 60_001, 2)
    [finding] = held_back_finding(found, answer)
    assert (finding.place.offset_start, finding.place.offset_end, finding.evidence["brokers"]) == (4, 9, [2, 3])
    assert finding.evidence["behind"] == 5


def test_an_isr_below_its_minimum_is_reported() -> None:
    answer = judged(replicas(b1=9, b2=4), control([1, 2], min_insync_replicas="3"))
    assert answer.isr_below_minimum
    assert held_back_finding(replicas(b1=9), answer)[0].evidence["reason"] == "isr_below_minimum"
    assert judged(replicas(b1=9), control([1], min_insync_replicas="2")).isr_below_minimum
    assert not judged(replicas(b1=9), control([1], min_insync_replicas="no number")).isr_below_minimum
    assert not judged(replicas(b1=9), control([1], min_insync_replicas="1" * 10)).isr_below_minimum


def test_an_isr_at_its_minimum_is_not_called_below_it() -> None:
    found = replicas(b1=9, b2=4)
    texts = [message(held_back_finding(found, judged(found, control([1, 2], min_insync_replicas=minimum)))[0]) for minimum in "23"]
    assert ["min.insync.replicas" in text for text in texts] == [False, True]
    assert texts[1].endswith("; the ISR is below min.insync.replicas 3.")


def event(at: int, leader: int, isr: tuple[int, ...], before: tuple[int, ...], kind: str = "changed") -> PartitionEvent:
    state = PartitionState(leader, at, at, isr, (), (), (1, 2, 3), (), (), (), 0)
    return PartitionEvent(at, 1000 * at, kind, state, previous_isr=before)


@pytest.mark.parametrize("isr", [(), (2,)])
def test_without_a_leader_nothing_can_be_read(isr: tuple[int, ...]) -> None:
    """The time is that of the record that removed the last leader; with eligible leader replicas the ISR is then empty."""
    events = [
        event(1, -1, isr, ()),
        event(2, 2, (2, 3), ()),
        event(3, 2, (2,), (2, 3)),
        event(4, -1, isr, (2,)),
        event(5, -1, isr, isr),
    ]
    about = replace(control(list(isr), leader=-1), history=PartitionHistory(events))
    answer = judged(replicas(b1=9, b2=9), about)
    assert (answer.held_back_by, answer.since_ms, answer.brokers, answer.high_watermark) == ("no_leader", 4000, (2,), None)
    assert held_back_finding(replicas(b1=9), answer) == []
    assert readers_text(answer) == "no leader since 1970-01-01T00:00:04.000Z; last in sync: 2"
    assert readers_text(judged(replicas(b1=9), control([], leader=-1))) == "no leader"
    assert judged(replicas(b1=5, b3=9), control([1, 3], leader=-1)).leader == 3


@pytest.mark.parametrize("about", [None, control(None), control([1, 2, 3])])
def test_without_the_isr_or_a_members_log_it_is_unknown(about: PartitionControl | None) -> None:
    answer = judged(replicas(b1=9, b2=4), about)
    assert (answer.held_back_by, answer.high_watermark, answer.held_back_at, answer.brokers) == ("unknown", None, 4, (2,))
    assert held_back_finding(replicas(b1=9), answer) == []


@pytest.mark.parametrize(
    ("ends", "missing", "words"),
    [
        ({"b1": 9, "b2": 9}, (3,), "the end of readable records is unknown: no log of broker 3, a member of the ISR"),
        ({"b1": 9}, (2, 3), "the end of readable records is unknown: no logs of brokers 2, 3, members of the ISR"),
        ({"b1": 9, "b2": 4}, (3,), "held at 4 or before: by broker 2, and no log of broker 3, a member of the ISR"),
    ],
)
def test_an_isr_member_without_log_may_hold_readers_back(ends: dict[str, int], missing: tuple[int, ...], words: str) -> None:
    answer = judged(replicas(**ends), control([1, 2, 3]))
    assert (answer.held_back_by, answer.missing, answer.high_watermark) == ("unknown", missing, None)
    assert readers_text(answer) == words
    assert held_back_finding(replicas(**ends), answer) == []


@pytest.mark.parametrize("about", [control([1]), None])
def test_an_open_transaction_holds_the_last_stable_offset(about: PartitionControl | None) -> None:
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    plain = write_batch([RecordToWrite(b"k", b"v")], base_offset=0, base_timestamp=BASE_TIMESTAMP)
    opened = write_batch([RecordToWrite(b"k", b"v")], base_offset=1, base_timestamp=BASE_TIMESTAMP + 5, **fields)
    after = write_batch([RecordToWrite(b"k", b"v")], base_offset=2, base_timestamp=BASE_TIMESTAMP + 9)
    found = [Logs().add(1, [], data=plain + opened + after, start=0)]
    answer = judged(found, about)
    assert (answer.held_back_by, answer.held_back_at, answer.producer_id) == ("last_stable_offset", 1, 7)
    assert answer.since_ms == BASE_TIMESTAMP + 5
    assert held_back_finding(found, answer) == []
    isr_unknown = judged(found, control([1, 2]))
    assert (isr_unknown.held_back_by, isr_unknown.held_back_at, isr_unknown.missing) == ("last_stable_offset", 1, (2,))
    assert readers_text(isr_unknown).endswith(", or before: no log of broker 2, a member of the ISR")


def test_renamed_brokers_are_recognised_by_their_node_ids() -> None:
    found = replicas(b1=9, b2=4)
    for replica in found:
        replica.context.node_id = replica.context.broker
        replica.context.broker = f"rack-{replica.context.broker}"
    answer = judged(found, control([1, 2]))
    assert (answer.held_back_by, answer.leader, answer.brokers) == ("high_watermark", "rack-1", ("rack-2",))


@pytest.mark.parametrize(
    ("ends", "about", "high_watermark", "brokers"),
    [
        ({"b1": 9}, {"isr": [1], "elr": [2], "min_insync_replicas": "2"}, 6, ()),
        ({"b1": 9, "b2": 6}, {"isr": [1], "elr": [2], "min_insync_replicas": "2"}, 6, ()),
        ({"b1": 9, "b2": 8}, {"isr": [1], "elr": [2]}, 6, ()),
        ({"b1": 9}, {"isr": [1], "metadata_version": 15, "min_insync_replicas": "2"}, 6, ()),
        ({"b1": 9, "b2": 7}, {"isr": [1, 2], "metadata_version": 15, "min_insync_replicas": "3"}, 6, ()),
        ({"b1": 9}, {"isr": [1, 2], "metadata_version": 15, "min_insync_replicas": "3"}, 6, ()),
        ({"b1": 9, "b2": 9}, {"isr": [1, 2], "metadata_version": 15, "min_insync_replicas": "2"}, 9, None),
        ({"b1": 9, "b2": 6}, {"isr": [1], "metadata_version": 14, "min_insync_replicas": "2"}, 9, None),
        ({"b1": 9, "b2": 6}, {"isr": [1], "metadata_version": 15, "min_insync_replicas": "1"}, 9, None),
        ({"b1": 9}, {"isr": [1], "metadata_version": 15, "min_insync_replicas": "2", "replicas": [1]}, 9, None),
    ],
)
def test_the_high_watermark_waits_for_the_minimum_of_the_isr(
    ends: dict[str, int], about: dict[str, Any], high_watermark: int, brokers: tuple[int, ...] | None
) -> None:
    """Since Kafka 3.7, and never for more replicas than exist; `brokers` is None if nothing holds readers back."""
    found = replicas(**ends)
    found[0].context.high_watermark = 6
    settings = {name: value for name, value in about.items() if name == "min_insync_replicas"}
    partition_control = replace(
        control(about["isr"], **settings),
        elr=about.get("elr"),
        metadata_version=about.get("metadata_version"),
        replica_assignment=about.get("replicas", [1, 2, 3]),
    )
    answer = judged(found, partition_control)
    assert (answer.high_watermark, answer.readable_end_offset) == (high_watermark, high_watermark)
    findings = held_back_finding(found, answer)
    assert [finding.evidence["brokers"] for finding in findings] == ([] if brokers is None else [list(brokers)])
    if brokers == ():
        assert f"the ISR ({' and '.join(map(str, about['isr']))}) is below" in message(findings[0])
        assert readers_text(answer).startswith(f"high watermark held at {high_watermark} since ")


@pytest.mark.parametrize(
    ("checkpointed", "held_back_by", "end", "words"),
    [
        (9, "nothing", 9, "readable"),
        (6, "unknown", None, "readable to 6 at least: the ISR is unknown"),
        (None, "unknown", None, "the end of readable records is unknown: the ISR is unknown"),
    ],
)
def test_without_the_isr_only_the_checkpoint_proves_offsets_readable(
    checkpointed: int | None, held_back_by: str, end: int | None, words: str
) -> None:
    found = replicas(b1=9, b2=9)
    found[0].context.high_watermark = checkpointed
    answer = judged(found, None)
    assert (answer.held_back_by, answer.readable_end_offset, readers_text(answer)) == (held_back_by, end, words)


def test_the_high_watermark_of_an_isr_below_its_minimum_is_not_known_without_a_checkpoint() -> None:
    """It does not move to the ISR's log ends; a follower's checkpoint is older than the leader's."""
    partition_control = replace(control([1, 2], min_insync_replicas="3"), metadata_version=15)
    answer = judged(replicas(b1=9, b2=7), partition_control)
    assert (answer.held_back_by, answer.readable_end_offset) == ("unknown", None)
    assert readers_text(answer) == (
        "the end of readable records is unknown: no checkpoint has the high watermark; ISR of 2, below min.insync.replicas 3"
    )
    found = replicas(b2=7)
    found[0].context.high_watermark = 6
    assert readers_text(judged(found, partition_control)) == (
        "the end of readable records is unknown: no log of broker 1, a member of the ISR"
    )
