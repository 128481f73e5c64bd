"""The rules of `replication` against the model: what epochs alone tell a follower is what a comparison of records would."""

from collections.abc import Iterator

import pytest

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import Log, by_fetch, by_high_watermark, by_kip_101, by_kip_279, truncation_offset
from kafka_forensics.simulation.model import (
    KIP_101,
    KIP_320,
    TRUNCATE_TO_HW,
    Model,
    ModelReplica,
    Protocol,
    Sizes,
    World,
    leader_of,
)


def reachable(protocol: Protocol, sizes: Sizes) -> Iterator[tuple[World, World, int, int]]:
    """(before, after, follower, leader) of every time a replica becomes a follower, in all histories."""
    model = Model(protocol, sizes)
    seen = level = {model.initial()}
    while level:
        found = set()
        for state in level:
            for step, after in model.successors(state):
                if step.action == "follow" and step.other is not None:
                    yield state, after, step.replica, step.other
                found.add(after)
        level = found - seen
        seen = seen | level


def cached(replica: ModelReplica, *, leads: bool) -> Log:
    """A log with the epochs its broker caches: of its records, and, on a leader, its own from the log's end on."""
    epochs = [record.leader_epoch for record in replica.log]
    entries = [EpochEntry(epoch, at) for at, epoch in enumerate(epochs) if at == 0 or epochs[at - 1] != epoch]
    if leads and replica.leader_epoch not in epochs:
        entries.append(EpochEntry(replica.leader_epoch, len(epochs)))
    return Log(tuple(entries), len(epochs), replica.high_watermark)


@pytest.mark.parametrize("sizes", [Sizes(2, 3, 3, 2), Sizes(2, 2, 2, 3)], ids=str)
def test_epochs_find_where_records_part(sizes: Sizes) -> None:
    """Under KIP-320 a follower that asks for epochs cuts exactly where its records stop being the leader's."""
    cuts = set()
    for before, after, follower, leader in reachable(KIP_320, sizes):
        own = cached(before.replicas[follower], leads=leader_of(before, follower) == follower)
        theirs = cached(before.replicas[leader], leads=True)
        end = len(after.replicas[follower].log)
        assert by_kip_279(own, theirs).log_end_offset == end
        assert by_fetch(own, theirs).log_end_offset == end
        assert truncation_offset(own.epochs, own.log_end_offset, theirs.epochs, theirs.log_end_offset) == end
        cuts.add((own.log_end_offset, end))
    assert any(length > end > 0 for length, end in cuts)


def test_the_older_rules_cut_where_the_model_does() -> None:
    """KIP-101 where the leader leads in a newer epoch than the follower's records; the specification's leader caches no epoch
    before it wrote in it, and its follower does not move where it would have to grow."""
    for before, after, follower, leader in reachable(KIP_101, Sizes(2, 2, 2, 2)):
        own, theirs = (cached(before.replicas[one], leads=False) for one in (follower, leader))
        ascending = all(log.epochs == tuple(sorted(log.epochs, key=lambda entry: entry.leader_epoch)) for log in (own, theirs))
        if ascending and own.epochs and theirs.epochs and theirs.epochs[0].leader_epoch <= own.epochs[-1].leader_epoch:
            assert by_kip_101(own, theirs).log_end_offset == len(after.replicas[follower].log)
    for before, after, follower, leader in reachable(TRUNCATE_TO_HW, Sizes(2, 2, 2, 1)):
        own, theirs = (cached(before.replicas[one], leads=False) for one in (follower, leader))
        if own.high_watermark <= theirs.log_end_offset:
            assert by_high_watermark(own, theirs).log_end_offset == len(after.replicas[follower].log)
