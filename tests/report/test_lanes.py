"""The lanes of a partition: what they draw, what they list as not drawn, and lanes in notebooks."""

from dataclasses import replace
from pathlib import Path
from typing import Final
from xml.dom import minidom

import pytest

from kafka_forensics import scan
from kafka_forensics.analysis.kinds import finding
from kafka_forensics.errors import UsageError
from kafka_forensics.model.findings import Finding, Place
from kafka_forensics.model.results import Agreement, ReadExtent, ReplicaSummary
from kafka_forensics.questions.plan import Planned
from kafka_forensics.replication.planner import plan_partition
from kafka_forensics.report.document import partition_of
from kafka_forensics.report.lanes import cuts, lanes
from kafka_forensics.report.picture import Picture
from tests.support import plan_values
from tests.support.brokers import put_replica
from tests.support.places import SAMPLES
from tests.support.results import lost_records, partition, replica
from tests.support.segments import batch

CONFLICT = Agreement("conflict", 300, {"1": 2, "2": 0})


def drawn(agreement: Agreement, replicas: list[ReplicaSummary], *findings: Finding, planned: Planned | None = None) -> Picture:
    row, rows = partition_of(partition("audit", 0, agreement, replicas, list(findings)), findings)
    return lanes(row, rows, planned)


def boxes(picture: Picture, style: str) -> list[str]:
    return [rect.title for rect in picture.rects if rect.style == style]


def after_unclean_election() -> tuple[list[ReplicaSummary], Planned]:
    plan_input = plan_values.partition(
        plan_values.replica(1, 345, (0, 0), (2, 300), hw=345),
        plan_values.replica(2, 370, (0, 0), hw=370),
        plan_values.replica(3, 300, (0, 0), hw=300),
        differing={(0, 1): ((300, 345),)},
    )
    return [replica(1, 345, [(0, 0), (2, 300)]), replica(2, 370), replica(3, 300)], Planned(plan_input, plan_partition(plan_input))


def test_lanes_have_the_colours_of_leader_epochs() -> None:
    replicas, planned = after_unclean_election()
    picture = drawn(CONFLICT, replicas, lost_records(), planned=planned)
    assert boxes(picture, "e0") == ["epoch 0: offsets 0 to 299", "epoch 0: offsets 0 to 369", "epoch 0: offsets 0 to 299"]
    assert boxes(picture, "e1") == ["epoch 2: offsets 300 to 344"]
    texts = {text.text for text in picture.texts}
    assert {"fork 300", "high watermark ≥ 370", "broker 1", "broker 2", "broker 3"} <= texts
    assert picture.notes == []
    assert "they part at offset 300; high watermark at least 370" in picture.label


def test_cuts_are_those_of_the_plan() -> None:
    replicas, planned = after_unclean_election()
    picture = drawn(CONFLICT, replicas, planned=planned)
    truncations = [(cut.leader, cut.follower, cut.truncation_offset, list(cut.lost)) for cut in cuts(planned)]
    assert truncations == [
        (1, 2, 300, [(300, 370)]),
        (2, 1, 300, [(300, 345)]),
        (3, 1, 300, [(300, 345)]),
        (3, 2, 300, [(300, 370)]),
    ]
    assert boxes(picture, "lo") == [f"lost: offsets 300 to {last}" for last in (369, 344, 344, 369)]
    assert "cut at 300: 70 offsets lost" in [text.text for text in picture.texts]
    assert boxes(drawn(CONFLICT, replicas), "lo") == []


def test_different_records_that_are_not_cut_are_shown_as_kept() -> None:
    plan_input = plan_values.partition(
        plan_values.replica(1, 3, hw=3), plan_values.replica(2, 3, hw=3), differing={(0, 1): ((0, 3),)}
    )
    picture = drawn(
        Agreement("conflict", 0),
        [replica(1, 3, leader_epochs=[]), replica(2, 3)],
        planned=Planned(plan_input, plan_partition(plan_input)),
    )
    cut_texts = [text.text for text in picture.texts if text.style == "ctt"]
    assert cut_texts == ["not cut: 3 offsets lost, 3 offsets still on its disk"] * 2


