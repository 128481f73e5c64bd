"""Random histories as log directories: scan, plan and list of transactions report what happened, and nothing else."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from kafka_forensics.evidence.options import ScanOptions
from kafka_forensics.model.findings import Finding, Severity
from kafka_forensics.questions.plan import PlanOptions, Plans, make_plans
from kafka_forensics.questions.transactions import transactions
from kafka_forensics.simulation.cluster import SimulatedPartition
from kafka_forensics.simulation.materialise import materialise
from kafka_forensics.simulation.transactions import Coordinator
from tests.simulation import expected, record_ids
from tests.simulation.checks import acknowledged_of, logs_of, planned_disagreements, unfenced
from tests.simulation.expected import Disk, Version
from tests.simulation.random_histories import RandomHistory, random_history
from tests.support.plan_values import unreported_losses

FORK_KINDS = frozenset({"FORK_ABOVE_HW", "FORK_BELOW_HW", "UNCLEAN_LOSS", "LRS_LOSS"})
LOSS_KINDS = frozenset({"UNCLEAN_LOSS", "LRS_LOSS"})
LAG_KINDS = frozenset({"REPLICA_LAGS", "HW_BEYOND_LEO", "HW_UNKNOWN", "LRS_RISK", "ISR_MEMBER_MISSING_COMMITTED"})
OPEN_TRANSACTION_KINDS = frozenset({"TXN_OPEN", "TXN_HANGING", "TXN_TORN"})
LOST_TRANSACTION_KINDS = frozenset({"TXN_PARTLY_LOST"})
EMPTY_REPLICA_KIND = "EMPTY_REPLICA_MAY_LEAD"
"""Reported only without a controller's log, because the ISR is unknown."""
INFO_KINDS = frozenset(
    {"ALL_LOGS_EMPTY", "UNCLEAN_ELECTION", "RISKY_CONFIG", "READERS_HELD_BACK", "KEY_PLACEMENT", "INCIDENT_SIGNATURE"}
)
"""Other kinds that a history may give, all with severity `info`."""


def disagreements_on_disk(history: RandomHistory, folder: Path, counted: Counter[str]) -> Iterator[str]:
    """Disagreements between the tool and the simulator."""
    cluster = history.cluster
    paths = [str(path) for path in materialise(cluster, folder, history.coordinator)]
    options = ScanOptions(jobs=1)
    plans = make_plans(paths, options, PlanOptions())
    assert plans.result is not None
    if plans.result.incomplete:
        yield f"incomplete: {plans.result.incomplete}"
    yield from unreported_losses(plans)
    findings = [finding for finding in plans.result.findings if finding.place.partition is not None]
    mixed = any(unfenced(cluster, logs_of(partition)) for partition in cluster.partitions.values())
    for finding in plans.result.findings:
        counted[finding.kind] += 1
        if (
            finding.kind
            not in FORK_KINDS | LAG_KINDS | OPEN_TRANSACTION_KINDS | LOST_TRANSACTION_KINDS | INFO_KINDS | {EMPTY_REPLICA_KIND}
            and not mixed
        ):
            yield f"{finding.kind} cannot have happened: {finding.place}"
        if finding.severity.rank > Severity.INFO.rank and (finding.kind in INFO_KINDS or history.is_gentle):
            yield f"{finding.kind} is {finding.severity.value}although nothing can be lost: {finding.place}"
    settings = sum(finding.kind == "RISKY_CONFIG" for finding in plans.result.findings)
    if settings != (cluster.fences_fetches and cluster.unclean):
        yield f"{settings} risky settings"
    for partition in cluster.partitions.values():
        here = [finding for finding in findings if finding.place.partition == partition.number]
        disk = expected.mounted_disk(cluster, partition, logs_of(partition))
        for disagreement in _of_partition(history, disk, here, plans, counted):
            yield f"{partition.topic}-{partition.number}: {disagreement}"
    if history.coordinator is not None:
        yield from _transactions(history, paths, options, findings, counted)


