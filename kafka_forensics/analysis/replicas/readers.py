"""Why consumers cannot read the newest records of a partition, as far as files tell.

Consumers read up to the high watermark, those of committed transactions up to the last stable offset. The high watermark is the
smallest log end among the ISR, and with Kafka's stricter rule (KIP-966) does not move while the ISR is below its minimum. It never
falls: a member of the ISR that ends below what the leader has checkpointed holds nothing back; it has left the ISR since, or lost
records.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from kafka_forensics.analysis.catalogue import finding, on_premises
from kafka_forensics.analysis.replica import Replica
from kafka_forensics.model.controller import NO_LEADER, PartitionControl
from kafka_forensics.model.findings import Finding, Place

if TYPE_CHECKING:
    from kafka_forensics.model.json_objects import Json


LAG_TIME_MAX_MS: Final = 30_000
"""`replica.lag.time.max.ms` by default: a follower that is behind for longer leaves the ISR; shorter waits are an active tail."""

TimestampAt = Callable[[Replica, int], int | None]
"""(replica, offset) → timestamp of the batch that holds it, in ms; None if that cannot be told."""


@dataclass(frozen=True, slots=True)
class Readable:
    """What holds readers back. `held_back_by` is `nothing`, `high_watermark`, `last_stable_offset`, `no_leader`, or `unknown`:
    nobody says who is in the ISR, or a member's log is missing. Offsets are exclusive ends, None is "not known"."""

    held_back_by: str
    leader: int | str
    """Whose log is the longest that counts: the leader's, or the longest copy's where no leader is known."""
    log_end_offset: int
    high_watermark: int | None = None
    """By the rule, from the log ends of the ISR, but for members that end below the leader's checkpointed one; None if not every
    member's log was given."""
    brokers: tuple[int | str, ...] = ()
    """The members of the ISR that end first, or the copies that may; without a leader, the ids of those that were last in sync."""
    since_ms: int | None = None
    """Timestamp of the first record that cannot be read; without a leader, when the controller wrote that there is none."""
    waiting_ms: int | None = None
    """From then to the newest record."""
    isr: tuple[int, ...] | None = None
    min_insync_replicas: int | None = None
    isr_below_minimum: bool = False
    producer_id: int | None = None
    """Of the oldest open transaction."""
    held_back_at: int | None = None
    """First offset that cannot be read, or, with `missing`, an offset that cannot be read; None if nothing is known to."""
    missing: tuple[int, ...] = ()
    """Members of the ISR of which no log was given: the high watermark may be lower because of them."""


def _by_in_sync(leader: Replica, isr: tuple[int, ...] | None, members: list[Replica], minimum: int | None) -> Readable:
    """What the in-sync replicas let readers have, as long as nothing else holds them back; `members`: those with a copy."""
    missing = tuple(sorted(set(isr or ()) - {replica.context.node for replica in members}))
    return Readable(
        "unknown" if missing else "nothing",
        leader.broker,
        leader.log_end_offset,
        _least_high_watermark(leader, members) if isr is not None and not missing else None,
        isr=isr,
        min_insync_replicas=minimum,
        isr_below_minimum=isr is not None and minimum is not None and len(isr) < minimum,
        missing=missing,
    )


def readable(replicas: list[Replica], control: PartitionControl | None, timestamp_at: TimestampAt) -> Readable:
    """What holds readers of one partition back; `replicas` is not empty. A pure rule: `timestamp_at` lends it the log."""
    leader = _leader(replicas, control)
    isr = None if control is None or control.isr is None else tuple(control.isr)
    members = [replica for replica in replicas if isr is None or replica.context.node in isr]
    answer = _by_in_sync(leader, isr, members, _minimum(control))
    if control is not None and control.leader == NO_LEADER:
        since, last = _leaderless(control)
        return replace(answer, held_back_by="no_leader", high_watermark=None, brokers=last, since_ms=since)
    if shortest := _shorter(leader, members):
        return _behind(answer, leader, shortest, timestamp_at)
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


def _caught_up(leader: Replica, members: list[Replica]) -> list[Replica]:
    """In-sync replicas that reach to the leader's own high watermark."""
    passed = min(leader.context.high_watermark or 0, leader.log_end_offset)
    return [replica for replica in members if replica.log_end_offset >= passed]


def _least_high_watermark(leader: Replica, members: list[Replica]) -> int:
    """To where the high watermark can have come, all in-sync replicas being here."""
    return min((replica.log_end_offset for replica in _caught_up(leader, members)), default=leader.log_end_offset)


def _shorter(leader: Replica, members: list[Replica]) -> list[Replica]:
    """The in-sync replicas that reach least far, none if they reach to the leader's end."""
    end = _least_high_watermark(leader, members)
    if end >= leader.log_end_offset:
        return []
    return [replica for replica in _caught_up(leader, members) if replica.log_end_offset == end]


def _behind(answer: Readable, leader: Replica, shortest: list[Replica], timestamp_at: TimestampAt) -> Readable:
    """The answer where in-sync replicas that lag hold the high watermark back."""
    held_back_at = shortest[0].log_end_offset
    since = timestamp_at(leader, held_back_at)
    newest = leader.state.framing.max_timestamp
    return replace(
        answer,
        held_back_by="unknown" if answer.high_watermark is None else "high_watermark",
        brokers=tuple(replica.broker for replica in shortest),
        held_back_at=held_back_at,
        since_ms=since,
        waiting_ms=None if since is None or newest < since else newest - since,
    )


def _leaderless(control: PartitionControl) -> tuple[int | None, tuple[int, ...]]:
    """When the controller wrote that a partition has no leader any more, in ms, and who was in sync until then."""
    events = [] if control.history is None else control.history.events
    stretch = list(takewhile(lambda event: event.state.leader == NO_LEADER, reversed(events)))
    if not stretch:
        return None, ()
    first = stretch[-1]
    return first.timestamp_ms, first.state.isr or first.previous_isr


def _leader(replicas: list[Replica], control: PartitionControl | None) -> Replica:
    """The leader's replica if it is given, else the longest."""
    leaders = [replica for replica in replicas if control is not None and control.leader == replica.context.node]
    return leaders[0] if leaders else max(replicas, key=lambda replica: replica.log_end_offset)


def _minimum(control: PartitionControl | None) -> int | None:
    """`min.insync.replicas` of the topic; the brokers' default is not in their files."""
    text = None if control is None else control.configs.get("min.insync.replicas")
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def held_back_finding(replicas: list[Replica], answer: Readable) -> list[Finding]:
    """`READERS_HELD_BACK` where a member of the ISR holds the high watermark back for longer than it may stay in the ISR so.

    A shorter wait is what every busy partition looks like; open transactions have a finding of their own.
    """
    waits = answer.waiting_ms is not None and answer.waiting_ms > LAG_TIME_MAX_MS
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
    place = Place(context.topic, context.partition, offset_start=answer.high_watermark, offset_end=answer.log_end_offset)
    known = {name: value for name, value in evidence.items() if value is not None}
    premises = [] if context.control is None else context.control.premises
    return [on_premises(finding("READERS_HELD_BACK", place, known), premises)]
