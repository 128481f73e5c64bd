"""Sentences whose form follows a number or a reason: holders of copies, defects of small files."""

import re
from pathlib import Path

import pytest

from kafka_forensics import wording
from kafka_forensics.analysis.catalogue import finding
from kafka_forensics.model.findings import Place
from kafka_forensics.wording.values import DEFECTS

ROOT = Path(__file__).resolve().parents[2]
PLACE = Place("audit", 0, 2, "/b2", "audit-0/00000000000000000000.log", 0, 61, 300, 370)


@pytest.mark.parametrize(
    ("holders", "said"),
    [
        ([1], "; a good copy is on broker 1."),
        ([1, 3], "; good copies are on brokers 1 and 3."),
        ([], "; no good copy is known."),
    ],
)
def test_copies_agree_with_their_number(holders: list[int], said: str) -> None:
    assert wording.message(finding("OFFSET_GAP", PLACE, {"held_by": holders})).endswith(said)


def test_a_defect_of_a_small_file_is_a_sentence() -> None:
    place = Place(broker=3, log_dir="/b3", file="replication-offset-checkpoint")
    said = wording.message(finding("CHECKPOINT_MALFORMED", place, {"reason": "version", "line": 1}))
    assert said == (
        "broker 3: replication-offset-checkpoint cannot be read as what it should be: its version is missing or unknown (line 1),"
        " so what it says is unknown."
    )
    assert "(line" not in wording.message(finding("CHECKPOINT_MALFORMED", place, {"reason": "json"}))


@pytest.mark.parametrize("file", ["replication-offset-checkpoint", "audit-0/leader-epoch-checkpoint"])
def test_a_file_over_which_a_broker_does_not_start_is_to_be_moved_and_what_that_costs(file: str) -> None:
    row = finding("CHECKPOINT_MALFORMED", Place("audit", 0, 3, "/b3", file), {"reason": "version", "starts": False})
    assert "a broker without another one does not start" in wording.message(row)
    text = wording.advice(row) or ""
    assert "move (never delete) this file out of it: without it Kafka " in text
    bare = finding("CHECKPOINT_MALFORMED", row.place, {"reason": "version"})
    assert "start" not in wording.message(bare) + (wording.advice(bare) or "")


def test_every_reason_of_a_small_file_has_words() -> None:
    parsers = ROOT / "kafka_forensics" / "parsers"
    code = "".join(path.read_text() for path in (parsers / "bounded.py", parsers / "checkpoints.py"))
    given = re.findall(r'damage\.add\([^\n]*?, "(\w+)"', code) + re.findall(r'return "(\w+)"', code)
    given += re.findall(r'_(?:number|matching)\([^\n]*?, "(\w+)"', code) + re.findall(r'_Header\("(\w+)"', code)
    assert len(set(given)) > 15
    assert set(given) <= DEFECTS.keys()
