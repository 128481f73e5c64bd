"""The lanes of a partition: what they draw, what they list as not drawn, and lanes in notebooks."""

from pathlib import Path
from typing import Final
from xml.dom import minidom

import pytest
from msgspec.structs import replace

from kafka_forensics import scan
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.errors import UsageError
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.results import Agreement, ReadExtent, ReplicaSummary
from kafka_forensics.questions.plan import LossSize, Planned
from kafka_forensics.replication.planner import PlanControl, plan_partition
from kafka_forensics.report.document import partition_of
from kafka_forensics.report.lanes import Span, fork_of, lanes, spans_of
from kafka_forensics.report.picture import Bar, Label, Picture
from tests.support import plan_values
from tests.support.brokers import put_replica
from tests.support.places import SAMPLES
from tests.support.results import lost_records, partition, replica
from tests.support.segments import batch

CONFLICT = Agreement("conflict", 300, {"1": 2, "2": 0})
LEADS_1 = PlanControl(1, 1, 2, (1,), (), (1, 2, 3), None, None)


def drawn(agreement: Agreement, replicas: list[ReplicaSummary], *findings: Finding, planned: Planned | None = None) -> Picture:
    row, rows = partition_of(partition("audit", 0, agreement, replicas, list(findings)), findings)
    return lanes(row, rows, planned)


def parts(agreement: Agreement, replicas: list[ReplicaSummary], planned: Planned | None = None) -> list[list[Span]]:
    row, rows = partition_of(partition("audit", 0, agreement, replicas, []), [])
    return spans_of(row, fork_of(row, rows), planned)


def texts(picture: Picture, style: str) -> list[str]:
    return [shape.text for shape in picture.shapes[style] if isinstance(shape, Label)]


def bars(picture: Picture, style: str) -> list[tuple[int, int]]:
    """Bars of a style, from and to which percent."""
    return [(round(shape.x1), round(shape.x2)) for shape in picture.shapes[style] if isinstance(shape, Bar)]


def after_unclean_election(*, control: PlanControl | None = LEADS_1) -> tuple[list[ReplicaSummary], Planned]:
    plan_input = plan_values.partition(
        plan_values.replica(1, 345, (0, 0), (2, 300), hw=345),
        plan_values.replica(2, 370, (0, 0), hw=370),
        plan_values.replica(3, 300, (0, 0), hw=300),
        differing={(0, 1): ((300, 345),)},
        control=control,
    )
    sizes = {(300, 370, "(2,)"): LossSize(70, 4697), (300, 345, "(1,)"): LossSize(45, 3243)}
    planned = Planned(plan_input, plan_partition(plan_input), sizes=sizes)
    return [replica(1, 345, [(0, 0), (2, 300)]), replica(2, 370), replica(3, 300)], planned


OUTCOME: Final = [
    [("kept", (0, 300)), ("new", (300, 345))],
    [("kept", (0, 300)), ("lost", (300, 370))],
    [("kept", (0, 300))],
]


def test_lanes_show_what_happens_to_records_under_the_present_leader() -> None:
    replicas, planned = after_unclean_election()
    assert parts(CONFLICT, replicas, planned) == OUTCOME
    picture = drawn(CONFLICT, replicas, lost_records(), planned=planned)
    assert texts(picture, "nm") == ["broker 1: offsets 0–344", "broker 2: offsets 0–369", "broker 3: offsets 0–299"]
    assert texts(picture, "forkt") + texts(picture, "hwt") == ["replicas differ from 300", "high watermark ≥ 370"]
    assert bars(picture, "new") == [(81, 93)]
    assert picture.notes == []
    assert "they differ from offset 300 on; high watermark at least 370" in picture.label


def test_without_a_plan_the_latest_leader_epoch_decides() -> None:
    replicas, _ = after_unclean_election()
    assert parts(CONFLICT, replicas) == OUTCOME


def test_without_different_epochs_no_copy_is_the_right_one() -> None:
    same = parts(Agreement("content", 4), [replica(1, 9), replica(2, 9)])
    assert same == [[("kept", (0, 4)), ("open", (4, 9))]] * 2


def test_labels_of_elections_state_the_loss_in_full() -> None:
    replicas, planned = after_unclean_election()
    picture = drawn(CONFLICT, replicas, planned=planned)
    assert texts(picture, "el") == [
        "elect 1: broker 2 loses 300–369, 70 records (leads)",
        "elect 2: broker 1 loses 300–344, 45 records (unclean,",
        "recommended)",
        "elect 3: broker 1 loses 300–344, 45 records (unclean)",
        "elect 3: broker 2 loses 300–369, 70 records (unclean)",
    ]
    assert bars(picture, "lost") == [(81, 100), (81, 100), (81, 93), (81, 93), (81, 100)]
    assert texts(drawn(CONFLICT, replicas), "el") == []


def test_large_numbers_have_separators() -> None:
    end = 12_345_678
    plan_input = plan_values.partition(plan_values.replica(1, end, hw=0), plan_values.replica(2, 1_000, hw=0), control=LEADS_1)
    planned = Planned(plan_input, plan_partition(plan_input))
    picture = drawn(Agreement("prefix", 1_000), [replica(1, end), replica(2, 1_000)], planned=planned)
    assert texts(picture, "nm")[0] == "broker 1: offsets 0–12,345,677"
    assert texts(picture, "el") == [
        "elect 1: loses nothing",
        "elect 2: broker 1 loses 1,000–12,345,677, at most",
        "12,344,678 offsets (unclean)",
    ]


