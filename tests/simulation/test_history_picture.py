"""Pictures of histories are well-formed SVG with a box for each record, escaped text and no external resources."""

from xml.etree import ElementTree as ET

import pytest

from kafka_forensics.simulation.history import History
from kafka_forensics.simulation.picture import svg
from kafka_forensics.simulation.scenarios import SCENARIOS, play

SVG = "{http://www.w3.org/2000/svg}"


def tree(history: History, title: str = "title") -> ET.Element:
    return ET.fromstring(svg(history, title))  # noqa: S314 - our own text


def texts(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_record_has_a_box_in_every_step(name: str) -> None:
    history = play(name)
    root = tree(history)
    views = [view for event in history.events for moment in event.partitions for view in moment.replicas]
    offsets = sum(view.log_end_offset for view in views)
    boxes = [element for element in root.iter(f"{SVG}rect") if element.get("height") == "20"]
    assert len(boxes) == offsets
    assert len([element for element in root.iter(f"{SVG}line") if element.get("stroke") == "#b3261e"]) == len(views) + 1
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for element in root.iter(f"{SVG}rect"):
        assert float(element.get("x", "0")) + float(element.get("width", "0")) <= width
        assert float(element.get("y", "0")) + float(element.get("height", "0")) <= height
    shown = " ".join(texts(root))
    for label in ("read_uncommitted", "high watermark"):
        assert label in shown
    assert "http" not in svg(history, name).replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("name", SCENARIOS)
def test_all_text_is_within_the_picture(name: str) -> None:
    """In the wider of the usual fonts, a letter is on average 0.57 times as wide as its size."""
    for protocol in SCENARIOS[name].protocols:
        root = tree(play(name, protocol))
        width, height = float(root.get("width", "0")), float(root.get("height", "0"))
        for element in root.iter(f"{SVG}text"):
            size, anchor = float(element.get("font-size", "12")), element.get("text-anchor", "start")
            available = width - float(element.get("x", "0")) if anchor == "start" else width
            assert 0.57 * size * len(element.text or "") <= available, element.text
            assert float(element.get("y", "0")) < height


def test_text_is_escaped() -> None:
    history = play("slow-follower")
    history.add_event('<script>alert("&")</script>')
    history.add_conclusion("a < b & c")
    drawn = svg(history, "<b>&</b>")
    assert "<script" not in drawn
    assert "<b>" not in drawn
    shown = texts(tree(history, "<b>&</b>"))
    assert "<b>&</b>" in shown
    assert "a < b & c" in shown