def _of_partition(
    history: RandomHistory, disk: Disk, findings: list[Finding], plans: Plans, counted: Counter[str]
) -> Iterator[str]:
    cluster, forks = history.cluster, record_ids.forks(disk.logs)
    for finding in findings:
        if finding.kind == EMPTY_REPLICA_KIND and (cluster.fences_fetches or disk.logs[int(finding.place.broker or 0)]):
            yield f"{finding.kind} of a replica with records, or with a controller's log: {finding.place}"
    yield from _planned(history, disk, plans)
    if unfenced(cluster, disk.logs):
        counted["logs that agree again"] += 1
        return
    lost = expected.lost_versions(disk)
    false = expected.false_witnesses(cluster, disk)
    if false:
        yield f"below a watermark, but never committed: {sorted(false)}"
    yield from _forks(disk, [finding for finding in findings if finding.kind in FORK_KINDS], bool(lost))
    yield from _losses(disk, [finding for finding in findings if finding.kind in LOSS_KINDS], lost)
    yield from _holders(disk, [finding for finding in findings if finding.kind in LOSS_KINDS], counted)
    yield from _costs(history, disk, findings, counted)
    below = None if cluster.has_leader_epochs else expected.permanent_fork(disk)
    permanent = [
        finding for finding in findings if finding.kind == "FORK_BELOW_HW" and finding.evidence["offset"] == min(forks.values())
    ]
    seen = [(finding.place.offset_start, finding.place.offset_end, _reported_versions(disk, finding)) for finding in permanent]
    if seen != ([] if below is None else [below]):
        yield f"permanent forks are {below}, reported {seen}"
    exact = {
        (finding.kind, finding.place.broker, finding.place.offset_start, finding.place.offset_end)
        for finding in findings
        if finding.kind in LAG_KINDS
    }
    comparable = cluster.fences_fetches and not forks and not lost
    short = expected.short_members(cluster, disk) if comparable else set()
    beyond = expected.short_of_markers(history.coordinator, disk) if comparable and history.coordinator is not None else set()
    shorter = expected.lagging(disk, leader_loses=bool(lost))
    lagging = {key for key in shorter if key[1] not in {broker for _, broker, *_ in short}}
    truth = {*expected.beyond_the_log(disk), *short, *lagging}
    if not truth <= exact <= truth | beyond:  # a scan must report `truth` and may report `beyond`
        yield f"reported wrongly {sorted(exact - truth - beyond, key=str)}, not reported {sorted(truth - exact, key=str)}"
    counted["members short of a marker"] += len(exact - truth)
    elections = sum(finding.kind == "UNCLEAN_ELECTION" for finding in findings)
    if elections != expected.unclean_elections(cluster, disk.partition):
        yield f"{elections} unclean elections"
    counted["lost by a leader"] += bool(lost)
    counted["forked"] += bool(forks)
    _count_traces(history, disk, counted)


def _losses(disk: Disk, losses: list[Finding], lost: set[Version]) -> Iterator[str]:
    """Findings report every loss once, with the leader and the truncation offsets of the brokers that have the records."""
    reported = [_reported_versions(disk, finding) for finding in losses]
    everything = set[Version]().union(*reported)
    if everything != lost:
        yield f"lost are {sorted(lost)}, reported {sorted(everything)}"
    if any(versions <= other for i, versions in enumerate(reported) for j, other in enumerate(reported) if i != j):
        yield f"reported twice: {[(finding.place, finding.evidence['held_by']) for finding in losses]}"
    for finding in losses:
        start, held_by, leaders = finding.place.offset_start, finding.evidence["held_by"], finding.evidence["leaders"]
        if disk.current_leader not in leaders or finding.evidence["latest_epoch"] != disk.epochs[disk.current_leader]:
            yield f"broker {disk.current_leader} leads, reported {leaders}"
        cuts = {(row["follower"], row["from_batches"]) for row in finding.evidence["truncation_offsets"]}
        if cuts != {(broker, start) for broker in held_by}:
            yield f"lost from {start} on, cut at {cuts}"


def _holders(disk: Disk, losses: list[Finding], counted: Counter[str]) -> Iterator[str]:
    """Findings list exactly the brokers whose logs have the lost record at each lost offset."""
    for finding in losses:
        start, end, whole = _span(finding)
        rows = finding.evidence.get("held_ranges", [{"offset_start": start, "offset_end": end, "brokers": whole}])
        counted["losses with holders of a part"] += len(rows) > 1
        reported = [(offset, row["brokers"]) for row in rows for offset in range(row["offset_start"], row["offset_end"])]
        lost = disk.logs[whole[0]]
        truth = [
            (offset, [broker for broker, log in disk.logs.items() if log[offset : offset + 1] == lost[offset : offset + 1]])
            for offset in range(start, end)
        ]
        if reported != truth:
            yield f"the lost are on {truth}, reported {reported}"


