"""docs/protocols.md says what a check says: the counts, the counterexamples, the names."""

import re
from pathlib import Path

from kafka_forensics.simulation.checker import check
from kafka_forensics.simulation.model import INVARIANTS, KIP_320_FIRST_TRY, PROTOCOLS, Sizes
from tests.support.protocol_counts import BROKEN, STATES, TWO_REPLICAS, WITHOUT_GUARD

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


def test_the_first_try_loses_committed_records_given_one_more_epoch() -> None:
    checked = check(KIP_320_FIRST_TRY, Sizes(3, 1, 1, 3), until_broken="CommittedSomewhere")
    assert len(checked.verdict("CommittedOnLeader").trace) == 14
    assert len(checked.verdict("CommittedSomewhere").trace) == 16
    assert "the leader lacks it after 14 steps, and every replica after 16." in " ".join(PAGE.split())
