"""Scan, plan and the list of transactions on a materialised history, held to what its records' ids say."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.questions.plan.planning import PlanOptions, Plans, make_plans
from kafka_forensics.questions.transactions.listing import transactions
from kafka_forensics.simulation.cluster import Cluster, Partition
from kafka_forensics.simulation.materialise import materialise
from kafka_forensics.simulation.random_histories import RandomHistory
from kafka_forensics.simulation.transactions import Coordinator
from tests.support import history_expected as expected
from tests.support import history_truth as told
from tests.support.history_checks import acknowledged_of, logs_of, planned_wrongs, unfenced
from tests.support.history_expected import Disk, Version
from tests.support.plan_law import broken_laws

PARTED = frozenset({"FORK_ABOVE_HW", "FORK_BELOW_HW", "UNCLEAN_LOSS", "LRS_LOSS"})
LOSSES = frozenset({"UNCLEAN_LOSS", "LRS_LOSS"})
EXACT = frozenset({"REPLICA_LAGS", "HW_BEYOND_LEO", "HW_UNKNOWN", "LRS_RISK", "ISR_MEMBER_MISSING_COMMITTED"})
OPEN = frozenset({"TXN_OPEN", "TXN_HANGING", "TXN_TORN"})
GONE = frozenset({"TXN_PARTLY_LOST"})
EMPTY = "EMPTY_REPLICA_MAY_LEAD"
"""Suspected where no controller's log says who is in sync."""
OTHERS = frozenset(
    {"ALL_LOGS_EMPTY", "UNCLEAN_ELECTION", "RISKY_CONFIG", "READERS_HELD_BACK", "KEY_PLACEMENT", "INCIDENT_SIGNATURE"}
)
"""What else a history may show, all of it `info`."""


def wrongs_on_disk(history: RandomHistory, folder: Path, counted: Counter[str]) -> Iterator[str]:
    """Everything in which the tool and the simulator disagree; nothing if all is well."""
    cluster = history.cluster
    paths = [str(one) for one in materialise(cluster, folder, history.coordinator)]
    options = ScanOptions(jobs=1)
    plans = make_plans(paths, options, PlanOptions())
    assert plans.result is not None
    if plans.result.incomplete:
        yield f"not all was read: {plans.result.incomplete}"
    yield from broken_laws(plans)
    findings = [one for one in plans.result.findings if one.place.partition is not None]
    mixed = any(unfenced(cluster, logs_of(one)) for one in cluster.partitions.values())
    for one in plans.result.findings:
        counted[one.kind] += 1
        if one.kind not in PARTED | EXACT | OPEN | GONE | OTHERS | {EMPTY} and not mixed:
            yield f"{one.kind} is none of what can have happened: {one.place}"
        if one.severity.rank > Severity.INFO.rank and (one.kind in OTHERS or history.is_gentle):
            yield f"{one.kind} is {one.severity.value}, and nothing can be lost: {one.place}"
    settings = sum(one.kind == "RISKY_CONFIG" for one in plans.result.findings)
    if settings != (cluster.fences and cluster.unclean):
        yield f"{settings} risky settings"
    for partition in cluster.partitions.values():
        here = [one for one in findings if one.place.partition == partition.number]
        disk = expected.disk_of(cluster, partition, logs_of(partition))
        for wrong in _of_partition(history, disk, here, plans, counted):
            yield f"{partition.topic}-{partition.number}: {wrong}"
    if history.coordinator is not None:
        yield from _transactions(history, paths, options, findings, counted)