def _costs(history: RandomHistory, disk: Disk, findings: list[Finding], counted: Counter[str]) -> Iterator[str]:
    """The elections reported with a loss or fork, or one of the alternatives, caused all of it, unless the finding excludes the
    right one. Every loss has an election, and no loss has two certain ones."""
    losses = [finding for finding in findings if finding.kind in LOSS_KINDS]
    elections = [finding for finding in findings if finding.kind == "UNCLEAN_ELECTION" and "cost_finding" in finding.evidence]
    for loss in losses:
        end, election = loss.place.offset_end or 0, loss.evidence.get("election")
        if history.cluster.fences_fetches and election is None:
            yield f"lost by no election: {loss.place}"
        elif election is not None:
            whole, suspects = loss.evidence["held_by"], {election["leader_epoch"], *election.get("or_in_epochs", ())}
            wrong = _other_elections(history, disk, (end - 1, end, whole), suspects)
            if wrong and election["unclean"] and not history.features & {"power"}:
                yield f"offset {end - 1} is reported with elections {suspects}, lost by {wrong}"
    for finding in elections:
        suspects = {finding.evidence["leader_epoch"], *finding.evidence.get("or_in_epochs", ())}
        counted["elections with a cost" if len(suspects) == 1 else "elections with alternatives"] += 1
        wrong = _other_elections(history, disk, _span(finding), suspects)
        is_excluded = any("lost nothing, though" in premise for premise in finding.evidence.get("premises", ()))
        counted["elections wrongly excluded"] += bool(wrong and is_excluded)
        if wrong and not is_excluded:
            yield f"{_span(finding)} is reported with elections {suspects}, lost by {wrong}"
    of_losses = [finding for finding in elections if finding.evidence["cost_finding"] in LOSS_KINDS]
    for finding in of_losses:
        low, high, whole = _span(finding)
        if not any(start <= low < high <= end and {*holders} <= {*whole} for start, end, holders in map(_span, losses)):
            yield f"an election cost {low, high} of {whole}, lost are {[_span(loss) for loss in losses]}"
    for span, other in combinations([_span(finding) for finding in of_losses if "or_in_epochs" not in finding.evidence], 2):
        if {*span[2]} & {*other[2]} and max(span[0], other[0]) < min(span[1], other[1]):
            yield f"counted for two elections: {span} and {other}"


def _other_elections(history: RandomHistory, disk: Disk, span: tuple[int, int, list[int]], suspects: set[int]) -> list[set[int]]:
    """For each offset that no suspect lost: the epochs of the elections that lost it."""
    start, end, whole = span
    log = disk.logs[whole[0]]
    lost = [expected.losing_elections(history.elected, disk.partition.name, (offset, log[offset])) for offset in range(start, end)]
    return [epochs for epochs in lost if not epochs & suspects]


def _span(finding: Finding) -> tuple[int, int, list[int]]:
    """(start, end, brokers that have the records) of a loss."""
    return finding.place.offset_start or 0, finding.place.offset_end or 0, finding.evidence["held_by"]


def _planned(history: RandomHistory, disk: Disk, plans: Plans) -> Iterator[str]:
    planned = [planned for planned in plans.planned if planned.plan.partition == disk.partition.number]
    if planned:
        yield from planned_disagreements(history.cluster, disk.partition, disk.logs, planned[0].plan)
        yield from _committed(history, disk, planned[0].plan)
    elif any(cut.lost for leader in disk.logs for cut in record_ids.cuts(disk.logs, leader).values()):
        yield "an election would lose records, but there is no plan"