def test_records_that_are_not_cut_stay_on_disk() -> None:
    plan_input = plan_values.partition(
        plan_values.replica(1, 3, hw=3), plan_values.replica(2, 3, hw=3), differing={(0, 1): ((0, 3),)}
    )
    picture = drawn(
        Agreement("conflict", 0),
        [replica(1, 3, leader_epochs=[]), replica(2, 3)],
        planned=Planned(plan_input, plan_partition(plan_input)),
    )
    assert texts(picture, "el")[0] == "elect 1: broker 2 loses 0–2, 3 offsets, still on disk"


def test_damage_and_gaps_are_drawn_on_their_replica() -> None:
    file = "audit-0/00000000000000000000.log"
    damaged = finding("BATCH_CRC_MISMATCH", Place("audit", 0, 2, "copies/broker-2", file, 0, 10, 40, 50))
    missing = finding("OFFSET_GAP", Place("audit", 0, 1, "copies/broker-1", file, 0, 10, 60, 80))
    elsewhere = finding("BATCH_CRC_MISMATCH", Place("audit", 0, 2, "copies/other", file, 0, 10, 90, 95))
    harmless = finding("BATCHES_REENCODED", Place("audit", 0, 2, "copies/broker-2", file, 0, 10, 10, 20))
    nowhere = finding("FRAMING_LOST", Place("audit", 0, 2, "copies/broker-2", file, 0, 10))
    picture = drawn(Agreement("identical", 100), [replica(1, 100), replica(2, 100)], damaged, missing, elsewhere, harmless, nowhere)
    assert texts(picture, "nm") == ["broker 1: offsets 0–99, missing 60–79", "broker 2: offsets 0–99, damaged 40–49"]
    assert (bars(picture, "damaged"), bars(picture, "missing")) == ([(40, 50)], [(60, 80)])
    assert picture.notes == ["Not drawn: 1 damaged or missing range with unknown offsets, or too many to draw."]


def test_unread_logs_are_drawn_as_unknown() -> None:
    unread = replica(
        1, 0, read=ReadExtent.NONE, log_start_offset=None, log_end_offset=None, leader_epochs=None, high_watermark=None
    )
    part = replica(
        2, 0, read=ReadExtent.PART, log_end_offset=None, read_end_offset=40, high_watermark=None, last_stable_offset=None
    )
    picture = drawn(Agreement("not_compared"), [unread, part, replica(3, 100, high_watermark=None)])
    assert bars(picture, "unread") == [(0, 100), (40, 100)]
    assert texts(picture, "nm")[:2] == ["broker 1: not read", "broker 2: offsets 0–39, not read from 40 on"]
    assert picture.notes == ["No file holds a high watermark."]


def test_records_that_wait_for_a_transaction_are_marked() -> None:
    picture = drawn(Agreement("identical", 80), [replica(1, 80, last_stable_offset=72), replica(2, 0, high_watermark=0)])
    assert bars(picture, "waits") == [(90, 100)]
    lines = texts(picture, "nm")
    assert " ".join(lines[:2]) == "broker 1: offsets 0–79, read_committed consumers wait at 72"
    assert lines[2:] == ["broker 2: no records, ends at 0"]


def test_damaged_ranges_are_bounded_with_a_note() -> None:
    place = Place("audit", 0, 1, "copies/broker-1", "audit-0/00000000000000000000.log", 0, 10)
    damage = [
        finding("BATCH_CRC_MISMATCH", replace(place, offset_start=10 * number, offset_end=10 * number + 5)) for number in range(500)
    ]
    picture = drawn(Agreement("identical", 9000), [replica(1, 9000)], *damage)
    assert len(picture.shapes["damaged"]) < 30
    assert "broker 1: offsets 0–8,999, damaged 0–4, 10–14, 20–24 and" in texts(picture, "nm")
    assert picture.notes[-1] == "Not drawn: 476 damaged or missing ranges with unknown offsets, or too many to draw."


SAMPLE: Final = SAMPLES / "unclean-election"


def test_lanes_are_a_picture_with_style_and_label() -> None:
    drawing = scan(str(SAMPLE), topic="audit").lanes("audit", 0)
    root = minidom.parseString(drawing._repr_svg_()).documentElement  # noqa: S318 - made here
    assert root is not None
    assert root.tagName == "svg"
    assert root.getAttribute("aria-label").startswith("Replicas of audit-0 over offsets: broker 1, leader: offsets 0–344")
    assert next(node.tagName for node in root.childNodes if isinstance(node, minidom.Element)) == "style"
    assert drawing._repr_svg_() in drawing._repr_html_()
    assert "elect 1: broker 2 loses 300–369, 70 records" in drawing._repr_html_()


def test_an_unknown_partition_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="there is no partition 'audit-1'") as caught:
        scan(str(SAMPLE), topic="audit").lanes("audit", 1)
    assert caught.value.hint == "did you mean audit-0?"


def test_notes_are_shown_below_the_picture(tmp_path: Path) -> None:
    put_replica(tmp_path, 1, batch(0, 5), partition="audit-0")
    log_dir = next(path for path in tmp_path.iterdir() if path.is_dir())
    drawing = scan(f"<b>={log_dir}").lanes("audit", 0)
    assert "<figcaption>No file holds a high watermark." in drawing._repr_html_()
    assert "broker &lt;b&gt;" in drawing._repr_svg_()
    assert "<b>" not in drawing._repr_html_()
