"""The figures of the house are what they say they are."""

from pathlib import Path

import pytest

from lab.house import circles, doors_passed, figures, modules_of


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Two rooms, one with a sub-package; `a` and `b` go round in a circle, and `b` passes the door of `room.inner`."""
    texts = {
        "__init__": "",
        "a": "from kafka_forensics import b\n",
        "b": (
            "from kafka_forensics.room.inner.deep import thing\nfrom kafka_forensics.room.inner import thing\n"
            "from kafka_forensics.room.inner import deep\n\ndef f() -> None:\n    import kafka_forensics.a\n"
        ),
        "room/__init__": "",
        "room/inner/__init__": "from kafka_forensics.room.inner.deep import thing\n\n__all__ = ['thing']\n",
        "room/inner/deep": '"""Words."""\n\n# words\nthing = 1\n',
    }
    for name, text in texts.items():
        path = tmp_path / "kafka_forensics" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "lab").mkdir()
    return tmp_path


def test_circles_doors_and_figures(house: Path) -> None:
    modules = modules_of(house)
    assert circles(modules) == [["kafka_forensics.a", "kafka_forensics.b"]]
    inner = "kafka_forensics.room.inner"
    assert doors_passed(modules) == [("kafka_forensics.b", f"{inner}.deep.thing"), ("kafka_forensics.b", f"{inner}.deep")]
    counted = dict(figures(house))
    assert (counted["modules"], counted["lines"], counted["lines of code"]) == (6, 14, 9)
    assert (counted["modules with one public name"], counted["functions"]) == (1, 1)
