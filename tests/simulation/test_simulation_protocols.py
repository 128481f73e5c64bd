"""State counts and shortest counterexamples of the five protocols agree with Gustafson's specification."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from kafka_forensics.model.files import EpochEntry
from kafka_forensics.replication.epochs import EpochLog, by_fetch, by_high_watermark, by_kip_101, by_kip_279, truncation_offset
from kafka_forensics.simulation.checker import check
from kafka_forensics.simulation.model import (
    INVARIANTS,
    KIP_101,
    KIP_320,
    PROTOCOLS,
    TRUNCATE_TO_HW,
    Fence,
    Guard,
    ModelReplica,
    ModelState,
    Protocol,
    ProtocolModel,
    Sizes,
    Truncation,
    leader_of,
)
from tests.support.nightly import daily_subset
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "protocols.md").read_text()
"""Its counts without history were confirmed by TLC on Gustafson's specification, with symmetry over the replicas."""


def tables() -> list[list[list[str]]]:
    """All tables of the page: rows of cells without backquotes, the header first."""
    found = re.findall(r"(?:^\|.*\|\n)+", PAGE, re.MULTILINE)
    rows = [[line.strip("| ").split(" | ") for line in table.splitlines() if "---" not in line] for table in found]
    return [[[cell.strip("` ") for cell in row] for row in table] for table in rows]


CONFIGURATIONS = {
    "three replicas": (1, Sizes(), True),
    "two": (2, Sizes(2, 3, 3, 3), False),
    "small": (3, Sizes(2, 2, 2, 1), False),
}
"""Name → (number of its table, sizes, whether the model keeps a history)."""
EVERY_RUN = [
    f"{name} of {configuration}"
    for name in PROTOCOLS
    for configuration in CONFIGURATIONS
    if configuration != "three replicas" or name == "kip-320"
]


@pytest.mark.parametrize(
    "case", daily_subset(EVERY_RUN, [f"{name} of {configuration}" for name in PROTOCOLS for configuration in CONFIGURATIONS])
)
def test_states_and_shortest_counterexamples_agree_with_the_page(case: str) -> None:
    name, _, configuration = case.partition(" of ")
    number, sizes, history = CONFIGURATIONS[configuration]
    header, *rows = tables()[number]
    assert [row[0] for row in rows] == list(PROTOCOLS)
    row = dict(zip(header, next(row for row in rows if row[0] == name), strict=True))
    checked = check(PROTOCOLS[name], sizes, history=history)
    assert checked.complete
    assert (str(checked.states), str(checked.depth)) == (row["states"], row.get("depth", str(checked.depth)))
    steps = {verdict.invariant: str(len(verdict.trace)) if verdict.holds is False else "holds" for verdict in checked.verdicts}
    assert {invariant: length for invariant, length in row.items() if invariant in INVARIANTS} == {
        invariant: length for invariant, length in steps.items() if invariant in row
    }
    if history:
        assert steps["CommittedOnIsr"] == steps["StrongIsr"]
        assert steps["LeaderInIsr"] == steps["SameEpochAgreement"] == "holds"


WITHOUT_GUARD = {
    "fetch SAME_EPOCH": 10,
    "raise_high_watermark SAME_EPOCH": 8,
    "raise_high_watermark REACHED": 6,
    "expand_isr SAME_EPOCH": 10,
    "expand_isr REACHED": 8,
    "ELECT_FROM_ISR": 6,
    "NEWER_EPOCH": 10,
    "ISR_BY_TRUE_LEADER": 8,
    "LEADER_WRITES": 7,
    "TRUNCATION_FENCED": 13,
    "EPOCH_START_REACHED": 11,
    "BEHIND_LEADER": 7,
    "truncation NEVER": 9,
    "truncation HIGH_WATERMARK": 11,
    "truncation KIP_101": 13,
}
"""Omitted guard → number of steps that break StrongIsr, at the default sizes."""


def mutants() -> Iterator[tuple[str, Protocol]]:
    """KIP-320 without each of its guards, and with worse truncation."""
    for action in ("fetch", "raise_high_watermark", "expand_isr"):
        fence: Fence = getattr(KIP_320, action)
        for bit in fence:
            changes: dict[str, Any] = {action: fence & ~bit}
            yield f"{action} {bit.name}", replace(KIP_320, **changes)
    for guard in KIP_320.guards:
        yield str(guard.name), replace(KIP_320, guards=KIP_320.guards & ~guard)
    for worse in (Truncation.NEVER, Truncation.HIGH_WATERMARK, Truncation.KIP_101):
        yield f"truncation {worse.name}", replace(KIP_320, truncation=worse)


