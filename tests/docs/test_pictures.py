"""The drawings of docs/pictures are what is made now, and every one is shown on a page."""

from pathlib import Path
from xml.etree import ElementTree as ET

from lab.doc_pictures import FOLDER, pictures

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_drawings_are_made_by_the_package() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == pictures()


def test_drawings_can_be_read_and_are_named() -> None:
    for path in FOLDER.iterdir():
        title = ET.fromstring(path.read_text()).find("{http://www.w3.org/2000/svg}title")  # noqa: S314 - our own file
        assert title is not None
        assert title.text


def test_every_drawing_is_shown() -> None:
    text = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    assert [path.name for path in FOLDER.iterdir() if f"pictures/{path.name})" not in text] == []
