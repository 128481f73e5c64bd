"""Plans agree with a naive replay: logs are lists of (epoch, id), and followers truncate record by record."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

from hypothesis import given, strategies as st

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.model.offset_ranges import Ranges, clipped, counted, normalised, without
from kafka_forensics.replication.planner import plans
from kafka_forensics.replication.planner.election_needs import election_needs
from kafka_forensics.replication.planner.planner import losses_without, plan_partition

Record = tuple[int, int]
"""(leader epoch, unique number); epoch -1 is none."""


@dataclass(frozen=True)
class Log:
    """A replica: its records from the log start on, without a hole."""

    start: int
    records: tuple[Record, ...]
    high_watermark: int
    has_checkpoint: bool = True

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def records_by_offset(self) -> dict[int, Record]:
        return dict(enumerate(self.records, self.start))

    def entries(self) -> tuple[EpochEntry, ...]:
        """An entry for each record that raises the epoch."""
        entries: list[EpochEntry] = []
        for offset, (epoch, _) in self.records_by_offset().items():
            if epoch >= 0 and (not entries or epoch > entries[-1].leader_epoch):
                entries.append(EpochEntry(epoch, offset))
        return tuple(entries)

    def loaded(self) -> tuple[EpochEntry, ...]:
        """The epochs that its broker loads; empty without a checkpoint."""
        return self.entries() if self.has_checkpoint else ()


@st.composite
def logs(draw: st.DrawFn, *, epochs: bool = True) -> list[Log]:
    """Three logs with arbitrary copied and new records, whether or not a protocol allows them."""
    written = 0
    replicas: list[list[Record]] = [[], [], []]
    for _ in range(draw(st.integers(1, 7))):
        which, other = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        mine, theirs = replicas[which], replicas[other]
        if draw(st.booleans()):
            last = max((entry[0] for entry in mine), default=0)
            epoch = draw(st.integers(last, last + 2)) if epochs else -1
            for _ in range(draw(st.integers(1, 3))):
                written += 1
                mine.append((epoch, written))
        else:
            keep = draw(st.integers(0, len(mine)))
            copied = [entry for entry in theirs[keep:] if not mine[:keep] or entry[0] >= mine[keep - 1][0]]
            replicas[which] = mine[:keep] + (copied if len(copied) == len(theirs[keep:]) else [])
    starts = [draw(st.integers(0, min(2, len(entries)))) for entries in replicas]
    return [
        Log(start, tuple(entries[start:]), draw(st.integers(0, len(entries))), draw(st.booleans()) or not epochs)
        for start, entries in zip(starts, replicas, strict=True)
    ]


def differing(left: Log, right: Log) -> Ranges:
    ours, theirs = left.records_by_offset(), right.records_by_offset()
    return normalised((offset, offset + 1) for offset in ours.keys() & theirs.keys() if ours[offset] != theirs[offset])


def partition(given_logs: list[Log], *, checkpoints: bool) -> plans.PlanPartition:
    files = [log.entries() if checkpoints and log.has_checkpoint else None for log in given_logs]
    replicas = [
        plans.PlanReplica(broker, log.start, log.end, log.high_watermark, log.entries(), files[broker])
        for broker, log in enumerate(given_logs)
    ]
    pairs = combinations(range(len(given_logs)), 2)
    found = {(i, j): differing(given_logs[i], given_logs[j]) for i, j in pairs}
    return plans.PlanPartition("t", 0, replicas, {pair: ranges for pair, ranges in found.items() if ranges})


def end_of(epochs: list[tuple[int, int]], end: int, requested: int) -> tuple[int, int]:
    """(epoch, end offset) of a requested epoch; `epochs` are (offset, epoch) of the records that raised the epoch."""
    if requested < 0 or not epochs or requested > epochs[-1][1]:
        return -1, -1
    later = [offset for offset, epoch in epochs if epoch > requested]
    earlier = [epoch for _, epoch in epochs if epoch <= requested]
    return (earlier[-1] if earlier else requested), (later[0] if later else end)


def cut_by_epochs(follower: Log, leader: Log, new_epoch: int) -> int:
    """The log end of the follower after its last truncation."""
    mine = [(entry.start_offset, entry.leader_epoch) for entry in follower.loaded()]
    theirs = [*((entry.start_offset, entry.leader_epoch) for entry in leader.loaded()), (leader.end, new_epoch)]
    end = follower.end
    if not mine:
        return min(end, max(follower.high_watermark, follower.start), leader.end)
    while mine:
        epoch, answer = end_of(theirs, leader.end, mine[-1][1])
        own_epoch, own_end = end_of(mine, end, epoch)
        cut = min(own_end, answer, end) if own_epoch == epoch else min(own_end, end)
        if cut == end:
            break
        end = cut
        mine = [(offset, entry) for offset, entry in mine if offset < end]
    return min(end, leader.end)


def ids(loss: plans.Loss, records: dict[int, Record], start: int, end: int) -> Iterator[tuple[int, Record]]:
    yield from ((offset, records[offset]) for offset in range(max(loss.start, start), min(loss.end, end)))


def check(given_logs: list[Log], plan: plans.Plan, cuts: dict[tuple[int, int], int]) -> None:
    """Every number of the plan agrees with the records."""
    committed = {
        (offset, record) for log in given_logs for offset, record in log.records_by_offset().items() if offset < log.high_watermark
    }
    for candidate in plan.candidates:
        assert isinstance(candidate.broker, int)
        leader = given_logs[candidate.broker]
        everything: set[tuple[int, Record]] = set()
        surviving: set[tuple[int, Record]] = set()
        for follower in candidate.followers:
            assert isinstance(follower.broker, int)
            log = given_logs[follower.broker]
            cut = cuts[follower.broker, candidate.broker]
            assert follower.restarts_empty is (cut < leader.start), "the leader has no records below its log start"
            cut = max(cut, leader.start)
            assert follower.truncation_offset == cut
            lost = {
                (offset, record)
                for offset, record in log.records_by_offset().items()
                if offset >= leader.start and leader.records_by_offset().get(offset) != record
            }
            assert counted(follower.lost) == len(lost)
            assert {offset for offset, _ in lost} == {n for start, end in follower.lost for n in range(start, end)}
            everything |= lost
            surviving |= {(offset, record) for offset, record in lost if offset < cut}
        assert candidate.at_most == len(everything)
        assert candidate.committed == len(everything & committed)
        assert candidate.at_least == len((everything & committed) - surviving)
        seen: set[tuple[int, Record]] = set()
        for loss in candidate.losses:
            for broker in loss.held_by:
                assert isinstance(broker, int)
                lost_ids = set(ids(loss, given_logs[broker].records_by_offset(), loss.start, loss.end))
                assert broker == loss.held_by[0] or lost_ids <= seen
                seen |= lost_ids
        assert seen == everything


@given(logs())
def test_plans_by_epochs_agree_with_a_replay(given_logs: list[Log]) -> None:
    """A missing checkpoint is loaded as an empty one."""
    given_partition = partition(given_logs, checkpoints=True)
    new_epoch = max((epoch for log in given_logs for epoch, _ in log.records), default=0) + 1
    cuts = {(i, j): cut_by_epochs(given_logs[i], given_logs[j], new_epoch) for i in range(3) for j in range(3) if i != j}
    plan = plan_partition(given_partition, "epochs")
    check(given_logs, plan, cuts)
    best = next((candidate for candidate in plan.candidates if candidate.broker == plan.recommended), None)
    assert best is not None
    assert best.committed == min(candidate.committed for candidate in plan.candidates)


@given(logs(epochs=False))
def test_plans_by_high_watermark_agree_with_a_replay(given_logs: list[Log]) -> None:
    plan = plan_partition(partition(given_logs, checkpoints=False))
    assert plan.truncate_by == ("high_watermark" if any(log.records for log in given_logs) else "epochs")
    plan = plan_partition(partition(given_logs, checkpoints=False), "high_watermark")
    cuts = {
        (i, j): min(given_logs[i].end, given_logs[i].high_watermark, given_logs[j].end)
        for i in range(3)
        for j in range(3)
        if i != j
    }
    check(given_logs, plan, cuts)
    for candidate in plan.candidates:
        assert isinstance(candidate.broker, int)
        for follower in candidate.followers:
            assert isinstance(follower.broker, int)
            log, leader = given_logs[follower.broker], given_logs[candidate.broker]
            assert follower.halts is (min(log.high_watermark, log.end) > leader.end)


RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5)


@given(RANGES, RANGES, st.integers(0, 30), st.integers(0, 30))
def test_operations_on_ranges_agree_with_sets_of_offsets(
    left: list[tuple[int, int]], right: list[tuple[int, int]], start: int, end: int
) -> None:
    def offsets(ranges: Ranges | list[tuple[int, int]]) -> set[int]:
        return {offset for low, high in ranges for offset in range(low, high)}

    ours, theirs = normalised(left), normalised(right)
    assert offsets(ours) == offsets(left)
    assert all(a[1] < b[0] for a, b in pairwise(ours))
    assert offsets(without(ours, theirs)) == offsets(left) - offsets(right)
    assert offsets(clipped(ours, start, end)) == offsets(left) & set(range(start, end))
    assert counted(ours) == len(offsets(left))


ENTRIES = st.lists(st.builds(EpochEntry, st.integers(-2, 9), st.integers(-5, 40)), max_size=4)
BROKERS = st.integers(1, 9) | st.text(max_size=3)


@st.composite
def any_partition(draw: st.DrawFn) -> plans.PlanPartition:
    """Replicas with any values."""
    names = draw(st.lists(BROKERS, min_size=1, max_size=4, unique_by=str))
    replicas = [
        plans.PlanReplica(
            name,
            draw(st.integers(0, 30)),
            draw(st.integers(0, 40)),
            draw(st.none() | st.integers(-3, 60)),
            tuple(sorted({entry.leader_epoch: entry for entry in draw(ENTRIES)}.values())),
            draw(st.none() | ENTRIES.map(tuple)),
            draw(st.none() | RANGES.map(normalised)),
            tuple(
                draw(st.lists(st.builds(plans.Witness, st.integers(-1, 50), st.just("group_offset"), st.just(name)), max_size=2))
            ),
            is_live=draw(st.booleans()),
            starts=draw(st.booleans()),
            end_is_known=draw(st.booleans()),
            damaged=draw(RANGES.map(normalised)),
            has_unknown_bytes=draw(st.booleans()),
        )
        for name in names
    ]
    pairs = [pair for pair in combinations(range(len(names)), 2) if draw(st.booleans())]
    ids = st.none() | st.lists(st.integers(1, 9), max_size=4, unique=True).map(tuple)
    flag = st.none() | st.booleans()
    numbers = st.none() | st.integers(-1, 9)
    control = draw(st.none() | st.builds(plans.PlanControl, numbers, numbers, numbers, ids, ids, ids, flag))
    return plans.PlanPartition("t", 0, replicas, {pair: normalised(draw(RANGES)) for pair in pairs}, control, draw(st.booleans()))


@given(any_partition(), st.sampled_from([None, "epochs", "high_watermark"]))
def test_any_values_give_a_consistent_plan(given_partition: plans.PlanPartition, rule: plans.TruncateBy | None) -> None:
    plan = plan_partition(given_partition, rule)
    assert {candidate.broker for candidate in plan.candidates} == {
        replica.broker for replica in given_partition.replicas if replica.is_live and replica.starts
    }
    for candidate in plan.candidates:
        assert 0 <= candidate.at_least <= candidate.committed <= candidate.at_most
        for loss in candidate.losses:
            assert loss.start < loss.end
            assert loss.start <= loss.committed_end <= loss.end
            assert set(loss.kept_by) <= set(loss.held_by)
            assert (loss.witness is None) == (loss.committed == 0)
        for follower in candidate.followers:
            assert counted(follower.kept) <= counted(follower.lost)
            assert (
                follower.truncation_offset is None
                or follower.restarts_empty
                or follower.truncation_offset <= follower.log_end_offset
            )
        needs = election_needs(given_partition, plan, candidate)
        assert needs.started[0] == needs.leader == candidate.broker
        live = {replica.broker for replica in given_partition.replicas if replica.is_live}
        assert {broker for loss in candidate.losses for broker in loss.held_by} & live == set(needs.copy_first)


@given(any_partition())
def test_salvage_from_one_log_loses_as_much_as_its_election(given_partition: plans.PlanPartition) -> None:
    plan = plan_partition(given_partition)
    numbers = {replica.broker: number for number, replica in enumerate(given_partition.replicas)}
    for candidate in plan.candidates:
        number = numbers[candidate.broker]
        leader = given_partition.replicas[number]
        start = leader.log_start_offset if leader.expected_log_start is None else leader.expected_log_start
        sound = without(clipped(leader.on_disk, leader.log_start_offset, leader.log_end_offset), normalised(leader.damaged))
        losses = losses_without(given_partition, plan.truncate_by, [(number, *offsets) for offsets in sound], start)
        committed, _, lost = plans.costs_of(losses)
        assert (committed, lost) == (candidate.committed, candidate.at_most)
