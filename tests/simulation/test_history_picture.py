"""Pictures of histories: well-formed, a box for every record in every step, nothing unescaped, nothing fetched from elsewhere."""

from xml.etree import ElementTree as ET

import pytest

from kafka_forensics.simulation.history import History
from kafka_forensics.simulation.picture import COLOURS, svg
from kafka_forensics.simulation.scenarios import SCENARIOS, play

SVG = "{http://www.w3.org/2000/svg}"


def tree(history: History, title: str = "title") -> ET.Element:
    return ET.fromstring(svg(history, title))  # noqa: S314 - our own text


def texts(root: ET.Element) -> list[str]:
    return [one.text or "" for one in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_record_has_its_box_in_every_step(name: str) -> None:
    history = play(name)
    root = tree(history)
    views = [view for event in history.events for moment in event.partitions for view in moment.replicas]
    offsets = sum(view.log_end_offset for view in views)
    boxes = [one for one in root.iter(f"{SVG}rect") if one.get("height") == "20"]
    assert len(boxes) == offsets
    assert len([one for one in root.iter(f"{SVG}line") if one.get("stroke") == "#b3261e"]) == len(views) + 1
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    for one in root.iter(f"{SVG}rect"):
        assert float(one.get("x", "0")) + float(one.get("width", "0")) <= width
        assert float(one.get("y", "0")) + float(one.get("height", "0")) <= height
    said = " ".join(texts(root))
    for word in ("read_uncommitted", "high watermark"):
        assert word in said
    assert "http" not in svg(history, name).replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_text_leaves_the_picture(name: str) -> None:
    """A letter is 0.57 of its size wide in the wider of the usual fonts, taken over a line."""
    for protocol in SCENARIOS[name].protocols:
        root = tree(play(name, protocol))
        width, height = float(root.get("width", "0")), float(root.get("height", "0"))
        for one in root.iter(f"{SVG}text"):
            size, anchor = float(one.get("font-size", "12")), one.get("text-anchor", "start")
            room = width - float(one.get("x", "0")) if anchor == "start" else width
            assert 0.57 * size * len(one.text or "") <= room, one.text
            assert float(one.get("y", "0")) < height


def test_only_what_is_drawn_is_explained() -> None:
    said = " ".join(texts(tree(play("slow-follower"))))
    assert "epoch 0 high watermark" in said
    assert "marker" not in said
    assert "COMMIT or ABORT marker" in " ".join(texts(tree(play("txn-torn"))))


def test_what_is_missing_is_said_below() -> None:
    assert "Acknowledged, and on no broker any more: r3." in texts(tree(play("txn-partly-lost")))


def test_records_have_the_colour_of_their_epoch_and_markers_their_letter() -> None:
    root = tree(play("unclean-election"))
    colours = {one.get("fill") for one in root.iter(f"{SVG}rect") if one.get("height") == "20"}
    assert colours == {COLOURS[0], COLOURS[2]}
    said = texts(tree(play("txn-aborted")))
    assert said.count("A") > 0
    assert said.count("C") > 0


def styled(root: ET.Element, attribute: str, value: str) -> set[str]:
    return {one.text or "" for one in root.iter(f"{SVG}text") if one.get(attribute) == value}


def test_acknowledged_records_that_are_missing_at_the_end_stand_out() -> None:
    for name, missing in (("txn-partly-lost", {"r3"}), ("slow-follower", set())):
        root = tree(play(name))
        legend = {"r"} if missing else set()
        assert styled(root, "text-decoration", "underline") == missing | legend
        assert ("acknowledged, and not to be read at the end" in texts(root)) is bool(missing)


def test_records_of_aborted_transactions_look_otherwise_than_committed_ones() -> None:
    history = play("txn-aborted")
    root = tree(history)
    markers = [
        batch.marker
        for event in history.events
        for moment in event.partitions
        for view in moment.replicas
        for batch in view.batches
    ]
    assert {"ABORT", "COMMIT"} <= set(markers)
    aborted = styled(root, "font-style", "italic") - {"r"}
    records = {text for text in texts(root) if text[:1] == "r" and text[1:].isdigit()}
    assert aborted
    assert aborted < records
    assert "record of an aborted transaction" in texts(root)
    assert "record of an aborted transaction" not in texts(tree(play("txn-partly-lost")))


def test_what_is_told_is_escaped() -> None:
    history = play("slow-follower")
    history.tell('<script>alert("&")</script>')
    history.remark("a < b & c")
    drawn = svg(history, "<b>&</b>")
    assert "<script" not in drawn
    assert "<b>" not in drawn
    said = texts(tree(history, "<b>&</b>"))
    assert "<b>&</b>" in said
    assert "a < b & c" in said


def test_who_is_away_is_faded() -> None:
    history = play("unclean-election")
    faded = [one for one in tree(history).iter(f"{SVG}g") if one.get("opacity")]
    away = [v for event in history.events for moment in event.partitions for v in moment.replicas if v.state in ("dead", "frozen")]
    assert len(faded) == len(away) > 0