def _of_partition(
    history: RandomHistory, disk: Disk, findings: list[Finding], plans: Plans, counted: Counter[str]
) -> Iterator[str]:
    cluster, forks = history.cluster, told.forks(disk.logs)
    for one in findings:
        if one.kind == EMPTY and (cluster.fences or disk.logs[int(one.place.broker or 0)]):
            yield f"{one.kind} of a replica that holds records, or where a controller's log says who is in sync: {one.place}"
    yield from _planned(history, disk, plans)
    if unfenced(cluster, disk.logs):
        counted["logs that agree again"] += 1
        return
    lost = expected.given_up(disk)
    false = expected.false_witnesses(cluster, disk)
    if false:
        yield f"never committed, and below a watermark: {sorted(false)}"
    yield from _forks(disk, [one for one in findings if one.kind in PARTED], bool(lost))
    yield from _losses(cluster, disk, [one for one in findings if one.kind in LOSSES], lost)
    yield from _costs(findings)
    below = None if cluster.epochs_known else expected.settled(disk)
    settled = [one for one in findings if one.kind == "FORK_BELOW_HW" and one.evidence["offset"] == min(forks.values())]
    seen = [(one.place.offset_start, one.place.offset_end, _named(disk, one)) for one in settled]
    if seen != ([] if below is None else [below]):
        yield f"forks for good are {below}, named {seen}"
    exact = {(one.kind, one.place.broker, one.place.offset_start, one.place.offset_end) for one in findings if one.kind in EXACT}
    told_of = cluster.fences and not forks and not lost
    short = expected.short_members(cluster, disk) if told_of else set()
    beyond = expected.short_of_markers(history.coordinator, disk) if told_of and history.coordinator is not None else set()
    shorter = expected.lagging(disk, leader_loses=bool(lost))
    lagging = {one for one in shorter if one[1] not in {each[1] for each in short}}
    truth = {*expected.beyond_the_log(disk), *short, *lagging}
    if not truth <= exact <= truth | beyond:  # of the second, only what files show: the law tells what a scan must
        yield f"named but not so {sorted(exact - truth - beyond, key=str)}, so but not named {sorted(truth - exact, key=str)}"
    counted["members short of a marker"] += len(exact - truth)
    elections = sum(one.kind == "UNCLEAN_ELECTION" for one in findings)
    if elections != expected.unclean_elections(cluster, disk.partition):
        yield f"{elections} unclean elections"
    counted["lost by a leader"] += bool(lost)
    counted["forked"] += bool(forks)
    _count_traces(history, disk, counted)


def _losses(cluster: Cluster, disk: Disk, losses: list[Finding], lost: set[Version]) -> Iterator[str]:
    """All that is lost and nothing else, no part of it twice, with the leader by whom, where its holders cut, and the election."""
    named = [_named(disk, one) for one in losses]
    everything = set[Version]().union(*named)
    if everything != lost:
        yield f"lost are {sorted(lost)}, named {sorted(everything)}"
    told = Counter((i, j) for i, each in enumerate(named) for j, other in enumerate(named) if i != j and each <= other)
    if told:
        yield f"told twice: {[(one.place, one.evidence['held_by']) for one in losses]}"
    for one in losses:
        start, held_by, leaders = one.place.offset_start, one.evidence["held_by"], one.evidence["leaders"]
        if disk.present_leader not in leaders or one.evidence["latest_epoch"] != disk.epochs[disk.present_leader]:
            yield f"broker {disk.present_leader} leads, named {leaders}"
        cuts = {(row["follower"], row["from_batches"]) for row in one.evidence["truncation_offsets"]}
        if cuts != {(broker, start) for broker in held_by}:
            yield f"lost from {start} on, cut at {cuts}"
        last = (one.place.offset_end or 0) - 1
        truth = expected.losing_election(cluster, disk, held_by, (last, disk.logs[held_by[0]][last]))
        election = one.evidence.get("election")
        seen = election and (election["leader_epoch"], election["new_leader"], election["unclean"])
        if seen != truth:
            yield f"lost by {truth}, named {seen}"


def _costs(findings: list[Finding]) -> Iterator[str]:
    """Every unclean election that a loss is told with costs a part of a loss, and no record is counted to two."""
    spans = [
        (one.place.offset_start or 0, one.place.offset_end or 0, one.evidence["held_by"]) for one in findings if one.kind in LOSSES
    ]
    told = {one.evidence["election"]["leader_epoch"] for one in findings if one.kind in LOSSES and "election" in one.evidence}
    elections = [one for one in findings if one.kind == "UNCLEAN_ELECTION" and one.evidence.get("cost_finding") in LOSSES]
    costs = {
        one.evidence["leader_epoch"]: (one.place.offset_start or 0, one.place.offset_end or 0, one.evidence["held_by"])
        for one in elections
    }
    unclean = {
        epoch for epoch in told if any(one.evidence["leader_epoch"] == epoch for one in findings if one.kind == "UNCLEAN_ELECTION")
    }
    if not unclean <= costs.keys():
        yield f"unclean elections {unclean} lost something, told is {costs}"
    for low, high, held_by in costs.values():
        if not any(start <= low < high <= end and held_by == holders for start, end, holders in spans):
            yield f"an election cost {low, high} of {held_by}, lost are {spans}"
    for one, other in combinations(costs.values(), 2):
        if one[2] == other[2] and max(one[0], other[0]) < min(one[1], other[1]):
            yield f"counted to two elections: {one} and {other}"


