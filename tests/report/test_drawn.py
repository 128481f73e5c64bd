"""Lanes in notebooks: those of the report, of one partition, read anew without a trace in the answer."""

from pathlib import Path
from typing import Final
from xml.dom import minidom

import pytest

from kafka_forensics import scan
from kafka_forensics.errors import UsageError
from kafka_forensics.export.json_document import document
from tests.support.replicas import put_replica
from tests.support.segments import batch

SAMPLE: Final = Path(__file__).resolve().parents[2] / "sample_logs" / "unclean-election"


def test_lanes_are_a_picture_with_its_own_style_and_words() -> None:
    drawing = scan(str(SAMPLE), topic="audit").lanes("audit", 0)
    root = minidom.parseString(drawing._repr_svg_()).documentElement  # noqa: S318 - made here
    assert root is not None
    assert root.tagName == "svg"
    assert root.getAttribute("aria-label").startswith("Replicas of audit-0 over offsets: broker 1 offsets 0 to 345")
    assert next(node.tagName for node in root.childNodes if isinstance(node, minidom.Element)) == "style"
    assert drawing._repr_svg_() in drawing._repr_html_()
    assert "cut at 300: 70 offsets lost" in drawing._repr_html_()


def test_the_answer_is_as_before() -> None:
    result = scan(str(SAMPLE), topic="audit")
    before = "".join(document(result))
    assert result.lanes("audit", 0)._repr_html_() == result.lanes("audit", 0)._repr_html_()
    assert "".join(document(result)) == before


def test_a_partition_that_is_not_there_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="there is no partition 'audit-1'") as caught:
        scan(str(SAMPLE), topic="audit").lanes("audit", 1)
    assert caught.value.hint == "did you mean audit-0?"


def test_what_a_picture_cannot_show_stands_below_it(tmp_path: Path) -> None:
    put_replica(tmp_path, 1, batch(0, 5), partition="audit-0")
    log_dir = next(path for path in tmp_path.iterdir() if path.is_dir())
    drawing = scan(f"<b>={log_dir}").lanes("audit", 0)
    assert "<figcaption>The high watermark is not known: no file tells one.</figcaption>" in drawing._repr_html_()
    assert "broker &lt;b&gt;" in drawing._repr_svg_()
    assert "<b>" not in drawing._repr_html_()