def _forks(disk: Disk, findings: list[Finding], loses: bool) -> Iterator[str]:
    """Findings report the first fork with its offset and sides, and every other fork unless a loss covers it."""
    forks = record_ids.forks(disk.logs)
    if not forks:
        if bool(findings) != loses:
            yield f"no logs diverge, reported {[finding.kind for finding in findings]}"
        return
    findings = [
        finding for finding in findings if "places" in finding.evidence["versions"][0]
    ]  # without positions, the leader has written nothing yet
    offsets = [finding.evidence["offset"] for finding in findings]
    first = min(forks.values())
    losses = [finding.place for finding in findings if finding.kind in LOSS_KINDS]
    covered = {at for at in forks.values() if any((place.offset_start or 0) <= at < (place.offset_end or 0) for place in losses)}
    if not set(offsets) <= set(forks.values()) or set(forks.values()) - covered - set(offsets) or first not in offsets:
        yield f"logs diverge at {forks}, reported {offsets}"
    sides: dict[Any, list[int]] = {}
    for broker, log in disk.logs.items():
        if len(log) > first:
            sides.setdefault(log[first], []).append(broker)
    for finding in findings:
        seen = [version["brokers"] for version in finding.evidence["versions"]]
        if finding.evidence["offset"] == first and sorted(seen) != sorted(sides.values()):
            yield f"at {first} the sides are {sides}, reported {seen}"


def _reported_versions(disk: Disk, finding: Finding) -> set[Version]:
    """The versions that a finding reports as lost, which must be equal in the logs of all brokers that have them."""
    start, end = finding.place.offset_start, finding.place.offset_end
    assert start is not None
    assert end is not None
    versions = [disk.versions(broker, ((start, end),)) for broker in finding.evidence["held_by"]]
    return versions[0] if versions and all(other == versions[0] for other in versions) else set()


def _count_traces(history: RandomHistory, disk: Disk, counted: Counter[str]) -> None:
    """Count acknowledged records that no log has; a watermark beyond the end of its log (HW_BEYOND_LEO) is their only trace."""
    for record in record_ids.lost(acknowledged_of(history.cluster, disk.partition), disk.logs.values()):
        sent = history.cluster.acknowledged[record]
        offset = sent.base_offset + sent.ids.index(record)
        traced = any(len(log) <= offset < disk.watermarks[broker] for broker, log in disk.logs.items())
        counted["records lost with a trace" if traced else "records lost without a trace"] += 1


def _committed(history: RandomHistory, disk: Disk, plan: Any) -> Iterator[str]:
    """Plans count as committed what a watermark or a transaction marker proves, and nothing that was never committed."""
    ever = history.cluster.committed[disk.partition.name]
    for candidate in plan.candidates:
        for loss in candidate.losses:
            proven = {version for broker in loss.held_by for version in enumerate(disk.logs[broker][: disk.committed_end(broker)])}
            planned = disk.versions(int(loss.held_by[0]), ((loss.start, max(loss.committed_end, loss.start)),))
            more = planned - proven
            if not proven & disk.versions(int(loss.held_by[0]), ((loss.start, loss.end),)) <= planned:
                yield f"led by {candidate.broker}: proven are {sorted(proven)}, planned {sorted(planned)}"
            by_marker = loss.witness is not None and loss.witness.kind == "transaction_marker"
            if more and not (by_marker and {record for _, (_, record) in more if record >= 0} <= ever):
                yield f"led by {candidate.broker}: planned as proven {sorted(more)}"
    if plan.recommended is not None:
        costs = {candidate.broker: candidate.committed for candidate in plan.candidates}
        if costs[plan.recommended] != min(costs.values()):
            yield f"recommended is {plan.recommended}, of {costs}"