def _planned(history: RandomHistory, disk: Disk, plans: Plans) -> Iterator[str]:
    planned = [one for one in plans.planned if one.plan.partition == disk.partition.number]
    if planned:
        yield from planned_wrongs(history.cluster, disk.partition, disk.logs, planned[0].plan)
        yield from _committed(history, disk, planned[0].plan)
    elif any(cut.lost for leader in disk.logs for cut in told.cuts(disk.logs, leader).values()):
        yield "an election would lose something, and nothing was planned"


def _forks(disk: Disk, findings: list[Finding], loses: bool) -> Iterator[str]:
    """The first fork by its offset and sides; others by theirs, but where a loss that is told covers them; none where no log parts
    from another."""
    forks = told.forks(disk.logs)
    if not forks:
        if bool(findings) != loses:
            yield f"no log parts from another, named {[one.kind for one in findings]}"
        return
    findings = [one for one in findings if "places" in one.evidence["versions"][0]]  # else it is of a leader that wrote nothing yet
    offsets = [one.evidence["offset"] for one in findings]
    first = min(forks.values())
    losses = [one.place for one in findings if one.kind in LOSSES]
    covered = {at for at in forks.values() if any((one.offset_start or 0) <= at < (one.offset_end or 0) for one in losses)}
    if not set(offsets) <= set(forks.values()) or set(forks.values()) - covered - set(offsets) or first not in offsets:
        yield f"logs part at {forks}, named {offsets}"
    sides: dict[Any, list[int]] = {}
    for broker, log in disk.logs.items():
        if len(log) > first:
            sides.setdefault(log[first], []).append(broker)
    for one in findings:
        seen = [version["brokers"] for version in one.evidence["versions"]]
        if one.evidence["offset"] == first and sorted(seen) != sorted(sides.values()):
            yield f"at {first} the sides are {sides}, named {seen}"


def _named(disk: Disk, one: Finding) -> set[Version]:
    """What a finding of a loss names, by its holders, who must hold the same."""
    start, end = one.place.offset_start, one.place.offset_end
    assert start is not None
    assert end is not None
    held = [disk.versions(broker, ((start, end),)) for broker in one.evidence["held_by"]]
    return held[0] if held and all(each == held[0] for each in held) else set()


def _count_traces(history: RandomHistory, disk: Disk, counted: Counter[str]) -> None:
    """Acknowledged records that no log holds leave a trace only where a watermark reaches beyond its own log to where they were.

    That watermark is held to above (HW_BEYOND_LEO). No other file counts such records, so that nothing can be found of the rest.
    """
    for record in told.lost(acknowledged_of(history.cluster, disk.partition), disk.logs.values()):
        sent = history.cluster.acknowledged[record]
        offset = sent.base_offset + sent.ids.index(record)
        traced = any(len(log) <= offset < disk.watermarks[broker] for broker, log in disk.logs.items())
        counted["records lost with a trace" if traced else "records lost without a trace"] += 1


def _committed(history: RandomHistory, disk: Disk, plan: Any) -> Iterator[str]:
    """What plans call proven: all that a watermark proves of its own log; more where a transaction's marker does, and rightly."""
    ever = history.cluster.committed[disk.partition.name]
    for candidate in plan.candidates:
        for one in candidate.losses:
            proven = {version for broker in one.held_by for version in enumerate(disk.logs[broker][: disk.witnessed(broker)])}
            said = disk.versions(int(one.held_by[0]), ((one.start, max(one.committed_end, one.start)),))
            more = said - proven
            if not proven & disk.versions(int(one.held_by[0]), ((one.start, one.end),)) <= said:
                yield f"led by {candidate.broker}: proven are {sorted(proven)}, said {sorted(said)}"
            by_marker = one.witness is not None and one.witness.kind == "transaction_marker"
            if more and not (by_marker and {record for _, (_, record) in more if record >= 0} <= ever):
                yield f"led by {candidate.broker}: said to be proven {sorted(more)}"
    if plan.recommended is not None:
        costs = {one.broker: one.committed for one in plan.candidates}
        if costs[plan.recommended] != min(costs.values()):
            yield f"recommended is {plan.recommended}, of {costs}"


