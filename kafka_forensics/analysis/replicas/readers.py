"""Why consumers cannot read the newest records of a partition, as far as files show.

Consumers read up to the high watermark, with read_committed up to the last stable offset. The high watermark is the smallest log
end among the ISR; since Kafka 3.7 it does not move while the ISR is below its minimum (`Partition.isUnderMinIsr`). It never falls:
an ISR member whose log ends below the leader's checkpointed one holds nothing back; it has left the ISR since, or lost records.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from kafka_forensics.analysis.kinds import finding, with_premises
from kafka_forensics.analysis.replica import Replica, place_of
from kafka_forensics.model.controller import NO_LEADER, PartitionControl
from kafka_forensics.model.findings import Finding

if TYPE_CHECKING:
    from kafka_forensics.model.json_objects import Json


LAG_TIME_MAX_MS: Final = 30_000
"""Default of `replica.lag.time.max.ms`: a follower that lags longer leaves the ISR; shorter waits are normal."""

_KAFKA_3_7: Final = 15
"""First `metadata.version` of brokers whose high watermark waits for `min.insync.replicas` (3.7-IV0)."""

TimestampAt = Callable[[Replica, int], int | None]
"""(replica, offset) → timestamp in ms of the batch with that offset; None if unknown."""


class ReadersLimit(Struct, frozen=True):
    """What holds readers back. `held_back_by` is `nothing`, `high_watermark`, `last_stable_offset`, `no_leader`, or `unknown`: the
    ISR is unknown, or a member's log is missing. Offsets are exclusive ends, None is "not known"."""

    held_back_by: str
    leader: int | str
    """The leader's broker, or that of the longest copy if no leader is known."""
    log_start_offset: int
    """Of the leader's log: earlier offsets cannot be read."""
    log_end_offset: int
    checkpointed: int | None = None
    """The leader's checkpointed high watermark, at most its log end."""
    proven: int = 0
    """How far readers could read at least once: by the checkpoint or another proof, such as a group's commit."""
    high_watermark: int | None = None
    """By the log ends of the ISR, except members that end below the leader's checkpointed one; by the leader's checkpoint while the
    ISR is below its minimum. None if the ISR or this checkpoint is unknown, or a member's log is missing, unless the leader has
    checkpointed its log end."""
    brokers: tuple[int | str, ...] = ()
    """The ISR members, or possible ones, that end first; without a leader, the ids of those last in sync."""
    since_ms: int | None = None
    """Timestamp of the first unreadable record; without a leader, when the controller recorded that."""
    waiting_ms: int | None = None
    """From then to the newest record."""
    isr: tuple[int, ...] | None = None
    min_insync_replicas: int | None = None
    isr_below_minimum: bool = False
    producer_id: int | None = None
    """Of the oldest open transaction."""
    held_back_at: int | None = None
    """First offset that cannot be read, or, with `missing`, an offset that cannot be read; None if none is known."""
    missing: tuple[int, ...] = ()
    """ISR members without a log among the copies: the high watermark may be lower because of them."""

    @property
    def readable_end_offset(self) -> int | None:
        """Where read_uncommitted consumers stop; None: not known, or there is no leader."""
        return None if self.held_back_by in ("unknown", "no_leader") else self.high_watermark


def readable(
    replicas: list[Replica], control: PartitionControl | None, timestamp_at: TimestampAt, proven: int | None = None
) -> ReadersLimit:
    """What holds readers of one partition back; `replicas` is not empty. A pure rule: `timestamp_at` reads the log.

    `proven`: how far another proof than the leader's checkpoint says that they could read.
    """
    leaders = [replica for replica in replicas if control is not None and control.leader == replica.context.node]
    leader = leaders[0] if leaders else max(replicas, key=lambda replica: replica.log_end_offset)
    isr = None if control is None or control.isr is None else tuple(control.isr)
    answer = ReadersLimit(
        "nothing",
        leader.broker,
        leader.log_start_offset,
        leader.log_end_offset,
        None if leader.context.high_watermark is None else min(leader.context.high_watermark, leader.log_end_offset),
        proven=min(max(leader.context.high_watermark or 0, proven or 0), leader.log_end_offset),
        isr=isr,
        min_insync_replicas=None if control is None else control.min_insync_replicas,
        isr_below_minimum=control is not None and control.isr_is_below_minimum,
        missing=tuple(sorted(set(isr or ()) - {replica.context.node for replica in replicas})),
    )
    if control is not None and control.leader == NO_LEADER:
        since, last = _leader_lost(control)
        return replace(answer, held_back_by="no_leader", brokers=last, since_ms=since)
    answer = _with_high_watermark(answer, leader, replicas, control, timestamp_at)
    if answer.held_back_at is not None:
        return answer
    open_transaction = next(iter(leader.state.transactions.open_transactions()), None)
    if open_transaction is not None and open_transaction.first_offset < leader.log_end_offset:
        return replace(
            answer,
            held_back_by="last_stable_offset",
            since_ms=open_transaction.first_timestamp,
            producer_id=open_transaction.producer_id,
            held_back_at=open_transaction.first_offset,
        )
    return answer


