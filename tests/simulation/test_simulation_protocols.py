"""The counts and shortest counterexamples of the five protocols, as Gustafson's specification has them."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_forensics.simulation.checker import Checked, check
from kafka_forensics.simulation.model import (
    INVARIANTS,
    KIP_320,
    KIP_320_FIRST_TRY,
    PROTOCOLS,
    Fence,
    Guard,
    Protocol,
    Sizes,
    Truncation,
)
from tests.support.nightly import nightly_but
from tests.support.protocol_counts import BROKEN, STATES, TWO_REPLICAS, WITHOUT_GUARD


def broken(checked: Checked) -> dict[str, int]:
    assert checked.complete
    assert all(verdict.holds is not None for verdict in checked.verdicts)
    return {verdict.invariant: len(verdict.trace) for verdict in checked.verdicts if not verdict.holds}


@pytest.mark.parametrize("name", nightly_but(["kip-320"], PROTOCOLS))
def test_three_replicas_two_records(name: str) -> None:
    checked = check(PROTOCOLS[name], Sizes())
    assert (checked.states, checked.depth) == STATES[name]
    assert broken(checked) == BROKEN[name]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_two_replicas_three_records(name: str) -> None:
    checked = check(PROTOCOLS[name], Sizes(2, 3, 3, 3), history=False)
    states, steps = TWO_REPLICAS[name]
    assert checked.states == states
    assert len(checked.verdict("StrongIsr").trace) == steps


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


@pytest.mark.parametrize("name", nightly_but(["LEADER_WRITES", "expand_isr REACHED", "truncation KIP_101"], WITHOUT_GUARD))
def test_without_a_guard_committed_records_can_go_missing(name: str) -> None:
    checked = check(dict(mutants())[name], Sizes(), until_broken="StrongIsr", history=False)
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


@pytest.mark.nightly
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


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocols.md").read_text()


def tables() -> list[list[list[str]]]:
    """All tables: rows of cells without backquotes, the heads first."""
    found = re.findall(r"(?:^\|.*\|\n)+", PAGE, re.MULTILINE)
    rows = [[line.strip("| ").split(" | ") for line in table.splitlines() if "---" not in line] for table in found]
    return [[[cell.strip("` ") for cell in row] for row in table] for table in rows]


def test_the_table_of_the_default_sizes_is_what_the_checks_found() -> None:
    heads, *rows = tables()[1]
    assert [row[0] for row in rows] == list(PROTOCOLS)
    for name, _, states, depth, *steps in rows:
        assert (int(states), int(depth)) == STATES[name]
        for invariant, said in zip(heads[4:], steps, strict=True):
            assert said == str(BROKEN[name].get(invariant, "holds"))


def test_the_table_of_two_replicas_is_what_the_checks_found() -> None:
    _, *rows = tables()[2]
    assert {name: (int(states), 0 if said == "holds" else int(said)) for name, states, said in rows} == TWO_REPLICAS


def test_the_table_of_the_small_world_is_true() -> None:
    _, *rows = tables()[3]
    assert [row[0] for row in rows] == list(PROTOCOLS)
    for name, states, said in rows:
        checked = check(PROTOCOLS[name], Sizes(2, 2, 2, 1), history=False)
        assert str(checked.states) == states
        assert (str(len(checked.verdict("StrongIsr").trace)) if said != "holds" else "0") == said.replace("holds", "0")
        assert checked.verdict("StrongIsr").holds is (said == "holds")


def test_every_invariant_is_explained() -> None:
    assert [row[0] for row in tables()[0][1:]] == list(INVARIANTS)


def test_the_table_of_guards_has_every_one() -> None:
    assert sorted(int(row[1]) for row in tables()[4][1:]) == sorted(WITHOUT_GUARD.values())


@pytest.mark.nightly
def test_the_first_try_loses_committed_records_given_one_more_epoch() -> None:
    checked = check(KIP_320_FIRST_TRY, Sizes(3, 1, 1, 3), until_broken="CommittedSomewhere")
    assert len(checked.verdict("CommittedOnLeader").trace) == 14
    assert len(checked.verdict("CommittedSomewhere").trace) == 16
    assert "the leader lacks it after 14 steps, and every replica after 16." in " ".join(PAGE.split())
