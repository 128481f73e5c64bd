"""The counts and shortest counterexamples of the five protocols, as Gustafson's specification has them."""

import pytest

from kafka_forensics.simulation.checker import Checked, check
from kafka_forensics.simulation.model import PROTOCOLS, Sizes
from tests.support.nightly import nightly_but
from tests.support.protocol_counts import BROKEN, STATES, TWO_REPLICAS


def broken(checked: Checked) -> dict[str, int]:
    assert checked.complete
    assert all(verdict.holds is not None for verdict in checked.verdicts)
    return {verdict.invariant: len(verdict.trace) for verdict in checked.verdicts if not verdict.holds}


@pytest.mark.parametrize("name", nightly_but(["kip-101", "kip-320"], PROTOCOLS))
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