def _with_high_watermark(
    answer: ReadersLimit, leader: Replica, replicas: list[Replica], control: PartitionControl | None, timestamp_at: TimestampAt
) -> ReadersLimit:
    """The answer with the high watermark by the replicas in sync."""
    is_known = answer.isr is not None and not answer.missing
    in_sync = [replica for replica in replicas if answer.isr is None or replica.context.node in answer.isr]
    ends = {replica.broker: replica.log_end_offset for replica in in_sync if replica.log_end_offset >= answer.proven}
    end = min(ends.values(), default=answer.log_end_offset)
    if control is not None and control.isr_is_below_minimum and (control.elr or (control.metadata_version or 0) >= _KAFKA_3_7):
        is_known = answer.checkpointed is not None and control.leader not in answer.missing
        ends, end = {}, answer.proven if is_known else answer.log_end_offset
    end = min(end, answer.log_end_offset)
    is_known |= answer.proven == answer.log_end_offset
    answer = replace(answer, high_watermark=end if is_known else None)
    if end == answer.log_end_offset:
        return answer if is_known else replace(answer, held_back_by="unknown")
    since, newest = timestamp_at(leader, end), leader.state.framing.max_timestamp
    return replace(
        answer,
        held_back_by="high_watermark" if is_known else "unknown",
        brokers=tuple(replica.broker for replica in in_sync if ends.get(replica.broker) == end),
        held_back_at=end,
        since_ms=since,
        waiting_ms=None if since is None or newest < since else newest - since,
    )


def _leader_lost(control: PartitionControl) -> tuple[int | None, tuple[int, ...]]:
    """When the controller recorded that a partition has no leader, in ms, and who was in sync until then."""
    events = [] if control.history is None else control.history.events
    leaderless = list(takewhile(lambda event: event.state.leader == NO_LEADER, reversed(events)))
    if not leaderless:
        return None, ()
    first = leaderless[-1]
    return first.timestamp_ms, first.state.isr or first.previous_isr


def held_back_finding(replicas: list[Replica], answer: ReadersLimit) -> list[Finding]:
    """`READERS_HELD_BACK` if the ISR is too small for the high watermark to move, or a member holds it back longer than the ISR
    allows.

    Shorter waits are normal; open transactions have another finding.
    """
    waits = not answer.brokers or (answer.waiting_ms is not None and answer.waiting_ms > LAG_TIME_MAX_MS)
    if answer.held_back_by != "high_watermark" or not waits or answer.high_watermark is None:
        return []
    context = replicas[0].context
    evidence: Json = {
        "reason": "isr_below_minimum" if answer.isr_below_minimum else "isr_member_behind",
        "leader": answer.leader,
        "brokers": list(answer.brokers),
        "isr": list(answer.isr or ()),
        "isr_below_minimum": answer.isr_below_minimum,
        "min_insync_replicas": answer.min_insync_replicas,
        "high_watermark": answer.high_watermark,
        "log_end_offset": answer.log_end_offset,
        "behind": answer.log_end_offset - answer.high_watermark,
        "since_ms": answer.since_ms,
        "waiting_ms": answer.waiting_ms,
    }
    place = place_of(replicas, answer.high_watermark, answer.log_end_offset)
    stated = {name: value for name, value in evidence.items() if value is not None}
    premises = [] if context.control is None else context.control.premises
    if not answer.brokers:
        premises = [*premises, "the leader's high watermark has not moved since it was checkpointed"]
    return [with_premises(finding("READERS_HELD_BACK", place, stated), premises)]