def _transactions(
    history: RandomHistory, paths: list[str], options: ScanOptions, findings: list[Finding], counted: Counter[str]
) -> Iterator[str]:
    """Compares the list of transactions with one copy, and the findings with the open and torn transactions of all logs."""
    cluster, coordinator = history.cluster, history.coordinator
    assert coordinator is not None
    rows = list(transactions(paths, options).rows)
    for partition in cluster.partitions.values():
        of_partition = [finding for finding in findings if finding.place.partition == partition.number]
        for finding in of_partition:
            if finding.kind in LOST_TRANSACTION_KINDS | {"TXN_TORN"} and not _is_torn(coordinator, partition, finding):
                yield f"{partition.name}: {finding.kind} {finding.evidence} is wrong"
        reported = {
            (finding.evidence["producer_id"], finding.place.offset_start)
            for finding in of_partition
            if finding.kind in OPEN_TRANSACTION_KINDS and finding.evidence.get("reason") != "opposite_marker"
        }
        logged = {broker: expected.transactions(replica.batches) for broker, replica in partition.replicas.items()}
        open_in_logs = {
            (transaction.producer_id, transaction.first_offset)
            for log_transactions in logged.values()
            for transaction in log_transactions
            if transaction.state == "open"
        }
        counted["open transactions"] += len(open_in_logs)
        if reported != open_in_logs:
            yield f"{partition.name}: open are {open_in_logs}, reported {reported}"
        here = [row for row in rows if row.partition == partition.number and row.topic == partition.topic]
        listed = [row for row in here if row.state != "lost"]
        if not listed:
            if all(logged.values()):
                yield f"{partition.name}: no transaction is listed"
            continue
        seen = [(row.producer_id, row.first_offset, _ending(row.state, row.marker), row.marker_offset) for row in listed]
        counted["transactions listed"] += len(seen)
        broker = int(listed[0].broker)
        torn = {(row.producer_id, row.first_offset) for row in listed if row.state == "torn"}
        # without a controller's log a replica may be missing, so a loss is reported only if clock skew cannot explain it
        if cluster.fences_fetches and not expected.torn(coordinator, partition, partition.replicas[broker].batches) <= torn:
            yield f"{partition.name}: reported as torn are {torn}"
        counted["torn transactions"] += len(torn)
        truth = [tuple(transaction) for transaction in logged[broker]]
        if sorted(seen, key=str) != sorted(truth, key=str):
            yield f"{partition.name}: broker {broker} has {truth}, listed {seen}"


def _ending(state: str, marker: str | None) -> str:
    """The state of a row by its log alone."""
    if state in ("open", "hanging") or (state == "torn" and marker is None):
        return "open"
    return {"COMMIT": "committed", "ABORT": "aborted"}[str(marker)] if state == "torn" else state


def _is_torn(coordinator: Coordinator, partition: SimulatedPartition, finding: Finding) -> bool:
    """Whether the named decision was made and its log lacks the marker; for lost records, whether all logs lack records and
    marker."""
    decided, completed, producer_id = (
        finding.evidence[name] for name in ("decided_timestamp", "completed_timestamp", "producer_id")
    )
    decisions = [state for when, _, state in coordinator.log if when == decided and state.producer_id == producer_id]
    since = min((state.start_timestamp for state in decisions if partition.name in state.partitions), default=None)
    logs = (
        [partition.replicas[int(finding.place.broker or 0)]]
        if finding.kind not in LOST_TRANSACTION_KINDS
        else list(partition.replicas.values())
    )
    batches = [batch for log in logs for batch in log.batches if batch.producer_id == producer_id]
    marker = "COMMIT" if finding.evidence["decision"] == "commit" else "ABORT"
    has_it = any(batch.marker == marker and decided <= batch.timestamp_ms <= (completed or batch.timestamp_ms) for batch in batches)
    is_in_log = finding.kind in LOST_TRANSACTION_KINDS and any(
        batch.marker is None and (since or 0) <= batch.timestamp_ms <= decided for batch in batches
    )
    return since is not None and not has_it and not is_in_log


CHUNK = 50
"""Histories of a test; the nightly run has 20 such tests."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "first_seed" in metafunc.fixturenames:
        chunks = 20 if metafunc.config.getoption("--nightly") else 1
        metafunc.parametrize("first_seed", range(0, chunks * CHUNK, CHUNK))


def test_scan_and_plan_agree_with_the_simulator(first_seed: int, tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + CHUNK):
        assert list(disagreements_of_seed(seed, tmp_path, counted)) == [], f"seed {seed}"
    assert counted["forked"] > 0
    assert counted["transactions listed"] > 0
    assert counted["open transactions"] > 0
    # A loss above all watermarks leaves no trace in any file.
    assert counted["records lost without a trace"] > counted["records lost with a trace"]


@pytest.mark.parametrize("seed", [375])
def test_plan_and_scan_count_records_that_only_a_marker_proves_committed(seed: int, tmp_path: Path) -> None:
    """Regression test: a plan counted such records, but a scan did not report them."""
    counted = Counter[str]()
    assert list(disagreements_of_seed(seed, tmp_path, counted)) == []
    assert counted["members short of a marker"] > 0


def disagreements_of_seed(seed: int, folder: Path, counted: Counter[str]) -> Iterator[str]:
    """Disagreements in the history of a seed; its directories are removed afterwards."""
    root = folder / str(seed)
    root.mkdir()
    yield from disagreements_on_disk(random_history(seed), root, counted)
    rmtree(root)