def test_every_guard_is_omitted_once() -> None:
    assert [name for name, _ in mutants()] == list(WITHOUT_GUARD)
    assert set(Guard) == set(KIP_320.guards)


@pytest.mark.parametrize("name", daily_subset(["LEADER_WRITES", "expand_isr REACHED", "truncation KIP_101"], WITHOUT_GUARD))
def test_committed_records_can_be_lost_without_a_guard(name: str) -> None:
    checked = check(dict(mutants())[name], Sizes(), until_broken="StrongIsr", history=False)
    verdict = checked.verdict("StrongIsr")
    assert verdict.holds is False
    assert len(verdict.trace) == WITHOUT_GUARD[name]


def test_unfenced_truncation_has_the_states_and_counterexamples_of_tlc() -> None:
    checked = check(replace(KIP_320, guards=KIP_320.guards & ~Guard.TRUNCATION_FENCED), Sizes(), history=False)
    assert checked.states == 145_899
    broken = {verdict.invariant: len(verdict.trace) for verdict in checked.verdicts if not verdict.holds}
    assert broken == {"StrongIsr": 13, "WeakIsr": 13, "SettledAgreement": 11}


@pytest.mark.parametrize("guard", ["LEADER_WRITES", "NEWER_EPOCH"])
def test_without_the_guards_of_leaders_one_epoch_can_have_two_records_at_an_offset(guard: str) -> None:
    mutant = replace(KIP_320, guards=KIP_320.guards & ~Guard[guard])
    checked = check(mutant, Sizes(), until_broken="SameEpochAgreement", history=False)
    assert checked.verdict("SameEpochAgreement").holds is False


def test_no_protocol_has_two_records_of_one_epoch_at_an_offset() -> None:
    for protocol in PROTOCOLS.values():
        assert check(protocol, Sizes(2, 2, 2, 2), history=False).verdict("SameEpochAgreement").holds


def reachable(protocol: Protocol, sizes: Sizes) -> Iterator[tuple[ModelState, ModelState, int, int]]:
    """(before, after, follower, leader) of every step in which a replica becomes a follower, in all histories."""
    model = ProtocolModel(protocol, sizes)
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


def cached(replica: ModelReplica, *, leads: bool) -> EpochLog:
    """A log with the epochs that its broker caches: those of its records, and on a leader its leader epoch at the log end."""
    epochs = [record.leader_epoch for record in replica.log]
    entries = [EpochEntry(epoch, at) for at, epoch in enumerate(epochs) if at == 0 or epochs[at - 1] != epoch]
    if leads and replica.leader_epoch not in epochs:
        entries.append(EpochEntry(replica.leader_epoch, len(epochs)))
    return EpochLog(tuple(entries), len(epochs), replica.high_watermark)


@pytest.mark.parametrize("sizes", [Sizes(2, 3, 3, 2), Sizes(2, 2, 2, 3)], ids=str)
def test_epochs_find_where_records_diverge(sizes: Sizes) -> None:
    """Under KIP-320, a follower truncates exactly where its records diverge from the leader's."""
    cuts = set()
    for before, after, follower, leader in reachable(KIP_320, sizes):
        log = cached(before.replicas[follower], leads=leader_of(before, follower) == follower)
        target = cached(before.replicas[leader], leads=True)
        end = len(after.replicas[follower].log)
        assert by_kip_279(log, target).log_end_offset == end
        assert by_fetch(log, target).log_end_offset == end
        assert truncation_offset(log.epochs, log.log_end_offset, target.epochs, target.log_end_offset) == end
        cuts.add((log.log_end_offset, end))
    assert any(length > end > 0 for length, end in cuts)


def test_the_older_rules_truncate_where_the_model_does() -> None:
    """KIP-101 is compared only if the leader has an epoch of the follower's records. A leader of the specification caches no epoch
    before it writes in it, and a follower that would have to grow does not change."""
    for before, after, follower, leader in reachable(KIP_101, Sizes(2, 2, 2, 2)):
        log, target = (cached(before.replicas[number], leads=False) for number in (follower, leader))
        ascending = all(log.epochs == tuple(sorted(log.epochs, key=lambda entry: entry.leader_epoch)) for log in (log, target))
        if ascending and log.epochs and target.epochs and target.epochs[0].leader_epoch <= log.epochs[-1].leader_epoch:
            assert by_kip_101(log, target).log_end_offset == len(after.replicas[follower].log)
    for before, after, follower, leader in reachable(TRUNCATE_TO_HW, Sizes(2, 2, 2, 1)):
        log, target = (cached(before.replicas[number], leads=False) for number in (follower, leader))
        if log.high_watermark <= target.log_end_offset:
            assert by_high_watermark(log, target).log_end_offset == len(after.replicas[follower].log)