def _transactions(
    history: RandomHistory, paths: list[str], options: ScanOptions, findings: list[Finding], counted: Counter[str]
) -> Iterator[str]:
    """Every transaction of the copy it is told from; every open one in some log is named, and no other; what is torn is torn."""
    cluster, coordinator = history.cluster, history.coordinator
    assert coordinator is not None
    rows = list(transactions(paths, options).rows)
    for partition in cluster.partitions.values():
        for one in findings:
            if one.place.partition != partition.number or one.kind not in GONE | {"TXN_TORN"}:
                continue
            if not _is_torn(coordinator, partition, one):
                yield f"{partition.name}: {one.kind} {one.evidence} is not so"
        named = {
            (one.evidence["producer_id"], one.place.offset_start)
            for one in findings
            if one.kind in OPEN and one.place.partition == partition.number and one.evidence.get("reason") != "opposite_marker"
        }
        spoken = {broker: expected.transactions(one.batches) for broker, one in partition.replicas.items()}
        opened = {(one.producer_id, one.first_offset) for each in spoken.values() for one in each if one.state == "open"}
        counted["open transactions"] += len(opened)
        if named != opened:
            yield f"{partition.name}: open are {opened}, named {named}"
        here = [one for one in rows if one.partition == partition.number and one.topic == partition.topic]
        listed = [one for one in here if one.state != "lost"]
        if not listed:
            if all(spoken.values()):
                yield f"{partition.name}: no transaction is listed"
            continue
        seen = [(one.producer_id, one.first_offset, _ending(one.state, one.marker), one.marker_offset) for one in listed]
        counted["transactions listed"] += len(seen)
        broker = int(listed[0].broker)
        torn = {(one.producer_id, one.first_offset) for one in listed if one.state == "torn"}
        # without a controller's log nobody knows that no replica is left out, and then a loss is told only beyond the clocks' doubt
        if cluster.fences and not expected.torn(coordinator, partition, partition.replicas[broker].batches) <= torn:
            yield f"{partition.name}: named as torn are {torn}"
        counted["torn transactions"] += len(torn)
        truth = [tuple(one) for one in spoken[broker]]
        if sorted(seen, key=str) != sorted(truth, key=str):
            yield f"{partition.name}: broker {broker} has {truth}, listed {seen}"


def _ending(state: str, marker: str | None) -> str:
    """A row's state by what is in the log."""
    if state in ("open", "hanging") or (state == "torn" and marker is None):
        return "open"
    return {"COMMIT": "committed", "ABORT": "aborted"}[str(marker)] if state == "torn" else state


def _is_torn(coordinator: Coordinator, partition: Partition, one: Finding) -> bool:
    """Whether the decision that is named was made and its marker is not in the log told of; nor, where its records are said to be
    gone, they or it in any log."""
    decided, completed, producer_id = (one.evidence[name] for name in ("decided_timestamp", "completed_timestamp", "producer_id"))
    made = [state for when, _, state in coordinator.log if when == decided and state.producer_id == producer_id]
    since = min((state.start_timestamp for state in made if partition.name in state.partitions), default=None)
    logs = [partition.replicas[int(one.place.broker or 0)]] if one.kind not in GONE else list(partition.replicas.values())
    batches = [each for log in logs for each in log.batches if each.producer_id == producer_id]
    marker = "COMMIT" if one.evidence["decision"] == "commit" else "ABORT"
    has_it = any(each.marker == marker and decided <= each.timestamp_ms <= (completed or each.timestamp_ms) for each in batches)
    holds = one.kind in GONE and any(each.marker is None and (since or 0) <= each.timestamp_ms <= decided for each in batches)
    return since is not None and not has_it and not holds
