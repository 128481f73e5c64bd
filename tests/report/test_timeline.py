"""The timeline of a cluster is to scale, marks unclean elections, and says what happened at each moment."""

from collections import Counter

import pytest

from kafka_forensics.questions.cluster_history import ClusterHistory, Moment
from kafka_forensics.questions.report import PageFacts
from kafka_forensics.report.picture import Bar, Label, Picture, Tick
from kafka_forensics.report.timeline import Timeline, timeline
from tests.report.pages import START_MS, results_with_loss


def drawn(*moments: Moment, incident_ms: int | None = None, end_ms: int | None = None) -> Timeline:
    history = ClusterHistory(list(moments), moments[-1].time_ms if end_ms is None else end_ms)
    found = timeline(PageFacts(history=history), incident_ms)
    assert found is not None
    return found


def ticks(picture: Picture, style: str) -> list[float]:
    return [round(shape.x, 1) for shape in picture.shapes[style] if isinstance(shape, Tick)]


def test_the_timeline_shows_stopped_brokers_elections_and_the_times_of_records() -> None:
    _, facts = results_with_loss(2)
    found = timeline(facts, START_MS + 8_000)
    assert found is not None
    assert [(text, is_unclean) for _, text, is_unclean in found.moments] == [
        ("Broker 3 is down. Broker 3 leaves the ISR of 12 partitions.", False),
        ("12 partitions have no leader. Broker 2 is down.", False),
        ("Unclean election: broker 1, from outside the ISR, becomes leader of payments-0.", True),
    ]
    picture = found.picture
    assert ticks(picture, "change") == [10.0, 65.0]
    assert ticks(picture, "unclean") == [90.0]
    assert [(round(bar.x1), round(bar.x2)) for bar in picture.shapes["down"] if isinstance(bar, Bar)] == [(65, 100), (10, 100)]
    assert [(round(bar.x1), round(bar.x2)) for bar in picture.shapes["lost"] if isinstance(bar, Bar)] == [(50, 60)]
    assert [round(label.x) for label in picture.shapes["newest"] if isinstance(label, Label)] == [100, 60]
    assert picture.notes == ["1 earlier change of the cluster not drawn."]


def test_distances_are_to_scale() -> None:
    times = [0, 10_000, 15_000, 40_000]
    found = drawn(*(Moment(START_MS + time, elected=Counter({1: 2})) for time in times))
    places = ticks(found.picture, "change")
    parts = [(place - places[0]) / (places[-1] - places[0]) for place in places]
    assert parts == pytest.approx([0, 0.25, 0.375, 1], abs=0.002)


def test_changes_at_nearly_the_same_time_are_one_moment() -> None:
    left = (Moment(START_MS + 4 * number, left_isr=Counter({2: 1}), out_of_sync=Counter({2: 1})) for number in range(30))
    back = Moment(START_MS + 60_000, joined_isr=Counter({2: 30, 3: 30}), elected=Counter({2: 4}), out_of_sync=Counter({2: -30}))
    found = drawn(*left, back)
    assert [text for _, text, _ in found.moments] == [
        "Broker 2 leaves the ISR of 30 partitions.",
        "Broker 2 becomes leader of 4 partitions. Brokers 2 and 3 join the ISR of 30 partitions each.",
    ]
    assert len([shape for shape in found.picture.shapes["out"] if isinstance(shape, Bar)]) == 1


def test_a_long_pause_ends_the_timeline() -> None:
    day = 86_400_000
    times = [0, 30 * day, 30 * day + 20_000, 30 * day + 30_000, 40 * day, 40 * day + 1_800_000]
    moments = [Moment(START_MS + time, fenced={1}) for time in times]
    found = drawn(*moments, incident_ms=START_MS + 30 * day + 20_000)
    assert len(found.moments) == 3
    assert found.picture.notes == ["1 earlier change of the cluster not drawn.", "2 later changes of the cluster not drawn."]
    assert len(drawn(*moments).moments) == 2  # without an incident, up to the end
    labels = [shape.text for shape in drawn(*moments).picture.shapes["tk"] if isinstance(shape, Label)]
    assert labels == ["05:50", "06:00", "06:10"]


def test_many_changes_are_bounded() -> None:
    found = drawn(*(Moment(START_MS + 1_000_000 * number, fenced={number}) for number in range(300)))
    assert len(found.moments) <= 24
    brokers = [shape for shape in found.picture.shapes["nm"] if isinstance(shape, Label)]
    assert len(brokers) == 24


def test_without_a_controllers_log_there_is_no_timeline() -> None:
    assert timeline(PageFacts(), START_MS) is None
    assert timeline(PageFacts(history=ClusterHistory([Moment(START_MS)], START_MS)), None) is None
