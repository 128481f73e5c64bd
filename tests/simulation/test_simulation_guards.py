"""Each guard of KIP-320 is needed: without it committed records may be missing on a replica that can be elected."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_forensics.simulation.checker import check
from kafka_forensics.simulation.model import KIP_320, KIP_320_FIRST_TRY, PROTOCOLS, Fence, Guard, Protocol, Sizes, Truncation
from tests.support.protocol_counts import WITHOUT_GUARD


def mutants() -> Iterator[tuple[str, Protocol]]:
    """KIP-320 without each of its guards, and with worse truncation."""
    for place in ("fetch", "raise_high_watermark", "expand_isr"):
        fence: Fence = getattr(KIP_320, place)
        for bit in fence:
            less: dict[str, Any] = {place: fence & ~bit}
            yield f"{place} {bit.name}", replace(KIP_320, **less)
    for guard in KIP_320.guards:
        yield str(guard.name), replace(KIP_320, guards=KIP_320.guards & ~guard)
    for worse in (Truncation.NEVER, Truncation.HIGH_WATERMARK, Truncation.KIP_101):
        yield f"truncation {worse.name}", replace(KIP_320, truncation=worse)


def test_every_guard_is_left_out_once() -> None:
    assert [name for name, _ in mutants()] == list(WITHOUT_GUARD)
    assert set(Guard) == set(KIP_320.guards)


@pytest.mark.parametrize(("name", "mutant"), list(mutants()))
def test_without_a_guard_committed_records_can_go_missing(name: str, mutant: Protocol) -> None:
    checked = check(mutant, Sizes(), until_broken="StrongIsr", history=False)
    verdict = checked.verdict("StrongIsr")
    assert verdict.holds is False
    assert len(verdict.trace) == WITHOUT_GUARD[name]


def test_the_first_try_lacks_what_the_second_added() -> None:
    fenced = replace(KIP_320_FIRST_TRY, guards=KIP_320_FIRST_TRY.guards & ~Guard.EPOCH_START_REACHED)
    checked = check(fenced, Sizes(), until_broken="StrongIsr", history=False)
    assert 0 < len(checked.verdict("StrongIsr").trace) <= 12


def test_unfenced_truncation_alone_has_as_many_states_as_was_measured_elsewhere() -> None:
    checked = check(replace(KIP_320, guards=KIP_320.guards & ~Guard.TRUNCATION_FENCED), Sizes(), history=False)
    assert checked.states == 145_899
    assert {verdict.invariant: len(verdict.trace) for verdict in checked.verdicts if not verdict.holds} == {
        "StrongIsr": 13,
        "WeakIsr": 13,
        "SettledAgreement": 11,
    }


def test_putting_anyone_out_of_the_isr_at_any_time_breaks_nothing() -> None:
    checked = check(replace(KIP_320, shrink_isr=Fence.NOBODY), Sizes())
    assert all(verdict.holds for verdict in checked.verdicts)


@pytest.mark.parametrize("guard", ["LEADER_WRITES", "NEWER_EPOCH"])
def test_one_epoch_two_records_takes_a_leader_that_is_none(guard: str) -> None:
    mutant = replace(KIP_320, guards=KIP_320.guards & ~Guard[guard])
    checked = check(mutant, Sizes(), until_broken="SameEpochAgreement", history=False)
    assert checked.verdict("SameEpochAgreement").holds is False


def test_no_protocol_lets_one_epoch_write_two_records_at_an_offset() -> None:
    for protocol in PROTOCOLS.values():
        assert check(protocol, Sizes(2, 2, 2, 2), history=False).verdict("SameEpochAgreement").holds