def test_damage_and_gaps_are_drawn_on_their_replica() -> None:
    file = "audit-0/00000000000000000000.log"
    damaged = finding("BATCH_CRC_MISMATCH", Place("audit", 0, 2, "copies/broker-2", file, 0, 10, 40, 50))
    missing = finding("OFFSET_GAP", Place("audit", 0, 1, "copies/broker-1", file, 0, 10, 60, 80))
    elsewhere = finding("BATCH_CRC_MISMATCH", Place("audit", 0, 2, "copies/other", file, 0, 10, 90, 95))
    harmless = finding("BATCHES_REENCODED", Place("audit", 0, 2, "copies/broker-2", file, 0, 10, 10, 20))
    nowhere = finding("FRAMING_LOST", Place("audit", 0, 2, "copies/broker-2", file, 0, 10))
    picture = drawn(Agreement("identical", 100), [replica(1, 100), replica(2, 100)], damaged, missing, elsewhere, harmless, nowhere)
    lane = {text.text: text.y for text in picture.texts}
    assert [(rect.title, lane["broker 2"] - rect.y) for rect in picture.rects if rect.style == "dm"] == [
        ("damaged: offsets 40 to 49", 15)
    ]
    assert [(rect.title, lane["broker 1"] - rect.y) for rect in picture.rects if rect.style == "ms"] == [
        ("missing: offsets 60 to 79", 15)
    ]
    assert picture.notes == ["1 damaged or missing places are not drawn: their offsets are not known, or they are too many."]


def test_unread_logs_are_drawn_as_unknown() -> None:
    unread = replica(
        1, 0, read=ReadExtent.NONE, log_start_offset=None, log_end_offset=None, leader_epochs=None, high_watermark=None
    )
    part = replica(2, 0, read=ReadExtent.PART, log_end_offset=None, read_end_offset=40, high_watermark=None)
    picture = drawn(Agreement("not_compared"), [unread, part, replica(3, 100, high_watermark=None)])
    assert boxes(picture, "nr") == ["", "not read from offset 40 on"]
    assert "not read: where its log starts and ends is not known" in [text.text for text in picture.texts]
    assert picture.notes == ["The high watermark is not known: no file tells one."]
    assert "broker 1 not read, broker 2 offsets 0 to 40, broker 3 offsets 0 to 100" in picture.label


def test_batches_without_epoch_and_empty_logs() -> None:
    picture = drawn(Agreement("prefix", 0), [replica(1, 9, [(3, 5)]), replica(2, 0, leader_epochs=[])])
    assert boxes(picture, "en") == ["no epoch: offsets 0 to 4"]
    assert boxes(picture, "e0") == ["epoch 3: offsets 5 to 8"]
    assert "empty" in [text.text for text in picture.texts]


def test_epochs_and_damaged_ranges_are_bounded_with_a_note() -> None:
    place = Place("audit", 0, 1, "copies/broker-1", "audit-0/00000000000000000000.log", 0, 10)
    damage = [
        finding("BATCH_CRC_MISMATCH", replace(place, offset_start=10 * number, offset_end=10 * number + 5)) for number in range(500)
    ]
    picture = drawn(Agreement("identical", 9000), [replica(1, 9000, [(epoch, 3 * epoch) for epoch in range(2000)])], *damage)
    assert len(picture.rects) < 80
    assert picture.notes[-2:] == [
        "476 damaged or missing places are not drawn: their offsets are not known, or they are too many.",
        "Of each log the last 32 leader epochs are drawn.",
    ]


SAMPLE: Final = SAMPLES / "unclean-election"


def test_lanes_are_a_picture_with_style_and_label() -> None:
    drawing = scan(str(SAMPLE), topic="audit").lanes("audit", 0)
    root = minidom.parseString(drawing._repr_svg_()).documentElement  # noqa: S318 - made here
    assert root is not None
    assert root.tagName == "svg"
    assert root.getAttribute("aria-label").startswith("Replicas of audit-0 over offsets: broker 1 offsets 0 to 345")
    assert next(node.tagName for node in root.childNodes if isinstance(node, minidom.Element)) == "style"
    assert drawing._repr_svg_() in drawing._repr_html_()
    assert "cut at 300: 70 offsets lost" in drawing._repr_html_()


def test_an_unknown_partition_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="there is no partition 'audit-1'") as caught:
        scan(str(SAMPLE), topic="audit").lanes("audit", 1)
    assert caught.value.hint == "did you mean audit-0?"


def test_notes_are_shown_below_the_picture(tmp_path: Path) -> None:
    put_replica(tmp_path, 1, batch(0, 5), partition="audit-0")
    log_dir = next(path for path in tmp_path.iterdir() if path.is_dir())
    drawing = scan(f"<b>={log_dir}").lanes("audit", 0)
    assert "<figcaption>The high watermark is not known: no file tells one.</figcaption>" in drawing._repr_html_()
    assert "broker &lt;b&gt;" in drawing._repr_svg_()
    assert "<b>" not in drawing._repr_html_()
